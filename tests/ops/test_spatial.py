import numpy as np
import pytest
import scipy.linalg
from keras import ops

from mlp_mixers.ops import spatial
from tests import reference


@pytest.mark.parametrize(
    ("form", "heads"),
    [
        (spatial.spatial_product, 1),
        (spatial.spatial_product, 3),
        (spatial._folded_product, 1),
        (spatial._folded_product, 3),
        (spatial._batched_product, 1),
    ],
)
def test_product_is_the_formula(form, heads, rng):
    w = rng.normal(size=(heads, 5, 5)).astype("float32")
    v = rng.normal(size=(4, 5, 6)).astype("float32")
    result = form(ops.convert_to_tensor(w), ops.convert_to_tensor(v))
    np.testing.assert_allclose(
        ops.convert_to_numpy(result),
        reference.spatial_product(w, v),
        rtol=1e-5,
        atol=1e-6,
    )


def test_toeplitz_matrix_is_scipys(rng):
    values = rng.normal(size=(2, 9)).astype("float32")
    matrix = ops.convert_to_numpy(
        spatial.toeplitz_matrix(ops.convert_to_tensor(values))
    )
    for head in range(2):
        # First column downwards: j - i = 0, -1, …; first row: j - i = 0, 1, …
        column, row = values[head, 4::-1], values[head, 4:]
        np.testing.assert_array_equal(
            matrix[head], scipy.linalg.toeplitz(column, row)
        )


def test_toeplitz_matrix_of_one_token():
    matrix = spatial.toeplitz_matrix(ops.convert_to_tensor([[7.0]]))
    np.testing.assert_array_equal(ops.convert_to_numpy(matrix), [[[7.0]]])
