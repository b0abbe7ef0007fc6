"""Settings filled in and held in range, said in one wording."""

import dataclasses


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
        ("be positive", lambda v: v > 0, positive),
        ("not be negative", lambda v: v >= 0, not_negative),
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
