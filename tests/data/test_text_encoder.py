import numpy as np
import pytest

from mlp_mixers.data.text_encoder import TextEncoder
from mlp_mixers.data.text_encoder import cut_pair
from mlp_mixers.data.text_encoder import is_text
from mlp_mixers.data.tokenizer import Tokenizer

PAD, CLS, SEP, MASK = 0, 1, 2, 3


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["the cat sat on the mat"] * 5, 280)


@pytest.fixture(scope="module")
def encoder(tokenizer):
    return TextEncoder(tokenizer, 40)


def ids(tokenizer, text):
    return tokenizer.encode([text])[0].ids


def test_single_texts(tokenizer, encoder):
    arrays = encoder(["the cat", "", "  the cat"])
    expected = [CLS, *ids(tokenizer, " the cat"), SEP]
    assert arrays["token_ids"].dtype == np.int32
    for row in (0, 2):
        real = arrays["padding_mask"][row]
        assert arrays["token_ids"][row][real].tolist() == expected
        assert (arrays["token_ids"][row][~real] == PAD).all()
    assert arrays["token_ids"][1][:2].tolist() == [CLS, SEP]
    assert arrays["padding_mask"][1].sum() == 2


def test_lengths_are_rounded_up_to_the_longest_input(encoder):
    assert encoder(["the cat"])["token_ids"].shape == (1, 32)
    assert encoder(["xyz " * 50])["token_ids"].shape == (1, 40)
    assert encoder(["the cat"], length=11)["token_ids"].shape == (1, 11)


def test_long_texts_keep_their_beginning_and_the_last_sep(tokenizer, encoder):
    text = "qz " * 100
    row = encoder([text])["token_ids"][0]
    assert row.tolist() == [CLS, *ids(tokenizer, f" {text}")[:38], SEP]


def test_pairs(tokenizer, encoder):
    arrays = encoder(["the cat"], ["sat on"])
    row = arrays["token_ids"][0][arrays["padding_mask"][0]].tolist()
    first, second = ids(tokenizer, " the cat"), ids(tokenizer, " sat on")
    assert row == [CLS, *first, SEP, *second, SEP]


@pytest.mark.parametrize("a", range(0, 12))
@pytest.mark.parametrize("b", range(0, 12))
def test_the_longer_one_is_cut(a, b):
    """By brute force: one token at a time off the longer one's end."""
    for room in (5, 6):
        first, second = list(range(a)), list(range(b))
        while len(first) + len(second) > room:
            (second if len(second) >= len(first) else first).pop()
        # Where both are cut, an odd place goes to the one or the other.
        got = cut_pair(list(range(a)), list(range(b)), room)
        assert sum(map(len, got)) == len(first) + len(second)
        assert abs(len(got[0]) - len(first)) <= 1
        assert got[0] == list(range(len(got[0])))


def test_special_tokens_in_text_are_text(encoder):
    arrays = encoder(["<sep> <mask> <pad>"])
    real = arrays["token_ids"][0][arrays["padding_mask"][0]]
    assert (real[1:-1] > MASK).all()


def test_masks(tokenizer, encoder):
    arrays, counts = encoder.with_masks(
        ["<mask> cat", "the <mask> sat on the <mask>", "the <mask>"]
    )
    assert counts == [1, 2, 1]
    rows = [
        row[real].tolist()
        for row, real in zip(arrays["token_ids"], arrays["padding_mask"])
    ]
    assert rows[0] == [CLS, MASK, *ids(tokenizer, " cat"), SEP]
    assert rows[1] == [
        CLS,
        *ids(tokenizer, " the"),
        MASK,
        *ids(tokenizer, " sat on the"),
        MASK,
        SEP,
    ]
    for row, positions, count in zip(rows, arrays["mask_positions"], counts):
        assert [row[p] for p in positions[:count]] == [MASK] * count
        assert (positions[count:] == 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e("one string"), r"as a list: \[text\]"),
        (lambda e: e([]), "no texts"),
        (lambda e: e(None), "list of strings: .*Received: None"),
        (lambda e: e(b"ab"), "list of strings: .*b'ab'"),
        (lambda e: e([b"ab"]), "number 0 is b'ab'"),
        (lambda e: e.with_masks(3), "list of strings: .*Received: 3"),
        (lambda e: e(["a", None]), "number 1 is None"),
        (lambda e: e(["a", 3.0]), "number 1 is 3.0"),
        (lambda e: e(["a"], ["b", "c"]), "Received: 1 and 2"),
        (lambda e: e.with_masks(["no mask"]), "must contain <mask>"),
        (lambda e: e.with_masks(["<mask> " + "qz " * 99]), "Shorten it"),
        (lambda e: TextEncoder(None, 8), "has no tokenizer"),
        (lambda e: TextEncoder(e.tokenizer, 4), "sequence_length=4"),
    ],
)
def test_what_cannot_be_encoded(encoder, call, message):
    with pytest.raises(ValueError, match=message):
        call(encoder)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (["a", "b"], True),
        ("a", True),
        (("a", "b"), True),
        ((["a"], ["b"]), True),
        (np.array(["a", "b"]), True),
        (np.array(["a", "b"], object), True),
        ((np.zeros(2), np.zeros(2)), False),
        (np.zeros((2, 3)), False),
        ({"token_ids": np.zeros((1, 2))}, False),
        ([np.zeros(2)], False),
        ((["a"], []), True),
        (([], ["a"]), True),
        (([], []), False),
        ((["a"], ["b"], ["c"]), False),
        ([["a"], ["b"]], False),
        (b"a", False),
        (None, False),
        ([], False),
    ],
)
def test_what_counts_as_text(x, expected):
    assert is_text(x) is expected
