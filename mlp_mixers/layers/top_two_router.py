"""GShard: every token to two experts."""

import keras
from keras import ops

from mlp_mixers.layers.router import LearnedRouter
from mlp_mixers.layers.router import Routing
from mlp_mixers.ops.gather import take_along_last

SECOND_CHOICES = ("sampling", "random", "all")


@keras.saving.register_keras_serializable(package="mlp_mixers")
class TopTwoRouter(LearnedRouter):
    """Sends every token to its two likeliest experts, as GShard does.

        p(x) = softmax(x · W_r),   g₁, g₂ the two largest
        y = (g₁ · E₁(x) + g₂ · E₂(x)) / (g₁ + g₂)

    All first choices have their places before any second choice, those of
    later tokens too: **not causal in training** where places are short.

    Args:
        num_experts: Number of experts, E; two at least.
        group: See `Router`.
        second_choice: How the second expert is chosen in training:

            - `"sampling"`: drawn from what p leaves without the first;
            - `"random"`: the second likeliest, kept with probability 2·g₂
              of the normalised g₂ (the paper's Algorithm 1);
            - `"all"`: the second likeliest.

            In inference it is the second likeliest always.
        jitter: See `LearnedRouter`.
        balance_loss_weight: See `LearnedRouter`. The paper's loss is smaller
            by E², and so is its weight's effect.
        z_loss_weight: See `LearnedRouter`.
        kernel_initializer: See `LearnedRouter`.
        seed: Of all draws.
        **kwargs: See `Router`.

    Raises:
        ValueError: If there are fewer than two experts.

    Reference:
        [GShard](https://arxiv.org/abs/2006.16668), Sec. 2.2, Algorithm 1.
    """

    num_choices = 2
    causal_in_training = False

    def __init__(
        self,
        num_experts=None,
        group="sequence",
        second_choice="sampling",
        **kwargs,
    ):
        super().__init__(num_experts, group, **kwargs)
        if second_choice not in SECOND_CHOICES:
            raise ValueError(
                f"`second_choice` must be one of {SECOND_CHOICES}. "
                f"Received: second_choice={second_choice!r}"
            )
        self.second_choice = second_choice

    def build(self, x_shape):
        if self.num_experts < 2:
            raise ValueError(
                "A token goes to two experts, so there must be two. "
                f"Received: num_experts={self.num_experts}"
            )
        super().build(x_shape)

    def call(self, x, token_ids=None, mask=None, training=False):
        logits = self.logits(x, training)
        p = ops.softmax(logits, axis=-1)
        first = ops.cast(ops.argmax(p, axis=-1), "int32")  # (b, n)
        others = ops.where(
            first[..., None] == ops.arange(self.num_experts, dtype="int32"),
            -1e30,
            logits,
        )
        if training and self.second_choice == "sampling":
            # The largest of logits with Gumbel noise is a draw from softmax.
            u = self._uniform(ops.shape(others))
            others = others - ops.log(-ops.log(u))
        second = ops.cast(ops.argmax(others, axis=-1), "int32")
        ids = ops.stack([first, second], axis=-1)  # (b, n, 2)
        gates = take_along_last(p, ids)
        gates = gates / ops.sum(gates, axis=-1, keepdims=True)
        if training and self.second_choice == "random":
            kept = self._uniform(ops.shape(second)) < 2 * gates[..., 1]
            second = ops.where(kept, second, self.num_experts)
            ids = ops.stack([first, second], axis=-1)
        return Routing(ids, gates, self.losses_of(logits, p, first, mask))

    def _uniform(self, shape):
        """Numbers in (0, 1), without the ends."""
        return keras.random.uniform(
            shape, 1e-7, 1 - 1e-7, dtype="float32", seed=self.seed_generator
        )

    def get_config(self):
        config = super().get_config()
        config["second_choice"] = self.second_choice
        return config
