"""The package keeps to Keras, and to one backend."""

import ast
import os
import pathlib
import subprocess
import sys

import keras
import pytest

import mlp_mixers

PACKAGE = pathlib.Path(mlp_mixers.__file__).parent
BACKENDS = {"tensorflow": "tensorflow", "jax": "jax", "torch": "torch"}


def imports_of(path, anywhere=True):
    """Names of the modules that a file imports.

    `anywhere=False` leaves out what is imported inside functions.
    """
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


# Rooms that read other people's files, some of which need a backend: there,
# a function may import one.
READERS = {"data", "weights"}
# Compiles by what the backend has for it, in branches that say so.
COMPILERS = {"compiled.py"}


def test_no_backend_is_imported_in_the_package():
    for path in PACKAGE.rglob("*.py"):
        if path.name in COMPILERS:
            continue
        anywhere = path.relative_to(PACKAGE).parts[0] not in READERS
        for name in imports_of(path, anywhere):
            assert name.split(".")[0] not in BACKENDS, f"{path}: {name}"


def test_backends_are_told_apart_only_in_ops():
    for path in PACKAGE.rglob("*.py"):
        if "backend.backend()" in path.read_text():
            assert path.parent.name == "ops", path


# What each floor may import, from the top of the house to the bottom.
FLOORS = [
    {"analysis"},
    {"models"},
    {"training", "layers"},
    {"ops", "weights", "data"},
    {"arguments", "version"},
]


def test_files_import_only_from_floors_below():
    level = {name: i for i, names in enumerate(FLOORS) for name in names}
    checked = 0
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own in ("__init__", "_backend"):  # above and below all floors
            continue
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] != "mlp_mixers":
                continue
            checked += 1
            assert parts[1] == own or level[parts[1]] > level[own], (
                f"{path.relative_to(PACKAGE)} imports {name}"
            )
    assert checked > 20


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_only_the_chosen_backend_is_loaded():
    """Import, build, train a step: the other backends stay out.

    Keras itself imports JAX under the other two where it is installed.
    """
    backend = keras.backend.backend()
    others = set(BACKENDS) - {backend, "jax"}
    code = f"""
import sys
import numpy as np
import mlp_mixers
from mlp_mixers.models import GMLPImageClassifier
model = GMLPImageClassifier.from_preset(
    "gmlp_digits_nano", num_classes=2, num_layers=1, load_weights=False
)
model.compile("sgd")
model.fit(np.zeros((2, 8, 8, 1)), np.zeros(2), verbose=0)
loaded = {others!r} & set(sys.modules)
assert not loaded, loaded
"""
    run = python(code, KERAS_BACKEND=backend)
    assert run.returncode == 0, run.stderr


CHOOSE = """
import importlib.util, os, runpy
real = importlib.util.find_spec
missing = {missing!r}
importlib.util.find_spec = (
    lambda name, *rest: None if name in missing else real(name, *rest)
)
runpy.run_path({path!r})["choose_installed_backend"]()
print(os.environ.get("KERAS_BACKEND"))
"""


def choose(missing, folder, **environment):
    """Chooses a backend in a process where some are not installed."""
    path = str(PACKAGE / "_backend.py")
    inherited = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    return subprocess.run(
        [sys.executable, "-c", CHOOSE.format(missing=missing, path=path)],
        env={**inherited, "KERAS_HOME": str(folder), **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ({"tensorflow"}, "jax"),
        ({"tensorflow", "jax"}, "torch"),
        (set(), None),
    ],
)
def test_an_installed_backend_is_chosen(missing, expected, tmp_path):
    """Without KERAS_BACKEND, where Keras's default is not installed."""
    run = choose(missing, tmp_path)
    assert run.stdout.strip() == str(expected), run.stderr
    assert ("not installed" in run.stderr) == (expected is not None)


def test_the_setting_in_keras_json_counts(tmp_path):
    (tmp_path / "keras.json").write_text('{"backend": "torch"}')
    assert choose({"tensorflow"}, tmp_path).stdout.strip() == "None"
    assert choose({"torch"}, tmp_path).stdout.strip() == "jax"


def test_a_backend_that_is_named_and_missing(tmp_path):
    run = choose({"torch"}, tmp_path, KERAS_BACKEND="torch")
    assert "torch is not installed. Install it with `pip install" in run.stderr
    assert "what is there: jax, tensorflow" in run.stderr
    run = choose({"tensorflow"}, tmp_path, KERAS_BACKEND="torch")
    assert run.stdout.strip() == "torch"


def test_no_backend_at_all(tmp_path):
    run = choose({"jax", "tensorflow", "torch"}, tmp_path)
    assert "needs one of JAX, TensorFlow or PyTorch" in run.stderr
