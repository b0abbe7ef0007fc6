"""MLP alternatives to attention, as Keras 3 layers and models.

mlp_mixers.layers       the ideas of the papers, one layer each
mlp_mixers.models       backbones and tasks made of them
mlp_mixers.analysis     what models have learned, as arrays and pictures
mlp_mixers.data         images in, batches out
mlp_mixers.training     optimiser, progress bar and checkpoints of the recipes
mlp_mixers.weights      checkpoints of other libraries, other image sizes
"""

from mlp_mixers._backend import choose_installed_backend

choose_installed_backend()

from mlp_mixers import analysis  # noqa: E402
from mlp_mixers import data  # noqa: E402
from mlp_mixers import layers  # noqa: E402
from mlp_mixers import models  # noqa: E402
from mlp_mixers import training  # noqa: E402
from mlp_mixers import weights  # noqa: E402
from mlp_mixers.version import __version__  # noqa: E402

__all__ = [
    "__version__",
    "analysis",
    "data",
    "layers",
    "models",
    "training",
    "weights",
]
