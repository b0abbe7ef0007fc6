"""AdamW as the papers use it, and their learning-rate schedules."""

import keras
from keras import ops

# Of `keras.optimizers.AdamW` itself Keras makes what the backend has: on
# PyTorch a class that updates all variables in a few calls. Of a subclass it
# does not, so ours is a subclass of that class.
_KerasAdamW = type(keras.optimizers.AdamW.__new__(keras.optimizers.AdamW))

# Names of variables that the papers' recipes do not decay.
BIASES_AND_NORMS = ("bias", "gamma", "beta")


@keras.saving.register_keras_serializable(package="mlp_mixers")
class AdamW(_KerasAdamW):
    """`keras.optimizers.AdamW` that remembers what it does not decay.

    Keras can exclude variables from weight decay too, but forgets it when the
    model is saved; a model trained further would decay them then.

    The update is Keras's, to the last digit. The part that all variables share
    is computed once a step and not for each, which saves TensorFlow a quarter
    of the trace of an update (`docs/benchmarks.md`).

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
        self._step_size = None  # known only during a step

    def apply(self, grads, trainable_variables=None):
        try:
            super().apply(grads, trainable_variables)
        finally:
            self._step_size = None

    def update_step(self, gradient, variable, learning_rate):
        if self.amsgrad:
            return super().update_step(gradient, variable, learning_rate)
        if self._step_size is None:
            self._step_size = self._unbiased(learning_rate)
        step_size = ops.cast(self._step_size, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        self.assign_sub(variable, m * step_size / (ops.sqrt(v) + self.epsilon))

    def _unbiased(self, learning_rate):
        """Adam's step size at step t, α · √(1 - β₂ᵗ) / (1 - β₁ᵗ)."""
        t = ops.cast(self.iterations + 1, "float32")
        bias_1 = 1 - ops.power(self.beta_1, t)
        bias_2 = 1 - ops.power(self.beta_2, t)
        return ops.cast(learning_rate, "float32") * ops.sqrt(bias_2) / bias_1

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
    _check_warmup(total_steps, warmup_steps)
    if warmup_steps == 0:
        return keras.optimizers.schedules.CosineDecay(peak, total_steps)
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps=total_steps - warmup_steps,
        warmup_target=peak,
        warmup_steps=warmup_steps,
    )


@keras.saving.register_keras_serializable(package="mlp_mixers")
class WarmupLinear(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to `peak`, then a straight line to 0.

    The schedule of BERT and of the gMLP paper's language models (Tables 8
    and 9).

    Args:
        peak: Highest learning rate.
        total_steps: Optimiser steps of the whole training.
        warmup_steps: Steps of it that warm up.

    Raises:
        ValueError: If the warm-up does not end before the training.
    """

    def __init__(self, peak, total_steps, warmup_steps=0):
        super().__init__()
        _check_warmup(total_steps, warmup_steps)
        self.peak = peak
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        rising = step / max(self.warmup_steps, 1)
        left = self.total_steps - self.warmup_steps
        falling = (self.total_steps - step) / left
        share = ops.where(step < self.warmup_steps, rising, falling)
        return self.peak * ops.clip(share, 0.0, 1.0)

    def get_config(self):
        return {
            "peak": self.peak,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
        }


def _check_warmup(total_steps, warmup_steps):
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            "The warm-up must be shorter than the training. "
            f"Received: warmup_steps={warmup_steps}, "
            f"total_steps={total_steps}"
        )
