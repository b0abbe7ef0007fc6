"""What the recipes train with: optimiser, progress bar, checkpoints."""

from mlp_mixers.training.metrics import Perplexity
from mlp_mixers.training.optimizer import AdamW
from mlp_mixers.training.optimizer import WarmupLinear
from mlp_mixers.training.optimizer import warmup_cosine
from mlp_mixers.training.progress import ProgressBar
from mlp_mixers.training.resume import TrainingCheckpoint
from mlp_mixers.training.routing_metrics import RoutingMetrics
from mlp_mixers.training.span_metrics import span_score
from mlp_mixers.training.task_metrics import score

__all__ = [
    "AdamW",
    "Perplexity",
    "ProgressBar",
    "RoutingMetrics",
    "TrainingCheckpoint",
    "WarmupLinear",
    "score",
    "span_score",
    "warmup_cosine",
]
