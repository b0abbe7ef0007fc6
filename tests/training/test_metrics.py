import keras
import numpy as np
import pytest

from mlp_mixers.training import Perplexity
from mlp_mixers.training import WarmupLinear


def test_perplexity_over_batches_is_that_of_all_tokens(rng):
    metric, losses = Perplexity(), []
    for batch in (3, 1):
        logits = rng.normal(size=(batch, 4, 7)).astype("float32")
        labels = rng.integers(0, 7, (batch, 4))
        weights = rng.integers(0, 2, (batch, 4)).astype("float32")
        metric.update_state(labels, logits, weights)
        shifted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        chosen = np.take_along_axis(shifted, labels[..., None], -1)[..., 0]
        losses += list(-chosen[weights == 1])
    assert float(metric.result()) == pytest.approx(
        np.exp(np.mean(losses)), rel=1e-5
    )
    metric.reset_state()
    assert float(metric.result()) == 1


def test_perplexity_of_no_idea_is_the_number_of_tokens():
    metric = Perplexity()
    metric.update_state(np.zeros((2, 3), int), np.zeros((2, 3, 50)))
    assert float(metric.result()) == pytest.approx(50, rel=1e-5)


def test_perplexity_in_half_precision(rng):
    """Sums of many small numbers, which bfloat16 could not add."""
    metric = Perplexity()
    logits = keras.ops.cast(np.zeros((1, 2000, 10)), "bfloat16")
    metric.update_state(np.zeros((1, 2000), int), logits)
    assert float(metric.result()) == pytest.approx(10, rel=1e-4)


def test_warmup_linear():
    rate = WarmupLinear(2.0, total_steps=10, warmup_steps=4)
    values = [float(rate(step)) for step in range(12)]
    rising, falling = [0, 0.5, 1, 1.5], [2, 5 / 3, 4 / 3, 1, 2 / 3, 1 / 3]
    np.testing.assert_allclose(values, [*rising, *falling, 0, 0], atol=1e-6)
    again = WarmupLinear.from_config(rate.get_config())
    assert float(again(5)) == values[5]
    assert float(WarmupLinear(1.0, 4)(0)) == 1


@pytest.mark.parametrize("warmup", [-1, 10, 11])
def test_warmup_must_end(warmup):
    with pytest.raises(ValueError, match=f"warmup_steps={warmup}"):
        WarmupLinear(1.0, total_steps=10, warmup_steps=warmup)
