import pickle

import keras
import numpy as np
import pytest
import scipy.stats

from mlp_mixers.data.epochs import FollowEpochs
from mlp_mixers.data.masked_batches import MaskedBatchMaker
from mlp_mixers.data.masked_batches import MaskedLMBatches
from mlp_mixers.data.masking import mask_tokens
from mlp_mixers.data.masking import masked_per_row
from mlp_mixers.data.packing import pack_documents
from mlp_mixers.data.tokenizer import Tokenizer

LENGTH = 24


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["The cat sat on the table, and the dog did not."] * 3
    return Tokenizer.train(texts, 290)


@pytest.fixture(scope="module")
def packed(tokenizer):
    """51 rows of text, each of which is another one."""
    rng = np.random.default_rng(2)
    words = ["the", "cat", "dog", "sat", "on", "catalogue", "tabletop"]
    documents = [
        f"{i:03d} " + " ".join(rng.choice(words, rng.integers(4, 9)))
        for i in range(60)
    ]
    packed = pack_documents(documents, tokenizer, LENGTH)
    assert packed.rows == len(np.unique(packed.token_ids, axis=0)) > 50
    return packed


def batches(packed, tokenizer, **options):
    return MaskedLMBatches(packed, tokenizer, **{"batch_size": 8, **options})


def epoch(dataset):
    """All rows of an epoch, as one dictionary."""
    parts = [dataset[i] for i in range(len(dataset))]
    rows = [
        {**inputs, "labels": labels, "mask_weights": weights}
        for inputs, labels, weights in parts
    ]
    return {k: np.concatenate([row[k] for row in rows]) for k in rows[0]}


def original(rows):
    """The token ids as they were before they were masked."""
    ids = rows["token_ids"].copy()
    for row, where, labels, weights in zip(
        ids, rows["mask_positions"], rows["labels"], rows["mask_weights"]
    ):
        row[where[weights == 1]] = labels[weights == 1]
    return ids


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_a_batch(packed, tokenizer):
    dataset = batches(packed, tokenizer)
    inputs, labels, weights = dataset[0]
    places = masked_per_row(LENGTH)
    assert dataset.max_masked == places
    assert dataset.tokenizer is tokenizer
    kinds = {k: (v.dtype.name, v.shape) for k, v in inputs.items()}
    assert kinds == {
        "token_ids": ("int32", (8, LENGTH)),
        "padding_mask": ("bool", (8, LENGTH)),
        "mask_positions": ("int32", (8, places)),
    }
    assert (labels.dtype, labels.shape) == ("int32", (8, places))
    assert (weights.dtype, weights.shape) == ("float32", (8, places))
    np.testing.assert_array_equal(
        inputs["padding_mask"], inputs["token_ids"] != 0
    )


@pytest.mark.parametrize("options", [{}, {"whole_words": True}])
def test_an_epoch_has_every_row_once(packed, tokenizer, options):
    dataset = batches(packed, tokenizer, **options)
    sizes = [len(dataset[i][1]) for i in range(len(dataset))]
    assert sum(sizes) == packed.rows
    assert set(sizes[:-1]) == {8}
    assert 0 < sizes[-1] <= 8
    ids = original(epoch(dataset))
    assert not (ids == packed.token_ids).all()
    ids = sorted(map(tuple, ids.tolist()))
    assert ids == sorted(map(tuple, packed.token_ids.tolist()))


def test_the_remainder_may_be_dropped(packed, tokenizer):
    dataset = batches(packed, tokenizer, drop_remainder=True)
    assert len(dataset) == packed.rows // 8
    assert {len(dataset[i][1]) for i in range(len(dataset))} == {8}
    with pytest.raises(ValueError, match="no batch.*batch_size=500"):
        batches(packed, tokenizer, batch_size=500, drop_remainder=True)


@pytest.mark.parametrize("options", [{}, {"whole_words": True}])
def test_batch_size_and_workers_do_not_matter(packed, tokenizer, options):
    one = epoch(batches(packed, tokenizer, seed=4, **options))
    for other in ({"batch_size": 1}, {"batch_size": 51}, {"workers": 3}):
        dataset = batches(packed, tokenizer, seed=4, **options, **other)
        assert_same(epoch(dataset), one)
        dataset.close()


def test_chance_follows_from_seed_and_epoch(packed, tokenizer):
    dataset = batches(packed, tokenizer, seed=4)
    first = epoch(dataset)
    dataset.on_epoch_end()
    second = epoch(dataset)
    later = batches(packed, tokenizer, seed=4, first_epoch=1)
    assert_same(epoch(later), second)
    dataset.epoch = 0
    assert_same(epoch(dataset), first)
    other = epoch(batches(packed, tokenizer, seed=5))
    for rows in (second, other):
        assert (rows["mask_positions"] != first["mask_positions"]).any()
        assert (original(rows) != original(first)).any()


def test_each_row_is_masked_afresh(packed, tokenizer):
    """In order, so that rows can be compared; and independently."""
    dataset = batches(packed, tokenizer, shuffle=False, rate=0.3)
    counts = np.zeros(packed.token_ids.shape)
    epochs = 400
    for _ in range(epochs):
        rows = epoch(dataset)
        np.testing.assert_array_equal(original(rows), packed.token_ids)
        chosen = rows["mask_weights"] == 1
        which = np.nonzero(chosen)[0]
        counts[which, rows["mask_positions"][chosen]] += 1
        dataset.on_epoch_end()
    # Every token of a row is chosen as often as any other, in 400 draws.
    statistics = []
    for row, count in zip(packed.token_ids, counts):
        maskable = row > 3
        many = maskable.sum()
        budget = min(max(1, round(0.3 * many)), dataset.max_masked)
        assert count[~maskable].sum() == 0
        assert count.sum() == epochs * budget
        if many == budget:  # all of them, always
            continue
        share = budget / many
        # Without replacement: variances are larger by m/(m-1).
        deviations = (count[maskable] - epochs * share) ** 2
        variance = epochs * share * (1 - share) * many / (many - 1)
        statistics.append((deviations.sum() / variance, many - 1))
    total, freedom = np.sum(statistics, axis=0)
    assert 1e-5 < scipy.stats.chi2.sf(total, freedom) < 1 - 1e-5


def test_fixed_masks_stay(packed, tokenizer):
    dataset = batches(packed, tokenizer, fixed=True, seed=1)
    first = epoch(dataset)
    np.testing.assert_array_equal(original(first), packed.token_ids)
    for _ in range(2):
        dataset.on_epoch_end()
        assert_same(epoch(dataset), first)
    again = batches(packed, tokenizer, fixed=True, seed=1, batch_size=5)
    assert_same(epoch(again), first)
    other = epoch(batches(packed, tokenizer, fixed=True, seed=2))
    assert (other["mask_positions"] != first["mask_positions"]).any()
    # Not those of the training's first epoch.
    train = epoch(batches(packed, tokenizer, shuffle=False, seed=1))
    assert (train["mask_positions"] != first["mask_positions"]).any()


def test_options_reach_the_masks(packed, tokenizer):
    dataset = batches(
        packed,
        tokenizer,
        shuffle=False,
        rate=0.4,
        max_masked=5,
        mask_fraction=1,
        random_fraction=0,
    )
    rows = epoch(dataset)
    assert rows["labels"].shape[1] == dataset.max_masked == 5
    expected = mask_tokens(
        packed.token_ids,
        np.random.Generator(np.random.PCG64([0, 0, 2])),
        tokenizer.vocabulary_size,
        tokenizer.mask_id,
        tokenizer.special_ids,
        rate=0.4,
        max_masked=5,
        mask_fraction=1,
        random_fraction=0,
    )
    del rows["padding_mask"]
    assert_same(rows, expected)


def test_whole_words(packed, tokenizer):
    rows = epoch(
        batches(packed, tokenizer, shuffle=False, whole_words=True, rate=0.4)
    )
    for row, starts in enumerate(packed.word_starts):
        weights = rows["mask_weights"][row] == 1
        chosen = set(rows["mask_positions"][row][weights].tolist())
        assert chosen
        word = np.cumsum(starts)
        for number in {word[i] for i in chosen}:
            assert set(np.flatnonzero(word == number).tolist()) <= chosen


def test_token_ids_alone_will_do(packed, tokenizer):
    whole = epoch(batches(packed, tokenizer))
    assert_same(epoch(batches(packed.token_ids, tokenizer)), whole)
    with pytest.raises(ValueError, match="`whole_words` needs.*token ids"):
        batches(packed.token_ids, tokenizer, whole_words=True)


def test_the_maker_can_be_sent_to_a_process(packed, tokenizer):
    maker = MaskedBatchMaker(
        *(packed, tokenizer, 8, 0, 0.15, None, True, 0.8, 0.1, None),
        *(False, False),
    )
    copy = pickle.loads(pickle.dumps(maker))
    for one, other in zip(maker(2, 3)[1:], copy(2, 3)[1:]):
        np.testing.assert_array_equal(one, other)


def test_batches_that_are_not_there(packed, tokenizer):
    dataset = batches(packed, tokenizer)
    for index in (-1, len(dataset)):
        with pytest.raises(IndexError, match=f"index={index}"):
            dataset[index]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"seed": -1}, "seed=-1"),
        ({"rate": 0}, "rate=0"),
        ({"max_masked": LENGTH + 1}, "all 24 tokens.*max_masked=25"),
        ({"mask_fraction": 2}, "mask_fraction=2"),
        ({"fixed": True, "shuffle": True}, "`fixed`.*shuffle=True"),
        ({"fixed": "yes"}, "fixed='yes'"),
        ({"first_epoch": -1}, "epoch=-1"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_wrong_options(packed, tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        batches(packed, tokenizer, **options)


def test_wrong_rows(packed, tokenizer):
    with pytest.raises(ValueError, match=r"one row.*shape \(0, 5\)"):
        batches(np.zeros((0, 5), int), tokenizer)
    with pytest.raises(ValueError, match="another vocabulary"):
        batches(packed.token_ids + 1000, tokenizer)


def test_fit_trains_on_what_the_epoch_is(packed, tokenizer):
    """Every batch of three epochs, resumed at the second, as by hand."""
    seen = []

    class Recorder(MaskedLMBatches):
        def __getitem__(self, index):
            batch = super().__getitem__(index)
            seen.append((self.epoch, index, batch[1].sum()))
            return batch

    places = masked_per_row(LENGTH)
    inputs = {
        "token_ids": keras.Input((LENGTH,), dtype="int32", name="token_ids"),
        "padding_mask": keras.Input(
            (LENGTH,), dtype="bool", name="padding_mask"
        ),
        "mask_positions": keras.Input(
            (places,), dtype="int32", name="mask_positions"
        ),
    }
    hidden = keras.layers.Embedding(300, 4)(inputs["token_ids"])
    at = keras.ops.expand_dims(inputs["mask_positions"], -1)
    hidden = keras.ops.take_along_axis(hidden, at, axis=1)
    model = keras.Model(inputs, keras.layers.Dense(300)(hidden))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    dataset = Recorder(packed, tokenizer, 8, drop_remainder=True)
    model.fit(
        dataset,
        epochs=3,
        initial_epoch=1,
        shuffle=False,
        verbose=0,
        callbacks=[FollowEpochs(dataset)],
    )
    trained = sorted({entry for entry in seen if entry[0] in (1, 2)})
    expected = []
    for number in (1, 2):
        other = batches(
            packed, tokenizer, first_epoch=number, drop_remainder=True
        )
        expected += [(number, i, other[i][1].sum()) for i in range(len(other))]
    assert trained == expected
