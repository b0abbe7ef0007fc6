"""Routers by name, by configuration, or after a pattern."""

import keras

from mlp_mixers.layers.base_router import BaseRouter
from mlp_mixers.layers.hash_router import HashRouter
from mlp_mixers.layers.router import Router
from mlp_mixers.layers.router import says_nothing
from mlp_mixers.layers.switch_router import SwitchRouter
from mlp_mixers.layers.top_two_router import TopTwoRouter

ROUTERS = {
    "base": BaseRouter,
    "switch": SwitchRouter,
    "top_two": TopTwoRouter,
    "hash": HashRouter,
}


def get_router(router, num_experts, vocabulary_size=None):
    """A fresh router.

    Args:
        router: `"base"`, `"switch"`, `"top_two"`, `"hash"`; a `Router`, whose
            configuration is the pattern for the new one; or such a
            configuration, as Keras serialises it.
        num_experts: Number of experts, E.
        vocabulary_size: Number of tokens, for a router that asks for it and
            has none yet.

    Raises:
        ValueError: If it is none of these, has no `call`, or is for another
            number of experts or tokens.
    """
    if isinstance(router, str) and router in ROUTERS:
        cls, config = ROUTERS[router], {}
    elif isinstance(router, Router):
        cls, config = type(router), router.get_config()
    elif isinstance(router, dict):
        given = keras.saving.deserialize_keras_object(router)
        return get_router(given, num_experts, vocabulary_size)
    elif isinstance(router, type) and issubclass(router, Router):
        raise ValueError(
            "Pass a router, not its class: "
            f"`router={router.__name__}()`. Received: router={router!r}"
        )
    else:
        raise ValueError(
            f"`router` must be one of {tuple(ROUTERS)}, a `Router` or its "
            f"configuration. Received: router={router!r}"
        )
    if cls.call is Router.call:
        raise ValueError(says_nothing(cls))
    known = {"num_experts": num_experts}
    if vocabulary_size is not None and hasattr(cls, "balance"):
        known["vocabulary_size"] = vocabulary_size
    for name, value in known.items():
        if config.get(name, value) not in (None, value):
            raise ValueError(
                f"The router is for another `{name}`. Received: "
                f"router.{name}={config[name]}, {name}={value}"
            )
    config = {k: v for k, v in config.items() if k != "name"}
    return cls.from_config({**config, **known, "name": "router"})
