"""Passages longer than the input, as windows that overlap.

    <cls> question <sep> piece of the passage <sep> <pad> ...

Reference: Devlin et al., BERT (arXiv 1810.04805), section 4.2 and 4.3: spans
are scored by the sum of two logits, and no answer is the span of `<cls>`.
"""

import dataclasses

import numpy as np

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.text_encoder import spaced

# So many windows, or texts, are worked on at a time.
CHUNK = 1024
NO_TOKEN = -1


@dataclasses.dataclass(frozen=True)
class SpanWindows:
    """Windows onto passages, ready for a model.

    With w windows of n tokens:

    Attributes:
        token_ids: int32 `(w, n)`.
        padding_mask: bool `(w, n)`, true at real tokens.
        example: int32 `(w,)`, the index of the question of a window. The
            windows of a question follow one another.
        starts: int32 `(w,)`, position of the first token of the answer; 0,
            where `<cls>` is, if the answer is not whole in this window. `None`
            without answers.
        ends: The same for the last token, which belongs to the answer.
        context_first: int32 `(w,)`, position of the first passage token.
        context_count: int32 `(w,)`, number of passage tokens.
        contexts: List of strings, the passages of the questions.
    """

    token_ids: np.ndarray
    padding_mask: np.ndarray
    example: np.ndarray
    starts: np.ndarray | None
    ends: np.ndarray | None
    context_first: np.ndarray
    context_count: np.ndarray
    contexts: list
    # Of every token of every distinct passage, one after the other, where it
    # begins and ends; and where a window begins therein.
    _spans: np.ndarray = dataclasses.field(repr=False)
    _begin: np.ndarray = dataclasses.field(repr=False)

    def __len__(self):
        return len(self.token_ids)

    def offsets(self, rows=None):
        """Where the tokens stand in their passages.

        Args:
            rows: Indices of windows; all if `None`.

        Returns:
            int32 `(windows, n, 2)`: token i of window k is
            `context[start:end]` with `(start, end) = offsets[k, i]`, and
            `(-1, -1)` if it is not of the passage.
        """
        rows = np.arange(len(self)) if rows is None else np.asarray(rows)
        place = self._places(rows)
        inside = place >= 0
        offsets = np.full((*place.shape, 2), NO_TOKEN, "int32")
        offsets[inside] = self._spans[
            (self._begin[rows][:, None] + place)[inside]
        ]
        return offsets

    def is_context(self, rows=None):
        """Which tokens are of the passage: bool `(windows, n)`."""
        rows = np.arange(len(self)) if rows is None else np.asarray(rows)
        return self._places(rows) >= 0

    def _places(self, rows):
        """Number of each token within its piece of the passage, or -1."""
        n = self.token_ids.shape[1]
        place = np.arange(n) - self.context_first[rows][:, None]  # (rows, n)
        inside = (place >= 0) & (place < self.context_count[rows][:, None])
        return np.where(inside, place, NO_TOKEN)

    def text(self, window, start, end):
        """What stands in the passage from token `start` to token `end`."""
        begin = self._begin[window] - self.context_first[window]
        context = self.contexts[self.example[window]]
        first, last = self._spans[begin + start, 0], self._spans[begin + end, 1]
        return context[first:last].strip()


@dataclasses.dataclass(frozen=True)
class SpanPredictions:
    """The best answer to each question.

    Attributes:
        texts: List of strings; `""` is "no answer".
        scores: float32 `(questions,)`, the score of the best span, whether it
            was taken or not; of a passage without tokens that of no answer.
        null_differences: float32 `(questions,)`, the score of no answer minus
            that of the best span; infinite for a passage without tokens.
    """

    texts: list
    scores: np.ndarray
    null_differences: np.ndarray


def span_windows(
    questions,
    contexts,
    tokenizer,
    sequence_length,
    stride,
    max_question=64,
    answers=None,
):
    """Cuts passages into windows, each with its question before it.

    A passage that does not fit is shown several times, each window beginning
    `stride` tokens after the one before, until its end is reached.

    Args:
        questions: List of strings.
        contexts: List of strings, as long. A passage that occurs several times
            is tokenised once.
        tokenizer: A `Tokenizer`.
        sequence_length: Number of tokens n of a window.
        stride: Number of passage tokens from the beginning of a window to that
            of the next one.
        max_question: Number of tokens to which longer questions are cut.
        answers: The labels of `Examples` with spans, or `None`. Of several
            answers the first one counts whose place is known.

    Returns:
        `SpanWindows`.

    Raises:
        ValueError: If an argument is out of range, or windows were so short
            that passage tokens would fall between two of them.
    """
    n = positive_integer(sequence_length, "sequence_length")
    stride = positive_integer(stride, "stride")
    max_question = positive_integer(max_question, "max_question")
    if stride > n - max_question - 3:
        raise ValueError(
            "Beside <cls>, twice <sep> and the longest question, a window must "
            "hold `stride` tokens of the passage: sequence_length - "
            "max_question - 3 >= stride. Received: "
            f"sequence_length={n}, max_question={max_question}, "
            f"stride={stride}"
        )
    for name, values in (("contexts", contexts), ("answers", answers)):
        if values is not None and len(values) != len(questions):
            raise ValueError(
                f"`{name}` must have one entry for each question. Received: "
                f"{len(values)} for {len(questions)} questions"
            )
    distinct = {text: k for k, text in enumerate(dict.fromkeys(contexts))}
    which = np.array([distinct[text] for text in contexts], int)
    passages = _encode(tokenizer, list(distinct), with_spans=True)
    asked = _encode(tokenizer, list(questions), limit=max_question)
    layout = _layout(asked.count, passages.count[which], n, stride)
    example, skipped, count = layout  # (w,) each
    begin = passages.begin[which[example]] + skipped
    first = asked.count[example] + 2
    token_ids, mask = _fill(
        tokenizer, n, asked, passages, example, begin, count
    )
    starts = ends = None
    if answers is not None:
        tokens = _answer_tokens(answers, passages, which)  # (questions, 2)
        starts, ends = _positions(tokens[example], skipped, count, first)
    return SpanWindows(
        token_ids=token_ids,
        padding_mask=mask,
        example=example.astype("int32"),
        starts=starts,
        ends=ends,
        context_first=first.astype("int32"),
        context_count=count.astype("int32"),
        contexts=list(contexts),
        _spans=passages.spans,
        _begin=begin,
    )


def best_spans(
    start_logits,
    end_logits,
    windows,
    max_answer_tokens=30,
    null_threshold=None,
):
    """The best answer to each question, over all its windows.

    The score of tokens i to j of a passage is start_logits[i] + end_logits[j].
    The best one is the largest over all windows with i <= j < i +
    `max_answer_tokens`, all of them compared; of equals the first. The score
    of no answer is start_logits[0] + end_logits[0], at `<cls>`, in the window
    where it is least: a question has no answer if no window has one.

    Args:
        start_logits: Array `(w, n)`.
        end_logits: Array `(w, n)`.
        windows: `SpanWindows` with w windows.
        max_answer_tokens: Largest number of tokens of an answer.
        null_threshold: The answer is `""` if the score of no answer exceeds
            the best one by more than this; `None` if every question has an
            answer, as in SQuAD 1.1.

    Returns:
        `SpanPredictions`. The answer to a question about a passage without
        tokens is `""`, its score that of no answer.

    Raises:
        ValueError: If the logits are of another shape or not numbers.
    """
    limit = positive_integer(max_answer_tokens, "max_answer_tokens")
    logits = [np.asarray(x) for x in (start_logits, end_logits)]
    for name, array in zip(("start_logits", "end_logits"), logits):
        if array.shape != windows.token_ids.shape:
            raise ValueError(
                f"`{name}` must have a value for each token of each window, "
                f"shape {windows.token_ids.shape}. Received: "
                f"shape={array.shape}"
            )
    w = len(windows)
    score = np.zeros(w, "float32")
    null = np.zeros(w, "float32")
    place = np.zeros((w, 2), int)
    for begin in range(0, w, CHUNK):
        rows = np.arange(begin, min(begin + CHUNK, w))
        start, end = (x[rows].astype("float32") for x in logits)
        if np.isnan(start).any() or np.isnan(end).any():
            raise ValueError(
                "The logits are not numbers (NaN) in some places; the training "
                "may have diverged."
            )
        null[rows] = start[:, 0] + end[:, 0]
        score[rows], place[rows] = _best(
            start, end, windows.is_context(rows), limit
        )
    return _merge(score, null, place, windows, null_threshold)


@dataclasses.dataclass
class _Tokens:
    """Tokens of texts, one text after the other.

    ids `(tokens,)`; count and begin `(texts,)`; spans `(tokens, 2)`.
    """

    ids: np.ndarray
    count: np.ndarray
    begin: np.ndarray
    spans: np.ndarray | None


def _encode(tokenizer, texts, limit=None, with_spans=False):
    """`_Tokens` of texts."""
    ids, spans, count = [], [], []
    for begin in range(0, len(texts), CHUNK):
        some = texts[begin : begin + CHUNK]
        for text, encoding in zip(some, tokenizer.encode([*map(spaced, some)])):
            ids.append(np.array(encoding.ids[:limit], "int32"))
            count.append(len(ids[-1]))
            if with_spans:
                offsets = np.array(encoding.offsets, "int32")
                # The space before the first word may not be of the text.
                offsets = offsets + (len(text) - len(spaced(text)))
                spans.append(np.maximum(offsets, 0).reshape(-1, 2))
    count = np.array(count, int)
    # One more at the end, so that an index behind the last token exists.
    ids = np.concatenate([*ids, np.zeros(1, "int32")])
    if with_spans:
        spans = np.concatenate([*spans, np.zeros((1, 2), "int32")])
    begin = np.cumsum(count) - count
    return _Tokens(ids, count, begin, spans if with_spans else None)


def _layout(asked, lengths, n, stride):
    """Windows of each question: `(example, tokens skipped, tokens shown)`."""
    room = n - 3 - asked  # (questions,)
    windows = 1 + np.maximum(0, -((room - lengths) // stride))
    example = np.repeat(np.arange(len(asked)), windows)  # (w,)
    first = np.cumsum(windows) - windows
    skipped = (np.arange(len(example)) - first[example]) * stride
    return (
        example,
        skipped,
        np.minimum(lengths[example] - skipped, room[example]),
    )


def _fill(tokenizer, n, asked, passages, example, begin, count):
    """Token ids and padding mask of the windows, both `(w, n)`."""
    w = len(example)
    token_ids = np.full((w, n), tokenizer.pad_id, "int32")
    mask = np.zeros((w, n), bool)
    position = np.arange(n)
    for chunk in range(0, w, CHUNK):
        rows = slice(chunk, chunk + CHUNK)
        q = asked.count[example[rows], None]  # (rows, 1)
        last = q + 2 + count[rows, None]
        ids = token_ids[rows]  # a view
        is_question = (position > 0) & (position <= q)
        place = asked.begin[example[rows], None] + position - 1
        ids[is_question] = asked.ids[place[is_question]]
        is_context = (position >= q + 2) & (position < last)
        place = begin[rows, None] + position - (q + 2)
        ids[is_context] = passages.ids[place[is_context]]
        ids[:, 0] = tokenizer.cls_id
        ids[(position == q + 1) | (position == last)] = tokenizer.sep_id
        mask[rows] = position <= last
    return token_ids, mask


def _answer_tokens(answers, passages, which):
    """First and last token of each answer in its passage, or (-1, -1)."""
    tokens = np.full((len(answers), 2), NO_TOKEN, int)
    for k, label in enumerate(answers):
        if label["is_impossible"]:
            continue
        pairs = zip(label["answers"], label["answer_starts"])
        text, start = next((p for p in pairs if p[1] >= 0), ("", NO_TOKEN))
        begin, count = passages.begin[which[k]], passages.count[which[k]]
        if not text or not count:
            continue
        spans = passages.spans[begin : begin + count]
        # The first token that ends behind the first character, and the last
        # one that begins before the end; several tokens may share a character.
        first = np.searchsorted(spans[:, 1], start, side="right")
        last = np.searchsorted(spans[:, 0], start + len(text)) - 1
        if first < count and last >= first:
            tokens[k] = first, last
    return tokens


def _positions(tokens, skipped, count, first):
    """Start and end labels; 0 where an answer is not whole in a window."""
    place = tokens - skipped[:, None]  # (w, 2)
    whole = (tokens[:, 0] >= 0) & (place[:, 0] >= 0) & (place[:, 1] < count)
    positions = np.where(whole[:, None], place + first[:, None], 0)
    return positions.astype("int32").T


def _best(start, end, allowed, limit):
    """Score and place of the best span of each window.

    Args:
        start, end: float32 `(rows, n)`.
        allowed: bool `(rows, n)`.
        limit: Largest number of tokens.

    Returns:
        `(rows,)` and `(rows, 2)`.
    """
    rows, n = start.shape
    start = np.where(allowed, start, -np.inf)
    end = np.where(allowed, end, -np.inf)
    best = np.full((rows, n), -np.inf, "float32")
    length = np.zeros((rows, n), int)
    # For each start the best length: `more` tokens follow the first one.
    for more in range(min(limit, n)):
        score = start[:, : n - more] + end[:, more:]
        better = score > best[:, : n - more]
        best[:, : n - more][better] = score[better]
        length[:, : n - more][better] = more
    first = best.argmax(1)
    every = np.arange(rows)
    return best[every, first], np.stack(
        [first, first + length[every, first]], 1
    )


def _merge(score, null, place, windows, threshold):
    """`SpanPredictions` out of the best span of each window."""
    count = len(windows.contexts)
    # By question, the best first; of equals the first window.
    order = np.lexsort((np.arange(len(score)), -score, windows.example))
    _, firsts = np.unique(windows.example[order], return_index=True)
    chosen = order[firsts]  # (questions,)
    scores = score[chosen]
    least = np.full(count, np.inf, "float32")
    np.minimum.at(least, windows.example, null)
    differences = least - scores
    texts = []
    for k, window in enumerate(chosen):
        none = threshold is not None and differences[k] > threshold
        found = np.isfinite(scores[k]) and not none
        texts.append(windows.text(window, *place[window]) if found else "")
    # Where there is no span at all, "no answer" is what was said.
    scores = np.where(np.isfinite(scores), scores, least)
    return SpanPredictions(texts, scores, differences.astype("float32"))
