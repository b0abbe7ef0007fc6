"""From strings to the arrays that text models take."""

from collections.abc import Iterable

import numpy as np

from mlp_mixers.arguments import positive_integer

MASK = "<mask>"
# Lengths that batches are padded to are multiples of this, so that models
# are compiled for a few lengths and not for every one.
LENGTH_STEP = 32


class TextEncoder:
    """Makes `token_ids` and `padding_mask` of texts, or of pairs of them.

    A text becomes `<cls> text <sep>`, a pair `<cls> first <sep> second <sep>`,
    BERT's form. What is too long is cut at its end; of a pair, the longer
    text is cut until both fit or are equally long. Inside text nothing stands
    for a special token.

    A text's first word gets a space before it, as words inside a text have:
    else "The" at the beginning and " The" elsewhere would be two tokens.

    Args:
        tokenizer: A `Tokenizer`.
        sequence_length: Longest input of the model, n.

    Raises:
        ValueError: If there is no tokenizer, or no room for a token.
    """

    def __init__(self, tokenizer, sequence_length):
        self.tokenizer = check_tokenizer(tokenizer)
        self.sequence_length = positive_integer(
            sequence_length, "sequence_length"
        )
        if self.sequence_length < 5:
            raise ValueError(
                "A pair of texts needs 5 tokens at least. "
                f"Received: sequence_length={sequence_length}"
            )

    def __call__(self, first, second=None, length=None):
        """Encodes a list of texts.

        Args:
            first: List of strings.
            second: List of as many strings, for pairs; or `None`.
            length: Number of tokens to pad to. `None` takes that of the
                longest text, rounded up.

        Returns:
            Dictionary of `token_ids`, int32, and `padding_mask`, bool, both
            of shape `(len(first), length)`.

        Raises:
            ValueError: If there are no texts, one is not a string, or the
                lists of a pair differ in length.
        """
        first = check_texts(first, "texts")
        rows = self._ids(first)
        room = self.sequence_length
        if second is None:
            rows = [ids[: room - 2] for ids in rows]
            return self._pad([self._frame(ids) for ids in rows], length)
        second = check_texts(second, "second texts")
        if len(second) != len(first):
            raise ValueError(
                "A pair has two texts: give as many second texts as first "
                f"ones. Received: {len(first)} and {len(second)}"
            )
        pairs = [
            cut_pair(a, b, room - 3) for a, b in zip(rows, self._ids(second))
        ]
        return self._pad([self._frame(a, b) for a, b in pairs], length)

    def with_masks(self, texts):
        """Encodes texts in which `<mask>` stands for a token to be found.

        Returns:
            Dictionary of `token_ids`, `padding_mask` and `mask_positions`,
            int32 `(len(texts), most masks in a text)`, 0 where a text has
            fewer; and the list of how many each has.

        Raises:
            ValueError: If a text has no `<mask>`, or is too long: cutting it
                might cut what is asked for.
        """
        texts = check_texts(texts, "texts")
        rows = [self._masked_ids(text) for text in texts]
        positions = [
            [
                i
                for i, token in enumerate(row)
                if token == self.tokenizer.mask_id
            ]
            for row in rows
        ]
        counts = [len(found) for found in positions]
        inputs = self._pad(rows, None)
        padded = np.zeros((len(rows), max(counts)), "int32")
        for row, found in zip(padded, positions):
            row[: len(found)] = found
        return {**inputs, "mask_positions": padded}, counts

    def _masked_ids(self, text):
        pieces = text.split(MASK)
        if len(pieces) == 1:
            raise ValueError(
                f"A text must contain {MASK} where a token is to be found. "
                f"Received: {text!r}"
            )
        mask = self.tokenizer.mask_id
        # The space before a word belongs to its token, so to the mask.
        before = [piece.rstrip(" ") for piece in pieces[:-1]]
        ids = []
        for i, piece in enumerate([*before, pieces[-1]]):
            if i:
                ids.append(mask)
            if piece:
                piece = piece if i else spaced(piece)
                ids.extend(self.tokenizer.encode([piece])[0].ids)
        row = self._frame(ids)
        if len(row) > self.sequence_length:
            raise ValueError(
                f"The text has {len(row)} tokens with <cls> and <sep>, "
                f"and the model reads {self.sequence_length}. Shorten it. "
                f"Received: {text[:40]!r}..."
            )
        return row

    def _ids(self, texts):
        encodings = self.tokenizer.encode([spaced(text) for text in texts])
        return [encoding.ids for encoding in encodings]

    def _frame(self, *parts):
        """<cls> part <sep> part <sep>"""
        row = [self.tokenizer.cls_id]
        for part in parts:
            row += [*part, self.tokenizer.sep_id]
        return row

    def _pad(self, rows, length):
        longest = max(map(len, rows))
        if length is None:
            rounded = -(-longest // LENGTH_STEP) * LENGTH_STEP
            length = min(rounded, self.sequence_length)
        token_ids = np.full((len(rows), length), self.tokenizer.pad_id, "int32")
        padding_mask = np.zeros((len(rows), length), bool)
        for i, row in enumerate(rows):
            token_ids[i, : len(row)] = row
            padding_mask[i, : len(row)] = True
        return {"token_ids": token_ids, "padding_mask": padding_mask}


def check_tokenizer(tokenizer):
    """Returns the tokenizer.

    Raises:
        ValueError: If it is `None`.
    """
    if tokenizer is None:
        raise ValueError(
            "This model has no tokenizer, so it cannot read text. Give it "
            "`tokenizer=`, or `token_ids` and `padding_mask`. "
            "Received: tokenizer=None"
        )
    return tokenizer


def spaced(text):
    """The text with one space before it, unless it is empty."""
    stripped = text.lstrip(" ")
    return f" {stripped}" if stripped else ""


def cut_pair(first, second, room):
    """Cuts the longer one until both fit into `room` tokens.

    Returns:
        The beginnings of `first` and `second`.
    """
    half = room // 2
    if len(first) + len(second) > room:
        if len(first) <= half:
            second = second[: room - len(first)]
        elif len(second) <= room - half:
            first = first[: room - len(second)]
        else:
            first, second = first[:half], second[: room - half]
    return first, second


def is_text(x):
    """Whether this is what a user calls texts: strings, or pairs of lists.

    One string among other things is enough: what is wrong with the others can
    be said then.
    """
    if isinstance(x, str) or is_pair(x):
        return True
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "US" or (
            x.dtype == object and x.size > 0 and isinstance(x.flat[0], str)
        )
    return isinstance(x, (list, tuple)) and any(isinstance(t, str) for t in x)


def is_pair(x):
    """Whether this is a tuple of two lists, of which one holds texts."""
    if not (isinstance(x, tuple) and len(x) == 2):
        return False
    if any(isinstance(part, str) for part in x):
        return False
    return any(is_text(part) for part in x)


def check_texts(texts, name):
    """Returns a list of strings.

    Raises:
        ValueError: If it is one string, is empty, or holds anything else.
    """
    if isinstance(texts, str):
        raise ValueError(
            f"Give {name} as a list: [text]. Received: {texts[:40]!r}"
        )
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise ValueError(
            f"Give {name} as a list of strings: [text, ...]. "
            f"Received: {texts!r:.60}"
        )
    texts = [str(t) if isinstance(t, np.str_) else t for t in texts]
    if not texts:
        raise ValueError(f"There are no {name}. Received: []")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                f"Each of the {name} must be a string. "
                f"Received: number {i} is {text!r:.60}"
            )
    return texts
