"""The formulas of attention with heads, and of experts.

Letters: n tokens, d channels, f the width inside an expert, c channels that
are projected, E experts, k choices of a token, h heads, a the width of all
heads.

Experts are counted as the routing asks for them, k networks a token; blocks
and places that stay empty are computed too and not counted.
"""

from mlp_mixers.analysis.flop_cost import Cost
from mlp_mixers.analysis.flop_cost import Part
from mlp_mixers.analysis.flop_cost import register_flops
from mlp_mixers.analysis.flop_formulas_keras import SOFTMAX
from mlp_mixers.analysis.flop_formulas_keras import size
from mlp_mixers.layers.base_router import BaseRouter
from mlp_mixers.layers.feature_experts import SparseFeatureExperts
from mlp_mixers.layers.position_embedding import PositionEmbedding
from mlp_mixers.layers.router import LearnedRouter
from mlp_mixers.layers.router import Router
from mlp_mixers.layers.self_attention import SelfAttention
from mlp_mixers.layers.sparse_block import SMLPBlock
from mlp_mixers.layers.token_experts import SparseTokenExperts
from mlp_mixers.layers.transformer_block import TransformerBlock


@register_flops(PositionEmbedding)
def _position_embedding(layer, x, positions=None):
    return Cost(elementwise=size(x))


@register_flops(SelfAttention)
def _self_attention(attention, x, mask=None):
    n, a, h = x[0], attention.attention_dim, attention.num_heads
    return Cost(
        macs=2 * n * n * a,  # scores, then the weighted sum
        elementwise=n * a + SOFTMAX * h * n * n,
        parts=[
            Part(attention.qkv_dense, x),
            Part(attention.output_dense, (n, a)),
        ],
    )


@register_flops(TransformerBlock)
def _transformer_block(block, x, token_ids=None, mask=None):
    parts = [
        Part(block.attention_norm, x),
        Part(block.attention, x),
        Part(block.feed_forward_norm, x),
    ]
    if block.feed_forward:
        parts.append(Part(block.feed_forward, x))
    else:
        inner = (x[0], block.intermediate_dim)
        parts.append(Part(block.intermediate_dense, x))
        parts.append(Part(block.output_dense, inner))
    return Cost(elementwise=2 * size(x), parts=parts)  # the residual sums


@register_flops(Router)
def _router(router, x, token_ids=None, mask=None):
    return Cost()  # by a table


@register_flops(BaseRouter)
@register_flops(LearnedRouter)
def _learned_router(router, x, token_ids=None, mask=None):
    n, d = x
    experts = router.num_experts
    return Cost(macs=n * d * experts, elementwise=SOFTMAX * n * experts)


@register_flops(SparseTokenExperts)
def _token_experts(layer, x, token_ids=None, mask=None):
    n, d = x
    f, k = layer.intermediate_dim, layer.router.num_choices
    idle = (layer.num_experts - k) * (2 * d * f + f + d)
    return Cost(
        macs=k * n * 2 * d * f,
        # Biases; the gate, and the sum over choices.
        elementwise=k * n * (f + 3 * d),
        parts=[Part(layer.router, x)],
        active_parameters=layer.count_params() - idle,
    )


@register_flops(SparseFeatureExperts)
def _feature_experts(unit, x, gate_residual=None, mask=None):
    n, channels = x
    c, experts = channels // 2, unit.num_experts
    macs, elementwise = n * n * c, 2 + (gate_residual is not None)
    routed = 0
    if unit.routing != "deterministic":
        rows = n if unit.routing == "leaky" else unit.prefix_length
        macs += rows * c * experts
        elementwise += 1  # the gate of the route
        routed = SOFTMAX * c * experts
    return Cost(
        macs=macs,
        elementwise=elementwise * n * c + routed,
        parts=[Part(unit.norm, (n, c))],
    )


@register_flops(SMLPBlock)
def _smlp_block(block, x, token_ids=None, mask=None):
    gate = x[0], block.gate_dim
    parts = [
        Part(block.token_norm, x),
        Part(block.token_experts, x),
        Part(block.norm, x),
        Part(block.intermediate_dense, x),
        Part(
            block.gating_unit,
            (x[0], block.intermediate_dim),
            gate_residual=gate if block.attention else None,
        ),
        Part(block.output_dense, gate),
        Part(block.drop_path, x),
    ]
    if block.attention:
        parts.append(Part(block.attention, x))
    return Cost(elementwise=2 * size(x), parts=parts)  # the residual sums
