"""Some of the tokens, by their positions.

Letters: b batch, n tokens, p of them that are wanted, d channels.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GatherTokens(keras.layers.Layer):
    """Picks tokens by position, so that a head works on these alone.

        y[b, i] = x[b, positions[b, i]]

    A masked language model is asked about 15% of its tokens. With V words to
    choose from, logits at all positions are b·n·V numbers, by far the largest
    array of a training step; at the masked ones they are a seventh of it.

    Args:
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, d)`.
        positions: Integer tensor of shape `(batch, p)`, each in [0, n).

    Returns:
        Tensor of shape `(batch, p, d)`.

    Raises:
        ValueError: If an input has another rank.

    Example:

    ```python
    gather = GatherTokens()
    y = gather(keras.random.normal((2, 128, 64)), [[3, 17], [0, 90]])
    ```
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, x_shape, positions_shape):
        _check(x_shape, positions_shape)

    def call(self, x, positions):
        _check(x.shape, positions.shape)
        batch, n, channels = ops.shape(x)
        # Rows of one long list: every backend has a fast gather for that.
        rows = ops.cast(positions, "int32") + _column(batch, n)
        return ops.take(ops.reshape(x, (-1, channels)), rows, axis=0)

    def compute_mask(self, inputs, mask=None):
        return None  # one of all tokens would not fit

    def compute_output_shape(self, x_shape, positions_shape):
        return (x_shape[0], positions_shape[1], x_shape[2])


def _column(batch, n):
    """Where each example's tokens begin: (b, 1)."""
    return ops.expand_dims(ops.arange(batch, dtype="int32") * n, 1)


def _check(x_shape, positions_shape):
    if len(x_shape) != 3 or len(positions_shape) != 2:
        raise ValueError(
            "GatherTokens expects `x` of shape `(batch, n, channels)` and "
            "`positions` of shape `(batch, p)`. "
            f"Received: x.shape={tuple(x_shape)}, "
            f"positions.shape={tuple(positions_shape)}"
        )
