"""The workers of the benchmark do what it asks of them, on a small model."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from benchmarks import protocol

ROOT = pathlib.Path(__file__).parents[1]


def worker(side, tmp_path):
    command = [sys.executable, "-m", "benchmarks.vision_worker"]
    command += ["--side", side, "--preset", "gmlp_digits_nano", "--batch", "2"]
    command += ["--threads", "1", "--classes", "10", "--optimizer", "adamw"]
    backend = "jax" if side == "by-hand" else os.environ["KERAS_BACKEND"]
    environment = {"KERAS_BACKEND": backend}
    return protocol.Worker(command, environment, tmp_path / "log")


@pytest.mark.slow
@pytest.mark.parametrize("side", ["model", "by-hand"])
def test_worker_runs_a_step(side, tmp_path):
    if side == "by-hand":
        pytest.importorskip("jax")
    process = worker(side, tmp_path)
    try:
        started = process.ask("start")
        assert process.ask("train") > 0
        assert process.ask("infer") > 0
        assert process.ask("memory") > 10
    finally:
        process.close()
    assert started["import"] > 0
    # d = 32 and the rest of the preset, counted by the model itself
    assert started["parameters"] == parameters()


def parameters():
    from mlp_mixers.models import ImageClassifier

    return ImageClassifier.from_preset(
        "gmlp_digits_nano", load_weights=False, num_classes=10
    ).count_params()


@pytest.mark.slow
def test_by_hand_is_the_same_model(rng):
    """Our model's logits, from its weights in the other's names."""
    pytest.importorskip("jax")
    from benchmarks import vision_by_hand
    from mlp_mixers.models import ImageClassifier
    from mlp_mixers.models.presets import PRESETS

    model = ImageClassifier.from_preset(
        "gmlp_digits_nano", load_weights=False, num_classes=10
    )
    weights = {}
    for variable in model.trainable_variables:
        value = rng.normal(scale=0.2, size=variable.shape).astype("float32")
        variable.assign(value)
        weights[by_hand_name(variable.path)] = value
    for name in [n for n in weights if "spatial" in n]:
        weights[name] = weights[name][0]  # the only head
    images = rng.normal(size=(2, 8, 8, 1)).astype("float32")
    config = PRESETS["gmlp_digits_nano"]["config"]
    np.testing.assert_allclose(
        vision_by_hand.compile_predict(config)(weights, images),
        keras.ops.convert_to_numpy(model(images)),
        rtol=1e-3,
        atol=1e-4,
    )


def by_hand_name(path):
    """`.../block_1/norm/gamma` -> `1.norm_gamma`, and so on."""
    for ours, theirs in (
        ("patch_embedding/dense/", "patches_"),
        ("gating_unit/norm/", "gate_norm_"),
        ("gating_unit/spatial_", "spatial_"),
        ("intermediate_dense/", "in_"),
        ("output_dense/", "out_"),
        ("output_norm/", "norm_"),
        ("norm/", "norm_"),
        ("head/", "head_"),
        ("_kernel", ""),
    ):
        path = path.replace(ours, theirs)
    *_, before, name = ["", *path.split("/")]
    if before.startswith("block_"):
        return f"{before.removeprefix('block_')}.{name}"
    return name


ENDLESS = """
import pathlib
import time

from benchmarks import study

HERE = pathlib.Path(__file__).parent


def train(key):
    while True:
        (HERE / key).write_text(str(time.perf_counter()))
        time.sleep(0.05)


if __name__ == "__main__":
    keys = [(key,) for key in ("first", "second", "third")]
    given = ["--jobs", "2", "--out", str(HERE / "endless.json")]
    study.main(
        study.Study("endless", {}, keys, train, str),
        study.command_line("Endless.").parse_args(given),
    )
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_study_that_is_ended_leaves_nothing_running(how, tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, "-m", "endless"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    written = [tmp_path / "first", tmp_path / "second"]
    while not all(path.exists() for path in written):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(how)
    process.wait()
    time.sleep(2)
    last = [path.read_text() for path in written]
    time.sleep(2)
    assert [path.read_text() for path in written] == last
    assert not (tmp_path / "third").exists()


@pytest.mark.slow
def test_a_dead_worker_is_named(tmp_path):
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    process = protocol.Worker(command, {}, tmp_path / "log")
    with pytest.raises(RuntimeError, match="no such thing"):
        process.ask("start")
    process.close()
