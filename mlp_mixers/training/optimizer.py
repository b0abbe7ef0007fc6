"""AdamW as the papers use it, and their learning-rate schedule."""

import keras

# Names of variables that the papers' recipes do not decay.
BIASES_AND_NORMS = ("bias", "gamma", "beta")


@keras.saving.register_keras_serializable(package="mlp_mixers")
class AdamW(keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` that remembers what it does not decay.

    Keras can exclude variables from weight decay too, but forgets it when the
    model is saved; a model trained further would decay them then.

    Args:
        *args: See `keras.optimizers.AdamW`.
        not_decayed: Patterns; a variable whose name contains one of them is
            spared. The default spares biases and normalisations.
        **kwargs: See `keras.optimizers.AdamW`.
    """

    def __init__(self, *args, not_decayed=BIASES_AND_NORMS, **kwargs):
        super().__init__(*args, **kwargs)
        if isinstance(not_decayed, str):  # one pattern, not its letters
            not_decayed = (not_decayed,)
        self.not_decayed = tuple(not_decayed or ())
        self.exclude_from_weight_decay(var_names=list(self.not_decayed))

    def get_config(self):
        config = super().get_config()
        config["not_decayed"] = self.not_decayed
        return config


def warmup_cosine(peak, total_steps, warmup_steps=0):
    """Linear warm-up from 0 to `peak`, then a cosine to 0.

    Args:
        peak: Highest learning rate.
        total_steps: Optimiser steps of the whole training.
        warmup_steps: Steps of it that warm up.

    Returns:
        A `keras.optimizers.schedules.LearningRateSchedule`.

    Raises:
        ValueError: If the warm-up does not end before the training.
    """
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            "The warm-up must be shorter than the training. "
            f"Received: warmup_steps={warmup_steps}, "
            f"total_steps={total_steps}"
        )
    if warmup_steps == 0:
        return keras.optimizers.schedules.CosineDecay(peak, total_steps)
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps=total_steps - warmup_steps,
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )
