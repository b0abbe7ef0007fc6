"""Rows of one length from a stream of text, for models that write on."""

import dataclasses

import numpy as np

from mlp_mixers.arguments import boolean
from mlp_mixers.arguments import natural_number
from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.epochs import EpochBatches
from mlp_mixers.data.epochs import EpochOrder
from mlp_mixers.data.epochs import number_of_batches
from mlp_mixers.data.packing import CHUNK
from mlp_mixers.data.text_encoder import spaced


@dataclasses.dataclass(frozen=True)
class TextStream:
    """Documents end to end, cut into rows.

    `token_ids` is int32 `(rows, n + 1)`: n tokens and the one that follows
    them, which is also the first of the next row. The rest are counts: of
    `documents`, of `characters` in them, and of `tokens`, those that frame a
    document included.
    """

    token_ids: np.ndarray
    documents: int
    characters: int
    tokens: int

    @property
    def rows(self):
        return len(self.token_ids)

    def __str__(self):
        return (
            f"{self.documents:,} documents, {self.characters:,} characters, "
            f"{self.tokens:,} tokens, {self.rows:,} rows of "
            f"{self.token_ids.shape[1] - 1}"
        )


def stream_documents(documents, tokenizer, sequence_length):
    """Cuts a stream of documents into rows of one length.

    The stream is `<cls> document <sep> <cls> document <sep> ...`, each
    document with a space before it, as everywhere. A row has the n tokens
    from i·n on and the one after them, so that every token but the very first
    is predicted once. The last row is padded.

    Args:
        documents: Iterable of strings.
        tokenizer: A `Tokenizer`.
        sequence_length: n.

    Returns:
        A `TextStream`.

    Raises:
        ValueError: If the documents hold no text.
    """
    n = positive_integer(sequence_length, "sequence_length")
    if isinstance(documents, str):
        raise ValueError(
            "`documents` must be an iterable of strings, not one string: "
            f"[text]. Received: documents={documents[:40]!r}"
        )
    texts = [document for document in documents if document.strip()]
    if not texts:
        raise ValueError(
            "There is no text to cut into rows: give documents that hold more "
            "than white space. Received: documents without any"
        )
    begin, end = [tokenizer.cls_id], [tokenizer.sep_id]
    pieces = []
    for start in range(0, len(texts), CHUNK):
        some = [spaced(text) for text in texts[start : start + CHUNK]]
        for encoding in tokenizer.encode(some):
            pieces.append(np.array([*begin, *encoding.ids, *end], "int32"))
    stream = np.concatenate(pieces)
    rows = max(1, -(-(len(stream) - 1) // n))
    padded = np.full(rows * n + 1, tokenizer.pad_id, "int32")
    padded[: len(stream)] = stream
    starts = np.arange(rows)[:, None] * n
    return TextStream(
        padded[starts + np.arange(n + 1)],
        documents=len(texts),
        characters=sum(map(len, texts)),
        tokens=len(stream),
    )


class CausalLMBatches(EpochBatches):
    """Rows of a stream in batches: each token, and the one that follows.

    A batch is `(inputs, labels, weights)`: inputs are the dictionary of
    `token_ids`, int32 `(b, n)`, and `padding_mask`, boolean `(b, n)`;
    `labels`, int32 `(b, n)`, are the tokens that follow; `weights`, float32
    `(b, n)`, are 0 where what follows is padding.

    The order of an epoch is a function of (seed, epoch). As with
    `ImageBatches`, pass `shuffle=False` to `fit`, and `FollowEpochs(batches)`
    as a callback.

    Args:
        stream: A `TextStream`, or only its `token_ids`.
        pad_id: The token that is padding.
        batch_size: Rows in a batch.
        seed: Integer that the order follows from; `None` keeps it.
        drop_remainder: Whether to leave out a last, smaller batch.
        first_predicted: The first output that counts; weights before it are
            0. For models that are to be compared with one that can be asked
            for later tokens only, see `CausalLM.first_predicted`.

    Raises:
        ValueError: If there is no batch, or an argument is out of range.
    """

    def __init__(
        self,
        stream,
        pad_id,
        batch_size=32,
        seed=None,
        drop_remainder=False,
        first_predicted=0,
    ):
        make = CausalBatchMaker(
            stream, pad_id, batch_size, seed, drop_remainder, first_predicted
        )
        super().__init__(make)

    @property
    def first_predicted(self):
        """The first output that counts."""
        return self._make.first_predicted

    @property
    def num_rows(self):
        """How many rows there are, those of a left out batch included."""
        return len(self._make.token_ids)


class CausalBatchMaker:
    """The batch as a function of (epoch, index); see `CausalLMBatches`."""

    def __init__(
        self, stream, pad_id, batch_size, seed, drop_remainder, first_predicted
    ):
        self.token_ids = np.asarray(getattr(stream, "token_ids", stream))
        if self.token_ids.ndim != 2 or 0 in self.token_ids.shape:
            raise ValueError(
                "There must be at least one row of token ids, of shape "
                "`(rows, n + 1)`. "
                f"Received: token ids of shape {self.token_ids.shape}"
            )
        self.pad_id = pad_id
        self.batch_size = positive_integer(batch_size, "batch_size")
        if seed is not None:
            seed = natural_number(seed, "seed")
        self.drop_remainder = boolean(drop_remainder, "drop_remainder")
        self.first_predicted = natural_number(
            first_predicted, "first_predicted"
        )
        if self.first_predicted > self.token_ids.shape[1] - 2:
            raise ValueError(
                "No output would count. Received: "
                f"first_predicted={first_predicted}, rows of "
                f"{self.token_ids.shape[1] - 1} outputs"
            )
        self._order = EpochOrder(len(self.token_ids), seed)
        if not len(self):
            raise ValueError(
                "Without the remainder there is no batch: lower `batch_size` "
                "or set `drop_remainder=False`. Received: "
                f"batch_size={batch_size}, {len(self.token_ids)} rows"
            )

    def __len__(self):
        rows = len(self.token_ids)
        return number_of_batches(rows, self.batch_size, self.drop_remainder)

    def __call__(self, epoch, index):
        start = index * self.batch_size
        rows = self._order(epoch)[start : start + self.batch_size]
        tokens, labels = self.token_ids[rows, :-1], self.token_ids[rows, 1:]
        inputs = {"token_ids": tokens, "padding_mask": tokens != self.pad_id}
        counted = np.arange(labels.shape[1]) >= self.first_predicted
        counted = counted & (labels != self.pad_id)
        return inputs, labels, counted.astype("float32")
