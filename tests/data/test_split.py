import numpy as np
import pytest

from mlp_mixers.data.split import complete_split
from mlp_mixers.data.split import cut_stratified


def whole(counts):
    """Images that carry their number, labels sorted by class."""
    labels = np.repeat(np.arange(len(counts), dtype="int32"), counts)
    images = np.arange(len(labels))[:, None, None, None] * np.ones((1, 2, 2, 1))
    return images, labels


def numbers(part):
    return part[0][:, 0, 0, 0].astype(int).tolist()


def cut(counts, names="abcdefgh", **arguments):
    return complete_split(
        {"train": whole(counts)}, tuple(names[: len(counts)]), **arguments
    )


def parts_of(split):
    return split.train, split.validation, split.test


def test_every_image_is_in_one_part_with_its_label():
    counts = [20, 50, 30]
    split = cut(counts)
    _, labels = whole(counts)
    assert sorted(sum(map(numbers, parts_of(split)), [])) == list(range(100))
    for part in parts_of(split):
        np.testing.assert_array_equal(part[1], labels[numbers(part)])
        assert part[1].dtype == np.int32


def test_every_class_is_in_proportion():
    split = cut([20, 50, 30], validation_fraction=0.1, test_fraction=0.2)
    counts = [np.bincount(labels).tolist() for _, labels in parts_of(split)]
    assert counts == [[14, 35, 21], [2, 5, 3], [4, 10, 6]]


def test_small_classes_give_one_to_each_part():
    split = cut([3, 4, 100])
    counts = [np.bincount(labels).tolist() for _, labels in parts_of(split)]
    assert counts == [[1, 2, 80], [1, 1, 10], [1, 1, 10]]


def test_too_small_classes_are_named():
    with pytest.raises(
        ValueError, match=r"at least 3.*classes with too few images: a \(2\)"
    ):
        cut([2, 9])
    with pytest.raises(ValueError, match=r"b \(3\)"):
        cut([90, 3], validation_fraction=0.45, test_fraction=0.5)


def test_the_cut_follows_from_the_seed_alone():
    np.random.seed(1)
    first = cut([20, 20], seed=3)
    np.random.seed(2)
    again, other = cut([20, 20], seed=3), cut([20, 20], seed=4)
    for part, same, different in zip(*map(parts_of, (first, again, other))):
        assert numbers(part) == numbers(same)
        assert numbers(part) != numbers(different)


def test_parts_are_not_sorted_by_class():
    for _, labels in parts_of(cut([50, 50])):
        assert (np.diff(labels) < 0).any()


def test_rows_stay_as_they_are():
    split = cut([40, 60], way="rows")
    assert [numbers(part) for part in parts_of(split)] == [
        list(range(80)),
        list(range(80, 90)),
        list(range(90, 100)),
    ]
    with pytest.raises(ValueError, match="too few images.*4 images"):
        cut([2, 2], way="rows")


@pytest.mark.parametrize("ready", ["validation", "test"])
def test_a_part_that_is_there_stays_and_the_other_is_cut(ready):
    given = (np.zeros((5, 2, 2, 1)), np.zeros(5, "int32"))
    missing = {"validation": "test", "test": "validation"}[ready]
    split = complete_split(
        {"train": whole([10, 10]), ready: given}, ("a", "b"), notes=["first"]
    )
    assert getattr(split, ready) is given
    assert len(split.train[1]) == 18
    assert np.bincount(getattr(split, missing)[1]).tolist() == [1, 1]
    assert split.notes == (
        "first",
        f"there is no {missing} part: 2 of the 20 training images serve as one",
    )


def test_three_ready_parts_are_left_alone():
    parts = {name: whole([2, 2]) for name in ("train", "validation", "test")}
    split = complete_split(parts, ("a", "b"))
    assert parts_of(split) == tuple(parts.values())
    assert split.notes == ()


def test_indices_of_gaps_in_the_labels():
    labels = np.array([0] * 5 + [7] * 5)
    rows = cut_stratified(labels, {"test": 0.2}, seed=0)
    assert sorted(labels[rows["test"]]) == [0, 7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"validation_fraction": 0}, "validation_fraction=0"),
        ({"test_fraction": 1.5}, "test_fraction=1.5"),
        ({"test_fraction": 0.9}, "leave something to train with"),
        ({"test_fraction": float("nan")}, "test_fraction=nan"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 0.5}, "seed=0.5"),
        ({"way": "random"}, "'random'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        cut([10, 10], **arguments)
