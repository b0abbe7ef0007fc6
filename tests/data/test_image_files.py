import concurrent.futures
import io
import pickle

import numpy as np
import pytest
from PIL import Image

from mlp_mixers.data.image_files import ImageFiles
from mlp_mixers.data.image_files import check_header
from mlp_mixers.data.image_files import read_image


def saved(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    file.seek(0)
    return file


def pixels(*values):
    """An uint8 image of one row."""
    return np.array([values], "uint8")


@pytest.fixture
def colours(rng):
    return rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)


@pytest.fixture
def greys(rng):
    return rng.integers(0, 256, (5, 7), dtype=np.uint8)


@pytest.mark.parametrize("form", ["PNG", "BMP", "PPM", "TIFF", "WEBP"])
def test_colours_are_what_was_saved(form, colours):
    options = {"lossless": True} if form == "WEBP" else {}
    image = read_image(saved(Image.fromarray(colours), form, **options))
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, colours)


def test_jpeg_is_near_what_was_saved():
    smooth = np.indices((32, 32)).sum(0)[..., None] * np.array([4, 2, 1])
    smooth = smooth.astype("uint8")
    image = read_image(saved(Image.fromarray(smooth), "JPEG", quality=95))
    assert np.abs(image.astype(int) - smooth).max() < 12


def test_grey_becomes_three_equal_channels(greys):
    file = saved(Image.fromarray(greys))
    np.testing.assert_array_equal(read_image(file, 1)[..., 0], greys)
    file.seek(0)
    np.testing.assert_array_equal(
        read_image(file), np.repeat(greys[..., None], 3, 2)
    )


def test_colour_becomes_grey_by_luma(colours):
    grey = read_image(saved(Image.fromarray(colours)), 1)
    assert grey.shape == (5, 7, 1)
    np.testing.assert_allclose(
        grey[..., 0], colours @ [0.299, 0.587, 0.114], atol=0.51
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_one_bit(channels):
    image = Image.fromarray(pixels(0, 255, 255)).convert("1")
    image = read_image(saved(image), channels)
    assert image.shape == (1, 3, channels)
    assert image[0, :, 0].tolist() == [0, 255, 255]


def palette(**info):
    image = Image.fromarray(pixels(0, 1, 2))
    image = Image.frombytes("P", image.size, image.tobytes())
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.info.update(info)
    return image


def test_palette():
    expected = [[10, 20, 30], [40, 50, 60], [70, 80, 90]]
    assert read_image(saved(palette()))[0].tolist() == expected


@pytest.mark.parametrize("form", ["PNG", "GIF"])
def test_palette_with_a_transparent_colour(form):
    image = read_image(saved(palette(), form, transparency=1))
    expected = [[10, 20, 30], [255, 255, 255], [70, 80, 90]]
    assert image[0].tolist() == expected


def test_palette_with_partly_transparent_colours():
    image = read_image(saved(palette(), transparency=bytes([255, 0, 128])))
    on_white = np.array([70, 80, 90]) * (128 / 255) + 255 * (127 / 255)
    assert image[0, :2].tolist() == [[10, 20, 30], [255, 255, 255]]
    np.testing.assert_allclose(image[0, 2], on_white, atol=1)


def test_transparency_lies_on_white(rng):
    rgba = rng.integers(0, 256, (6, 6, 4), dtype=np.uint8)
    alpha = rgba[..., 3:] / 255
    expected = rgba[..., :3] * alpha + 255 * (1 - alpha)
    image = read_image(saved(Image.fromarray(rgba)))
    np.testing.assert_allclose(image, expected, atol=1)

    grey = rng.integers(0, 256, (6, 6, 2), dtype=np.uint8)
    alpha = grey[..., 1:] / 255
    expected = grey[..., :1] * alpha + 255 * (1 - alpha)
    image = read_image(saved(Image.fromarray(grey)), 1)
    np.testing.assert_allclose(image, expected, atol=1)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_transparent_colour_without_palette(mode):
    image = Image.new(mode, (2, 1), 0)
    image.putpixel((1, 0), 7 if mode == "L" else (7, 7, 7))
    key = 7 if mode == "L" else (7, 7, 7)
    file = saved(image, transparency=key)
    assert read_image(file)[0].tolist() == [[0] * 3, [255] * 3]


def test_cmyk_is_not_inverted():
    inks = {"white": (0, 0, 0, 0), "black": (0, 0, 0, 255)}
    for name, ink in inks.items():
        image = Image.new("CMYK", (8, 8), ink)
        image = read_image(saved(image, "JPEG", quality=100))
        expected = {"white": 255, "black": 0}[name]
        np.testing.assert_allclose(image, expected, atol=2)
    red = read_image(saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "TIFF"))
    assert red[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bits_are_scaled_and_not_clipped(form, channels):
    values = np.array([[0, 128, 257, 32768, 65279, 65535]], "uint16")
    image = read_image(saved(Image.fromarray(values), form), channels)
    expected = np.rint(values / 65535 * 255)
    for channel in np.moveaxis(image, -1, 0):
        np.testing.assert_array_equal(channel, expected)


def test_16_bits_of_the_other_byte_order():
    values = np.array([[0, 257, 65535]], ">u2")
    image = Image.frombytes("I;16B", (3, 1), values.tobytes())
    assert read_image(saved(image, "TIFF"), 1)[0, :, 0].tolist() == [0, 1, 255]


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_values_of_unknown_range_are_refused(dtype, tmp_path):
    path = tmp_path / "depth.tiff"
    Image.fromarray(np.ones((2, 2), dtype)).save(path)
    with pytest.raises(
        ValueError, match="depth.tiff.*8 or 16 bits.*mode '[IF]"
    ):
        read_image(path)


# What each EXIF orientation undoes, in NumPy's words.
TURNS = {
    1: lambda x: x,
    2: np.fliplr,
    3: lambda x: np.rot90(x, 2),
    4: np.flipud,
    5: lambda x: np.swapaxes(x, 0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: np.rot90(np.swapaxes(x, 0, 1), 2),
    8: np.rot90,
}


@pytest.mark.parametrize("orientation", TURNS)
def test_exif_rotation_is_carried_out(orientation, colours):
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = saved(Image.fromarray(colours), "PNG", exif=exif)
    np.testing.assert_array_equal(read_image(file), TURNS[orientation](colours))


def test_exif_rotation_of_16_bits():
    values = np.array([[0, 257], [514, 65535]], "uint16")
    exif = Image.Exif()
    exif[0x0112] = 6
    image = read_image(saved(Image.fromarray(values), exif=exif), 1)
    assert image[..., 0].tolist() == [[2, 0], [255, 1]]


@pytest.mark.parametrize("channels", [1, 3])
def test_one_pixel(channels):
    image = read_image(saved(Image.new("RGB", (1, 1), "white")), channels)
    np.testing.assert_array_equal(image, np.full((1, 1, channels), 255))


def test_the_first_frame_of_an_animation():
    frames = [Image.new("RGB", (3, 2), c) for c in ("red", "lime")]
    file = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert Image.open(file).n_frames == 2
    file.seek(0)
    assert (read_image(file) == [255, 0, 0]).all()


def test_the_content_counts_and_not_the_extension(tmp_path, colours):
    path = tmp_path / "really_a_png.jpg"
    Image.fromarray(colours).save(path, "PNG")
    np.testing.assert_array_equal(read_image(str(path)), colours)


def test_names_in_any_script(tmp_path, colours):
    path = tmp_path / "größe 猫 😀.png"
    Image.fromarray(colours).save(path)
    np.testing.assert_array_equal(read_image(path), colours)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="größe 猫 😀.png"):
        read_image(path)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF"])
def test_truncated_files_are_named(form, tmp_path, rng):
    image = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    content = saved(Image.fromarray(image), form).getvalue()
    path = tmp_path / "half.img"
    for part in (0.05, 0.5, 0.9):
        path.write_bytes(content[: int(part * len(content))])
        with pytest.raises(ValueError, match="half.img"):
            read_image(path)


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"hello, I am text" * 9])
def test_what_is_not_an_image(content, tmp_path):
    path = tmp_path / "text.jpg"
    path.write_bytes(content)
    for read in (read_image, check_header):
        with pytest.raises(ValueError, match="text.jpg"):
            read(path)


def test_a_missing_file(tmp_path):
    for read in (read_image, check_header):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "nowhere.png")


def test_decompression_bombs(monkeypatch, tmp_path):
    path = tmp_path / "bomb.png"
    Image.new("1", (100, 100)).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    for read in (read_image, check_header):
        with pytest.raises(ValueError, match="bomb.png.*MAX_IMAGE_PIXELS"):
            read(path)


def test_headers_of_truncated_files_pass(tmp_path, rng):
    image = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = tmp_path / "half.jpg"
    path.write_bytes(saved(Image.fromarray(image), "JPEG").getvalue()[:2000])
    check_header(path)


@pytest.mark.parametrize("channels", [0, 2, 4, "3", None, True])
def test_wrong_channels(channels):
    with pytest.raises(ValueError, match="channels="):
        read_image("any.png", channels)


@pytest.fixture
def files(tmp_path, rng):
    arrays = []
    for i in range(12):
        arrays.append(rng.integers(0, 256, (4 + i, 5, 3), dtype=np.uint8))
        Image.fromarray(arrays[-1]).save(tmp_path / f"{i}.png")
    return [tmp_path / f"{i}.png" for i in range(12)], arrays


def test_a_sequence_of_files(files):
    paths, arrays = files
    images = ImageFiles(paths)
    assert len(images) == 12
    for i in (0, 5, -1, np.int64(3)):
        np.testing.assert_array_equal(images[i], arrays[i])
    chosen = images.take(np.array([7, 2]))
    assert len(chosen) == 2
    np.testing.assert_array_equal(chosen[1], arrays[2])
    np.testing.assert_array_equal(list(images)[4], arrays[4])
    with pytest.raises(IndexError):
        images[12]


def test_it_can_be_copied_to_another_process(files):
    paths, arrays = files
    images = pickle.loads(pickle.dumps(ImageFiles(paths, 1)))
    assert images[3].shape == arrays[3].shape[:2] + (1,)


def test_several_threads_may_read(files):
    paths, arrays = files
    images = ImageFiles(paths)
    order = list(range(12)) * 20
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for i, image in zip(order, pool.map(images.__getitem__, order)):
            np.testing.assert_array_equal(image, arrays[i])
