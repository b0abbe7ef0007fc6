import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import Affine
from mlp_mixers.layers import LayerScale
from mlp_mixers.training import AdamW
from tests.cases import randomize


@pytest.fixture
def x(rng):
    return rng.normal(size=(3, 6, 8)).astype("float32")


def test_affine_starts_as_the_identity(x):
    np.testing.assert_array_equal(ops.convert_to_numpy(Affine()(x)), x)


def test_affine_is_the_formula(x, rng):
    layer = Affine()
    layer.build(x.shape)
    randomize(layer, rng)
    alpha, beta = layer.get_weights()
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(x)), alpha * x + beta, rtol=1e-5, atol=1e-6
    )


def test_layer_scale_is_the_formula(x, rng):
    np.testing.assert_allclose(
        ops.convert_to_numpy(LayerScale(0.25)(x)), x / 4, rtol=1e-6
    )
    layer = LayerScale()
    layer.build(x.shape)
    np.testing.assert_allclose(layer.get_weights(), [np.full(8, 1e-4)])
    randomize(layer, rng)
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(x)), layer.get_weights()[0] * x, rtol=1e-5
    )


def test_images_and_integers_are_taken():
    x = np.arange(48).reshape(1, 2, 3, 8)
    np.testing.assert_array_equal(ops.convert_to_numpy(Affine()(x)), x)
    np.testing.assert_array_equal(ops.convert_to_numpy(LayerScale(2)(x)), 2 * x)


@pytest.mark.parametrize("layer", [Affine, LayerScale])
def test_weight_decay_spares_them(layer):
    """A step of AdamW without gradient shrinks a kernel beside them."""
    layer, dense = layer(), keras.layers.Dense(8, use_bias=False)
    variables = []
    for part in (layer, dense):
        part.build((None, 8))
        variables += part.trainable_variables
    before = [ops.convert_to_numpy(v).copy() for v in variables]
    optimizer = AdamW(0.1, weight_decay=0.5)
    optimizer.apply([ops.zeros(v.shape) for v in variables], variables)
    *after, kernel = [ops.convert_to_numpy(v) for v in variables]
    np.testing.assert_allclose(kernel, before.pop() * 0.95, rtol=1e-5)
    for old, new in zip(before, after):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("layer", [Affine, LayerScale])
def test_wrong_shapes(layer):
    with pytest.raises(ValueError, match="known width. Received: x.shape="):
        layer().build((None, 6, None))
    layer = layer()
    layer.build((None, 6, 8))
    with pytest.raises(ValueError, match="incompatible"):
        layer(np.zeros((1, 6, 1), "float32"))


@pytest.mark.parametrize("init", [0, -1.0, None, "ones"])
def test_wrong_scale(init):
    with pytest.raises(ValueError, match=f"Received: init={init!r}"):
        LayerScale(init)
