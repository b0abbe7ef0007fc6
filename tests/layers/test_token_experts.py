"""Token experts against loops over tokens."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers.hash_router import HashRouter
from mlp_mixers.layers.router import Router
from mlp_mixers.layers.router import Routing
from mlp_mixers.layers.switch_router import SwitchRouter
from mlp_mixers.layers.token_experts import SparseTokenExperts
from mlp_mixers.layers.top_two_router import TopTwoRouter
from mlp_mixers.ops.compiled import compiled
from mlp_mixers.training import RoutingMetrics
from tests.cases import randomize

B, N, D, F, E, V = 3, 10, 6, 8, 4, 20
ROUTERS = ["base", "switch", "top_two", "hash"]


def pattern(router):
    return HashRouter(vocabulary_size=V) if router == "hash" else router


def make(rng, router="switch", **arguments):
    arguments = {"num_experts": E, "intermediate_dim": F, **arguments}
    layer = SparseTokenExperts(router=pattern(router), **arguments)
    layer.build((None, None, D))
    table = getattr(layer.router, "table", None)
    kept = None if table is None else ops.convert_to_numpy(table)
    randomize(layer, rng)
    if table is not None:
        table.assign(kept)
    return layer


@pytest.fixture
def x(rng):
    return rng.normal(size=(B, N, D)).astype("float32")


@pytest.fixture
def tokens(rng):
    return rng.integers(0, V, (B, N)).astype("int32")


@pytest.fixture
def mask():
    return np.arange(N) < np.array([[10], [7], [1]])


def call(layer, x, **others):
    return ops.convert_to_numpy(layer(x, **others))


def at_once(layer, x, training=False, **others):
    """The call as one program.

    For shapes that come once: on JAX, every operation of a loose call is
    compiled by itself.
    """
    names = tuple(others)

    def run(x, *values):
        return layer(x, training=training, **dict(zip(names, values)))

    values = map(ops.convert_to_tensor, (x, *others.values()))
    y = compiled(run, layer.variables)(*values)
    return ops.convert_to_numpy(ops.cast(y, "float32"))


def expert(layer, e, x):
    """E_e(x) of one token, in float64."""
    w1, b1, w2, b2 = (
        ops.convert_to_numpy(w)[e].astype("float64")
        for w in (
            layer.intermediate_kernel,
            layer.intermediate_bias,
            layer.output_kernel,
            layer.output_bias,
        )
    )
    h = x.astype("float64") @ w1 + b1
    h = h * (1 + np.vectorize(math.erf)(h / np.sqrt(2))) / 2
    return h @ w2 + b2


def by_loops(layer, x, tokens, mask, training, capacity=None, group="sequence"):
    """The sum over choices, places in a queue, one token after another."""
    routing = layer.router(x, token_ids=tokens, mask=mask, training=training)
    ids, gates = (ops.convert_to_numpy(part) for part in routing[:2])
    y = np.zeros(x.shape)
    queues = {}
    for choice in range(ids.shape[-1]):
        for b in range(len(x)):
            for t in range(x.shape[1]):
                e = ids[b, t, choice]
                if e == layer.num_experts or not mask[b, t]:
                    continue
                key = e, b if group == "sequence" else 0
                queues[key] = queues.get(key, 0) + 1
                if capacity is None or queues[key] <= capacity:
                    gate = gates[b, t, choice]
                    y[b, t] += gate * expert(layer, e, x[b, t])
    return y


@pytest.mark.parametrize("router", ROUTERS)
def test_inference_is_the_formula_and_drops_nothing(
    router, x, tokens, mask, rng
):
    layer = make(rng, router, capacity_factor=0.1)
    found = call(layer, x, token_ids=tokens, mask=mask)
    expected = by_loops(layer, x, tokens, mask, False)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert (found[~mask] == 0).all()


@pytest.mark.parametrize("group", ["sequence", "batch"])
@pytest.mark.parametrize("cls", [SwitchRouter, TopTwoRouter, HashRouter])
def test_training_drops_who_comes_too_late(cls, group, x, tokens, mask, rng):
    arguments = {"group": group}
    if cls is TopTwoRouter:
        arguments["second_choice"] = "all"
    if cls is HashRouter:
        arguments["vocabulary_size"] = V
    layer = make(rng, cls(**arguments), capacity_factor=0.5)
    choices = layer.router.num_choices
    items = N * (B if group == "batch" else 1) * choices
    capacity = math.ceil(0.5 * items / E)
    # With padding before real tokens too: it takes no place.
    for real in (mask, mask[:, ::-1]):
        found = call(layer, x, token_ids=tokens, mask=real, training=True)
        expected = by_loops(layer, x, tokens, real, True, capacity, group)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        everything = by_loops(layer, x, tokens, real, True)
        assert not np.allclose(everything, expected)  # something was dropped


@pytest.mark.parametrize("masked", [False, True])
def test_base_drops_nothing_in_training(masked, x, mask, rng):
    layer = make(rng, "base")
    mask = mask if masked else np.ones_like(mask)
    found = call(layer, x, mask=mask, training=True)
    expected = by_loops(layer, x, None, mask, True)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [None, 100.0])
def test_with_places_for_all_training_is_inference(factor, x, rng):
    layer = make(rng, "switch", capacity_factor=factor)
    np.testing.assert_allclose(
        call(layer, x, training=True), call(layer, x), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("router", ROUTERS)
def test_a_row_is_the_same_alone_and_twice(router, x, tokens, rng):
    layer = make(rng, router)
    whole = call(layer, x, token_ids=tokens)
    again = call(layer, x, token_ids=tokens)
    np.testing.assert_array_equal(whole, again)
    alone = at_once(layer, x[1:2], token_ids=tokens[1:2])
    np.testing.assert_allclose(whole[1:2], alone, rtol=1e-5, atol=1e-6)


def test_a_token_is_the_same_alone(x, rng):
    layer = make(rng, "top_two")
    one = at_once(layer, x[:1, :1])
    np.testing.assert_allclose(call(layer, x)[:1, :1], one, 1e-5, 1e-6)


def test_sequences_share_no_places(x, rng):
    """In training, unless their group is the batch."""
    layer = make(rng, "switch", capacity_factor=0.5)
    whole = call(layer, x, training=True)
    other = x.copy()
    other[0] = rng.normal(size=(N, D))
    again = call(layer, other, training=True)
    np.testing.assert_array_equal(whole[1:], again[1:])
    alone = at_once(layer, x[1:2], training=True)
    np.testing.assert_allclose(whole[1:2], alone, rtol=1e-5, atol=1e-6)
    shared = make(rng, SwitchRouter(group="batch"), capacity_factor=0.5)
    whole = call(shared, x, training=True)
    # Whoever comes first leaves more, or fewer, places to the others.
    other[0] = x[0, :1]
    again = call(shared, other, training=True)
    assert (whole[1:] != again[1:]).any()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("router", ROUTERS)
def test_padding_is_inert_and_takes_no_place(
    router, training, x, tokens, mask, rng
):
    if training and router == "top_two":
        router = TopTwoRouter(second_choice="all")
    layer = make(rng, router, capacity_factor=1.0)
    changed = x.copy()
    changed[~mask] = np.nan
    # Padding before real tokens too: places are taken in order.
    for other in (mask, mask[:, ::-1]):
        clean = np.where(other[..., None], x, 0)
        dirty = np.where(other[..., None], x, np.nan)
        arguments = {"token_ids": tokens, "training": training}
        one = call(layer, clean, mask=other, **arguments)
        two = call(layer, dirty, mask=other, **arguments)
        np.testing.assert_array_equal(one, two)
        assert np.isfinite(one).all()


@pytest.mark.parametrize(
    "policy, n, later",
    [
        ("mixed_bfloat16", 600, (0, 255, 256, 257, 599)),
        ("mixed_float16", 2100, (0, 2047, 2048, 2049, 2099)),
    ],
)
def test_all_tokens_to_one_expert_in_half_precision(policy, n, later, rng):
    """Places are integers: sums of ones stop at 256, or at 2048."""
    layer = SparseTokenExperts(
        2, F, "switch", capacity_factor=2.0, dtype=policy
    )
    layer.build((None, None, D))
    randomize(layer, rng)
    layer.router.kernel.assign(np.array([[9.0, -9.0]] * D))
    x = np.abs(rng.normal(size=(1, n, D))).astype("float32") + 1
    y = at_once(layer, x, training=True)
    for i in later:
        np.testing.assert_allclose(
            y[0, i], expert(layer, 0, x[0, i]), rtol=0.05, atol=0.05
        )
    # Here, tokens do differ.
    assert np.ptp(y[0, list(later)], axis=0).max() > 0.2


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("router", ["base", "switch", "top_two"])
def test_routes_are_in_single_precision(router, policy):
    """Logits that half precision takes for equal are told apart."""
    layer = SparseTokenExperts(E, F, router, dtype=policy)
    layer.build((None, None, D))
    # 6 · 1.0001 and 6: bfloat16 has steps of 1/32 there, float16 of 1/256.
    kernel = np.ones((D, E))
    kernel[:, 2] += 1e-4
    layer.router.kernel.assign(kernel)
    x = np.ones((1, 2, D), "float32")
    ids = ops.convert_to_numpy(layer.route(x))
    np.testing.assert_array_equal(ids[..., 0], 2)
    routing = layer.router(x)
    assert keras.backend.standardize_dtype(routing.gates.dtype) == "float32"
    assert layer.router.kernel.dtype == "float32"
    for loss in routing.losses.values():
        assert keras.backend.standardize_dtype(loss.dtype) == "float32"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("router", ["base", "switch", "top_two"])
def test_a_token_that_is_not_a_number_harms_no_other(router, training, x, rng):
    layer = make(rng, router, capacity_factor=None)
    x[1, 4] = np.nan
    y = call(layer, x, training=training)
    harmed = np.isnan(y).any(-1)
    np.testing.assert_array_equal(np.argwhere(harmed), [[1, 4]])


def test_a_frozen_layer_routes_as_it_is_told(x, rng):
    """By `training`, not by whether it learns."""
    layer = make(rng, "base")
    expected = [call(layer, x, training=t) for t in (False, True)]
    assert (expected[0] != expected[1]).any()
    layer.trainable = False
    for training, y in zip((False, True), expected):
        np.testing.assert_array_equal(call(layer, x, training=training), y)


def test_base_starts_as_the_identity_and_learns_its_experts_first(x):
    inputs = keras.Input((N, D))
    layer = SparseTokenExperts(E, F, "base")
    model = keras.Model(inputs, inputs + layer(inputs))
    np.testing.assert_array_equal(model.predict(x, verbose=0), x)
    before = ops.convert_to_numpy(layer.router.kernel)
    model.compile(keras.optimizers.SGD(0.5), loss="mse")
    y = np.ones_like(x)
    model.train_on_batch(x, y)
    after_one = ops.convert_to_numpy(layer.router.kernel)
    np.testing.assert_array_equal(before, after_one)
    model.train_on_batch(x, y)
    assert (ops.convert_to_numpy(layer.router.kernel) != after_one).any()


def test_the_gate_is_applied_once(x, rng):
    """Linear experts without bias, and gates that are all 1/E."""
    layer = make(rng, "switch", activation="linear")
    layer.intermediate_bias.assign(np.zeros((E, F)))
    layer.output_bias.assign(np.zeros((E, D)))
    layer.router.kernel.assign(np.zeros((D, E)))
    first, last = layer.intermediate_kernel, layer.output_kernel
    network = ops.convert_to_numpy(first)[0] @ ops.convert_to_numpy(last)[0]
    one, two = call(layer, x), call(layer, 2 * x)
    np.testing.assert_allclose(one, x @ network / E, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(two, 2 * one, rtol=1e-5, atol=1e-6)


@keras.saving.register_keras_serializable(package="tests")
class AllExperts(keras.layers.Layer):
    """Every expert for every token, times gates that are mostly zero."""

    def __init__(self, sparse, **kwargs):
        super().__init__(**kwargs)
        self.sparse = sparse

    def build(self, x_shape):
        if not self.sparse.built:
            self.sparse.build(x_shape)

    def call(self, x):
        layer = self.sparse
        ids, gates, _ = layer.router(x)
        w1, b1, w2, b2 = map(
            ops.convert_to_tensor,
            (
                layer.intermediate_kernel,
                layer.intermediate_bias,
                layer.output_kernel,
                layer.output_bias,
            ),
        )
        h = layer.activation(ops.einsum("bnd,edf->bnef", x, w1) + b1)
        y = ops.einsum("bnef,efd->bned", h, w2) + b2
        chosen = ids[..., None] == ops.arange(E, dtype="int32")
        weights = ops.sum(ops.where(chosen, gates[..., None], 0.0), axis=2)
        return ops.einsum("bned,bne->bnd", y, weights)


def test_with_places_for_all_it_learns_like_all_experts(x, rng):
    """Values of the weights after a step, so gradients; in both ways."""
    router = TopTwoRouter(second_choice="all", balance_loss_weight=0)
    start = make(rng, router).get_weights()
    target = rng.normal(size=x.shape).astype("float32")
    results = []
    for factor in (100.0, None, "all experts"):
        dense = factor == "all experts"
        layer = SparseTokenExperts(
            E, F, router, capacity_factor=None if dense else factor
        )
        layer.build((None, None, D))
        layer.set_weights(start)
        first = [ops.convert_to_numpy(w) for w in layer.trainable_weights]
        inputs = keras.Input((N, D))
        outputs = AllExperts(layer)(inputs) if dense else layer(inputs)
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.SGD(0.5), loss="mse")
        model.train_on_batch(x, target)
        results.append(
            [ops.convert_to_numpy(w) for w in layer.trainable_weights]
        )
    for places, blocks, expected, before in zip(*results, first):
        np.testing.assert_allclose(places, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(blocks, expected, rtol=1e-4, atol=1e-6)
        assert (expected != before).any()


def gradients_of_losses(kernel, x, real):
    """Both losses of a router, and their derivatives by its kernel."""
    x = x[real].astype("float64")  # (t, d), real tokens only
    logits = x @ kernel.astype("float64")
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    f = np.bincount(p.argmax(-1), minlength=E) / len(p)
    balance = E * np.sum(f * p.mean(0))
    by_logits = E / len(p) * p * (f - (p * f).sum(-1, keepdims=True))
    lse = np.log(np.exp(logits).sum(-1, keepdims=True))
    z = np.mean(lse**2)
    return balance, x.T @ by_logits, z, x.T @ (2 * lse * p / len(p))


def test_losses_are_of_each_layer_and_of_real_tokens(x, mask, rng):
    """Two layers, nothing else to learn: each kernel takes its own step."""
    inputs = keras.Input((N, D)), keras.Input((N,), dtype="bool")
    router = SwitchRouter(balance_loss_weight=3.0, z_loss_weight=0.5)
    layers = [SparseTokenExperts(E, F, router, name=name) for name in "ab"]
    y = sum(layer(inputs[0], mask=inputs[1]) for layer in layers)
    model = keras.Model(inputs, y)
    randomize(model, rng)
    kernels = [ops.convert_to_numpy(la.router.kernel) for la in layers]
    experts = ops.convert_to_numpy(layers[0].output_kernel)
    model.compile(
        keras.optimizers.SGD(0.1), loss=lambda _, y: 0 * ops.mean(y, -1)
    )
    x = np.where(mask[..., None], x, 100).astype("float32")
    logs = model.fit(
        (x, mask), np.zeros_like(x), verbose=0, callbacks=[RoutingMetrics()]
    ).history
    total = 0
    for layer, kernel in zip(layers, kernels):
        balance, by_balance, z, by_z = gradients_of_losses(kernel, x, mask)
        np.testing.assert_allclose(
            ops.convert_to_numpy(layer.router.kernel),
            kernel - 0.1 * (3 * by_balance + 0.5 * by_z),
            rtol=1e-4,
            atol=1e-5,
        )
        name = layer.name
        np.testing.assert_allclose(logs[f"{name}_balance_loss"], balance, 1e-4)
        np.testing.assert_allclose(logs[f"{name}_z_loss"], z, 1e-4)
        total += 3 * balance + 0.5 * z
    np.testing.assert_allclose(logs["loss"], total, rtol=1e-4)
    np.testing.assert_array_equal(
        experts, ops.convert_to_numpy(layers[0].output_kernel)
    )


def test_training_draws_anew_and_inference_not_at_all(x, rng):
    """In `fit` too, where JAX would lose the state of the draws."""
    inputs = keras.Input((N, D))
    layer = SparseTokenExperts(E, F, TopTwoRouter(jitter=0.1, seed=1))
    model = keras.Model(inputs, layer(inputs))
    model.compile(keras.optimizers.SGD(0.0), loss="mse")

    def state():
        return ops.convert_to_numpy(layer.router.seed_generator.state).tolist()

    states = [state()]
    for _ in range(2):
        model.train_on_batch(x, np.zeros_like(x))
        states.append(state())
    assert len({str(s) for s in states}) == 3
    one, two = (model.predict(x, verbose=0) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert state() == states[-1]


def test_copies_of_one_network_are_that_network(x, rng):
    layer = make(rng, "top_two")
    for weight in layer.trainable_variables:
        if weight is not layer.router.kernel:
            value = ops.convert_to_numpy(weight)
            weight.assign(np.broadcast_to(value[:1], value.shape))
    expected = np.array([[expert(layer, 0, t) for t in row] for row in x])
    np.testing.assert_allclose(call(layer, x), expected, rtol=1e-4, atol=1e-5)


def test_losses_and_metrics_are_of_training(x, rng):
    inputs = keras.Input((N, D))
    layer = SparseTokenExperts(
        E,
        F,
        SwitchRouter(balance_loss_weight=3.0, z_loss_weight=0.5),
        capacity_factor=0.5,
        name="experts",
    )
    model = keras.Model(inputs, layer(inputs))
    model.compile(keras.optimizers.SGD(0.0), loss="mse")
    y = np.zeros_like(x)
    logs = model.fit(
        x, y, batch_size=B, verbose=0, callbacks=[RoutingMetrics()]
    ).history
    routing = layer.router(x, training=True)
    balance, z = (float(v) for v in routing.losses.values())
    task = model.evaluate(x, y, verbose=0, return_dict=True)["loss"]
    trained = np.mean(call(layer, x, training=True) ** 2)
    np.testing.assert_allclose(
        logs["loss"][0], trained + 3 * balance + 0.5 * z, rtol=1e-4
    )
    np.testing.assert_allclose(task, np.mean(call(layer, x) ** 2), rtol=1e-4)
    np.testing.assert_allclose(
        logs["experts_balance_loss"][0], balance, rtol=1e-4
    )
    loads = np.bincount(
        ops.convert_to_numpy(routing.expert_ids).ravel(), minlength=E
    )
    share = loads / loads.sum()
    entropy = -np.sum(share * np.log(np.maximum(share, 1e-9))) / np.log(E)
    np.testing.assert_allclose(
        logs["experts_load_entropy"][0], entropy, rtol=1e-4
    )
    np.testing.assert_allclose(
        logs["experts_max_load"][0], E * share.max(), rtol=1e-4
    )
    ids = ops.convert_to_numpy(routing.expert_ids)[..., 0]
    places = math.ceil(0.5 * N / E)
    late = sum(
        max(0, np.sum(row == e) - places) for row in ids for e in range(E)
    )
    np.testing.assert_allclose(
        logs["experts_drop_rate"][0], late / ids.size, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("router", ROUTERS)
def test_every_expert_in_use_learns_and_an_idle_one_stays(router, x, tokens):
    inputs = keras.Input((N, D)), keras.Input((N,), dtype="int32")
    layer = SparseTokenExperts(E, F, pattern(router))
    outputs = layer(inputs[0], token_ids=inputs[1])
    model = keras.Model(inputs, outputs)
    layer.output_kernel.assign(np.full((E, F, D), 0.1))
    model.compile(keras.optimizers.SGD(0.1), loss="mse")
    # Two copies of one token: at most two experts are asked.
    x = np.broadcast_to(x[:1, :1], x.shape).copy()
    tokens = np.broadcast_to(tokens[:1, :1], tokens.shape).copy()
    before = ops.convert_to_numpy(layer.output_kernel)
    model.train_on_batch([x, tokens], np.ones_like(x))
    after = ops.convert_to_numpy(layer.output_kernel)
    assert np.isfinite(after).all()
    moved = (before != after).any(axis=(1, 2)).sum()
    assert moved == {"base": E, "switch": 1, "hash": 1}.get(router, moved)
    assert moved >= 1


@pytest.mark.parametrize("tokens_in_all", [1, 3])
def test_fewer_tokens_than_experts(tokens_in_all, rng):
    layer = make(rng, "switch", num_experts=E)
    x = rng.normal(size=(1, tokens_in_all, D)).astype("float32")
    mask = np.ones((1, tokens_in_all), bool)
    for training in (False, True):
        found = at_once(layer, x, training)
        expected = by_loops(layer, x, None, mask, training, training or None)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_experts_start_like_networks_of_their_own():
    layer = SparseTokenExperts(8, 64, "switch")
    layer.build((None, None, 32))
    kernel = ops.convert_to_numpy(layer.intermediate_kernel)
    deviation = np.sqrt(2 / (32 + 64))  # Glorot's
    np.testing.assert_allclose(kernel.std(axis=(1, 2)), deviation, rtol=0.1)
    assert abs(np.corrcoef(kernel.reshape(8, -1))[0, 1:]).max() < 0.2
    trained = sum(math.prod(w.shape) for w in layer.trainable_weights)
    assert trained == 8 * (2 * 32 * 64 + 64 + 32) + 32 * 8


class ThreeChoices(Router):
    """Expert t and the two after it, for token t, in int64 where it exists."""

    num_choices = 3

    def call(self, x, token_ids=None, mask=None, training=False):
        first = ops.arange(ops.shape(x)[1])[:, None]
        ids = (first + ops.arange(3)) % self.num_experts  # (n, 3)
        ids = ops.broadcast_to(ids, (ops.shape(x)[0], *ids.shape))
        gates = ops.cast(ids + 1, "float32") / 4
        return Routing(ops.cast(ids, "int64"), gates)


@pytest.mark.parametrize("training", [False, True])
def test_a_router_of_one_s_own_with_three_choices(training, x, mask, rng):
    layer = make(rng, ThreeChoices(), capacity_factor=0.5)
    found = at_once(layer, x, training, mask=mask)
    capacity = math.ceil(0.5 * N * 3 / E) if training else None
    expected = by_loops(layer, x, None, mask, training, capacity)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_single_expert_is_evenly_busy(x):
    layer = SparseTokenExperts(1, F, "switch")
    layer.build((B, N, D))
    layer(x, training=True)
    found = layer.routing_record.means()
    assert found["load_entropy"] == found["max_load"] == 1


def test_no_limit_is_none():
    with pytest.raises(ValueError, match="`capacity_factor=None`.*=inf"):
        SparseTokenExperts(E, F, capacity_factor=math.inf)


def test_arguments():
    for name, value in [
        ("num_experts", 0),
        ("intermediate_dim", 1.5),
        ("capacity_factor", 0),
        ("router", "bass"),
    ]:
        arguments = {"num_experts": E, "intermediate_dim": F, name: value}
        with pytest.raises(ValueError, match=name):
            SparseTokenExperts(**arguments)
    with pytest.raises(ValueError, match="batch, n, channels"):
        SparseTokenExperts(E, F).build((None, D))


def test_a_step_of_padding_drops_nothing():
    layer = SparseTokenExperts(3, 8, router="switch")
    layer.build((2, 5, 4))
    x = np.ones((2, 5, 4), "float32")
    layer(x, mask=np.zeros((2, 5), "int32"), training=True)
    assert layer.routing_record.means()["drop_rate"] == 0
