"""Picks a backend that is there, before Keras is imported."""

import importlib.util
import json
import os
import pathlib
import sys

# The name of each backend and of its module are the same. The order is that in
# which an install with several is resolved.
BACKENDS = ("jax", "tensorflow", "torch")


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
    where only JAX or PyTorch is installed. A backend that was named or is
    installed, and a Keras that is already imported, are left alone. The choice
    is said on stderr.

    Raises:
        ImportError: If `KERAS_BACKEND` names a backend that is not installed,
            or none is.
    """
    if "keras" in sys.modules:
        return
    installed = [name for name in BACKENDS if _is_installed(name)]
    if not installed:
        raise ImportError(
            "mlp_mixers needs one of JAX, TensorFlow or PyTorch. Install one, "
            "for example with `pip install 'mlp_mixers[jax]'`."
        )
    named = os.environ.get("KERAS_BACKEND")
    if named in BACKENDS and named not in installed:
        raise ImportError(
            f"KERAS_BACKEND={named}, and {named} is not installed. Install it "
            f"with `pip install 'mlp_mixers[{named}]'`, or choose among what "
            f"is there: {', '.join(installed)}."
        )
    default = configured_backend()
    if named or default in installed or default not in BACKENDS:
        return
    os.environ["KERAS_BACKEND"] = installed[0]
    print(
        f"mlp_mixers: {default} is not installed and KERAS_BACKEND is not "
        f"set; using {installed[0]}.",
        file=sys.stderr,
    )


def _is_installed(module):
    return importlib.util.find_spec(module) is not None
