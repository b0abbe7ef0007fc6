import keras
import numpy as np
import pytest
import scipy.optimize
from keras import ops

from mlp_mixers.ops.assignment import balanced_assignment

BACKEND = keras.backend.backend()


def jitted(function):
    """On JAX, which compiles loops anew in every call outside of `jit`."""
    if BACKEND != "jax":
        return function
    import jax

    return jax.jit(function, static_argnames="iterations")


FUNCTION = jitted(balanced_assignment)


def assign(scores, mask=None, **options):
    """Expert ids as NumPy, of scores in NumPy."""
    scores = ops.convert_to_tensor(np.asarray(scores, "float32"))
    ids = FUNCTION(scores, mask, **options)
    assert keras.backend.standardize_dtype(ids.dtype) == "int32"
    return ops.convert_to_numpy(ids)


def check_balance(ids, num_experts, mask=None):
    """Floor or ceiling of R/E everywhere, "no expert" at padding only."""
    mask = np.ones(ids.shape, bool) if mask is None else np.asarray(mask, bool)
    np.testing.assert_array_equal(ids == num_experts, ~mask)
    for row, real in zip(ids, mask):
        load = np.bincount(row[real], minlength=num_experts)
        floor, extra = divmod(real.sum(), num_experts)
        # Nobody under the floor, and as many above it as must be.
        expected = floor + (np.arange(num_experts) >= num_experts - extra)
        np.testing.assert_array_equal(np.sort(load), expected)


def optimum(scores):
    """Ids and sum of SciPy's exact solution for one group, (m, E)."""
    (m, num_experts), floor = scores.shape, len(scores) // scores.shape[1]
    dummies = -m % num_experts
    # `floor` columns an expert, and one more that dummies may take too.
    columns = np.tile(np.arange(num_experts), floor + (dummies > 0))
    dummy = np.zeros((dummies, len(columns)))
    dummy[:, : floor * num_experts] = -1e9
    costs = np.concatenate([scores[:, columns], dummy])
    rows, places = scipy.optimize.linear_sum_assignment(costs, maximize=True)
    ids = columns[places][np.argsort(rows)][:m]
    return ids, scores[np.arange(m), ids].sum()


def share_of_optimum(scores, ids):
    """Sum over the optimum, with each token's lowest score as its zero."""
    scores = np.asarray(scores, "float64")
    scores = scores - scores.min(axis=-1, keepdims=True)
    best = optimum(scores)[1]
    if best == 0:
        return 1.0
    return scores[np.arange(len(ids)), ids].sum() / best


def make_scores(kind, rng, m, num_experts):
    """Scores of shape (m, E) of one of KINDS."""
    normal = rng.normal(size=(m, num_experts))
    liked = rng.normal(size=num_experts)
    return {
        "normal": lambda: normal,
        "all prefer some": lambda: normal + 3 * liked,
        "one expert for all": lambda: normal + 100 * (liked == liked.max()),
        "near ties": lambda: 1 + 1e-4 * normal,
        "exact ties": lambda: np.round(normal),
        "constant": lambda: np.full_like(normal, 0.3),
        "identical tokens": lambda: np.tile(normal[:1], (m, 1)),
        "two kinds of tokens": lambda: normal[rng.integers(0, 2, m) % m],
        "sigmoid": lambda: 1 / (1 + np.exp(-3 * normal - 2 * liked)),
        "large": lambda: 1e30 * normal,
        "small": lambda: 1e-20 * normal,
        "heavy tails": lambda: rng.standard_cauchy(size=(m, num_experts)),
        "far from zero": lambda: normal - 1000,
    }[kind]()


KINDS = (
    *("normal", "all prefer some", "one expert for all", "near ties"),
    *("exact ties", "constant", "identical tokens", "two kinds of tokens"),
    *("sigmoid", "large", "small", "heavy tails", "far from zero"),
)


@pytest.mark.parametrize(("m", "num_experts"), [(3, 8), (20, 8), (130, 8)])
def test_near_scipys_optimum(m, num_experts, rng):
    scores = np.stack(
        [make_scores(kind, rng, m, num_experts) for kind in KINDS]
    ).astype("float32")
    ids = assign(scores)
    check_balance(ids, num_experts)
    shares = {k: share_of_optimum(*x) for k, *x in zip(KINDS, scores, ids)}
    assert min(shares.values()) > 0.99, shares


def test_near_the_optimum_of_a_long_sequence(rng):
    scores = make_scores("all prefer some", rng, 512, 8).astype("float32")
    ids = assign(scores[None])
    check_balance(ids, 8)
    assert share_of_optimum(scores, ids[0]) > 0.995


def test_small_problems_are_solved_exactly(rng):
    """By every backend, with distinct scores: SciPy's ids."""
    scores = rng.normal(size=(8, 12, 4)).astype("float32")
    expected = np.stack([optimum(group)[0] for group in scores])
    np.testing.assert_array_equal(assign(scores), expected)


@pytest.mark.parametrize(
    ("groups", "m", "num_experts"),
    [
        (1, 1, 1),
        (2, 5, 1),
        (3, 1, 4),
        (2, 3, 8),
        (4, 17, 4),
        (5, 16, 4),
        (3, 70, 64),
        (1, 200, 7),
    ],
)
def test_balance(groups, m, num_experts, rng):
    scores = rng.normal(size=(groups, m, num_experts))
    mask = rng.random((groups, m)) < rng.random((groups, 1))
    mask[0] = False  # a group of padding
    # With prices that are far from right, too.
    for some in (np.ones_like(mask), mask):
        for values in (scores, np.round(scores)):
            ids = assign(values, some, iterations=2)
            check_balance(ids, num_experts, some)


def test_one_token_gets_its_best_expert(rng):
    scores = rng.normal(size=(6, 1, 5))
    np.testing.assert_array_equal(assign(scores), scores.argmax(-1))


def test_without_competition_everyone_gets_the_best(rng):
    wish = rng.permutation(np.arange(40) % 8)
    scores = rng.random(size=(40, 8)) + 2 * np.eye(8)[wish]
    np.testing.assert_array_equal(assign(scores[None])[0], wish)


def test_the_expert_in_demand_takes_one_more(rng):
    scores = rng.normal(size=(4, 9, 4))
    scores[:, :, 2] += 10
    for row in assign(scores):
        np.testing.assert_array_equal(np.bincount(row), [2, 2, 3, 2])


def test_padding_changes_no_real_token(rng):
    scores = rng.normal(size=(2, 12, 4))
    expected = assign(scores)
    filler = np.full((2, 5, 4), np.nan)
    filler[1] = 1e9
    right = np.concatenate([scores, filler], axis=1)
    mask = (np.arange(17)[None] < np.full((2, 1), 12)).astype("int32")
    np.testing.assert_array_equal(assign(right, mask)[:, :12], expected)
    left = np.concatenate([filler, scores], axis=1)
    result = assign(left, mask[:, ::-1].copy())
    np.testing.assert_array_equal(result[:, 5:], expected)


def test_groups_do_not_see_each_other(rng):
    scores = rng.normal(size=(3, 14, 4)) * [[[1.0]], [[1e6]], [[1e-6]]]
    alone = np.concatenate([assign(group[None]) for group in scores])
    np.testing.assert_array_equal(assign(scores), alone)


def test_a_constant_of_a_token_changes_nothing(rng):
    scores = rng.integers(-1000, 1000, size=(3, 24, 4)) / 8  # exact sums
    offsets = rng.integers(-1000, 1000, size=(3, 24, 1))
    np.testing.assert_array_equal(assign(scores + offsets), assign(scores))


def test_scores_that_are_not_finite(rng):
    scores = rng.normal(size=(4, 12, 3))
    scores[0, ::2, 1] = np.nan
    scores[1, 3, 0], scores[1, 4, 2] = -np.inf, np.inf
    scores[2] = np.nan
    scores[3, :, 0], scores[3, :, 1], scores[3, :, 2] = np.inf, -np.inf, np.nan
    ids = assign(scores)
    check_balance(ids, 3)
    replaced = scores[:2].copy()
    for group in replaced:
        low, high = (f(group[np.isfinite(group)]) for f in (np.min, np.max))
        group[:] = np.nan_to_num(group, nan=low, neginf=low, posinf=high)
    np.testing.assert_array_equal(ids[:2], assign(replaced))


def test_the_largest_and_the_smallest_numbers(rng):
    signs = np.sign(rng.normal(size=(2, 20, 3)))
    scores = signs * np.array([3.4e38, 1e-44])[:, None, None]
    check_balance(assign(scores), 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_is_computed_in_float32(dtype, rng):
    scores = ops.cast(rng.normal(size=(2, 40, 4)), dtype)
    result, expected = FUNCTION(scores), FUNCTION(ops.cast(scores, "float32"))
    np.testing.assert_array_equal(
        ops.convert_to_numpy(result), ops.convert_to_numpy(expected)
    )


class Router(keras.Model):
    """Each token times the weight of its expert."""

    def __init__(self, num_experts, **kwargs):
        super().__init__(**kwargs)
        self.num_experts = num_experts
        self.router = keras.layers.Dense(num_experts, name="router")
        self.scale = self.add_weight(
            shape=(num_experts, 1), initializer="ones", name="scale"
        )

    def ids(self, x):
        # Before the product: zeros are padding.
        return balanced_assignment(self.router(x), ops.any(x != 0, axis=-1))

    def call(self, x):
        ids = self.ids(x)
        factor = ids[..., None] == ops.arange(self.num_experts, dtype="int32")
        factor = ops.cast(factor, self.compute_dtype)
        return ops.matmul(factor, ops.cast(self.scale, factor.dtype)) * x


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_training_passes_through_and_no_gradient_does(dtype, rng):
    x = rng.normal(size=(2, 12, 5)).astype("float32")
    model = Router(4, dtype=dtype)
    model(x)
    router, scale = model.router.get_weights(), model.get_weights()
    jit = BACKEND != "torch"
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
    model.fit(x, 3 * x, batch_size=2, verbose=0)
    for before, after in zip(router, model.router.get_weights()):
        np.testing.assert_array_equal(before, after)
    changed = [a for b, a in zip(scale, model.get_weights()) if np.any(a != b)]
    assert len(changed) == 1
    assert np.all(changed[0] > 1)  # finite, and on its way to 3


@pytest.mark.skipif(BACKEND != "tensorflow", reason="graphs of TensorFlow")
@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_graph_of_any_length_is_eager(jit_compile, rng):
    import tensorflow as tf

    function = tf.function(
        balanced_assignment,
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec((None, None, 4), "float32"),
            tf.TensorSpec((None, None), "bool"),
        ],
    )
    for m in (30, 13):
        scores = rng.normal(size=(4, m, 4)).astype("float32")
        mask = np.arange(m)[None] < np.array([[m], [5], [11], [0]])
        ids = function(scores, mask)
        np.testing.assert_array_equal(ids, assign(scores, mask))


@pytest.mark.skipif(BACKEND != "jax", reason="transformations of JAX")
def test_jit_is_eager_on_jax(rng):
    scores = ops.convert_to_tensor(rng.normal(size=(2, 10, 3)))
    np.testing.assert_array_equal(balanced_assignment(scores), FUNCTION(scores))


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3, 1), (2, 4, 0)])
def test_scores_of_another_rank_are_refused(shape):
    with pytest.raises(ValueError, match=r"`\(groups, tokens, experts\)`"):
        balanced_assignment(np.zeros(shape, "float32"))


def test_what_else_is_refused():
    scores = np.zeros((2, 4, 3), "float32")
    with pytest.raises(ValueError, match="balanced_assignment expects a padd"):
        balanced_assignment(scores, np.ones((2, 5)))
    with pytest.raises(ValueError, match="`iterations` must be a positive"):
        balanced_assignment(scores, iterations=0)
