import numpy as np
import pytest
from keras import ops

from mlp_mixers.ops import check_padding_mask
from mlp_mixers.ops import masked_softmax
from mlp_mixers.ops import zero_padding


def test_zero_padding_also_removes_nan_and_inf():
    x = np.array([[[1.0, 2.0], [np.nan, np.inf]]], "float32")
    result = zero_padding(ops.convert_to_tensor(x), np.array([[1, 0]]))
    np.testing.assert_array_equal(
        ops.convert_to_numpy(result), [[[1.0, 2.0], [0.0, 0.0]]]
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_masked_softmax_ignores_what_is_not_allowed(dtype):
    scores = ops.cast([[1.0, 2.0, 30000.0], [5.0, 1.0, 2.0]], dtype)
    allowed = np.array([[True, True, False], [False, False, False]])
    result = masked_softmax(scores, allowed)
    assert result.dtype == scores.dtype
    result = ops.convert_to_numpy(ops.cast(result, "float32"))
    e = np.exp([1.0, 2.0])
    expected = [[*(e / e.sum()), 0.0], [1 / 3, 1 / 3, 1 / 3]]
    np.testing.assert_allclose(result, expected, atol=5e-3)


@pytest.mark.parametrize("shape", [(2, 3, 1), (3,), (2, 4), (5, 3)])
def test_a_mask_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"padding mask of shape `\(batch, n"):
        check_padding_mask(np.ones(shape), (2, 3, 8), "Layer")
