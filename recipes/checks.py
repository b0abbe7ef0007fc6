"""Settings filled in, held in range and in place, said in one wording."""

import dataclasses
import math

# NumPy's and Keras's generators take seeds below this.
SEEDS = 2**32


def dashed(name):
    """The name of a setting as it is typed."""
    return name.strip("_").replace("_", "-")


def flat(config):
    """`{name: value}` of all settings in a dataclass of dataclasses."""
    found = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found |= flat(value)
        else:
            found[field.name] = value
    return found


def given(config):
    """`{name: value}` of the settings that are not as they are by default."""
    default = flat(type(config)())
    return {k: v for k, v in flat(config).items() if v != default[k]}


def refuse_others(config, mode, allowed=()):
    """Raises a ValueError for settings that have no meaning in a mode.

    Args:
        config: A configuration.
        mode: Name of the setting that asks for something else than training.
        allowed: Names of those that have a meaning beside it.
    """
    others = {
        k: v for k, v in given(config).items() if k not in (mode, *allowed)
    }
    if others:
        names = ", ".join(f"--{dashed(name)}" for name in others)
        received = (f"{dashed(k)}={_shown(v)}" for k, v in others.items())
        raise ValueError(
            f"Beside --{dashed(mode)}, which trains nothing, {names} would "
            "change nothing: leave out what has no effect. "
            f"Received: {', '.join(received)}"
        )


def _shown(value):
    if isinstance(value, (tuple, list)):
        return " ".join(map(str, value))
    return str(value)


def filled_in(training, recipes):
    """What is asked for, and the rest by the recipe, as a dictionary.

    Args:
        training: A dataclass of settings; `None` is left to its `recipe`.
        recipes: Dictionary of recipes by name.

    Raises:
        ValueError: If both `epochs` and `steps` are asked for.
    """
    asked = {
        name: value
        for name, value in dataclasses.asdict(training).items()
        if value is not None
    }
    recipe = dict(recipes[training.recipe])
    if {"epochs", "steps"} <= set(asked):
        raise ValueError(
            "How long to train is said by --epochs or by --steps. Received: "
            f"epochs={asked['epochs']}, steps={asked['steps']}"
        )
    for one, other in (("epochs", "steps"), ("steps", "epochs")):
        if one in asked and other in recipe:
            recipe[other] = None
    return {**recipe, **asked}


def check_ranges(
    settings, positive=(), not_negative=(), below_one=(), share=()
):
    """Raises a ValueError for settings that cannot train.

    Args:
        settings: Any object; attributes that are `None` are passed over.
        positive: Names of attributes that must be above 0.
        not_negative: Names of those that must be 0 or more.
        below_one: Names of those in [0, 1).
        share: Names of those in [0, 1].
    """
    rules = (
        ("be positive", lambda v: 0 < v < math.inf, positive),
        ("not be negative", lambda v: 0 <= v < math.inf, not_negative),
        ("lie in [0, 1)", lambda v: 0 <= v < 1, below_one),
        ("lie in [0, 1]", lambda v: 0 <= v <= 1, share),
    )
    for rule, holds, names in rules:
        for name in names:
            value = getattr(settings, name)
            if value is not None and not holds(value):
                raise ValueError(
                    f"`{name}` must {rule}. Received: {name}={value}"
                )


def check_seeds(seed, count=1):
    """Raises a ValueError unless `seed`, `seed + 1`, ... can all be used."""
    if not 0 <= seed <= SEEDS - count:
        last = f", the last one of --seeds {count} too" if count > 1 else ""
        raise ValueError(
            f"Seeds are integers from 0 to {SEEDS - 1}{last}. "
            f"Received: seed={seed}"
        )
