import numpy as np
import pytest
from PIL import Image

from mlp_mixers.weights import resize_spatial_weights
from mlp_mixers.weights.resize import interpolation_matrix

GRIDS = [((4, 4), (8, 8)), ((8, 8), (4, 4)), ((4, 6), (7, 9)), ((7, 7), (5, 8))]


def pillow(field, new_grid):
    """Another library's bilinear resizing, with antialiasing."""
    image = Image.fromarray(field.astype("float32"), mode="F")
    return np.asarray(image.resize(new_grid[::-1], Image.Resampling.BILINEAR))


def smooth_field(grid):
    """A slow wave over the unit square, at the centres of patches."""
    y, x = ((np.arange(n) + 0.5) / n for n in grid)
    return np.sin(2 * y[:, None] + 1) + np.cos(3 * x[None, :] - y[:, None])


def smooth_weights(grid):
    """Every token gathers from a disc around itself."""
    y, x = np.meshgrid(*((np.arange(n) + 0.5) / n for n in grid), indexing="ij")
    places = np.stack([y.ravel(), x.ravel()], -1)
    distance = ((places[:, None] - places[None]) ** 2).sum(-1)
    return np.exp(-distance / 0.1)


@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_interpolation_is_pillows(old, new, rng):
    field = rng.normal(size=old)
    ours = interpolation_matrix(old, new) @ field.ravel()
    np.testing.assert_allclose(
        ours.reshape(new), pillow(field, new), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_sums_over_tokens_stay(old, new, rng):
    """A row of W' sums to what the interpolated rows of W sum to."""
    n = old[0] * old[1]
    w = rng.normal(size=(2, n, n))
    sums = resize_spatial_weights(w, old, new).sum(-1)
    expected = [pillow(row.reshape(old), new).ravel() for row in w.sum(-1)]
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("old", "new"), [((4, 4), (8, 8)), ((3, 5), (9, 10))])
def test_a_whole_multiple_is_interpolation_times_old_over_new(old, new, rng):
    n_old, n_new = (g[0] * g[1] for g in (old, new))
    w = rng.normal(size=(n_old, n_old))
    rows = np.stack([pillow(c.reshape(old), new).ravel() for c in w.T]).T
    both = np.stack([pillow(r.reshape(old), new).ravel() for r in rows])
    np.testing.assert_allclose(
        resize_spatial_weights(w, old, new),
        both * n_old / n_new,
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_a_smooth_field_meets_the_same_function(old, new):
    """W'·up(v) ≈ up(W·v)."""
    w, v = smooth_weights(old), smooth_field(old)
    mixed = resize_spatial_weights(w, old, new) @ pillow(v, new).ravel()
    expected = pillow((w @ v.ravel()).reshape(old), new).ravel()
    error = np.linalg.norm(mixed - expected) / np.linalg.norm(expected)
    assert error < 0.1


def test_biases_are_interpolated_and_not_scaled(rng):
    bias = rng.normal(size=(1, 16))
    resized = resize_spatial_weights(
        bias, (4, 4), (6, 6), output_axis=-1, input_axis=None
    )
    np.testing.assert_allclose(
        resized[0].reshape(6, 6),
        pillow(bias.reshape(4, 4), (6, 6)),
        rtol=1e-5,
        atol=1e-6,
    )
    ones = resize_spatial_weights(np.ones(16), (4, 4), (9, 2), -1, None)
    np.testing.assert_allclose(ones, np.ones(18))


def test_the_same_grid_changes_nothing(rng):
    w = rng.normal(size=(12, 12))
    np.testing.assert_allclose(
        resize_spatial_weights(w, (3, 4), (3, 4)), w, rtol=1e-12
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ((3, 3), (4, 4), "must hold the 16 tokens"),
        ((4, 0), (4, 4), "old_grid="),
        ((4, 4), 8, "new_grid=8"),
        ((4, 4), (float("inf"), 2), "new_grid="),
    ],
)
def test_wrong_grids(old, new, message):
    with pytest.raises(ValueError, match=message):
        resize_spatial_weights(np.zeros((16, 16)), old, new)
