import numpy as np
import pytest

from mlp_mixers.data.task_data import METRICS
from mlp_mixers.data.task_data import Examples
from mlp_mixers.data.task_data import TaskData
from mlp_mixers.data.task_data import complete_parts
from mlp_mixers.data.task_data import hold_out
from mlp_mixers.data.task_data import sample
from mlp_mixers.data.task_data import untrained_classes


def examples(sizes, pair=False):
    """As many examples of class k as `sizes[k]`, sorted by class."""
    labels = np.repeat(np.arange(len(sizes)), sizes).astype("int32")
    texts = [f"text {i}" for i in range(len(labels))]
    return Examples(texts, texts if pair else None, labels)


def task(**changes):
    arguments = {
        "name": "made",
        "kind": "classification",
        "class_names": ("a", "b"),
        "metrics": ("accuracy",),
        "parts": {"train": examples([2, 2])},
    }
    return TaskData(**{**arguments, **changes})


def test_ids_count_from_zero():
    assert examples([2, 1]).ids == ["0", "1", "2"]
    assert Examples(["x"], ids=["q7"]).ids == ["q7"]


def test_taking_keeps_what_belongs_together():
    chosen = examples([2, 2], pair=True).take([3, 1])
    assert chosen.first == chosen.second == ["text 3", "text 1"]
    assert chosen.labels.tolist() == [1, 0]
    assert chosen.ids == ["3", "1"]
    without = Examples(["x", "y"]).take(np.array([], int))
    assert (len(without), without.second, without.labels) == (0, None, None)


@pytest.mark.parametrize("name", ["second", "labels", "ids"])
def test_lengths_must_agree(name):
    with pytest.raises(ValueError, match=f"`{name}`.*2 texts.*1 entries"):
        Examples(["x", "y"], **{name: ["z"]})


def test_what_a_task_is():
    assert not task().is_pair
    assert task(parts={"train": examples([1, 1], pair=True)}).is_pair
    assert not task().has_unanswerable
    labels = [{"answers": [], "answer_starts": [], "is_impossible": True}]
    spans = Examples(["q"], ["c"], labels)
    made = task(kind="span", metrics=("f1",), parts={"train": spans})
    assert made.has_unanswerable
    spans.labels[0]["is_impossible"] = False
    assert not made.has_unanswerable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "ranking"}, "kind='ranking'"),
        ({"metrics": ("pearson",)}, "classification task is measured by"),
        ({"metrics": ()}, r"metrics=\(\)"),
        (
            {"metrics": ("accuracy", "f1"), "class_names": ("a", "b", "c")},
            "second of two classes.*3 classes",
        ),
        ({"parts": {}}, "none"),
        ({"parts": {"dev": examples([1])}}, "Received: parts dev"),
        ({"parts": {"train": Examples(["x"])}}, "`train` needs a label"),
    ],
)
def test_tasks_that_are_none(changes, message):
    with pytest.raises(ValueError, match=message):
        task(**changes)


def test_the_test_part_may_have_no_labels():
    assert task(parts={"test_mismatched": Examples(["x"])}).parts


def test_metrics_are_those_of_training():
    from mlp_mixers.training import task_metrics

    named = {*METRICS["classification"], *METRICS["regression"]}
    assert named == set(task_metrics.METRICS)


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ([50, 30, 20], 10, [5, 3, 2]),
        ([97, 2, 1], 10, [8, 1, 1]),
        ([997, 1, 1, 1], 4, [1, 1, 1, 1]),
        ([6, 3], 9, [6, 3]),
        ([6, 3], 100, [6, 3]),
    ],
)
def test_samples_are_in_proportion(sizes, count, expected):
    chosen = sample(examples(sizes), count, seed=1)
    found = np.bincount(chosen.labels, minlength=len(sizes)).tolist()
    assert len(chosen) == min(count, sum(sizes))
    assert found == expected
    numbers = list(map(int, chosen.ids))
    assert numbers == sorted(set(numbers))


def test_any_sample_has_its_size(rng):
    for _ in range(50):
        sizes = rng.integers(1, 40, rng.integers(1, 8))
        count = int(rng.integers(1, sizes.sum() + 1))
        chosen = sample(examples(sizes), count)
        found = np.bincount(chosen.labels, minlength=len(sizes))
        assert found.sum() == count
        assert (found <= sizes).all()
        if count >= len(sizes):
            assert found.min() >= 1


def test_samples_follow_the_seed():
    whole = examples([100, 100])
    first, again = sample(whole, 20, seed=3), sample(whole, 20, seed=3)
    assert first.ids == again.ids
    assert first.ids != sample(whole, 20, seed=4).ids


def test_samples_without_classes():
    numbers = Examples(["x"] * 50, labels=np.arange(50, dtype="float32"))
    chosen = sample(numbers, 7)
    assert chosen.labels.astype(int).astype(str).tolist() == chosen.ids
    assert len(sample(Examples(["x"] * 50), 7)) == 7


@pytest.mark.parametrize(
    "options", [{"count": 0}, {"count": 2.0}, {"count": 1, "seed": -1}]
)
def test_samples_of_no_size(options):
    with pytest.raises(ValueError, match="must be an integer"):
        sample(examples([3]), **options)


def test_holding_out():
    whole = examples([40, 20, 1])
    rest, held_out = hold_out(whole, 0.1)
    assert np.bincount(held_out.labels, minlength=3).tolist() == [4, 2, 0]
    assert np.bincount(rest.labels).tolist() == [36, 18, 1]
    assert sorted(map(int, rest.ids + held_out.ids)) == list(range(61))
    assert hold_out(whole, 0.9)[0].labels.tolist().count(2) == 1


@pytest.mark.parametrize("fraction", [0, 1, -0.1, "0.1", None])
def test_fractions_out_of_range(fraction):
    with pytest.raises(ValueError, match="validation_fraction="):
        hold_out(examples([9]), fraction)


def test_too_few_to_hold_out():
    with pytest.raises(ValueError, match="too few examples"):
        hold_out(examples([1, 1]), 0.5)
    numbers = Examples(["x"] * 64, labels=np.arange(64, dtype="int32"))
    with pytest.raises(ValueError, match="class by class.*64 examples of 64 c"):
        hold_out(numbers)


def test_why_another_share_is_held_out():
    """Of 4 examples of a class, a tenth is none; of 6, it is one."""
    labels = np.repeat([0, 1, 2], [4, 6, 6]).astype("int32")
    whole = Examples(["x"] * 16, labels=labels)
    parts, (note,) = complete_parts({"train": whole}, 0.1)
    assert len(parts["validation"]) == 2
    assert "12.5% and not 10.0%: of every class, a whole number" in note
    whole = Examples(["x"] * 20, labels=np.arange(20) % 2)
    (note,) = complete_parts({"train": whole}, 0.1)[1]
    assert note.endswith("2 of the 20 training examples serve as one")


def test_numbers_that_are_none():
    examples = Examples(["x"] * 2, labels=np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="row 1 .id 1. of the part `train`"):
        TaskData("t", "regression", (), ("pearson",), {"train": examples})


def test_completing():
    parts, notes = complete_parts({"train": examples([20, 20])})
    assert {k: len(v) for k, v in parts.items()} == {
        "train": 36,
        "validation": 4,
    }
    assert "4 of the 40 training examples" in notes[0]
    assert complete_parts(parts) == (parts, [])
    _, notes = complete_parts({"validation": examples([2])})
    assert "nothing to train with" in notes[0]


def test_classes_nobody_trains():
    parts = {"train": examples([3, 0, 2])}
    (note,) = untrained_classes(parts, ("a", "b", "c"))
    assert "'b'" in note
    assert untrained_classes({"test": Examples(["x"])}, ("a",)) == []
