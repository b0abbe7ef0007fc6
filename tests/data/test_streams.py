"""Streams of text, row by row."""

import numpy as np
import pytest

from mlp_mixers.data import Tokenizer
from mlp_mixers.data.streams import CausalLMBatches
from mlp_mixers.data.streams import stream_documents

TEXTS = ["One two three.", "", " \n", "Vier\nfünf sechs 🙂.", "x"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS, 300)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_every_token_is_predicted_once_after_those_before_it(tokenizer, n):
    stream = stream_documents(TEXTS, tokenizer, n)
    expected = []
    for text in TEXTS:
        if text.strip():
            ids = tokenizer.encode([" " + text])[0].ids
            expected += [tokenizer.cls_id, *ids, tokenizer.sep_id]
    assert stream.tokens == len(expected)
    assert stream.documents == 3
    assert stream.characters == sum(len(TEXTS[i]) for i in (0, 3, 4))
    rows = stream.token_ids
    np.testing.assert_array_equal(rows[1:, 0], rows[:-1, -1])
    found = np.concatenate([rows[:1, 0], rows[:, 1:].ravel()])
    np.testing.assert_array_equal(found[: len(expected)], expected)
    assert (found[len(expected) :] == tokenizer.pad_id).all()
    assert len(found) - len(expected) < n or len(rows) == 1
    assert tokenizer.decode(found) == " ".join(
        ["", TEXTS[0], TEXTS[3], TEXTS[4]]
    )


def test_batches(tokenizer):
    stream = stream_documents(TEXTS, tokenizer, 4)
    batches = CausalLMBatches(stream, tokenizer.pad_id, 3)
    inputs, labels, weights = batches[0]
    np.testing.assert_array_equal(inputs["token_ids"], stream.token_ids[:3, :4])
    np.testing.assert_array_equal(labels, stream.token_ids[:3, 1:])
    assert inputs["padding_mask"].all()
    assert weights.dtype == "float32"
    rows = [batches[i] for i in range(len(batches))]
    assert sum(len(row[1]) for row in rows) == stream.rows == batches.num_rows
    # Of all labels, those that are padding do not count.
    counted = sum(row[2].sum() for row in rows)
    assert counted == stream.tokens - 1
    with pytest.raises(IndexError):
        batches[len(batches)]
    later = CausalLMBatches(stream, tokenizer.pad_id, 3, first_predicted=2)
    for i in range(len(batches)):
        np.testing.assert_array_equal(
            later[i][2], batches[i][2] * [0.0, 0.0, 1.0, 1.0]
        )


def test_the_order_follows_from_seed_and_epoch(tokenizer):
    stream = stream_documents(TEXTS * 5, tokenizer, 3)

    def order(seed, epoch):
        batches = CausalLMBatches(stream, 0, 4, seed, drop_remainder=True)
        batches.epoch = epoch
        made = [batches[i][1] for i in range(len(batches))]
        return np.concatenate(made).tolist()

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)
    assert order(None, 0) == order(None, 3)


@pytest.mark.parametrize("texts", [[], [" ", "\n"]])
def test_no_text(tokenizer, texts):
    with pytest.raises(ValueError, match="no text"):
        stream_documents(texts, tokenizer, 4)


def test_bad_arguments(tokenizer):
    with pytest.raises(ValueError, match="not one string"):
        stream_documents("text", tokenizer, 4)
    with pytest.raises(ValueError, match="sequence_length"):
        stream_documents(TEXTS, tokenizer, 0)
    rows = stream_documents(TEXTS, tokenizer, 4).token_ids
    with pytest.raises(ValueError, match="there is no batch"):
        CausalLMBatches(rows, 0, 1000, drop_remainder=True)
    with pytest.raises(ValueError, match="at least one row"):
        CausalLMBatches(rows[:0], 0)
    with pytest.raises(ValueError, match="seed"):
        CausalLMBatches(rows, 0, seed=-1)
    with pytest.raises(ValueError, match="No output would count"):
        CausalLMBatches(rows, 0, first_predicted=4)
