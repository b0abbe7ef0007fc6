"""Brings items to their experts and back: sort, gather, no one-hot tensors.

Letters: g groups, m items of a group, E experts, C slots of an expert in a
group (its capacity), d channels, B items of a block. Shapes are static: they
depend on sizes and never on who goes where.

An expert id of E, one more than the last, means *no expert*: padding, or an
item that is not to be computed. Such items take no slot and come back as zero.

Two ways, for two needs:

- `Slots` gives every expert C places in each group and turns the rest away.
  Work is E · C items, whatever the routing: training, where the loss keeps
  experts in balance.
- `Blocks` turns nobody away. Items are sorted by expert and cut into blocks
  of B, each of one expert, which brings its weights along. Work is at most
  m + E · (B - 1) items: inference, where an output must not depend on who
  else is in the batch.
"""

import math

from keras import ops

from mlp_mixers.ops.gather import take_along_last


def sort_by_expert(expert_ids, num_experts):
    """Who goes where, in the order of experts and, within, of items.

    Args:
        expert_ids: int32 `(g, m)` in `[0, E]`.
        num_experts: E.

    Returns:
        `(order, counts, starts, places)`: int32 `(g, m)` of items sorted by
        expert; `(g, E)` of how many each expert has; `(g, E + 1)` of where
        each begins in `order`, "no expert" last; and `(g, m)` of the place of
        each item among those of its expert.
    """
    m = ops.shape(expert_ids)[1]
    items = ops.arange(m, dtype="int32")
    # All keys differ, so that any sort is a stable one.
    keys = ops.sort(expert_ids * m + items, axis=1)
    order, sorted_ids = keys % m, keys // m
    experts = ops.arange(num_experts, dtype="int32")
    # Integers: sums of ones in half precision stop at 256.
    counts = ops.sum(
        ops.cast(expert_ids[:, :, None] == experts, "int32"), axis=1
    )
    starts = ops.pad(ops.cumsum(counts, axis=1), [[0, 0], [1, 0]])
    places = items - take_along_last(starts, sorted_ids)
    # The inverse of `order`, without a scatter.
    back = ops.argsort(order, axis=1)
    places = take_along_last(places, ops.cast(back, "int32"))
    return order, counts, starts, places


def count_by_expert(expert_ids, num_experts):
    """How many of all items each expert has, in work that E leaves alone.

    Args:
        expert_ids: int32 of any shape, in `[0, E]`.
        num_experts: E.

    Returns:
        int32 `(E,)`.
    """
    ids = ops.reshape(expert_ids, (-1,))
    # Integers, for which PyTorch's is a sum in float32: exact to 2²⁴ items.
    counts = ops.segment_sum(ops.ones_like(ids), ids, num_experts + 1)
    return ops.cast(counts[:-1], "int32")


class Slots:
    """A place for each item with its expert, while there are places.

    Args:
        expert_ids: int32 `(g, m)` in `[0, E]`. Earlier items come first.
        num_experts: E.
        capacity: C.

    Attributes:
        kept: Boolean `(g, m)`: who has a place. Neither items without an
            expert have one nor those that came too late.
    """

    def __init__(self, expert_ids, num_experts, capacity):
        order, counts, starts, places = sort_by_expert(expert_ids, num_experts)
        self._num_experts, self._capacity = num_experts, capacity
        self._groups, self._items = ops.shape(expert_ids)
        slots = ops.arange(capacity, dtype="int32")
        filled = slots < counts[:, :, None]  # (g, E, C)
        at = ops.where(filled, starts[:, :-1, None] + slots, 0)
        at = ops.reshape(at, (self._groups, -1))
        sources = take_along_last(order, at)  # (g, E·C)
        self._filled = ops.reshape(filled, (self._groups, -1))
        self._sources = sources
        self.kept = (places < capacity) & (expert_ids < num_experts)
        self._slots = ops.where(self.kept, expert_ids * capacity + places, 0)

    def dispatch(self, x, choices=1):
        """The items of each expert, and zeros in its empty slots.

        Args:
            x: Tensor `(g, n, d)`.
            choices: How many items each row of `x` stands for, m = choices ·
                n; item i is row i mod n.

        Returns:
            Tensor `(E, g·C, d)`.
        """
        rows = self._sources
        if choices > 1:
            rows = rows % ops.shape(x)[1]
        gathered = _take_rows(x, rows)
        gathered = ops.where(
            self._filled[:, :, None], gathered, ops.zeros_like(gathered)
        )
        channels = x.shape[-1]
        gathered = ops.reshape(
            gathered, (self._groups, self._num_experts, -1, channels)
        )
        gathered = ops.transpose(gathered, (1, 0, 2, 3))
        return ops.reshape(gathered, (self._num_experts, -1, channels))

    def combine(self, y):
        """What became of every item.

        Args:
            y: Tensor `(E, g·C, d)`.

        Returns:
            Tensor `(g, m, d)`; zeros for items without a place.
        """
        channels = y.shape[-1]
        y = ops.reshape(
            y, (self._num_experts, self._groups, self._capacity, channels)
        )
        y = ops.transpose(y, (1, 0, 2, 3))
        y = ops.reshape(y, (self._groups, -1, channels))  # (g, E·C, d)
        y = _take_rows(y, self._slots)
        # `where`, not a product: what stands in slot 0 may be NaN.
        return ops.where(self.kept[:, :, None], y, ops.zeros_like(y))


class Blocks:
    """Blocks of items that have one expert in common; nobody is left out.

    Args:
        expert_ids: int32 `(m,)` in `[0, E]`.
        num_experts: E.
        block_size: B; `suggested_block_size` if `None`.

    Attributes:
        experts: int32 `(blocks,)`: the expert of each block. Blocks that are
            not needed have the last one.
    """

    def __init__(self, expert_ids, num_experts, block_size=None):
        (items,) = ops.shape(expert_ids)
        size = block_size or suggested_block_size(items, num_experts)
        order, counts, starts, places = (
            tensor[0]
            for tensor in sort_by_expert(expert_ids[None], num_experts)
        )
        # No expert wastes a whole block.
        number = items // size + num_experts
        if isinstance(number, int):
            number = min(number, items)
        needed = -(-counts // size)
        ends = ops.cumsum(needed)  # (E,), in blocks
        blocks = ops.arange(number, dtype="int32")
        experts = ops.sum(
            ops.cast(ends <= blocks[:, None], "int32"), axis=1
        )  # how many experts have had their blocks already
        used = blocks < ends[-1]
        self.experts = ops.minimum(experts, num_experts - 1)
        # Place of each row of a block among the items of its expert.
        first = ops.take(ends - needed, self.experts)
        rows = ops.arange(size, dtype="int32")
        row_places = ((blocks - first) * size)[:, None] + rows  # (blocks, B)
        filled = row_places < ops.take(counts, self.experts)[:, None]
        self._filled = filled & used[:, None]
        begins = ops.take(starts, self.experts)[:, None]
        at = ops.where(self._filled, begins + row_places, 0)
        # Not flat: PyTorch's export cannot tell that it unflattens again.
        self._sources = ops.take(order, at)
        self._has_expert = expert_ids < num_experts
        offsets = ops.pad((ends - needed) * size, [[0, 1]])  # (E + 1,)
        self._rows = ops.where(
            self._has_expert, ops.take(offsets, expert_ids) + places, 0
        )

    def dispatch(self, x, choices=1):
        """The items in blocks.

        Args:
            x: Tensor `(n, d)`.
            choices: As in `Slots.dispatch`.

        Returns:
            Tensor `(blocks, B, d)`, zero where a block is not full.
        """
        rows = self._sources
        if choices > 1:
            rows = rows % ops.shape(x)[0]
        gathered = ops.take(x, rows, axis=0)  # (blocks, B, d)
        return ops.where(
            self._filled[:, :, None], gathered, ops.zeros_like(gathered)
        )

    def combine(self, y):
        """What became of every item.

        Args:
            y: Tensor `(blocks, B, d)`.

        Returns:
            Tensor `(m, d)`; zeros for items without an expert.
        """
        # Columns of texts of unknown length have no width that is known.
        y = ops.reshape(y, (-1, ops.shape(y)[-1]))
        y = ops.take(y, self._rows, axis=0)
        return ops.where(self._has_expert[:, None], y, ops.zeros_like(y))


def suggested_block_size(items, num_experts):
    """B for so many items: half of an expert's fair share, in powers of two.

    Smaller blocks copy the experts' weights more often, larger ones are less
    full. Above 128 items the copies cost nothing worth mentioning; with few
    items, such as one token of a text that is being written, a block of all
    of them needs the fewest copies.

    Args:
        items: m, or a tensor where it is not known: 64 then.
        num_experts: E.
    """
    if not isinstance(items, int):
        return 64
    share = math.ceil(items / (2 * num_experts))
    least = min(8, _power_of_two(items))
    return min(max(_power_of_two(share), least), 128)


def capacity_of(items, num_experts, factor):
    """C = ceil(factor · items / E), the slots of an expert in a group.

    Args:
        items: Items of a group, m; a tensor where it is not known.
        num_experts: E.
        factor: The capacity factor; 1 is a fair share.

    Returns:
        Integer between 1 and `items`, or a tensor.
    """
    if isinstance(items, int):
        # Rounded first: 1.1 · 10 is 11.000000000000002.
        wanted = math.ceil(round(factor * items / num_experts, 6))
        return max(1, min(items, wanted))
    wanted = ops.ceil(ops.cast(items, "float32") * factor / num_experts)
    return ops.maximum(ops.minimum(ops.cast(wanted, "int32"), items), 1)


def _power_of_two(number):
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()


def _take_rows(x, rows):
    """`x[g, rows[g]]`: `(g, n, d)` and int `(g, m)` to `(g, m, d)`."""
    groups, n, channels = ops.shape(x)
    first = ops.arange(groups, dtype="int32")[:, None] * n
    flat = ops.reshape(x, (-1, channels))
    return ops.take(flat, first + rows, axis=0)
