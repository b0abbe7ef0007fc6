"""The checker on models that are known to be honest, or not."""

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.analysis.causality import leaks_future
from mlp_mixers.models.smlp_text import SMLPBackbone
from mlp_mixers.models.smlp_text import SMLPCausalLM

V, N = 12, 10


def model_of(layer):
    tokens = keras.Input((N,), dtype="int32")
    embedding = keras.layers.Embedding(V, 6)
    outputs = keras.layers.Dense(V)(layer(embedding(tokens)))
    # The same on every backend, and no sign more frequent than the other.
    values = np.random.default_rng(0).normal(size=(V, 6))
    embedding.embeddings.assign(values - values.mean(0))
    return keras.Model(tokens, outputs)


class Function(keras.layers.Layer):
    """A function of (b, n, d) as a layer."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, x):
        return self.function(x)


def running_mean(x):
    count = ops.cast(ops.arange(1, N + 1), x.dtype)[:, None]
    return ops.cumsum(x, axis=1) / count


def with_hard_route(x):
    """A sign that all tokens vote for; no gradient, and hardly any slope."""
    vote = ops.sign(ops.sum(x, axis=(1, 2), keepdims=True))
    return running_mean(x) * ops.stop_gradient(vote)


def scaled_over_time(x):
    return running_mean(x) / ops.sqrt(
        ops.mean(ops.square(x), axis=1, keepdims=True)
    )


HONEST = {
    "running mean": lambda: Function(running_mean),
    "causal convolution": lambda: keras.layers.Conv1D(6, 3, padding="causal"),
    "recurrent": lambda: keras.layers.SimpleRNN(6, return_sequences=True),
    "dropout": lambda: keras.Sequential(
        [Function(running_mean), keras.layers.Dropout(0.5, seed=1)]
    ),
}
CHEATS = {
    "convolution": lambda: keras.layers.Conv1D(6, 3, padding="same"),
    "hard route": lambda: Function(with_hard_route),
    "scaled over time": lambda: Function(scaled_over_time),
    "one step late": lambda: Function(lambda x: ops.roll(x, -1, axis=1)),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_models_pass(name):
    model = model_of(HONEST[name]())
    before = model.get_weights()
    for training in (False, True):
        report = leaks_future(
            model,
            training,
            trials=16,
            vocabulary_size=V,
            sequence_length=N,
            random_weights=True,
        )
        assert not report, report
        assert report.leaking == 0
        assert report.mixes
        assert report.conclusive
        assert str(report).startswith("causal")
    for one, two in zip(before, model.get_weights()):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_are_caught(name):
    model = model_of(CHEATS[name]())
    report = leaks_future(
        model, trials=16, vocabulary_size=V, sequence_length=N
    )
    assert report
    assert report.conclusive
    position, cut = report.where
    assert position < cut
    assert report.worst > 1e-4
    assert str(report).startswith("leaks")


def test_one_token_alone_hardly_moves_a_hard_route():
    """Why the whole suffix is resampled."""
    model = model_of(Function(with_hard_route))
    rng = np.random.default_rng(0)
    caught = 0
    for _ in range(40):
        tokens = rng.integers(0, V, (1, N))
        other = tokens.copy()
        other[:, -1] = (other[:, -1] + 1) % V
        one, two = (
            ops.convert_to_numpy(model(t))[:, :-1] for t in (tokens, other)
        )
        caught += np.abs(one - two).max() > 1e-4
    report = leaks_future(
        model, trials=40, vocabulary_size=V, sequence_length=N
    )
    assert report.leaking > caught


def test_a_model_that_mixes_nothing_is_told():
    model = model_of(keras.layers.Dense(6))
    with pytest.warns(UserWarning, match="random_weights"):
        report = leaks_future(
            model, trials=2, vocabulary_size=V, sequence_length=N
        )
    assert not report
    assert not report.mixes
    assert not report.conclusive
    assert str(report).startswith("not known: 0 of 2")


@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_influence_below_rounding_is_none(scale):
    """By the measure of earlier outputs. The input's length is the model's."""
    model = model_of(Function(lambda x: x + scale * running_mean(x)))
    if scale < 1:
        with pytest.warns(UserWarning, match="no token has any influence"):
            report = leaks_future(model, trials=2, vocabulary_size=V)
    else:
        report = leaks_future(model, trials=2, vocabulary_size=V)
    assert not report
    assert report.mixes == report.conclusive == (scale == 1)


class HiddenCheat(keras.layers.Layer):
    """Looks at the next token, through a matrix that starts at zero."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(
            6, kernel_initializer="zeros", name="hides"
        )

    def call(self, x):
        return running_mean(x) + self.dense(ops.roll(x, -1, axis=1))


def test_what_a_matrix_of_zeros_hides():
    model = model_of(HiddenCheat())
    with pytest.warns(UserWarning, match="nothing passes .*hides/kernel"):
        report = leaks_future(model, trials=2, vocabulary_size=V)
    assert not report
    assert report.mixes
    assert not report.conclusive
    assert [path.split("/")[-2:] for path in report.asleep] == [
        ["hides", "kernel"]
    ]
    report = leaks_future(
        model, trials=2, vocabulary_size=V, random_weights=True
    )
    assert report
    assert report.conclusive
    assert report.asleep == ()
    assert not model.get_layer(index=2).dense.kernel.numpy().any()


def causal_lm(**arguments):
    arguments = {
        "num_dense_blocks": 1,
        "num_sparse_blocks": 1,
        "num_experts": 3,
        **arguments,
    }
    return SMLPCausalLM(
        SMLPBackbone(V, N, hidden_dim=12, intermediate_dim=24, **arguments)
    )


ROUTERS = ("base", "switch", "top_two", "hash")


@pytest.mark.parametrize("mixing", ["spatial", "attention"])
@pytest.mark.parametrize("router", ROUTERS)
def test_in_inference_every_router_is_causal(router, mixing):
    model = causal_lm(router=router, mixing=mixing)
    assert model.backbone.router.causal_in_inference
    report = leaks_future(model, trials=24, random_weights=True)
    assert not report, report
    assert report.mixes


@pytest.mark.parametrize("router", ROUTERS)
def test_in_training_routers_are_what_they_declare(router):
    """With few places, so that they are short."""
    model = causal_lm(router=router, capacity_factor=0.7)
    if router == "base":  # fresh experts give nothing back
        with pytest.warns(UserWarning, match="random_weights=True"):
            fresh = leaks_future(model, True, trials=2)
        assert not fresh.conclusive
        assert any("token_experts" in path for path in fresh.asleep)
        assert str(fresh).startswith("not known")
    report = leaks_future(model, True, trials=48, random_weights=True)
    assert report.conclusive
    declared = model.backbone.router.causal_in_training
    assert bool(report) == (not declared), report


@pytest.mark.parametrize(
    "routing, leaks", [("deterministic", False), ("leaky", True)]
)
def test_routings(routing, leaks):
    model = causal_lm(routing=routing, router="hash")
    report = leaks_future(model, trials=24, random_weights=True)
    assert bool(report) == leaks, report
    if leaks:
        assert report.leaking > 20


def test_partial_routing_knows_its_prefix_and_nothing_else():
    model = causal_lm(routing="partial", prefix_fraction=0.4, router="hash")
    assert model.first_predicted == 3
    # The first tokens choose the route, and their outputs know them all:
    # these outputs are not asked for.
    honest = leaks_future(model, trials=48, random_weights=True)
    assert not honest
    assert honest.mixes
    report = leaks_future(
        model, trials=48, random_weights=True, first_position=0
    )
    assert report
    position, cut = report.where
    assert position < model.first_predicted
    assert cut < 4


def test_which_outputs_of_partial_routing_know_too_much():
    """P = 4 tokens choose: outputs 0, 1, 2 know some that follow; 3 does not.

    Output 3 predicts token 4, which has no vote.
    """
    model = causal_lm(routing="partial", prefix_fraction=0.4, router="hash")
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(weight + 0.3 * rng.normal(size=weight.shape))
    # One batch: in row t the tokens from t + 1 on are others.
    tokens = np.repeat(rng.integers(0, V, (20, 1, N)), N, axis=1)
    for t in range(N - 1):
        tokens[:, t, t + 1 :] = rng.integers(0, V, (20, N - t - 1))
    rows = tokens.reshape(-1, N).astype("int32")
    inputs = {"token_ids": rows, "padding_mask": np.ones_like(rows)}
    outputs = model.predict(inputs, batch_size=len(rows), verbose=0)
    outputs = outputs.reshape(20, N, N, V)
    unchanged = outputs[:, -1:]  # the last row has the tokens themselves
    change = np.abs(outputs - unchanged).max(-1)  # (20, row, output)
    own = change[:, np.arange(N), np.arange(N)].max(0)  # of output t in row t
    np.testing.assert_array_equal(own > 1e-4, np.arange(N) < 3)


@pytest.mark.slow
def test_below_the_floor_only_by_cheating():
    floors = {}
    for routing in ("deterministic", "partial", "leaky"):
        model = causal_lm(
            routing=routing,
            router="hash",
            prefix_fraction=0.4,
            num_dense_blocks=1,
        )
        report = leaks_future(
            model,
            trials=1,
            random_weights=True,
            training_steps=1500,
            num_tokens=4,
            learning_rate=1e-2,
        )
        np.testing.assert_allclose(report.floor, np.log(4))
        floors[routing] = report.loss
        assert report.below_floor == (routing == "leaky"), report
    assert floors["deterministic"] > 1.36
    assert floors["partial"] > 1.36


def test_sizes_that_are_not_known():
    model = model_of(Function(running_mean))
    with pytest.raises(ValueError, match="`vocabulary_size`: pass it"):
        leaks_future(model)
    tokens = keras.Input((None,), dtype="int32", name="token_ids")
    for inputs in (tokens, {"token_ids": tokens}):
        open_ended = keras.Model(inputs, keras.layers.Embedding(V, 6)(tokens))
        with pytest.raises(ValueError, match="`sequence_length`: pass it"):
            leaks_future(open_ended, vocabulary_size=V)
    with pytest.raises(ValueError, match="two tokens"):
        leaks_future(model, vocabulary_size=1, sequence_length=N)
    with pytest.raises(ValueError, match="has a future"):
        leaks_future(
            model, vocabulary_size=V, sequence_length=N, first_position=N - 1
        )
    pooled = keras.Model(
        model.input, keras.layers.GlobalAveragePooling1D()(model.output)
    )
    with pytest.raises(ValueError, match="there are no earlier ones"):
        leaks_future(pooled, vocabulary_size=V, sequence_length=N)
