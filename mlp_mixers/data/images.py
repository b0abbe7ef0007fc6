"""Images as arrays: the embedded digits, batches, shifts."""

import dataclasses

import keras
import numpy as np

from mlp_mixers.arguments import positive_integer

# The one split of the digits, so that results can be compared.
DIGITS_SEED = 0


@dataclasses.dataclass(frozen=True)
class Split:
    """Images and labels for training, validation and test.

    Each of the three is `(images, labels)`: float32 of shape `(samples,
    height, width, channels)`, and int32 of shape `(samples,)`.
    """

    train: tuple
    validation: tuple
    test: tuple
    class_names: tuple


def load_digits():
    """The handwritten digits that scikit-learn carries inside itself.

    1,797 grey 8x8 images of real digits by 43 writers (UCI, 1998), scaled to
    [0, 1] and split once and for all: 20% test, 10% validation, 70% training,
    with every class in proportion.

    Returns:
        A `Split` of 1,257, 180 and 360 samples, images `(samples, 8, 8, 1)`.
    """
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    digits = datasets.load_digits()
    images = (digits.images / 16.0).astype("float32")[..., None]
    labels = digits.target.astype("int32")

    def cut(images, labels, size):
        a, b, a_labels, b_labels = train_test_split(
            images,
            labels,
            test_size=size,
            stratify=labels,
            random_state=DIGITS_SEED,
        )
        return (a, a_labels), (b, b_labels)

    rest, test = cut(images, labels, 360)
    train, validation = cut(*rest, 180)
    names = tuple(str(digit) for digit in range(10))
    return Split(train, validation, test, names)


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


class ImageBatches(keras.utils.PyDataset):
    """Shuffled, shifted batches whose every draw follows from the seed.

    The order of an epoch and the shift of a sample in it are functions of
    (seed, epoch, sample), so a run can be repeated, and an epoch too. Pass
    `shuffle=False` to `fit`, which would shuffle the batches once more, with
    random numbers of its own.

    Args:
        images: Array of shape `(samples, height, width, channels)`.
        labels: Array of shape `(samples,)`.
        batch_size: Samples in a batch; the last one may be smaller.
        shuffle: Whether to shuffle anew each epoch.
        max_shift: Largest shift in pixels, each way; 0 for none.
        seed: Integer.
        **kwargs: `workers` and such of `keras.utils.PyDataset`.

    Raises:
        ValueError: If there are no samples, or not one label for each.
    """

    def __init__(
        self,
        images,
        labels,
        batch_size=64,
        shuffle=True,
        max_shift=0,
        seed=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        images, labels = np.asarray(images), np.asarray(labels)
        if images.ndim != 4:
            raise ValueError(
                "Images must have shape (samples, height, width, channels). "
                f"Received: images.shape={images.shape}"
            )
        if len(images) == 0 or len(images) != len(labels):
            raise ValueError(
                "There must be at least one image, and a label for each. "
                f"Received: {len(images)} images, {len(labels)} labels"
            )
        if not isinstance(max_shift, int) or max_shift < 0:
            raise ValueError(
                "`max_shift` must be an integer and not negative. "
                f"Received: max_shift={max_shift!r}"
            )
        self.images = images
        self.labels = labels
        self.batch_size = positive_integer(batch_size, "batch_size")
        self.shuffle = shuffle
        self.max_shift = max_shift
        self.seed = seed
        self.epoch = 0
        self._draw()

    def __len__(self):
        return -(-len(self.images) // self.batch_size)

    def __getitem__(self, index):
        start = index * self.batch_size
        chosen = self._order[start : start + self.batch_size]
        images = self.images[chosen]
        if self.max_shift:
            images = shift_images(images, self._shifts[chosen])
        return images, self.labels[chosen]

    def on_epoch_end(self):
        self.epoch += 1
        self._draw()

    def _draw(self):
        """All random numbers of the epoch at once."""
        rng = np.random.default_rng([self.seed, self.epoch])
        samples = len(self.images)
        self._order = (
            rng.permutation(samples) if self.shuffle else np.arange(samples)
        )
        self._shifts = rng.integers(
            -self.max_shift, self.max_shift, (samples, 2), endpoint=True
        )
