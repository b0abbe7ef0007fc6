"""Masked language modelling: which tokens are hidden, and behind what."""

import numpy as np

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.augmentation import probability


def masked_per_row(sequence_length, rate=0.15):
    """P, the number of places for masked tokens in a row.

    max(1, round(rate·n)), a half to the even side: 19 at n=128, 77 at n=512.

    Raises:
        ValueError: If `sequence_length` is not a positive integer or `rate`
            not above 0 and at most 1.
    """
    length = positive_integer(sequence_length, "sequence_length")
    return max(1, round(_check_rate(rate) * length))


def check_places(max_masked, sequence_length):
    """Returns `max_masked` as an `int`.

    Raises:
        ValueError: If a row has not so many tokens.
    """
    places = positive_integer(max_masked, "max_masked")
    if places > sequence_length:
        raise ValueError(
            f"No more than all {sequence_length} tokens of a row can be "
            f"masked. Received: max_masked={max_masked!r}"
        )
    return places


def numbers_per_row(sequence_length, max_masked):
    """How many random numbers `mask_tokens` draws for a row."""
    return sequence_length + 2 * max_masked


def mask_tokens(
    token_ids,
    rng,
    vocabulary_size,
    mask_id,
    special_ids,
    rate=0.15,
    max_masked=None,
    whole_words=False,
    word_starts=None,
    mask_fraction=0.8,
    random_fraction=0.1,
):
    """Hides some tokens of each row and says which ones they were.

    Of m tokens that are not special, k = max(1, round(rate·m)) are chosen (a
    half is rounded to the even side), never more than P, uniformly without
    replacement. A chosen token becomes `<mask>` with probability 0.8, any
    token but the special ones with 0.1, and otherwise stays. A row with m = 0
    has none.

    With `whole_words`, words are drawn in a random order, and each is chosen
    with all its tokens if no more than k tokens are chosen then; one that is
    too long is passed over. So the share of long words is a little smaller
    than that of short ones. If no word of a row has k tokens or fewer, the
    first one in the order with no more than P is chosen, and no token if there
    is none either. What a token becomes is drawn for each by itself.

    Each row takes `numbers_per_row(n, P)` of the generator's uniform numbers.
    So rows masked together come out as if masked one after the other with the
    same generator.

    Args:
        token_ids: Integer array `(rows, n)`.
        rng: `numpy.random.Generator`, the only source of chance.
        vocabulary_size: Number of tokens; what a token becomes is below it.
        mask_id: Id of `<mask>`.
        special_ids: Ids that are neither hidden nor put in a token's place;
            padding among them.
        rate: Share of the tokens to choose.
        max_masked: P; `masked_per_row(n, rate)` if `None`.
        whole_words: Whether to choose words instead of tokens.
        word_starts: For `whole_words`, boolean array `(rows, n)`: which tokens
            begin a word. The others belong to the word of the token before.
        mask_fraction: 0.8 above.
        random_fraction: 0.1 above.

    Returns:
        Dictionary of `token_ids`, int32 `(rows, n)` with tokens hidden;
        `mask_positions`, int32 `(rows, P)`, the places of the chosen ones in
        ascending order; `labels`, int32 `(rows, P)`, the tokens that were
        there; `mask_weights`, float32 `(rows, P)`, 1. Places that are left
        over come last, with position, label and weight 0.

    Raises:
        ValueError: If an argument is out of range or of the wrong shape.

    Reference:
        Devlin et al. (2019), "BERT: Pre-training of Deep Bidirectional
        Transformers", section 3.1, Task #1, and appendix A.1.
    """
    token_ids = check_ids(token_ids, vocabulary_size)
    rows, length = token_ids.shape
    if max_masked is None:
        max_masked = masked_per_row(length, rate)
    places = check_places(max_masked, length)
    ordinary = _ordinary_ids(vocabulary_size, mask_id, special_ids)
    _check_fractions(mask_fraction, random_fraction)
    maskable = ordinary[token_ids]  # (rows, n)
    many = maskable.sum(axis=1)
    budget = np.maximum(1, np.rint(_check_rate(rate) * many))
    budget = np.where(many, np.minimum(budget, places), 0)  # (rows,)

    # The one draw, so that rows do not depend on how they are put together.
    numbers = rng.random((rows, numbers_per_row(length, places)))
    scores, kind, other = np.split(numbers, [length, length + places], axis=1)
    if whole_words:
        starts = _check_starts(word_starts, token_ids.shape)
        chosen = _choose_words(scores, maskable, starts, budget, places)
    else:
        chosen = _choose_tokens(scores, maskable, budget, places)

    # Chosen ones first, by position: (rows, P)
    positions = np.argsort(~chosen, axis=1, kind="stable")[:, :places]
    weights = np.take_along_axis(chosen, positions, axis=1)
    labels = np.take_along_axis(token_ids, positions, axis=1)
    candidates = np.flatnonzero(ordinary)
    drawn = candidates[(other * len(candidates)).astype(np.int64)]
    hidden = np.where(kind < mask_fraction + random_fraction, drawn, labels)
    hidden = np.where(kind < mask_fraction, mask_id, hidden)
    result = np.array(token_ids)
    # Left over places have positions of tokens that were not chosen.
    np.put_along_axis(
        result, positions, np.where(weights, hidden, labels), axis=1
    )
    return {
        "token_ids": result,
        "mask_positions": np.where(weights, positions, 0).astype(np.int32),
        "labels": np.where(weights, labels, 0).astype(np.int32),
        "mask_weights": weights.astype(np.float32),
    }


def _choose_tokens(scores, maskable, budget, places):
    """The tokens with the smallest scores: boolean `(rows, n)`."""
    scores = np.where(maskable, scores, np.inf)
    order = np.argsort(scores, axis=1)[:, :places]
    chosen = np.zeros(scores.shape, bool)
    within = np.arange(order.shape[1]) < budget[:, None]
    np.put_along_axis(chosen, order, within, axis=1)
    return chosen


def _choose_words(scores, maskable, starts, budget, places):
    """All tokens of words in the order of their scores: boolean `(rows, n)`."""
    rows, length = scores.shape
    # Words have the numbers 0, 1, ... in their row; there are n at most.
    word = np.cumsum(starts, axis=1) - 1  # (rows, n)
    in_all = word + length * np.arange(rows)[:, None]
    size = np.bincount(in_all[maskable], minlength=rows * length)
    size = size.reshape(rows, length)
    # Words without a token to mask come last.
    scores = np.where(size > 0, scores, np.inf)
    order = np.argsort(scores, axis=1)
    size = np.take_along_axis(size, order, axis=1)
    left = budget.astype(size.dtype)
    taken = np.zeros((rows, length), bool)  # in the order drawn
    for place in range(int((size > 0).sum(axis=1).max(initial=0))):
        fits = (size[:, place] > 0) & (size[:, place] <= left)
        taken[:, place] = fits
        left = left - fits * size[:, place]
        if not left.any():
            break
    # Rows in which every word is too long.
    empty = np.flatnonzero((budget > 0) & ~taken.any(axis=1))
    fits = (size[empty] > 0) & (size[empty] <= places)
    taken[empty, np.argmax(fits, axis=1)] = fits.any(axis=1)
    by_word = np.zeros_like(taken)
    np.put_along_axis(by_word, order, taken, axis=1)
    return np.take_along_axis(by_word, word, axis=1) & maskable


def _ordinary_ids(vocabulary_size, mask_id, special_ids):
    """Which ids are not special: boolean `(vocabulary_size,)`."""
    size = positive_integer(vocabulary_size, "vocabulary_size")
    special = np.unique(np.asarray(special_ids, np.int64))
    named = np.append(special, mask_id)
    if named.min() < 0 or named.max() >= size:
        raise ValueError(
            "`mask_id` and `special_ids` must be ids of the vocabulary, 0 to "
            f"{size - 1}. Received: mask_id={mask_id!r}, "
            f"special_ids={special.tolist()}"
        )
    ordinary = np.ones(size, bool)
    ordinary[special] = False
    if not ordinary.any():
        raise ValueError(
            "All tokens of the vocabulary are special: there is none to put "
            f"in a token's place. Received: vocabulary_size={size}"
        )
    return ordinary


def check_ids(token_ids, vocabulary_size):
    """Returns `token_ids` as an int32 array `(rows, n)`.

    Raises:
        ValueError: If they are not that, or not of the vocabulary.
    """
    ids = np.asarray(token_ids)
    if ids.ndim != 2 or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            "`token_ids` must be integers of shape (rows, n). "
            f"Received: shape {ids.shape}, {ids.dtype}"
        )
    if ids.size and not (ids.min() >= 0 and ids.max() < vocabulary_size):
        raise ValueError(
            f"`token_ids` must be 0 to {vocabulary_size - 1}: are they of "
            f"another vocabulary? Received: {ids.min()} to {ids.max()}"
        )
    return ids.astype(np.int32, copy=False)


def _check_starts(word_starts, shape):
    if word_starts is None or np.shape(word_starts) != shape:
        received = "None" if word_starts is None else np.shape(word_starts)
        raise ValueError(
            "`whole_words` needs to know where words begin: `word_starts` "
            f"must have the shape of `token_ids`, {shape}. "
            f"Received: word_starts of shape {received}"
        )
    starts = np.array(word_starts, bool)
    # Whatever word the first token belongs to, its beginning is not here.
    starts[:, :1] = True
    return starts


def _check_rate(rate):
    rate = probability(rate, "rate")
    if rate == 0:
        raise ValueError(f"`rate` must be above 0. Received: rate={rate!r}")
    return rate


def _check_fractions(mask_fraction, random_fraction):
    mask = probability(mask_fraction, "mask_fraction")
    random = probability(random_fraction, "random_fraction")
    if mask + random > 1 + 1e-9:
        raise ValueError(
            "`mask_fraction` and `random_fraction` must be 1 at most "
            f"together. Received: {mask_fraction!r} and {random_fraction!r}"
        )
