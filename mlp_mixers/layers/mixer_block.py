"""The block of MLP-Mixer.

Letters: b batch, n tokens, c channels, t `token_intermediate_dim`,
e `intermediate_dim`.
"""

import keras
from keras import ops

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.arguments import positive_number
from mlp_mixers.layers.fixed_shape import fixed_length
from mlp_mixers.layers.stochastic_depth import StochasticDepth
from mlp_mixers.ops import per_token


@keras.saving.register_keras_serializable(package="mlp_mixers")
class MixerBlock(keras.layers.Layer):
    """One block of MLP-Mixer: an MLP over tokens, then one over channels.

        U = X + W₂ · σ(W₁ · norm(X))              tokens n -> t -> n
        Y = U + σ(norm(U) · W₃) · W₄              channels c -> e -> c

    W₁ and W₂ multiply from the left, hence along the tokens: every channel of
    every example goes through the same MLP. They are Dense layers on the
    transposed tensor, with kernels W₁ᵀ of shape `(n, t)` and W₂ᵀ of shape
    `(t, n)`. All four have biases. That of W₂ adds the same to all channels of
    a token, which every normalisation after it removes: in a whole Mixer it
    has no effect and no gradient. It is kept, as checkpoints have it.

    The block is for images, whose tokens are all real: it takes no mask.

    Args:
        token_intermediate_dim: Width t of the MLP over tokens; half the
            channels in the paper.
        intermediate_dim: Width e of the MLP over channels; four times the
            channels in the paper.
        drop_path_rate: Probability of dropping a branch in training, each of
            the two on its own.
        activation: σ. The default is the exact GELU.
        epsilon: Added to the variance in both normalisations.
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
    block = MixerBlock(token_intermediate_dim=256, intermediate_dim=2048)
    y = block(keras.random.normal((8, 196, 512)))  # (8, 196, 512)
    ```

    Reference:
        [MLP-Mixer](https://arxiv.org/abs/2105.01601), Sec. 2, eq. 1.
    """

    def __init__(
        self,
        token_intermediate_dim,
        intermediate_dim,
        drop_path_rate=0.0,
        activation="gelu",
        epsilon=1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.token_intermediate_dim = positive_integer(
            token_intermediate_dim, "token_intermediate_dim"
        )
        self.intermediate_dim = positive_integer(
            intermediate_dim, "intermediate_dim"
        )
        self.drop_path_rate = drop_rate(drop_path_rate, "drop_path_rate")
        self.activation = keras.activations.get(activation)
        self.epsilon = positive_number(epsilon, "epsilon")
        self.token_norm = self._norm("token_norm")
        self.token_drop_path = self._drop_path("token_drop_path")
        self.channel_norm = self._norm("channel_norm")
        self.channel_drop_path = self._drop_path("channel_drop_path")

    def build(self, x_shape):
        n, c = fixed_length(self, x_shape)
        batch = x_shape[0]
        t, e = self.token_intermediate_dim, self.intermediate_dim
        self.token_norm.build(x_shape)
        self.token_intermediate_dense = self._dense(
            t, "token_intermediate_dense", self.activation
        )
        self.token_intermediate_dense.build((batch, c, n))
        self.token_output_dense = self._dense(n, "token_output_dense")
        self.token_output_dense.build((batch, c, t))
        self.token_drop_path.build(x_shape)
        self.channel_norm.build(x_shape)
        self.intermediate_dense = self._dense(
            e, "intermediate_dense", self.activation
        )
        self.intermediate_dense.build(x_shape)
        self.output_dense = self._dense(c, "output_dense")
        self.output_dense.build((batch, n, e))
        self.channel_drop_path.build(x_shape)

    def call(self, x, training=False):
        x = ops.cast(x, self.compute_dtype)
        mixed = self._mix_tokens(per_token(self.token_norm, x))
        x = x + self.token_drop_path(mixed, training=training)
        y = per_token(self.channel_norm, x)
        y = per_token(self.intermediate_dense, y)  # (b, n, e)
        y = per_token(self.output_dense, y)
        return x + self.channel_drop_path(y, training=training)

    def _mix_tokens(self, x):
        """W₂ · σ(W₁ · X)."""
        x = ops.transpose(x, (0, 2, 1))  # (b, c, n)
        x = self.token_intermediate_dense(x)  # (b, c, t)
        return ops.transpose(self.token_output_dense(x), (0, 2, 1))

    def _norm(self, name):
        return keras.layers.LayerNormalization(
            epsilon=self.epsilon, dtype=self.dtype_policy, name=name
        )

    def _dense(self, width, name, activation=None):
        return keras.layers.Dense(
            width, activation=activation, dtype=self.dtype_policy, name=name
        )

    def _drop_path(self, name):
        return StochasticDepth(
            self.drop_path_rate, dtype=self.dtype_policy, name=name
        )

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "token_intermediate_dim": self.token_intermediate_dim,
                "intermediate_dim": self.intermediate_dim,
                "drop_path_rate": self.drop_path_rate,
                "activation": keras.activations.serialize(self.activation),
                "epsilon": self.epsilon,
            }
        )
        return config
