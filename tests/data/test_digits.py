import numpy as np
from sklearn import datasets

from mlp_mixers.data.digits import load_digits


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
    # Recorded accuracies are of these very images.
    assert first.test[1][:10].tolist() == [7, 6, 3, 7, 7, 3, 2, 8, 9, 3]
