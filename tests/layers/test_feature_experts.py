"""Feature experts against loops over channels."""

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import SpatialGatingUnit
from mlp_mixers.layers.feature_experts import SparseFeatureExperts
from mlp_mixers.training import RoutingMetrics
from tests.cases import randomize

B, N, C, E = 3, 10, 12, 4  # C channels are projected, 2·C come in
FRACTION, P = 0.3, 3


def make(rng, routing, **arguments):
    arguments = {"sequence_length": N, "prefix_fraction": FRACTION, **arguments}
    layer = SparseFeatureExperts(E, routing, **arguments)
    layer.build((None, None, 2 * C))
    return randomize(layer, rng)


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, N, 2 * C)).astype("float32")


@pytest.fixture
def mask():
    return np.arange(N) < np.array([[10], [7], [2]])  # the last one is short


def call(layer, x, **others):
    return ops.convert_to_numpy(layer(x, **others))


def numpy(weight):
    return ops.convert_to_numpy(weight).astype("float64")


def normalise(layer, z):
    z = z.astype("float64")
    mean, var = z.mean(-1, keepdims=True), z.var(-1, keepdims=True)
    z = (z - mean) / np.sqrt(var + layer.epsilon)
    return z * numpy(layer.norm.gamma) + numpy(layer.norm.beta)


def by_loops(layer, x, mask=None):
    """A channel of an example at a time, as the paper describes it."""
    y = np.zeros((len(x), x.shape[1], C))
    w, b = numpy(layer.spatial_matrix()), numpy(layer.spatial_bias)
    for i in range(len(x)):
        n = x.shape[1] if mask is None else int(mask[i].sum())
        z1, z2 = np.split(x[i, :n].astype("float64"), 2, -1)
        z2 = normalise(layer, z2)
        for c in range(C):
            v = z2[:, c]
            expert, gate = c * E // C, 1.0
            rows = {"leaky": n, "partial": P}.get(layer.routing, 0)
            if rows and n >= rows:
                logits = v[:rows] @ numpy(layer.router_kernel)[:rows]
                p = np.exp(logits - logits.max())
                p /= p.sum()
                expert, gate = p.argmax(), p.max()
            f = gate * (w[expert, :n, :n] @ v + b[expert, :n])
            y[i, :n, c] = z1[:, c] * f
    return y


@pytest.mark.parametrize("toeplitz", [False, True])
@pytest.mark.parametrize("routing", ["deterministic", "partial", "leaky"])
def test_is_the_formula(routing, toeplitz, x, rng):
    layer = make(rng, routing, toeplitz=toeplitz)
    np.testing.assert_allclose(
        call(layer, x), by_loops(layer, x), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("routing", ["deterministic", "partial", "leaky"])
def test_padding_is_inert(routing, x, mask, rng):
    layer = make(rng, routing)
    dirty = np.where(mask[..., None], x, np.nan)
    found = call(layer, dirty, mask=mask)
    np.testing.assert_allclose(
        found, by_loops(layer, x, mask), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("experts", [1, 2, 4])
def test_deterministic_is_the_gating_unit_with_heads(experts, x, rng):
    layer = SparseFeatureExperts(experts, sequence_length=N)
    layer.build((None, N, 2 * C))
    randomize(layer, rng)
    unit = SpatialGatingUnit(N, num_heads=experts, causal=True)
    unit.build((None, N, 2 * C))
    unit.set_weights(layer.get_weights())
    np.testing.assert_array_equal(call(layer, x), call(unit, x))
    assert layer.count_params() == unit.count_params()


def test_chunks_are_of_the_half_that_is_projected():
    """Split, then chunk: the other order is another function."""
    layer = SparseFeatureExperts(2, sequence_length=2)
    layer.build((None, 2, 4))
    layer.norm.gamma.assign([1.0, 1.0])
    layer.spatial_kernel.assign(np.zeros((2, 2, 2)))
    layer.spatial_bias.assign([[1.0, 1.0], [10.0, 10.0]])
    x = np.array([[[1.0, 2.0, 5.0, 7.0], [3.0, 4.0, 6.0, 8.0]]], "float32")
    # Z₁ = the first two channels; its second is of the second expert.
    np.testing.assert_allclose(call(layer, x), [[[1, 20], [3, 40]]])


def test_permuted_chunks_with_permuted_experts(x, rng):
    layer = make(rng, "deterministic")
    order = np.array([2, 0, 3, 1])
    channels = np.arange(C).reshape(E, -1)[order].ravel()
    expected = call(layer, x)[..., channels]
    both = np.concatenate([channels, C + channels])
    for weight in (layer.norm.gamma, layer.norm.beta):
        weight.assign(ops.convert_to_numpy(weight)[channels])
    for weight in (layer.spatial_kernel, layer.spatial_bias):
        weight.assign(ops.convert_to_numpy(weight)[order])
    np.testing.assert_allclose(
        call(layer, x[..., both]), expected, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("routing", ["deterministic", "partial"])
def test_shorter_inputs_are_prefixes(routing, x, rng):
    layer = make(rng, routing)
    whole = call(layer, x)
    for n in (P, N - 3):
        np.testing.assert_allclose(
            call(layer, x[:, :n]), whole[:, :n], rtol=1e-4, atol=1e-5
        )


def test_prompts_shorter_than_the_prefix(x, rng):
    layer = make(rng, "partial")
    assert layer.prefix_length == P
    with pytest.raises(ValueError, match="first 3 tokens.*short_prompt"):
        layer(x[:, : P - 1])
    layer.short_prompt = "deterministic"
    np.testing.assert_allclose(
        call(layer, x[:, : P - 1]),
        by_loops(layer, x[:, : P - 1]),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("toeplitz", [False, True])
@pytest.mark.parametrize("routing", ["deterministic", "partial"])
def test_one_token_at_a_time(routing, toeplitz, x, mask, rng):
    layer = make(rng, routing, toeplitz=toeplitz, short_prompt="deterministic")
    whole = call(layer, x, mask=mask)
    lengths = mask.sum(1)
    starts = np.maximum(lengths - 3, np.minimum(lengths - 1, P))
    # Prompts of several lengths, padded on the right.
    prompt = np.arange(N) < starts[:, None]
    y, cache = layer.prefill(x, mask=prompt)
    np.testing.assert_allclose(
        ops.convert_to_numpy(y)[prompt], whole[prompt], rtol=1e-4, atol=1e-5
    )
    for later in range(3):
        at = np.minimum(starts + later, lengths - 1)
        token = x[np.arange(B), at][:, None]
        y, cache = layer.step(token, cache, at)
        np.testing.assert_allclose(
            ops.convert_to_numpy(y)[:, 0],
            whole[np.arange(B), at],
            rtol=1e-4,
            atol=1e-5,
        )


def test_an_empty_cache(x, rng):
    layer = make(rng, "partial", short_prompt="deterministic")
    cache = layer.make_cache(B, N)
    y, _ = layer.step(x[:, :1], cache, np.zeros(B, "int32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(y), by_loops(layer, x[:, :1]), 1e-4, 1e-5
    )
    with pytest.raises(ValueError, match="short_prompt"):
        make(rng, "partial").make_cache(B, N)
    with pytest.raises(ValueError, match="Leaky routing"):
        make(rng, "leaky").make_cache(B, N)


def balance_by_hand(layer, x, mask, chosen):
    """The loss over the examples that choose a route, and the shares."""
    rows = {"leaky": N, "partial": P}[layer.routing]
    z2 = (normalise(layer, x[..., C:]) * mask[..., None])[chosen, :rows]
    logits = np.einsum("bpc,pe->bce", z2, numpy(layer.router_kernel))
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    f = np.bincount(p.argmax(-1).ravel(), minlength=E) / (len(z2) * C)
    return E * np.sum(f * p.mean((0, 1))), f


@pytest.mark.parametrize("routing", ["partial", "leaky"])
def test_balance_loss_and_metrics(routing, x, rng):
    """Examples that choose no route have no share in them."""
    inputs = keras.Input((N, 2 * C)), keras.Input((N,), dtype="bool")
    layer = SparseFeatureExperts(
        E, routing, FRACTION, balance_loss_weight=5.0, name="features"
    )
    model = keras.Model(inputs, layer(inputs[0], mask=inputs[1]))
    randomize(layer, rng)
    model.compile(keras.optimizers.SGD(0.0), loss="mse")
    y = np.zeros((B, N, C), "float32")
    too_few = P - 1 if routing == "partial" else 0
    for lengths in ([N, N, N], [10, 7, too_few], [too_few] * B):
        mask = np.arange(N) < np.array(lengths)[:, None]
        logs = model.fit(
            (x, mask), y, verbose=0, callbacks=[RoutingMetrics()]
        ).history
        logs = {
            name.removeprefix("features_"): v[0] for name, v in logs.items()
        }
        task = model.evaluate((x, mask), y, verbose=0, return_dict=True)
        chosen = np.array(lengths) > too_few
        balance, shares = 0, np.zeros(E)
        if chosen.any():
            balance, shares = balance_by_hand(layer, x, mask, chosen)
        for name, expected in (
            ("balance_loss", balance),
            ("max_load", E * shares.max()),
            ("loss", task["loss"] + 5 * balance),
        ):
            np.testing.assert_allclose(logs[name], expected, rtol=1e-4)
        if chosen.any():
            assert logs["drop_rate"] == 0


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_the_route_is_in_single_precision(policy, x, rng):
    """Logits that half precision takes for equal are told apart."""
    layer = SparseFeatureExperts(
        E, "partial", FRACTION, sequence_length=N, dtype=policy
    )
    layer.build((None, N, 2 * C))
    assert layer.router_kernel.dtype == "float32"
    kernel = np.ones((P, E))
    kernel[:, 2] += 1e-4
    layer.router_kernel.assign(kernel)
    half = policy.removeprefix("mixed_")
    ids, gates = layer._route(ops.ones((1, N, C), half), None)
    np.testing.assert_array_equal(ops.convert_to_numpy(ids), 2)
    assert keras.backend.standardize_dtype(gates.dtype) == "float32"


@pytest.mark.parametrize("routing", ["deterministic", "partial"])
def test_causal_after_training_and_from_a_file(routing, x, rng, tmp_path):
    """Five steps with weight decay; what W holds above is not looked at."""
    inputs = keras.Input((N, 2 * C))
    layer = SparseFeatureExperts(E, routing, FRACTION)
    model = keras.Model(inputs, layer(inputs))
    randomize(layer, rng)
    model.compile(keras.optimizers.AdamW(0.1, weight_decay=0.5), loss="mse")
    target = rng.normal(size=(B, N, C))
    model.fit(x, target, epochs=5, batch_size=B, verbose=0)
    model.save(tmp_path / "features.keras")
    again = keras.saving.load_model(tmp_path / "features.keras")
    before = call(again, x)
    np.testing.assert_allclose(before, call(model, x), rtol=1e-6)
    for t in range(P, N):
        other = x.copy()
        other[:, t:] = rng.normal(size=other[:, t:].shape)
        after = call(again, other)
        np.testing.assert_allclose(after[:, :t], before[:, :t], 1e-5, 1e-6)
        # And a token does see itself, by W too: half of it stays.
        other = x.copy()
        other[:, t, C:] = rng.normal(size=(B, C))
        assert (call(again, other)[:, t] != before[:, t]).any()


@pytest.mark.parametrize(
    ("channels", "experts", "take", "widths"),
    [
        (32, 5, "4 or 8", "60 or 70"),  # 6 or 7 channels for each of 5
        (6, 4, "3 or 6", "8 or 16"),
        (3, 7, "3", "14"),  # no expert without a channel
    ],
)
def test_what_would_divide(channels, experts, take, widths):
    message = (
        f"`num_experts={take}`, or `intermediate_dim={widths}`.*"
        f"intermediate_dim={2 * channels}$"
    )
    with pytest.raises(ValueError, match=message):
        SparseFeatureExperts(experts).build((None, N, 2 * channels))
    for number in map(int, take.split(" or ")):
        SparseFeatureExperts(number).build((None, N, 2 * channels))
    for width in map(int, widths.split(" or ")):
        SparseFeatureExperts(experts).build((None, N, width))


def test_arguments():
    for name, value in [
        ("routing", "random"),
        ("short_prompt", "pad"),
        ("prefix_fraction", 0.0),
        ("prefix_fraction", 1.0),
        ("balance_loss_weight", -1.0),
    ]:
        with pytest.raises(ValueError, match=name):
            SparseFeatureExperts(E, **{name: value})
    with pytest.raises(ValueError, match="channels=6, num_experts=4"):
        SparseFeatureExperts(4).build((None, N, 12))
    with pytest.raises(ValueError, match="a token that chooses"):
        SparseFeatureExperts(4, "partial", 0.05).build((None, N, 16))
    # Learned routes need no equal chunks.
    SparseFeatureExperts(4, "leaky").build((None, N, 12))
    for fraction, length, expected in [
        (0.2, 1024, 204),
        (0.7, 10, 7),
        (0.29, 100, 29),
    ]:
        layer = SparseFeatureExperts(1, "partial", fraction)
        layer.build((None, length, 2))
        assert layer.prefix_length == expected
