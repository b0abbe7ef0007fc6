import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import TinyAttention
from mlp_mixers.layers.self_attention import SelfAttention
from tests import reference
from tests.cases import randomize

N, D, BATCH = 6, 8, 3
HEADS, WIDTH, OUTPUT = 3, 12, 5


def make(rng, **arguments):
    sizes = {"num_heads": HEADS, "attention_dim": WIDTH}
    attention = SelfAttention(OUTPUT, **{**sizes, **arguments})
    attention.build((None, N, D))
    return randomize(attention, rng)


def call(attention, x, **others):
    return ops.convert_to_numpy(attention(x, **others))


def matrices(attention):
    """Kernels and biases as arrays."""
    arrays = []
    for layer in (attention.qkv_dense, attention.output_dense):
        arrays.append(ops.convert_to_numpy(layer.kernel))
        arrays.append(
            ops.convert_to_numpy(layer.bias) if layer.use_bias else 0.0
        )
    return arrays


def truth(attention, x, allowed):
    """Head by head, each a tiny attention of its own channels; then W_out."""
    kernel, bias, out_kernel, out_bias = matrices(attention)
    qkv = x @ kernel + bias
    a, h = attention.attention_dim, attention.num_heads
    heads = []
    for i in range(h):
        own = np.arange(i * a // h, (i + 1) * a // h)
        columns = np.concatenate([own, a + own, 2 * a + own])
        heads.append(
            reference.tiny_attention(
                qkv[..., columns],
                np.eye(3 * a // h),
                0.0,
                np.eye(a // h),
                0.0,
                allowed=allowed,
            )
        )
    return np.concatenate(heads, -1) @ out_kernel + out_bias


def keras_attention(attention):
    """Keras's own layer with the same weights."""
    kernel, bias, out_kernel, out_bias = matrices(attention)
    h = attention.num_heads
    width = attention.attention_dim // h
    layer = keras.layers.MultiHeadAttention(
        h, width, output_shape=attention.output_dim
    )
    layer.build((None, N, D), (None, N, D))
    weights = []
    for k, b in zip(np.split(kernel, 3, 1), np.split(bias, 3)):
        weights += [k.reshape(D, h, width), b.reshape(h, width)]
    weights += [out_kernel.reshape(h, width, -1), out_bias]
    layer.set_weights(weights)
    return layer


@pytest.fixture
def x(rng):
    return rng.normal(size=(BATCH, N, D)).astype("float32")


MASK = np.arange(N) < np.array([[6], [4], [1]])
EARLIER = np.tril(np.ones((N, N), bool))


@pytest.mark.parametrize("num_heads", [1, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_is_the_formula(num_heads, causal, masked, x, rng):
    attention = make(
        rng, num_heads=num_heads, causal=causal, use_bias=not masked
    )
    mask = MASK if masked else np.ones((BATCH, N), bool)
    allowed = mask[:, None, :] & (EARLIER if causal else True)
    allowed = np.broadcast_to(allowed, (BATCH, N, N))
    result = call(attention, x, mask=mask if masked else None)
    np.testing.assert_allclose(
        result[mask], truth(attention, x, allowed)[mask], rtol=1e-4, atol=1e-5
    )
    assert not result[~mask].any()


@pytest.mark.parametrize("causal", [False, True])
def test_is_keras_attention(causal, x, rng):
    attention = make(rng, causal=causal)
    peer = keras_attention(attention)
    allowed = np.broadcast_to(MASK[:, None, :], (BATCH, N, N))
    expected = peer(x, x, attention_mask=allowed, use_causal_mask=causal)
    np.testing.assert_allclose(
        call(attention, x, mask=MASK)[MASK],
        ops.convert_to_numpy(expected)[MASK],
        rtol=1e-4,
        atol=1e-5,
    )


def test_one_head_is_the_tiny_attention(x, rng):
    attention = make(rng, num_heads=1, attention_dim=4)
    tiny = TinyAttention(OUTPUT, attention_dim=4)
    tiny.build((None, N, D))
    names = [weight.path.split("/", 1)[1] for weight in attention.weights]
    assert names == [weight.path.split("/", 1)[1] for weight in tiny.weights]
    tiny.set_weights(attention.get_weights())
    np.testing.assert_array_equal(call(tiny, x), call(attention, x))
    assert "num_heads" not in tiny.get_config()


@pytest.mark.parametrize("content", [1e3, np.nan])
def test_padding_is_inert(content, x, rng):
    attention = make(rng)
    other = np.where(MASK[..., None], x, content).astype("float32")
    np.testing.assert_array_equal(
        call(attention, other, mask=MASK), call(attention, x, mask=MASK)
    )


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
            assert abs(after[:, t:] - before[:, t:]).max() > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output_dim": 0}, "`output_dim` must be a positive integer"),
        ({"num_heads": 0}, "`num_heads` must be a positive integer"),
        ({"attention_dim": 7, "num_heads": 2}, "attention_dim=7, num_heads=2"),
        ({"causal": "no"}, "`causal` must be `True` or `False`"),
        ({"dropout_rate": 1.0}, "dropout_rate=1.0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SelfAttention(**{"output_dim": 4, **arguments})


def test_wrong_shapes(x, rng):
    with pytest.raises(ValueError, match=r"`\(batch, n, channels\)`"):
        SelfAttention(4).build((2, 3))
    with pytest.raises(ValueError, match="padding mask of shape"):
        make(rng)(x, mask=np.ones((BATCH, N, 1), bool))
