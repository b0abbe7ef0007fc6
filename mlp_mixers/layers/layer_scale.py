"""The learned scale of a residual branch."""

import keras
from keras import initializers
from keras import ops

from mlp_mixers.arguments import positive_number
from mlp_mixers.layers.fixed_shape import fixed_channels


@keras.saving.register_keras_serializable(package="mlp_mixers")
class LayerScale(keras.layers.Layer):
    """Scales every channel of a residual branch with a learned weight.

        y = γ ⊙ x                                 one γ per channel

    Put it at the end of the branch, before the addition. γ starts small, so
    that a deep network starts near the identity.

    Args:
        init: What every γ is at the start.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, ..., channels)`.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: If `init` is not positive, or the number of channels is
            unknown.

    Reference:
        [Going deeper with Image Transformers](https://arxiv.org/abs/2103.17239),
        Sec. 2; used by [ResMLP](https://arxiv.org/abs/2105.03404), Sec. 2.
    """

    def __init__(self, init=1e-4, **kwargs):
        super().__init__(**kwargs)
        self.init = positive_number(init, "init")
        self.supports_masking = True

    def build(self, x_shape):
        self.gamma = self.add_weight(
            name="gamma",
            shape=(fixed_channels(self, x_shape),),
            initializer=initializers.Constant(self.init),
        )

    def call(self, x):
        return ops.multiply(ops.cast(x, self.compute_dtype), self.gamma)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        config = super().get_config()
        config.update({"init": self.init})
        return config
