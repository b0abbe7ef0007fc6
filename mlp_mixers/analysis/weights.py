"""The spatial matrices of a model."""

import keras

from mlp_mixers.layers import SpatialGatingUnit


def spatial_weights(model):
    """Reads the spatial matrix W of every gating unit.

    Toeplitz matrices are written out, and the part of a causal one that does
    not count is zero: these are the weights that multiply.

    Args:
        model: A built Keras model or layer that contains
            `SpatialGatingUnit`s, at whatever depth.

    Returns:
        Dictionary from the name of the unit's block (or of the unit, where it
        stands alone) to an array of shape `(heads, n, n)`, in the order of
        the model; `[h, i, j]` weighs token j for token i.

    Raises:
        ValueError: If the model contains no gating unit.
    """
    found = {}
    for path, layer in walk(model):
        if isinstance(layer, SpatialGatingUnit):
            name = path[-2] if len(path) > 1 else path[-1]
            if name in found:  # two backbones in one model
                name = "/".join(path[:-1])
            found[name] = keras.ops.convert_to_numpy(layer.spatial_matrix())
    if not found:
        raise ValueError(
            "The model contains no `SpatialGatingUnit`. "
            f"Received: model={model!r}"
        )
    return found


def walk(layer, above=()):
    """Yields `(names from the top, layer)` for a layer and all inside it."""
    path = (*above, layer.name)
    yield path, layer
    for child in layer._layers:
        yield from walk(child, path)
