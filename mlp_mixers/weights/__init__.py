"""Checkpoints of other libraries in and out, and other grids of patches."""

from mlp_mixers.weights.checkpoint import LoadReport
from mlp_mixers.weights.checkpoint import export_checkpoint
from mlp_mixers.weights.checkpoint import load_checkpoint
from mlp_mixers.weights.files import read_arrays
from mlp_mixers.weights.resize import resize_spatial_weights

__all__ = [
    "LoadReport",
    "export_checkpoint",
    "load_checkpoint",
    "read_arrays",
    "resize_spatial_weights",
]
