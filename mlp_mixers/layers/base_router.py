"""BASE: a balanced assignment in training, the best expert in inference."""

import keras
from keras import ops

from mlp_mixers.layers.router import Router
from mlp_mixers.layers.router import Routing
from mlp_mixers.ops.assignment import balanced_assignment
from mlp_mixers.ops.gather import take_along_last


@keras.saving.register_keras_serializable(package="mlp_mixers")
class BaseRouter(Router):
    """Gives all experts equally many tokens in training.

        maximise  Σ_t x_t · w_{a(t)}    with every expert used equally often
        y = σ(x · w_a) · E_a(x)         w_e an expert's embedding

    No loss is needed. In inference a token goes to the expert it likes best.
    The assignment itself has no gradient; embeddings learn through σ alone,
    and only once the experts give something back: their last weights start at
    zero, so that the layer starts as the identity.

    An assignment sees all tokens of a group at once: **not causal in
    training**. Sec. 3 of the paper lives with that.

    Args:
        num_experts: Number of experts, E.
        group: Among which tokens experts get equal shares; the paper's is the
            whole `"batch"`.
        kernel_initializer: Of the embeddings; orthogonal with gain 0.1 if
            `None`.
        **kwargs: See `Router`.

    Reference:
        [BASE Layers](https://arxiv.org/abs/2103.16716), Sec. 3.
    """

    causal_in_training = False
    balanced_in_training = True
    expert_output_initializer = "zeros"

    def __init__(
        self, num_experts=None, group="batch", kernel_initializer=None, **kwargs
    ):
        super().__init__(num_experts, group, **kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, x_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=(x_shape[-1], self.num_experts),
            initializer=self.kernel_initializer
            or keras.initializers.Orthogonal(0.1),
        )

    def call(self, x, token_ids=None, mask=None, training=False):
        scores = ops.matmul(x, self.kernel)  # (b, n, E)
        if training:
            ids = self._balanced(ops.stop_gradient(scores), mask)
        else:
            ids = ops.cast(ops.argmax(scores, axis=-1), "int32")
        # Padding has no expert; any number will do for its gate.
        at = ops.minimum(ids, self.num_experts - 1)[..., None]
        gates = ops.sigmoid(take_along_last(scores, at))
        return Routing(ids[..., None], gates)

    def _balanced(self, scores, mask):
        if self.group == "sequence":
            return balanced_assignment(scores, mask)
        batch, n, experts = ops.shape(scores)
        scores = ops.reshape(scores, (1, batch * n, experts))
        if mask is not None:
            mask = ops.reshape(mask, (1, batch * n))
        return ops.reshape(balanced_assignment(scores, mask), (batch, n))

    def get_config(self):
        config = super().get_config()
        first = self.kernel_initializer
        config["kernel_initializer"] = first and keras.initializers.serialize(
            first
        )
        return config
