"""How an image file becomes pixels."""

import contextlib
import os

import numpy as np

_MODES = {1: "L", 3: "RGB"}


def read_image(file, channels=3):
    """Decodes an image file of any kind that Pillow reads.

    What looks alike comes out alike:

    - Grey, one-bit and palette images become grey values or colours.
    - Transparent pixels are laid on white.
    - CMYK and YCbCr become RGB as Pillow converts them, without colour
      profiles.
    - Grey of 16 bits is scaled to 8, 65535 to 255. (Of 16-bit colour, Pillow
      itself keeps the upper 8 bits.)
    - A rotation or reflection in the EXIF data is carried out.
    - Of several frames the first is read.
    - RGB becomes grey by the luma of ITU-R 601,
      0.299 R + 0.587 G + 0.114 B.

    Args:
        file: Path, or a binary file that can seek.
        channels: 3 for RGB, 1 for grey.

    Returns:
        uint8 array `(height, width, channels)`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not an image, broken, larger than Pillow's limit
            against decompression bombs, or has values without a known range
            (32-bit integers, floats).
    """
    from PIL import ImageOps

    check_channels(channels)
    with _naming(file), _open(file) as image:
        image.load()
        turned = ImageOps.exif_transpose(image)
        pixels = _to_8_bits(turned, image.format).convert(_MODES[channels])
        array = np.asarray(pixels)
    return array.reshape(*array.shape[:2], channels)


def check_header(file):
    """Reads the beginning of an image file, and not its pixels.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not an image, or larger than Pillow's limit.
    """
    with _naming(file):
        _open(file).close()


def check_channels(channels):
    """Raises a ValueError for anything but grey (1) or RGB (3)."""
    if channels not in _MODES or isinstance(channels, bool):
        raise ValueError(
            "Images have 1 channel (grey) or 3 (RGB). "
            f"Received: channels={channels!r}"
        )


class ImageFiles:
    """A sequence of images that are read when they are asked for.

    It holds paths alone, so that it can be copied into other processes, and
    several threads may read from it.

    Args:
        paths: Paths of image files.
        channels: 3 for RGB, 1 for grey.
    """

    def __init__(self, paths, channels=3):
        check_channels(channels)
        self.paths = [os.fspath(path) for path in paths]
        self.channels = channels

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return read_image(self.paths[index], self.channels)

    def take(self, rows):
        """The same for the images at the indices `rows`."""
        return ImageFiles([self.paths[row] for row in rows], self.channels)

    def __repr__(self):
        return f"ImageFiles({len(self)} paths, channels={self.channels})"


@contextlib.contextmanager
def _naming(file):
    """Turns what a decoder raises into a ValueError that names the file."""
    from PIL import Image

    try:
        yield
    except (FileNotFoundError, PermissionError, MemoryError):
        raise
    except Image.UnidentifiedImageError as error:
        raise ValueError(
            f"This is not an image, or none that Pillow knows: {_name(file)}"
        ) from error
    except Image.DecompressionBombError as error:
        raise ValueError(
            f"This image is too large to be read safely: {_name(file)}. "
            f"Make it smaller, or raise `PIL.Image.MAX_IMAGE_PIXELS`. {error}"
        ) from error
    # Of a broken file, decoders raise whatever they stumble over.
    except Exception as error:
        raise ValueError(
            f"This image cannot be read: {_name(file)}. {error}"
        ) from error


def _open(file):
    from PIL import Image

    return Image.open(file)


def _name(file):
    if isinstance(file, (str, os.PathLike)):
        return os.fspath(file)
    return str(getattr(file, "name", "an image in memory"))


def _to_8_bits(image, file_format):
    """An image of a mode that Pillow converts to grey or RGB rightly."""
    from PIL import Image

    if _is_16_bit_grey(image, file_format):
        # Pillow's own conversion clips at 255.
        values = np.asarray(image).astype("int64")
        return Image.fromarray(((values * 255 + 32767) // 65535).astype("u1"))
    if image.mode in ("I", "F"):
        raise ValueError(
            "Its pixels are 32-bit integers or floats, whose range is not "
            "known: save it with 8 or 16 bits. "
            f"Received: an image of mode {image.mode!r}"
        )
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image)
    # By way of RGB: not every mode can become grey at once.
    return image if image.mode in ("1", "L") else image.convert("RGB")


def _is_16_bit_grey(image, file_format):
    # Some versions of Pillow open 16-bit PNG and PGM as 32-bit integers.
    return image.mode.startswith("I;16") or (
        image.mode == "I" and file_format in ("PNG", "PPM")
    )
