import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import SpatialProjection
from tests import reference
from tests.cases import randomize

N, C, BATCH = 6, 8, 3


@pytest.fixture
def x(rng):
    return rng.normal(size=(BATCH, N, C)).astype("float32")


def make(rng):
    layer = SpatialProjection()
    layer.build((None, N, C))
    return randomize(layer, rng)


def test_is_the_formula(x, rng):
    layer = make(rng)
    w, b = layer.get_weights()
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(x)),
        reference.spatial_product(w, x) + b[0][:, None],
        rtol=1e-4,
        atol=1e-5,
    )


def test_the_matrix_is_the_response_to_unit_tokens(rng):
    """Feeding the identity, token by token, reads out W column by column."""
    layer = make(rng)
    w, b = layer.get_weights()
    unit = np.zeros((N, N, C), "float32")  # example j: token j is one
    unit[range(N), range(N)] = 1
    response = ops.convert_to_numpy(layer(unit))[:, :, 0] - b[0]  # (j, i)
    np.testing.assert_allclose(
        response.T,
        ops.convert_to_numpy(layer.spatial_matrix())[0],
        rtol=1e-4,
        atol=1e-5,
    )


def test_starts_glorot_uniform_without_bias():
    layer = SpatialProjection()
    layer.build((None, 64, C))
    w, b = layer.get_weights()
    limit = np.sqrt(6 / (64 + 64))
    assert 0.99 * limit < abs(w).max() <= limit
    assert abs(w.std() - limit / np.sqrt(3)) < 0.01
    assert not b.any()


def test_initializers_are_taken():
    layer = SpatialProjection("zeros", bias_initializer="ones")
    x = np.ones((1, N, C), "float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(x)), x)


def test_integers_are_taken(rng):
    layer = make(rng)
    x = np.arange(N * C).reshape(1, N, C)
    np.testing.assert_allclose(
        ops.convert_to_numpy(layer(x)),
        ops.convert_to_numpy(layer(x.astype("float32"))),
    )


def test_unknown_length_and_wrong_rank():
    with pytest.raises(ValueError, match="known length and width. Received: x"):
        SpatialProjection().build((None, None, C))
    with pytest.raises(ValueError, match=r"`\(batch, n, channels\)`"):
        SpatialProjection().build((None, C))


def test_other_lengths_are_refused(rng):
    layer = make(rng)
    for n in (N - 1, N + 1):
        with pytest.raises(ValueError, match="incompatible"):
            layer(np.zeros((1, n, C), "float32"))
