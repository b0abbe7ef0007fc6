import warnings

import numpy as np
import pytest

from mlp_mixers.training.task_metrics import METRICS
from mlp_mixers.training.task_metrics import score

CLASSES = ("accuracy", "f1", "matthews")
NUMBERS = ("pearson", "spearman")


def counts(tp, fp, fn, tn):
    """Labels and predictions with these counts."""
    labels = [1] * tp + [0] * fp + [1] * fn + [0] * tn
    predictions = [1] * (tp + fp) + [0] * (fn + tn)
    return np.array(labels), np.array(predictions)


@pytest.mark.parametrize(
    "table", [(6, 2, 1, 11), (1, 5, 7, 2), (3, 0, 0, 4), (0, 3, 4, 0)]
)
def test_classes_from_their_counts(table):
    tp, fp, fn, tn = table
    found = score(CLASSES, *counts(*table))
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    assert found["accuracy"] == pytest.approx((tp + tn) / sum(table))
    assert found["f1"] == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert found["matthews"] == pytest.approx(
        (tp * tn - fp * fn) / np.sqrt(product)
    )


def test_matthews_of_two_classes_is_pearsons(rng):
    labels, predictions = rng.integers(0, 2, (2, 50))
    found = score(("matthews", "pearson"), labels, predictions)
    assert found["matthews"] == pytest.approx(found["pearson"])


def test_matthews_of_three_classes():
    """Gorodkin's formula, from the confusion matrix."""
    labels = np.array([0, 0, 1, 1, 2, 2, 2, 0])
    predictions = np.array([0, 1, 1, 1, 2, 0, 2, 2])
    matrix = np.zeros((3, 3))
    np.add.at(matrix, (labels, predictions), 1)
    right, total = np.trace(matrix), matrix.sum()
    true, said = matrix.sum(1), matrix.sum(0)
    expected = (right * total - true @ said) / np.sqrt(
        (total**2 - said @ said) * (total**2 - true @ true)
    )
    assert score("matthews", labels, predictions)["matthews"] == (
        pytest.approx(expected)
    )


def ranks(values):
    """Ranks, equals averaged, by counting."""
    return [
        sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2
        for v in values
    ]


def test_correlations(rng):
    labels = rng.integers(0, 6, 30).astype("float32")  # with equals
    predictions = (labels + rng.normal(size=30)).astype("float32").round(1)
    found = score(NUMBERS, labels, predictions)
    expected = np.corrcoef(labels, predictions)[0, 1]
    assert found["pearson"] == pytest.approx(expected, abs=1e-6)
    expected = np.corrcoef(ranks(labels), ranks(predictions))[0, 1]
    assert found["spearman"] == pytest.approx(expected, abs=1e-6)


def test_scale_and_shift_do_not_matter_to_correlations():
    labels = np.array([0.0, 1.0, 4.0, 5.0])
    assert score(NUMBERS, labels, 3 * labels - 7) == pytest.approx(
        {"pearson": 1, "spearman": 1}
    )
    assert score("spearman", labels, labels**3)["spearman"] == (
        pytest.approx(1)
    )
    assert score("pearson", labels, -labels)["pearson"] == pytest.approx(-1)


@pytest.mark.parametrize(
    ("names", "labels", "predictions"),
    [
        (("f1", "matthews"), [0, 1, 0], [0, 0, 0]),
        (("f1", "matthews"), [0, 0, 0], [0, 0, 0]),
        (("f1", "matthews"), [0, 0, 0], [0, 1, 0]),
        (("matthews",), [0, 1, 0], [1, 1, 1]),
        (("matthews",), [2, 2], [0, 1]),
        (NUMBERS, [1.0, 2.0], [3.3, 3.3]),
        (NUMBERS, [2.0, 2.0], [3.0, 4.0]),
        (NUMBERS, [2.0], [3.0]),
    ],
)
def test_zero_by_zero_is_zero(names, labels, predictions):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = score(names, labels, predictions)
    assert found == dict.fromkeys(names, 0.0)


def test_f1_of_all_wrong_is_zero_and_of_all_right_one():
    assert score("f1", [1, 1], [0, 0]) == {"f1": 0.0}
    assert score(CLASSES, [1, 0], [1, 0]) == dict.fromkeys(CLASSES, 1.0)


def test_the_result_is_plain():
    found = score(("f1", "accuracy"), [1, 0, 1], np.array([1, 1, 1], "int32"))
    assert list(found) == ["f1", "accuracy"]
    assert all(type(value) is float for value in found.values())


@pytest.mark.parametrize(
    ("names", "labels", "predictions", "message"),
    [
        ("recall", [1], [1], "accuracy, f1, .*names=.*recall"),
        ((), [1], [1], r"names=\(\)"),
        ("accuracy", [1, 0], [1], r"\(2,\) and \(1,\)"),
        ("accuracy", [], [], "one example at least"),
        ("accuracy", [[1]], [[1]], r"\(1, 1\)"),
        ("accuracy", [1, 0], [0.7, 0.2], "predictions with dtype=float64"),
        ("matthews", [1, -1], [1, 0], "labels with.*least value -1"),
        ("f1", [0, 1], [2, 1], "a class 2"),
        ("pearson", [0.0, 1.0], [np.nan, 1.0], "predictions with 1 that"),
        ("spearman", [np.inf, 1.0], [0.0, 1.0], "labels with 1 that"),
    ],
)
def test_what_does_not_fit(names, labels, predictions, message):
    with pytest.raises(ValueError, match=message):
        score(names, labels, predictions)


def test_every_metric_is_described():
    assert all(f'`"{name}"`' in score.__doc__ for name in METRICS)
