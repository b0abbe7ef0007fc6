"""What the recipes train with: optimiser, progress bar, checkpoints."""

from mlp_mixers.training.optimizer import AdamW
from mlp_mixers.training.optimizer import warmup_cosine
from mlp_mixers.training.progress import ProgressBar
from mlp_mixers.training.resume import TrainingCheckpoint

__all__ = ["AdamW", "ProgressBar", "TrainingCheckpoint", "warmup_cosine"]
