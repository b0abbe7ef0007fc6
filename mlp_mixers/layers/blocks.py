"""The blocks that models stack."""

import keras
from keras import ops

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.arguments import positive_number
from mlp_mixers.layers.spatial_gating_unit import MULTIPLYING_GATES
from mlp_mixers.layers.spatial_gating_unit import SpatialGatingUnit
from mlp_mixers.layers.stochastic_depth import StochasticDepth
from mlp_mixers.layers.tiny_attention import TinyAttention
from mlp_mixers.ops import check_padding_mask
from mlp_mixers.ops import per_token
from mlp_mixers.ops import zero_padding
from mlp_mixers.ops.decoding import check_decodable


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GMLPBlock(keras.layers.Layer):
    """One gMLP block; with `attention_dim`, one aMLP block.

        Z  = σ(norm(X) · U)                       channels d -> e
        Z̃  = s(Z)                                 the spatial gating unit
        Y  = X + Z̃ · V                            channels e/2 -> d

    There is no other mixing and no second feed-forward part. The addition
    takes the block's raw input, not the normalised one. In an aMLP block the
    tiny attention reads `norm(X)` and joins the gate:
    `Z̃ = Z₁ ⊙ (f(Z₂) + attention(norm(X)))`.

    **One token at a time.** If causal, `prefill` is the call that also
    returns a cache, and `step` continues from it with one new token an
    example. The results are those of the call on all tokens, in inference.

    Args:
        intermediate_dim: Width e of the expansion, *before* the gating unit
            halves it. The paper uses 6 times the hidden dimension, 4 times in
            its large language models.
        attention_dim: Width of the tiny attention, `None` for no attention.
        drop_path_rate: Probability of dropping the branch in training; one
            minus the paper's survival probability.
        sequence_length: See `SpatialGatingUnit`.
        gate: See `SpatialGatingUnit`.
        num_heads: See `SpatialGatingUnit`.
        toeplitz: See `SpatialGatingUnit`.
        causal: Whether gating unit and attention look at earlier tokens only.
        activation: σ. The default is the exact GELU.
        epsilon: Added to the variance in the block's normalisation.
        gate_epsilon: The same inside the gating unit.
        kernel_initializer: Of the spatial matrix, see `SpatialGatingUnit`.
        bias_initializer: Of the spatial bias, see `SpatialGatingUnit`.
        dropout_rate: Dropout of the branch, before the addition. The paper
            uses 0.1 when it finetunes language models, and none otherwise.
        attention_dropout_rate: Dropout of the tiny attention's weights.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, d)`.
        mask: Padding mask of shape `(batch, n)`, true at real tokens. Padded
            tokens reach no real one; their own output has no meaning.
        training: Whether stochastic depth and dropout drop.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: As `SpatialGatingUnit`, and if `attention_dim` is set with
            a gate that does not multiply.

    Example:

    ```python
    gmlp = GMLPBlock(intermediate_dim=1536, sequence_length=196)
    amlp = GMLPBlock(intermediate_dim=3072, attention_dim=64, toeplitz=True)
    y = gmlp(keras.random.normal((8, 196, 256)))  # (8, 196, 256)
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 2,
        eq. 1 and Fig. 1; aMLP in Sec. 4.3.
    """

    def __init__(
        self,
        intermediate_dim,
        attention_dim=None,
        drop_path_rate=0.0,
        sequence_length=None,
        gate="split",
        num_heads=1,
        toeplitz=False,
        causal=False,
        activation="gelu",
        epsilon=1e-6,
        gate_epsilon=1e-5,
        kernel_initializer=None,
        bias_initializer=None,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = positive_integer(
            intermediate_dim, "intermediate_dim"
        )
        if attention_dim is not None and gate not in MULTIPLYING_GATES:
            raise ValueError(
                "Tiny attention joins a gate that multiplies, `gate` in "
                f"{MULTIPLYING_GATES}. Received: gate={gate!r}, "
                f"attention_dim={attention_dim}"
            )
        self.attention_dim = positive_integer(
            attention_dim, "attention_dim", optional=True
        )
        self.drop_path_rate = drop_rate(drop_path_rate, "drop_path_rate")
        self.dropout_rate = drop_rate(dropout_rate, "dropout_rate")
        self.attention_dropout_rate = drop_rate(
            attention_dropout_rate, "attention_dropout_rate"
        )
        self.epsilon = positive_number(epsilon, "epsilon")
        self.supports_masking = True
        common = {"dtype": self.dtype_policy}
        self.norm = keras.layers.LayerNormalization(
            epsilon=self.epsilon, name="norm", **common
        )
        # U, with σ
        self.intermediate_dense = keras.layers.Dense(
            self.intermediate_dim,
            activation=activation,
            name="intermediate_dense",
            **common,
        )
        # s
        self.gating_unit = self._make_gating_unit(
            gate=gate,
            num_heads=num_heads,
            sequence_length=sequence_length,
            toeplitz=toeplitz,
            causal=causal,
            epsilon=gate_epsilon,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            name="gating_unit",
            **common,
        )
        self.attention = self.attention_dim and TinyAttention(
            output_dim=self.gate_dim,
            attention_dim=self.attention_dim,
            causal=causal,
            dropout_rate=self.attention_dropout_rate,
            name="attention",
            **common,
        )
        self.dropout = keras.layers.Dropout(
            self.dropout_rate, name="dropout", **common
        )
        self.drop_path = StochasticDepth(
            self.drop_path_rate, name="drop_path", **common
        )

    def _make_gating_unit(self, **arguments):
        """s, from the arguments of a `SpatialGatingUnit`."""
        return SpatialGatingUnit(**arguments)

    @property
    def gate_dim(self):
        """The width that leaves the gating unit and enters V."""
        halves = 2 if self.gating_unit.gate == "split" else 1
        return self.intermediate_dim // halves

    def build(self, x_shape):
        if len(x_shape) != 3:
            raise ValueError(
                f"{type(self).__name__} expects inputs of shape "
                f"`(batch, n, channels)`. Received: x.shape={x_shape}"
            )
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: x_shape[-1]})
        self.norm.build(x_shape)
        self.dropout.build(x_shape)
        self.drop_path.build(x_shape)
        self.intermediate_dense.build(x_shape)
        self.gating_unit.build((*x_shape[:-1], self.intermediate_dim))
        if self.attention:
            self.attention.build(x_shape)
        # V, whose width is the input's, so that the addition always fits
        self.output_dense = keras.layers.Dense(
            x_shape[-1], dtype=self.dtype_policy, name="output_dense"
        )
        self.output_dense.build((*x_shape[:-1], self.gate_dim))

    def call(self, x, mask=None, training=False):
        check_padding_mask(mask, x.shape, type(self).__name__)
        x = ops.cast(x, self.compute_dtype)
        normed, z = self._expanded(x, mask)
        attended = None
        if self.attention:
            attended = self.attention(normed, mask=mask, training=training)
        z = self.gating_unit(
            z, gate_residual=attended, mask=mask, training=training
        )  # (b, n, e/2)
        y = per_token(self.output_dense, z)
        y = self.dropout(y, training=training)
        return self._after(x, self.drop_path(y, training=training))

    def _before(self, x, mask):
        """What the branch reads: norm(X)."""
        # Padding is zero for all that follows, and itself in the sum.
        return per_token(self.norm, zero_padding(x, mask))

    def _after(self, x, y):
        """Y from X and what the branch has made of it."""
        return x + y

    def _expanded(self, x, mask=None):
        """norm(X), and σ(norm(X) · U) of shape (b, n, e)."""
        normed = self._before(x, mask)
        return normed, per_token(self.intermediate_dense, normed)

    def make_cache(self, batch, length):
        """An empty cache for `step`.

        Args:
            batch: Number of examples.
            length: How many tokens it can hold, at most `sequence_length`.

        Returns:
            The caches of the gating unit and of the attention, if there is
            one, under `"gating_unit"` and `"attention"`.

        Raises:
            ValueError: If the block is not causal or not built, or `length`
                is above `sequence_length`.
        """
        check_decodable(self, self.gating_unit.causal)
        cache = {"gating_unit": self.gating_unit.make_cache(batch, length)}
        if self.attention:
            cache["attention"] = self.attention.make_cache(batch, length)
        return cache

    def prefill(self, x, mask=None):
        """The call, in inference, and the cache that continues it.

        Args:
            x: Tensor of shape `(batch, n, d)`, padded on the right.
            mask: Padding mask of shape `(batch, n)`, true at real tokens.

        Returns:
            `(y, cache)`: the output of the call, and a cache of length n.

        Raises:
            ValueError: If the block is not causal or not built, and as the
                call.
        """
        check_decodable(self, self.gating_unit.causal)
        check_padding_mask(mask, x.shape, type(self).__name__)
        x = ops.cast(x, self.compute_dtype)
        normed, z = self._expanded(x, mask)
        cache, attended = {}, None
        if self.attention:
            attended, cache["attention"] = self.attention.prefill(
                normed, mask=mask
            )
        z, cache["gating_unit"] = self.gating_unit.prefill(
            z, mask=mask, gate_residual=attended
        )
        return self._after(x, per_token(self.output_dense, z)), cache

    def step(self, x, cache, positions):
        """The output of one new token an example.

        Args:
            x: Tensor of shape `(batch, 1, d)`.
            cache: From `make_cache`, `prefill` or the step before.
            positions: Integers of shape `(batch,)`, the place of each new
                token, below the cache's length.

        Returns:
            `(y, cache)`: the output, of the shape of `x`, and the cache with
            the new token in it.

        Raises:
            ValueError: If the block is not causal or not built, or a shape
                is another.
        """
        check_decodable(self, self.gating_unit.causal)
        x = ops.cast(x, self.compute_dtype)
        normed, z = self._expanded(x)
        new, attended = {}, None
        if self.attention:
            attended, new["attention"] = self.attention.step(
                normed, cache["attention"], positions
            )
        z, new["gating_unit"] = self.gating_unit.step(
            z, cache["gating_unit"], positions, gate_residual=attended
        )
        return self._after(x, per_token(self.output_dense, z)), new

    def compute_output_shape(self, x_shape):
        # Asked for its complaint about inputs that are too long.
        self.gating_unit.compute_output_shape(
            (*x_shape[:-1], self.intermediate_dim)
        )
        return x_shape

    def get_config(self):
        config = super().get_config()
        unit = self.gating_unit.get_config()
        shared = (
            "sequence_length",
            "gate",
            "num_heads",
            "toeplitz",
            "causal",
            "kernel_initializer",
            "bias_initializer",
        )
        # Some are of other units' making, see `_make_gating_unit`.
        config.update({name: unit[name] for name in shared if name in unit})
        config.update(
            {
                "intermediate_dim": self.intermediate_dim,
                "attention_dim": self.attention_dim,
                "drop_path_rate": self.drop_path_rate,
                "activation": keras.activations.serialize(
                    self.intermediate_dense.activation
                ),
                "epsilon": self.epsilon,
                "gate_epsilon": unit["epsilon"],
                "dropout_rate": self.dropout_rate,
                "attention_dropout_rate": self.attention_dropout_rate,
            }
        )
        return config
