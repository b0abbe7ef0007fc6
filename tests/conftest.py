"""Setup that must come before anything imports a backend."""

import atexit
import os
import pathlib
import shutil
import tempfile

# PyTorch after TensorFlow in one process can crash.
if os.environ.get("KERAS_BACKEND") == "torch":
    import torch  # noqa: F401


def share_compiled_programs():
    """Lets JAX compile a program once for all tests, workers and commands."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # a worker's, or one's own
        return
    folder = tempfile.mkdtemp(prefix="compiled-by-jax-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


if os.environ.get("KERAS_BACKEND") == "jax":
    share_compiled_programs()

import keras
import numpy as np
import pytest

BACKEND = keras.backend.backend()
FOLDER = pathlib.Path(__file__).parent

if BACKEND == "jax":
    import jax

    # Tests compile much and compute little. Here and not in the environment:
    # commands that tests start compute more.
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True)
def _fresh_settings():
    """Every test starts from the same random state and default settings."""
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy("float32")
    keras.config.set_image_data_format("channels_last")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# These touch no backend and come out the same on all three: `make test` runs
# them on the first one only.
WITHOUT_BACKEND = {
    "data": (
        *("augmentation", "digits", "image_files", "image_folder", "keras_cv"),
        *("mixing", "npz", "policies", "preprocessing", "sources", "split"),
        *("tfds", "tokenizer", "text_sources", "sentences", "packing"),
        *("masking", "text_encoder", "task_data", "glue", "tsv", "squad"),
        *("span_windows", "task_sources", "streams", "choices"),
    ),
    "models": ("sampling",),
    "training": ("task_metrics", "span_metrics"),
    "weights": ("files", "resize"),
    "recipes": ("finetune_settings", "checks", "records", "text_pictures"),
    "": ("arguments", "docs"),
}

# Recipes from data to saved results: `make test` runs them on one backend, the
# one that is quickest with them, and `make test-all` on the others too. What is
# marked `each` runs on all.
ON_ONE_BACKEND = {
    "vision": "jax",
    "vision_flow": "torch",
    "mlm": "torch",
    "mlm_use": "torch",
    "finetune": "torch",
    "finetune_use": "torch",
    "causal_lm": "torch",
}


def pytest_collection_modifyitems(items):
    once = {
        FOLDER / folder / f"test_{name}.py"
        for folder, names in WITHOUT_BACKEND.items()
        for name in names
    }
    elsewhere = {
        FOLDER / "recipes" / f"test_{name}.py"
        for name, backend in ON_ONE_BACKEND.items()
        if backend != BACKEND
    }
    for item in items:
        if item.path in once:
            item.add_marker("once")
        if item.path in elsewhere and not item.get_closest_marker("each"):
            item.add_marker("slow")
