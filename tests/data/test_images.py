import numpy as np
import pytest
import scipy.ndimage
from sklearn import datasets

from mlp_mixers.data import ImageBatches
from mlp_mixers.data import load_digits
from mlp_mixers.data import shift_images


def test_digits_are_all_there_once_and_in_proportion():
    split = load_digits()
    parts = (split.train, split.validation, split.test)
    assert [len(images) for images, _ in parts] == [1257, 180, 360]
    original = datasets.load_digits()
    images = np.concatenate([part[0] for part in parts])
    assert images.dtype == np.float32
    assert images.shape == (1797, 8, 8, 1)

    def as_set(images, labels):
        return sorted(
            (image.tobytes(), int(label))
            for image, label in zip(images, labels)
        )

    assert as_set(
        (images[..., 0] * 16).astype("float64"),
        np.concatenate([part[1] for part in parts]),
    ) == as_set(original.images, original.target)
    for images, labels in parts:
        share = np.bincount(labels) / len(labels)
        np.testing.assert_allclose(share, 0.1, atol=0.015)
        assert (images.min(), images.max()) == (0, 1)


def test_the_split_is_always_the_same():
    np.random.seed(123)
    first = load_digits()
    np.random.seed(321)
    np.testing.assert_array_equal(first.test[0], load_digits().test[0])


def test_shift_is_scipys(rng):
    images = rng.normal(size=(9, 5, 7, 2)).astype("float32")
    shifts = np.array([(d, r) for d in (-1, 0, 2) for r in (-2, 0, 1)])
    result = shift_images(images, shifts)
    for image, shift, moved in zip(images, shifts, result):
        np.testing.assert_array_equal(
            moved, scipy.ndimage.shift(image, (*shift, 0), order=0)
        )


def test_shift_by_nothing(rng):
    images = rng.normal(size=(2, 3, 3, 1))
    np.testing.assert_array_equal(
        shift_images(images, np.zeros((2, 2), int)), images
    )


def batches(**arguments):
    images = np.arange(10, dtype="float32")[:, None, None, None] + 1
    images = np.broadcast_to(images, (10, 4, 4, 1))
    return ImageBatches(images, np.arange(10), batch_size=4, **arguments)


def epoch(dataset):
    parts = [dataset[i] for i in range(len(dataset))]
    return tuple(np.concatenate(column) for column in zip(*parts))


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


def test_shifts_reach_their_limit_and_no_further(rng):
    images = np.zeros((200, 5, 5, 1), "float32")
    images[:, 2, 2] = 1
    dataset = ImageBatches(images, np.zeros(200), 200, max_shift=1)
    _, rows, columns, _ = np.nonzero(dataset[0][0])
    assert set(rows) == set(columns) == {1, 2, 3}
    np.testing.assert_allclose(np.bincount(rows)[1:] / 200, 1 / 3, atol=0.12)


def test_without_shuffling_the_order_stays():
    np.testing.assert_array_equal(epoch(batches(shuffle=False))[1], range(10))


def test_lists_are_taken_and_flat_images_are_not():
    dataset = ImageBatches(np.zeros((2, 2, 2, 1)).tolist(), [0, 1])
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
    ],
)
def test_wrong_data(images, labels, arguments, message):
    with pytest.raises(ValueError, match=message):
        ImageBatches(np.zeros((images, 2, 2, 1)), np.zeros(labels), **arguments)
