"""The spatial gating unit of gMLP.

Letters, here and in the paper: b batch, n tokens (`sequence_length`),
e channels of the input (`intermediate_dim` inside a block), h heads.
"""

import math

import keras
from keras import initializers
from keras import ops

from mlp_mixers.arguments import boolean
from mlp_mixers.arguments import positive_integer
from mlp_mixers.arguments import positive_number
from mlp_mixers.ops import check_padding_mask
from mlp_mixers.ops import spatial_product
from mlp_mixers.ops import toeplitz_matrix
from mlp_mixers.ops import zero_padding
from mlp_mixers.ops.decoding import causal_rows
from mlp_mixers.ops.decoding import causal_toeplitz_rows
from mlp_mixers.ops.decoding import check_decodable
from mlp_mixers.ops.decoding import check_step
from mlp_mixers.ops.decoding import rows_product
from mlp_mixers.ops.decoding import write_at

GATES = ("linear", "additive", "multiplicative", "split")
# The gates that multiply. They start as the identity, W ≈ 0 and b = 1.
MULTIPLYING_GATES = ("multiplicative", "split")


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SpatialGatingUnit(keras.layers.Layer):
    """Gates channels with a learned linear projection across tokens.

    The unit is the only place where tokens of a gMLP meet:

        f(Z) = W · norm(Z) + b           one n×n matrix W, one b per token
        s(Z) = Z₁ ⊙ f(Z₂)                Z = [Z₁, Z₂], halves of the channels

    The same `W` serves every channel and every example, so the unit knows
    tokens by their position. At the start `W ≈ 0` and `b = 1`, hence
    `s(Z) ≈ Z₁`: each token is on its own, and training opens the gates as
    far as they are useful. The paper calls this start critical for stability.

    **Masks are explicit.** With `mask`, padded tokens are zero before the
    projection, so that they reach no other token, and zero in the output.

    **Shorter inputs** than `sequence_length` use the leading rows and columns
    of `W` and the leading entries of `b`, causal or not.

    **One token at a time.** If causal, `prefill` is the call that also
    returns a cache, `norm(Z₂)` of all tokens, and `step` continues from it
    with one new token an example, which costs one row of `W` and not all of
    it. The results are those of the call on all tokens.

    Args:
        sequence_length: The number of tokens, n. `None` takes that of the
            input the layer is built with.
        gate: One of the four gates of the paper's ablation (Table 3):

            - `"linear"`: `s(Z) = f(Z)`
            - `"additive"`: `s(Z) = Z + f(Z)`
            - `"multiplicative"`: `s(Z) = Z ⊙ f(Z)`
            - `"split"`: `s(Z) = Z₁ ⊙ f(Z₂)`, the paper's choice; its output
              is half as wide as its input.
        num_heads: Number of spatial matrices, one for each of `num_heads`
            equal groups of consecutive channels. The paper uses 1.
        toeplitz: Whether `W[i, j]` depends on `j - i` only, which makes the
            projection shift-invariant and leaves 2n-1 values to learn (n if
            causal). The paper's language models do this (App. C).
        causal: Whether a token sees itself and earlier ones only, `W` being
            lower triangular. Not in the paper, whose models are encoders.
        epsilon: Added to the variance in the normalisation of `Z₂`.
        kernel_initializer: Initializer for `W`. `None` takes the gate's own:
            normal with standard deviation 1e-6 (the paper says "near-zero"
            and no number), and Glorot uniform for `"linear"`, which has no
            other way through.
        bias_initializer: Initializer for `b`. `None` takes the gate's own:
            ones where the gate multiplies, zeros where it does not.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, e)`.
        gate_residual: Tensor of the output's shape, added to the gate before
            it multiplies: `Z₁ ⊙ (f(Z₂) + gate_residual)`. This is where
            aMLP puts its tiny attention (Fig. 6).
        mask: Padding mask of shape `(batch, n)`, true at real tokens.

    Returns:
        Tensor of shape `(batch, n, e // 2)` for `gate="split"`, else
        `(batch, n, e)`.

    Raises:
        ValueError: If an argument is out of range; if the channels do not
            divide by the heads, or into halves; if the input is longer than
            `sequence_length`, or of unknown length when `sequence_length` is
            `None`; if `gate_residual` comes to a gate that does not multiply.

    Example:

    ```python
    unit = SpatialGatingUnit(sequence_length=196)
    y = unit(keras.random.normal((8, 196, 1536)))  # (8, 196, 768)
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 2.1,
        eq. 2-4; gates in Table 3; Toeplitz in App. C.
    """

    def __init__(
        self,
        sequence_length=None,
        gate="split",
        num_heads=1,
        toeplitz=False,
        causal=False,
        epsilon=1e-5,
        kernel_initializer=None,
        bias_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if gate not in GATES:
            raise ValueError(
                f"`gate` must be one of {GATES}. Received: gate={gate!r}"
            )
        self.sequence_length = positive_integer(
            sequence_length, "sequence_length", optional=True
        )
        self.gate = gate
        self.num_heads = positive_integer(num_heads, "num_heads")
        self.toeplitz = boolean(toeplitz, "toeplitz")
        self.causal = boolean(causal, "causal")
        self.epsilon = positive_number(epsilon, "epsilon")
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.supports_masking = True
        self.norm = keras.layers.LayerNormalization(
            epsilon=self.epsilon, dtype=self.dtype_policy, name="norm"
        )

    def build(self, x_shape, gate_residual_shape=None):
        if len(x_shape) != 3:
            raise ValueError(
                f"{type(self).__name__} expects inputs of shape "
                f"`(batch, n, channels)`. Received: x.shape={x_shape}"
            )
        n = self.sequence_length or x_shape[1]
        if n is None:
            raise ValueError(
                f"{type(self).__name__} learns one weight for each pair of "
                "tokens, so it must know how many there are. Pass "
                "`sequence_length=` or an input of known length. "
                f"Received: sequence_length=None, x.shape={x_shape}"
            )
        channels = self._check_channels(x_shape[-1])
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: x_shape[-1]})
        self._n = n
        self._check_length(x_shape[1])
        self._check_gate_residual(x_shape, gate_residual_shape)
        self.norm.build((*x_shape[:-1], channels))
        self.spatial_kernel = self.add_weight(
            name="spatial_kernel",
            shape=(self.num_heads, *self._kernel_shape(n)),
            initializer=self.kernel_initializer or self._first_kernel(n),
        )
        self.spatial_bias = self.add_weight(
            name="spatial_bias",
            shape=(self.num_heads, n),
            initializer=self.bias_initializer or self._first_bias(),
        )

    def call(self, x, gate_residual=None, mask=None, training=False):
        self._check_length(x.shape[1])
        check_padding_mask(mask, x.shape, type(self).__name__)
        if gate_residual is not None:
            self._check_gate_residual(x.shape, gate_residual.shape)
        # First of all, so that not even NaN in the padding gets anywhere.
        x = zero_padding(x, mask)
        z1, z2 = self._parts(x)
        f = self._project(z2, mask, training)
        y = self._gated(z1, f, gate_residual)
        return zero_padding(y, mask)

    def make_cache(self, batch, length):
        """An empty cache for `step`.

        Args:
            batch: Number of examples.
            length: How many tokens it can hold, at most `sequence_length`.

        Returns:
            `{"normed": ...}`, zeros of shape `(batch, length, c)`, with c
            the width of what is projected.

        Raises:
            ValueError: If the layer is not causal or not built, or `length`
                is above `sequence_length`.
        """
        check_decodable(self, self.causal)
        self._check_length(length)
        channels = self.norm.gamma.shape[0]
        shape = (batch, length, channels)
        return {"normed": ops.zeros(shape, self.compute_dtype)}

    def prefill(self, x, mask=None, gate_residual=None):
        """The call and the cache that continues it.

        Args:
            x: Tensor of shape `(batch, n, e)`, padded on the right.
            mask: Padding mask of shape `(batch, n)`, true at real tokens.
            gate_residual: See the call.

        Returns:
            `(y, cache)`: the output of the call, and a cache of length n.

        Raises:
            ValueError: If the layer is not causal or not built, and as the
                call.
        """
        check_decodable(self, self.causal)
        y = self(x, gate_residual=gate_residual, mask=mask)
        x = zero_padding(ops.cast(x, self.compute_dtype), mask)
        _, z2 = self._parts(x)
        return y, {"normed": zero_padding(self.norm(z2), mask)}

    def step(self, x, cache, positions, gate_residual=None):
        """The output of one new token an example.

        Args:
            x: Tensor of shape `(batch, 1, e)`.
            cache: From `make_cache`, `prefill` or the step before. All rows
                before the new token's must be filled; later ones are not
                read.
            positions: Integers of shape `(batch,)`, the place of each new
                token, below the cache's length.
            gate_residual: See the call; of one token.

        Returns:
            `(y, cache)`: the output, one token long, and the cache with the
            new token in it.

        Raises:
            ValueError: If the layer is not causal or not built, or a shape
                is another.
        """
        check_decodable(self, self.causal)
        positions = ops.convert_to_tensor(positions, "int32")
        check_step(x, positions, type(self).__name__)
        if gate_residual is not None:
            self._check_gate_residual(x.shape, gate_residual.shape)
        z1, z2 = self._parts(ops.cast(x, self.compute_dtype))
        normed = write_at(cache["normed"], positions, self.norm(z2))
        cache = {**cache, "normed": normed}
        f = self._project_at(positions, cache)
        return self._gated(z1, f, gate_residual), cache

    def _parts(self, x):
        """Z₁, which passes the gate, and Z₂, which makes it."""
        if self.gate == "split":
            return ops.split(x, 2, axis=-1)  # (b, n, e/2) each
        return x, x

    def _gated(self, z1, f, gate_residual):
        """s(Z) from Z₁ and f(Z₂)."""
        if gate_residual is not None:
            f = f + ops.cast(gate_residual, f.dtype)
        if self.gate == "linear":
            return f
        return z1 + f if self.gate == "additive" else z1 * f

    def _project(self, z, mask, training):
        """f(Z) = W · norm(Z) + b; the same in training."""
        z = zero_padding(self.norm(z), mask)
        n = ops.shape(z)[1]
        y = spatial_product(self.spatial_matrix()[:, :n, :n], z)
        bias = ops.transpose(ops.convert_to_tensor(self.spatial_bias)[:, :n])
        return y + self._to_channels(bias, z.shape[-1])

    def _project_at(self, positions, cache):
        """f(Z) of one token an example, from norm(Z) of all up to it.

        One row of W an example; neither W nor its triangle is made. The
        kernel is cast after the rows are taken, not whole.
        """
        normed = cache["normed"]
        length = normed.shape[1]
        self._check_length(length)
        rows_of = causal_toeplitz_rows if self.toeplitz else causal_rows
        kernel = ops.convert_to_tensor(self.spatial_kernel)
        rows = rows_of(kernel, positions, length)  # (h, b, length)
        y = rows_product(ops.cast(rows, normed.dtype), normed)
        bias = ops.take(self.spatial_bias, positions, axis=1)  # (h, b)
        bias = ops.cast(ops.transpose(bias), normed.dtype)
        bias = self._to_channels(bias, normed.shape[-1])  # (b, channels)
        return y + ops.expand_dims(bias, 1)

    def _to_channels(self, bias, channels):
        """(..., h) -> (..., channels): a head's bias serves its channels."""
        if self.num_heads == 1:
            return bias
        return ops.repeat(bias, channels // self.num_heads, axis=-1)

    def spatial_matrix(self):
        """The W that multiplies, whatever it is made of.

        Returns:
            Tensor of shape `(num_heads, n, n)`; `[h, i, j]` weighs input
            token j for output token i.
        """
        kernel = ops.convert_to_tensor(self.spatial_kernel)
        if not self.toeplitz:
            return ops.tril(kernel) if self.causal else kernel
        if self.causal:
            # The n values end on the main diagonal; nothing lies above it.
            kernel = ops.pad(kernel, [[0, 0], [0, self._n - 1]])
        return toeplitz_matrix(kernel)

    def _kernel_shape(self, n):
        """The shape of what one head learns."""
        if not self.toeplitz:
            return (n, n)
        return (n,) if self.causal else (2 * n - 1,)

    def _first_kernel(self, n):
        if self.gate == "linear":
            # Glorot uniform of an n×n matrix, whatever the kernel's shape.
            limit = math.sqrt(3.0 / n)
            return initializers.RandomUniform(-limit, limit)
        return initializers.RandomNormal(stddev=1e-6)

    def _first_bias(self):
        return "ones" if self.gate in MULTIPLYING_GATES else "zeros"

    def _check_channels(self, channels):
        """Returns the width of what is projected."""
        if channels is None:
            raise ValueError(
                f"{type(self).__name__} expects a known number of channels. "
                "Received an input whose last dimension is `None`."
            )
        if self.gate == "split":
            if channels % 2:
                raise ValueError(
                    "`gate='split'` cuts the channels into halves, so their "
                    "number must be even. "
                    f"Received: channels={channels}"
                )
            channels //= 2
        self._check_groups(channels)
        return channels

    def _check_groups(self, channels):
        if channels % self.num_heads:
            raise ValueError(
                "The channels that the gate projects must divide into "
                "`num_heads` equal groups. "
                f"Received: channels={channels}, num_heads={self.num_heads}"
            )

    def _check_length(self, length):
        if isinstance(length, int) and length > self._n:
            raise ValueError(
                f"{type(self).__name__} has spatial weights for "
                f"{self._n} tokens and cannot take more. Shorten the input, "
                "or build the layer with a longer `sequence_length`. "
                f"Received: an input of {length} tokens, "
                f"sequence_length={self._n}"
            )

    def _check_gate_residual(self, x_shape, gate_residual_shape):
        if gate_residual_shape is None:
            return
        if self.gate not in MULTIPLYING_GATES:
            raise ValueError(
                "`gate_residual` is added to a gate that multiplies, "
                f"`gate` in {MULTIPLYING_GATES}. "
                f"Received: gate={self.gate!r}"
            )
        expected = self._output_shape(x_shape)
        fits = len(gate_residual_shape) == 3 and all(
            a is None or b is None or a == b
            for a, b in zip(gate_residual_shape, expected)
        )
        if not fits:
            raise ValueError(
                "`gate_residual` must have the shape of the output, "
                f"{expected}. "
                f"Received: gate_residual.shape={tuple(gate_residual_shape)}"
            )

    def _output_shape(self, x_shape):
        halves = 2 if self.gate == "split" else 1
        return (*x_shape[:-1], x_shape[-1] // halves)

    def compute_output_shape(self, x_shape, gate_residual_shape=None):
        if self.built:
            self._check_length(x_shape[1])
        self._check_gate_residual(x_shape, gate_residual_shape)
        return self._output_shape(x_shape)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "sequence_length": self.sequence_length,
                "gate": self.gate,
                "num_heads": self.num_heads,
                "toeplitz": self.toeplitz,
                "causal": self.causal,
                "epsilon": self.epsilon,
                "kernel_initializer": _serialize(self.kernel_initializer),
                "bias_initializer": _serialize(self.bias_initializer),
            }
        )
        return config


def _serialize(initializer):
    return initializer and initializers.serialize(initializer)
