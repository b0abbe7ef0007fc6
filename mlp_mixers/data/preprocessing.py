"""From an image of any size to the array that a model was trained on."""

import dataclasses
import json
import math
import numbers
import os
import pathlib

import numpy as np

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.image_files import read_image

FILE = "preprocessor.json"
INTERPOLATIONS = ("bicubic", "bilinear", "nearest")
RESIZES = ("crop", "squash")
# ITU-R 601: how bright red, green and blue are.
LUMA = (0.299, 0.587, 0.114)


@dataclasses.dataclass(frozen=True)
class ImagePreprocessor:
    """What an image goes through before a model sees it, without chance.

        y = (x / 255 - mean) / std

    for x in 0..255 of the right size, which comes of resizing so that the
    image covers `(height, width) / crop_fraction` and cutting out the centre
    (`resize="crop"`), or of resizing alone (`"squash"`). An image that has
    the right size already is not resampled and not cropped. Sizes between
    are rounded down, the corner of the centre to the nearest pixel.

    Shrinking averages over all pixels that become one (antialiasing), as
    Pillow does it.

    Args:
        image_shape: `(height, width, channels)` for the model; 1 channel or 3.
        mean: Number, or one for each channel, for images in [0, 1].
        std: The same.
        interpolation: `"bicubic"`, `"bilinear"` or `"nearest"`.
        crop_fraction: How much of the resized image's shorter side remains.
        resize: `"crop"` or `"squash"`.
        class_names: Names of the classes in their order, or `None`.

    Raises:
        ValueError: If an argument is out of its range.
    """

    image_shape: tuple
    mean: tuple | float = 0.0
    std: tuple | float = 1.0
    interpolation: str = "bicubic"
    crop_fraction: float = 0.875
    resize: str = "crop"
    class_names: tuple | None = None

    def __post_init__(self):
        shape = self.image_shape
        if not isinstance(shape, (tuple, list)) or len(shape) != 3:
            raise ValueError(
                "`image_shape` must be (height, width, channels). "
                f"Received: image_shape={shape!r}"
            )
        shape = tuple(positive_integer(n, "image_shape") for n in shape)
        if shape[2] not in (1, 3):
            raise ValueError(
                "Images have 1 channel (grey) or 3 (RGB). "
                f"Received: image_shape={shape}"
            )
        names = self.class_names
        fixed = {
            "image_shape": shape,
            "mean": _per_channel(self.mean, shape[2], "mean"),
            "std": _per_channel(self.std, shape[2], "std"),
            "class_names": None if names is None else tuple(map(str, names)),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)
        if not all(s > 0 for s in np.atleast_1d(self.std)):
            raise ValueError(
                f"`std` must be positive. Received: std={self.std}"
            )
        _one_of(self.interpolation, INTERPOLATIONS, "interpolation")
        _one_of(self.resize, RESIZES, "resize")
        if not _is_number(self.crop_fraction) or not (
            0 < self.crop_fraction <= 1
        ):
            raise ValueError(
                "`crop_fraction` must lie in (0, 1]. "
                f"Received: crop_fraction={self.crop_fraction!r}"
            )

    def __call__(self, image):
        """One image, ready for the model.

        Args:
            image: uint8, or float in [0, 1], of shape `(h, w)`, `(h, w, 1)`
                or `(h, w, 3)` and of any size.

        Returns:
            float32 array of shape `image_shape`.

        Raises:
            ValueError: If it is anything else.
        """
        return self.normalise(self.fit(image))

    def read(self, file):
        """One image file, ready for the model.

        Args:
            file: Path, or a binary file.

        Returns:
            float32 array of shape `image_shape`.
        """
        return self(read_image(file, self.image_shape[2]))

    def batch(self, images):
        """Several images, ready for the model.

        Args:
            images: List of paths or arrays, or an array of images.

        Returns:
            float32 array `(samples, height, width, channels)`.
        """
        result = np.empty((len(images), *self.image_shape), "float32")
        for i, image in enumerate(images):
            is_path = isinstance(image, (str, os.PathLike))
            result[i] = self.read(image) if is_path else self(image)
        return result

    def fit(self, image):
        """One image of the right size and channels, not yet normalised.

        Returns:
            Array of shape `image_shape`, uint8 if `image` is, or float32.
        """
        image = change_channels(_checked(image), self.image_shape[2])
        height, width = self.image_shape[:2]
        if image.shape[:2] == (height, width):
            return image
        if self.resize == "squash":
            return resize_image(image, (height, width), self.interpolation)
        image = without_far_ends(image, (height, width))
        size = covering_size(
            image.shape[:2],
            (
                math.floor(height / self.crop_fraction),
                math.floor(width / self.crop_fraction),
            ),
        )
        return crop_centre(
            resize_image(image, size, self.interpolation), (height, width)
        )

    def normalise(self, images):
        """(x - mean) / std of images that have their size.

        Args:
            images: uint8, or floats in [0, 1], of shape
                `(..., height, width, channels)`.

        Returns:
            float32 array like `images`.
        """
        images = np.asarray(images)
        if images.shape[-3:] != self.image_shape:
            raise ValueError(
                f"Images must have shape {self.image_shape}. "
                f"Received: shape={images.shape}"
            )
        scale = 255 if images.dtype == np.uint8 else 1
        images = images.astype("float32") / np.float32(scale)
        return (images - np.float32(self.mean)) / np.float32(self.std)

    def top_classes(self, probabilities, count=5):
        """The most probable classes of one image.

        Args:
            probabilities: Array `(classes,)`.
            count: How many; all if there are fewer.

        Returns:
            List of `(name, probability)`, the most probable first. Without
            `class_names` the names are the numbers.

        Raises:
            ValueError: If there is not one probability for each name.
        """
        count = positive_integer(count, "count")
        probabilities = np.asarray(probabilities)
        names = self.class_names or tuple(map(str, range(probabilities.size)))
        if probabilities.shape != (len(names),):
            raise ValueError(
                f"There must be one probability for each of {len(names)} "
                "classes, of one image. "
                f"Received: shape={probabilities.shape}"
            )
        if np.isnan(probabilities).any():
            raise ValueError("The probabilities are not numbers (NaN).")
        best = np.argsort(-probabilities, kind="stable")[:count]
        return [(names[k], float(probabilities[k])) for k in best]

    def to_config(self):
        """Dictionary of numbers, strings and lists, for JSON."""
        config = dataclasses.asdict(self)
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in config.items()
        }

    @classmethod
    def from_config(cls, config):
        """The preprocessor that `to_config` describes.

        Raises:
            ValueError: If `config` is anything else.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(config, dict) or not (
            {"image_shape"} <= set(config) <= known
        ):
            raise ValueError(
                "This does not describe an image preprocessor, which has "
                f"{', '.join(sorted(known))}. Received: {config!r}"
            )
        return cls(**config)

    def save(self, folder):
        """Writes `preprocessor.json` into `folder`, made if it is missing."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.to_config(), indent=2, ensure_ascii=False)
        # Moved into place: an interruption leaves the old file whole.
        new = folder / f".{FILE}.new"
        new.write_text(text + "\n", encoding="utf-8")
        os.replace(new, folder / FILE)

    @classmethod
    def load(cls, folder):
        """Reads `preprocessor.json` in `folder`.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If it does not describe a preprocessor.
        """
        path = pathlib.Path(folder, FILE)
        if not path.exists():
            raise FileNotFoundError(
                f"There is no {FILE} in {folder}: nothing says how images "
                "become the model's input."
            )
        try:
            return cls.from_config(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path} cannot be used. {error}") from error


def change_channels(image, channels):
    """Grey to RGB by repeating, RGB to grey by ITU-R 601 luma.

    Args:
        image: uint8 or float array `(height, width, 1 or 3)`.
        channels: 1 or 3.

    Returns:
        Array `(height, width, channels)` of the same dtype.
    """
    if image.shape[2] == channels:
        return image
    if channels == 3:
        return np.repeat(image, 3, axis=2)
    if image.dtype != np.uint8:
        return (image @ np.array(LUMA, image.dtype))[..., None]
    from PIL import Image

    # Pillow's integers, so that files and arrays get the same grey.
    return np.asarray(Image.fromarray(image).convert("L"))[..., None]


def resize_image(image, size, interpolation="bicubic"):
    """Resamples an image, antialiased where it shrinks.

    Args:
        image: uint8, or float in [0, 1], `(height, width, channels)`.
        size: `(height, width)`.
        interpolation: `"bicubic"`, `"bilinear"` or `"nearest"`.

    Returns:
        Array `(*size, channels)` of the same dtype. What bicubic curves
        overshoot is cut off, in floats as in integers.
    """
    from PIL import Image

    method = Image.Resampling[interpolation.upper()]
    size = (size[1], size[0])
    if image.dtype == np.uint8:
        squeezed = image[..., 0] if image.shape[2] == 1 else image
        resized = Image.fromarray(squeezed).resize(size, method)
        return np.asarray(resized).reshape(size[1], size[0], -1)
    channels = [
        np.asarray(Image.fromarray(channel).resize(size, method))
        for channel in np.moveaxis(image.astype("float32"), -1, 0)
    ]
    return np.stack(channels, axis=-1).clip(0, 1)


def without_far_ends(image, size, most=16):
    """Cuts off what no centre will show, of very long images.

    Resized as a whole, a strip of 1 by 40,000 pixels would take gigabytes.

    Args:
        image: Array `(h, w, channels)`.
        size: `(height, width)` of the centre that is wanted, for its shape.
        most: How many times longer than that shape the image may stay.

    Returns:
        The central part; the image itself if it is not so long.
    """
    scale = min(n / wanted for n, wanted in zip(image.shape, size))
    parts = []
    for length, wanted in zip(image.shape, size):
        # As many pixels off at both ends, so that the centre stays.
        over = max(0, length - math.ceil(most * scale * wanted)) // 2
        parts.append(slice(over, length - over))
    return image[tuple(parts)]


def covering_size(size, area):
    """The smallest size with the proportions of `size` that covers `area`.

    Both are `(height, width)`; the longer side is rounded down.
    """
    (height, width), (rows, columns) = size, area
    # Whole numbers: a quotient of floats could fall one pixel short.
    if height * columns >= width * rows:
        return height * columns // width, columns
    return rows, width * rows // height


def crop_centre(image, size):
    """The middle `(height, width)` of an image that is not smaller."""
    top, left = (
        round((have - want) / 2) for have, want in zip(image.shape, size)
    )
    return image[top : top + size[0], left : left + size[1]]


def _checked(image):
    """uint8 or float32 of shape (height, width, 1 or 3)."""
    image = np.asarray(image)
    if image.ndim == 2:
        image = image[..., None]
    if image.ndim != 3 or 0 in image.shape or image.shape[2] not in (1, 3):
        raise ValueError(
            "An image must have shape (height, width), or (height, width, "
            "channels) with 1 or 3 channels. "
            f"Received: shape={image.shape}"
        )
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind != "f":
        raise ValueError(
            "An image must be uint8, or floats in [0, 1]. "
            f"Received: dtype={image.dtype}"
        )
    low, high = image.min(), image.max()
    if not (low >= 0 and high <= 1):  # not a number fails this too
        raise ValueError(
            "An image of floats must lie in [0, 1]. "
            f"Received: values from {low} to {high}"
        )
    return image.astype("float32", copy=False)


def _per_channel(value, channels, name):
    """A float, or a tuple of one for each channel."""
    if _is_number(value) and math.isfinite(value):
        return float(value)
    values = (
        tuple(value) if isinstance(value, (tuple, list, np.ndarray)) else ()
    )
    if len(values) != channels or not all(
        _is_number(v) and math.isfinite(v) for v in values
    ):
        raise ValueError(
            f"`{name}` must be a number, or one for each of {channels} "
            f"channels. Received: {name}={value!r}"
        )
    return tuple(map(float, values))


def _one_of(value, allowed, name):
    if value not in allowed:
        raise ValueError(
            f"`{name}` must be one of {allowed}. Received: {name}={value!r}"
        )


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
