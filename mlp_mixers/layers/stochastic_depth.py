"""Stochastic depth, also called drop path."""

import keras
from keras import ops

from mlp_mixers.arguments import drop_rate


@keras.saving.register_keras_serializable(package="mlp_mixers")
class StochasticDepth(keras.layers.Layer):
    """Drops a residual branch for some examples of a training batch.

        y = x · m / (1 - rate),    m ~ Bernoulli(1 - rate) per example

    Put it on the branch, before the addition. Each example loses the branch
    with probability `rate`; the others have it scaled up, so that the mean
    stays. In inference it passes `x` through.

    Args:
        rate: Probability of dropping, in [0, 1): one minus the *survival
            probability* of the paper's Table 1.
        seed: Integer for reproducible draws.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, ...)`.
        training: Whether to drop. Set by `fit` and `predict`.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: If `rate` is outside [0, 1).

    Reference:
        [Deep Networks with Stochastic Depth](https://arxiv.org/abs/1603.09382);
        used for the image models of
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 3.
    """

    def __init__(self, rate=0.0, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.rate = drop_rate(rate, "rate")
        self.seed = seed
        self.supports_masking = True
        self.seed_generator = (
            keras.random.SeedGenerator(seed) if rate > 0 else None
        )

    def build(self, x_shape):
        # Nothing to build; says so, for layers that build their children.
        self.built = True

    def call(self, x, training=False):
        x = ops.cast(x, self.compute_dtype)
        if not training or self.rate == 0:
            return x
        keep = 1 - self.rate
        # One draw an example, multiplied in: no branch, so it compiles.
        draws = keras.random.uniform(
            (ops.shape(x)[0],) + (1,) * (len(x.shape) - 1),
            dtype="float32",
            seed=self.seed_generator,
        )
        scale = ops.cast(draws < keep, "float32") / keep
        return x * ops.cast(scale, x.dtype)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        config = super().get_config()
        config.update({"rate": self.rate, "seed": self.seed})
        return config
