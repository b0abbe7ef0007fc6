"""The sparse block against its two equations.

Its parts, token experts and feature experts, have tests of their own.
"""

import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import SMLPBlock
from tests import reference
from tests.cases import randomize

B, N, D, E, F, V = 3, 6, 8, 2, 12, 5
MASK = np.arange(N) < np.array([[6], [4], [1]])


def make(rng, **arguments):
    block = SMLPBlock(E, F, sequence_length=N, **arguments)
    block.build((None, N, D))
    return randomize(block, rng)


def array(x):
    return ops.convert_to_numpy(x)


def norm(layer, x):
    return reference.layer_norm(
        x, array(layer.gamma), array(layer.beta), epsilon=1e-6
    )


def dense(layer, x):
    return x @ array(layer.kernel) + array(layer.bias)


def truth(block, x, **mask):
    """U = X + tMoE(norm(X)), Y = U + sMoE(σ(norm(U)·W₁))·W₂, or post-norm."""
    pre = block.norm_placement == "pre"

    def features(u):
        z = reference.gelu(dense(block.intermediate_dense, u))
        s = array(block.gating_unit(z.astype("float32"), **mask))
        return dense(block.output_dense, s)

    def tokens(h):
        return array(block.token_experts(h.astype("float32"), **mask))

    if pre:
        u = x + tokens(norm(block.token_norm, x))
        return u + features(norm(block.norm, u))
    u = norm(block.token_norm, x + tokens(x))
    return norm(block.norm, u + features(u))


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, N, D)).astype("float32")


@pytest.mark.parametrize("norm_placement", ["pre", "post"])
@pytest.mark.parametrize("masked", [False, True])
def test_is_the_formula(masked, norm_placement, x, rng):
    block = make(rng, router="switch", norm_placement=norm_placement)
    mask = {"mask": MASK} if masked else {}
    real = MASK if masked else np.ones_like(MASK)
    np.testing.assert_allclose(
        array(block(x, **mask))[real],
        truth(block, x, **mask)[real],
        rtol=1e-3,
        atol=1e-4,
    )
    if masked:
        dirty = np.where(MASK[..., None], x, np.nan)
        np.testing.assert_array_equal(
            array(block(dirty, **mask))[MASK], array(block(x, **mask))[MASK]
        )


def test_training_reaches_the_experts(x, rng):
    """Both kinds add their losses, in training only."""
    block = make(rng, router="switch", routing="partial", prefix_fraction=0.5)
    block(x)
    assert not block.losses
    block(x, training=True)
    # Balance of tokens, and of channels; the z loss has no weight.
    assert len(block.losses) == 2


def test_base_starts_with_no_token_experts(x, rng):
    """At the start only the second half of the block does something."""
    block = SMLPBlock(E, F, sequence_length=N)
    block.build((None, N, D))
    y = array(block(x, training=True))
    block.token_experts.router.kernel.assign(rng.normal(size=(D, E)))
    np.testing.assert_array_equal(array(block(x, training=True)), y)


def test_arguments():
    with pytest.raises(ValueError, match="norm_placement='both'"):
        SMLPBlock(E, F, norm_placement="both")
    with pytest.raises(ValueError, match="num_experts"):
        SMLPBlock(0, F)
