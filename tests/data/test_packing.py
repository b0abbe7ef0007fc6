import numpy as np
import pytest

from mlp_mixers.data.packing import pack_documents
from mlp_mixers.data.sentences import split_sentences
from mlp_mixers.data.tokenizer import Tokenizer

WORDS = [
    "the",
    "cat",
    "dog",
    "sat",
    "on",
    "under",
    "table",
    "Größe",
    "🙂",
    "don't",
]
PAD, CLS, SEP = 0, 1, 2


def document(rng, sentences, longest=12):
    """Sentences of words, which begin with a capital and end in a stop."""
    made = []
    for _ in range(sentences):
        words = rng.choice(WORDS, rng.integers(1, longest + 1))
        made.append("X" + " ".join(words) + rng.choice([".", "!", "?"]))
    return " ".join(made)


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(5)
    return [document(rng, rng.integers(1, 9)) for _ in range(60)]


@pytest.fixture(scope="module")
def tokenizer(documents):
    return Tokenizer.train(documents, 290)


def texts_of(row, tokenizer):
    """The texts between the special tokens of a row."""
    texts, current = [], []
    for token in row[row != PAD][1:]:
        if token == SEP:
            texts.append(tokenizer.decode(current))
            current = []
        else:
            current.append(token)
    assert not current
    return texts


def slow_pack(documents, tokenizer, length):
    """Rows as lists of (text after a special token); encodes them whole."""

    def fits(texts):
        ids = [e.ids for e in tokenizer.encode([f" {t}" for t in texts])]
        return 1 + sum(len(i) + 1 for i in ids) <= length

    rows = []
    for text in documents:
        for i, sentence in enumerate(split_sentences(text)):
            if not rows:
                rows.append([sentence])
                continue
            if i == 0:
                longer = [*rows[-1], sentence]
            else:
                longer = [*rows[-1][:-1], f"{rows[-1][-1]} {sentence}"]
            if fits(longer):
                rows[-1] = longer
            else:
                rows.append([sentence])
    return rows


@pytest.mark.parametrize("length", [64, 128, 257])
def test_rows_are_what_encoding_their_text_gives(documents, tokenizer, length):
    """Long rows, in which every sentence has room."""
    packed = pack_documents(documents, tokenizer, length)
    rows = slow_pack(documents, tokenizer, length)
    assert packed.token_ids.dtype == np.int32
    assert packed.token_ids.shape == (len(rows), length)
    for texts, row, starts in zip(rows, packed.token_ids, packed.word_starts):
        expected, words = [CLS], [True]
        for encoding in tokenizer.encode([f" {text}" for text in texts]):
            expected += [*encoding.ids, SEP]
            new = np.diff(encoding.word_ids, prepend=-1) != 0
            words += [*new.tolist(), True]
        left = length - len(expected)
        assert row.tolist() == expected + [PAD] * left
        assert starts.tolist() == words + [True] * left


def test_counts(documents, tokenizer):
    packed = pack_documents(documents, tokenizer, 64)
    sentences = [s for d in documents for s in split_sentences(d)]
    assert packed.documents == len(documents)
    assert packed.sentences == len(sentences)
    assert packed.cut_sentences == 0
    assert packed.characters == sum(map(len, sentences))
    assert packed.rows == len(packed.token_ids)
    assert packed.filled == (packed.token_ids != PAD).sum()
    assert packed.tokens == (packed.token_ids > SEP).sum()
    assert packed.fill == (packed.token_ids != PAD).mean()
    assert f"{packed.fill:.1%} filled" in str(packed)
    assert f"{packed.rows:,} rows of 64" in str(packed)


@pytest.mark.parametrize("length", [3, 4, 7, 16])
def test_long_sentences_are_cut_and_nothing_is_lost(
    documents, tokenizer, length
):
    packed = pack_documents(documents, tokenizer, length)
    ids = packed.token_ids
    assert (ids[:, 0] == CLS).all()
    # Padding comes last, and after a `<sep>`.
    used = (ids != PAD).sum(axis=1)
    for row, end in zip(ids, used):
        assert (row[:end] != PAD).all()
        assert row[end - 1] == SEP
        assert (row[1:end] != CLS).all()
        assert len(row[(row > SEP)]) > 0
    text = tokenizer.decode(ids[ids > SEP])
    assert "".join(text.split()) == "".join("".join(documents).split())
    sizes = [
        len(e.ids)
        for d in documents
        for e in tokenizer.encode([f" {s}" for s in split_sentences(d)])
    ]
    assert packed.cut_sentences == (np.array(sizes) > length - 2).sum()
    # Each row begins a word, whatever was cut.
    assert packed.word_starts[:, 1].all()


def test_a_cut_sentence_goes_on_in_its_rows():
    tokenizer = Tokenizer.train(["a"], 260)  # bytes only
    packed = pack_documents(["abcdefghij. Kl.", "X."], tokenizer, 6)
    rows = [
        tokenizer.decode(row, skip_special_tokens=False)
        for row in packed.token_ids
    ]
    assert rows == [
        "<cls> abc<sep>",
        "<cls>defg<sep>",
        "<cls>hij.<sep>",
        "<cls> Kl.<sep>",
        "<cls> X.<sep><pad>",
    ]
    assert packed.cut_sentences == 1
    starts = packed.word_starts[:3].astype(int).tolist()
    assert starts == [
        [1, 1, 0, 0, 0, 1],
        [1, 1, 0, 0, 0, 1],
        [1, 1, 0, 0, 1, 1],
    ]


def test_documents_share_a_row():
    tokenizer = Tokenizer.train(["a"], 260)
    packed = pack_documents(["A b. C.", "", " \n ", "D.", "E."], tokenizer, 20)
    (row,) = packed.token_ids
    assert texts_of(row, tokenizer) == [" A b. C.", " D.", " E."]
    assert packed.documents == 3
    assert packed.filled == 18
    # One place less: the last document's `<sep>` would have no room.
    short = pack_documents(["A b. C.", "D.", "E."], tokenizer, 17)
    assert [texts_of(row, tokenizer) for row in short.token_ids] == [
        [" A b. C.", " D."],
        [" E."],
    ]
    full = pack_documents(["A b. C.", "D.", "E."], tokenizer, 18)
    assert len(full.token_ids) == 1
    assert full.fill == 1


def test_more_sentences_than_are_encoded_at_once(tokenizer, monkeypatch):
    from mlp_mixers.data import packing

    documents = [document(np.random.default_rng(i), 5) for i in range(20)]
    whole = pack_documents(documents, tokenizer, 40)
    monkeypatch.setattr(packing, "CHUNK", 7)
    parts = pack_documents(documents, tokenizer, 40)
    np.testing.assert_array_equal(whole.token_ids, parts.token_ids)
    np.testing.assert_array_equal(whole.word_starts, parts.word_starts)


@pytest.mark.parametrize(
    ("texts", "length", "message"),
    [
        ([], 8, "no text to pack"),
        (["", " \n\t "], 8, "no text to pack"),
        ("one string", 8, r"not one string: \[text\]"),
        (["a"], 2, "3 or more. Received: 2"),
        (["a"], 8.0, "sequence_length=8.0"),
        (["a\ud800"], 8, "surrogate"),
    ],
)
def test_what_cannot_be_packed(tokenizer, texts, length, message):
    with pytest.raises(ValueError, match=message):
        pack_documents(texts, tokenizer, length)
