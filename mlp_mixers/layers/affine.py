"""The affine map that stands where other networks normalise."""

import keras
from keras import ops

from mlp_mixers.layers.fixed_shape import fixed_channels


@keras.saving.register_keras_serializable(package="mlp_mixers")
class Affine(keras.layers.Layer):
    """Scales and shifts every channel.

        Aff(x) = α ⊙ x + β                        one α, one β per channel

    ResMLP's replacement for layer normalisation. It has no statistics: a
    token's output depends on nothing but the token, in training as in
    inference, and after training it can be merged into the linear layer that
    follows.

    The weights are called `gamma` (α, ones at the start) and `beta` (zeros),
    as those of Keras's normalisations, so that whatever treats these by name,
    an optimiser without weight decay for them for instance, treats both
    alike.

    Args:
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, ..., channels)`.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: If the number of channels is unknown.

    Reference:
        [ResMLP](https://arxiv.org/abs/2105.03404), Sec. 2, eq. 1.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, x_shape):
        shape = (fixed_channels(self, x_shape),)
        self.gamma = self.add_weight(
            name="gamma", shape=shape, initializer="ones"
        )
        self.beta = self.add_weight(
            name="beta", shape=shape, initializer="zeros"
        )

    def call(self, x):
        x = ops.cast(x, self.compute_dtype)
        return ops.add(ops.multiply(x, self.gamma), self.beta)

    def compute_output_shape(self, x_shape):
        return x_shape
