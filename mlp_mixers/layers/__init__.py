"""The ideas of the papers, each one serialisable Keras layer."""

from mlp_mixers.layers.affine import Affine
from mlp_mixers.layers.base_router import BaseRouter
from mlp_mixers.layers.blocks import GMLPBlock
from mlp_mixers.layers.feature_experts import SparseFeatureExperts
from mlp_mixers.layers.gather_tokens import GatherTokens
from mlp_mixers.layers.hash_router import HashRouter
from mlp_mixers.layers.layer_scale import LayerScale
from mlp_mixers.layers.mixer_block import MixerBlock
from mlp_mixers.layers.patch_embedding import PatchEmbedding
from mlp_mixers.layers.position_embedding import PositionEmbedding
from mlp_mixers.layers.resmlp_block import ResMLPBlock
from mlp_mixers.layers.router import Router
from mlp_mixers.layers.router import Routing
from mlp_mixers.layers.self_attention import SelfAttention
from mlp_mixers.layers.sparse_block import SMLPBlock
from mlp_mixers.layers.spatial_gating_unit import SpatialGatingUnit
from mlp_mixers.layers.spatial_projection import SpatialProjection
from mlp_mixers.layers.stochastic_depth import StochasticDepth
from mlp_mixers.layers.switch_router import SwitchRouter
from mlp_mixers.layers.tiny_attention import TinyAttention
from mlp_mixers.layers.token_experts import SparseTokenExperts
from mlp_mixers.layers.top_two_router import TopTwoRouter
from mlp_mixers.layers.transformer_block import TransformerBlock

__all__ = [
    "Affine",
    "BaseRouter",
    "GMLPBlock",
    "GatherTokens",
    "HashRouter",
    "LayerScale",
    "MixerBlock",
    "PatchEmbedding",
    "PositionEmbedding",
    "ResMLPBlock",
    "Router",
    "Routing",
    "SMLPBlock",
    "SelfAttention",
    "SparseFeatureExperts",
    "SparseTokenExperts",
    "SpatialGatingUnit",
    "SpatialProjection",
    "StochasticDepth",
    "SwitchRouter",
    "TinyAttention",
    "TopTwoRouter",
    "TransformerBlock",
]
