"""Positions for attention, which does not know them."""

import keras
from keras import ops

from mlp_mixers.arguments import positive_integer


@keras.saving.register_keras_serializable(package="mlp_mixers")
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector for each position.

        y_t = x_t + p_t

    Spatial gating units need none: their weights know the positions.

    Args:
        sequence_length: The longest input, n.
        initializer: Of the vectors; GPT-2's and BERT's if `None`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, d)`, or `(batch, 1, d)` with positions.
        positions: Integers of shape `(batch,)`: where the one token of each
            example stands. `None` counts from 0.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: If the input is longer than `sequence_length`.

    Reference:
        [Convolutional Sequence to Sequence Learning](
        https://arxiv.org/abs/1705.03122), Sec. 3.1.
    """

    def __init__(self, sequence_length, initializer=None, **kwargs):
        super().__init__(**kwargs)
        self.sequence_length = positive_integer(
            sequence_length, "sequence_length"
        )
        self.initializer = keras.initializers.get(initializer)
        self.supports_masking = True

    def build(self, x_shape):
        self._check_length(x_shape[1])
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.sequence_length, x_shape[-1]),
            initializer=self.initializer
            or keras.initializers.TruncatedNormal(stddev=0.02),
        )

    def call(self, x, positions=None):
        self._check_length(x.shape[1])
        table = ops.convert_to_tensor(self.embeddings)
        if positions is None:
            return x + table[: ops.shape(x)[1]]
        return x + ops.take(table, positions, axis=0)[:, None]

    def _check_length(self, length):
        if isinstance(length, int) and length > self.sequence_length:
            raise ValueError(
                f"There are positions for {self.sequence_length} tokens. "
                "Shorten the input, or build the model with a longer "
                f"`sequence_length`. Received: an input of {length} tokens"
            )

    def compute_output_shape(self, x_shape, positions_shape=None):
        self._check_length(x_shape[1])
        return x_shape

    def get_config(self):
        config = super().get_config()
        first = self.initializer
        config.update(
            {
                "sequence_length": self.sequence_length,
                "initializer": first and keras.initializers.serialize(first),
            }
        )
        return config
