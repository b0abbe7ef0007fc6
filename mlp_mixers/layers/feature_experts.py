"""Feature experts: the sMoE of sparse all-MLP.

Letters: b batch, n tokens, c channels that are projected, E experts,
P tokens of the prefix.
"""

import math

import keras
from keras import ops

from mlp_mixers.arguments import not_negative
from mlp_mixers.layers.routing_record import RoutingRecord
from mlp_mixers.layers.spatial_gating_unit import SpatialGatingUnit
from mlp_mixers.ops import zero_padding
from mlp_mixers.ops.decoding import causal_rows
from mlp_mixers.ops.decoding import causal_toeplitz_rows
from mlp_mixers.ops.dispatch import Blocks
from mlp_mixers.ops.dispatch import count_by_expert
from mlp_mixers.ops.gather import take_along_last

ROUTINGS = ("deterministic", "partial", "leaky")
SHORT_PROMPTS = (None, "deterministic")


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SparseFeatureExperts(SpatialGatingUnit):
    """A spatial gating unit whose channels go to different spatial matrices.

        [Z₁, Z₂] = Z,   v = a column of norm(Z₂): one channel, all tokens
        f(v) = g · (Wᵉ · v + bᵉ)           e, g: the column's expert and gate
        s(Z) = Z₁ ⊙ f

    What is routed is a *channel across all tokens*, so an expert is a matrix
    W (n×n) and not a network. Three ways to route:

    - `"deterministic"`: the channels are cut into E chunks, chunk i goes to
      expert i, g = 1. Nothing is learned and nothing can leak. It is the
      gating unit with `num_heads=E`.
    - `"partial"`: the first P tokens choose, `p = softmax(v[:P] · W_r)`,
      e = argmax p, g = p_e. What these tokens are is known to all that
      follow, so a language model is asked for the later ones only: its loss
      covers outputs from token P - 1 on (which predicts token P).
    - `"leaky"`: all n tokens choose. The route of a channel then tells every
      token about those that follow it: **it cheats** in a causal model, and
      is here to be caught by `mlp_mixers.analysis.leaks_future`.

    Args:
        num_experts: Number of experts, E.
        routing: See above.
        prefix_fraction: P = floor(prefix_fraction · sequence_length) tokens
            choose in partial routing; the paper takes 0.2.
        short_prompt: What partial routing does with inputs of fewer than P
            tokens. `None` raises; `"deterministic"` cuts their channels into
            chunks. Of a batch with a mask, examples that are shorter than P
            are always routed so: there is nothing else to route them by.
        balance_loss_weight: Weight of the balance loss of the learned
            routings, `E · Σ_e f_e · P_e` over all channels of a step whose
            examples choose a route, added in training; see `SwitchRouter`.
            The paper names none.
        sequence_length: See `SpatialGatingUnit`.
        toeplitz: See `SpatialGatingUnit`.
        causal: Whether a token sees itself and earlier ones only, as
            language models that write must.
        epsilon: See `SpatialGatingUnit`.
        kernel_initializer: See `SpatialGatingUnit`.
        bias_initializer: See `SpatialGatingUnit`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, 2c)`.
        gate_residual: See `SpatialGatingUnit`.
        mask: Padding mask of shape `(batch, n)`, true at real tokens.
        training: Whether to add the balance loss and to measure the load.

    Returns:
        Tensor of shape `(batch, n, c)`.

    Raises:
        ValueError: As `SpatialGatingUnit`; if the channels do not divide by
            the experts in deterministic routing; if the prefix has no token;
            if an input is shorter than the prefix.

    Example:

    ```python
    unit = SparseFeatureExperts(num_experts=4, sequence_length=128)
    y = unit(keras.random.normal((8, 128, 512)))  # (8, 128, 256)
    ```

    Reference:
        [Efficient Language Modeling with Sparse all-MLP](
        https://arxiv.org/abs/2203.06850), Sec. 3.1 (sMoE, eq. 3), 3.3
        (deterministic and partial routing).
    """

    def __init__(
        self,
        num_experts,
        routing="deterministic",
        prefix_fraction=0.2,
        short_prompt=None,
        balance_loss_weight=0.01,
        sequence_length=None,
        toeplitz=False,
        causal=True,
        epsilon=1e-5,
        kernel_initializer=None,
        bias_initializer=None,
        **kwargs,
    ):
        if routing not in ROUTINGS:
            raise ValueError(
                f"`routing` must be one of {ROUTINGS}. "
                f"Received: routing={routing!r}"
            )
        if short_prompt not in SHORT_PROMPTS:
            raise ValueError(
                f"`short_prompt` must be one of {SHORT_PROMPTS}. "
                f"Received: short_prompt={short_prompt!r}"
            )
        if not 0 < prefix_fraction < 1:
            raise ValueError(
                "`prefix_fraction` must lie between 0 and 1. "
                f"Received: prefix_fraction={prefix_fraction!r}"
            )
        super().__init__(
            sequence_length=sequence_length,
            num_heads=num_experts,
            toeplitz=toeplitz,
            causal=causal,
            epsilon=epsilon,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            **kwargs,
        )
        self.routing = routing
        self.prefix_fraction = float(prefix_fraction)
        self.short_prompt = short_prompt
        self.balance_loss_weight = not_negative(
            balance_loss_weight, "balance_loss_weight"
        )
        self._learned = routing != "deterministic"
        # What `mlp_mixers.analysis.expert_load` listens with.
        self.on_route = None

    @property
    def num_experts(self):
        """Number of experts, E."""
        return self.num_heads

    @property
    def prefix_length(self):
        """P, how many tokens choose; 0 if the routing is not partial."""
        if self.routing != "partial":
            return 0
        # Rounded first: 0.7 · 10 is 6.999999999999999 or 7.000000000000001.
        return math.floor(round(self.prefix_fraction * self._n, 6))

    def build(self, x_shape, gate_residual_shape=None):
        super().build(x_shape, gate_residual_shape)
        if not self._learned:
            return
        rows = self._n if self.routing == "leaky" else self.prefix_length
        if not rows:
            raise ValueError(
                "There must be a token that chooses: raise "
                "`prefix_fraction`. Received: "
                f"prefix_fraction={self.prefix_fraction}, "
                f"sequence_length={self._n}"
            )
        self.router_kernel = self.add_weight(
            name="router_kernel",
            shape=(rows, self.num_experts),
            initializer=keras.initializers.VarianceScaling(
                0.1, "fan_in", "truncated_normal"
            ),
            # Routing is in float32 whatever the policy.
            dtype="float32",
            autocast=False,
        )
        self.routing_record = RoutingRecord(self, ("balance_loss",))

    def _project(self, z, mask, training):
        """f(Z), each channel by its expert."""
        if not self._learned:
            return super()._project(z, mask, training)
        z = zero_padding(self.norm(z), mask)
        ids, gates = self._route(z, mask, training)  # (b, c)
        if self.on_route is not None:
            self.on_route(ids)
        batch, n, channels = ops.shape(z)
        blocks = Blocks(ops.reshape(ids, (-1,)), self.num_experts)
        columns = ops.reshape(ops.transpose(z, (0, 2, 1)), (-1, n))
        v = blocks.dispatch(columns)  # (blocks, B, n)
        w = ops.take(self.spatial_matrix()[:, :n, :n], blocks.experts, axis=0)
        y = ops.matmul(v, ops.transpose(w, (0, 2, 1)))
        bias = ops.convert_to_tensor(self.spatial_bias)[:, :n]
        y = y + ops.take(bias, blocks.experts, axis=0)[:, None]
        y = ops.reshape(blocks.combine(y), (batch, channels, n))
        return ops.transpose(y, (0, 2, 1)) * self._as_factor(gates, z.dtype)

    def route(self, z, mask=None):
        """Which expert each channel goes to, for a look at them.

        Args:
            z: norm(Z₂), tensor of shape `(b, n, c)`.
            mask: Padding mask of shape `(b, n)`.

        Returns:
            int32 `(b, c)`.
        """
        return self._route(z, mask)[0]

    def _route(self, z, mask, training=False):
        """`(ids, gates)`, int32 and float32 `(b, c)`, of norm(Z₂)."""
        batch, n, channels = ops.shape(z)
        chunks = ops.broadcast_to(self._chunks(z.shape[-1]), (batch, channels))
        ones = ops.ones((batch, channels), "float32")
        if not self._learned or self._is_short(z.shape[1]):
            return chunks, ones
        rows = n if self.routing == "leaky" else self.prefix_length
        prefix = ops.cast(z[:, :rows], "float32")
        kernel = ops.convert_to_tensor(self.router_kernel)[:rows]
        p = ops.softmax(ops.einsum("bpc,pe->bce", prefix, kernel), axis=-1)
        ids = ops.cast(ops.argmax(p, axis=-1), "int32")
        gates = take_along_last(p, ids[..., None])[..., 0]
        if mask is None:
            is_short = ops.zeros((batch, 1), "bool")
        else:
            real = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
            # Nothing has nothing to say, in leaky routing too.
            is_short = real < max(self.prefix_length, 1)  # (b, 1)
        if training:
            self._tell(p, ids, ops.logical_not(is_short))
        if mask is None or self.routing == "leaky":
            return ids, gates
        return (
            ops.where(is_short, chunks, ids),
            ops.where(is_short, ones, gates),
        )

    def _is_short(self, length):
        """Whether all inputs are shorter than the prefix, which may raise."""
        if self.routing != "partial" or not isinstance(length, int):
            return False
        if length >= self.prefix_length:
            return False
        self._check_short(f"an input of {length} tokens")
        return True

    def _check_short(self, received):
        if self.short_prompt is None:
            raise ValueError(
                f"Partial routing looks at the first {self.prefix_length} "
                "tokens, and needs as many. Give longer inputs, or set "
                "`short_prompt='deterministic'`. "
                f"Received: {received}"
            )

    def _chunks(self, channels):
        """int32 `(1, c)`: expert i for the i-th chunk of the channels."""
        experts = ops.arange(channels, dtype="int32") * self.num_experts
        return (experts // channels)[None]

    def _as_factor(self, gates, dtype):
        return ops.cast(gates, dtype)[:, None]  # (b, 1, c)

    def _tell(self, p, ids, choose):
        """The balance loss of a training step, and its metrics.

        Of the examples that `choose`, `(b, 1)`: the others are padding, or
        too short to have a say.
        """
        experts = self.num_experts
        counts = count_by_expert(ops.where(choose, ids, experts), experts)
        total = ops.sum(counts)
        some = ops.cast(ops.maximum(total, 1), "float32")
        f = ops.cast(counts, "float32") / some
        p = ops.where(choose[..., None], p, 0.0)
        loss = experts * ops.sum(
            ops.stop_gradient(f) * ops.sum(p, axis=(0, 1)) / some
        )
        if self.balance_loss_weight:
            self.add_loss(self.balance_loss_weight * loss)
        self.routing_record.add(counts, total, {"balance_loss": loss})

    def make_cache(self, batch, length):
        """See `SpatialGatingUnit`; partial routing needs a prefix first.

        Raises:
            ValueError: And if the routing is partial, unless
                `short_prompt="deterministic"`.
        """
        self._check_writes()
        cache = super().make_cache(batch, length)
        if self.routing == "partial":
            self._check_short("an empty cache")
            channels = cache["normed"].shape[-1]
            shape = (batch, channels)
            cache["experts"] = ops.broadcast_to(self._chunks(channels), shape)
            cache["gates"] = ops.ones(shape, "float32")
        return cache

    def prefill(self, x, mask=None, gate_residual=None):
        """See `SpatialGatingUnit`; the cache keeps the route of the prefix.

        Of an example that is shorter than the prefix, the route stays
        deterministic.
        """
        self._check_writes()
        y, cache = super().prefill(x, mask=mask, gate_residual=gate_residual)
        if self.routing == "partial":
            ids, gates = self._route(cache["normed"], mask)
            cache.update(experts=ids, gates=gates)
        return y, cache

    def step(self, x, cache, positions, gate_residual=None):
        """See `SpatialGatingUnit`."""
        self._check_writes()
        return super().step(x, cache, positions, gate_residual)

    def _project_at(self, positions, cache):
        if self.routing != "partial":
            return super()._project_at(positions, cache)
        normed = cache["normed"]
        length = normed.shape[1]
        self._check_length(length)
        ids, gates = cache["experts"], cache["gates"]  # (b, c)
        rows_of = causal_toeplitz_rows if self.toeplitz else causal_rows
        kernel = ops.convert_to_tensor(self.spatial_kernel)
        rows = rows_of(kernel, positions, length)  # (E, b, length)
        rows = ops.transpose(ops.cast(rows, normed.dtype), (1, 0, 2))
        rows = ops.take_along_axis(rows, ids[..., None], axis=1)
        y = ops.einsum("bcl,blc->bc", rows, normed)
        bias = ops.take(self.spatial_bias, positions, axis=1)  # (E, b)
        bias = ops.transpose(ops.cast(bias, normed.dtype))
        y = y + ops.take_along_axis(bias, ids, axis=1)
        return y[:, None] * self._as_factor(gates, normed.dtype)

    def _check_writes(self):
        if self.routing == "leaky":
            raise ValueError(
                "Leaky routing needs all tokens, those that are not written "
                "yet too, so it cannot take them one by one. "
                "Received: routing='leaky'"
            )

    def _check_groups(self, channels):
        # Learned routes need no chunks.
        if not self._learned and channels % self.num_experts:
            raise ValueError(
                "In deterministic routing, the channels that the experts "
                "project must divide into `num_experts` equal chunks. They are "
                "half of the input's, so half of a block's `intermediate_dim`. "
                f"{what_would_fit(channels, self.num_experts)} Received: "
                f"channels={channels}, num_experts={self.num_experts}, that is "
                f"intermediate_dim={2 * channels}"
            )

    def get_config(self):
        config = super().get_config()
        for name in ("gate", "num_heads"):
            del config[name]
        config.update(
            {
                "num_experts": self.num_experts,
                "routing": self.routing,
                "prefix_fraction": self.prefix_fraction,
                "short_prompt": self.short_prompt,
                "balance_loss_weight": self.balance_loss_weight,
            }
        )
        return config


def what_would_fit(channels, num_experts):
    """The numbers next to these with which channels divide by experts."""
    fitting = [e for e in range(1, channels + 1) if channels % e == 0]
    fewer = [e for e in fitting if e < num_experts][-1:]
    more = [e for e in fitting if e > num_experts][:1]
    experts = " or ".join(map(str, fewer + more))
    chunk = channels // num_experts
    widths = [2 * num_experts * size for size in (chunk, chunk + 1) if size]
    return (
        f"Take `num_experts={experts}`, or "
        f"`intermediate_dim={' or '.join(map(str, widths))}`."
    )
