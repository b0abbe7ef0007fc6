"""Picks a backend that is there, before Keras is imported."""

import importlib.util
import json
import os
import pathlib
import sys

# In the order in which an install with several is resolved.
MODULES = {"jax": "jax", "tensorflow": "tensorflow", "torch": "torch"}


def configured_backend():
    """The backend that Keras would import, or `None` if it is beyond us."""
    home = os.environ.get("KERAS_HOME", pathlib.Path.home() / ".keras")
    try:
        settings = json.loads(pathlib.Path(home, "keras.json").read_text())
        return settings.get("backend", "tensorflow")
    except (OSError, ValueError, AttributeError):
        return "tensorflow"


def choose_installed_backend():
    """Sets `KERAS_BACKEND` where Keras's own default is not installed.

    Keras falls back on TensorFlow when nobody names a backend, and fails
    where only JAX or PyTorch is installed. `KERAS_BACKEND`, a backend that is
    installed, and a Keras that is already imported are left alone. The choice
    is said on stderr.
    """
    if "KERAS_BACKEND" in os.environ or "keras" in sys.modules:
        return
    wanted = configured_backend()
    if _is_installed(MODULES.get(wanted, wanted)):
        return
    for backend, module in MODULES.items():
        if _is_installed(module):
            os.environ["KERAS_BACKEND"] = backend
            print(
                f"mlp_mixers: {wanted} is not installed and KERAS_BACKEND is "
                f"not set; using {backend}.",
                file=sys.stderr,
            )
            return
    raise ImportError(
        "mlp_mixers needs one of JAX, TensorFlow or PyTorch. Install one, for "
        "example with `pip install 'mlp_mixers[jax]'`."
    )


def _is_installed(module):
    return importlib.util.find_spec(module) is not None
