import numpy as np
import pytest

from mlp_mixers.training.span_metrics import best_null_threshold
from mlp_mixers.training.span_metrics import exact_match
from mlp_mixers.training.span_metrics import normalize_answer
from mlp_mixers.training.span_metrics import span_score
from mlp_mixers.training.span_metrics import token_f1


def label(*answers):
    return {
        "answers": list(answers),
        "answer_starts": [0] * len(answers),
        "is_impossible": not answers,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Denver Broncos.", "denver broncos"),
        ("An  apple\n\ta   day", "apple day"),
        ("U.S.A.", "usa"),
        ("Theory of a thea", "theory of thea"),
        # Punctuation goes first, and with it what it separated.
        ("the-best", "thebest"),
        ("rock 'n' roll", "rock n roll"),
        ("a.", ""),
        ("24–10", "24–10"),  # not ASCII
        ("", ""),
        ("ÉTÉ", "été"),
    ],
)
def test_normalising(text, expected):
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("the Broncos", ["Broncos!"], 1, 1),
        # 2 of 3 words right, 2 of 2 found: P = 2/3, R = 1.
        ("old Denver Broncos", ["Denver Broncos"], 0, 0.8),
        ("Denver", ["Denver Broncos"], 0, 2 / 3),
        ("Broncos Denver", ["Denver Broncos"], 0, 1),
        # Words count as often as they occur: 1 of 2, 1 of 1.
        ("no no", ["no"], 0, 2 / 3),
        ("no no", ["no no yes"], 0, 0.8),
        ("Panthers", ["Denver Broncos"], 0, 0),
        # The best of the answers.
        ("Denver", ["Broncos", "Denver Broncos", "in denver"], 0, 2 / 3),
        ("Denver", ["Broncos", "Denver"], 1, 1),
        # No answer.
        ("", [], 1, 1),
        ("the", [], 1, 1),
        ("Denver", [], 0, 0),
        ("", ["Denver"], 0, 0),
        # An answer of which nothing is left does not count beside others.
        ("", ["The", "Denver"], 0, 0),
        ("", ["The"], 1, 1),
    ],
)
def test_scores_from_the_definition(prediction, answers, exact, f1):
    assert exact_match(prediction, answers) == exact
    assert token_f1(prediction, answers) == pytest.approx(f1)


def test_means_in_all_and_of_both_kinds():
    labels = [label("Denver Broncos"), label("x y"), label(), label(), label()]
    found = span_score(labels, ["Denver", "x y", "", "z", "w"])
    assert found == pytest.approx(
        {
            "f1": (2 / 3 + 1 + 1) / 5,
            "exact_match": 2 / 5,
            "total": 5,
            "has_answer_f1": (2 / 3 + 1) / 2,
            "has_answer_exact_match": 1 / 2,
            "has_answer_total": 2,
            "no_answer_f1": 1 / 3,
            "no_answer_exact_match": 1 / 3,
            "no_answer_total": 3,
        }
    )


def test_without_impossible_questions():
    found = span_score([label("x"), label("y")], ["x", ""])
    assert found == {"f1": 0.5, "exact_match": 0.5, "total": 2}


def test_impossible_questions_have_no_answers_whatever_they_list():
    impossible = {**label("x"), "is_impossible": True}
    assert span_score([impossible], ["x"])["f1"] == 0
    assert span_score([impossible], [""])["f1"] == 1


@pytest.mark.parametrize("count", [0, 1, 3])
def test_one_prediction_each(count):
    with pytest.raises(ValueError, match=f"2 labels, {count} predictions"):
        span_score([label("x")] * 2, ["x"] * count)
    with pytest.raises(ValueError, match="0 labels"):
        span_score([], [])


def f1_at(threshold, labels, texts, differences):
    """The mean F1 with that threshold."""
    kept = [
        "" if difference > threshold else text
        for text, difference in zip(texts, differences)
    ]
    return span_score(labels, kept)["f1"]


def test_the_best_threshold_is_the_best():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(1, 25))
        labels = [label(*["x y"] * int(k)) for k in rng.integers(0, 2, size)]
        texts = [["x", "x y", "z"][k] for k in rng.integers(0, 3, size)]
        # With equals, and one question without any span.
        differences = rng.integers(-4, 5, size).astype("float32")
        differences[0] = np.inf

        threshold, best = best_null_threshold(labels, texts, differences)
        arguments = (labels, texts, differences)
        tried = (-np.inf, *range(-5, 6), np.inf)
        every = [f1_at(t, *arguments) for t in tried]
        assert best == pytest.approx(max(every))
        assert f1_at(threshold, *arguments) == pytest.approx(best)


def test_thresholds_at_both_ends():
    texts, differences = ["x", "y"], [-3.0, 2.0]
    found = best_null_threshold([label("x"), label("y")], texts, differences)
    assert found == (2.0, 1.0)
    found = best_null_threshold([label(), label()], texts, differences)
    assert found == (-np.inf, 1.0)
    found = best_null_threshold([label("x"), label()], texts, differences)
    assert found == (-3.0, 1.0)


def test_differences_that_do_not_fit():
    with pytest.raises(ValueError, match=r"shape=\(2,\).*1 labels"):
        best_null_threshold([label("x")], ["x"], [1.0, 2.0])
    with pytest.raises(ValueError, match="1 NaN"):
        best_null_threshold([label("x")], ["x"], [np.nan])
