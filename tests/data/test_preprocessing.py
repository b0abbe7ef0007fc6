import json

import numpy as np
import pytest
from PIL import Image

from mlp_mixers.data.image_files import read_image
from mlp_mixers.data.preprocessing import ImagePreprocessor
from mlp_mixers.data.preprocessing import change_channels
from mlp_mixers.data.preprocessing import covering_size
from mlp_mixers.data.preprocessing import crop_centre
from mlp_mixers.data.preprocessing import resize_image
from mlp_mixers.data.preprocessing import without_far_ends

KERNELS = {
    "bilinear": (1, lambda x: np.maximum(0, 1 - x)),
    # Keys 1981, with a = -1/2.
    "bicubic": (
        2,
        lambda x: np.where(
            x < 1,
            1.5 * x**3 - 2.5 * x**2 + 1,
            np.where(x < 2, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2, 0),
        ),
    ),
}


def resampling_matrix(old, new, interpolation):
    """How each new pixel is a weighted mean of old ones, in one direction.

    Where an image shrinks, the kernel is stretched over all old pixels that
    become one.
    """
    scale = old / new
    support, kernel = KERNELS[interpolation]
    centre = (np.arange(new)[:, None] + 0.5) * scale
    distance = np.abs(np.arange(old) + 0.5 - centre) / max(scale, 1)
    weights = np.where(distance < support, kernel(distance), 0)
    return weights / weights.sum(1, keepdims=True)


def resampled(image, size, interpolation):
    rows = resampling_matrix(image.shape[0], size[0], interpolation)
    columns = resampling_matrix(image.shape[1], size[1], interpolation)
    wide = np.einsum("jw,hwc->hjc", columns, image)
    if image.dtype == np.uint8:
        # Between the two directions, Pillow rounds and clips.
        wide = wide.round().clip(0, 255)
    result = np.einsum("ih,hjc->ijc", rows, wide)
    return result.clip(0, 255 if image.dtype == np.uint8 else 1)


@pytest.mark.parametrize("interpolation", KERNELS)
@pytest.mark.parametrize("size", [(7, 5), (33, 40), (20, 9)])
@pytest.mark.parametrize("channels", [1, 3])
def test_resizing_is_the_formula(interpolation, size, channels, rng):
    image = rng.random((20, 16, channels)).astype("float32")
    expected = resampled(image, size, interpolation)
    result = resize_image(image, size, interpolation)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=1e-5)

    image = rng.integers(0, 256, (20, 16, channels), dtype=np.uint8)
    expected = resampled(image, size, interpolation)
    result = resize_image(image, size, interpolation)
    assert result.dtype == np.uint8
    # Pillow rounds its weights too, so that ties fall either way, twice.
    np.testing.assert_allclose(result, expected, atol=2)


def test_nearest_neighbours():
    image = np.arange(6, dtype="uint8").reshape(2, 3, 1)
    result = resize_image(image, (4, 6), "nearest")
    np.testing.assert_array_equal(result, image.repeat(2, 0).repeat(2, 1))


@pytest.mark.parametrize(
    ("size", "area", "expected"),
    [
        ((400, 600), (256, 256), (256, 384)),
        ((600, 400), (256, 256), (384, 256)),
        ((100, 100), (256, 256), (256, 256)),
        ((333, 500), (256, 256), (256, 384)),  # 384.38, down
        ((1, 1), (7, 5), (7, 7)),
        ((10, 10), (20, 30), (30, 30)),
        ((1, 1000), (8, 8), (8, 8000)),
    ],
)
def test_covering_size(size, area, expected):
    assert covering_size(size, area) == expected


def test_covering_never_falls_short():
    for height in range(1, 40):
        for width in range(1, 40):
            for area in ((8, 8), (7, 9), (49, 21)):
                size = covering_size((height, width), area)
                assert size[0] >= area[0]
                assert size[1] >= area[1]
                assert area[0] == size[0] or area[1] == size[1]


@pytest.mark.parametrize("size", [(8, 8), (9, 8), (10, 13), (11, 30)])
def test_the_centre_is_in_the_middle(size):
    image = np.arange(np.prod(size)).reshape(*size, 1)
    cut = crop_centre(image, (8, 8))
    assert cut.shape == (8, 8, 1)
    top, left = np.argwhere(image == cut[0, 0])[0][:2]
    for start, whole in zip((top, left), size):
        assert abs(start - (whole - 8) / 2) <= 0.5


def test_crop_is_pillows_resize_and_crop(rng):
    """256 pixels, of which the middle 224, as ImageNet is evaluated."""
    image = rng.integers(0, 256, (300, 400, 3), dtype=np.uint8)
    result = ImagePreprocessor((224, 224, 3)).fit(image)
    resized = Image.fromarray(image).resize((341, 256), Image.BICUBIC)
    expected = resized.crop((58, 16, 58 + 224, 16 + 224))
    np.testing.assert_array_equal(result, expected)


def test_the_whole_shorter_side_can_remain(rng):
    image = rng.integers(0, 256, (30, 50, 3), dtype=np.uint8)
    result = ImagePreprocessor((30, 30, 3), crop_fraction=1.0).fit(image)
    np.testing.assert_array_equal(result, image[:, 10:40])


@pytest.mark.parametrize("shape", [(3, 90000, 3), (40000, 2, 3)])
def test_a_very_long_strip_costs_no_memory(shape):
    """The centre of a strip whose halves differ shows both of them."""
    image = np.zeros(shape, np.uint8)
    longer = int(np.argmax(shape))
    half = shape[longer] // 2
    image[(slice(None),) * longer + (slice(half, None),)] = 200
    found = ImagePreprocessor((64, 64, 3)).fit(image)
    assert found.shape == (64, 64, 3)
    across = found.mean(axis=(1 - longer, 2))
    assert across[0] < 10
    assert across[-1] > 190
    assert abs(across.mean() - 100) < 10


def test_long_images_below_the_limit_are_untouched(rng):
    image = rng.integers(0, 255, (10, 150, 3), np.uint8)
    np.testing.assert_array_equal(without_far_ends(image, (8, 8)), image)


def test_squash_keeps_the_borders(rng):
    image = rng.integers(0, 256, (30, 50, 3), dtype=np.uint8)
    result = ImagePreprocessor((16, 20, 3), resize="squash").fit(image)
    expected = Image.fromarray(image).resize((20, 16), Image.BICUBIC)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("resize", ["crop", "squash"])
def test_the_right_size_is_left_as_it_is(resize, rng):
    preprocess = ImagePreprocessor((8, 6, 3), resize=resize)
    image = rng.integers(0, 256, (8, 6, 3), dtype=np.uint8)
    np.testing.assert_array_equal(preprocess.fit(image), image)
    floats = rng.random((8, 6, 3)).astype("float32")
    np.testing.assert_array_equal(preprocess(floats), floats)


def test_digits_stay_what_they_are():
    from mlp_mixers.data.digits import load_digits

    images, _ = load_digits().test
    preprocess = ImagePreprocessor((8, 8, 1))
    np.testing.assert_array_equal(preprocess.batch(images), images)


@pytest.mark.parametrize("mean", [0.5, (0.1, 0.2, 0.3)])
@pytest.mark.parametrize("std", [0.25, (0.4, 0.5, 0.6)])
def test_normalising(mean, std, rng):
    preprocess = ImagePreprocessor((4, 4, 3), mean, std)
    image = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    expected = (image.astype("float64") / 255 - mean) / std
    result = preprocess(image)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=1e-6)
    floats = (image / 255).astype("float32")
    np.testing.assert_allclose(
        preprocess.normalise(floats), expected, atol=1e-6
    )
    many = np.stack([image, image])
    np.testing.assert_array_equal(preprocess.normalise(many)[1], result)


def test_floats_and_integers_come_out_alike(rng):
    preprocess = ImagePreprocessor((16, 16, 3), crop_fraction=0.8)
    image = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    np.testing.assert_allclose(
        preprocess((image / 255).astype("float32")),
        preprocess(image),
        atol=2 / 255,
    )


def test_channels_follow_the_model(rng):
    grey = rng.integers(0, 256, (4, 4), dtype=np.uint8)
    rgb = ImagePreprocessor((4, 4, 3))(grey)
    np.testing.assert_array_equal(rgb, np.repeat(rgb[..., :1], 3, -1))
    np.testing.assert_array_equal(rgb[..., 0], (grey / 255).astype("float32"))

    colours = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    luma = (colours @ [0.299, 0.587, 0.114])[..., None]
    result = change_channels(colours, 1)
    assert result.dtype == np.uint8
    np.testing.assert_allclose(result, luma, atol=0.51)
    floats = (colours / 255).astype("float32")
    result = ImagePreprocessor((4, 4, 1))(floats)
    np.testing.assert_allclose(result, luma / 255, atol=1e-6)


def test_files_and_arrays_come_out_alike(tmp_path, rng):
    image = rng.integers(0, 256, (30, 20, 3), dtype=np.uint8)
    path = tmp_path / "image.png"
    Image.fromarray(image).save(path)
    for channels in (1, 3):
        preprocess = ImagePreprocessor((8, 8, channels), 0.5, 0.5)
        expected = preprocess(image)
        np.testing.assert_array_equal(preprocess.read(path), expected)
        batch = preprocess.batch([path, str(path), image])
        assert batch.shape == (3, 8, 8, channels)
        assert batch.dtype == np.float32
        for one in batch:
            np.testing.assert_array_equal(one, expected)
        many = preprocess.batch(np.stack([image, image]))
        np.testing.assert_array_equal(many[1], expected)
    assert read_image(path).shape == (30, 20, 3)


def test_an_empty_batch():
    assert ImagePreprocessor((8, 8, 1)).batch([]).shape == (0, 8, 8, 1)


def test_the_most_probable_classes():
    preprocess = ImagePreprocessor((8, 8, 1), class_names=("a", "b", "c", "d"))
    probabilities = np.array([0.2, 0.5, 0.2, 0.1], "float32")
    top = preprocess.top_classes(probabilities, 3)
    assert [name for name, _ in top] == ["b", "a", "c"]
    np.testing.assert_allclose([p for _, p in top], [0.5, 0.2, 0.2])
    assert len(preprocess.top_classes(probabilities)) == 4
    nameless = ImagePreprocessor((8, 8, 1))
    assert nameless.top_classes([0.1, 0.9], 1) == [("1", 0.9)]


FULL = {
    "image_shape": (32, 16, 3),
    "mean": (0.1, 0.2, 0.3),
    "std": 0.5,
    "interpolation": "bilinear",
    "crop_fraction": 0.9,
    "resize": "squash",
    "class_names": ("猫", "dog"),
}


@pytest.mark.parametrize("arguments", [{"image_shape": (8, 8, 1)}, FULL])
def test_saving(arguments, tmp_path):
    preprocess = ImagePreprocessor(**arguments)
    config = json.loads(json.dumps(preprocess.to_config()))
    assert ImagePreprocessor.from_config(config) == preprocess
    preprocess.save(tmp_path / "model")
    preprocess.save(tmp_path / "model")
    assert [p.name for p in (tmp_path / "model").iterdir()] == [
        "preprocessor.json"
    ]
    assert ImagePreprocessor.load(tmp_path / "model") == preprocess


def test_arrays_are_taken_for_mean_and_std():
    preprocess = ImagePreprocessor(
        [8, 8, 3], np.array([0.1, 0.2, 0.3]), np.float32(0.5)
    )
    assert preprocess.mean == (0.1, 0.2, 0.3)
    assert json.dumps(preprocess.to_config())


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", "{}", '{"image_shape": [8, 8, 1], "colour": 1}']
)
def test_wrong_files(text, tmp_path):
    (tmp_path / "preprocessor.json").write_text(text)
    with pytest.raises(ValueError, match="preprocessor.json cannot be used"):
        ImagePreprocessor.load(tmp_path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no preprocessor.json"):
        ImagePreprocessor.load(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"image_shape": (8, 8)},
        {"image_shape": 8},
        {"image_shape": (8, 0, 3)},
        {"image_shape": (8, 8, 4)},
        {"mean": (0.5, 0.5)},
        {"mean": "0.5"},
        {"mean": float("nan")},
        {"std": 0},
        {"std": (0.5, 0.5, -1)},
        {"interpolation": "lanczos"},
        {"crop_fraction": 0},
        {"crop_fraction": 1.1},
        {"crop_fraction": True},
        {"resize": "pad"},
    ],
)
def test_wrong_arguments(changes):
    (name,) = changes
    with pytest.raises(ValueError, match=f"Received: {name}="):
        ImagePreprocessor(**{**FULL, **changes})


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((2, 2, 4), "uint8"), r"shape=\(2, 2, 4\)"),
        (np.zeros(4, "uint8"), r"shape=\(4,\)"),
        (np.zeros((0, 2, 3), "uint8"), r"shape=\(0, 2, 3\)"),
        (np.zeros((2, 2, 3), "int64"), "dtype=int64"),
        (np.full((2, 2, 3), 255.0), "from 255.0 to 255.0"),
        (np.full((2, 2, 3), -0.1), r"in \[0, 1\]"),
        (np.full((2, 2, 3), np.nan), "nan"),
    ],
)
def test_wrong_images(image, message):
    with pytest.raises(ValueError, match=message):
        ImagePreprocessor((8, 8, 3))(image)


def test_wrong_sizes_and_probabilities():
    preprocess = ImagePreprocessor(**FULL)
    with pytest.raises(ValueError, match=r"shape=\(8, 8, 3\)"):
        preprocess.normalise(np.zeros((8, 8, 3)))
    with pytest.raises(ValueError, match=r"2 classes.*shape=\(3,\)"):
        preprocess.top_classes([0.1, 0.2, 0.7])
    with pytest.raises(ValueError, match=r"shape=\(1, 2\)"):
        preprocess.top_classes([[0.1, 0.9]])
    with pytest.raises(ValueError, match="NaN"):
        preprocess.top_classes([np.nan, 0.9])
    with pytest.raises(ValueError, match="count=0"):
        preprocess.top_classes([0.1, 0.9], 0)
