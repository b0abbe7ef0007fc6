"""The tiny attention that turns gMLP into aMLP.

Letters: b batch, n and m tokens (n asks, m answers), a `attention_dim`.
"""

import keras
from keras import ops

from mlp_mixers.arguments import boolean
from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.ops import check_padding_mask
from mlp_mixers.ops import masked_softmax
from mlp_mixers.ops import zero_padding


@keras.saving.register_keras_serializable(package="mlp_mixers")
class TinyAttention(keras.layers.Layer):
    """One small self-attention head.

        q, k, v = x · W_qkv                       three of width a
        y = softmax(q · kᵀ / √a) · v · W_out

    In an aMLP block its input is the *normalised* block input, before the
    channel expansion, and its output joins the gate of the spatial gating
    unit: `Z₁ ⊙ (f(Z₂) + y)` (`gate_residual`). Positions are known to the
    gating unit, so the attention carries no position information.

    **Masks are explicit.** With `mask`, nobody attends to padded tokens, and
    the output there is zero. The softmax runs in float32.

    Args:
        output_dim: Width of the output; the gate's width in an aMLP block.
        attention_dim: Width of queries, keys and values, a. The paper uses
            64 in aMLP-base and 128 in aMLP-large.
        causal: Whether a token attends to itself and earlier ones only.
        use_bias: Whether both projections have biases.
        dropout_rate: Dropout of the attention weights, after the softmax.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, channels)`.
        mask: Padding mask of shape `(batch, n)`, true at real tokens.
        training: Whether dropout drops.

    Returns:
        Tensor of shape `(batch, n, output_dim)`.

    Raises:
        ValueError: If a width is not positive, the input has another rank
            than 3 or the mask another shape.

    Example:

    ```python
    attention = TinyAttention(output_dim=768, attention_dim=64)
    y = attention(keras.random.normal((8, 128, 512)))  # (8, 128, 768)
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 4.3
        and Fig. 6.
    """

    def __init__(
        self,
        output_dim,
        attention_dim=64,
        causal=False,
        use_bias=True,
        dropout_rate=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.output_dim = positive_integer(output_dim, "output_dim")
        self.attention_dim = positive_integer(attention_dim, "attention_dim")
        self.causal = boolean(causal, "causal")
        self.use_bias = boolean(use_bias, "use_bias")
        self.dropout_rate = drop_rate(dropout_rate, "dropout_rate")
        self.supports_masking = True
        self.qkv_dense = keras.layers.Dense(
            3 * self.attention_dim,
            use_bias=use_bias,
            dtype=self.dtype_policy,
            name="qkv_dense",
        )
        self.output_dense = keras.layers.Dense(
            self.output_dim,
            use_bias=use_bias,
            dtype=self.dtype_policy,
            name="output_dense",
        )
        self.dropout = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, x_shape):
        if len(x_shape) != 3:
            raise ValueError(
                f"{type(self).__name__} expects inputs of shape "
                f"`(batch, n, channels)`. Received: x.shape={x_shape}"
            )
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: x_shape[-1]})
        self.qkv_dense.build(x_shape)
        self.output_dense.build((*x_shape[:-1], self.attention_dim))
        self.dropout.build((x_shape[0], x_shape[1], x_shape[1]))

    def call(self, x, mask=None, training=False):
        check_padding_mask(mask, x.shape, type(self).__name__)
        # A weight of zero is not enough: 0 · NaN is NaN.
        x = zero_padding(x, mask)
        q, k, v = ops.split(self.qkv_dense(x), 3, axis=-1)  # (b, n, a) each
        scores = ops.matmul(
            q * self.attention_dim**-0.5, ops.transpose(k, (0, 2, 1))
        )  # (b, n, m)
        weights = masked_softmax(scores, self._allowed(ops.shape(x)[1], mask))
        weights = self.dropout(weights, training=training)
        y = self.output_dense(ops.matmul(weights, v))
        return zero_padding(y, mask)

    def _allowed(self, n, mask):
        """Who may attend to whom, broadcast to (b, n, m), or `None`."""
        allowed = None
        if mask is not None:
            allowed = ops.cast(mask, "bool")[:, None, :]  # (b, 1, m)
        if self.causal:
            tokens = ops.arange(n)
            earlier = tokens[None, :, None] >= tokens[None, None, :]
            allowed = earlier if allowed is None else allowed & earlier
        return allowed

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.output_dim)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "output_dim": self.output_dim,
                "attention_dim": self.attention_dim,
                "causal": self.causal,
                "use_bias": self.use_bias,
                "dropout_rate": self.dropout_rate,
            }
        )
        return config
