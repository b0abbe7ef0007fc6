import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import TinyAttention
from tests import reference
from tests.cases import randomize

N, D, BATCH = 6, 8, 3


def make(rng, **arguments):
    attention = TinyAttention(output_dim=5, attention_dim=4, **arguments)
    attention.build((None, N, D))
    return randomize(attention, rng)


def call(attention, x, **others):
    return ops.convert_to_numpy(attention(x, **others))


def truth(attention, x, allowed=None):
    dense = (attention.qkv_dense, attention.output_dense)
    weights = []
    for layer in dense:
        kernel = ops.convert_to_numpy(layer.kernel)
        bias = ops.convert_to_numpy(layer.bias) if layer.use_bias else 0.0
        weights += [kernel, bias]
    return reference.tiny_attention(x, *weights, allowed=allowed)


@pytest.fixture
def x(rng):
    return rng.normal(size=(BATCH, N, D)).astype("float32")


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_is_the_formula(use_bias, causal, x, rng):
    attention = make(rng, use_bias=use_bias, causal=causal)
    allowed = np.tril(np.ones((N, N), bool)) if causal else None
    np.testing.assert_allclose(
        call(attention, x),
        truth(attention, x, allowed),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_masked_is_the_formula_over_real_tokens(causal, x, rng):
    attention = make(rng, causal=causal)
    mask = np.arange(N) < np.array([[6], [4], [1]])
    allowed = mask[:, None, :] & np.ones((N, N), bool)
    if causal:
        allowed = allowed & np.tril(np.ones((N, N), bool))
    result = call(attention, x, mask=mask)
    expected = truth(attention, x, allowed)
    np.testing.assert_allclose(
        result[mask], expected[mask], rtol=1e-4, atol=1e-5
    )
    assert not result[~mask].any()


def test_padding_is_inert(x, rng):
    attention = make(rng)
    mask = np.arange(N) < np.array([[6], [4], [1]])
    other = np.where(mask[..., None], x, rng.normal(size=x.shape) * 100)
    np.testing.assert_array_equal(
        call(attention, other.astype("float32"), mask=mask),
        call(attention, x, mask=mask),
    )


@pytest.mark.parametrize("content", [np.nan, np.inf])
def test_not_even_nan_leaves_the_padding(content, x, rng):
    attention = make(rng)
    mask = np.arange(N) < np.array([[6], [4], [1]])
    other = np.where(mask[..., None], x, content).astype("float32")
    np.testing.assert_array_equal(
        call(attention, other, mask=mask), call(attention, x, mask=mask)
    )


def test_an_example_of_nothing_but_padding_is_zero(x, rng):
    result = call(make(rng), x, mask=np.zeros((BATCH, N), bool))
    np.testing.assert_array_equal(result, np.zeros_like(result))


def test_causal_outputs_ignore_every_later_token(x, rng):
    attention = make(rng, causal=True)
    before = call(attention, x)
    for t in range(1, N):
        for _ in range(5):
            other = x.copy()
            other[:, t:] = rng.normal(size=other[:, t:].shape)
            after = call(attention, other)
            np.testing.assert_allclose(
                after[:, :t], before[:, :t], rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize(
    "arguments",
    [{"output_dim": 0}, {"output_dim": 4, "attention_dim": -1}],
)
def test_wrong_widths(arguments):
    with pytest.raises(
        ValueError, match="must be a positive integer. Received"
    ):
        TinyAttention(**arguments)


def test_wrong_rank():
    with pytest.raises(ValueError, match=r"`\(batch, n, channels\)`"):
        TinyAttention(4).build((2, 3))


def test_dropout_drops_whole_weights_and_keeps_their_mean(rng):
    """Values of 1 and weights that sum to 1: outputs are sums of what stays."""
    layer = TinyAttention(output_dim=1, attention_dim=1, dropout_rate=0.5)
    x = np.ones((1, 400, 1), "float32")
    layer.build(x.shape)
    layer.qkv_dense.set_weights([np.array([[0, 0, 1]]), np.zeros(3)])
    layer.output_dense.set_weights([np.ones((1, 1)), np.zeros(1)])
    still = ops.convert_to_numpy(layer(x, training=False))
    np.testing.assert_allclose(still, 1, rtol=1e-5)
    moving = ops.convert_to_numpy(layer(x, training=True))
    # 400 weights of 1/400, each 0 or doubled: a standard deviation of 1/20.
    assert abs(moving.mean() - 1) < 0.02
    assert 0.03 < moving.std() < 0.07
