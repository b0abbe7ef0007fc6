"""Metrics of language models."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="mlp_mixers")
class Perplexity(keras.metrics.Metric):
    """How many tokens a language model wavers between, on average.

        exp(Σ w · ce / Σ w)         over all tokens of all batches

    The cross-entropy of the tokens alone, without any other loss of the
    model. It is 1 for a model that is always right and V for one that has no
    idea. The weights `w` are the `sample_weight` (of a masked language model
    `mask_weights`): pass the metric in `weighted_metrics`.

    Args:
        name: Name of the metric.
        dtype: Of the sums.

    Call arguments (`update_state`):
        y_true: Token ids `(batch, p)`.
        y_pred: Logits `(batch, p, V)`.
        sample_weight: Weights `(batch, p)`, or `None` for 1.
    """

    def __init__(self, name="perplexity", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.cross_entropy = self.add_weight(
            name="cross_entropy", initializer="zeros"
        )
        self.weight = self.add_weight(name="weight", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_pred = ops.cast(y_pred, "float32")
        losses = keras.losses.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=True
        )
        weights = ops.ones_like(losses)
        if sample_weight is not None:
            weights = ops.cast(sample_weight, losses.dtype)
            weights = ops.broadcast_to(weights, ops.shape(losses))
        self.cross_entropy.assign_add(ops.sum(weights * losses))
        self.weight.assign_add(ops.sum(weights))

    def result(self):
        return ops.exp(self.cross_entropy / ops.maximum(self.weight, 1e-7))
