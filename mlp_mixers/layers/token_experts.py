"""Token experts: the tMoE of sparse all-MLP, and of sparse Transformers.

Letters: b batch, n tokens, d channels, f `intermediate_dim`, E experts,
k choices of a token, C capacity.
"""

import math

import keras
from keras import initializers
from keras import ops

from mlp_mixers.arguments import positive_integer
from mlp_mixers.arguments import positive_number
from mlp_mixers.layers.get_router import get_router
from mlp_mixers.layers.router import check_routing
from mlp_mixers.layers.routing_record import RoutingRecord
from mlp_mixers.ops import check_padding_mask
from mlp_mixers.ops import zero_padding
from mlp_mixers.ops.dispatch import Blocks
from mlp_mixers.ops.dispatch import Slots
from mlp_mixers.ops.dispatch import capacity_of
from mlp_mixers.ops.dispatch import count_by_expert


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SparseTokenExperts(keras.layers.Layer):
    """Sends each token to one of E feed-forward networks, or to a few.

        y_t = Σ_k g_tk · E_{e_tk}(x_t)            e, g from the router
        E_e(x) = σ(x · W₁ᵉ + b₁ᵉ) · W₂ᵉ + b₂ᵉ     channels d -> f -> d

    There are E times the weights of one network and the work of k.

    **In training** an expert has C = ceil(capacity_factor · n · k / E) places
    in a group of n tokens (`router.group`). Tokens that come too late get
    zero, which in a block leaves them to the residual connection. A router
    that balances by itself has the places it needs.

    **In inference** no token is ever dropped, so that an output does not
    depend on who else is in the batch. So it is in training, with
    `capacity_factor=None`, at the price of up to 1.5 times the work.

    **Padding** takes no place and gets zero.

    Losses of the router are added in training only, and do not count in
    `evaluate`. With them, the load and what was dropped are recorded, see
    `RoutingRecord`, and shown by `mlp_mixers.training.RoutingMetrics`.

    Args:
        num_experts: Number of experts, E.
        intermediate_dim: Width inside an expert, f.
        router: `"base"`, `"switch"`, `"top_two"`, `"hash"`; a `Router`, whose
            configuration is taken; or that configuration.
        capacity_factor: 1 gives each expert a fair share of places, more
            leaves room for imbalance. `None` drops nothing.
        activation: σ. The default is the exact GELU.
        kernel_initializer: Of W₁ and W₂, for each expert by itself; Glorot
            uniform if `None`. Where the router is BASE's, W₂ starts at zero.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(b, n, d)`.
        token_ids: Integers of shape `(b, n)`, for a `HashRouter`.
        mask: Padding mask of shape `(b, n)`, true at real tokens.
        training: Whether to route and to drop as in training.

    Returns:
        Tensor of the shape of `x`, to be added to a residual stream.

    Raises:
        ValueError: If an argument is out of range, the input of another
            rank than 3, or what a router of your own returns no `Routing` of
            its tokens.

    Example:

    ```python
    experts = SparseTokenExperts(num_experts=8, intermediate_dim=512)
    y = experts(keras.random.normal((4, 128, 128)))  # (4, 128, 128)
    ```

    Reference:
        [Efficient Language Modeling with Sparse all-MLP](
        https://arxiv.org/abs/2203.06850), Sec. 3.2 (tMoE); capacity in
        [Switch Transformers](https://arxiv.org/abs/2101.03961), eq. 3.
    """

    def __init__(
        self,
        num_experts,
        intermediate_dim,
        router="base",
        capacity_factor=1.25,
        activation="gelu",
        kernel_initializer=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_experts = positive_integer(num_experts, "num_experts")
        self.intermediate_dim = positive_integer(
            intermediate_dim, "intermediate_dim"
        )
        self.capacity_factor = capacity_factor
        if capacity_factor == math.inf:
            raise ValueError(
                "For experts without a limit, pass `capacity_factor=None`: it "
                "drops nothing. Received: capacity_factor=inf"
            )
        if capacity_factor is not None:
            self.capacity_factor = positive_number(
                capacity_factor, "capacity_factor"
            )
        self.activation = keras.activations.get(activation)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.router = get_router(router, self.num_experts)
        self.supports_masking = True
        # What `mlp_mixers.analysis.expert_load` listens with.
        self.on_route = None

    def build(self, x_shape):
        if len(x_shape) != 3 or x_shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} expects inputs of shape "
                "`(batch, n, channels)` with a known number of channels. "
                f"Received: x.shape={x_shape}"
            )
        experts, d, f = self.num_experts, x_shape[-1], self.intermediate_dim
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d})
        self.router.build(x_shape)
        first = PerExpert(self.kernel_initializer or "glorot_uniform")
        last = self.router.expert_output_initializer or first
        add = self.add_weight
        self.intermediate_kernel = add(
            (experts, d, f), first, name="intermediate_kernel"
        )
        self.intermediate_bias = add(
            (experts, f), "zeros", name="intermediate_bias"
        )
        self.output_kernel = add((experts, f, d), last, name="output_kernel")
        self.output_bias = add((experts, d), "zeros", name="output_bias")
        self.routing_record = RoutingRecord(self, self.router.loss_weights)

    def call(self, x, token_ids=None, mask=None, training=False):
        check_padding_mask(mask, x.shape, type(self).__name__)
        x = zero_padding(ops.cast(x, self.compute_dtype), mask)
        routing = self._routing(x, token_ids, mask, training)
        ids = self._without_padding(routing.expert_ids, mask)  # (b, n, k)
        if self.on_route is not None:
            self.on_route(ids)
        if training and self.capacity_factor is not None:
            y, kept = self._with_places(x, ids)
        else:
            y, kept = self._with_blocks(x, ids), ids < self.num_experts
        if training:
            self._tell(routing, ids, kept)
        gates = ops.cast(routing.gates, y.dtype)[..., None]
        # `where`, not a product: padding may have any gate.
        y = ops.where(kept[..., None], y * gates, ops.zeros_like(y))
        return ops.sum(y, axis=2)

    def route(self, x, token_ids=None, mask=None):
        """Where tokens go in inference, for a look at the experts.

        Args:
            x: Tensor of shape `(b, n, d)`.
            token_ids: Integers of shape `(b, n)`, for a `HashRouter`.
            mask: Padding mask of shape `(b, n)`.

        Returns:
            int32 `(b, n, k)`; E, one more than the last, at padding.
        """
        x = zero_padding(ops.cast(x, self.compute_dtype), mask)
        routing = self._routing(x, token_ids, mask, training=False)
        return self._without_padding(routing.expert_ids, mask)

    def _routing(self, x, token_ids, mask, training):
        """What the router says, after a look at it."""
        routing = self.router(
            x, token_ids=token_ids, mask=mask, training=training
        )
        check_routing(routing, self.router, x, training)
        # The largest of scores is an int64 on some backends.
        ids = ops.cast(routing.expert_ids, "int32")
        return routing._replace(expert_ids=ids)

    def _without_padding(self, ids, mask):
        """Ids with "no expert" at padding."""
        if mask is None:
            return ids
        real = ops.cast(mask, "bool")[..., None]
        return ops.where(real, ids, self.num_experts)

    def _with_places(self, x, ids):
        """E_e(x) for who finds a place: (b, n, k, d), and who does."""
        batch, n, d = ops.shape(x)
        choices = ids.shape[-1]
        if self.router.group == "batch":
            x = ops.reshape(x, (1, -1, d))
            ids = ops.reshape(ids, (1, -1, choices))
        group, tokens, _ = ops.shape(ids)
        # First choices before second ones, each in the order of tokens.
        items = ops.reshape(ops.transpose(ids, (0, 2, 1)), (group, -1))
        factor = self.capacity_factor
        if self.router.balanced_in_training:
            factor = 1.0
        capacity = capacity_of(tokens * choices, self.num_experts, factor)
        slots = Slots(items, self.num_experts, capacity)
        y = slots.combine(self._experts(slots.dispatch(x, choices)))

        def by_token(z):
            """(g, k·t, ...) -> (b, n, k, ...)."""
            rest = tuple(z.shape[2:])
            z = ops.reshape(z, (group, choices, tokens, *rest))
            z = ops.swapaxes(z, 1, 2)
            return ops.reshape(z, (batch, n, choices, *rest))

        return by_token(y), by_token(slots.kept)

    def _with_blocks(self, x, ids):
        """E_e(x) for all: (b, n, k, d)."""
        batch, n, d = ops.shape(x)
        choices = ids.shape[-1]
        items = ops.reshape(ops.transpose(ids, (2, 0, 1)), (-1,))
        blocks = Blocks(items, self.num_experts)
        rows = blocks.dispatch(ops.reshape(x, (-1, d)), choices)
        y = blocks.combine(self._experts(rows, blocks.experts))
        y = ops.reshape(y, (choices, batch, n, d))
        return ops.transpose(y, (1, 2, 0, 3))

    def _experts(self, x, owners=None):
        """The networks: (groups, rows, d), a group for each of `owners`."""

        def own(weights):
            weights = ops.convert_to_tensor(weights)
            if owners is None:
                return weights
            return ops.take(weights, owners, axis=0)

        h = ops.matmul(x, own(self.intermediate_kernel))
        h = self.activation(h + own(self.intermediate_bias)[:, None])
        y = ops.matmul(h, own(self.output_kernel))
        return y + own(self.output_bias)[:, None]

    def _tell(self, routing, ids, kept):
        """The losses of a training step, and its metrics."""
        for name, value in routing.losses.items():
            weight = self.router.loss_weights.get(name, 1.0)
            if weight:
                self.add_loss(weight * value)
        counts = count_by_expert(ids, self.num_experts)
        places = ops.sum(ops.cast(kept, "int32"))
        self.routing_record.add(counts, places, routing.losses)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        config = super().get_config()
        first = self.kernel_initializer
        config.update(
            {
                "num_experts": self.num_experts,
                "intermediate_dim": self.intermediate_dim,
                "router": keras.saving.serialize_keras_object(self.router),
                "capacity_factor": self.capacity_factor,
                "activation": keras.activations.serialize(self.activation),
                "kernel_initializer": first and initializers.serialize(first),
            }
        )
        return config


@keras.saving.register_keras_serializable(package="mlp_mixers")
class PerExpert(initializers.Initializer):
    """Draws the weights of every expert as if it stood alone.

    Keras takes the first axis of `(E, d, f)` for the size of a filter, and
    would draw all weights smaller by √E.

    Args:
        initializer: Of the weights of one expert, `(d, f)`.
    """

    def __init__(self, initializer):
        self.initializer = initializers.get(initializer)

    def __call__(self, shape, dtype=None):
        # A clone for each: one initializer repeats its draws.
        return ops.stack(
            [
                self._fresh(expert)(shape[1:], dtype=dtype)
                for expert in range(shape[0])
            ]
        )

    def _fresh(self, expert):
        seed = getattr(self.initializer, "seed", None)
        if not isinstance(seed, int):
            return self.initializer
        config = {**self.initializer.get_config(), "seed": seed + expert}
        return type(self.initializer).from_config(config)

    def get_config(self):
        return {"initializer": initializers.serialize(self.initializer)}
