"""The ideas of the papers, each one serialisable Keras layer."""

from mlp_mixers.layers.blocks import GMLPBlock
from mlp_mixers.layers.patch_embedding import PatchEmbedding
from mlp_mixers.layers.spatial_gating_unit import SpatialGatingUnit
from mlp_mixers.layers.stochastic_depth import StochasticDepth
from mlp_mixers.layers.tiny_attention import TinyAttention

__all__ = [
    "GMLPBlock",
    "PatchEmbedding",
    "SpatialGatingUnit",
    "StochasticDepth",
    "TinyAttention",
]
