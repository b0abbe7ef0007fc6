"""The Transformer block, whose feed-forward part may be any layer.

Letters: b batch, n tokens, d channels, e `intermediate_dim`.
"""

import json

import keras
from keras import ops

from mlp_mixers.arguments import boolean
from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.arguments import positive_number
from mlp_mixers.layers.self_attention import SelfAttention
from mlp_mixers.layers.stochastic_depth import StochasticDepth
from mlp_mixers.ops import check_padding_mask
from mlp_mixers.ops import per_token
from mlp_mixers.ops import zero_padding
from mlp_mixers.ops.decoding import check_decodable

PLACEMENTS = ("pre", "post")


@keras.saving.register_keras_serializable(package="mlp_mixers")
class TransformerBlock(keras.layers.Layer):
    """Self-attention, then a feed-forward part, each with a residual sum.

        U = X + attention(norm(X))                norm_placement="pre"
        Y = U + F(norm(U))

        U = norm(X + attention(X))                norm_placement="post"
        Y = norm(U + F(U))

        F(U) = σ(U · W₁ + b₁) · W₂ + b₂           channels d -> e -> d

    With `feed_forward` a layer, that layer is F: this is how experts take the
    place of the feed-forward part. The attention is as wide as the input, and
    knows no positions.

    **A block makes its own feed-forward layer.** What is passed is a pattern:
    the block keeps its configuration and builds a fresh layer from it, under
    its own dtype. Blocks that get the same layer share no weights, and the
    layer that was passed is not in the model.

    **Masks are explicit.** Padded tokens reach no real one; their own output
    has no meaning.

    **One token at a time.** If causal, `prefill` is the call that also
    returns a cache, and `step` continues from it with one new token an
    example. The results are those of the call on all tokens, in inference,
    as long as the feed-forward layer looks at every token alone.

    Args:
        intermediate_dim: Width e of the dense feed-forward part; usually four
            times the channels. `None` is allowed where a layer brings its
            own.
        num_heads: Number of heads, which must divide the channels.
        causal: Whether a token attends to itself and earlier ones only.
        drop_path_rate: Probability of dropping a branch in training, each of
            the two on its own.
        dropout_rate: Dropout of both branches, before the addition.
        attention_dropout_rate: Dropout of the attention weights.
        activation: σ, of the dense feed-forward part. The default is the
            exact GELU; the paper uses ReLU.
        epsilon: Added to the variance in both normalisations.
        feed_forward: `"dense"`, or a layer, or its serialised configuration
            (`keras.saving.serialize_keras_object`). The layer is called with
            `(x, token_ids=..., mask=..., training=...)` and returns what is
            added to x, of the shape of x.
        norm_placement: `"pre"`, in the branches, or `"post"`, after the sums;
            the paper's is `"post"`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, d)`.
        token_ids: Integers of shape `(batch, n)`, handed on to a
            feed-forward layer that routes by them.
        mask: Padding mask of shape `(batch, n)`, true at real tokens.
        training: Whether stochastic depth and dropout drop.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: If an argument is out of range, the channels do not divide
            by the heads, the input has another rank than 3, the mask another
            shape, or the feed-forward layer returns another shape.

    Example:

    ```python
    dense = TransformerBlock(intermediate_dim=2048, num_heads=8, causal=True)
    y = dense(keras.random.normal((8, 128, 512)))  # (8, 128, 512)
    ```

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762),
        Sec. 3.1 and 3.3; the baseline of
        [Sparse all-MLP](https://arxiv.org/abs/2203.06850), Sec. 4.
    """

    def __init__(
        self,
        intermediate_dim,
        num_heads,
        causal=False,
        drop_path_rate=0.0,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        activation="gelu",
        epsilon=1e-6,
        feed_forward="dense",
        norm_placement="pre",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = positive_integer(
            intermediate_dim,
            "intermediate_dim",
            optional=feed_forward != "dense",
        )
        self.num_heads = positive_integer(num_heads, "num_heads")
        self.causal = boolean(causal, "causal")
        self.drop_path_rate = drop_rate(drop_path_rate, "drop_path_rate")
        self.dropout_rate = drop_rate(dropout_rate, "dropout_rate")
        self.attention_dropout_rate = drop_rate(
            attention_dropout_rate, "attention_dropout_rate"
        )
        self.activation = keras.activations.get(activation)
        self.epsilon = positive_number(epsilon, "epsilon")
        if norm_placement not in PLACEMENTS:
            raise ValueError(
                f"`norm_placement` must be one of {PLACEMENTS}. "
                f"Received: norm_placement={norm_placement!r}"
            )
        self.norm_placement = norm_placement
        self.supports_masking = True
        self.attention_norm = self._norm("attention_norm")
        self.feed_forward_norm = self._norm("feed_forward_norm")
        # Each draws anew for each of the two branches.
        self.dropout = keras.layers.Dropout(
            self.dropout_rate, dtype=self.dtype_policy, name="dropout"
        )
        self.drop_path = StochasticDepth(
            self.drop_path_rate, dtype=self.dtype_policy, name="drop_path"
        )
        # As text, since Keras would track what is in a dictionary.
        self._pattern = json.dumps(_serialized(feed_forward))
        self.feed_forward = None
        if feed_forward != "dense":
            self.feed_forward = self._fresh_feed_forward()

    def build(self, x_shape):
        if len(x_shape) != 3 or x_shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} expects inputs of shape "
                "`(batch, n, channels)` with a known number of channels. "
                f"Received: x.shape={x_shape}"
            )
        channels = x_shape[-1]
        if channels % self.num_heads:
            raise ValueError(
                "The channels of the input must divide into `num_heads` "
                f"equal groups. Received: channels={channels}, "
                f"num_heads={self.num_heads}"
            )
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: channels})
        self.attention = SelfAttention(
            output_dim=channels,
            num_heads=self.num_heads,
            attention_dim=channels,
            causal=self.causal,
            dropout_rate=self.attention_dropout_rate,
            dtype=self.dtype_policy,
            name="attention",
        )
        children = [self.attention_norm, self.attention, self.dropout]
        children += [self.drop_path, self.feed_forward_norm]
        if self.feed_forward is not None:
            children.append(self.feed_forward)
        for child in children:
            child.build(x_shape)
        if self.feed_forward is None:
            self._build_dense(x_shape)

    def _build_dense(self, x_shape):
        """The two maps of the dense feed-forward part."""
        self.intermediate_dense = keras.layers.Dense(
            self.intermediate_dim,
            activation=self.activation,
            dtype=self.dtype_policy,
            name="intermediate_dense",
        )
        self.intermediate_dense.build(x_shape)
        self.output_dense = keras.layers.Dense(
            x_shape[-1], dtype=self.dtype_policy, name="output_dense"
        )
        self.output_dense.build((*x_shape[:-1], self.intermediate_dim))

    def call(self, x, token_ids=None, mask=None, training=False):
        def attend(h):
            return self.attention(h, mask=mask, training=training)

        return self._forward(x, attend, token_ids, mask, training)

    def make_cache(self, batch, length):
        """An empty cache for `step`.

        Args:
            batch: Number of examples.
            length: How many tokens it can hold.

        Returns:
            The attention's cache, under `"attention"`.

        Raises:
            ValueError: If the block is not causal or not built.
        """
        check_decodable(self, self.causal)
        return {"attention": self.attention.make_cache(batch, length)}

    def prefill(self, x, mask=None, token_ids=None):
        """The call, in inference, and the cache that continues it.

        Args:
            x: Tensor of shape `(batch, n, d)`, padded on the right.
            mask: Padding mask of shape `(batch, n)`, true at real tokens.
            token_ids: See the call.

        Returns:
            `(y, cache)`: the output of the call, and a cache of length n.

        Raises:
            ValueError: If the block is not causal or not built, and as the
                call.
        """
        check_decodable(self, self.causal)
        cache = {}

        def attend(h):
            y, cache["attention"] = self.attention.prefill(h, mask=mask)
            return y

        y = self._forward(x, attend, token_ids, mask, training=False)
        return y, cache

    def step(self, x, cache, positions, token_ids=None):
        """The output of one new token an example.

        Args:
            x: Tensor of shape `(batch, 1, d)`.
            cache: From `make_cache`, `prefill` or the step before.
            positions: Integers of shape `(batch,)`, the place of each new
                token, below the cache's length.
            token_ids: See the call; of shape `(batch, 1)`.

        Returns:
            `(y, cache)`: the output, of the shape of `x`, and the cache with
            the new token in it.

        Raises:
            ValueError: If the block is not causal or not built, or a shape
                is another.
        """
        check_decodable(self, self.causal)
        new = {}

        def attend(h):
            y, new["attention"] = self.attention.step(
                h, cache["attention"], positions
            )
            return y

        y = self._forward(x, attend, token_ids, mask=None, training=False)
        return y, new

    def _forward(self, x, attend, token_ids, mask, training):
        """The block, with the attention of a call, a prefill or a step."""
        check_padding_mask(mask, x.shape, type(self).__name__)
        x = ops.cast(x, self.compute_dtype)
        if self.norm_placement == "post":
            # The sums are normalised, so padding must be finite in them too.
            x = zero_padding(x, mask)

        def feed(h):
            return self._feed(h, token_ids, mask, training)

        u = self._sum(x, self.attention_norm, attend, mask, training)
        return self._sum(u, self.feed_forward_norm, feed, mask, training)

    def _sum(self, x, norm, branch, mask, training):
        """A residual sum, with its normalisation before or after."""
        before = self.norm_placement == "pre"
        # Padding is zero for all that follows, and itself in the sum.
        y = branch(per_token(norm, zero_padding(x, mask)) if before else x)
        y = self.dropout(y, training=training)
        y = x + self.drop_path(y, training=training)
        return y if before else per_token(norm, y)

    def _feed(self, x, token_ids, mask, training):
        """F(x)."""
        if self.feed_forward is None:
            h = per_token(self.intermediate_dense, x)  # (b, n, e)
            return per_token(self.output_dense, h)
        y = self.feed_forward(
            x, token_ids=token_ids, mask=mask, training=training
        )
        if tuple(y.shape) != tuple(x.shape):
            raise ValueError(
                "The layer that is `feed_forward` must return a tensor of the "
                "shape of its input, which the block adds to it. Received: "
                f"{type(self.feed_forward).__name__} with "
                f"x.shape={tuple(x.shape)}, y.shape={tuple(y.shape)}"
            )
        return y

    def _fresh_feed_forward(self):
        """A new layer after the pattern, under the block's dtype."""
        pattern = json.loads(self._pattern)
        layer = keras.saving.deserialize_keras_object(pattern)
        if not isinstance(layer, keras.layers.Layer):
            raise ValueError(
                "`feed_forward` must describe a layer. "
                f"Received: feed_forward={pattern!r}"
            )
        config = layer.get_config()
        config.update(
            # Its metrics are told apart by it.
            name=f"{self.name}_feed_forward",
            dtype=keras.dtype_policies.serialize(self.dtype_policy),
        )
        return type(layer).from_config(config)

    def _norm(self, name):
        return keras.layers.LayerNormalization(
            epsilon=self.epsilon, dtype=self.dtype_policy, name=name
        )

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "intermediate_dim": self.intermediate_dim,
                "num_heads": self.num_heads,
                "causal": self.causal,
                "drop_path_rate": self.drop_path_rate,
                "dropout_rate": self.dropout_rate,
                "attention_dropout_rate": self.attention_dropout_rate,
                "activation": keras.activations.serialize(self.activation),
                "epsilon": self.epsilon,
                "feed_forward": json.loads(self._pattern),
                "norm_placement": self.norm_placement,
            }
        )
        return config


def _serialized(feed_forward):
    """The configuration of a feed-forward layer, without its shapes."""
    if feed_forward == "dense":
        return feed_forward
    config = feed_forward
    if isinstance(config, keras.layers.Layer):
        config = keras.saving.serialize_keras_object(config)
    if not isinstance(config, dict) or not {"class_name", "config"} <= set(
        config
    ):
        raise ValueError(
            "`feed_forward` must be 'dense', a layer, or a layer's serialised "
            "configuration, as `keras.saving.serialize_keras_object` makes "
            f"it. Received: feed_forward={feed_forward!r}"
        )
    return {k: v for k, v in config.items() if k != "build_config"}
