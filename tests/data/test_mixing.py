import numpy as np
import pytest
import scipy.stats

from mlp_mixers.data import Mixing
from mlp_mixers.data import one_hot
from mlp_mixers.data.mixing import draw_box


def rngs(count, seed=0):
    return [np.random.default_rng([seed, i]) for i in range(count)]


def batch(count, height=8, width=6):
    """Image i is all i; target i is the i-th unit vector."""
    images = np.arange(count, dtype="float32")[:, None, None, None]
    images = np.broadcast_to(images, (count, height, width, 3)).copy()
    return images, np.eye(count, dtype="float32")


def test_one_hot_rows():
    np.testing.assert_array_equal(one_hot([2, 0], 3), [[0, 0, 1], [1, 0, 0]])
    smooth = one_hot(np.array([1, 3]), 4, 0.1)
    assert smooth.dtype == np.float32
    np.testing.assert_allclose(
        smooth,
        [[0.025, 0.925, 0.025, 0.025], [0.025, 0.025, 0.025, 0.925]],
        atol=1e-7,
    )
    np.testing.assert_allclose(one_hot([0], 4, 1.0), [[0.25] * 4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 3], 3), "num_classes - 1 = 2. Received: 1 others, .* 3"),
        (([-1], 3), "them -1"),
        (([0.5], 3), "dtype=float64"),
        (([[0]], 3), r"labels.shape=\(1, 1\)"),
        (([0], 0), "num_classes=0"),
        (([0], 2, 1.5), "smoothing=1.5"),
    ],
)
def test_labels_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        one_hot(*arguments)


def test_mixup_mixes_with_the_next_image():
    images, targets = batch(50)
    mixed, mixed_targets = Mixing(cutmix_alpha=0)(images, targets, rngs(50))
    for i in range(50):
        other = (i + 1) % 50
        kept = mixed_targets[i, i]
        np.testing.assert_allclose(
            mixed[i], kept * i + (1 - kept) * other, rtol=1e-5, atol=1e-5
        )
        expected = np.zeros(50)
        expected[i], expected[other] = kept, 1 - kept
        np.testing.assert_allclose(mixed_targets[i], expected, atol=1e-6)
    assert mixed.dtype == mixed_targets.dtype == np.float32


def test_cutmix_targets_are_areas():
    images, targets = batch(200)
    mixed, mixed_targets = Mixing(mixup_alpha=0)(images, targets, rngs(200))
    for i in range(200):
        other = (i + 1) % 200
        own = (mixed[i] == i).all(-1)
        assert ((mixed[i] == other).all(-1) | own).all()
        assert mixed_targets[i, i] == pytest.approx(own.mean(), abs=1e-6)
        # What is covered is a rectangle.
        rows, columns = np.nonzero(~own)
        if len(rows):
            assert len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
    np.testing.assert_allclose(mixed_targets.sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.2, 0.8, 3.0])
def test_mixup_coefficients_are_beta(alpha):
    images, targets = batch(2000, 1, 1)
    mixing = Mixing(mixup_alpha=alpha, cutmix_alpha=0)
    kept = np.diag(mixing(images, targets, rngs(2000))[1])
    beta = scipy.stats.beta(alpha, alpha)
    assert scipy.stats.kstest(kept, beta.cdf).pvalue > 1e-3


def test_cutmix_boxes_are_placed_uniformly(rng):
    """A pixel is covered as often as the mean of all places says."""
    side, kept = 12, 0.75  # a box of 6 x 6 before it is cut off
    covered = np.zeros((side, side))
    for _ in range(4000):
        box, left = draw_box(side, side, kept, rng)
        one = np.zeros_like(covered)
        one[box] = 1
        assert left == pytest.approx(1 - one.mean())
        covered += one / 4000
    line = np.zeros(side)
    for centre in range(side):
        line[max(centre - 3, 0) : centre + 3] += 1 / side
    np.testing.assert_allclose(covered, np.outer(line, line), atol=0.03)


@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_the_largest_and_the_smallest_box(rng, kept):
    for _ in range(20):
        box, left = draw_box(5, 9, kept, rng)
        covered = np.zeros((5, 9))
        covered[box] = 1
        assert left == pytest.approx(1 - covered.mean())
        assert kept == 0 or left == 1


def test_how_often_is_mixed_and_switched():
    images, targets = batch(2000, 4, 4)
    mixing = Mixing(switch_rate=0.25, rate=0.6)
    mixed, mixed_targets = mixing(images, targets, rngs(2000))
    # Only mixup makes values that are no whole numbers.
    whole = (mixed == np.round(mixed)).all((1, 2, 3))
    mixup = int((~whole).sum())
    assert scipy.stats.binomtest(mixup, 2000, 0.6 * 0.75).pvalue > 1e-3
    left = (np.diag(mixed_targets) == 1).mean()
    # A cutmix box is empty if round(4 * sqrt(1 - kept)) is 0.
    empty = 0.6 * 0.25 * (1 / 8) ** 2
    assert left == pytest.approx(0.4 + empty, abs=0.04)


def test_draws_are_per_image_and_repeat():
    images, targets = batch(6)
    images[:] = np.random.default_rng(0).normal(size=images[:1].shape)
    images[3:] += 1  # 0-1 and 3-4 are equal pairs
    mixing = Mixing()
    first = mixing(images, targets, rngs(6))
    second = mixing(images, targets, rngs(6))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    weights = np.diag(first[1])
    assert len(set(weights)) == 6


def test_nothing_is_changed_in_place():
    images, targets = batch(5)
    before = images.copy(), targets.copy()
    Mixing()(images, targets, rngs(5))
    np.testing.assert_array_equal(images, before[0])
    np.testing.assert_array_equal(targets, before[1])


def test_a_batch_of_one_stays():
    images, targets = batch(1)
    images += 0.1
    mixed = Mixing()(images, targets, rngs(1))
    np.testing.assert_array_equal(mixed[0], images)
    np.testing.assert_array_equal(mixed[1], targets)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mixup_alpha": -1}, "mixup_alpha=-1"),
        ({"cutmix_alpha": "1"}, "cutmix_alpha='1'"),
        ({"mixup_alpha": 0, "cutmix_alpha": 0}, "must be above 0"),
        ({"switch_rate": 2}, "switch_rate=2"),
        ({"rate": None}, "rate=None"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mixing(**arguments)


def test_integers_cannot_be_mixed():
    images, targets = batch(2)
    with pytest.raises(ValueError, match="images.dtype=uint8"):
        Mixing()(images.astype("uint8"), targets, rngs(2))
    with pytest.raises(ValueError, match="targets.dtype=int"):
        Mixing()(images, targets.astype(int), rngs(2))
