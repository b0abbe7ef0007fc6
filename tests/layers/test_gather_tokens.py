import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import GatherTokens


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_it_picks_rows(rng, dtype):
    x = rng.normal(size=(3, 5, 4)).astype("float32")
    positions = rng.integers(0, 5, (3, 7)).astype(dtype)
    y = ops.convert_to_numpy(GatherTokens()(x, positions))
    expected = np.stack([x[i][positions[i]] for i in range(3)])
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("shape", [(5,), (3, 5, 1)])
def test_other_ranks_are_refused(shape):
    with pytest.raises(ValueError, match="GatherTokens expects"):
        GatherTokens()(np.zeros((3, 5, 4)), np.zeros(shape, "int32"))
