"""Multi-head self-attention.

Letters: b batch, n and m tokens (n asks, m answers), a `attention_dim`,
h heads.
"""

import keras
from keras import ops

from mlp_mixers.arguments import boolean
from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.ops import check_padding_mask
from mlp_mixers.ops import masked_softmax
from mlp_mixers.ops import zero_padding
from mlp_mixers.ops.decoding import check_decodable
from mlp_mixers.ops.decoding import check_step
from mlp_mixers.ops.decoding import up_to
from mlp_mixers.ops.decoding import write_at


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SelfAttention(keras.layers.Layer):
    """Tokens that ask each other, in several heads.

        Q, K, V = X · W_qkv                       three of width a
        head_i  = softmax(Q_i · K_iᵀ / √(a/h)) · V_i
        Y       = [head_1, …, head_h] · W_out

    Head i owns the i-th of h equal groups of consecutive channels of Q, K
    and V. One product makes all three. The attention knows no positions:
    whoever uses it without another layer that does adds them to its input.

    **Masks are explicit.** With `mask`, nobody attends to padded tokens, and
    the output there is zero. The softmax runs in float32.

    **One token at a time.** If causal, `prefill` is the call that also
    returns a cache, the keys and values of all tokens, and `step` continues
    from it with one new token an example. The results are those of the call
    on all tokens, without dropout.

    Args:
        output_dim: Width of the output.
        num_heads: Number of heads, h.
        attention_dim: Width a of queries, keys and values, that of all heads
            together; `num_heads` must divide it.
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
        ValueError: If an argument is out of range, `num_heads` does not
            divide `attention_dim`, the input has another rank than 3 or the
            mask another shape.

    Example:

    ```python
    attention = SelfAttention(output_dim=512, num_heads=8, attention_dim=512)
    y = attention(keras.random.normal((8, 128, 512)))  # (8, 128, 512)
    ```

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762),
        Sec. 3.2.
    """

    def __init__(
        self,
        output_dim,
        num_heads=1,
        attention_dim=64,
        causal=False,
        use_bias=True,
        dropout_rate=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.output_dim = positive_integer(output_dim, "output_dim")
        self.num_heads = positive_integer(num_heads, "num_heads")
        self.attention_dim = positive_integer(attention_dim, "attention_dim")
        if self.attention_dim % self.num_heads:
            raise ValueError(
                "The width of the queries, `attention_dim`, must divide into "
                "`num_heads` equal groups. "
                f"Received: attention_dim={attention_dim}, "
                f"num_heads={num_heads}"
            )
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
        y, _, _ = self._attend_all(x, mask, training)
        return y

    def make_cache(self, batch, length):
        """An empty cache for `step`.

        Args:
            batch: Number of examples.
            length: How many tokens it can hold.

        Returns:
            `{"keys": ..., "values": ...}`, zeros of shape
            `(batch, length, attention_dim)`.

        Raises:
            ValueError: If the layer is not causal or not built.
        """
        check_decodable(self, self.causal)
        shape = (batch, length, self.attention_dim)
        return {
            "keys": ops.zeros(shape, self.compute_dtype),
            "values": ops.zeros(shape, self.compute_dtype),
        }

    def prefill(self, x, mask=None):
        """The call, in inference, and the cache that continues it.

        Args:
            x: Tensor of shape `(batch, n, channels)`, padded on the right.
            mask: Padding mask of shape `(batch, n)`, true at real tokens.

        Returns:
            `(y, cache)`: the output of the call, and a cache of length n.

        Raises:
            ValueError: If the layer is not causal or not built.
        """
        check_decodable(self, self.causal)
        x = ops.cast(x, self.compute_dtype)
        y, keys, values = self._attend_all(x, mask, training=False)
        return y, {"keys": keys, "values": values}

    def step(self, x, cache, positions):
        """The output of one new token an example.

        Args:
            x: Tensor of shape `(batch, 1, channels)`.
            cache: From `make_cache`, `prefill` or the step before. All rows
                before the new token's must be filled; later ones are not
                read.
            positions: Integers of shape `(batch,)`, the place of each new
                token, below the cache's length.

        Returns:
            `(y, cache)`: the output, of shape `(batch, 1, output_dim)`, and
            the cache with the new token in it.

        Raises:
            ValueError: If the layer is not causal or not built, or a shape
                is another.
        """
        check_decodable(self, self.causal)
        positions = ops.convert_to_tensor(positions, "int32")
        check_step(x, positions, type(self).__name__)
        x = ops.cast(x, self.compute_dtype)
        q, k, v = ops.split(self.qkv_dense(x), 3, axis=-1)  # (b, 1, a) each
        keys = write_at(cache["keys"], positions, k)  # (b, m, a)
        values = write_at(cache["values"], positions, v)
        allowed = up_to(positions, keys.shape[1])[:, None, None]
        y = self._attend(q, keys, values, allowed, training=False)
        return y, {"keys": keys, "values": values}

    def _attend_all(self, x, mask, training):
        """The output of all tokens, their keys and their values."""
        check_padding_mask(mask, x.shape, type(self).__name__)
        # A weight of zero is not enough: 0 · NaN is NaN.
        x = zero_padding(x, mask)
        q, k, v = ops.split(self.qkv_dense(x), 3, axis=-1)  # (b, n, a) each
        allowed = self._allowed(ops.shape(x)[1], mask)
        y = self._attend(q, k, v, allowed, training)
        return zero_padding(y, mask), k, v

    def _attend(self, q, k, v, allowed, training):
        """All heads, from (b, n, a) and twice (b, m, a)."""
        q = q * (self.attention_dim // self.num_heads) ** -0.5
        q, v = self._by_head(q), self._by_head(v)  # (b, h, n, a/h)
        k = ops.transpose(self._by_head(k), (0, 1, 3, 2))  # (b, h, a/h, m)
        weights = masked_softmax(ops.matmul(q, k), allowed)  # (b, h, n, m)
        weights = self.dropout(weights, training=training)
        y = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))
        batch, n, _, _ = ops.shape(y)
        return self.output_dense(ops.reshape(y, (batch, n, self.attention_dim)))

    def _by_head(self, x):
        """(b, n, a) -> (b, h, n, a/h)."""
        batch, n, _ = ops.shape(x)
        width = self.attention_dim // self.num_heads
        x = ops.reshape(x, (batch, n, self.num_heads, width))
        return ops.transpose(x, (0, 2, 1, 3))

    def _allowed(self, n, mask):
        """Who may attend to whom, broadcast to (b, h, n, m), or `None`."""
        allowed = None
        if mask is not None:
            allowed = ops.cast(mask, "bool")[:, None, None]  # (b, 1, 1, m)
        if self.causal:
            tokens = ops.arange(n)
            earlier = tokens[:, None] >= tokens  # (n, m)
            allowed = earlier if allowed is None else allowed & earlier
        return allowed

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.output_dim)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "output_dim": self.output_dim,
                "num_heads": self.num_heads,
                "attention_dim": self.attention_dim,
                "causal": self.causal,
                "use_bias": self.use_bias,
                "dropout_rate": self.dropout_rate,
            }
        )
        return config
