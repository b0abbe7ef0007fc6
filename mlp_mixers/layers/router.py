"""What all routers share: the contract, and the losses of those that learn.

Letters: b batch, n tokens, d channels, E experts, k choices of a token.
"""

import typing

import keras
from keras import ops

from mlp_mixers.arguments import not_negative
from mlp_mixers.arguments import positive_integer
from mlp_mixers.ops.dispatch import count_by_expert

GROUPS = ("sequence", "batch")


class Routing(typing.NamedTuple):
    """Where tokens go.

    Attributes:
        expert_ids: int32 `(b, n, k)` of experts 0 to E - 1, the first choice
            first. An id of E stands for no expert.
        gates: float32 `(b, n, k)`: what multiplies an expert's output.
        losses: Dictionary of scalars, by name; what trains the router beside
            the task. One for each of the router's `loss_weights`.
    """

    expert_ids: typing.Any
    gates: typing.Any
    losses: dict = {}


class Router(keras.layers.Layer):
    """Base of the routers: says which experts a token goes to.

    **A router of your own** derives from this class, has
    `call(x, token_ids=None, mask=None, training=False)` and returns a
    `Routing`; weights are made in `build(x_shape)`, and `get_config` returns
    its own arguments too. It is passed as an instance, whose configuration is
    the pattern for the router of each layer; `docs/sparse.md` has a whole
    one. Padded tokens it may route as it likes: the experts leave them out.
    It declares four things:

    - `num_choices`: experts of a token, k;
    - `causal_in_training`, `causal_in_inference`: whether later tokens have
      no influence on where a token goes, nor on whether it finds a place;
      `mlp_mixers.analysis.leaks_future` measures it;
    - `balanced_in_training`: whether no expert ever gets more than a fair
      share, rounded up, so that no place is missing in training.

    Its mathematics are in float32 whatever the model's policy: half precision
    ties logits, and ties change routes.

    Args:
        num_experts: Number of experts, E. The layer of the experts fills it
            in where it is `None`.
        group: Among which tokens experts have their places in training:
            those of a `"sequence"`, so that examples do not depend on each
            other, or of the whole `"batch"`.
        loss_weights: Dictionary of the weights of its losses, by name.
        **kwargs: `name`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(b, n, d)`: what the experts see.
        token_ids: Integers of shape `(b, n)`.
        mask: Padding mask of shape `(b, n)`, true at real tokens.
        training: Whether the routing is that of training.

    Returns:
        A `Routing`.

    Raises:
        ValueError: If an argument is out of range.
    """

    num_choices = 1
    causal_in_training = True
    causal_in_inference = True
    balanced_in_training = False
    # How experts' last weights start, if the router asks for it.
    expert_output_initializer = None

    def __init__(
        self, num_experts=None, group="sequence", loss_weights=None, **kwargs
    ):
        kwargs.setdefault("dtype", "float32")
        super().__init__(**kwargs)
        if self.compute_dtype not in ("float32", "float64"):
            raise ValueError(
                "A router computes in float32: leave `dtype` alone. "
                f"Received: dtype={kwargs['dtype']!r}"
            )
        self.num_experts = positive_integer(
            num_experts, "num_experts", optional=True
        )
        if group not in GROUPS:
            raise ValueError(
                f"`group` must be one of {GROUPS}. Received: group={group!r}"
            )
        self.group = group
        self.supports_masking = True
        self.loss_weights = {
            name: not_negative(weight, f"{name}_weight")
            for name, weight in (loss_weights or {}).items()
        }

    def call(self, x, token_ids=None, mask=None, training=False):
        """Says where tokens go; each router has its own.

        Args:
            x: Tensor of shape `(b, n, d)`, zero at padding.
            token_ids: Integers of shape `(b, n)`, or `None`.
            mask: Padding mask of shape `(b, n)`, or `None`.
            training: Whether the routing is that of training.

        Returns:
            A `Routing`, with `expert_ids` and `gates` of shape `(b, n, k)`.
        """
        raise ValueError(says_nothing(type(self)))

    def compute_mask(self, *arguments, **masks):
        return None  # masks are explicit

    def compute_output_spec(self, x, token_ids=None, mask=None, training=False):
        shape = (*x.shape[:2], self.num_choices)
        scalar = keras.KerasTensor((), "float32")
        return Routing(
            keras.KerasTensor(shape, "int32"),
            keras.KerasTensor(shape, "float32"),
            {name: scalar for name in self.loss_weights},
        )

    def get_config(self):
        config = super().get_config()
        config.update({"num_experts": self.num_experts, "group": self.group})
        return config


def says_nothing(cls):
    """What to tell of a router class without a `call`."""
    return (
        "A router has a method `call(self, x, token_ids=None, mask=None, "
        "training=False)` that returns a `mlp_mixers.layers.Routing`. "
        f"Received: {cls.__name__} without `call`"
    )


def check_routing(routing, router, x, training):
    """Raises a ValueError for what a router of one's own may get wrong.

    Args:
        routing: What its `call` has returned.
        router: The router.
        x: What it was called with, `(b, n, d)`.
        training: Whether it was called as in training.
    """
    name, k = type(router).__name__, router.num_choices
    if not isinstance(routing, Routing):
        raise ValueError(
            f"`{name}.call` must return a `mlp_mixers.layers.Routing("
            f"expert_ids, gates)`. Received: {_described(routing)}"
        )
    expected = (*x.shape[:2], k)
    for part in ("expert_ids", "gates"):
        value = getattr(routing, part)
        shape = getattr(value, "shape", None)
        if shape is None or not _agree(tuple(shape), expected):
            raise ValueError(
                f"`{part}` of `{name}`'s Routing must be a tensor of shape "
                f"(batch, n, num_choices), here {expected}: one for each token "
                f"and choice, of which the router declares {k} "
                f"(`num_choices`). Received: {_described(value)}"
            )
    dtype = keras.backend.standardize_dtype(routing.expert_ids.dtype)
    if not dtype.startswith(("int", "uint")):
        raise ValueError(
            f"`expert_ids` of `{name}`'s Routing must be integers, the numbers "
            f"of experts: `ops.cast(ids, 'int32')`. Received: dtype={dtype}"
        )
    missing = [n for n in router.loss_weights if n not in routing.losses]
    if training and missing:
        raise ValueError(
            f"`{name}` has weights for losses, `loss_weights`, so its Routing "
            "holds each of them by name in training. Received: no "
            f"{', '.join(map(repr, missing))} in losses="
            f"{sorted(routing.losses)}"
        )


def _described(value):
    """A tensor by its shape, anything else by its type."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"a {type(value).__name__}"
    return f"a {type(value).__name__} of shape {tuple(shape)}"


def _agree(shape, expected):
    """Whether two shapes may be the same; what is not known agrees."""
    return len(shape) == len(expected) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int))
        for a, b in zip(shape, expected)
    )


class LearnedRouter(Router):
    """Base of the routers with logits x · W_r and a softmax.

        p(x) = softmax(x · W_r)

    Two losses keep it healthy, over the real tokens of a step:

        balance  L = E · Σ_e f_e · P_e      f_e share of tokens whose first
                                            choice is e, P_e mean of p_e
        z        L = mean(logsumexp(x · W_r)²)

    The first is 1 if all experts are equally liked, and near E if all tokens
    go to one; gradients come through P. The second keeps logits small.

    Args:
        num_experts: See `Router`.
        group: See `Router`.
        jitter: In training, the router's input is multiplied by uniform
            numbers in [1 - jitter, 1 + jitter].
        balance_loss_weight: Weight of the balance loss.
        z_loss_weight: Weight of the z loss. The logits are those with jitter.
        kernel_initializer: Of W_r. The default is Switch's: truncated normal
            with variance 0.1 / d.
        seed: Of the jitter.
        **kwargs: See `Router`.

    Reference:
        [Switch Transformers](https://arxiv.org/abs/2101.03961), Sec. 2.2 and
        eq. 4-6; z loss: [ST-MoE](https://arxiv.org/abs/2202.08906), eq. 5.
    """

    def __init__(
        self,
        num_experts=None,
        group="sequence",
        jitter=0.0,
        balance_loss_weight=0.01,
        z_loss_weight=0.0,
        kernel_initializer=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(
            num_experts,
            group,
            {
                "balance_loss": balance_loss_weight,
                "z_loss": z_loss_weight,
            },
            **kwargs,
        )
        self.jitter = not_negative(jitter, "jitter")
        if self.jitter >= 1:
            raise ValueError(
                f"`jitter` must lie in [0, 1). Received: jitter={jitter}"
            )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, x_shape):
        first = self.kernel_initializer or keras.initializers.VarianceScaling(
            0.1, "fan_in", "truncated_normal"
        )
        self.kernel = self.add_weight(
            name="kernel",
            shape=(x_shape[-1], self.num_experts),
            initializer=first,
        )

    def logits(self, x, training):
        """x · W_r of shape (b, n, E), with jitter in training."""
        if training and self.jitter:
            noise = keras.random.uniform(
                ops.shape(x),
                1 - self.jitter,
                1 + self.jitter,
                dtype=x.dtype,
                seed=self.seed_generator,
            )
            x = x * noise
        return ops.matmul(x, self.kernel)

    def losses_of(self, logits, probabilities, first_choice, mask):
        """The losses of a step, as in `Routing`."""
        experts = self.num_experts
        if mask is not None:
            real = ops.cast(mask, "bool")
            first_choice = ops.where(real, first_choice, experts)
        chosen = ops.cast(count_by_expert(first_choice, experts), "float32")
        f = chosen / ops.maximum(ops.sum(chosen), 1.0)  # (E,)
        p = masked_mean(probabilities, mask)
        z = ops.square(ops.logsumexp(logits, axis=-1, keepdims=True))
        return {
            "balance_loss": experts * ops.sum(f * p),
            "z_loss": masked_mean(z, mask)[0],
        }

    def get_config(self):
        config = super().get_config()
        first = self.kernel_initializer
        config.update(
            {
                "jitter": self.jitter,
                "balance_loss_weight": self.loss_weights["balance_loss"],
                "z_loss_weight": self.loss_weights["z_loss"],
                "kernel_initializer": first
                and keras.initializers.serialize(first),
                "seed": self.seed,
            }
        )
        return config


def masked_mean(x, mask):
    """Mean over the real tokens of a batch: (b, n, c) -> (c,)."""
    if mask is None:
        return ops.mean(x, axis=(0, 1))
    real = ops.cast(mask, "bool")[..., None]
    total = ops.sum(ops.where(real, x, ops.zeros_like(x)), axis=(0, 1))
    count = ops.sum(ops.cast(real, "float32"))
    return total / ops.maximum(count, 1.0)
