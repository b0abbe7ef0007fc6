"""Which layers of a model are frozen, as a part of its configuration.

Keras keeps `trainable` in the configuration of each layer. Our models are
configured by their constructor alone, so frozen layers are listed beside it.
"""

_KEY = "frozen_layers"


def frozen_config(model):
    """Returns `{"frozen_layers": [...]}`, or nothing where none is frozen.

    Each entry is the names on the way to the layer, with slashes. A model that
    is frozen as a whole needs no list: its own `trainable` says it.
    """
    if not model.trainable:
        return {}
    paths = ["/".join(path) for path, _ in _frozen(model, ())]
    return {_KEY: paths} if paths else {}


def split_frozen(config):
    """Returns a copy of `config` without the list, and the list."""
    config = dict(config)
    return config, config.pop(_KEY, [])


def freeze(model, paths):
    """Freezes the layers that `frozen_config` has listed; returns the model.

    Raises:
        ValueError: If there is no such layer.
    """
    for path in paths:
        layer = model
        for name in path.split("/"):
            children = {child.name: child for child in layer._layers}
            if name not in children:
                raise ValueError(
                    f"There is no layer {path!r} to freeze in {model.name!r}. "
                    f"Received: {_KEY}={paths}"
                )
            layer = children[name]
        layer.trainable = False
    return model


def _frozen(layer, above):
    """Yields the uppermost frozen layers."""
    for child in layer._layers:
        path = (*above, child.name)
        if not child.trainable:
            yield path, child
        else:
            yield from _frozen(child, path)
