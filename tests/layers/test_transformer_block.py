import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers.transformer_block import TransformerBlock
from tests import reference
from tests.cases import randomize
from tests.checks import check_config
from tests.layers.test_self_attention import truth as attention_truth

N, D, E, HEADS, BATCH = 6, 8, 12, 2, 3
PLACEMENTS = ["pre", "post"]
MASK = np.arange(N) < np.array([[6], [4], [1]])


@keras.saving.register_keras_serializable(package="mlp_mixers_tests")
class ByToken(keras.layers.Layer):
    """A feed-forward layer that looks at everything a router may look at.

    y = x · w[token_ids]: one vector of factors a token, zero at padding.
    """

    def __init__(self, vocabulary_size=5, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size

    def build(self, x_shape):
        self.factors = self.add_weight(
            name="factors",
            shape=(self.vocabulary_size, x_shape[-1]),
            initializer="glorot_uniform",
        )

    def call(self, x, token_ids=None, mask=None, training=None):
        if token_ids is None:
            token_ids = ops.zeros(ops.shape(x)[:2], "int32")
        y = x * ops.take(self.factors, token_ids, axis=0)
        return y if mask is None else y * ops.cast(mask, y.dtype)[..., None]

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
        }


def make(rng, **arguments):
    block = TransformerBlock(E, HEADS, **arguments)
    block.build((None, N, D))
    return randomize(block, rng)


def call(block, x, **others):
    return ops.convert_to_numpy(block(x, **others))


def array(variable):
    return ops.convert_to_numpy(variable)


def norm(layer, x):
    return reference.layer_norm(
        x, array(layer.gamma), array(layer.beta), epsilon=1e-6
    )


def truth(block, x, feed, allowed=None):
    """The two equations of the docstring."""

    def attention(h):
        return attention_truth(block.attention, h, allowed)

    first, second = block.attention_norm, block.feed_forward_norm
    if block.norm_placement == "pre":
        u = x + attention(norm(first, x))
        return u + feed(norm(second, u))
    u = norm(first, x + attention(x))
    return norm(second, u + feed(u))


def dense(block):
    """F of the docstring."""
    first, second = block.intermediate_dense, block.output_dense
    weights = (first.kernel, first.bias, second.kernel, second.bias)
    return lambda h: reference.mlp(h, *map(array, weights))


@pytest.fixture
def x(rng):
    return rng.normal(size=(BATCH, N, D)).astype("float32")


@pytest.fixture
def token_ids(rng):
    return rng.integers(0, 5, (BATCH, N), "int32")


@pytest.mark.parametrize("norm_placement", PLACEMENTS)
@pytest.mark.parametrize("causal", [False, True])
def test_is_the_formula(norm_placement, causal, x, rng):
    block = make(rng, norm_placement=norm_placement, causal=causal)
    allowed = np.tril(np.ones((N, N), bool)) if causal else None
    np.testing.assert_allclose(
        call(block, x),
        truth(block, x, dense(block), allowed),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("norm_placement", PLACEMENTS)
def test_a_layer_takes_the_place_of_the_feed_forward_part(
    norm_placement, x, token_ids, rng
):
    block = make(rng, norm_placement=norm_placement, feed_forward=ByToken())
    factors = array(block.feed_forward.factors)[token_ids]
    np.testing.assert_allclose(
        call(block, x, token_ids=token_ids),
        truth(block, x, lambda h: h * factors),
        rtol=1e-4,
        atol=1e-4,
    )


def test_blocks_share_no_feed_forward_layer(x):
    pattern = ByToken()
    pattern(x)  # built, which must not matter
    blocks = [TransformerBlock(E, HEADS, feed_forward=pattern) for _ in "ab"]
    for block in blocks:
        block.build((None, N, D))
    layers = [pattern, *(block.feed_forward for block in blocks)]
    assert len({id(layer) for layer in layers}) == 3
    values = [array(layer.factors) for layer in layers]
    for a, b in ((0, 1), (1, 2), (0, 2)):
        assert abs(values[a] - values[b]).max() > 1e-3


def test_a_configuration_is_as_good_as_a_layer(x, rng):
    config = keras.saving.serialize_keras_object(ByToken(7))
    block = make(rng, feed_forward=config)
    check_config(block)
    again = TransformerBlock.from_config(block.get_config())
    again.build((None, N, D))
    again.set_weights(block.get_weights())
    assert again.feed_forward.vocabulary_size == 7
    np.testing.assert_array_equal(call(again, x), call(block, x))


def test_the_layer_takes_the_dtype_of_the_block():
    block = TransformerBlock(
        E, HEADS, feed_forward=ByToken(), dtype="mixed_bfloat16"
    )
    assert block.feed_forward.compute_dtype == "bfloat16"


def test_without_dense_part_no_width_is_needed():
    assert TransformerBlock(None, 1, feed_forward=ByToken())
    with pytest.raises(ValueError, match="`intermediate_dim` must be"):
        TransformerBlock(None, 1)


@pytest.mark.parametrize("norm_placement", PLACEMENTS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("feed_forward", ["dense", "layer"])
def test_padding_is_inert(norm_placement, causal, feed_forward, x, rng):
    block = make(
        rng,
        norm_placement=norm_placement,
        causal=causal,
        feed_forward="dense" if feed_forward == "dense" else ByToken(),
    )
    before = call(block, x, mask=MASK)
    for content in (rng.normal(size=x.shape) * 100, np.nan):
        other = np.where(MASK[..., None], x, content).astype("float32")
        after = call(block, other, mask=MASK)
        np.testing.assert_array_equal(after[MASK], before[MASK])
    # And a padded input is the short input.
    for n in (1, 4):
        mask = np.broadcast_to(np.arange(N) < n, (BATCH, N))
        np.testing.assert_allclose(
            call(block, x, mask=mask)[:, :n],
            call(block, x[:, :n]),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("norm_placement", PLACEMENTS)
def test_nan_in_the_padding_trains_like_zero(norm_placement, x):
    """Forward, and through the gradients of a step, on every weight."""
    trained = []
    for content in (0.0, np.nan):
        keras.utils.set_random_seed(0)
        block = make(np.random.default_rng(1), norm_placement=norm_placement)
        inputs = keras.Input((N, D)), keras.Input((N,), dtype="bool")
        outputs = block(inputs[0], mask=inputs[1])
        # The loss looks at real tokens alone, as a user's would.
        kept = keras.layers.Lambda(
            lambda t: ops.where(t[1][..., None], t[0], 0.0),
            output_shape=(N, D),
        )([outputs, inputs[1]])
        model = keras.Model(inputs, kept)
        model.compile(keras.optimizers.SGD(0.1), loss="mse")
        padded = np.where(MASK[..., None], x, content).astype("float32")
        model.fit((padded, MASK), np.zeros((BATCH, N, D)), verbose=0)
        trained.append(block.get_weights())
    for zero, nan in zip(*trained):
        np.testing.assert_allclose(nan, zero, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm_placement", PLACEMENTS)
@pytest.mark.parametrize("feed_forward", ["dense", "layer"])
def test_causal_outputs_ignore_every_later_token(
    norm_placement, feed_forward, x, token_ids, rng
):
    block = make(
        rng,
        norm_placement=norm_placement,
        causal=True,
        feed_forward="dense" if feed_forward == "dense" else ByToken(),
    )
    before = call(block, x, token_ids=token_ids)
    for t in range(1, N):
        for _ in range(5):
            other, ids = x.copy(), token_ids.copy()
            other[:, t:] = rng.normal(size=other[:, t:].shape)
            ids[:, t:] = rng.integers(0, 5, ids[:, t:].shape)
            after = call(block, other, token_ids=ids)
            np.testing.assert_allclose(
                after[:, :t], before[:, :t], rtol=1e-5, atol=1e-6
            )
            assert abs(after[:, t:] - before[:, t:]).max() > 1e-3


def test_each_branch_is_dropped_on_its_own(x, rng):
    """Four outcomes an example: both, either or none of the branches."""
    block = make(rng, drop_path_rate=0.5)
    feed = dense(block)
    h = attention_truth(block.attention, norm(block.attention_norm, x), None)
    outcomes = []
    for a in (0, 2):
        u = x + a * h
        branch = feed(norm(block.feed_forward_norm, u))
        outcomes += [u + b * branch for b in (0, 2)]
    seen = np.zeros(4)
    for _ in range(20):
        y = call(block, x, training=True)
        for example in range(BATCH):
            near = [
                abs(y[example] - other[example]).max() < 1e-3
                for other in outcomes
            ]
            assert sum(near) == 1
            seen += near
    assert (seen > 5).all()  # of 60, each with probability 1/4


def test_wrong_arguments():
    for arguments, message in (
        ({"intermediate_dim": 0}, "`intermediate_dim` must be a positive"),
        ({"num_heads": 0}, "`num_heads` must be a positive"),
        ({"drop_path_rate": 1.5}, "drop_path_rate=1.5"),
        ({"norm_placement": "both"}, "'pre', 'post'.*norm_placement='both'"),
        ({"feed_forward": "sparse"}, "must be 'dense', a layer.*'sparse'"),
        ({"feed_forward": ByToken}, "must be 'dense', a layer"),
        (
            {
                "feed_forward": keras.saving.serialize_keras_object(
                    keras.optimizers.SGD()
                )
            },
            "must describe a layer",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            TransformerBlock(
                **{"intermediate_dim": E, "num_heads": HEADS, **arguments}
            )


def test_wrong_shapes(x, rng):
    with pytest.raises(ValueError, match="channels=8, num_heads=3"):
        TransformerBlock(E, 3).build((None, N, D))
    with pytest.raises(ValueError, match=r"`\(batch, n, channels\)`"):
        TransformerBlock(E, 1).build((2, 3))
    with pytest.raises(ValueError, match="padding mask of shape"):
        make(rng)(x, mask=np.ones((BATCH, N, 1), bool))


@keras.saving.register_keras_serializable(package="mlp_mixers_tests")
class Narrow(ByToken):
    """Returns one channel, which would spread over all in the sum."""

    def call(self, x, token_ids=None, mask=None, training=None):
        return super().call(x)[..., :1]

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], 1)


def test_a_layer_of_another_shape(x):
    with pytest.raises(ValueError, match="shape of its input.*Narrow"):
        TransformerBlock(E, HEADS, feed_forward=Narrow())(x)
