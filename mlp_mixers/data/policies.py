"""Colour and geometry by policy: AutoAugment and RandAugment.

Both apply a few of the same operations to an 8-bit image. An operation has a
magnitude in [0, 10] and, where left and right or more and less are alike, a
random sign.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from PIL import Image
from PIL import ImageEnhance
from PIL import ImageOps

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.augmentation import check_image
from mlp_mixers.data.augmentation import is_number
from mlp_mixers.data.augmentation import one_of
from mlp_mixers.data.preprocessing import INTERPOLATIONS

MAX_MAGNITUDE = 10
# The largest shift in the paper: 150 pixels of its images of 331.
MAX_TRANSLATION = 150 / 331
# Colour of what comes in from outside.
GREY = 128


@dataclasses.dataclass(frozen=True)
class Operation:
    """What an operation does and how strongly at a magnitude.

    `apply` takes a picture, an amount and the filter for geometry. The amount
    is `low + (high - low) * magnitude / 10`, with a random sign if `signed`,
    and counted from `origin`.
    """

    apply: Callable
    low: float = 0.0
    high: float = 0.0
    signed: bool = False
    origin: float = 0.0

    def amount(self, magnitude, sign):
        """The amount at a magnitude; `sign` is 1 or -1."""
        amount = self.low + (self.high - self.low) * magnitude / MAX_MAGNITUDE
        return self.origin + (sign * amount if self.signed else amount)


# Operations on a picture: (picture, amount, filter) -> picture.


def _identity(picture, amount, resample):
    return picture


def _autocontrast(picture, amount, resample):
    return ImageOps.autocontrast(picture)


def _equalize(picture, amount, resample):
    return ImageOps.equalize(picture)


def _invert(picture, amount, resample):
    return ImageOps.invert(picture)


def _posterize(picture, amount, resample):
    """Keeps so many bits of each pixel, the whole part of the amount."""
    return ImageOps.posterize(picture, int(amount))


def _solarize(picture, amount, resample):
    """Inverts the pixels from a threshold on."""
    return ImageOps.solarize(picture, int(amount))


def _color(picture, amount, resample):
    return ImageEnhance.Color(picture).enhance(amount)


def _contrast(picture, amount, resample):
    return ImageEnhance.Contrast(picture).enhance(amount)


def _brightness(picture, amount, resample):
    return ImageEnhance.Brightness(picture).enhance(amount)


def _sharpness(picture, amount, resample):
    return ImageEnhance.Sharpness(picture).enhance(amount)


def _affine(picture, matrix, resample):
    """Pixel (x, y) of the result is (ax + by + c, dx + ey + f) before."""
    return picture.transform(
        picture.size,
        Image.Transform.AFFINE,
        matrix,
        resample,
        fillcolor=_grey(picture),
    )


def _shear_x(picture, amount, resample):
    return _affine(picture, (1, amount, 0, 0, 1, 0), resample)


def _shear_y(picture, amount, resample):
    return _affine(picture, (1, 0, 0, amount, 1, 0), resample)


def _translate_x(picture, amount, resample):
    pixels = amount * picture.size[0]
    return _affine(picture, (1, 0, pixels, 0, 1, 0), resample)


def _translate_y(picture, amount, resample):
    pixels = amount * picture.size[1]
    return _affine(picture, (1, 0, 0, 0, 1, pixels), resample)


def _rotate(picture, amount, resample):
    return picture.rotate(amount, resample, fillcolor=_grey(picture))


def _grey(picture):
    return GREY if picture.mode == "L" else (GREY, GREY, GREY)


# The ranges of AutoAugment's table of operations, low magnitude to high. Of the
# four enhancements, a low magnitude weakens, a high one strengthens, and 5 does
# nothing; posterising and solarising weaken as the magnitude grows.
OPERATIONS = {
    "ShearX": Operation(_shear_x, 0, 0.3, signed=True),
    "ShearY": Operation(_shear_y, 0, 0.3, signed=True),
    "TranslateX": Operation(_translate_x, 0, MAX_TRANSLATION, signed=True),
    "TranslateY": Operation(_translate_y, 0, MAX_TRANSLATION, signed=True),
    "Rotate": Operation(_rotate, 0, 30, signed=True),
    "AutoContrast": Operation(_autocontrast),
    "Invert": Operation(_invert),
    "Equalize": Operation(_equalize),
    "Solarize": Operation(_solarize, 0, 256),
    "Posterize": Operation(_posterize, 4, 8),
    "Contrast": Operation(_contrast, 0.1, 1.9),
    "Color": Operation(_color, 0.1, 1.9),
    "Brightness": Operation(_brightness, 0.1, 1.9),
    "Sharpness": Operation(_sharpness, 0.1, 1.9),
    "Identity": Operation(_identity),
}

# The same ranges, laid so that magnitude 0 does nothing and every operation
# grows stronger with it.
GROWING_OPERATIONS = {
    **OPERATIONS,
    "Solarize": Operation(_solarize, 256, 0),
    "Posterize": Operation(_posterize, 8, 4),
    "Contrast": Operation(_contrast, 0, 0.9, signed=True, origin=1),
    "Color": Operation(_color, 0, 0.9, signed=True, origin=1),
    "Brightness": Operation(_brightness, 0, 0.9, signed=True, origin=1),
    "Sharpness": Operation(_sharpness, 0, 0.9, signed=True, origin=1),
}

# AutoAugment's tables of what was found: operation, probability, magnitude,
# twice. The magnitude of an operation that needs none stands as it stands
# there.
POLICIES = {
    "cifar10": (
        (("Invert", 0.1, 7), ("Contrast", 0.2, 6)),
        (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
        (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, 8), ("Equalize", 0.9, 2)),
        (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
        (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, 5), ("Equalize", 0.5, 1)),
        (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
        (("Equalize", 0.3, 7), ("AutoContrast", 0.4, 8)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
        (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, 3)),
        (("Equalize", 0.2, 0), ("AutoContrast", 0.6, 0)),
        (("Equalize", 0.2, 8), ("Equalize", 0.6, 4)),
        (("Color", 0.9, 9), ("Equalize", 0.6, 6)),
        (("AutoContrast", 0.8, 4), ("Solarize", 0.2, 8)),
        (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, 3)),
        (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, 2), ("Solarize", 0.8, 3)),
        (("Equalize", 0.8, 8), ("Invert", 0.1, 3)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, 1)),
    ),
    "imagenet": (
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
        (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
        (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
        (("Equalize", 0.4, 4), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, 7)),
        (("Posterize", 0.8, 5), ("Equalize", 1.0, 2)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
        (("Equalize", 0.6, 8), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
        (("Rotate", 0.4, 9), ("Equalize", 0.6, 2)),
        (("Equalize", 0.0, 7), ("Equalize", 0.8, 8)),
        (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
        (("Sharpness", 0.4, 7), ("Invert", 0.6, 8)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, 9)),
        (("Color", 0.4, 0), ("Equalize", 0.6, 3)),
        (("Equalize", 0.4, 7), ("Solarize", 0.2, 4)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, 5)),
        (("Invert", 0.6, 4), ("Equalize", 1.0, 8)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, 8), ("Equalize", 0.6, 3)),
    ),
}

RANDAUGMENT_OPERATIONS = (
    "Identity",
    "AutoContrast",
    "Equalize",
    "Rotate",
    "Solarize",
    "Color",
    "Posterize",
    "Contrast",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
)


class AutoAugment:
    """One of 25 learned pairs of operations, drawn for each image.

    Args:
        policy: `"imagenet"` or `"cifar10"`, after what it was learned on.
        growing: Lay the ranges of operations so that all grow stronger with
            the magnitude. `False` is the paper's table; torchvision grows.
        interpolation: Filter of rotation and shear: `"nearest"`, `"bilinear"`
            or `"bicubic"`.

    Call arguments:
        image: Array `(height, width, channels)` of uint8, grey (one channel)
            or RGB (three). `Color` leaves grey as it is.
        rng: A `numpy.random.Generator`.

    Raises:
        ValueError: If an argument or an image is of another kind.

    Reference:
        Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data",
        arXiv 1805.09501, appendix A.
    """

    def __init__(
        self, policy="imagenet", growing=False, interpolation="nearest"
    ):
        self.policy = one_of(policy, sorted(POLICIES), "policy")
        self.growing = growing
        self.interpolation = one_of(
            interpolation, INTERPOLATIONS, "interpolation"
        )
        self._filter = Image.Resampling[interpolation.upper()]
        self._operations = GROWING_OPERATIONS if growing else OPERATIONS

    def __call__(self, image, rng):
        picture = to_picture(image)
        pairs = POLICIES[self.policy]
        chosen = pairs[rng.integers(len(pairs))]
        # All draws at once, used or not.
        draws, signs = rng.random(2), rng.integers(2, size=2) * 2 - 1
        for (name, rate, magnitude), draw, sign in zip(chosen, draws, signs):
            if draw < rate:
                operation = self._operations[name]
                amount = operation.amount(magnitude, sign)
                picture = operation.apply(picture, amount, self._filter)
        return to_array(picture)


class RandAugment:
    """A few operations drawn uniformly for each image, with one magnitude.

    Args:
        num_layers: Operations on an image, N in the paper.
        magnitude: M in the paper, in [0, 10].
        magnitude_std: Standard deviation of a normal noise on the magnitude,
            drawn for each operation and cut off at 0 and 10. The paper has
            none.
        growing: Lay the ranges so that all operations grow stronger with the
            magnitude, which is what one magnitude for all is meant for.
            `False` takes the ranges as AutoAugment has them.
        interpolation: Filter of rotation and shear: `"nearest"`, `"bilinear"`
            or `"bicubic"`.

    Call arguments:
        image: Array `(height, width, channels)` of uint8, grey (one channel)
            or RGB (three). `Color` leaves grey as it is.
        rng: A `numpy.random.Generator`.

    Raises:
        ValueError: If an argument or an image is of another kind.

    Reference:
        Cubuk et al., "RandAugment: Practical automated data augmentation with
        a reduced search space", arXiv 1909.13719, section 3.
    """

    def __init__(
        self,
        num_layers=2,
        magnitude=9,
        magnitude_std=0.0,
        growing=True,
        interpolation="nearest",
    ):
        if not is_number(magnitude) or not 0 <= magnitude <= MAX_MAGNITUDE:
            raise ValueError(
                f"`magnitude` must be a number in [0, {MAX_MAGNITUDE}]. "
                f"Received: magnitude={magnitude!r}"
            )
        if not is_number(magnitude_std) or magnitude_std < 0:
            raise ValueError(
                "`magnitude_std` must be a number and not negative. "
                f"Received: magnitude_std={magnitude_std!r}"
            )
        self.num_layers = positive_integer(num_layers, "num_layers")
        self.magnitude = magnitude
        self.magnitude_std = magnitude_std
        self.growing = growing
        self.interpolation = one_of(
            interpolation, INTERPOLATIONS, "interpolation"
        )
        self._filter = Image.Resampling[interpolation.upper()]
        self._operations = GROWING_OPERATIONS if growing else OPERATIONS

    def __call__(self, image, rng):
        picture = to_picture(image)
        layers = self.num_layers
        chosen = rng.integers(len(RANDAUGMENT_OPERATIONS), size=layers)
        signs = rng.integers(2, size=layers) * 2 - 1
        noise = self.magnitude_std * rng.normal(size=layers)
        strength = np.clip(self.magnitude + noise, 0, MAX_MAGNITUDE)
        for index, sign, magnitude in zip(chosen, signs, strength):
            operation = self._operations[RANDAUGMENT_OPERATIONS[index]]
            amount = operation.amount(magnitude, sign)
            picture = operation.apply(picture, amount, self._filter)
        return to_array(picture)


def to_picture(image):
    """A Pillow image, grey or RGB.

    Raises:
        ValueError: If the array is not of 8 bits, or has other channels.
    """
    check_image(image)
    if image.dtype != np.uint8:
        raise ValueError(
            "A policy needs 8-bit pixels: use it before images are scaled. "
            f"Received: image.dtype={image.dtype}"
        )
    if image.shape[-1] not in (1, 3):
        raise ValueError(
            "A policy needs one channel (grey) or three (RGB). "
            f"Received: image.shape={image.shape}"
        )
    grey = image.shape[-1] == 1
    return Image.fromarray(
        np.ascontiguousarray(image[..., 0] if grey else image)
    )


def to_array(picture):
    """Array `(height, width, channels)` of a Pillow image."""
    array = np.asarray(picture)
    return array[..., None] if picture.mode == "L" else array
