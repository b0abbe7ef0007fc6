"""What the recipes train with, beyond Keras."""

from mlp_mixers.training.optimizer import AdamW
from mlp_mixers.training.optimizer import warmup_cosine
from mlp_mixers.training.progress import ProgressBar

__all__ = ["AdamW", "ProgressBar", "warmup_cosine"]
