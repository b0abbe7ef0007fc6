"""Dispatch against loops over items."""

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.ops.dispatch import Blocks
from mlp_mixers.ops.dispatch import Slots
from mlp_mixers.ops.dispatch import capacity_of
from mlp_mixers.ops.dispatch import sort_by_expert
from mlp_mixers.ops.dispatch import suggested_block_size

CASES = [
    # groups, items, experts, capacity
    (1, 1, 1, 1),
    (2, 7, 3, 2),
    (3, 16, 4, 4),
    (1, 5, 8, 1),
    (2, 33, 1, 40),
]


def draw(groups, items, experts, seed=0):
    """Ids with "no expert" among them."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, experts + 1, (groups, items)).astype("int32")


def by_hand(ids, experts, capacity):
    """Places, first come first served: `{(group, expert): [items]}`."""
    found = {}
    for g, row in enumerate(ids):
        for i, expert in enumerate(row):
            members = found.setdefault((g, int(expert)), [])
            if expert < experts and len(members) < capacity:
                members.append(i)
    return found


def numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("groups, items, experts, capacity", CASES)
def test_sorting(groups, items, experts, capacity):
    ids = draw(groups, items, experts)
    order, counts, starts, places = map(
        numpy, sort_by_expert(ops.convert_to_tensor(ids), experts)
    )
    for g in range(groups):
        expected = np.argsort(ids[g], kind="stable")
        np.testing.assert_array_equal(order[g], expected)
        tally = np.bincount(ids[g], minlength=experts + 1)
        np.testing.assert_array_equal(counts[g], tally[:experts])
        np.testing.assert_array_equal(
            starts[g], np.concatenate([[0], np.cumsum(tally)])[: experts + 1]
        )
        for i, expert in enumerate(ids[g]):
            assert places[g, i] == np.sum(ids[g, :i] == expert)


@pytest.mark.parametrize("groups, items, experts, capacity", CASES)
def test_slots(groups, items, experts, capacity):
    ids = draw(groups, items, experts)
    x = np.random.default_rng(1).normal(size=(groups, items, 3)).astype("f4")
    slots = Slots(ops.convert_to_tensor(ids), experts, capacity)
    places = by_hand(ids, experts, capacity)
    sent = numpy(slots.dispatch(ops.convert_to_tensor(x)))
    assert sent.shape == (experts, groups * capacity, 3)
    expected = np.zeros_like(sent)
    kept = np.zeros(ids.shape, bool)
    for (g, expert), members in places.items():
        for place, i in enumerate(members):
            expected[expert, g * capacity + place] = x[g, i]
            kept[g, i] = True
    np.testing.assert_array_equal(sent, expected)
    np.testing.assert_array_equal(numpy(slots.kept), kept)
    # An expert that multiplies by its number: everything finds its way back.
    factors = np.arange(1, experts + 1, dtype="f4")[:, None, None]
    back = numpy(slots.combine(ops.convert_to_tensor(sent * factors)))
    expected = np.where(kept, ids + 1, 0)[..., None] * x
    np.testing.assert_allclose(back, expected, rtol=1e-6)


@pytest.mark.parametrize("size", [None, 1, 4, 64])
@pytest.mark.parametrize("groups, items, experts, capacity", CASES)
def test_blocks(groups, items, experts, capacity, size):
    ids = draw(1, items, experts)[0]
    x = np.random.default_rng(1).normal(size=(items, 3)).astype("f4")
    blocks = Blocks(ops.convert_to_tensor(ids), experts, size)
    sent = numpy(blocks.dispatch(ops.convert_to_tensor(x)))
    owners = numpy(blocks.experts)
    wasted = experts * ((size or suggested_block_size(items, experts)) - 1)
    assert sent.shape[0] * sent.shape[1] <= max(
        items + wasted + sent.shape[1], sent.shape[1]
    )
    # Each expert has its own items and no others.
    for expert in range(experts):
        rows = sent[owners == expert].reshape(-1, 3)
        rows = rows[(rows != 0).any(1)]
        np.testing.assert_array_equal(rows, x[ids == expert])
    factors = (owners + 1).astype("f4")[:, None, None]
    back = numpy(blocks.combine(ops.convert_to_tensor(sent * factors)))
    expected = np.where(ids < experts, ids + 1, 0)[:, None] * x
    np.testing.assert_allclose(back, expected, rtol=1e-6)


def test_a_choice_that_is_second_comes_after_all_that_are_first():
    # Two choices of three rows; expert 0 has two places in all.
    ids = np.array([[1, 0, 1, 0, 0, 2]], "int32")  # first choices, then second
    slots = Slots(ops.convert_to_tensor(ids), 3, 2)
    np.testing.assert_array_equal(numpy(slots.kept), [[1, 1, 1, 1, 0, 1]])
    x = ops.convert_to_tensor(np.arange(1, 4, dtype="f4").reshape(1, 3, 1))
    sent = numpy(slots.dispatch(x, choices=2))[..., 0]
    np.testing.assert_array_equal(sent, [[2, 1], [1, 3], [3, 0]])


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_who_has_no_expert_touches_nobody(poison):
    ids = np.array([[0, 2, 1, 0, 0]], "int32")
    x = np.ones((1, 5, 2), "f4")
    x[0, 1] = poison
    slots = Slots(ops.convert_to_tensor(ids), 2, 2)
    sent = slots.dispatch(ops.convert_to_tensor(x))
    assert np.isfinite(numpy(sent)).all()
    assert (numpy(slots.combine(sent))[0, [1, 4]] == 0).all()
    blocks = Blocks(ops.convert_to_tensor(ids[0]), 2, 2)
    sent = blocks.dispatch(ops.convert_to_tensor(x[0]))
    assert np.isfinite(numpy(sent)).all()
    assert (numpy(blocks.combine(sent))[1] == 0).all()


def test_all_in_one_and_none_at_all():
    for ids in (np.zeros((1, 300), "int32"), np.full((1, 300), 2, "int32")):
        x = np.random.default_rng(0).normal(size=(1, 300, 2)).astype("f4")
        served = ids[..., None] < 2
        slots = Slots(ops.convert_to_tensor(ids), 2, 300)
        sent = slots.dispatch(ops.convert_to_tensor(x))
        np.testing.assert_array_equal(numpy(slots.combine(sent)), x * served)
        blocks = Blocks(ops.convert_to_tensor(ids[0]), 2)
        sent = blocks.dispatch(ops.convert_to_tensor(x[0]))
        np.testing.assert_array_equal(
            numpy(blocks.combine(sent)), (x * served)[0]
        )


@pytest.mark.parametrize(
    "items, experts, factor, expected",
    [
        (10, 10, 1.1, 2),
        (100, 10, 1.1, 11),
        (2048, 64, 1.25, 40),
        (4, 8, 1.25, 1),
        (8, 2, 100.0, 8),
        (1, 4, 1.0, 1),
    ],
)
def test_capacity(items, experts, factor, expected):
    assert capacity_of(items, experts, factor) == expected
    tensor = capacity_of(ops.convert_to_tensor(items), experts, factor)
    assert int(tensor) == expected


def test_block_sizes():
    assert suggested_block_size(1, 64) == 1
    assert suggested_block_size(16, 4) == 8
    assert suggested_block_size(2048, 4) == 128
    assert suggested_block_size(2048, 64) == 16


class Doubling(keras.layers.Layer):
    """Every expert has a factor; both ways must agree, compiled too."""

    def __init__(self, slots, **kwargs):
        super().__init__(**kwargs)
        self.slots = slots

    def build(self, ids_shape, x_shape):
        self.factors = self.add_weight(shape=(3,), initializer="ones")

    def call(self, ids, x):
        factors = ops.convert_to_tensor(self.factors)
        if self.slots:
            slots = Slots(ids, 3, 12)
            sent = slots.dispatch(x)
            return slots.combine(sent * factors[:, None, None])
        blocks = Blocks(ops.reshape(ids, (-1,)), 3, 4)
        sent = blocks.dispatch(ops.reshape(x, (-1, x.shape[-1])))
        sent = sent * ops.take(factors, blocks.experts)[:, None, None]
        return ops.reshape(blocks.combine(sent), ops.shape(x))


@pytest.mark.parametrize("slots", [True, False])
def test_gradients_in_a_compiled_step(slots):
    ids, x = draw(2, 12, 3), np.ones((2, 12, 2), "f4")
    inputs = keras.Input((12,), dtype="int32"), keras.Input((12, 2))
    layer = Doubling(slots)
    model = keras.Model(inputs, layer(*inputs))
    model.compile(keras.optimizers.SGD(1.0), loss="mse", jit_compile="auto")
    model.train_on_batch([ids, x], np.zeros_like(x))
    # d/df of mean((f·x)²) at f = 1 is 2 · (share of the items).
    shares = np.bincount(ids.ravel(), minlength=4)[:3] / ids.size
    np.testing.assert_allclose(numpy(layer.factors), 1 - 2 * shares, rtol=1e-5)
