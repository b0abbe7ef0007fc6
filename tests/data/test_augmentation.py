import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
from PIL import Image

from mlp_mixers.data import Compose
from mlp_mixers.data import RandomErasing
from mlp_mixers.data import RandomFlip
from mlp_mixers.data import RandomResizedCrop
from mlp_mixers.data import RandomShift
from mlp_mixers.data import shift_images
from mlp_mixers.data.augmentation import draw_rectangle

ALL = [
    RandomShift(2),
    RandomFlip(),
    RandomResizedCrop(6),
    RandomErasing(rate=1.0),
    Compose([RandomFlip(), RandomResizedCrop((9, 5)), RandomShift(1)]),
]


def photo(rng, height=9, width=12, channels=3):
    return rng.integers(0, 256, (height, width, channels), np.uint8)


def test_shift_is_scipys(rng):
    images = rng.normal(size=(9, 5, 7, 2)).astype("float32")
    shifts = np.array([(d, r) for d in (-1, 0, 2) for r in (-2, 0, 1)])
    result = shift_images(images, shifts)
    for image, shift, moved in zip(images, shifts, result):
        np.testing.assert_array_equal(
            moved, scipy.ndimage.shift(image, (*shift, 0), order=0)
        )


def test_shift_by_nothing(rng):
    images = rng.normal(size=(2, 3, 3, 1))
    np.testing.assert_array_equal(
        shift_images(images, np.zeros((2, 2), int)), images
    )


def test_random_shift_reaches_every_place_equally(rng):
    image = np.zeros((5, 5, 1), np.uint8)
    image[2, 2] = 255
    shift = RandomShift(1)
    places = [np.argmax(shift(image, rng)) for _ in range(900)]
    expected = [5 * y + x for y in (1, 2, 3) for x in (1, 2, 3)]
    found, counts = np.unique(places, return_counts=True)
    np.testing.assert_array_equal(found, expected)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    np.testing.assert_array_equal(RandomShift(0)(image, rng), image)


@pytest.mark.parametrize("max_shift", [0, 1, 4, 9])
def test_random_shift_moves_as_shift_images(rng, max_shift):
    """Also where nothing of the image is left."""
    image = photo(rng, 4, 6)
    reach = range(-max_shift, max_shift + 1)
    possible = {
        shift_images(image[None], np.array([(down, right)]))[0].tobytes()
        for down in reach
        for right in reach
    }
    results = {RandomShift(max_shift)(image, rng).tobytes() for _ in range(400)}
    assert results <= possible
    assert max_shift > 1 or results == possible


def test_flip_mirrors_half_of_the_images(rng):
    image = photo(rng)
    mirrored = np.asarray(
        Image.fromarray(image).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    )
    flip = RandomFlip()
    results = [flip(image, rng) for _ in range(1000)]
    flipped = [np.array_equal(result, mirrored) for result in results]
    assert all(
        f or np.array_equal(result, image)
        for f, result in zip(flipped, results)
    )
    assert scipy.stats.binomtest(sum(flipped), 1000).pvalue > 1e-3
    np.testing.assert_array_equal(RandomFlip(1)(image, rng), mirrored)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
def test_crop_is_pillows(rng, interpolation):
    image = photo(rng, 40, 30)
    crop = RandomResizedCrop((8, 6), interpolation=interpolation)
    for seed in range(5):
        top, left, height, width = crop.draw(
            40, 30, np.random.default_rng(seed)
        )
        expected = (
            Image.fromarray(image)
            .crop((left, top, left + width, top + height))
            .resize((6, 8), Image.Resampling[interpolation.upper()])
        )
        np.testing.assert_array_equal(
            crop(image, np.random.default_rng(seed)), expected
        )


def test_area_and_ratio_of_crops(rng):
    """In an image so large that every draw fits, both are as asked for."""
    side, scale, ratio = 4000, (0.1, 0.4), (0.5, 2.0)
    crop = RandomResizedCrop(8, scale, ratio)
    boxes = np.array([crop.draw(side, side, rng) for _ in range(2000)])
    top, left, height, width = boxes.T
    area = height * width / side**2
    shape = np.log(width / height)
    uniform = scipy.stats.uniform(scale[0], scale[1] - scale[0])
    assert scipy.stats.kstest(area, uniform.cdf).pvalue > 1e-3
    log_uniform = scipy.stats.uniform(np.log(0.5), np.log(4))
    assert scipy.stats.kstest(shape, log_uniform.cdf).pvalue > 1e-3
    for start, length in ((top, height), (left, width)):
        share = start / (side - length)
        assert scipy.stats.kstest(share, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((100, 10), (43, 0, 13, 10)), ((10, 100), (0, 43, 10, 13))],
)
def test_crop_that_never_fits(rng, shape, expected):
    """Of a narrow image, the middle with the nearest ratio allowed."""
    crop = RandomResizedCrop(8, scale=(1.0, 1.0))
    assert crop.draw(*shape, rng) == expected


def test_crops_of_tiny_images(rng):
    for shape in [(1, 1, 3), (1, 7, 1), (5, 1, 3), (2, 2, 1)]:
        image = np.full(shape, 7, np.uint8)
        for _ in range(20):
            result = RandomResizedCrop(4)(image, rng)
            assert result.shape == (4, 4, shape[2])
            assert (result == 7).all()


def test_float_crops_stay_in_range(rng):
    image = rng.integers(0, 2, (20, 20, 3)).astype("float32")
    for _ in range(10):
        result = RandomResizedCrop(31)(image, rng)
        assert result.dtype == np.float32
        assert (result.min(), result.max()) == (0, 1)


def test_eight_bits_and_floats_are_cropped_alike(rng):
    image = photo(rng, 50, 50)
    crop = RandomResizedCrop(16)
    fine = crop((image / 255).astype("float32"), np.random.default_rng(0))
    coarse = crop(image, np.random.default_rng(0))
    # Pillow rounds after the rows and once more after the columns.
    np.testing.assert_allclose(fine * 255, coarse, atol=1.5)


def test_erasing_covers_one_rectangle(rng):
    image = np.full((40, 30, 3), 200, np.uint8)
    areas = []
    for _ in range(300):
        erased = RandomErasing(1.0, fill=0)(image, rng)
        rows, columns = np.nonzero((erased == 0).all(-1))
        covered = len(rows)
        sides = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert covered == sides[0] * sides[1]
        assert set(np.unique(erased)) == {0, 200}
        areas.append(covered / 1200)
    assert min(areas) > 0.01
    assert 0.25 < max(areas) < 0.36
    assert (image == 200).all()  # the original is left alone


def test_how_often_is_erased(rng):
    image = np.ones((20, 20, 1), "float32")
    erasing = RandomErasing(0.25, fill=0.5)
    changed = sum((erasing(image, rng) == 0.5).any() for _ in range(1000))
    assert scipy.stats.binomtest(changed, 1000, 0.25).pvalue > 1e-3
    assert RandomErasing(0.0)(image, rng) is image


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_noise_is_uniform(rng, kind):
    image = np.zeros((60, 60, 3), kind)
    erased = RandomErasing(1.0, area=(0.5, 0.5), ratio=(1, 1))(image, rng)
    values = erased[(erased != 0).any(-1)]
    assert len(values) == pytest.approx(1800, abs=60)
    top = 255 if kind == np.uint8 else 1
    assert values.mean() / top == pytest.approx(0.5, abs=0.02)
    assert values.std() / top == pytest.approx(np.sqrt(1 / 12), abs=0.02)


def test_rectangles_that_do_not_fit(rng):
    assert draw_rectangle(10, 10, (1, 1), (4, 4), rng) is None
    image = photo(rng)
    erasing = RandomErasing(1.0, area=(1, 1), ratio=(9, 9))
    assert erasing(image, rng) is image


@pytest.mark.parametrize("augmentation", ALL, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 3])
def test_kind_and_input_stay(rng, augmentation, kind, channels):
    image = photo(rng, channels=channels)
    if kind != np.uint8:
        image = (image / 255).astype(kind)
    before = image.copy()
    results = [augmentation(image, np.random.default_rng(s)) for s in range(9)]
    np.testing.assert_array_equal(image, before)
    assert len({result.tobytes() for result in results}) > 1
    for seed, result in enumerate(results):
        assert result.dtype == kind
        assert result.shape[-1] == channels
        again = augmentation(image, np.random.default_rng(seed))
        np.testing.assert_array_equal(again, result)


def test_compose_goes_from_left_to_right(rng):
    image = photo(rng)
    steps = [lambda image, rng: image // 2, lambda image, rng: image + 1]
    np.testing.assert_array_equal(Compose(steps)(image, rng), image // 2 + 1)
    np.testing.assert_array_equal(Compose([])(image, rng), image)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomShift(-1), "max_shift=-1"),
        (lambda: RandomShift(1.5), "max_shift=1.5"),
        (lambda: RandomShift(True), "max_shift=True"),
        (lambda: RandomFlip(1.1), "rate=1.1"),
        (lambda: RandomFlip("yes"), "rate='yes'"),
        (lambda: RandomResizedCrop(0), "size=0"),
        (lambda: RandomResizedCrop(8, (0, 1)), r"scale=\(0, 1\)"),
        (lambda: RandomResizedCrop(8, (0.5, 0.1)), r"scale=\(0.5, 0.1\)"),
        (lambda: RandomResizedCrop(8, (0.5, 2)), "high <= 1"),
        (lambda: RandomResizedCrop(8, ratio=(1,)), r"ratio=\(1,\)"),
        (lambda: RandomResizedCrop(8, ratio=(1, float("nan"))), "ratio="),
        (lambda: RandomResizedCrop(8, interpolation="x"), "interpolation='x'"),
        (lambda: RandomErasing(-0.1), "rate=-0.1"),
        (lambda: RandomErasing(fill="grey"), "fill='grey'"),
        (lambda: RandomErasing(area=0.1), "area=0.1"),
        (lambda: Compose([RandomFlip(), "flip"]), "'flip'"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("augmentation", ALL[:4])
@pytest.mark.parametrize(
    "image",
    [np.zeros((3, 3), np.uint8), np.zeros((3, 3, 1), int), [[[0]]], None],
)
def test_wrong_images(rng, augmentation, image):
    with pytest.raises(ValueError, match="An image must be an array"):
        augmentation(image, rng)


def test_two_channels_cannot_be_resized(rng):
    with pytest.raises(ValueError, match=r"\(3, 3, 2\)"):
        RandomResizedCrop(2)(np.zeros((3, 3, 2), np.uint8), rng)
