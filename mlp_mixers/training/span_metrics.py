"""Exact match and F1 of answers, as SQuAD counts them.

Reference: Rajpurkar et al. (arXiv 1606.05250), section 6.1, and Rajpurkar, Jia
and Liang (arXiv 1806.03822), section 4.
"""

import collections
import re
import string

import numpy as np

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text):
    """An answer without capitals, punctuation (ASCII), articles and gaps.

    In this order: `"The U.S.A., an  idea"` becomes `"usa idea"`.
    """
    text = text.lower().translate(NO_PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", text).split())


def exact_match(prediction, answers):
    """1.0 if the prediction is one of the answers after normalising, or 0.0.

    Without answers it is right to predict none: `""`, or what normalises to
    it.
    """
    wanted = {normalize_answer(answer) for answer in _counting(answers)}
    return float(normalize_answer(prediction) in wanted)


def token_f1(prediction, answers):
    """The largest F1 of words over the answers, in [0, 1].

    Words are counted as often as they occur. Where the prediction or the
    answer has no words, F1 is 1 if neither has, and else 0.
    """
    words = normalize_answer(prediction).split()
    return max(_f1(words, answer) for answer in _counting(answers))


def span_score(labels, predictions):
    """Mean exact match and F1, also of the questions with answers alone.

    Args:
        labels: The labels of `Examples` with spans.
        predictions: List of strings; `""` is "no answer".

    Returns:
        Dictionary with `f1`, `exact_match` and `total`. If there are questions
        with answers and questions without, the same with the prefixes
        `has_answer_` and `no_answer_`. Scores are in [0, 1], where SQuAD's own
        program prints percent.

    Raises:
        ValueError: If there is not one prediction for each label, or none.
    """
    exact, f1 = _scores(labels, predictions)
    answerable = np.array([not _is_none(label) for label in labels])
    groups = {"": np.ones(len(labels), bool)}
    if answerable.any() and not answerable.all():
        groups["has_answer_"] = answerable
        groups["no_answer_"] = ~answerable
    result = {}
    for prefix, rows in groups.items():
        result[f"{prefix}f1"] = float(f1[rows].mean())
        result[f"{prefix}exact_match"] = float(exact[rows].mean())
        result[f"{prefix}total"] = int(rows.sum())
    return result


def best_null_threshold(labels, predictions, null_differences):
    """The threshold for "no answer" with the largest F1.

    It is chosen on the examples that are measured afterwards, as published
    numbers for SQuAD 2.0 are; say so beside them.

    Args:
        labels: The labels of `Examples` with spans.
        predictions: List of strings: the best spans, none of them replaced by
            `""` (`best_spans` with `null_threshold=None`).
        null_differences: Array `(n,)`: the score of no answer minus that of
            the best span.

    Returns:
        `(threshold, f1)`: a question gets `""` if its difference exceeds the
        threshold, the smallest of the best ones. It is -inf if all should.

    Raises:
        ValueError: If these are not of one length, or a difference is NaN.
    """
    differences = np.asarray(null_differences, "float64")
    if differences.shape != (len(labels),) or np.isnan(differences).any():
        raise ValueError(
            "`null_differences` must have a number for each label. Received: "
            f"shape={differences.shape} with "
            f"{np.isnan(differences).sum()} NaN, {len(labels)} labels"
        )
    _, answered = _scores(labels, predictions)
    _, silent = _scores(labels, [""] * len(labels))
    order = np.argsort(differences, kind="stable")
    gain = np.cumsum((answered - silent)[order])
    # A threshold answers all questions with the same difference, or none.
    values = differences[order]
    last = np.append(values[1:] != values[:-1], True)
    sums = np.append(0.0, gain[last])
    thresholds = np.append(-np.inf, values[last])
    best = int(np.argmax(sums))
    f1 = (silent.sum() + sums[best]) / len(labels)
    return float(thresholds[best]), float(f1)


def _scores(labels, predictions):
    """Exact match and F1 of each example: two arrays `(n,)`."""
    if len(labels) != len(predictions) or not len(labels):
        raise ValueError(
            "There must be one prediction for each label, and one label at "
            f"least. Received: {len(labels)} labels, {len(predictions)} "
            "predictions"
        )
    pairs = [
        (text, [] if label["is_impossible"] else label["answers"])
        for text, label in zip(predictions, labels)
    ]
    return (
        np.array([exact_match(*pair) for pair in pairs]),
        np.array([token_f1(*pair) for pair in pairs]),
    )


def _is_none(label):
    """Whether a question has no answer."""
    return label["is_impossible"] or not label["answers"]


def _counting(answers):
    """The answers of which something is left after normalising, or `[""]`."""
    return [text for text in answers if normalize_answer(text)] or [""]


def _f1(words, answer):
    """F1 of two bags of words."""
    wanted = normalize_answer(answer).split()
    if not words or not wanted:
        return float(words == wanted)
    counts = collections.Counter(words) & collections.Counter(wanted)
    # 2·P·R / (P + R) with P = same / words and R = same / wanted.
    return 2 * counts.total() / (len(words) + len(wanted))
