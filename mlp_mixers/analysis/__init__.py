"""What a model has learned, as arrays and as pictures, and what it costs."""

from mlp_mixers.analysis.causality import LeakReport
from mlp_mixers.analysis.causality import leaks_future
from mlp_mixers.analysis.experts import expert_load
from mlp_mixers.analysis.experts import plot_expert_load
from mlp_mixers.analysis.flop_cost import Cost
from mlp_mixers.analysis.flop_cost import Part
from mlp_mixers.analysis.flop_cost import register_flops
from mlp_mixers.analysis.flops import FlopsReport
from mlp_mixers.analysis.flops import count_flops
from mlp_mixers.analysis.plots import plot_history
from mlp_mixers.analysis.plots import plot_spatial_matrices
from mlp_mixers.analysis.plots import plot_spatial_weights
from mlp_mixers.analysis.weights import spatial_weights

__all__ = [
    "Cost",
    "FlopsReport",
    "LeakReport",
    "Part",
    "count_flops",
    "expert_load",
    "leaks_future",
    "plot_expert_load",
    "plot_history",
    "plot_spatial_matrices",
    "plot_spatial_weights",
    "register_flops",
    "spatial_weights",
]
