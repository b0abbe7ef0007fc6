"""Layers that look at one token at a time.

Letters: b batch, n tokens, d and e channels.
"""

import keras
from keras import ops


def per_token(layer, x):
    """Calls a layer that treats every token alone, such as a `Dense`.

    The result is that of `layer(x)`. On JAX the layer sees batch and tokens
    as one axis, `(b·n, d)`: XLA then keeps the sum that runs along the
    residual connections in memory. With `(b, n, d)` it fuses the whole sum
    into each of its readers and adds it up again from the last block for
    every block: 1.3 times the cost of a training step at 12 blocks,
    growing with the depth (`docs/benchmarks.md`).

    Args:
        layer: A layer that keeps all axes but the last.
        x: Tensor of shape `(b, n, d)`.

    Returns:
        Tensor of shape `(b, n, e)`.
    """
    if keras.backend.backend() != "jax":
        return layer(x)
    batch, n, channels = ops.shape(x)
    y = layer(ops.reshape(x, (-1, channels)))
    return ops.reshape(y, (batch, n, y.shape[-1]))
