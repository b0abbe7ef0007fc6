"""Rows of one length, filled with whole sentences."""

import dataclasses
import itertools

import numpy as np

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.sentences import split_sentences

# Sentences that are cut into tokens at once; an Encoding takes some hundred
# bytes a token, and is turned into 5 before the next ones are made.
CHUNK = 4096


@dataclasses.dataclass(frozen=True)
class PackedText:
    """Token ids in rows of one length.

    `token_ids` is int32 `(rows, n)`. `word_starts` is boolean of the same
    shape: a token that is not one goes on with the word of the token before
    it. Special tokens and padding are words of their own.

    The rest are counts: of the `documents` and `sentences` that hold text, of
    sentences that had to be cut (`cut_sentences`), of `characters` in the
    sentences, of `tokens` that stand for text, and of positions that are not
    padding (`filled`).
    """

    token_ids: np.ndarray
    word_starts: np.ndarray
    documents: int
    sentences: int
    cut_sentences: int
    characters: int
    tokens: int
    filled: int

    @property
    def rows(self):
        return len(self.token_ids)

    @property
    def fill(self):
        """Share of the positions that are not padding."""
        return self.filled / self.token_ids.size

    def __str__(self):
        per_token = self.characters / self.tokens
        return (
            f"{self.documents:,} documents, {self.sentences:,} sentences "
            f"({self.cut_sentences:,} cut), {self.characters:,} characters, "
            f"{self.tokens:,} tokens ({per_token:.2f} characters each), "
            f"{self.rows:,} rows of {self.token_ids.shape[1]}, "
            f"{self.fill:.1%} filled"
        )


def pack_documents(documents, tokenizer, sequence_length):
    """Fills rows with whole sentences, document after document.

    A row is `<cls> sentence sentence ... <sep> <pad> ...`. Sentences come in
    their order, each into the row before it if there it has room, or else
    into a new one. Where another document begins within a row, a `<sep>`
    stands between. A sentence of more than n-2 tokens begins in a new row
    and is cut into pieces of n-2 tokens, the last of which leaves room for
    what follows. No text is left out.

    Every sentence is encoded with a space before it, also after `<cls>` and
    `<sep>` (`TextEncoder` does the same): a word then is one token wherever
    it stands, and not another one at the beginning of a row.

    Args:
        documents: Iterable of strings.
        tokenizer: A `Tokenizer`.
        sequence_length: n, the length of a row.

    Returns:
        A `PackedText`.

    Raises:
        ValueError: If the documents hold no text, or a row has no room for
            any.

    Reference:
        Liu et al. (2019), "RoBERTa: A Robustly Optimized BERT Pretraining
        Approach", section 4.2, FULL-SENTENCES.
    """
    length = positive_integer(sequence_length, "sequence_length")
    if length < 3:
        raise ValueError(
            "A row must have room for `<cls>`, a token and `<sep>`: "
            f"`sequence_length` is 3 or more. Received: {sequence_length!r}"
        )
    if isinstance(documents, str):
        raise ValueError(
            "`documents` must be an iterable of strings, not one string: "
            f"[text]. Received: documents={documents[:40]!r}"
        )
    parts = [split_sentences(document) for document in documents]
    parts = [sentences for sentences in parts if sentences]
    if not parts:
        raise ValueError(
            "There is no text to pack: give documents that hold more than "
            "white space. Received: documents without any"
        )
    sentences = list(itertools.chain.from_iterable(parts))
    first = np.zeros(len(sentences), bool)  # of its document
    first[np.cumsum([0, *map(len, parts[:-1])])] = True
    tokens = _encode([f" {sentence}" for sentence in sentences], tokenizer)
    plan = _plan(tokens.lengths, first, length)
    token_ids, word_starts = _fill(plan, tokens, length, tokenizer)
    pieces = np.array(plan.pieces)
    return PackedText(
        token_ids,
        word_starts,
        documents=len(parts),
        sentences=len(sentences),
        cut_sentences=int((tokens.lengths > length - 2).sum()),
        characters=sum(map(len, sentences)),
        tokens=int(pieces[:, 1].sum()),
        filled=int((token_ids != tokenizer.pad_id).sum()),
    )


@dataclasses.dataclass
class _Tokens:
    """Sentences end to end."""

    ids: np.ndarray  # int32 (tokens,)
    starts: np.ndarray  # bool (tokens,): begins a word
    lengths: np.ndarray  # int (sentences,)


@dataclasses.dataclass
class _Plan:
    """Where everything goes.

    A piece is (its first token, its length, row, column). A `<sep>` is at
    (row, column).
    """

    pieces: list
    separators: list
    rows: int


def _encode(sentences, tokenizer):
    ids, starts, lengths = [], [], []
    for begin in range(0, len(sentences), CHUNK):
        encoded = tokenizer.encode(sentences[begin : begin + CHUNK])
        sizes = [len(encoding) for encoding in encoded]
        total = sum(sizes)
        words = np.fromiter(
            itertools.chain.from_iterable(e.word_ids for e in encoded),
            np.int64,
            total,
        )
        is_start = np.ones(total, bool)
        is_start[1:] = words[1:] != words[:-1]
        # Words are counted anew in each sentence.
        is_start[np.cumsum(sizes) - sizes] = True
        ids.append(
            np.fromiter(
                itertools.chain.from_iterable(e.ids for e in encoded),
                np.int32,
                total,
            )
        )
        starts.append(is_start)
        lengths.extend(sizes)
    return _Tokens(
        np.concatenate(ids), np.concatenate(starts), np.array(lengths)
    )


def _plan(lengths, first, length):
    """Puts sentences of these lengths into rows.

    Args:
        lengths: Lengths of the sentences.
        first: Which of them are the first ones of their documents.
        length: Length of a row.
    """
    plan = _Plan([], [], 0)
    # Python's own integers, which are faster one by one.
    begins = (np.cumsum(lengths) - lengths).tolist()
    row, column = 0, 1  # where the next token goes; before it is `<cls>`
    for begin, left, is_first in zip(begins, lengths.tolist(), first.tolist()):
        if column > 1:
            gap = int(is_first)  # for a `<sep>` between documents
            if column + gap + left + 1 <= length:  # a last one must fit too
                if is_first:
                    plan.separators.append((row, column))
                plan.pieces.append((begin, left, row, column + gap))
                column += gap + left
                continue
            plan.separators.append((row, column))
            row, column = row + 1, 1
        while left > length - 2:
            plan.pieces.append((begin, length - 2, row, 1))
            plan.separators.append((row, length - 1))
            begin, left, row = begin + length - 2, left - (length - 2), row + 1
        plan.pieces.append((begin, left, row, 1))
        column = 1 + left
    plan.separators.append((row, column))
    plan.rows = row + 1
    return plan


def _fill(plan, tokens, length, tokenizer):
    """`(token_ids, word_starts)` by the plan."""
    shape = plan.rows, length
    token_ids = np.full(shape, tokenizer.pad_id, np.int32)
    word_starts = np.ones(shape, bool)
    token_ids[:, 0] = tokenizer.cls_id
    token_ids[tuple(np.array(plan.separators).T)] = tokenizer.sep_id
    begins, sizes, rows, columns = np.array(plan.pieces).T
    source = _ranges(begins, sizes)
    target = _ranges(rows * length + columns, sizes)
    token_ids.reshape(-1)[target] = tokens.ids[source]
    word_starts.reshape(-1)[target] = tokens.starts[source]
    # The rest of a word that was cut begins its row.
    word_starts[rows, columns] = True
    return token_ids, word_starts


def _ranges(begins, sizes):
    """The integers of begin, ..., begin + size - 1, one range after another."""
    offsets = np.cumsum(sizes) - sizes
    return np.repeat(begins - offsets, sizes) + np.arange(sizes.sum())
