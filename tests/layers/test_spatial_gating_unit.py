import itertools

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import SpatialGatingUnit
from tests import reference
from tests.cases import randomize

N, E, BATCH = 6, 8, 3
GATES = ["linear", "additive", "multiplicative", "split"]


def make(rng, **arguments):
    """A built unit with random weights."""
    unit = SpatialGatingUnit(sequence_length=N, **arguments)
    unit.build((None, N, E))
    return randomize(unit, rng)


def call(unit, x, **others):
    return ops.convert_to_numpy(unit(x, **others))


def truth(unit, x, **others):
    """The same from the formulas, W read from the weights by definition."""
    kernel = ops.convert_to_numpy(unit.spatial_kernel)
    heads = kernel.shape[0]
    w = np.zeros((heads, N, N), "float32")
    for h, i, j in itertools.product(range(heads), range(N), range(N)):
        if unit.causal and j > i:
            continue
        w[h, i, j] = (
            kernel[h, (N - 1) + (j - i)] if unit.toeplitz else kernel[h, i, j]
        )
    return reference.spatial_gating_unit(
        x,
        w,
        ops.convert_to_numpy(unit.spatial_bias),
        ops.convert_to_numpy(unit.norm.gamma),
        ops.convert_to_numpy(unit.norm.beta),
        gate=unit.gate,
        **others,
    )


@pytest.fixture
def x(rng):
    return rng.normal(size=(BATCH, N, E)).astype("float32")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("num_heads", [1, 2])
@pytest.mark.parametrize("toeplitz", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_is_the_formula(gate, num_heads, toeplitz, causal, x, rng):
    unit = make(
        rng, gate=gate, num_heads=num_heads, toeplitz=toeplitz, causal=causal
    )
    np.testing.assert_allclose(
        call(unit, x), truth(unit, x), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("gate", ["multiplicative", "split"])
def test_gate_residual_joins_before_the_product(gate, x, rng):
    unit = make(rng, gate=gate)
    width = E // 2 if gate == "split" else E
    residual = rng.normal(size=(BATCH, N, width)).astype("float32")
    np.testing.assert_allclose(
        call(unit, x, gate_residual=residual),
        truth(unit, x, gate_residual=residual),
        rtol=1e-4,
        atol=1e-5,
    )


# How each gate starts: what the unit computes before any training.


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        ("split", lambda x: x[..., : E // 2]),
        ("multiplicative", lambda x: x),
        ("additive", lambda x: x),
    ],
)
def test_starts_as_the_identity(gate, expected, x):
    unit = SpatialGatingUnit(gate=gate)
    np.testing.assert_allclose(call(unit, x), expected(x), atol=1e-4)


def test_linear_gate_starts_with_glorot_and_no_bias():
    unit = SpatialGatingUnit(gate="linear", num_heads=2)
    unit.build((None, 100, 8))
    kernel = ops.convert_to_numpy(unit.spatial_kernel)
    # Glorot uniform of a 100x100 matrix: variance 2 / (100 + 100).
    np.testing.assert_allclose(kernel.var(axis=(1, 2)), 0.01, rtol=0.05)
    assert abs(kernel[0] - kernel[1]).max() > 0.01
    assert not ops.convert_to_numpy(unit.spatial_bias).any()


def test_initializers_can_be_chosen(x):
    unit = SpatialGatingUnit(
        kernel_initializer="ones", bias_initializer="zeros"
    )
    unit.build(x.shape)
    assert (ops.convert_to_numpy(unit.spatial_kernel) == 1).all()
    assert (ops.convert_to_numpy(unit.spatial_bias) == 0).all()


def test_tokens_are_alone_at_the_start(x):
    unit = SpatialGatingUnit()
    before = call(unit, x)
    x[:, 2] += 10
    moved = abs(call(unit, x) - before).max(axis=(0, 2))
    assert moved[2] > 1
    assert np.delete(moved, 2).max() < 1e-3


# Shorter inputs.


@pytest.mark.parametrize("toeplitz", [False, True])
@pytest.mark.parametrize("num_heads", [1, 2])
def test_shorter_input_uses_leading_rows_and_columns(
    toeplitz, num_heads, x, rng
):
    unit = make(rng, toeplitz=toeplitz, num_heads=num_heads)
    w = ops.convert_to_numpy(unit.spatial_matrix())[:, :4, :4]
    expected = reference.spatial_gating_unit(
        x[:, :4],
        w,
        ops.convert_to_numpy(unit.spatial_bias)[:, :4],
        ops.convert_to_numpy(unit.norm.gamma),
        ops.convert_to_numpy(unit.norm.beta),
    )
    np.testing.assert_allclose(
        call(unit, x[:, :4]), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("toeplitz", [False, True])
def test_causal_prefix_gives_the_first_outputs(toeplitz, x, rng):
    unit = make(rng, causal=True, toeplitz=toeplitz)
    for n in range(1, N + 1):
        np.testing.assert_allclose(
            call(unit, x[:, :n]), call(unit, x)[:, :n], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("toeplitz", [False, True])
def test_causal_outputs_ignore_every_later_token(toeplitz, x, rng):
    unit = make(rng, causal=True, toeplitz=toeplitz)
    before = call(unit, x)
    for t in range(1, N):
        for _ in range(5):
            other = x.copy()
            other[:, t:] = rng.normal(size=other[:, t:].shape)
            after = call(unit, other)
            np.testing.assert_array_equal(after[:, :t], before[:, :t])
            assert abs(after[:, t:] - before[:, t:]).max() > 1e-3


# Masks.


def test_padding_is_inert_and_zero(x, rng):
    unit = make(rng)
    mask = np.arange(N) < np.array([[6], [4], [1]])
    before = call(unit, x, mask=mask)
    other = np.where(mask[..., None], x, rng.normal(size=x.shape) * 100)
    np.testing.assert_array_equal(
        call(unit, other.astype("float32"), mask=mask), before
    )
    assert not before[~mask].any()


def test_padded_input_equals_the_short_one(x, rng):
    unit = make(rng, num_heads=2)
    for n in (1, 3, 5):
        mask = np.broadcast_to(np.arange(N) < n, (BATCH, N))
        np.testing.assert_allclose(
            call(unit, x, mask=mask)[:, :n],
            call(unit, x[:, :n]),
            rtol=1e-5,
            atol=1e-6,
        )


def test_a_gap_in_the_mask_is_a_zero_in_the_sum(x, rng):
    unit = make(rng, gate="linear")
    mask = np.ones((BATCH, N), bool)
    mask[:, 2] = False
    w = ops.convert_to_numpy(unit.spatial_matrix()).copy()
    w[:, :, 2] = 0
    expected = reference.spatial_gating_unit(
        x,
        w,
        ops.convert_to_numpy(unit.spatial_bias),
        ops.convert_to_numpy(unit.norm.gamma),
        ops.convert_to_numpy(unit.norm.beta),
        gate="linear",
    )
    result = call(unit, x, mask=mask)
    np.testing.assert_allclose(
        np.delete(result, 2, 1), np.delete(expected, 2, 1), rtol=1e-4, atol=1e-5
    )


def test_keras_mask_of_an_embedding_is_taken_too(rng):
    tokens = np.array([[3, 1, 2, 0, 0, 0]])
    embedding = keras.layers.Embedding(5, E, mask_zero=True)
    unit = make(rng)
    implicit = call(unit, embedding(tokens))
    np.testing.assert_allclose(
        implicit[:, :3],
        call(unit, embedding(tokens[:, :3])),
        rtol=1e-5,
        atol=1e-6,
    )


# Wrong inputs.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gate": "splitt"}, "`gate` must be one of .* gate='splitt'"),
        ({"sequence_length": 0}, "`sequence_length` must be a positive"),
        ({"num_heads": 0}, "`num_heads` must be a positive integer"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SpatialGatingUnit(**arguments)


@pytest.mark.parametrize(
    ("arguments", "shape", "message"),
    [
        ({}, (2, N, 7), "halves, so their number must be even.*channels=7"),
        ({"num_heads": 3}, (2, N, 8), "channels=4, num_heads=3"),
        ({}, (2, 8), r"inputs of shape `\(batch, n, channels\)`"),
        ({}, (2, N, None), "known number of channels"),
        ({}, (2, None, 8), "Pass `sequence_length=`"),
        ({"sequence_length": 4}, (2, 6, 8), "6 tokens, sequence_length=4"),
    ],
)
def test_wrong_shapes_when_built(arguments, shape, message):
    with pytest.raises(ValueError, match=message):
        SpatialGatingUnit(**arguments).build(shape)


def test_longer_input_when_called_and_when_traced(rng):
    unit = make(rng)
    message = "weights for 6 tokens .* an input of 7 tokens"
    with pytest.raises(ValueError, match=message):
        unit(np.zeros((1, N + 1, E), "float32"))
    with pytest.raises(ValueError, match=message):
        unit(keras.KerasTensor((None, N + 1, E)))


def test_unknown_length_with_a_known_limit_is_fine(rng):
    unit = make(rng)
    outputs = unit(keras.KerasTensor((None, None, E)))
    assert outputs.shape == (None, None, E // 2)


@pytest.mark.parametrize("gate", ["linear", "additive"])
def test_gate_residual_needs_a_gate_that_multiplies(gate, x, rng):
    with pytest.raises(ValueError, match="added to a gate that multiplies"):
        make(rng, gate=gate)(x, gate_residual=x)


def test_gate_residual_of_another_shape(x, rng):
    with pytest.raises(ValueError, match="shape of the output.*Received"):
        make(rng)(x, gate_residual=x)


def test_mask_of_another_shape(x, rng):
    with pytest.raises(ValueError, match="padding mask of shape"):
        make(rng)(x, mask=np.ones((BATCH, N, 1), bool))
