import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import GMLPBlock
from tests import reference
from tests.cases import randomize

N, D, E, BATCH = 6, 8, 12, 3


def make(rng, **arguments):
    block = GMLPBlock(E, sequence_length=N, **arguments)
    block.build((None, N, D))
    return randomize(block, rng)


def call(block, x, **others):
    return ops.convert_to_numpy(block(x, **others))


def array(variable):
    return ops.convert_to_numpy(variable)


def normed(block, x):
    norm = block.norm
    return reference.layer_norm(
        x, array(norm.gamma), array(norm.beta), epsilon=block.epsilon
    )


def expanded(block, x):
    """σ(norm(X) · U)."""
    dense = block.intermediate_dense
    return reference.gelu(
        normed(block, x) @ array(dense.kernel) + array(dense.bias)
    )


def gated(block, x, **others):
    """s(σ(norm(X) · U))."""
    unit = block.gating_unit
    return reference.spatial_gating_unit(
        expanded(block, x),
        array(unit.spatial_kernel),
        array(unit.spatial_bias),
        array(unit.norm.gamma),
        array(unit.norm.beta),
        **others,
    )


def contracted(block, z):
    """Z̃ · V."""
    dense = block.output_dense
    return z @ array(dense.kernel) + array(dense.bias)


@pytest.fixture
def x(rng):
    return rng.normal(size=(BATCH, N, D)).astype("float32")


@pytest.mark.parametrize("gate", ["linear", "additive", "multiplicative"])
def test_is_the_formula_for_every_gate(gate, x, rng):
    block = make(rng, gate=gate)
    z = gated(block, x, gate=gate)
    np.testing.assert_allclose(
        call(block, x), x + contracted(block, z), rtol=1e-4, atol=1e-4
    )


def test_amlp_attention_reads_the_normalised_input(x, rng):
    block = make(rng, attention_dim=4)
    attention = block.attention
    attended = reference.tiny_attention(
        normed(block, x),
        array(attention.qkv_dense.kernel),
        array(attention.qkv_dense.bias),
        array(attention.output_dense.kernel),
        array(attention.output_dense.bias),
    )
    z = gated(block, x, gate_residual=attended)
    np.testing.assert_allclose(
        call(block, x), x + contracted(block, z), rtol=1e-4, atol=1e-4
    )


def test_with_closed_gates_it_is_a_feed_forward_layer(x, rng):
    """W = 0 and b = 1: x + V(GELU(U · norm(x))[first half]), exactly.

    A unit that gates the first half with the second, or adds the normalised
    input, fails here.
    """
    block = make(rng)
    block.gating_unit.spatial_kernel.assign(np.zeros((1, N, N)))
    block.gating_unit.spatial_bias.assign(np.ones((1, N)))
    first_half = expanded(block, x)[..., : E // 2]
    np.testing.assert_allclose(
        call(block, x), x + contracted(block, first_half), rtol=1e-4, atol=1e-4
    )


def test_tokens_are_alone_at_the_start_unless_there_is_attention(x):
    for attention_dim, alone in ((None, True), (4, False)):
        block = GMLPBlock(E, attention_dim=attention_dim)
        before = call(block, x)
        other = x.copy()
        other[:, 2] = -other[:, 2]
        moved = abs(call(block, other) - before).max(axis=(0, 2))
        assert moved[2] > 0.1
        assert (np.delete(moved, 2).max() < 1e-4) == alone


@pytest.mark.parametrize("attention_dim", [None, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_padding_is_inert(attention_dim, causal, x, rng):
    block = make(rng, attention_dim=attention_dim, causal=causal)
    mask = np.arange(N) < np.array([[6], [4], [1]])
    other = np.where(mask[..., None], x, rng.normal(size=x.shape) * 100)
    before = call(block, x, mask=mask)
    after = call(block, other.astype("float32"), mask=mask)
    np.testing.assert_array_equal(after[mask], before[mask])
    # And a padded input is the short input.
    for n in (1, 4):
        mask = np.broadcast_to(np.arange(N) < n, (BATCH, N))
        np.testing.assert_allclose(
            call(block, x, mask=mask)[:, :n],
            call(block, x[:, :n]),
            rtol=1e-4,
            atol=1e-5,
        )


def test_nan_in_the_padding_trains_like_zero(x, rng):
    """Forward, and through the gradients of a step, on every weight."""
    mask = np.arange(N) < np.array([[6], [4], [1]])
    trained = []
    for content in (0.0, np.nan):
        keras.utils.set_random_seed(0)
        block = make(np.random.default_rng(1), attention_dim=4)
        inputs = keras.Input((N, D)), keras.Input((N,), dtype="bool")
        outputs = block(inputs[0], mask=inputs[1])
        # The loss looks at real tokens alone, as a user's would.
        kept = keras.layers.Lambda(
            lambda t: ops.where(t[1][..., None], t[0], 0.0),
            output_shape=(N, D),
        )([outputs, inputs[1]])
        model = keras.Model(inputs, kept)
        model.compile(keras.optimizers.SGD(0.1), loss="mse")
        padded = np.where(mask[..., None], x, content).astype("float32")
        model.fit((padded, mask), np.zeros((BATCH, N, D)), verbose=0)
        trained.append(block.get_weights())
    for zero, nan in zip(*trained):
        np.testing.assert_allclose(nan, zero, rtol=1e-5, atol=1e-6)


def test_integers_are_taken():
    block = GMLPBlock(E)
    block.build((None, N, D))
    x = np.arange(N * D).reshape(1, N, D)
    np.testing.assert_allclose(
        call(block, x.astype("int32")), call(block, x.astype("float32"))
    )


@pytest.mark.parametrize("toeplitz", [False, True])
def test_causal_outputs_ignore_every_later_token(toeplitz, x, rng):
    block = make(rng, attention_dim=4, causal=True, toeplitz=toeplitz)
    before = call(block, x)
    for t in range(1, N):
        for _ in range(5):
            other = x.copy()
            other[:, t:] = rng.normal(size=other[:, t:].shape)
            after = call(block, other)
            np.testing.assert_allclose(
                after[:, :t], before[:, :t], rtol=1e-5, atol=1e-6
            )
            assert abs(after[:, t:] - before[:, t:]).max() > 1e-3


def test_stochastic_depth_drops_the_branch_and_not_the_input(x, rng):
    block = make(rng, drop_path_rate=0.5)
    branch = call(block, x, training=False) - x
    kept = 0
    for _ in range(20):
        delta = call(block, x, training=True) - x
        for example in range(BATCH):
            if abs(delta[example]).max() == 0:
                continue
            kept += 1
            np.testing.assert_allclose(
                delta[example], 2 * branch[example], rtol=1e-4, atol=1e-4
            )
    assert 15 < kept < 45  # of 60, each with probability 1/2


def test_width_may_equal_or_differ_from_the_number_of_tokens(rng):
    for d, n in ((8, 8), (4, 9)):
        block = GMLPBlock(E)
        x = rng.normal(size=(2, n, d)).astype("float32")
        assert call(block, x).shape == (2, n, d)


def test_longer_input_is_refused_when_called_and_when_traced(rng):
    block = make(rng)
    message = "weights for 6 tokens .* an input of 7 tokens"
    with pytest.raises(ValueError, match=message):
        block(np.zeros((1, N + 1, D), "float32"))
    with pytest.raises(ValueError, match=message):
        block(keras.KerasTensor((None, N + 1, D)))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="`intermediate_dim` must be"):
        GMLPBlock(0)
    with pytest.raises(ValueError, match="gate='linear', attention_dim=4"):
        GMLPBlock(E, gate="linear", attention_dim=4)
    with pytest.raises(ValueError, match="drop_path_rate=1.5"):
        GMLPBlock(E, drop_path_rate=1.5)
    with pytest.raises(ValueError, match="halves.*channels=7"):
        GMLPBlock(7).build((None, N, D))


def test_dropout_is_of_the_branch_alone(rng):
    x = rng.normal(size=(2, 6, 8)).astype("float32")
    block = GMLPBlock(intermediate_dim=12, dropout_rate=0.5)
    still = ops.convert_to_numpy(block(x)) - x
    moving = ops.convert_to_numpy(block(x, training=True)) - x
    dropped = abs(moving) < 1e-7
    assert 0.2 < dropped.mean() < 0.8
    np.testing.assert_allclose(
        moving[~dropped], 2 * still[~dropped], rtol=1e-4, atol=1e-6
    )
