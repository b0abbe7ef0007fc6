"""Which expert takes which token, so that all get equally many.

Letters: g groups, m tokens of a group, E experts, R real tokens of a group.
"""

import functools

import keras
from keras import ops

from mlp_mixers.arguments import positive_integer
from mlp_mixers.ops.compiled import compiled
from mlp_mixers.ops.masking import check_padding_mask

# Temperatures of the first and of the last round, and the width of the
# tie-breaking dither, in units of the spread of the scores.
HOT, COLD = 1.0, 0.01
DITHER = 0.03
# A spread under this part of the largest score is rounding noise.
LEAST_SPREAD = 1e-4
SWAPS = 16  # at most
LEAST_GAIN = 1e-4  # of a swap, in units of the spread
TINY, HUGE, LARGEST = 1e-30, 1e30, 3.4e38
LEVELS = 2**15  # of the dither
GOLDEN = 20251  # the golden section of LEVELS


def balanced_assignment(scores, mask=None, iterations=50):
    """Gives every token one expert and every expert equally many tokens.

        maximise Σ_t scores[t, a(t)]  with  ⌊R/E⌋ <= |{t: a(t) = e}| <= ⌈R/E⌉

    over the R real tokens t of each group and its experts e. When E does not
    divide R, the experts in most demand take one token more.

    The dual of the problem has one price p_e per expert: at the right prices,
    each token that takes its best scores[t, e] - p_e takes part in an optimum.

    1. Prices: `iterations` rounds of Sinkhorn-Knopp. Tokens spread over
       softmax_e((scores[t, e] - p_e) / τ); the price of an expert whose load
       leaves the bounds moves by τ times the logarithm of how far. τ falls
       from once to 1/100 of the spread of the scores, which is what is left
       of them without the means of tokens and of experts.
    2. Rounding, in at most E rounds: each token without an expert asks the
       best one that has room, and an expert keeps those that would lose most
       elsewhere.
    3. At most 16 swaps: in each group the two tokens change places, or the
       one token moves, that gain most by it.

    A fixed dither of 3/200 of the spread either way breaks ties in 1 and 2,
    so that equal tokens spread as the prices say. A constant added to all
    scores of a token changes nothing, nor does it where padding lies, up to
    rounding. Of scores that are not finite, inf counts as the largest finite
    score of its group, NaN and -inf as the lowest.

    The loads hold always. The sum is near the optimum, not always at it: 0.99
    of it or more in the tests. Since constants change nothing, a sum needs a
    zero; there, it is the lowest score of each token. No gradient flows.

    Cost of a group: O(iterations·m·E) and at worst O(E·m·(E + log m)); three
    to five rounds of step 2 are usual.

    Args:
        scores: Tensor of shape `(g, m, E)`, of any float type. Computed in
            float32.
        mask: Padding mask of shape `(g, m)`, true at real tokens, or `None`
            for no padding.
        iterations: Rounds of step 1.

    Returns:
        int32 tensor of shape `(g, m)`: the expert of each token, and E, "no
        expert", at padding.

    Raises:
        ValueError: If `scores` has another rank or an unknown number of
            experts, if `mask` does not fit, or if `iterations` is not a
            positive integer.

    Reference:
        BASE Layers (Lewis et al., 2021, arXiv:2103.16716), Sec. 3.1, for the
        problem, which they solve with an auction; Sinkhorn and Knopp (1967)
        for step 1.
    """
    iterations = positive_integer(iterations, "iterations")
    scores = ops.convert_to_tensor(scores)
    if len(scores.shape) != 3 or not scores.shape[-1]:
        raise ValueError(
            "`scores` must have shape `(groups, tokens, experts)`, with a "
            "number of experts that is known and above zero. "
            f"Received: scores.shape={tuple(scores.shape)}"
        )
    check_padding_mask(mask, scores.shape, "balanced_assignment")
    # Stopped here: JAX has no reverse derivative of `while_loop`.
    scores = ops.stop_gradient(ops.cast(scores, "float32"))
    if mask is None:
        real = ops.ones_like(scores[:, :, 0], dtype="bool")
    else:
        real = ops.cast(mask, "bool")
    if scores.shape[-1] == 1:  # Keras warns of a softmax over one.
        return ops.where(real, 0, ops.ones_like(real, dtype="int32"))
    return _solver(iterations)(scores, real)


@functools.cache
def _solver(iterations):
    """The algorithm, compiled where calling it loose would compile it anew.

    On JAX every loop outside of a compiled function is compiled when it is
    met, each time: seconds a call.
    """
    solve = functools.partial(_solve, iterations=iterations)
    if keras.backend.backend() == "jax":
        return compiled(solve, [])
    return solve


def _solve(scores, real, iterations):
    """int32 (g, m) from stopped scores (g, m, E) and booleans (g, m)."""
    tokens = ops.sum(ops.cast(real, "int32"), axis=1, keepdims=True)  # (g, 1)
    utilities, prices = _utilities(scores, real, tokens)
    dithered = utilities + _dither(real, scores.shape[-1])
    prices = _prices(dithered, prices, real, tokens, iterations)
    ids = _fill(dithered, prices, real, tokens)
    return _swap(ids, utilities, tokens)


def _utilities(scores, real, tokens):
    """Scores in units of their spread, best of a token 0; first prices."""
    real = ops.expand_dims(real, -1)  # (g, m, 1)
    # Halved, so that no difference of two overflows.
    scores = _finite(scores / 2, real)
    scores = scores - ops.max(scores, axis=-1, keepdims=True)
    scores = ops.where(real, scores, 0.0)
    size = ops.max(ops.abs(scores), axis=(1, 2), keepdims=True)
    scores = scores / ops.maximum(size, TINY)  # in [-1, 0]

    # Prices absorb what all tokens think of an expert: neither that nor
    # a token's level is part of the spread.
    count = ops.cast(ops.maximum(tokens, 1), "float32")  # (g, 1)
    centred = scores - ops.mean(scores, axis=-1, keepdims=True)
    prices = ops.sum(centred, axis=1) / count  # (g, E)
    centred = ops.where(real, centred - prices[:, None, :], 0.0)
    variance = ops.sum(ops.mean(ops.square(centred), axis=-1), axis=1)
    spread = ops.sqrt(variance[:, None] / count)
    spread = ops.maximum(spread, LEAST_SPREAD)  # (g, 1)
    return scores / spread[:, :, None], prices / spread


def _finite(scores, real):
    """NaN and -inf become the lowest finite score of a group, inf the top."""
    finite = ops.logical_and(ops.isfinite(scores), real)
    low = ops.where(finite, scores, LARGEST)
    low = ops.min(low, axis=(1, 2), keepdims=True)
    high = ops.where(finite, scores, -LARGEST)
    high = ops.max(high, axis=(1, 2), keepdims=True)
    low = ops.minimum(low, high)  # also where nothing is finite
    return ops.where(finite, scores, ops.where(scores > 0, high, low))


def _dither(real, num_experts):
    """Evenly spread numbers in ±DITHER/2, of the t-th real token and e."""
    # A lattice of integers: the same bits on every backend.
    steps = [GOLDEN * e % LEVELS for e in range(1, num_experts + 1)]
    t = ops.cumsum(ops.cast(real, "int32"), axis=1)[:, :, None] % LEVELS
    lattice = t * ops.convert_to_tensor(steps, dtype="int32") % LEVELS
    return DITHER * (ops.cast(lattice, "float32") / LEVELS - 0.5)


def _bounds(tokens, num_experts):
    """⌊R/E⌋, and how many experts take one more: two (g, 1) of int32."""
    return tokens // num_experts, tokens % num_experts


def _prices(utilities, prices, real, tokens, iterations):
    """Prices of shape (g, E) at which loads are within bounds, or nearly."""
    num_experts = utilities.shape[-1]
    floor, extra = _bounds(tokens, num_experts)
    log_floor = _log(ops.cast(floor, "float32"))
    log_ceil = _log(ops.cast(floor + ops.minimum(extra, 1), "float32"))
    log_mean = _log(ops.cast(tokens, "float32") / num_experts)
    # Places, in ascending order of demand, on both sides of the line between
    # the experts that take one token more and the others.
    line = ops.concatenate(
        [num_experts - 1 - extra, num_experts - ops.maximum(extra, 1)], axis=-1
    )
    last = max(iterations - 1, 1)
    temperatures = ops.convert_to_tensor(
        [HOT * (COLD / HOT) ** (i / last) for i in range(iterations)],
        dtype="float32",
    )
    real = ops.cast(ops.expand_dims(real, -1), "float32")

    def update(i, prices):
        t = temperatures[i]
        shares = ops.softmax((utilities - prices[:, None, :]) / t, axis=-1)
        load = ops.sum(shares * real, axis=1)  # (g, E)
        # The price at which the load would be one token.
        demand = prices + t * _log(load)
        middle = ops.take_along_axis(ops.sort(demand, axis=-1), line, axis=-1)
        middle = ops.mean(middle, axis=-1, keepdims=True)
        # An expert at the line keeps a price of 0 while its load lies between
        # the bounds; above or below, its price is what brings it back.
        price = demand - middle + t * log_mean
        return price - ops.clip(price, t * log_floor, t * log_ceil)

    return ops.fori_loop(0, iterations, update, prices)


def _log(x):
    return ops.log(ops.maximum(x, TINY))


def _fill(utilities, prices, real, tokens):
    """Gives every token one expert, at most ⌈R/E⌉ to each; ids (g, m)."""
    num_experts = utilities.shape[-1]
    floor, extra = _bounds(tokens, num_experts)
    gains = utilities - prices[:, None, :]
    experts = ops.arange(num_experts, dtype="int32")
    # The experts of the highest price take one more.
    rank = ops.argsort(ops.argsort(-prices, axis=-1), axis=-1)
    capacity = floor + ops.cast(rank < extra, "int32")

    def unplaced(ids):
        return ops.logical_and(real, ids == num_experts)

    def some_are_unplaced(ids):
        return ops.any(unplaced(ids))

    def fill_round(ids):
        taken = _count(ids[:, :, None] == experts)  # (g, E)
        choice, regret = _choose(gains, taken < capacity)
        asks = ops.logical_and(
            unplaced(ids)[:, :, None], choice[:, :, None] == experts
        )
        kept = _keep(asks, regret, capacity - taken)
        return ops.where(kept, choice, ids)

    ids = ops.full_like(real, num_experts, dtype="int32")
    # Whoever asks in vain leaves an expert full: E rounds place all.
    return ops.while_loop(
        some_are_unplaced, fill_round, ids, maximum_iterations=num_experts
    )


def _count(flags):
    """How many are true along axis 1."""
    return ops.sum(ops.cast(flags, "int32"), axis=1)


def _choose(gains, has_room):
    """Each token's best expert with room, and its lead over the second."""
    gains = ops.where(has_room[:, None, :], gains, -HUGE)
    choice = ops.cast(ops.argmax(gains, axis=-1), "int32")
    first = ops.max(gains, axis=-1)
    is_first = choice[:, :, None] == ops.arange(gains.shape[-1], dtype="int32")
    second = ops.max(ops.where(is_first, -HUGE, gains), axis=-1)
    return choice, first - second


def _keep(asks, regret, room):
    """Of those who ask an expert, the `room[e]` with the highest regret."""
    order = ops.argsort(-regret, axis=1)
    asks = ops.cast(asks, "int32")
    asks = ops.take_along_axis(asks, order[:, :, None], axis=1)
    place = ops.cumsum(asks, axis=1)
    kept = ops.any(
        ops.logical_and(asks > 0, place <= room[:, None, :]), axis=-1
    )
    back = ops.argsort(order, axis=1)
    return ops.take_along_axis(kept, back, axis=1)


def _swap(ids, utilities, tokens):
    """Exchanges the two tokens that gain most by it, SWAPS times at most."""
    num_experts = utilities.shape[-1]
    floor, _ = _bounds(tokens, num_experts)
    experts = ops.arange(num_experts, dtype="int32")

    def pairs(x):
        return ops.reshape(x, (-1, num_experts**2))

    def swap(ids, _):
        own = ops.minimum(ids, num_experts - 1)[:, :, None]
        gains = utilities - ops.take_along_axis(utilities, own, axis=-1)
        best = _best_moves(gains, ids)  # (g, E, E), from a to b
        # Where b has one token more than a, a may take one for nothing.
        load = _count(ids[:, :, None] == experts)
        low, high = load == floor, load > floor
        free = ops.logical_and(low[:, :, None], high[:, None, :])
        free = ops.logical_and(free, best < 0)
        gain = ops.where(free, 0.0, best)
        gain = pairs(gain + ops.transpose(gain, (0, 2, 1)))
        pair = ops.cast(ops.argmax(gain, axis=-1), "int32")[:, None]  # (g, 1)
        better = ops.take_along_axis(gain, pair, axis=-1) > LEAST_GAIN
        a, b = pair // num_experts, pair % num_experts
        moved = ids
        for source, target in ((a, b), (b, a)):
            edge = source * num_experts + target
            stays = ops.take_along_axis(pairs(free), edge, axis=-1)
            moves = ops.logical_and(better, ops.logical_not(stays))
            token = _best_mover(gains, ids == source, target)
            moved = ops.where(ops.logical_and(token, moves), target, moved)
        return moved, ops.any(better)

    return ops.while_loop(
        lambda ids, better: better,
        swap,
        (ids, ops.convert_to_tensor(True)),
        maximum_iterations=SWAPS,
    )[0]


def _best_moves(gains, ids):
    """The most that one token gains by going from a to b, (g, E, E)."""
    groups, num_experts = ops.shape(ids)[0], gains.shape[-1]
    # Padding, too, has a row in every group.
    rows = num_experts + 1
    row = ops.arange(groups, dtype="int32")[:, None] * rows + ids
    best = ops.segment_max(
        ops.reshape(gains, (-1, num_experts)),
        ops.reshape(row, (-1,)),
        num_segments=groups * rows,
    )
    best = ops.reshape(best, (-1, rows, num_experts))[:, :num_experts]
    return ops.maximum(best, -HUGE)  # of an expert with no token


def _best_mover(gains, among, target):
    """True at the token `among` those that gains most at `target`; (g, m)."""
    gains = ops.take_along_axis(gains, target[:, :, None], axis=-1)[:, :, 0]
    gains = ops.where(among, gains, -HUGE)
    token = ops.cast(ops.argmax(gains, axis=-1), "int32")[:, None]
    return ops.arange(ops.shape(gains)[1], dtype="int32") == token
