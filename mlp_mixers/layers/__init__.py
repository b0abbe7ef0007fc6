"""The ideas of the papers, each one serialisable Keras layer."""

from mlp_mixers.layers.affine import Affine
from mlp_mixers.layers.blocks import GMLPBlock
from mlp_mixers.layers.gather_tokens import GatherTokens
from mlp_mixers.layers.layer_scale import LayerScale
from mlp_mixers.layers.mixer_block import MixerBlock
from mlp_mixers.layers.patch_embedding import PatchEmbedding
from mlp_mixers.layers.resmlp_block import ResMLPBlock
from mlp_mixers.layers.spatial_gating_unit import SpatialGatingUnit
from mlp_mixers.layers.spatial_projection import SpatialProjection
from mlp_mixers.layers.stochastic_depth import StochasticDepth
from mlp_mixers.layers.tiny_attention import TinyAttention

__all__ = [
    "Affine",
    "GMLPBlock",
    "GatherTokens",
    "LayerScale",
    "MixerBlock",
    "PatchEmbedding",
    "ResMLPBlock",
    "SpatialGatingUnit",
    "SpatialProjection",
    "StochasticDepth",
    "TinyAttention",
]
