"""The block of ResMLP.

Letters: b batch, n tokens, c channels, e `intermediate_dim`.
"""

import keras
from keras import ops

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.layers.affine import Affine
from mlp_mixers.layers.fixed_shape import fixed_length
from mlp_mixers.layers.layer_scale import LayerScale
from mlp_mixers.layers.spatial_projection import SpatialProjection
from mlp_mixers.layers.stochastic_depth import StochasticDepth
from mlp_mixers.ops import per_token


@keras.saving.register_keras_serializable(package="mlp_mixers")
class ResMLPBlock(keras.layers.Layer):
    """One block of ResMLP: a linear map over tokens, an MLP over channels.

        Z = X + γ₁ ⊙ (A · Aff(X) + a)             tokens n -> n
        Y = Z + γ₂ ⊙ (σ(Aff(Z) · B) · C)          channels c -> e -> c

    Aff is an affine map per channel, where others normalise. A is one n×n
    matrix for all channels, with a bias a per token; the scales γ₁ and γ₂
    have a value per channel and start small. The two dense layers B and C
    have biases.

    The block is for images, whose tokens are all real: it takes no mask.

    Args:
        intermediate_dim: Width e of the MLP over channels; four times the
            channels in the paper.
        drop_path_rate: Probability of dropping a branch in training, each of
            the two on its own.
        layer_scale_init: What γ₁ and γ₂ are at the start. `ResMLPBackbone`
            chooses by its depth, as the paper does.
        activation: σ. The default is the exact GELU.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, c)`; n is fixed when the layer is
            built.
        training: Whether stochastic depth drops.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: If an argument is out of range, n or c is unknown, or the
            input has another rank than 3.

    Example:

    ```python
    block = ResMLPBlock(intermediate_dim=1536)
    y = block(keras.random.normal((8, 196, 384)))  # (8, 196, 384)
    ```

    Reference:
        [ResMLP](https://arxiv.org/abs/2105.03404), Sec. 2, eq. 2-3.
    """

    def __init__(
        self,
        intermediate_dim,
        drop_path_rate=0.0,
        layer_scale_init=1e-4,
        activation="gelu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = positive_integer(
            intermediate_dim, "intermediate_dim"
        )
        self.drop_path_rate = drop_rate(drop_path_rate, "drop_path_rate")
        common = {"dtype": self.dtype_policy}
        self.token_norm = Affine(name="token_norm", **common)
        self.spatial_projection = SpatialProjection(
            name="spatial_projection", **common
        )
        self.token_scale = LayerScale(
            layer_scale_init, name="token_scale", **common
        )
        self.token_drop_path = StochasticDepth(
            self.drop_path_rate, name="token_drop_path", **common
        )
        self.channel_norm = Affine(name="channel_norm", **common)
        self.intermediate_dense = keras.layers.Dense(
            self.intermediate_dim,
            activation=activation,
            name="intermediate_dense",
            **common,
        )
        self.channel_scale = LayerScale(
            layer_scale_init, name="channel_scale", **common
        )
        self.channel_drop_path = StochasticDepth(
            self.drop_path_rate, name="channel_drop_path", **common
        )
        self.layer_scale_init = self.token_scale.init

    def build(self, x_shape):
        n, c = fixed_length(self, x_shape)
        for layer in (
            self.token_norm,
            self.spatial_projection,
            self.token_scale,
            self.token_drop_path,
            self.channel_norm,
            self.intermediate_dense,
            self.channel_scale,
            self.channel_drop_path,
        ):
            layer.build(x_shape)
        # C, whose width is the input's, so that the addition always fits
        self.output_dense = keras.layers.Dense(
            c, dtype=self.dtype_policy, name="output_dense"
        )
        self.output_dense.build((x_shape[0], n, self.intermediate_dim))

    def call(self, x, training=False):
        x = ops.cast(x, self.compute_dtype)
        mixed = self.spatial_projection(per_token(self.token_norm, x))
        mixed = self.token_scale(mixed)
        x = x + self.token_drop_path(mixed, training=training)
        y = per_token(self.channel_norm, x)
        y = per_token(self.intermediate_dense, y)  # (b, n, e)
        y = self.channel_scale(per_token(self.output_dense, y))
        return x + self.channel_drop_path(y, training=training)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "intermediate_dim": self.intermediate_dim,
                "drop_path_rate": self.drop_path_rate,
                "layer_scale_init": self.layer_scale_init,
                "activation": keras.activations.serialize(
                    self.intermediate_dense.activation
                ),
            }
        )
        return config
