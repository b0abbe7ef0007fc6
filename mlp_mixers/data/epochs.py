"""Batches that are functions of (epoch, index), as Keras asks for them."""

import keras
import numpy as np

from mlp_mixers.arguments import natural_number
from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.look_ahead import LookAhead


class EpochBatches(keras.utils.PyDataset):
    """Base of the data sets whose every draw follows from the seed.

    Args:
        make: Callable `(epoch, index) -> batch`, with a length.
        first_epoch: What `epoch` is at first.
        workers: With two or more, batches are made ahead, by so many threads;
            with one, when they are asked for.
        use_multiprocessing: Whether workers are processes.
        max_queue_size: How many batches are made ahead.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        make,
        first_epoch=0,
        workers=1,
        use_multiprocessing=False,
        max_queue_size=10,
    ):
        # Keras is told of one worker, so that it asks for batches in order:
        # see `LookAhead`.
        super().__init__(workers=1, use_multiprocessing=False)
        self._make = make
        self.epoch = first_epoch
        workers = positive_integer(workers, "workers")
        depth = positive_integer(max_queue_size, "max_queue_size")
        self._look_ahead = None
        if workers > 1 or use_multiprocessing:
            self._look_ahead = LookAhead(
                make, workers, use_multiprocessing, depth
            )

    @property
    def epoch(self):
        """The epoch that batches are made for."""
        return self._epoch

    @epoch.setter
    def epoch(self, value):
        self._epoch = natural_number(value, "epoch")

    def __len__(self):
        return len(self._make)

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(
                f"There are {len(self)} batches. Received: index={index}"
            )
        if self._look_ahead is None:
            return self._make(self.epoch, index)
        return self._look_ahead.get(self.epoch, index, len(self))

    def on_epoch_end(self):
        self.epoch += 1

    def close(self):
        """Ends the workers. They start again if a batch is asked for."""
        if self._look_ahead is not None:
            self._look_ahead.close()


class EpochOrder:
    """The order of rows in an epoch, a function of (seed, epoch).

    It is kept until another epoch is asked for. Threads that ask at the same
    time draw the same.

    Args:
        num_rows: How many there are.
        seed: Integer, not negative; `None` leaves them as they are.
        *stream: Integers that tell this order from other draws of the seed.
    """

    def __init__(self, num_rows, seed, *stream):
        self._num_rows, self._seed, self._stream = num_rows, seed, stream
        self._drawn = None  # the last order drawn, and its epoch

    def __call__(self, epoch):
        """Integers `(num_rows,)`."""
        if self._seed is None:
            return np.arange(self._num_rows)
        drawn = self._drawn
        if drawn is None or drawn[0] != epoch:
            rng = np.random.default_rng([self._seed, epoch, *self._stream])
            self._drawn = drawn = epoch, rng.permutation(self._num_rows)
        return drawn[1]


def number_of_batches(rows, batch_size, drop_remainder):
    """How many batches so many rows make."""
    return rows // batch_size if drop_remainder else -(-rows // batch_size)


class FollowEpochs(keras.callbacks.Callback):
    """Tells the data which epoch the training is in.

    `fit` does not, neither when it starts at an `initial_epoch` nor when a
    callback restores an interrupted training.

    Args:
        batches: An `ImageBatches`, a `MaskedLMBatches`, or anything with an
            attribute `epoch`.
    """

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.epoch = epoch
