"""Taking tokens one by one gives what taking them all at once gives."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers import SpatialGatingUnit
from mlp_mixers.layers import TinyAttention
from mlp_mixers.layers.self_attention import SelfAttention
from mlp_mixers.layers.transformer_block import TransformerBlock
from tests.cases import randomize
from tests.layers.test_transformer_block import ByToken

N, D, E, BATCH = 6, 8, 12, 3
# Of the prompts of a batch, padded to the longest. The last is whole.
LENGTHS = np.array([2, 4, 1, 6])


def unit(**arguments):
    return SpatialGatingUnit(N, causal=True, **arguments)


def block(**arguments):
    return GMLPBlock(E, sequence_length=N, causal=True, **arguments)


def transformer(**arguments):
    return TransformerBlock(E, 2, causal=True, **arguments)


LAYERS = {
    f"unit_{gate}_{num_heads}_{'toeplitz' if toeplitz else 'dense'}": (
        lambda gate=gate, num_heads=num_heads, toeplitz=toeplitz: unit(
            gate=gate, num_heads=num_heads, toeplitz=toeplitz
        )
    )
    for gate, num_heads, toeplitz in (
        *itertools.product(("linear", "split"), (1, 2), (False, True)),
        # What a gate does with W's product has no part in how W is made.
        *(("additive", 2, False), ("additive", 1, True)),
        *(("multiplicative", 2, False), ("multiplicative", 1, True)),
    )
}
LAYERS |= {
    "attention": lambda: SelfAttention(5, 2, attention_dim=4, causal=True),
    "attention_without_bias": lambda: SelfAttention(
        5, 1, attention_dim=4, causal=True, use_bias=False
    ),
    "tiny_attention": lambda: TinyAttention(5, attention_dim=4, causal=True),
    "gmlp_block": lambda: block(),
    "gmlp_block_linear": lambda: block(gate="linear", num_heads=2),
    "amlp_block": lambda: block(attention_dim=4),
    "amlp_block_toeplitz": lambda: block(
        attention_dim=4, toeplitz=True, gate="multiplicative"
    ),
    "transformer_pre": lambda: transformer(),
    "transformer_post": lambda: transformer(norm_placement="post"),
}
# One of each way to decode, for what is slow.
FEW = [
    "unit_split_2_dense",
    "unit_linear_1_toeplitz",
    "amlp_block_toeplitz",
    "transformer_post",
]


def make(name, rng):
    """A built layer; its kernels have values above the diagonal too."""
    layer = LAYERS[name]()
    layer.build((None, N, D))
    return randomize(layer, rng)


def compiled(function):
    """The function as one program of the backend; PyTorch has none here."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    return function


def array(tensor):
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))


def at(values, positions):
    """One token an example: (b, n, ...) -> (b, 1, ...)."""
    return values[np.arange(len(values)), positions][:, None]


def continue_prompts(layer, x, others, step):
    """Outputs of all tokens: of the prompts at once, then one at a time.

    Args:
        layer: The layer.
        x: Array `(b, n, d)`, whole texts.
        others: Other inputs by name, `(b, n, ...)`.
        step: `layer.step` or a compiled one.
    """
    lengths = LENGTHS[: len(x)]
    mask = np.arange(N) < lengths[:, None]
    # The padding is noise, which nobody is to hear.
    padded = np.where(mask[..., None], x, 100.0).astype("float32")
    y, cache = layer.prefill(padded, mask=mask, **others)
    y = array(y).copy()
    for t in range(N - lengths.min()):
        # Whoever is at the end takes his last token again.
        positions = np.minimum(lengths + t, N - 1).astype("int32")
        now = {name: at(value, positions) for name, value in others.items()}
        out, cache = step(
            ops.convert_to_tensor(at(x, positions)),
            cache,
            ops.convert_to_tensor(positions),
            **keras.tree.map_structure(ops.convert_to_tensor, now),
        )
        y[np.arange(len(x)), positions] = array(out)[:, 0]
    return y


@pytest.fixture
def x(rng):
    return rng.normal(size=(len(LENGTHS), N, D)).astype("float32")


@pytest.mark.parametrize("name", LAYERS)
def test_prompts_of_several_lengths_continue_as_the_call(name, x, rng):
    layer = make(name, rng)
    np.testing.assert_allclose(
        continue_prompts(layer, x, {}, layer.step),
        array(layer(x)),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", FEW)
def test_tokens_from_the_first_one(name, x, rng):
    layer = make(name, rng)
    cache = layer.make_cache(len(x), N)
    outputs = []
    for t in range(N):
        y, cache = layer.step(x[:, t : t + 1], cache, [t] * len(x))
        outputs.append(array(y))
    np.testing.assert_allclose(
        np.concatenate(outputs, 1), array(layer(x)), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("gate", ["multiplicative", "split"])
def test_gate_residual(gate, x, rng):
    layer = make(f"unit_{gate}_2_dense", rng)
    width = D // 2 if gate == "split" else D
    residual = rng.normal(size=(*x.shape[:2], width)).astype("float32")
    others = {"gate_residual": residual}
    np.testing.assert_allclose(
        continue_prompts(layer, x, others, layer.step),
        array(layer(x, **others)),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("norm_placement", ["pre", "post"])
def test_token_ids_reach_the_feed_forward_layer(norm_placement, x, rng):
    layer = transformer(feed_forward=ByToken(), norm_placement=norm_placement)
    layer.build(x.shape)
    randomize(layer, rng)
    others = {"token_ids": rng.integers(0, 5, x.shape[:2], "int32")}
    np.testing.assert_allclose(
        continue_prompts(layer, x, others, layer.step),
        array(layer(x, **others)),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("name", FEW)
def test_prefill_is_the_call(name, x, rng):
    layer = make(name, rng)
    mask = np.arange(N) < LENGTHS[:, None]
    for n in (N, N - 2):
        y, cache = layer.prefill(x[:, :n], mask=mask[:, :n])
        np.testing.assert_allclose(
            array(y),
            array(layer(x[:, :n], mask=mask[:, :n])),
            rtol=1e-6,
            atol=1e-6,
        )
        # As many tokens as the input has, in the form of an empty cache.
        empty = layer.make_cache(len(x), n)
        keras.tree.assert_same_structure(cache, empty)
        for a, b in zip(keras.tree.flatten(cache), keras.tree.flatten(empty)):
            assert tuple(a.shape) == tuple(b.shape)
            assert a.dtype == b.dtype


@pytest.mark.parametrize("name", FEW)
def test_compiled_once_for_all_positions(name, x, rng):
    layer = make(name, rng)
    traced = []

    def step(x, cache, positions):
        traced.append(name)
        return layer.step(x, cache, positions)

    result = continue_prompts(layer, x, {}, compiled(step))
    np.testing.assert_allclose(result, array(layer(x)), rtol=1e-5, atol=1e-5)
    assert len(traced) == 1 or keras.backend.backend() == "torch"


@pytest.mark.parametrize("name", FEW)
def test_prefill_compiles(name, x, rng):
    layer = make(name, rng)
    mask = np.arange(N) < LENGTHS[:, None]
    prefill = compiled(lambda x, mask: layer.prefill(x, mask=mask))
    y, _ = prefill(ops.convert_to_tensor(x), ops.convert_to_tensor(mask))
    np.testing.assert_allclose(
        array(y), array(layer(x, mask=mask)), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", FEW)
def test_later_rows_of_a_cache_are_not_read(name, x, rng):
    layer = make(name, rng)
    _, cache = layer.prefill(x)
    positions = LENGTHS - 1
    later = (np.arange(N) > positions[:, None])[..., None]
    noisy = keras.tree.map_structure(
        lambda c: ops.where(later, 100 * ops.ones_like(c), c), cache
    )
    tokens = at(x, positions)
    np.testing.assert_array_equal(
        array(layer.step(tokens, noisy, positions)[0]),
        array(layer.step(tokens, cache, positions)[0]),
    )


def test_the_kernel_above_the_diagonal_is_not_read(x, rng):
    layer = make("unit_split_1_dense", rng)
    before = continue_prompts(layer, x, {}, layer.step)
    kernel = layer.spatial_kernel
    kernel.assign(kernel + np.triu(np.full((N, N), 100.0), 1))
    after = continue_prompts(layer, x, {}, layer.step)
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("name", FEW)
def test_a_step_writes_one_row(name, x, rng):
    layer = make(name, rng)
    _, before = layer.prefill(x)
    positions = LENGTHS - 1
    _, after = layer.step(-at(x, positions), before, positions)
    here = np.arange(N) == positions[:, None]
    pairs = zip(keras.tree.flatten(before), keras.tree.flatten(after))
    for old, new in pairs:
        moved = abs(array(new) - array(old)).max(-1) > 0
        np.testing.assert_array_equal(moved, here)


@pytest.mark.parametrize("name", ["amlp_block_toeplitz", "transformer_post"])
def test_half_precision(name, x, rng):
    """The cache is half, and the results are the call's but for rounding."""
    whole = make(name, rng)
    config = {**whole.get_config(), "dtype": "mixed_bfloat16"}
    layer = type(whole).from_config(config)
    layer.build((None, N, D))
    layer.set_weights(whole.get_weights())
    for cached in keras.tree.flatten(layer.make_cache(2, N)):
        assert keras.backend.standardize_dtype(cached.dtype) == "bfloat16"
    y, cache = layer.prefill(x)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    for cached in keras.tree.flatten(cache):
        assert keras.backend.standardize_dtype(cached.dtype) == "bfloat16"
    expected = array(layer(x))
    np.testing.assert_array_equal(array(y), expected)
    out, _ = layer.step(at(x, LENGTHS - 1), cache, LENGTHS - 1)
    assert keras.backend.standardize_dtype(out.dtype) == "bfloat16"
    np.testing.assert_allclose(
        array(out), at(expected, LENGTHS - 1), rtol=0.03, atol=0.1
    )


def test_a_cache_carries_no_gradient(x, rng):
    """Of a loop of steps PyTorch keeps no graph but the last one's."""
    layer = make("amlp_block", rng)
    cache = layer.make_cache(len(x), N)
    for t in range(2):
        _, cache = layer.step(x[:, t : t + 1], cache, [t] * len(x))
    for cached in keras.tree.flatten(cache):
        assert not getattr(cached, "requires_grad", False)


def test_dropout_is_off_in_decoding(x, rng):
    layer = block(
        attention_dim=4,
        dropout_rate=0.5,
        attention_dropout_rate=0.5,
        drop_path_rate=0.5,
    )
    layer.build(x.shape)
    randomize(layer, rng)
    np.testing.assert_allclose(
        continue_prompts(layer, x, {}, layer.step),
        array(layer(x, training=False)),
        rtol=1e-5,
        atol=1e-5,
    )


# What a step costs.

LONG = 64


def long_layers(dtype):
    common = {"causal": True, "dtype": dtype}
    yield SpatialGatingUnit(LONG, num_heads=2, **common)
    yield SpatialGatingUnit(LONG, toeplitz=True, gate="linear", **common)
    yield SelfAttention(5, 2, attention_dim=4, **common)
    yield GMLPBlock(E, 4, sequence_length=LONG, toeplitz=True, **common)
    yield TransformerBlock(E, 2, **common)


def largest_result(jaxpr):
    """The number of elements of the largest array that a program makes."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [np.prod(out.aval.shape) for out in equation.outvars]
        for inner in keras.tree.flatten(list(equation.params.values())):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                sizes.append(largest_result(inner))
    return max(sizes)


@pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="looks at JAX's program"
)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_no_step_makes_a_matrix_of_tokens_by_tokens(dtype, rng):
    import jax

    x = rng.normal(size=(1, LONG, D)).astype("float32")
    for layer in long_layers(dtype):
        layer.build(x.shape)
        cache = layer.make_cache(1, LONG)
        step = jax.make_jaxpr(layer.step)(x[:, :1], cache, np.array([5]))
        # The caches themselves have 64 · 12 elements at most.
        assert largest_result(step.jaxpr) <= LONG * E
        whole = jax.make_jaxpr(lambda x, layer=layer: layer(x))(x)
        assert largest_result(whole.jaxpr) >= LONG**2


# Wrong use.


def test_only_causal_layers_decode(x):
    for layer in (
        SpatialGatingUnit(N),
        TinyAttention(4),
        GMLPBlock(E, sequence_length=N),
        TransformerBlock(E, 2),
    ):
        layer.build(x.shape)
        message = f"{type(layer).__name__} can take .* `causal=True`.*=False"
        for use in (
            lambda layer=layer: layer.make_cache(1, N),
            lambda layer=layer: layer.prefill(x),
            lambda layer=layer: layer.step(x[:, :1], {}, [0] * len(x)),
        ):
            with pytest.raises(ValueError, match=message):
                use()


@pytest.mark.parametrize("name", FEW)
def test_only_built_layers_decode(name):
    with pytest.raises(ValueError, match="must be built before"):
        LAYERS[name]().make_cache(1, N)


@pytest.mark.parametrize("name", FEW)
def test_wrong_shapes(name, x, rng):
    layer = make(name, rng)
    cache = layer.make_cache(len(x), N)
    for tokens, positions in (
        (x, [0] * len(x)),
        (x[:, :1], [0]),
        (x[:, :1], [[0]] * len(x)),
        (x[:, :1], 0),
    ):
        with pytest.raises(ValueError, match="step expects one token an"):
            layer.step(tokens, cache, positions)
    with pytest.raises(ValueError, match="padding mask of shape"):
        layer.prefill(x, mask=np.ones(x.shape, bool))


def test_longer_than_the_spatial_weights(x, rng):
    layer = make("amlp_block", rng)
    with pytest.raises(ValueError, match="weights for 6 tokens .* 7 tokens"):
        layer.make_cache(1, N + 1)
    with pytest.raises(ValueError, match="weights for 6 tokens .* 7 tokens"):
        layer.prefill(np.zeros((1, N + 1, D), "float32"))
