"""Checks of layers whose weights belong to places or to channels."""

import keras


def fixed_length(layer, x_shape):
    """Ties a layer to the number of tokens and channels it is built with.

    Args:
        layer: The layer that is being built; gets an `input_spec` that
            refuses inputs of another size.
        x_shape: Shape `(batch, n, channels)` of its input.

    Returns:
        `(n, channels)`.

    Raises:
        ValueError: If the input has another rank, or n or the number of
            channels is unknown.
    """
    name = type(layer).__name__
    if len(x_shape) != 3:
        raise ValueError(
            f"{name} expects inputs of shape `(batch, n, channels)`. "
            f"Received: x.shape={x_shape}"
        )
    if None in x_shape[1:]:
        raise ValueError(
            f"{name} learns weights for each token's place, so it must know "
            "how many tokens and channels there are. Pass an input of known "
            f"length and width. Received: x.shape={x_shape}"
        )
    layer.input_spec = keras.InputSpec(shape=(None, *x_shape[1:]))
    return x_shape[1:]


def fixed_channels(layer, x_shape):
    """Ties a layer to the number of channels it is built with.

    Args:
        layer: The layer that is being built; gets an `input_spec` that
            refuses inputs of another width.
        x_shape: Shape `(..., channels)` of its input.

    Returns:
        The number of channels.

    Raises:
        ValueError: If it is unknown.
    """
    if x_shape[-1] is None:
        raise ValueError(
            f"{type(layer).__name__} learns a weight for each channel, so it "
            "must know how many there are. Pass an input of known width. "
            f"Received: x.shape={x_shape}"
        )
    layer.input_spec = keras.InputSpec(axes={-1: x_shape[-1]})
    return x_shape[-1]
