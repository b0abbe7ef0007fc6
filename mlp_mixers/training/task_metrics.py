"""What text tasks are measured by: accuracy, F1, correlations."""

import numpy as np


def score(names, labels, predictions):
    """Measures predictions; every value is 1 if all are right.

    | name         | of               | what                                 |
    |--------------|------------------|--------------------------------------|
    | `"accuracy"` | classes          | part of the classes that is right    |
    | `"f1"`       | two classes      | 2·TP / (2·TP + FP + FN) of class 1   |
    | `"matthews"` | classes          | correlation of classes               |
    | `"pearson"`  | numbers          | linear correlation                   |
    | `"spearman"` | numbers          | correlation of ranks, ties averaged  |

    Where these are 0/0, they are defined as 0, the value of guessing: F1
    without any label or prediction of class 1, and each correlation if all
    labels or all predictions are equal.

    Args:
        names: Names of metrics, or one name.
        labels: Array `(n,)`: integers from 0, or numbers.
        predictions: Array `(n,)` of the same kind: classes, not their scores.

    Returns:
        Dictionary from the names to floats, in their order.

    Raises:
        ValueError: If there is no such metric, or labels and predictions do
            not fit each other or the metric.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    unknown = [name for name in names if name not in METRICS]
    if unknown or not names:
        raise ValueError(
            f"The metrics are {', '.join(METRICS)}. Received: names={names!r}"
        )
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if labels.ndim != 1 or labels.shape != predictions.shape or not labels.size:
        raise ValueError(
            "`labels` and `predictions` must be of one shape (n,), with one "
            f"example at least. Received: shapes {labels.shape} and "
            f"{predictions.shape}"
        )
    return {name: float(METRICS[name](labels, predictions)) for name in names}


def accuracy(labels, predictions):
    """Part of the classes that is right."""
    _check_classes("accuracy", labels, predictions)
    return np.mean(labels == predictions)


def f1(labels, predictions):
    """Harmonic mean of precision and recall of class 1; 0 where 0/0."""
    _check_classes("f1", labels, predictions)
    largest = max(labels.max(), predictions.max())
    if largest > 1:
        raise ValueError(
            "`f1` is the one of class 1 of two; with more classes use "
            f"`accuracy` or `matthews`. Received: a class {largest}"
        )
    right = np.sum((labels == 1) & (predictions == 1))
    either = np.sum(labels == 1) + np.sum(predictions == 1)
    return 2 * right / either if either else 0.0


def matthews(labels, predictions):
    """Matthews' correlation, for two classes or more; 0 where 0/0."""
    from sklearn.metrics import matthews_corrcoef

    _check_classes("matthews", labels, predictions)
    if _is_constant(labels) or _is_constant(predictions):
        return 0.0
    return matthews_corrcoef(labels, predictions)


def pearson(labels, predictions):
    """Pearson's correlation; 0 where 0/0."""
    from scipy.stats import pearsonr

    return _correlation("pearson", pearsonr, labels, predictions)


def spearman(labels, predictions):
    """Spearman's correlation of ranks; 0 where 0/0."""
    from scipy.stats import spearmanr

    return _correlation("spearman", spearmanr, labels, predictions)


METRICS = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def _correlation(name, function, labels, predictions):
    labels, predictions = (
        np.asarray(x, "float64") for x in (labels, predictions)
    )
    for what, values in (("labels", labels), ("predictions", predictions)):
        if not np.isfinite(values).all():
            raise ValueError(
                f"`{name}` needs finite numbers. Received: {what} with "
                f"{np.sum(~np.isfinite(values)):,} that are not"
            )
    if _is_constant(labels) or _is_constant(predictions):
        return 0.0
    return function(labels, predictions)[0]


def _is_constant(values):
    return values.min() == values.max()


def _check_classes(name, labels, predictions):
    for what, values in (("labels", labels), ("predictions", predictions)):
        if values.dtype.kind not in "iub" or values.min() < 0:
            raise ValueError(
                f"`{name}` is for classes, integers from 0. Received: {what} "
                f"with dtype={values.dtype} and the least value {values.min()}"
            )
