import math

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.training import AdamW
from mlp_mixers.training import warmup_cosine
from tests.cases import gmlp_nano


def test_decays_matrices_and_spares_biases_and_norms():
    """With zero gradients, a step multiplies by 1 - lr · decay or by 1."""
    model = gmlp_nano(attention_dim=4)
    for weight in model.weights:
        weight.assign(np.ones(weight.shape))
    optimizer = AdamW(0.1, weight_decay=0.5)
    optimizer.apply(
        [ops.zeros(w.shape) for w in model.weights], model.trainable_weights
    )
    for weight in model.weights:
        expected = 0.95 if len(weight.shape) > 1 else 1.0
        if weight.name == "spatial_bias":  # (heads, n), but a bias
            expected = 1.0
        value = ops.convert_to_numpy(weight)
        np.testing.assert_allclose(value, expected, rtol=1e-6), weight.path


@pytest.mark.parametrize("more", [{}, {"amsgrad": True}])
def test_updates_as_keras_does(more, rng):
    """Five steps with a schedule, clipping, decay and moving averages."""
    arguments = {
        "learning_rate": warmup_cosine(0.1, total_steps=5, warmup_steps=2),
        "weight_decay": 0.1,
        "global_clipnorm": 1.0,
        "use_ema": True,
        **more,
    }
    start = rng.normal(size=(3, 4)).astype("float32")
    gradients = rng.normal(size=(5, 3, 4)).astype("float32")
    ends = []
    for optimizer in (
        AdamW(not_decayed=None, **arguments),
        keras.optimizers.AdamW(**arguments),
    ):
        variable = keras.Variable(start)
        for gradient in gradients:
            optimizer.apply([ops.convert_to_tensor(gradient)], [variable])
        state = [variable, *optimizer.variables]
        ends.append([ops.convert_to_numpy(v) for v in state])
    for ours, keras_s in zip(*ends):
        np.testing.assert_allclose(ours, keras_s, rtol=1e-6, atol=1e-7)


def test_accumulates_gradients_as_keras_does(rng):
    start = rng.normal(size=(3,)).astype("float32")
    gradients = rng.normal(size=(4, 3)).astype("float32")
    ends = []
    for cls in (AdamW, keras.optimizers.AdamW):
        optimizer = cls(0.1, gradient_accumulation_steps=2)
        variable = keras.Variable(start)
        for gradient in gradients:
            optimizer.apply([ops.convert_to_tensor(gradient)], [variable])
        ends.append(ops.convert_to_numpy(variable))
    np.testing.assert_allclose(*ends, rtol=1e-6)


def test_is_what_keras_makes_for_the_backend():
    """On PyTorch, the class that updates all variables at once."""
    assert isinstance(AdamW(0.1), type(keras.optimizers.AdamW(0.1)))


def test_remembers_what_it_spares():
    optimizer = AdamW(0.1, not_decayed=["bias"])
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is AdamW
    assert again.not_decayed == ("bias",)


def test_one_pattern_and_none():
    assert AdamW(0.1, not_decayed="bias").not_decayed == ("bias",)
    assert AdamW(0.1, not_decayed=None).not_decayed == ()


def test_warmup_cosine_is_its_formula():
    rate = warmup_cosine(0.2, total_steps=100, warmup_steps=20)
    for step in (0, 5, 20, 60, 100):
        if step < 20:
            expected = 0.2 * step / 20
        else:
            expected = 0.1 * (1 + math.cos(math.pi * (step - 20) / 80))
        assert float(rate(step)) == pytest.approx(expected, abs=1e-6)


def test_cosine_without_warmup():
    rate = warmup_cosine(0.2, total_steps=100)
    assert float(rate(0)) == pytest.approx(0.2)
    assert float(rate(100)) == pytest.approx(0, abs=1e-6)


def test_warmup_longer_than_training():
    with pytest.raises(ValueError, match="warmup_steps=10, total_steps=10"):
        warmup_cosine(0.1, total_steps=10, warmup_steps=10)
