import pickle
import threading
import time

import keras
import numpy as np
import pytest
import scipy.stats

from mlp_mixers.data import AutoAugment
from mlp_mixers.data import Compose
from mlp_mixers.data import FollowEpochs
from mlp_mixers.data import ImageBatches
from mlp_mixers.data import Mixing
from mlp_mixers.data import RandomResizedCrop
from mlp_mixers.data import RandomShift
from mlp_mixers.data.look_ahead import LookAhead


def batches(**arguments):
    images = np.arange(10, dtype="float32")[:, None, None, None] + 1
    images = np.broadcast_to(images, (10, 4, 4, 1))
    return ImageBatches(images, np.arange(10), batch_size=4, **arguments)


def epoch(dataset):
    parts = [dataset[i] for i in range(len(dataset))]
    return tuple(np.concatenate(column) for column in zip(*parts))


class Photos:
    """Ten images of different sizes, made when they are asked for."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        size = (6 + index, 12 - index // 2, 3)
        return rng.integers(0, 256, size, np.uint8)


def normalise(image):
    return image.astype("float32") / 127.5 - 1


def augmented(**arguments):
    """The whole way: crop, policy, normalisation, mixing."""
    settings = {
        "batch_size": 4,
        "seed": 3,
        "augmentation": Compose([RandomResizedCrop(8), AutoAugment()]),
        "preprocessor": normalise,
        "num_classes": 5,
        "label_smoothing": 0.1,
    }
    return ImageBatches(
        Photos(), np.arange(10) % 5, **{**settings, **arguments}
    )


# Order, labels.


def test_an_epoch_has_every_sample_once_with_its_label():
    dataset = batches()
    assert [len(dataset[i][1]) for i in range(len(dataset))] == [4, 4, 2]
    images, labels = epoch(dataset)
    assert sorted(labels) == list(range(10))
    np.testing.assert_array_equal(images[:, 0, 0, 0], labels + 1)


def test_epochs_differ_and_follow_from_the_seed():
    first, second = batches(seed=1, max_shift=1), batches(seed=1, max_shift=1)
    for _ in range(3):
        np.testing.assert_array_equal(epoch(first)[0], epoch(second)[0])
        before = epoch(first)[1]
        first.on_epoch_end()
        second.on_epoch_end()
        assert (epoch(first)[1] != before).any()
    other = batches(seed=2, max_shift=1)
    assert (epoch(other)[1] != epoch(batches(seed=1))[1]).any()


def test_an_epoch_can_be_chosen():
    dataset = batches(max_shift=1)
    dataset.epoch = 7
    later = epoch(dataset)
    dataset.epoch = 0
    first = epoch(dataset)
    assert (later[1] != first[1]).any()
    for got, expected in zip(epoch(batches(first_epoch=7, max_shift=1)), later):
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="epoch=-1"):
        dataset.epoch = -1


def test_without_shuffling_the_order_stays():
    dataset = batches(shuffle=False)
    np.testing.assert_array_equal(epoch(dataset)[1], range(10))
    dataset.on_epoch_end()
    np.testing.assert_array_equal(epoch(dataset)[1], range(10))


def test_a_remainder_can_be_dropped():
    dataset = batches(drop_remainder=True)
    assert [len(dataset[i][1]) for i in range(len(dataset))] == [4, 4]
    with pytest.raises(ValueError, match="batch_size=16, 10 images"):
        ImageBatches(
            np.zeros((10, 2, 2, 1)), np.zeros(10), 16, drop_remainder=True
        )


def test_targets_are_one_hot_if_classes_are_counted():
    _, targets = batches(num_classes=12, shuffle=False)[0]
    np.testing.assert_array_equal(targets, np.eye(12, dtype="float32")[:4])
    _, targets = batches(num_classes=12, label_smoothing=0.12)[0]
    assert targets.dtype == np.float32
    np.testing.assert_allclose(targets.max(-1), 0.89, atol=1e-6)
    np.testing.assert_allclose(targets.min(-1), 0.01, atol=1e-6)


# Shifts.


def test_shifts_reach_their_limit_and_no_further():
    images = np.zeros((200, 5, 5, 1), "float32")
    images[:, 2, 2] = 1
    dataset = ImageBatches(images, np.zeros(200), 200, max_shift=1)
    _, rows, columns, _ = np.nonzero(dataset[0][0])
    assert set(rows) == set(columns) == {1, 2, 3}
    for places in (rows, columns):
        counts = np.bincount(places)[1:]
        assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_shifts_are_the_samples_own():
    """The same sample is shifted alike in batches of another size."""
    images = np.random.default_rng(0).random((12, 6, 6, 1))
    results = []
    for size in (1, 5, 12):
        dataset = ImageBatches(images, np.arange(12), size, max_shift=2)
        shifted, labels = epoch(dataset)
        results.append(shifted[np.argsort(labels)])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


# Augmentation.


def test_two_equal_images_come_out_different():
    images = np.repeat(np.arange(64, dtype="uint8"), 3).reshape(1, 8, 8, 3)
    images = np.repeat(images, 8, axis=0)
    dataset = ImageBatches(
        images, np.zeros(8), 8, augmentation=RandomResizedCrop(8)
    )
    assert len({image.tobytes() for image in dataset[0][0]}) == 8


def test_augmentation_depends_on_seed_epoch_and_sample_alone():
    """Not on the batch, nor on the order, nor on what was made before."""
    results = []
    for size, shuffle in ((1, True), (3, True), (10, False)):
        dataset = augmented(
            batch_size=size,
            shuffle=shuffle,
            num_classes=None,
            label_smoothing=0.0,
        )
        dataset._make.labels = np.arange(10)
        dataset.epoch = 2
        images, labels = epoch(dataset)
        results.append(images[np.argsort(labels)])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_what_happens_to_a_sample_is_what_its_generator_draws():
    dataset = augmented(shuffle=False, batch_size=10, first_epoch=5)
    images, _ = dataset[0]
    crop, policy = RandomResizedCrop(8), AutoAugment()
    for sample in range(10):
        rng = np.random.default_rng([3, 5, sample])
        image = policy(crop(Photos()[sample], rng), rng)
        np.testing.assert_array_equal(images[sample], normalise(image))


def test_mixing_comes_last():
    plain = augmented()[0]
    images, targets = augmented(mixing=Mixing())[0]
    assert images.shape == plain[0].shape
    assert (images != plain[0]).any()
    np.testing.assert_allclose(targets.sum(-1), 1, atol=1e-6)
    again = augmented(mixing=Mixing())[0]
    np.testing.assert_array_equal(images, again[0])
    np.testing.assert_array_equal(targets, again[1])


def test_plain_arrays_can_be_mixed_too():
    images, targets = batches(num_classes=10, mixing=Mixing(cutmix_alpha=0))[0]
    values = images[:, 0, 0, 0] - 1
    np.testing.assert_allclose(targets @ np.arange(10), values, rtol=1e-5)


def test_images_of_two_sizes_need_a_preprocessor():
    dataset = ImageBatches(Photos(), np.zeros(10), 4)
    with pytest.raises(ValueError, match=r"one size.*\(\d+, \d+, 3\)"):
        dataset[0]


# Workers.


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_change_nothing(workers):
    alone = augmented(mixing=Mixing())
    together = augmented(mixing=Mixing(), workers=workers, max_queue_size=2)
    for _ in range(3):
        for got, expected in zip(epoch(together), epoch(alone)):
            np.testing.assert_array_equal(got, expected)
        alone.on_epoch_end()
        together.on_epoch_end()
    together.close()


def test_any_order_of_batches_and_epochs():
    alone, together = augmented(), augmented(workers=2, max_queue_size=1)
    for number, index in [(0, 2), (0, 0), (4, 1), (4, 1), (0, 0), (4, 2)]:
        alone.epoch = together.epoch = number
        np.testing.assert_array_equal(together[index][0], alone[index][0])
    together.close()


def test_processes_change_nothing():
    alone = batches(max_shift=1)
    apart = batches(max_shift=1, workers=1, use_multiprocessing=True)
    for _ in range(2):
        for got, expected in zip(epoch(apart), epoch(alone)):
            np.testing.assert_array_equal(got, expected)
        alone.on_epoch_end()
        apart.on_epoch_end()
    apart.close()


def test_what_makes_batches_can_be_pickled():
    make = augmented()._make
    copy = pickle.loads(pickle.dumps(make))
    np.testing.assert_array_equal(copy(1, 0)[0], make(1, 0)[0])


def test_an_error_in_a_worker_is_raised():
    dataset = ImageBatches(Photos(), np.zeros(10), 4, workers=2)
    with pytest.raises(ValueError, match="one size"):
        dataset[0]
    dataset.close()


def test_batches_are_made_ahead_and_old_ones_thrown_away():
    made, lock = [], threading.Lock()

    def make(epoch, index):
        with lock:
            made.append((epoch, index))
        return epoch, index

    ahead = LookAhead(make, 2, depth=3)
    assert ahead.get(0, 0, 9) == (0, 0)
    deadline = time.monotonic() + 10
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(made) == [(0, i) for i in range(4)]
    assert ahead.get(1, 0, 2) == (1, 0)
    assert [ahead.get(1, i, 2) for i in (1, 0, 1)] == [(1, 1), (1, 0), (1, 1)]
    assert all(epoch == 1 for epoch, _ in ahead._pending)
    ahead.close()
    assert ahead.get(2, 0, 1) == (2, 0)
    ahead.close()


# Keras.


def noise(**arguments):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(10, 2, 2, 1)).astype("float32")
    labels = rng.normal(size=10).astype("float32")
    return ImageBatches(images, labels, 4, max_shift=1, **arguments)


def descend(dataset, kernel, epochs, rate):
    """Stochastic gradient descent of a linear model, in NumPy."""
    for number in epochs:
        dataset.epoch = number
        for index in range(len(dataset)):
            images, labels = dataset[index]
            x = images.reshape(len(images), -1)
            error = x @ kernel - labels
            kernel = kernel - rate * 2 * x.T @ error / len(x)
    return kernel


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("initial_epoch", [0, 2])
def test_fit_trains_on_the_epochs_it_says(workers, initial_epoch):
    """What Keras fed is known by where it ended: every order ends elsewhere.

    The second `fit` starts with a model that is built, the first does not;
    Keras peeks at the data only then.
    """
    dataset = noise(workers=workers)
    dense = keras.layers.Dense(1, use_bias=False)
    model = keras.Sequential(
        [keras.Input((2, 2, 1)), keras.layers.Flatten(), dense]
    )
    model.compile(keras.optimizers.SGD(0.3), "mse")
    kernel = keras.ops.convert_to_numpy(dense.kernel)[:, 0]
    for first, last in ((initial_epoch, 4), (4, 6)):
        model.fit(
            dataset,
            initial_epoch=first,
            epochs=last,
            shuffle=False,
            verbose=0,
            callbacks=[FollowEpochs(dataset)],
        )
        others = descend(noise(), kernel, range(first + 1, last + 1), 0.3)
        kernel = descend(noise(), kernel, range(first, last), 0.3)
        trained = keras.ops.convert_to_numpy(dense.kernel)[:, 0]
        np.testing.assert_allclose(trained, kernel, rtol=1e-4, atol=1e-5)
        assert abs(others - kernel).max() > 1e-3
    dataset.close()


# What is wrong.


def test_lists_are_taken_and_flat_images_are_not():
    dataset = ImageBatches(np.zeros((2, 2, 2, 1)).tolist(), [0, 1])
    assert dataset[0][0].shape == (2, 2, 2, 1)
    dataset = ImageBatches([np.zeros((2, 2, 1))] * 2, [0, 1])
    assert dataset[0][0].shape == (2, 2, 2, 1)
    with pytest.raises(ValueError, match=r"images.shape=\(2, 4\)"):
        ImageBatches(np.zeros((2, 4)), [0, 1])


@pytest.mark.parametrize(
    ("images", "labels", "arguments", "message"),
    [
        (0, 0, {}, "at least one image.*0 images"),
        (3, 2, {}, "3 images, 2 labels"),
        (3, 3, {"batch_size": 0}, "batch_size=0"),
        (3, 3, {"max_shift": -1}, "max_shift=-1"),
        (3, 3, {"max_shift": 1.5}, "max_shift=1.5"),
        (3, 3, {"seed": -1}, "seed=-1"),
        (3, 3, {"first_epoch": 0.5}, "epoch=0.5"),
        (3, 3, {"workers": 0}, "workers=0"),
        (3, 3, {"workers": 2, "max_queue_size": 0}, "max_queue_size=0"),
        (3, 3, {"num_classes": 0}, "num_classes=0"),
        (3, [0, 3, 1], {"num_classes": 3}, "num_classes - 1 = 2.* 3"),
        (3, [0.0, 1.0, 1.0], {"num_classes": 3}, "dtype=float64"),
        (3, 3, {"label_smoothing": 0.1}, "need one-hot"),
        (3, 3, {"mixing": Mixing()}, "need one-hot"),
        (3, 3, {"label_smoothing": 2, "num_classes": 3}, "label_smoothing=2"),
        (
            3,
            3,
            {"max_shift": 1, "augmentation": RandomShift(1)},
            "put a `RandomShift`",
        ),
    ],
)
def test_wrong_data(images, labels, arguments, message):
    if isinstance(labels, int):
        labels = np.zeros(labels, int)
    with pytest.raises(ValueError, match=message):
        ImageBatches(np.zeros((images, 2, 2, 1)), labels, **arguments)


@pytest.mark.parametrize("index", [-1, 3])
def test_there_is_no_batch_beyond_the_last(index, rng):
    batches = ImageBatches(rng.random((5, 2, 2, 1)), np.arange(5), 2)
    with pytest.raises(IndexError, match="There are 3 batches"):
        batches[index]
