import numpy as np
import pytest
import scipy.stats

from mlp_mixers.data.masking import mask_tokens
from mlp_mixers.data.masking import masked_per_row
from mlp_mixers.data.masking import numbers_per_row

VOCABULARY, MASK, SPECIAL = 50, 3, [0, 1, 2, 3]


def rows(rng, count, length, least=1):
    """`<cls> ... <sep> <pad> ...` of different lengths."""
    ids = np.zeros((count, length), np.int32)
    for row in ids:
        used = rng.integers(least, length - 1)
        row[0] = 1
        row[1 : 1 + used] = rng.integers(4, VOCABULARY, used)
        row[1 + used] = 2
    return ids


def mask(ids, seed=0, **options):
    rng = np.random.default_rng(seed)
    return mask_tokens(ids, rng, VOCABULARY, MASK, SPECIAL, **options)


def word_starts(ids, rng, share=0.5):
    """Random words; special tokens are words of their own."""
    starts = rng.random(ids.shape) < share
    starts[:, 1:] |= ids[:, :-1] <= MASK
    return starts | (ids <= MASK)


def words_of(ids, starts):
    """For each row the lists of positions of its words."""
    found = []
    for row, row_starts in zip(ids, starts):
        words = []
        for position, begins in enumerate(row_starts):
            if begins or position == 0:
                words.append([])
            words[-1].append(position)
        found.append([w for w in words if row[w[0]] > MASK])
    return found


def chosen_of(masked, row):
    weights = masked["mask_weights"][row] == 1
    return masked["mask_positions"][row][weights].tolist()


# What comes out.


@pytest.mark.parametrize(
    ("length", "rate", "places"),
    [(128, 0.15, 19), (512, 0.15, 77), (3, 0.15, 1), (10, 0.25, 2), (4, 1, 4)],
)
def test_places(length, rate, places):
    assert masked_per_row(length, rate) == places


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("max_masked", [None, 2, 40])
@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_what_a_row_promises(rng, whole_words, max_masked, rate):
    ids = rows(rng, 200, 40)
    before = ids.copy()
    starts = word_starts(ids, rng)
    masked = mask(
        ids,
        rate=rate,
        max_masked=max_masked,
        whole_words=whole_words,
        word_starts=starts if whole_words else None,
    )
    np.testing.assert_array_equal(ids, before)
    places = max_masked or masked_per_row(40, rate)
    kinds = {k: (v.dtype.name, v.shape) for k, v in masked.items()}
    assert kinds == {
        "token_ids": ("int32", (200, 40)),
        "mask_positions": ("int32", (200, places)),
        "labels": ("int32", (200, places)),
        "mask_weights": ("float32", (200, places)),
    }
    for i, row in enumerate(ids):
        chosen = chosen_of(masked, i)
        count = len(chosen)
        maskable = int((row > MASK).sum())
        budget = min(max(1, round(rate * maskable)), places)
        if whole_words:
            assert 0 <= count <= max(budget, places * (count > budget))
        else:
            assert count == budget
        assert chosen == sorted(set(chosen))
        assert (row[chosen] > MASK).all()
        np.testing.assert_array_equal(masked["labels"][i, :count], row[chosen])
        # Left over places come last and are zero.
        for name in ("mask_positions", "labels", "mask_weights"):
            assert not masked[name][i, count:].any()
        # Nothing else has changed.
        others = np.setdiff1d(np.arange(40), chosen)
        np.testing.assert_array_equal(
            masked["token_ids"][i, others], row[others]
        )
        after = masked["token_ids"][i, chosen]
        assert ((after == MASK) | (after > MASK)).all()


@pytest.mark.parametrize("whole_words", [False, True])
def test_rows_without_text(whole_words):
    ids = np.array([[1, 2, 0, 0, 0], [0, 0, 0, 0, 0], [1, 9, 2, 0, 0]])
    starts = np.ones(ids.shape, bool)
    masked = mask(ids, whole_words=whole_words, word_starts=starts)
    assert masked["mask_weights"].tolist() == [[0], [0], [1]]
    np.testing.assert_array_equal(masked["token_ids"][:2], ids[:2])
    assert masked["labels"].tolist() == [[0], [0], [9]]
    empty = mask(ids[:0], whole_words=whole_words, word_starts=starts[:0])
    assert empty["token_ids"].shape == (0, 5)
    assert empty["labels"].shape == (0, 1)


@pytest.mark.parametrize("whole_words", [False, True])
def test_rows_together_are_rows_one_after_the_other(rng, whole_words):
    ids = rows(rng, 30, 20)
    starts = word_starts(ids, rng)
    options = {"rate": 0.3, "whole_words": whole_words}
    together = mask(ids, 7, word_starts=starts, **options)
    generator = np.random.default_rng(7)
    for begin, end in ((0, 1), (1, 13), (13, 30)):
        part = mask_tokens(
            ids[begin:end],
            generator,
            *(VOCABULARY, MASK, SPECIAL),
            word_starts=starts[begin:end],
            **options,
        )
        for name, values in part.items():
            np.testing.assert_array_equal(values, together[name][begin:end])
    # And the generator is where it says.
    other = np.random.default_rng(7)
    other.random(30 * numbers_per_row(20, masked_per_row(20, 0.3)))
    assert other.random() == generator.random()
    other = mask(ids, 8, word_starts=starts, **options)
    for name in ("token_ids", "mask_positions", "labels"):
        assert (other[name] != together[name]).any()


# Chance. Each p-value is that of one fixed seed: 1e-3 is no matter of luck.


def test_a_token_becomes_what_it_should(rng):
    """Eight tenths are masked, a tenth is random, a tenth stays.

    A random token is the old one once in 46 times.
    """
    ids = rows(rng, 5000, 64, least=40)
    masked = mask(ids)
    chosen = masked["mask_weights"] == 1
    after = np.take_along_axis(
        masked["token_ids"], masked["mask_positions"], axis=1
    )[chosen]
    labels = masked["labels"][chosen]
    total = len(labels)
    is_mask, stays = after == MASK, after == labels
    found = [is_mask.sum(), stays.sum(), (~is_mask & ~stays).sum()]
    ordinary = VOCABULARY - len(SPECIAL)
    expected = [0.8, 0.1 + 0.1 / ordinary, 0.1 - 0.1 / ordinary]
    expected = total * np.array(expected)
    assert scipy.stats.chisquare(found, expected).pvalue > 1e-3
    # What a token becomes is uniform over the others, and no special one.
    shift = (after - labels)[~is_mask & ~stays] % ordinary
    counts = np.bincount(shift, minlength=ordinary)
    assert counts[0] == 0
    assert scipy.stats.chisquare(counts[1:]).pvalue > 1e-3
    # What a token becomes has nothing to do with where it is.
    places = np.arange(chosen.shape[1])
    columns = np.broadcast_to(places, chosen.shape)[chosen]
    table = [
        np.bincount(columns[which], minlength=len(places))
        for which in (is_mask, ~is_mask)
    ]
    table = np.array(table)[:, np.array(table).min(axis=0) > 5]
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize(
    ("mask_fraction", "random_fraction"), [(1, 0), (0, 1), (0, 0), (0.5, 0.5)]
)
def test_other_fractions(rng, mask_fraction, random_fraction):
    ids = rows(rng, 400, 64)
    masked = mask(
        ids, mask_fraction=mask_fraction, random_fraction=random_fraction
    )
    chosen = masked["mask_weights"] == 1
    after = np.take_along_axis(
        masked["token_ids"], masked["mask_positions"], axis=1
    )[chosen]
    total = chosen.sum()
    found = (after == MASK).sum()
    # Five standard deviations of a binomial distribution.
    spread = 5 * np.sqrt(total * mask_fraction * (1 - mask_fraction))
    assert abs(found - total * mask_fraction) <= spread
    if mask_fraction + random_fraction == 0:
        np.testing.assert_array_equal(masked["token_ids"], ids)
    if random_fraction == 1:
        different = (after != masked["labels"][chosen]).mean()
        assert abs(different - 45 / 46) < 5 * np.sqrt(1 / 46 / total)


def test_positions_are_uniform():
    """Single positions, and pairs, of 9 tokens of which 3 are chosen."""
    ids = np.tile([1, *range(10, 19), 2, 0, 0], (30_000, 1))
    masked = mask(ids, rate=1 / 3, max_masked=3)
    positions = masked["mask_positions"]
    assert (masked["mask_weights"] == 1).all()
    subsets, counts = np.unique(positions, axis=0, return_counts=True)
    # All 84 subsets of three, each as often as any other.
    assert len(subsets) == 84
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


# Whole words.


def slow_whole_words(words, sizes_order, budget, places):
    """The rule, one word after the other."""
    chosen = []
    for word in sizes_order:
        if len(chosen) + len(words[word]) <= budget:
            chosen += words[word]
    if not chosen:
        for word in sizes_order:
            if len(words[word]) <= places:
                return words[word]
    return chosen


@pytest.mark.parametrize("share", [0.9, 0.5, 0.15])
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_whole_words_are_chosen_by_the_rule(rng, share, rate):
    """With a generator whose numbers are known: the words' scores."""
    ids = rows(rng, 300, 30)
    starts = word_starts(ids, rng, share)
    masked = mask(ids, 5, rate=rate, whole_words=True, word_starts=starts)
    places = masked_per_row(30, rate)
    numbers = np.random.default_rng(5).random(
        (300, numbers_per_row(30, places))
    )
    alone = 0
    for i, words in enumerate(words_of(ids, starts)):
        # Numbers belong to all words of a row, special ones included.
        which = np.cumsum(starts[i]) - starts[i, 0]
        order = sorted(
            range(len(words)), key=lambda w: numbers[i, which[words[w][0]]]
        )
        maskable = sum(map(len, words))
        budget = min(max(1, round(rate * maskable)), places)
        expected = slow_whole_words(words, order, budget, places)
        chosen = chosen_of(masked, i)
        assert chosen == sorted(expected)
        alone += len(chosen) > budget
        # All tokens of a word or none.
        for word in words:
            assert len(set(word) & set(chosen)) in (0, len(word))
    if share == 0.15:
        assert alone > 0


def test_a_word_with_more_tokens_than_places_stays():
    ids = np.array([[1, 10, 11, 12, 13, 14, 2]])
    starts = np.array([[1, 1, 0, 0, 0, 0, 1]])
    short = mask(ids, whole_words=True, word_starts=starts)
    assert short["mask_weights"].tolist() == [[0]]
    np.testing.assert_array_equal(short["token_ids"], ids)
    long = mask(ids, whole_words=True, word_starts=starts, max_masked=5)
    assert long["mask_positions"].tolist() == [[1, 2, 3, 4, 5]]


def test_words_are_uniform():
    """Words of one length: each is chosen as often as any other."""
    ids = np.tile([1, *range(10, 22), 2], (20_000, 1))
    starts = np.array([1, *[1, 0] * 6, 1])
    masked = mask(
        ids,
        rate=0.5,
        whole_words=True,
        word_starts=np.broadcast_to(starts, ids.shape),
    )
    firsts = masked["mask_positions"][:, :6:2]
    assert (masked["mask_weights"][:, :6] == 1).all()
    subsets, counts = np.unique(firsts, axis=0, return_counts=True)
    assert len(subsets) == 20
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


# Wrong arguments.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0}, "`rate` must be above 0. Received: rate=0"),
        ({"rate": 1.5}, "rate=1.5"),
        ({"max_masked": 0}, "max_masked=0"),
        ({"max_masked": 7}, "all 6 tokens.*max_masked=7"),
        ({"mask_fraction": -0.1}, "mask_fraction=-0.1"),
        ({"mask_fraction": 0.8, "random_fraction": 0.3}, "1 at most together"),
        ({"whole_words": True}, "word_starts.*Received.*None"),
        (
            {"whole_words": True, "word_starts": np.ones((2, 5))},
            r"shape of `token_ids`, \(2, 6\).*\(2, 5\)",
        ),
    ],
)
def test_wrong_options(options, message):
    ids = np.full((2, 6), 9)
    with pytest.raises(ValueError, match=message):
        mask(ids, **options)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.zeros(5, int), r"\(rows, n\). Received: shape \(5,\)"),
        (np.zeros((2, 5)), "float64"),
        ([[1, 50]], "0 to 49: are they of another.*Received: 1 to 50"),
        ([[-1, 5]], "Received: -1 to 5"),
    ],
)
def test_wrong_ids(ids, message):
    with pytest.raises(ValueError, match=message):
        mask(ids)


@pytest.mark.parametrize(
    ("size", "mask_id", "special", "message"),
    [
        (10, 10, [0], "0 to 9. Received: mask_id=10"),
        (10, 3, [0, 12], r"special_ids=\[0, 12\]"),
        (10, 3, [-1], r"special_ids=\[-1\]"),
        (4, 3, [0, 1, 2, 3], "none to put.*vocabulary_size=4"),
    ],
)
def test_wrong_vocabularies(size, mask_id, special, message):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=message):
        mask_tokens(np.zeros((1, 4), int), rng, size, mask_id, special)
