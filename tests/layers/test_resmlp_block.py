import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import ResMLPBlock
from tests import reference
from tests.cases import randomize

N, C, E, BATCH = 6, 8, 12, 3


def make(rng, **arguments):
    block = ResMLPBlock(E, **arguments)
    block.build((None, N, C))
    return randomize(block, rng)


def call(block, x, **others):
    return ops.convert_to_numpy(block(x, **others))


def weights(*layers):
    return [w for layer in layers for w in layer.get_weights()]


def truth(block, x):
    return reference.resmlp_block(
        x,
        weights(block.token_norm),
        *weights(block.spatial_projection, block.token_scale),
        weights(block.channel_norm),
        weights(block.intermediate_dense, block.output_dense),
        *weights(block.channel_scale),
    )


@pytest.fixture
def x(rng):
    return rng.normal(size=(BATCH, N, C)).astype("float32")


def test_is_the_formula(x, rng):
    block = make(rng)
    np.testing.assert_allclose(
        call(block, x), truth(block, x), rtol=1e-4, atol=1e-4
    )


def test_starts_near_the_identity(x):
    for init in (1e-4, 1e-6):
        block = ResMLPBlock(E, layer_scale_init=init)
        moved = abs(call(block, x) - x).max()
        assert moved < 20 * init
    assert abs(call(ResMLPBlock(E, layer_scale_init=0.1), x) - x).max() > 0.01


def test_without_the_second_branch_it_is_linear(x, rng):
    """In the tokens: f(x + y) = f(x) + f(y) - f(0)."""
    block = make(rng)
    block.channel_scale.gamma.assign(np.zeros(C))
    y = rng.normal(size=x.shape).astype("float32")
    np.testing.assert_allclose(
        call(block, x + y),
        call(block, x) + call(block, y) - call(block, 0 * x),
        rtol=1e-4,
        atol=1e-4,
    )


def test_branches_drop_on_their_own(x, rng):
    """Four outcomes for an example: both, one, the other, none."""
    block = make(rng, drop_path_rate=0.5)
    block.channel_scale.gamma.assign(np.ones(C))
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


def test_integers_are_taken(rng):
    block = make(rng)
    x = np.arange(N * C).reshape(1, N, C)
    np.testing.assert_allclose(call(block, x), call(block, x.astype("float32")))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="`intermediate_dim` must be"):
        ResMLPBlock(0)
    with pytest.raises(ValueError, match="drop_path_rate=1.5"):
        ResMLPBlock(E, drop_path_rate=1.5)
    with pytest.raises(ValueError, match="init=0"):
        ResMLPBlock(E, layer_scale_init=0)


def test_wrong_inputs(rng):
    with pytest.raises(ValueError, match="known length and width. Received: x"):
        ResMLPBlock(E)(keras.KerasTensor((None, None, C)))
    with pytest.raises(ValueError, match=r"`\(batch, n, channels\)`"):
        ResMLPBlock(E).build((None, C))
    with pytest.raises(ValueError, match="incompatible"):
        make(rng)(np.zeros((1, N + 1, C), "float32"))
