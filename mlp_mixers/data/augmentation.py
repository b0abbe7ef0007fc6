"""Random geometry of one image: shift, flip, crop, erase.

An augmentation is a callable `(image, rng) -> image`. The image is an array
`(height, width, channels)` of 8-bit integers or of floats in [0, 1], and stays
of its kind; `rng` is a `numpy.random.Generator`, the only source of chance.
Nothing here knows a deep-learning framework, so the pixels are the same on
every backend.
"""

import math
import numbers

import numpy as np

from mlp_mixers.arguments import natural_number
from mlp_mixers.arguments import pair
from mlp_mixers.data.preprocessing import INTERPOLATIONS
from mlp_mixers.data.preprocessing import resize_image

# How often a random rectangle is drawn anew until it fits into the image.
ATTEMPTS = 10


def shift_images(images, shifts):
    """Moves each image by whole pixels; what comes in from outside is zero.

    Args:
        images: Array of shape `(batch, height, width, channels)`.
        shifts: Integer array of shape `(batch, 2)`, pixels down and right.

    Returns:
        Array like `images`.
    """
    reach = int(abs(shifts).max(initial=0))
    height, width = images.shape[1:3]
    padded = np.pad(images, [(0, 0), (reach, reach), (reach, reach), (0, 0)])
    # Pixel (y, x) of the result is pixel (y - down, x - right) of the image.
    rows = reach - shifts[:, 0, None, None] + np.arange(height)[None, :, None]
    columns = reach - shifts[:, 1, None, None] + np.arange(width)[None, None, :]
    return padded[np.arange(len(images))[:, None, None], rows, columns]


class Compose:
    """One augmentation after another.

    Args:
        augmentations: Sequence of callables `(image, rng) -> image`.

    Raises:
        ValueError: If one of them cannot be called.
    """

    def __init__(self, augmentations):
        self.augmentations = tuple(augmentations)
        for augmentation in self.augmentations:
            if not callable(augmentation):
                raise ValueError(
                    "An augmentation must be a callable (image, rng) -> "
                    f"image. Received: {augmentation!r}"
                )

    def __call__(self, image, rng):
        for augmentation in self.augmentations:
            image = augmentation(image, rng)
        return image


class RandomShift:
    """Moves an image by whole pixels; zeros come in from outside.

    Down and right are drawn apart, each uniformly from
    {-max_shift, ..., max_shift}.

    Args:
        max_shift: Largest shift in pixels; 0 for none.

    Raises:
        ValueError: If `max_shift` is not an integer, or negative.
    """

    def __init__(self, max_shift):
        self.max_shift = natural_number(max_shift, "max_shift")

    def __call__(self, image, rng):
        check_image(image)
        shifts = rng.integers(-self.max_shift, self.max_shift, 2, int, True)
        moved, to, of = np.zeros_like(image), [], []
        for length, shift in zip(image.shape, shifts.tolist()):
            shift = min(max(shift, -length), length)
            to.append(slice(max(shift, 0), length + min(shift, 0)))
            of.append(slice(max(-shift, 0), length - max(shift, 0)))
        moved[tuple(to)] = image[tuple(of)]
        return moved


class RandomFlip:
    """Mirrors left and right.

    Args:
        rate: Probability of doing so.

    Raises:
        ValueError: If `rate` is no probability.
    """

    def __init__(self, rate=0.5):
        self.rate = probability(rate, "rate")

    def __call__(self, image, rng):
        check_image(image)
        return image[:, ::-1] if rng.random() < self.rate else image


class RandomResizedCrop:
    """Cuts a random part of an image out and brings it to one size.

    The part has an area drawn uniformly from `scale` (as a share of the image)
    and a ratio of width to height drawn log-uniformly from `ratio`; its place
    is uniform. After ten parts that do not fit, it is the largest central part
    with a ratio in range.

    Args:
        size: Side of the result in pixels, or (height, width).
        scale: Smallest and largest share of the area.
        ratio: Smallest and largest width / height.
        interpolation: `"bicubic"`, `"bilinear"` or `"nearest"`; the first two
            average over what they shrink.

    Raises:
        ValueError: If an argument is out of range, or an image has not one
            channel or three.

    Reference:
        Szegedy et al., "Going Deeper with Convolutions", arXiv 1409.4842,
        section 6.
    """

    def __init__(
        self,
        size,
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        interpolation="bicubic",
    ):
        self.size = pair(size, "size")
        self.scale = interval(scale, "scale", highest=1)
        self.ratio = interval(ratio, "ratio")
        self.interpolation = one_of(
            interpolation, INTERPOLATIONS, "interpolation"
        )

    def __call__(self, image, rng):
        check_image(image)
        if image.shape[2] not in (1, 3):
            raise ValueError(
                "An image must have one channel or three to be resized. "
                f"Received: image.shape={image.shape}"
            )
        top, left, height, width = self.draw(*image.shape[:2], rng)
        part = image[top : top + height, left : left + width]
        resized = resize_image(part, self.size, self.interpolation)
        return resized.astype(image.dtype, copy=False)

    def draw(self, height, width, rng):
        """Where the part lies: `(top, left, height, width)` in pixels."""
        for _ in range(ATTEMPTS):
            size = draw_rectangle(height, width, self.scale, self.ratio, rng)
            if size is not None:
                return (*draw_place(height, width, *size, rng), *size)
        low, high = self.ratio
        part_width = min(width, max(1, round(height * high)))
        part_height = min(height, max(1, round(width / low)))
        top, left = (height - part_height) // 2, (width - part_width) // 2
        return top, left, part_height, part_width


class RandomErasing:
    """Covers a random rectangle with noise or with one value.

    Args:
        rate: Probability of erasing at all.
        area: Smallest and largest share of the image that is covered.
        ratio: Smallest and largest width / height, drawn log-uniformly.
        fill: `"noise"`, uniform and anew for each pixel and channel, or a
            number in [0, 1], black to white.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Zhong et al., "Random Erasing Data Augmentation", arXiv 1708.04896,
        section 3.2.
    """

    def __init__(
        self, rate=0.25, area=(0.02, 1 / 3), ratio=(0.3, 10 / 3), fill="noise"
    ):
        self.rate = probability(rate, "rate")
        self.area = interval(area, "area", highest=1)
        self.ratio = interval(ratio, "ratio")
        self.fill = fill if fill == "noise" else probability(fill, "fill")

    def __call__(self, image, rng):
        check_image(image)
        if rng.random() >= self.rate:
            return image
        shape = image.shape[:2]
        for _ in range(ATTEMPTS):
            size = draw_rectangle(*shape, self.area, self.ratio, rng)
            if size is not None:
                break
        else:
            return image
        top, left = draw_place(*shape, *size, rng)
        image = image.copy()
        part = image[top : top + size[0], left : left + size[1]]
        part[:] = self._cover(part, rng)
        return image

    def _cover(self, part, rng):
        if part.dtype == np.uint8:
            if self.fill == "noise":
                return rng.integers(0, 256, part.shape, np.uint8)
            return round(self.fill * 255)
        return rng.random(part.shape) if self.fill == "noise" else self.fill


def draw_rectangle(height, width, area, ratio, rng):
    """Height and width of a random rectangle; None if it does not fit."""
    pixels = height * width * rng.uniform(*area)
    shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
    part_height = round(math.sqrt(pixels / shape))
    part_width = round(math.sqrt(pixels * shape))
    if 0 < part_height <= height and 0 < part_width <= width:
        return part_height, part_width
    return None


def draw_place(height, width, part_height, part_width, rng):
    """Top left corner of a part, uniform among all where it fits."""
    top = rng.integers(height - part_height, endpoint=True)
    left = rng.integers(width - part_width, endpoint=True)
    return int(top), int(left)


def check_image(image):
    """Raises a ValueError for anything but one image.

    Args:
        image: What an augmentation got.
    """
    shape, dtype = getattr(image, "shape", None), getattr(image, "dtype", None)
    if (
        shape is None
        or len(shape) != 3
        or not (dtype == np.uint8 or np.issubdtype(dtype, np.floating))
    ):
        raise ValueError(
            "An image must be an array (height, width, channels) of uint8, or "
            f"of floats in [0, 1]. Received: shape={shape}, dtype={dtype}"
        )


def probability(value, name):
    """Returns `value` as a `float`.

    Raises:
        ValueError: If `value` is anything but a number in [0, 1].
    """
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(
            f"`{name}` must be a number in [0, 1]. Received: {name}={value!r}"
        )
    return float(value)


def interval(value, name, highest=math.inf):
    """Returns `(low, high)` as floats.

    Raises:
        ValueError: If not 0 < low <= high <= `highest`.
    """
    if (
        not isinstance(value, (tuple, list))
        or len(value) != 2
        or not all(map(is_number, value))
        or not 0 < value[0] <= value[1] <= highest
    ):
        limit = "" if highest == math.inf else f" <= {highest}"
        raise ValueError(
            f"`{name}` must be a pair (low, high) with 0 < low <= high"
            f"{limit}. Received: {name}={value!r}"
        )
    return float(value[0]), float(value[1])


def one_of(value, allowed, name):
    """Returns `value`.

    Raises:
        ValueError: If it is not in `allowed`.
    """
    if value not in allowed:
        raise ValueError(
            f"`{name}` must be one of {', '.join(allowed)}. "
            f"Received: {name}={value!r}"
        )
    return value


def is_number(value):
    """Whether it is a finite number. `True` is none."""
    return (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
