"""The models that `recipes.causal_lm` compares, as wide as each may be."""

import functools
import math

from mlp_mixers.analysis import count_flops
from mlp_mixers.layers import SwitchRouter
from mlp_mixers.layers import TopTwoRouter
from mlp_mixers.models import SMLPBackbone
from recipes.checks import dashed

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
# Those of gMLP's blocks, and of them those whose router can be chosen.
SPATIAL = ("gmlp", "smlp", "smlp-partial", "smlp-leaky")
SMLP = SPATIAL[1:]
# Routers with losses, and the weights of these, as they name them.
WITH_LOSSES = {"switch": SwitchRouter, "top_two": TopTwoRouter}
LOSS_WEIGHTS = ("balance_loss_weight", "z_loss_weight")


def arguments_of(variant, sizes):
    """The arguments of a variant's backbone, its width left open.

    Args:
        variant: A name in `VARIANTS`.
        sizes: Dictionary with `vocabulary_size`, `sequence_length`,
            `hidden_dim`, `num_layers`, `num_sparse_blocks`, `num_experts`,
            and anything else that a `SMLPBackbone` takes; `num_heads` are
            those of attention, `spatial_heads` those of a gMLP's block,
            `router` is that of sparse all-MLPs (`None`: the backbone's own).
            The weights of losses are left to `build`.

    Returns:
        Dictionary.
    """
    sizes = {k: v for k, v in sizes.items() if k not in LOSS_WEIGHTS}
    blocks = sizes.pop("num_layers")
    router = sizes.pop("router", None)
    if router is not None and variant in SMLP:
        sizes["router"] = router
    arguments = {**sizes, **VARIANTS[variant]}
    arguments["num_dense_blocks"] = blocks - arguments["num_sparse_blocks"]
    if not arguments["num_sparse_blocks"]:
        arguments["num_experts"] = None
    spatial_heads = arguments.pop("spatial_heads", None)
    if variant not in SPATIAL:
        arguments.pop("attention_dim", None)
        arguments.pop("toeplitz", None)
    else:
        arguments["num_heads"] = spatial_heads
    return arguments


def equal_width(variant, sizes, macs, other="gmlp"):
    """The `intermediate_dim` with which a variant costs so much, nearly.

    Multiply-adds of a forward pass are a straight line in the width, so two
    models say where it passes through `macs`.

    Args:
        variant: A name in `VARIANTS`.
        sizes: As in `arguments_of`.
        macs: Multiply-adds of one text of full length, without the output
            projection, which all of them have.
        other: The variant that costs so much.

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
        # Their widths are multiples of the number of experts.
        fewer = " or fewer --num-experts" if variant in SMLP else ""
        raise ValueError(
            f"No {variant} of these sizes is as cheap as the {other}: "
            f"{other} costs {macs:,} multiply-adds a row, {variant} already "
            f"{narrow:,} with the smallest width, {step}. Choose a larger "
            f"--intermediate-dim or a smaller --hidden-dim{fewer}; or leave "
            "widths alone with --equal width. "
            f"Received: hidden_dim={sizes['hidden_dim']}, "
            f"num_experts={sizes['num_experts']}"
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
        macs = _macs(equal, sizes, width)
        width = equal_width(variant, sizes, macs, equal)
    return SMLPBackbone(
        intermediate_dim=width,
        **{**arguments_of(variant, sizes), **_weighed(variant, sizes)},
    )


def _weighed(variant, sizes):
    """The arguments that say what losses weigh, if that is asked for."""
    weights = {
        name: sizes[name]
        for name in LOSS_WEIGHTS
        if sizes.get(name) is not None
    }
    found = {}
    if variant in SMLP and "balance_loss_weight" in weights:
        found["balance_loss_weight"] = weights["balance_loss_weight"]
    router = WITH_LOSSES.get(router_of(variant, sizes.get("router")))
    if router is not None and weights:
        found["router"] = router(**weights)
    return found


def router_of(variant, asked=None):
    """The name of a variant's router of tokens; `None` without experts.

    Args:
        variant: A name in `VARIANTS`.
        asked: The router of sparse all-MLPs, `"base"` if `None`.
    """
    if "num_sparse_blocks" in VARIANTS[variant]:
        return None
    return VARIANTS[variant].get("router", asked or "base")


def check_experts(model):
    """Raises a ValueError for settings of experts that no model has.

    Args:
        model: A `causal_lm_settings.Model`.
    """
    routers = {name: router_of(name, model.router) for name in model.models}
    with_losses = [name for name in routers if routers[name] in WITH_LOSSES]
    learned = [n for n in routers if VARIANTS[n].get("routing") is not None]
    for setting, having, what in (
        ("router", set(SMLP) & set(routers), "smlp models"),
        (
            "balance_loss_weight",
            [*with_losses, *learned],
            "switch and top_two routers and smlp-partial",
        ),
        ("z_loss_weight", with_losses, "switch and top_two routers"),
    ):
        value = getattr(model, setting)
        if value is not None and not having:
            raise ValueError(
                f"--{dashed(setting)} is for {what}, and changes nothing "
                f"here. Received: --{dashed(setting)} {value}, --models "
                f"{' '.join(model.models)}"
            )
