"""Images and targets of one batch mixed with each other: mixup, cutmix."""

import math

import numpy as np

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.augmentation import is_number
from mlp_mixers.data.augmentation import probability


def one_hot(labels, num_classes, smoothing=0.0):
    """Integer labels as rows of probabilities.

    The row of label y is (1 - s) e_y + s / K, with smoothing s and K classes:
    the label keeps 1 - s + s / K and every other class gets s / K.

    Args:
        labels: Integer array of shape `(samples,)`.
        num_classes: K.
        smoothing: s, in [0, 1].

    Returns:
        Float32 array of shape `(samples, num_classes)`.

    Raises:
        ValueError: If a label is no class, or an argument is out of range.

    Reference:
        Szegedy et al., "Rethinking the Inception Architecture for Computer
        Vision", arXiv 1512.00567, section 7.
    """
    num_classes = positive_integer(num_classes, "num_classes")
    smoothing = probability(smoothing, "smoothing")
    labels = check_labels(labels, num_classes)
    targets = np.full(
        (len(labels), num_classes), smoothing / num_classes, "float32"
    )
    targets[np.arange(len(labels)), labels] += 1 - smoothing
    return targets


def check_labels(labels, num_classes):
    """Returns the labels as an array.

    Raises:
        ValueError: If they are not integers from 0 to `num_classes` - 1.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            "Labels must be integers, one for each image. Received: "
            f"labels.shape={labels.shape}, labels.dtype={labels.dtype}"
        )
    wrong = labels[(labels < 0) | (labels >= num_classes)]
    if len(wrong):
        raise ValueError(
            f"Labels must lie between 0 and num_classes - 1 = "
            f"{num_classes - 1}. Received: {len(wrong)} others, the first "
            f"of them {wrong[0]}"
        )
    return labels


class Mixing:
    """Mixes each image of a batch with the next one, and their targets too.

    With λ drawn from Beta(α, α) for each image, mixup gives

        x' = λ x_i + (1 - λ) x_j,    y' = λ y_i + (1 - λ) y_j

    and cutmix covers a rectangle of x_i with the same place of x_j. The
    rectangle has sides √(1 - λ) times the image's and a uniform centre, and is
    cut off at the border; λ in y' is then the share of x_i that is left.
    Whether, how and how strongly an image is mixed, all is drawn per image.

    The partner j is the next image of the batch, the first one's for the last.
    The order of a shuffled batch is random, so the partner is; and it is never
    the image itself, but in a batch of one, which stays as it is.

    Args:
        mixup_alpha: α of mixup; 0 for cutmix alone.
        cutmix_alpha: α of cutmix; 0 for mixup alone.
        switch_rate: Probability of cutmix, where there are both.
        rate: Probability that an image is mixed at all.

    Call arguments:
        images: Float array of shape `(batch, height, width, channels)`,
            normalised.
        targets: Float array of shape `(batch, num_classes)`.
        rngs: `batch` many `numpy.random.Generator`s.

    Returns:
        `(images, targets)`, new arrays like the two.

    Raises:
        ValueError: If an argument is out of range, or integers are mixed.

    Reference:
        Zhang et al., "mixup: Beyond Empirical Risk Minimization", arXiv
        1710.09412, section 2. Yun et al., "CutMix", arXiv 1905.04899,
        section 3.1.
    """

    def __init__(
        self, mixup_alpha=0.8, cutmix_alpha=1.0, switch_rate=0.5, rate=1.0
    ):
        for name, value in (
            ("mixup_alpha", mixup_alpha),
            ("cutmix_alpha", cutmix_alpha),
        ):
            if not is_number(value) or value < 0:
                raise ValueError(
                    f"`{name}` must be a number and not negative. "
                    f"Received: {name}={value!r}"
                )
        if mixup_alpha == cutmix_alpha == 0:
            raise ValueError(
                "One of `mixup_alpha` and `cutmix_alpha` must be above 0; "
                "leave the mixing out to mix nothing. Received: "
                f"mixup_alpha={mixup_alpha!r}, cutmix_alpha={cutmix_alpha!r}"
            )
        self.mixup_alpha = float(mixup_alpha)
        self.cutmix_alpha = float(cutmix_alpha)
        self.switch_rate = probability(switch_rate, "switch_rate")
        self.rate = probability(rate, "rate")

    def __call__(self, images, targets, rngs):
        for name, array in (("images", images), ("targets", targets)):
            if not np.issubdtype(array.dtype, np.floating):
                raise ValueError(
                    f"Only floats can be mixed; normalise images and make "
                    f"labels one-hot. Received: {name}.dtype={array.dtype}"
                )
        if len(images) == 1:
            return images.copy(), targets.copy()
        mixed, weights = images.copy(), np.ones(len(images), targets.dtype)
        for i, rng in enumerate(rngs):
            partner = images[(i + 1) % len(images)]
            if rng.random() < self.rate:
                weights[i] = self._mix(mixed[i], partner, rng)
        weights = weights[:, None]
        others = np.roll(targets, -1, axis=0)
        return mixed, weights * targets + (1 - weights) * others

    def _mix(self, image, partner, rng):
        """Changes the image in place; returns how much of it is left."""
        if self._is_cutmix(rng):
            kept = rng.beta(self.cutmix_alpha, self.cutmix_alpha)
            box, kept = draw_box(*image.shape[:2], kept, rng)
            image[box] = partner[box]
            return kept
        kept = image.dtype.type(rng.beta(self.mixup_alpha, self.mixup_alpha))
        image *= kept
        image += (1 - kept) * partner
        return kept

    def _is_cutmix(self, rng):
        if 0 in (self.mixup_alpha, self.cutmix_alpha):
            return self.mixup_alpha == 0
        return rng.random() < self.switch_rate


def draw_box(height, width, kept, rng):
    """A random rectangle of about the area that is not kept.

    Args:
        height, width: Of the image.
        kept: Share of the image outside of the rectangle, before the
            rectangle is cut off at the border.
        rng: A `numpy.random.Generator`.

    Returns:
        The rectangle as two slices, and the share that is left outside.
    """
    side = math.sqrt(1 - kept)
    slices, area = [], 1.0
    for length in (height, width):
        extent = round(length * side)
        start = int(rng.integers(length)) - extent // 2
        low, high = max(start, 0), min(start + extent, length)
        slices.append(slice(low, high))
        area *= (high - low) / length
    return tuple(slices), 1 - area
