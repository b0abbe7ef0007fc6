import sys

import numpy as np
import pytest
import tokenizers

from mlp_mixers.data.span_windows import best_spans
from mlp_mixers.data.span_windows import span_windows
from mlp_mixers.data.tokenizer import Tokenizer

PAD, CLS, SEP = 0, 1, 2


class Words:
    """A word is a token; its id is 10 and its number: `w7` is 17."""

    pad_id, cls_id, sep_id = PAD, CLS, SEP

    def __init__(self):
        words = {f"w{k}": 10 + k for k in range(500)}
        model = tokenizers.models.WordLevel({**words, "?": 9}, "?")
        self.tokenizer = tokenizers.Tokenizer(model)
        self.tokenizer.pre_tokenizer = (
            tokenizers.pre_tokenizers.WhitespaceSplit()
        )

    def encode(self, texts):
        return self.tokenizer.encode_batch(texts, add_special_tokens=False)


def words(*numbers):
    return " ".join(f"w{k}" for k in numbers)


def label(context, *answers):
    return {
        "answers": list(answers),
        "answer_starts": [context.index(text) for text in answers],
        "is_impossible": not answers,
    }


def cut(questions, contexts, n=10, stride=3, max_question=3, **options):
    return span_windows(
        questions, contexts, Words(), n, stride, max_question, **options
    )


def test_what_a_window_looks_like():
    windows = cut([words(1, 2)], [words(*range(100, 109))])
    # 10 - 3 - 2 = 5 tokens of the passage, beginning every 3.
    expected = [
        [CLS, 11, 12, SEP, 110, 111, 112, 113, 114, SEP],
        [CLS, 11, 12, SEP, 113, 114, 115, 116, 117, SEP],
        [CLS, 11, 12, SEP, 116, 117, 118, SEP, PAD, PAD],
    ]
    assert windows.token_ids.tolist() == expected
    assert windows.token_ids.dtype == np.int32
    assert windows.padding_mask.tolist() == [
        [token != PAD for token in row] for row in expected
    ]
    assert windows.example.tolist() == [0, 0, 0]
    assert windows.starts is None
    assert windows.ends is None
    assert len(windows) == 3


@pytest.mark.parametrize(
    ("length", "count"), [(0, 1), (1, 1), (5, 1), (6, 2), (8, 2), (9, 3)]
)
def test_there_are_no_more_windows_than_needed(length, count):
    windows = cut([words(1, 2)], [words(*range(length))])
    assert len(windows) == count
    shown = windows.token_ids[windows.is_context()]
    assert set(shown.tolist()) == {10 + k for k in range(length)}


def test_long_questions_are_cut():
    windows = cut([words(1, 2, 3, 4, 5)], [words(100)])
    assert windows.token_ids[0].tolist() == [
        *(CLS, 11, 12, 13, SEP, 110, SEP, PAD, PAD, PAD)
    ]


def test_answers_are_marked_where_they_are_whole():
    context = words(*range(100, 109))
    labels = [label(context, words(104, 105))]
    windows = cut([words(1, 2)], [context], answers=labels)
    # Not whole in the first window; tokens 1 and 2 of the second one.
    assert windows.starts.tolist() == [0, 5, 0]
    assert windows.ends.tolist() == [0, 6, 0]
    assert windows.starts.dtype == windows.ends.dtype == np.int32
    assert windows.text(1, 5, 6) == words(104, 105)


def test_answers_inside_words_mark_the_words():
    context = words(*range(100, 109))
    windows = cut([""], [context], n=20, answers=[label(context, "01 w10")])
    assert windows.starts.tolist() == [3]
    assert windows.ends.tolist() == [4]


@pytest.mark.parametrize(
    ("answers", "starts", "place"),
    [([], [], 0), (["w101"], [-1], 0), (["x", "w101"], [-1, 5], 3)],
)
def test_answers_without_a_place(answers, starts, place):
    one = {"answers": answers, "answer_starts": starts}
    one["is_impossible"] = not answers
    windows = cut([""], [words(100, 101)], answers=[one])
    assert windows.starts.tolist() == windows.ends.tolist() == [place]


def test_passages_without_tokens():
    windows = cut(["w1", ""], ["", " \n"], answers=[label("")] * 2)
    assert windows.token_ids[:, :4].tolist() == [
        [CLS, 11, SEP, SEP],
        [CLS, SEP, SEP, PAD],
    ]
    assert not windows.is_context().any()
    logits = np.zeros(windows.token_ids.shape)
    logits[:, 0] = 1.5, -2.0
    found = best_spans(logits, logits, windows)
    assert found.texts == ["", ""]
    assert found.scores.tolist() == [3.0, -4.0]  # those of no answer
    assert found.null_differences.tolist() == [np.inf, np.inf]
    assert best_spans(logits, logits, windows, null_threshold=0.0).texts == [
        *("", "")
    ]


def slow_windows(questions, contexts, tokenizer, n, stride, limit, answers):
    """The same by loops: `(ids, example, offsets, start, end)` of each."""
    rows = []
    for k, (question, context) in enumerate(zip(questions, contexts)):
        # One space before the first word, however many the text has.
        cut = len(context) - len(context.lstrip(" "))
        (asked,) = tokenizer.encode([" " + question] if question else [""])
        (passage,) = tokenizer.encode([" " + context[cut:]])
        asked = asked.ids[:limit]
        offsets = [
            tuple(max(place + cut - 1, 0) for place in pair)
            for pair in passage.offsets
        ]
        room = n - 3 - len(asked)
        begin = 0
        while True:
            piece = passage.ids[begin : begin + room]
            ids = [CLS, *asked, SEP, *piece, SEP]
            where = [(-1, -1)] * n
            first = len(asked) + 2
            where[first : first + len(piece)] = offsets[begin : begin + room]
            start = end = 0
            if answers[k]["answers"]:
                low = answers[k]["answer_starts"][0]
                high = low + len(answers[k]["answers"][0])
                touched = [
                    i
                    for i, (a, b) in enumerate(offsets)
                    if a < high and b > low
                ]
                last = begin + len(piece)
                if begin <= min(touched) and max(touched) < last:
                    start = first + min(touched) - begin
                    end = first + max(touched) - begin
            rows.append((ids + [PAD] * (n - len(ids)), k, where, start, end))
            if begin + room >= len(passage.ids):
                break
            begin += stride
    return map(list, zip(*rows))


@pytest.fixture(scope="module")
def byte_level():
    texts = ["Rain fell on the café roof. 😀 Naïve — 24–10!", "Who won?"] * 3
    return Tokenizer.train(texts, vocabulary_size=280, min_frequency=2)


PASSAGES = [
    "Rain fell on the café roof 😀😀 at 24–10!  Two\n\nspaces, 日本語 too.",
    "Short.",
    "  Blanks around  ",
    "Naïve — é e\u0301 👩‍👩‍👧 the end",
]
ANSWERS = ["café roof", "Short", "Blanks", "👩‍👩‍👧"]


@pytest.mark.parametrize(("n", "stride"), [(24, 5), (16, 1), (64, 50)])
def test_windows_by_loops(byte_level, n, stride):
    questions = ["Who won?", "", "What is it about 😀?", "Where"] * 2
    contexts = PASSAGES * 2
    answers = [label(c, a) for c, a in zip(PASSAGES, ANSWERS)]
    answers += [label("")] * 4
    windows = span_windows(
        questions, contexts, byte_level, n, stride, 8, answers
    )
    ids, example, offsets, start, end = slow_windows(
        questions, contexts, byte_level, n, stride, 8, answers
    )
    np.testing.assert_array_equal(windows.token_ids, ids)
    np.testing.assert_array_equal(windows.example, example)
    np.testing.assert_array_equal(windows.offsets(), offsets)
    np.testing.assert_array_equal(windows.starts, start)
    np.testing.assert_array_equal(windows.ends, end)
    np.testing.assert_array_equal(
        windows.offsets([3, 1]), [offsets[3], offsets[1]]
    )
    some = np.flatnonzero(windows.starts)
    # Short windows cannot hold the longer answers.
    found = {64: {0, 1, 2, 3}, 24: {0, 1, 2, 3}, 16: {0, 1}}
    assert set(windows.example[some].tolist()) == found[n]
    for k in some:
        text = windows.text(k, windows.starts[k], windows.ends[k])
        assert ANSWERS[windows.example[k]] in text


def test_passages_are_tokenised_once(monkeypatch):
    tokenizer, seen = Words(), []
    encode = tokenizer.encode
    tokenizer.encode = lambda texts: seen.extend(texts) or encode(texts)
    windows = span_windows(
        ["w1", "w2", "w3"], ["w4", "w5", "w4"], tokenizer, 9, 1, 3
    )
    assert sorted(seen) == [" w1", " w2", " w3", " w4", " w5"]
    assert windows.token_ids[:, 3].tolist() == [14, 15, 14]


def slow_best(start, end, windows, limit, threshold):
    """The best spans by comparing all: `(text, score, difference)`."""
    results = []
    for k, context in enumerate(windows.contexts):
        best, text, null = -np.inf, "", np.inf
        for w in np.flatnonzero(windows.example == k):
            null = min(null, start[w, 0] + end[w, 0])
            where = windows.offsets([w])[0]
            tokens = np.flatnonzero(where[:, 0] >= 0)
            for i in tokens:
                for j in tokens:
                    if i <= j < i + limit and start[w, i] + end[w, j] > best:
                        best = start[w, i] + end[w, j]
                        text = context[where[i, 0] : where[j, 1]].strip()
        if threshold is not None and null - best > threshold:
            text = ""
        # A passage without tokens has the score of no answer.
        score = best if best > -np.inf else null
        results.append((text, score, null - best))
    return results


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [1, 3, 30])
@pytest.mark.parametrize("threshold", [None, -2.0, 0.0])
def test_best_spans_by_comparing_all(seed, limit, threshold):
    rng = np.random.default_rng(seed)
    contexts = [
        words(*rng.integers(0, 500, rng.integers(0, 15))) for _ in "123456"
    ]
    windows = cut(["w1", "w1 w2 w3 w4", ""] * 2, contexts)
    # Integers, so that there are equals.
    low = -4 if seed % 2 else -100
    start, end = rng.integers(low, 5, (2, *windows.token_ids.shape)).astype(
        float
    )
    found = best_spans(start, end, windows, limit, null_threshold=threshold)
    expected = slow_best(start, end, windows, limit, threshold)
    assert found.texts == [text for text, _, _ in expected]
    np.testing.assert_array_equal(found.scores, [s for _, s, _ in expected])
    np.testing.assert_array_equal(
        found.null_differences, [d for _, _, d in expected]
    )


def test_more_windows_than_are_worked_on_at_a_time(monkeypatch, rng):
    module = sys.modules[span_windows.__module__]
    contexts = [words(*rng.integers(0, 500, 40)) for _ in range(5)]
    arguments = (["w1", "w2"] * 2 + ["w3"], contexts)
    whole = cut(*arguments)
    monkeypatch.setattr(module, "CHUNK", 3)
    pieces = cut(*arguments)
    np.testing.assert_array_equal(whole.token_ids, pieces.token_ids)
    np.testing.assert_array_equal(whole.padding_mask, pieces.padding_mask)
    start, end = rng.normal(size=(2, *whole.token_ids.shape))
    found = best_spans(start, end, pieces)
    expected = slow_best(*np.float32([start, end]), whole, 30, None)
    assert found.texts == [text for text, _, _ in expected]


def test_labels_come_back_as_answers(byte_level):
    """What was marked is what is read, if the logits say so."""
    answers = [label(c, a) for c, a in zip(PASSAGES, ANSWERS)]
    windows = span_windows(
        ["Who?"] * 4, PASSAGES, byte_level, 40, 20, 8, answers
    )
    every = np.arange(len(windows))
    start = np.zeros(windows.token_ids.shape, "float32")
    end = np.zeros_like(start)
    start[every, windows.starts] = end[every, windows.ends] = 5
    found = best_spans(start, end, windows, null_threshold=0.0)
    assert found.texts == ANSWERS
    assert found.scores.tolist() == [10] * 4


def test_no_answer_counts_where_it_is_least():
    windows = cut([words(1, 2)], [words(*range(100, 109))])
    start = np.zeros(windows.token_ids.shape)
    start[:, 0] = [9, 2, 9]
    start[1, 5] = 4
    end = np.zeros_like(start)
    found = best_spans(start, end, windows, null_threshold=0.0)
    assert found.texts == ["w104"]
    assert found.null_differences.tolist() == [-2]
    start[1, 0] = 5
    found = best_spans(start, end, windows, null_threshold=0.0)
    assert (found.texts, found.scores.tolist()) == ([""], [4])
    assert best_spans(start, end, windows, null_threshold=1.0).texts == ["w104"]
    assert best_spans(start, end, windows).texts == ["w104"]


def test_logits_may_be_minus_infinity_at_padding():
    windows = cut(["w1"], [words(5, 6)])
    logits = np.where(windows.padding_mask, 0, -np.inf)
    found = best_spans(logits.astype("float16"), logits, windows)
    assert found.texts == ["w5"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 5}, "sequence_length=10, max_question=3, stride=5"),
        ({"stride": 0}, "stride=0"),
        ({"n": 5}, "sequence_length=5"),
        ({"max_question": True}, "max_question=True"),
        ({"answers": []}, "`answers`.*0 for 1 questions"),
    ],
)
def test_windows_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        cut(["w1"], ["w2"], **options)


def test_arguments_that_do_not_fit():
    with pytest.raises(ValueError, match="`contexts`.*2 for 1 questions"):
        cut(["w1"], ["w2", "w3"])
    windows = cut(["w1"], ["w2"])
    good = np.zeros((1, 10))
    with pytest.raises(ValueError, match=r"`end_logits`.*\(1, 10\).*\(1, 9\)"):
        best_spans(good, good[:, :9], windows)
    with pytest.raises(ValueError, match="NaN"):
        best_spans(good * np.nan, good, windows)
    with pytest.raises(ValueError, match="max_answer_tokens=0"):
        best_spans(good, good, windows, max_answer_tokens=0)
