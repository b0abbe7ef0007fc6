"""What a model has learned, as arrays and as pictures."""

from mlp_mixers.analysis.plots import plot_history
from mlp_mixers.analysis.plots import plot_spatial_weights
from mlp_mixers.analysis.weights import spatial_weights

__all__ = ["plot_history", "plot_spatial_weights", "spatial_weights"]
