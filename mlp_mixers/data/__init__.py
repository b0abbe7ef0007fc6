"""Data without a framework: arrays in, batches out, on every backend."""

from mlp_mixers.data.images import ImageBatches
from mlp_mixers.data.images import Split
from mlp_mixers.data.images import load_digits
from mlp_mixers.data.images import shift_images

__all__ = ["ImageBatches", "Split", "load_digits", "shift_images"]
