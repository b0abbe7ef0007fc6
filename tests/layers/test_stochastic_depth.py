import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import StochasticDepth


def call(layer, x, training):
    return ops.convert_to_numpy(layer(x, training=training))


@pytest.mark.parametrize("shape", [(2000, 3), (2000, 4, 3), (2000, 2, 2, 3)])
def test_drops_whole_examples_and_keeps_the_mean(shape):
    y = call(StochasticDepth(0.3, seed=1), np.ones(shape, "float32"), True)
    per_example = y.reshape(len(y), -1)
    assert (per_example == per_example[:, :1]).all()
    values = np.unique(per_example)
    np.testing.assert_allclose(values, [0, 1 / 0.7], rtol=1e-6)
    # 2000 draws: the mean lies within 5 standard errors of 1.
    assert abs(per_example.mean() - 1) < 5 * np.sqrt(0.3 / 0.7 / 2000)


def test_is_the_identity_in_inference_and_at_rate_zero(rng):
    x = rng.normal(size=(5, 3)).astype("float32")
    np.testing.assert_array_equal(call(StochasticDepth(0.9), x, False), x)
    np.testing.assert_array_equal(call(StochasticDepth(0.0), x, True), x)


def test_draws_anew_and_repeats_with_the_seed():
    x = np.ones((64, 1), "float32")
    first, second = (StochasticDepth(0.5, seed=3) for _ in range(2))
    draws = [call(first, x, True) for _ in range(2)]
    assert (draws[0] != draws[1]).any()
    np.testing.assert_array_equal(call(second, x, True), draws[0])


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2])
def test_wrong_rate(rate):
    with pytest.raises(ValueError, match=f"Received: rate={rate}"):
        StochasticDepth(rate)
