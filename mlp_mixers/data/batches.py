"""Batches of images whose every draw follows from the seed."""

import numpy as np

from mlp_mixers.arguments import natural_number
from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.augmentation import probability
from mlp_mixers.data.augmentation import shift_images
from mlp_mixers.data.epochs import EpochBatches
from mlp_mixers.data.epochs import number_of_batches
from mlp_mixers.data.mixing import check_labels
from mlp_mixers.data.mixing import one_hot


class ImageBatches(EpochBatches):
    """Shuffled, augmented, mixed batches that can be made again.

    An image goes through `augmentation`, then `preprocessor`, and the batch
    through `mixing`. The order of an epoch is a function of (seed, epoch), and
    what happens to an image in it of (seed, epoch, sample), whatever the batch
    size and the number of workers; who is mixed with whom follows from the
    order.

    In `fit`, pass `shuffle=False`, since Keras would shuffle the batches once
    more with random numbers of its own, and `FollowEpochs(batches)` as a
    callback, so that epoch 5 of the training is epoch 5 of the data. Without
    it, `epoch` counts the calls of `on_epoch_end`, of which Keras makes one
    too many before the first epoch of each `fit`. Leave `steps_per_epoch`
    alone: it cuts passes over the data into pieces, and an epoch here is a
    whole pass.

    Args:
        images: A sequence of images: uint8 arrays `(height, width, channels)`
            or float arrays in [0, 1]. An array `(samples, height, width,
            channels)` is one.
        labels: Array of shape `(samples,)`.
        batch_size: Samples in a batch; the last one may be smaller.
        shuffle: Whether to shuffle anew each epoch.
        max_shift: Largest shift in pixels, each way; 0 for none. `RandomShift`
            for a whole batch at once, and only for an array of images that
            nothing else happens to.
        seed: Integer, not negative.
        augmentation: Callable `(image, rng) -> image`.
        preprocessor: Callable `(image) -> image` that makes an image the
            model's input: of one size, normalised, float32.
        mixing: Callable `(images, targets, rngs) -> (images, targets)`, as
            `Mixing`.
        num_classes: With it, integer labels become float32 rows of this
            length.
        label_smoothing: Share of each such row that is spread over all
            classes.
        first_epoch: What `epoch` is at first.
        drop_remainder: Whether to leave out a last, smaller batch.
        workers: With two or more, batches are made ahead, by so many threads;
            with one, when they are asked for.
        use_multiprocessing: Whether workers are processes, each of which
            imports this package and gets a copy of the images.
        max_queue_size: How many batches are made ahead.

    Raises:
        ValueError: If there are no samples, not one label for each, or an
            argument is out of range. When a batch is made: if its images have
            different sizes.
    """

    def __init__(
        self,
        images,
        labels,
        batch_size=64,
        shuffle=True,
        max_shift=0,
        seed=0,
        *,
        augmentation=None,
        preprocessor=None,
        mixing=None,
        num_classes=None,
        label_smoothing=0.0,
        first_epoch=0,
        drop_remainder=False,
        workers=1,
        use_multiprocessing=False,
        max_queue_size=10,
    ):
        make = BatchMaker(
            images,
            labels,
            batch_size,
            shuffle,
            max_shift,
            seed,
            augmentation,
            preprocessor,
            mixing,
            num_classes,
            label_smoothing,
            drop_remainder,
        )
        super().__init__(
            make, first_epoch, workers, use_multiprocessing, max_queue_size
        )


class BatchMaker:
    """The batch as a function of (epoch, index); see `ImageBatches`."""

    def __init__(
        self,
        images,
        labels,
        batch_size,
        shuffle,
        max_shift,
        seed,
        augmentation,
        preprocessor,
        mixing,
        num_classes,
        label_smoothing,
        drop_remainder,
    ):
        self.images = check_images(images)
        self.labels = np.asarray(labels)
        if len(self.images) == 0 or len(self.images) != len(self.labels):
            raise ValueError(
                "There must be at least one image, and a label for each. "
                f"Received: {len(self.images)} images, "
                f"{len(self.labels)} labels"
            )
        self.batch_size = positive_integer(batch_size, "batch_size")
        self.shuffle = shuffle
        self.max_shift = natural_number(max_shift, "max_shift")
        self.seed = natural_number(seed, "seed")
        self.augmentation = augmentation
        self.preprocessor = preprocessor
        self.mixing = mixing
        self.num_classes = num_classes
        self.label_smoothing = probability(label_smoothing, "label_smoothing")
        self.drop_remainder = drop_remainder
        self._check_together()
        self._drawn = None  # what `_draws` returned last, and its epoch

    def __len__(self):
        rows = len(self.images)
        return number_of_batches(rows, self.batch_size, self.drop_remainder)

    def __call__(self, epoch, index):
        order, shifts = self._draws(epoch)
        start = index * self.batch_size
        chosen = order[start : start + self.batch_size]
        if self._as_array():
            images = self.images[chosen]
            if self.max_shift:
                images = shift_images(images, shifts[chosen])
            rngs = self._rngs(epoch, chosen) if self.mixing else None
        else:
            rngs = self._rngs(epoch, chosen)
            images = self._stack(chosen, rngs)
        if self.num_classes is None:
            return images, self.labels[chosen]
        targets = one_hot(
            self.labels[chosen], self.num_classes, self.label_smoothing
        )
        if self.mixing is not None:
            images, targets = self.mixing(images, targets, rngs)
        return images, targets

    def _as_array(self):
        """Whether all images of a batch can be handled at once."""
        return (
            isinstance(self.images, np.ndarray)
            and self.augmentation is None
            and self.preprocessor is None
        )

    def _stack(self, chosen, rngs):
        images = []
        for sample, rng in zip(chosen, rngs):
            image = self.images[int(sample)]
            if self.augmentation is not None:
                image = self.augmentation(image, rng)
            if self.preprocessor is not None:
                image = self.preprocessor(image)
            images.append(image)
        shapes = sorted({np.shape(image) for image in images})
        if len(shapes) > 1:
            raise ValueError(
                "Images of one batch must have one size; give a "
                "`preprocessor`, or a crop as `augmentation`. "
                f"Received: images of shapes {shapes[0]}, {shapes[1]}"
            )
        return np.stack(images)

    def _rngs(self, epoch, samples):
        """A generator for each sample, whoever else is in its batch."""
        return [
            np.random.default_rng([self.seed, epoch, int(sample)])
            for sample in samples
        ]

    def _draws(self, epoch):
        """The order of an epoch, and its shifts, kept until the next one.

        Threads that come here at the same time draw the same.
        """
        drawn = self._drawn
        if drawn is None or drawn[0] != epoch:
            rng = np.random.default_rng([self.seed, epoch])
            samples, reach = len(self.images), self.max_shift
            order = (
                rng.permutation(samples) if self.shuffle else np.arange(samples)
            )
            shifts = None
            if reach:
                shifts = rng.integers(-reach, reach, (samples, 2), int, True)
            self._drawn = drawn = epoch, order, shifts
        return drawn[1:]

    def _check_together(self):
        """Raises a ValueError for arguments that do not go together."""
        if self.max_shift and not self._as_array():
            raise ValueError(
                "`max_shift` is for an array of images without `augmentation` "
                "and `preprocessor`; put a `RandomShift` into the "
                f"`augmentation`. Received: max_shift={self.max_shift!r}"
            )
        if self.num_classes is not None:
            self.num_classes = positive_integer(self.num_classes, "num_classes")
            check_labels(self.labels, self.num_classes)
        elif self.mixing is not None or self.label_smoothing:
            raise ValueError(
                "`mixing` and `label_smoothing` need one-hot targets: give "
                "`num_classes`. Received: num_classes=None"
            )
        if len(self) == 0:
            raise ValueError(
                "Without the remainder there is no batch: lower `batch_size` "
                "or set `drop_remainder=False`. Received: "
                f"batch_size={self.batch_size}, {len(self.images)} images"
            )


def check_images(images):
    """Returns a sequence of images, an array if it can be one.

    Raises:
        ValueError: If it is an array without four axes.
    """
    if isinstance(images, (list, tuple)) and not (
        images and hasattr(images[0], "shape")
    ):
        images = np.asarray(images)
    shape = getattr(images, "shape", None)
    if shape is not None and len(shape) != 4 and shape != (0,):
        raise ValueError(
            "Images must have shape (samples, height, width, channels). "
            f"Received: images.shape={shape}"
        )
    return images
