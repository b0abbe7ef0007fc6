import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import MixerBlock
from tests import reference
from tests.cases import randomize

N, C, T, E, BATCH = 6, 8, 5, 12, 3


def make(rng, **arguments):
    block = MixerBlock(T, E, **arguments)
    block.build((None, N, C))
    return randomize(block, rng)


def call(block, x, **others):
    return ops.convert_to_numpy(block(x, **others))


def weights(*layers):
    return [w for layer in layers for w in layer.get_weights()]


def truth(block, x):
    return reference.mixer_block(
        x,
        weights(block.token_norm),
        weights(block.token_intermediate_dense, block.token_output_dense),
        weights(block.channel_norm),
        weights(block.intermediate_dense, block.output_dense),
    )


@pytest.fixture
def x(rng):
    return rng.normal(size=(BATCH, N, C)).astype("float32")


def test_is_the_formula(x, rng):
    block = make(rng)
    np.testing.assert_allclose(
        call(block, x), truth(block, x), rtol=1e-4, atol=1e-4
    )


def test_kernels_over_tokens_have_the_shapes_of_the_paper(rng):
    block = make(rng)
    assert block.token_intermediate_dense.kernel.shape == (N, T)
    assert block.token_output_dense.kernel.shape == (T, N)
    assert block.intermediate_dense.kernel.shape == (C, E)
    assert block.output_dense.kernel.shape == (E, C)


def test_channels_share_the_mlp_over_tokens(x, rng):
    """With the second branch silent, permuted channels come out permuted."""
    block = make(rng)
    block.output_dense.set_weights([np.zeros((E, C)), np.zeros(C)])
    block.token_norm.set_weights([np.ones(C), np.zeros(C)])
    order = rng.permutation(C)
    np.testing.assert_allclose(
        call(block, x[..., order]),
        call(block, x)[..., order],
        rtol=1e-4,
        atol=1e-4,
    )


def test_branches_drop_on_their_own(x, rng):
    """Four outcomes for an example: both, one, the other, none."""
    block = make(rng, drop_path_rate=0.5)
    block.output_dense.set_weights([np.zeros((E, C)), np.zeros(C)])
    first = call(block, x, training=False) - x
    block.output_dense.bias.assign(np.full(C, 100.0))
    outcomes = set()
    for _ in range(20):
        delta = call(block, x, training=True) - x
        for example in range(BATCH):
            second = abs(delta[example]).max() > 100
            rest = delta[example] - (200.0 if second else 0.0)
            kept = abs(rest).max() > 1e-3
            if kept:
                np.testing.assert_allclose(
                    rest, 2 * first[example], rtol=1e-3, atol=1e-3
                )
            outcomes.add((kept, second))
    assert len(outcomes) == 4


def test_options_reach_the_parts():
    block = MixerBlock(
        T, E, drop_path_rate=0.1, activation="relu", epsilon=1e-3
    )
    block.build((None, N, C))
    for dense in (block.token_intermediate_dense, block.intermediate_dense):
        assert dense.activation is keras.activations.relu
    for dense in (block.token_output_dense, block.output_dense):
        assert dense.activation is keras.activations.linear
    for norm in (block.token_norm, block.channel_norm):
        assert norm.epsilon == 1e-3
    for drop_path in (block.token_drop_path, block.channel_drop_path):
        assert drop_path.rate == 0.1


def test_integers_are_taken(rng):
    block = make(rng)
    x = np.arange(N * C).reshape(1, N, C)
    np.testing.assert_allclose(call(block, x), call(block, x.astype("float32")))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="`token_intermediate_dim` must be"):
        MixerBlock(0, E)
    with pytest.raises(ValueError, match="`intermediate_dim` must be"):
        MixerBlock(T, 1.5)
    with pytest.raises(ValueError, match="drop_path_rate=1.5"):
        MixerBlock(T, E, drop_path_rate=1.5)
    with pytest.raises(ValueError, match="epsilon=0"):
        MixerBlock(T, E, epsilon=0)


def test_wrong_inputs(rng):
    with pytest.raises(ValueError, match="known length and width. Received: x"):
        MixerBlock(T, E)(keras.KerasTensor((None, None, C)))
    with pytest.raises(ValueError, match=r"`\(batch, n, channels\)`"):
        MixerBlock(T, E).build((None, C))
    with pytest.raises(ValueError, match="incompatible"):
        make(rng)(np.zeros((1, N + 1, C), "float32"))
