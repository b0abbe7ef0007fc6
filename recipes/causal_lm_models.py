"""The models that `recipes.causal_lm` compares, as wide as each may be."""

import functools
import math

from mlp_mixers.analysis import count_flops
from mlp_mixers.models import SMLPBackbone

# What makes each of them of a `SMLPBackbone`, by the paper's names.
VARIANTS = {
    "gmlp": {"num_sparse_blocks": 0},
    "smlp": {},
    "smlp-partial": {"routing": "partial", "short_prompt": "deterministic"},
    "smlp-leaky": {"routing": "leaky"},
    "transformer": {"mixing": "attention", "num_sparse_blocks": 0},
    "switch": {"mixing": "attention", "router": "switch"},
    "gshard": {"mixing": "attention", "router": "top_two"},
    "base": {"mixing": "attention", "router": "base"},
    "hash": {"mixing": "attention", "router": "hash"},
}


def arguments_of(variant, sizes):
    """The arguments of a variant's backbone, its width left open.

    Args:
        variant: A name in `VARIANTS`.
        sizes: Dictionary with `vocabulary_size`, `sequence_length`,
            `hidden_dim`, `num_layers`, `num_sparse_blocks`, `num_experts`,
            and anything else that a `SMLPBackbone` takes; `num_heads` are
            those of attention, `spatial_heads` those of a gMLP's block.

    Returns:
        Dictionary.
    """
    sizes = dict(sizes)
    blocks = sizes.pop("num_layers")
    arguments = {**sizes, **VARIANTS[variant]}
    arguments["num_dense_blocks"] = blocks - arguments["num_sparse_blocks"]
    if not arguments["num_sparse_blocks"]:
        arguments["num_experts"] = None
    spatial_heads = arguments.pop("spatial_heads", None)
    if variant not in ("gmlp", "smlp", "smlp-partial", "smlp-leaky"):
        arguments.pop("attention_dim", None)
        arguments.pop("toeplitz", None)
    else:
        arguments["num_heads"] = spatial_heads
    return arguments


def equal_width(variant, sizes, macs):
    """The `intermediate_dim` with which a variant costs so much, nearly.

    Multiply-adds of a forward pass are a straight line in the width, so two
    models say where it passes through `macs`.

    Args:
        variant: A name in `VARIANTS`.
        sizes: As in `arguments_of`.
        macs: Multiply-adds of one text of full length, without the output
            projection, which all of them have.

    Returns:
        Integer that the experts divide.

    Raises:
        ValueError: If the variant costs more already, whatever its width.
    """
    step = _step(variant, sizes)
    narrow, wide = (_macs(variant, sizes, width * step) for width in (1, 2))
    slope = (wide - narrow) / step
    width = step * round((step + (macs - narrow) / slope) / step)
    if width < step:
        raise ValueError(
            f"A {variant} with these sizes costs more than what it shall "
            "equal, whatever its width: raise --intermediate-dim, or take "
            f"--equal width. Received: {macs:,} multiply-adds, of which it has "
            f"{narrow:,} with a width of {step}"
        )
    return width


def _step(variant, sizes):
    """Widths are multiples of it: halves are cut into chunks for experts."""
    if not variant.startswith("smlp"):
        return 2
    return 2 * math.lcm(sizes["num_experts"], sizes.get("spatial_heads") or 1)


@functools.cache
def _macs_of(items, width):
    backbone = SMLPBackbone(intermediate_dim=width, **dict(items))
    return count_flops(backbone).macs


def _macs(variant, sizes, width):
    return _macs_of(tuple(arguments_of(variant, sizes).items()), width)


def build(variant, sizes, width, equal=None):
    """The backbone of a variant.

    Args:
        variant: A name in `VARIANTS`.
        sizes: As in `arguments_of`.
        width: `intermediate_dim`, of the variant that others shall equal.
        equal: The variant that others shall cost as much as; `None` gives all
            the same width.
    """
    if equal is not None and variant != equal:
        width = equal_width(variant, sizes, _macs(equal, sizes, width))
    return SMLPBackbone(intermediate_dim=width, **arguments_of(variant, sizes))
