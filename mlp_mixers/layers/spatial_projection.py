"""The linear map across tokens.

Letters: b batch, n tokens, c channels.
"""

import keras
from keras import initializers
from keras import ops

from mlp_mixers.layers.fixed_shape import fixed_length
from mlp_mixers.ops import spatial_product


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SpatialProjection(keras.layers.Layer):
    """Multiplies by a learned n×n matrix along the tokens.

        f(X) = W · X + b                          one n×n matrix W, one b per
                                                  token, for all channels

    All that mixes tokens in a ResMLP; without normalisation and gate, what
    `SpatialGatingUnit` adds to it. It is for images, whose tokens are all
    real: there is no padding, and no mask.

    Args:
        kernel_initializer: Initializer for `W`.
        bias_initializer: Initializer for `b`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, c)`; n is fixed when the layer is
            built.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: If n or c is unknown or the input has another rank than 3.

    Example:

    ```python
    project = SpatialProjection()
    y = project(keras.random.normal((8, 196, 384)))  # (8, 196, 384)
    ```

    Reference:
        [ResMLP](https://arxiv.org/abs/2105.03404), Sec. 2, the matrix A of
        eq. 2.
    """

    def __init__(
        self,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)

    def build(self, x_shape):
        n, _ = fixed_length(self, x_shape)
        # Named and shaped as the gating unit's, with a head axis.
        self.spatial_kernel = self.add_weight(
            name="spatial_kernel",
            shape=(1, n, n),
            initializer=self.kernel_initializer,
        )
        self.spatial_bias = self.add_weight(
            name="spatial_bias",
            shape=(1, n),
            initializer=self.bias_initializer,
        )

    def call(self, x):
        x = ops.cast(x, self.compute_dtype)
        y = spatial_product(self.spatial_matrix(), x)  # (b, n, c)
        return y + ops.transpose(self.spatial_bias)  # (n, 1)

    def spatial_matrix(self):
        """The W that multiplies.

        Returns:
            Tensor of shape `(1, n, n)`; `[0, i, j]` weighs input token j for
            output token i.
        """
        return ops.convert_to_tensor(self.spatial_kernel)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "kernel_initializer": initializers.serialize(
                    self.kernel_initializer
                ),
                "bias_initializer": initializers.serialize(
                    self.bias_initializer
                ),
            }
        )
        return config
