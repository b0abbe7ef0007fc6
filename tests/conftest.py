"""Setup that must come before anything imports a backend."""

import os

# PyTorch after TensorFlow in one process can crash.
if os.environ.get("KERAS_BACKEND") == "torch":
    import torch  # noqa: F401

import keras
import numpy as np
import pytest


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
