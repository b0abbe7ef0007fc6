"""The formulas of the layers of this package.

Letters: n tokens, d and c channels, e the width inside a block.
"""

from mlp_mixers.analysis.flop_cost import Cost
from mlp_mixers.analysis.flop_cost import Part
from mlp_mixers.analysis.flop_cost import register_flops
from mlp_mixers.analysis.flop_formulas_keras import size
from mlp_mixers.layers import Affine
from mlp_mixers.layers import GatherTokens
from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers import LayerScale
from mlp_mixers.layers import MixerBlock
from mlp_mixers.layers import PatchEmbedding
from mlp_mixers.layers import ResMLPBlock
from mlp_mixers.layers import SpatialGatingUnit
from mlp_mixers.layers import SpatialProjection
from mlp_mixers.layers import StochasticDepth


@register_flops(StochasticDepth)
def _stochastic_depth(layer, x):
    return Cost()  # passes its input through in inference


@register_flops(GatherTokens)
def _gather_tokens(layer, x, positions):
    return Cost()  # moves, does not compute


@register_flops(Affine)
def _affine(layer, x):
    return Cost(elementwise=2 * size(x))


@register_flops(LayerScale)
def _layer_scale(layer, x):
    return Cost(elementwise=size(x))


@register_flops(PatchEmbedding)
def _patch_embedding(layer, images):
    rows, columns = layer.grid_shape
    n = rows * columns
    return Cost(parts=[Part(layer.dense, (n, size(images) // n))])


@register_flops(SpatialProjection)
def _spatial_projection(layer, x):
    n, c = x
    return Cost(macs=n * n * c, elementwise=n * c)  # W, then b


@register_flops(SpatialGatingUnit)
def _spatial_gating_unit(unit, x, gate_residual=None, mask=None):
    n, channels = x
    c = channels // 2 if unit.gate == "split" else channels
    # b; the product or sum of the gate, if there is one; what joins it
    elementwise = 1 + (unit.gate != "linear") + (gate_residual is not None)
    # W is multiplied whole, be it Toeplitz, causal or one of several heads.
    return Cost(
        macs=n * n * c,
        elementwise=elementwise * n * c,
        parts=[Part(unit.norm, (n, c))],
    )


@register_flops(GMLPBlock)
def _gmlp_block(block, x, mask=None):
    n, gate = x[0], (x[0], block.gate_dim)
    parts = [
        Part(block.norm, x),
        Part(block.intermediate_dense, x),
        Part(
            block.gating_unit,
            (n, block.intermediate_dim),
            gate_residual=gate if block.attention else None,
        ),
        Part(block.output_dense, gate),
        Part(block.drop_path, x),
    ]
    if block.attention:
        parts.insert(2, Part(block.attention, x))
    return Cost(elementwise=size(x), parts=parts)  # the residual sum


@register_flops(MixerBlock)
def _mixer_block(block, x):
    n, c = x
    return Cost(
        elementwise=2 * size(x),  # two residual sums
        parts=[
            Part(block.token_norm, x),
            Part(block.token_intermediate_dense, (c, n)),
            Part(block.token_output_dense, (c, block.token_intermediate_dim)),
            Part(block.token_drop_path, x),
            Part(block.channel_norm, x),
            Part(block.intermediate_dense, x),
            Part(block.output_dense, (n, block.intermediate_dim)),
            Part(block.channel_drop_path, x),
        ],
    )


@register_flops(ResMLPBlock)
def _resmlp_block(block, x):
    n, _ = x
    return Cost(
        elementwise=2 * size(x),  # two residual sums
        parts=[
            Part(block.token_norm, x),
            Part(block.spatial_projection, x),
            Part(block.token_scale, x),
            Part(block.token_drop_path, x),
            Part(block.channel_norm, x),
            Part(block.intermediate_dense, x),
            Part(block.output_dense, (n, block.intermediate_dim)),
            Part(block.channel_scale, x),
            Part(block.channel_drop_path, x),
        ],
    )
