"""Switch: every token to its likeliest expert."""

import keras
from keras import ops

from mlp_mixers.layers.router import LearnedRouter
from mlp_mixers.layers.router import Routing
from mlp_mixers.ops.gather import take_along_last


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SwitchRouter(LearnedRouter):
    """Sends every token to its likeliest expert.

        p(x) = softmax(x · W_r),   e = argmax p(x),   y = p_e(x) · E_e(x)

    Tokens queue for places in their order, so a token's place depends on
    earlier ones only: causal in training, if groups are sequences.

    Args:
        num_experts: Number of experts, E.
        group: See `Router`.
        jitter: See `LearnedRouter`; the paper uses 0.01.
        balance_loss_weight: See `LearnedRouter`; the paper's is 0.01.
        z_loss_weight: See `LearnedRouter`; ST-MoE uses 0.001.
        kernel_initializer: See `LearnedRouter`.
        seed: Of the jitter.
        **kwargs: See `Router`.

    Reference:
        [Switch Transformers](https://arxiv.org/abs/2101.03961), Sec. 2.1.
    """

    def call(self, x, token_ids=None, mask=None, training=False):
        logits = self.logits(x, training)
        p = ops.softmax(logits, axis=-1)
        best = ops.cast(ops.argmax(p, axis=-1), "int32")  # (b, n)
        return Routing(
            best[..., None],
            take_along_last(p, best[..., None]),
            self.losses_of(logits, p, best, mask),
        )
