"""Pure functions of `keras.ops` that more than one layer uses."""

from mlp_mixers.ops.assignment import balanced_assignment
from mlp_mixers.ops.masking import check_padding_mask
from mlp_mixers.ops.masking import masked_softmax
from mlp_mixers.ops.masking import zero_padding
from mlp_mixers.ops.per_token import per_token
from mlp_mixers.ops.spatial import spatial_product
from mlp_mixers.ops.spatial import toeplitz_matrix

__all__ = [
    "balanced_assignment",
    "check_padding_mask",
    "masked_softmax",
    "per_token",
    "spatial_product",
    "toeplitz_matrix",
    "zero_padding",
]
