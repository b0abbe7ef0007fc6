import numpy as np
import pytest

from mlp_mixers.arguments import boolean
from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import pair
from mlp_mixers.arguments import positive_integer
from mlp_mixers.arguments import positive_number


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (boolean, [True, False, np.True_], ["no", None, 2]),
        (
            positive_number,
            [1e-5, 1, np.float32(2)],
            [0, -1, "1", True, None, float("inf")],
        ),
        (
            drop_rate,
            [0, 0.5, np.float32(0.9)],
            [1, -0.1, "0.1", None, float("nan")],
        ),
    ],
)
def test_other_checks(check, good, bad):
    for value in good:
        assert check(value, "n") == value
    for value in bad:
        with pytest.raises(ValueError, match=f"Received: n={value!r}"):
            check(value, "n")


def test_numbers_from_numpy_become_pythons():
    assert type(positive_integer(np.int64(3), "n")) is int
    assert [type(v) for v in pair(np.int32(3), "n")] == [int, int]
    assert pair([2, 3], "n") == (2, 3)


@pytest.mark.parametrize("value", [0, -1, 2.0, "3", True, None, (1,)])
def test_what_is_no_positive_integer(value):
    with pytest.raises(ValueError, match="`n` must be a positive integer. R"):
        positive_integer(value, "n")


@pytest.mark.parametrize("value", [0, 2.5, "ab", (1, 2, 3), (1, 0), None])
def test_what_is_no_pair(value):
    with pytest.raises(ValueError, match="`n` must be a positive integer or a"):
        pair(value, "n")


def test_none_where_it_is_allowed():
    assert positive_integer(None, "n", optional=True) is None
    with pytest.raises(ValueError, match="integer or `None`. Received: n=0"):
        positive_integer(0, "n", optional=True)
