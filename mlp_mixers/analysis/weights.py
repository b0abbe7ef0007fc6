"""The spatial matrices of a model."""

import keras

from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers import ResMLPBlock
from mlp_mixers.layers import SpatialGatingUnit
from mlp_mixers.layers import SpatialProjection

# The layers that mix tokens with one matrix, and where a block keeps its own.
UNITS = (SpatialGatingUnit, SpatialProjection)
UNIT_OF_BLOCK = {
    GMLPBlock: "gating_unit",
    ResMLPBlock: "spatial_projection",
}


def spatial_weights(model):
    """Reads the spatial matrix W of every gating unit, or projection.

    Toeplitz matrices are written out, and the part of a causal one that does
    not count is zero: these are the weights that multiply. A `MixerBlock` has
    no such matrix: it mixes tokens with two, and a nonlinearity between.

    Args:
        model: A built Keras model or layer that contains
            `SpatialGatingUnit`s or `SpatialProjection`s, at whatever depth:
            a gMLP or a ResMLP.

    Returns:
        Dictionary from the name of the unit's block (or of the unit, where it
        stands alone) to an array of shape `(heads, n, n)`, in the order of
        the model; `[h, i, j]` weighs token j for token i.

    Raises:
        ValueError: If the model contains neither, or is not built.
    """
    found = {}
    for path, layer in walk(model):
        for name, unit in _unit_of(path, layer):
            if not unit.built:
                raise ValueError(
                    "The model has no weights yet: build it, or call it once. "
                    f"Received: model={model!r}"
                )
            if name in found:  # two backbones in one model
                name = "/".join(path)
            found[name] = keras.ops.convert_to_numpy(unit.spatial_matrix())
    if not found:
        raise ValueError(
            "The model contains no `SpatialGatingUnit` and no "
            "`SpatialProjection`, the layers that mix tokens with one matrix. "
            f"Received: model={model!r}"
        )
    return found


def _unit_of(path, layer):
    """Yields `(name, unit)` for a block, and for a unit that is in none."""
    if isinstance(layer, UNITS):
        yield path[-1], layer
    for block, attribute in UNIT_OF_BLOCK.items():
        if isinstance(layer, block):
            yield path[-1], getattr(layer, attribute)


def walk(layer, above=()):
    """Yields `(names from the top, layer)` for a layer and all inside it."""
    path = (*above, layer.name)
    yield path, layer
    # A block speaks for its parts.
    is_block = isinstance(layer, tuple(UNIT_OF_BLOCK))
    for child in [] if is_block else layer._layers:
        yield from walk(child, path)
