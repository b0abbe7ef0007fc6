"""Routers against their formulas in NumPy."""

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers.base_router import BaseRouter
from mlp_mixers.layers.get_router import ROUTERS
from mlp_mixers.layers.get_router import get_router
from mlp_mixers.layers.hash_router import HashRouter
from mlp_mixers.layers.router import Router
from mlp_mixers.layers.router import Routing
from mlp_mixers.layers.switch_router import SwitchRouter
from mlp_mixers.layers.token_experts import SparseTokenExperts
from mlp_mixers.layers.top_two_router import TopTwoRouter
from mlp_mixers.ops.compiled import compiled

B, N, D, E = 3, 10, 6, 4


def make(cls, scale=1.0, **arguments):
    router = cls(num_experts=E, **arguments)
    router.build((B, N, D))
    rng = np.random.default_rng(7)
    if hasattr(router, "kernel"):
        router.kernel.assign(scale * rng.normal(size=(D, E)))
    return router


@pytest.fixture
def x():
    return np.random.default_rng(3).normal(size=(B, N, D)).astype("float32")


@pytest.fixture
def mask():
    return np.arange(N) < np.array([[10], [7], [1]])


def numpy(routing):
    return [ops.convert_to_numpy(part) for part in routing[:2]]


def at_once(router, x):
    """The call in training as one program, for a shape that comes once."""
    draw = compiled(lambda x: router(x, training=True)[:2], router.variables)
    return numpy(draw(ops.convert_to_tensor(x)))


def probabilities(router, x):
    logits = x.astype("float64") @ ops.convert_to_numpy(router.kernel)
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return logits, exp / exp.sum(-1, keepdims=True)


@pytest.mark.parametrize("training", [False, True])
def test_switch_takes_the_likeliest(x, training):
    router = make(SwitchRouter)
    ids, gates = numpy(router(x, training=training))
    _, p = probabilities(router, x)
    np.testing.assert_array_equal(ids[..., 0], p.argmax(-1))
    np.testing.assert_allclose(gates[..., 0], p.max(-1), rtol=1e-5)
    assert ids.dtype == "int32"
    assert gates.dtype == "float32"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cls", [SwitchRouter, TopTwoRouter])
def test_losses(cls, x, mask, masked):
    router = make(cls)
    losses = router(x, mask=mask if masked else None, training=True).losses
    logits, p = probabilities(router, x)
    real = mask if masked else np.ones_like(mask)
    logits, p = logits[real], p[real]
    f = np.bincount(p.argmax(-1), minlength=E) / len(p)
    expected = {
        "balance_loss": E * np.sum(f * p.mean(0)),
        "z_loss": np.mean(np.log(np.exp(logits).sum(-1)) ** 2),
    }
    assert set(losses) == set(expected) == set(router.loss_weights)
    for name, value in expected.items():
        np.testing.assert_allclose(float(losses[name]), value, rtol=1e-4)


def test_losses_at_the_ends(x):
    router = make(SwitchRouter, scale=0.0)
    losses = router(x, training=True).losses
    np.testing.assert_allclose(float(losses["balance_loss"]), 1, rtol=1e-6)
    np.testing.assert_allclose(float(losses["z_loss"]), np.log(E) ** 2, 1e-5)
    router.kernel.assign(np.array([[50.0, 0, 0, 0]] * D))
    losses = router(np.abs(x), training=True).losses
    np.testing.assert_allclose(float(losses["balance_loss"]), E, rtol=1e-3)


def test_jitter_multiplies_in_training_only(x):
    router = make(SwitchRouter, jitter=0.3, seed=1)
    still, again = numpy(router(x)), numpy(router(x))
    np.testing.assert_array_equal(still[1], again[1])
    _, one = numpy(router(x, training=True))
    _, other = numpy(router(x, training=True))
    assert not np.array_equal(one, other)
    # Zero times anything: noise that were added would show.
    _, zero = numpy(router(np.zeros_like(x), training=True))
    np.testing.assert_allclose(zero, 1 / E, rtol=1e-6)


@pytest.mark.parametrize("second_choice", ["sampling", "random", "all"])
def test_top_two_in_inference(x, second_choice):
    router = make(TopTwoRouter, second_choice=second_choice)
    ids, gates = numpy(router(x))
    _, p = probabilities(router, x)
    expected = np.argsort(-p, -1)[..., :2]
    np.testing.assert_array_equal(ids, expected)
    top = np.take_along_axis(p, expected, -1)
    np.testing.assert_allclose(gates, top / top.sum(-1, keepdims=True), 1e-5)
    again, _ = numpy(router(x))
    np.testing.assert_array_equal(ids, again)


def test_second_choices_are_drawn_from_what_is_left():
    router = make(TopTwoRouter, seed=0)
    x = np.broadcast_to(np.linspace(-1, 1, D), (40, 100, D)).astype("f4")
    ids, gates = at_once(router, x)
    _, p = probabilities(router, x[:1, :1])
    p = p[0, 0]
    first = p.argmax()
    assert (ids[..., 0] == first).all()
    left = np.where(np.arange(E) == first, 0, p)
    found = np.bincount(ids[..., 1].ravel(), minlength=E) / 4000
    np.testing.assert_allclose(found, left / left.sum(), atol=0.03)
    second = p[ids[..., 1]]
    np.testing.assert_allclose(
        gates[..., 1], second / (p[first] + second), 1e-4
    )


def test_random_second_choices_come_with_twice_their_gate():
    router = make(TopTwoRouter, second_choice="random", seed=0, scale=2.0)
    x = np.broadcast_to(np.linspace(-1, 1, D), (40, 100, D)).astype("f4")
    ids, gates = at_once(router, x)
    kept = (ids[..., 1] < E).mean()
    np.testing.assert_allclose(kept, min(1, 2 * gates[0, 0, 1]), atol=0.03)
    assert 0.1 < kept < 0.95  # else this test says nothing


@pytest.mark.parametrize("group", ["sequence", "batch"])
@pytest.mark.parametrize("masked", [False, True])
def test_base_is_balanced_in_training(x, mask, group, masked):
    router = make(BaseRouter, group=group)
    # All tokens like expert 2 best.
    router.kernel.assign(np.array([[0.1, 0.2, 3.0, 0.3]] * D))
    x = np.abs(x)
    ids, gates = numpy(router(x, mask=mask if masked else None, training=True))
    real = mask if masked else np.ones_like(mask)
    rows = [(ids[i, ..., 0], real[i]) for i in range(B)]
    if group == "batch":
        rows = [(ids[..., 0], real)]
    for found, counted in rows:
        loads = np.bincount(found[counted], minlength=E)
        assert loads.max() - loads.min() <= 1
        assert loads.sum() == counted.sum()
    scores = x @ ops.convert_to_numpy(router.kernel)
    chosen = np.take_along_axis(scores, np.minimum(ids, E - 1), -1)
    np.testing.assert_allclose(gates, 1 / (1 + np.exp(-chosen)), rtol=1e-5)


def test_base_in_inference_takes_the_best(x):
    router = make(BaseRouter)
    ids, _ = numpy(router(x))
    scores = x @ ops.convert_to_numpy(router.kernel)
    np.testing.assert_array_equal(ids[..., 0], scores.argmax(-1))
    fresh = BaseRouter(num_experts=E)
    fresh.build((None, None, D))
    w = ops.convert_to_numpy(fresh.kernel)
    np.testing.assert_allclose(w.T @ w, 0.01 * np.eye(E), atol=1e-6)


def test_ties_go_to_the_first_experts(x):
    """On every backend: a router of zeros likes all experts equally."""
    for cls, expected in ((SwitchRouter, [0]), (TopTwoRouter, [0, 1])):
        for training in (False, True):
            options = {"second_choice": "all"} if len(expected) == 2 else {}
            router = make(cls, scale=0.0, **options)
            ids, gates = numpy(router(x, training=training))
            np.testing.assert_array_equal(ids, np.full_like(ids, expected))
            each = 1 / E if len(expected) == 1 else 1 / 2
            np.testing.assert_allclose(gates, each, rtol=1e-6)
    router = make(BaseRouter, scale=0.0)
    assert (numpy(router(x))[0] == 0).all()
    loads = np.bincount(numpy(router(x, training=True))[0].ravel())
    assert len(loads) == E
    assert loads.max() - loads.min() <= 1


def test_hash_is_a_balanced_table(x):
    router = make(HashRouter, vocabulary_size=30, seed=5)
    table = ops.convert_to_numpy(router.table)
    loads = np.bincount(table, minlength=E)
    assert loads.max() - loads.min() <= 1
    tokens = np.random.default_rng(0).integers(0, 30, (B, N))
    ids, gates = numpy(router(x, token_ids=tokens))
    np.testing.assert_array_equal(ids[..., 0], table[tokens])
    assert (gates == 1).all()
    other = make(HashRouter, vocabulary_size=30, seed=6)
    assert (ops.convert_to_numpy(other.table) != table).any()
    counts = np.array([1000, 500, 300, 250] + [10] * 26)
    router.balance(counts)
    table = ops.convert_to_numpy(router.table)
    busy = np.bincount(table, counts, minlength=E)
    # The first token alone is more than a fair share, and so is the second;
    # nothing else goes there.
    assert sorted(busy)[-2:] == [500, 1000]
    assert abs(busy[busy < 500] - (300 + 250 + 260) / 2).max() <= 10


def test_a_table_is_saved(x, tmp_path):
    """Another one than the seed's."""
    inputs = keras.Input((N, D)), keras.Input((N,), dtype="int32")
    layer = SparseTokenExperts(E, 5, HashRouter(vocabulary_size=30))
    model = keras.Model(inputs, layer(inputs[0], token_ids=inputs[1]))
    first = ops.convert_to_numpy(layer.router.table)
    layer.router.balance(np.arange(30))
    table = ops.convert_to_numpy(layer.router.table)
    assert (table != first).any()
    model.save(tmp_path / "hash.keras")
    again = keras.saving.load_model(tmp_path / "hash.keras")
    router = again.get_layer(layer.name).router
    np.testing.assert_array_equal(ops.convert_to_numpy(router.table), table)
    assert "int32" in str(router.table.dtype)


def test_hash_errors(x):
    router = make(HashRouter, vocabulary_size=30)
    with pytest.raises(ValueError, match="token_ids="):
        router(x)
    tokens = np.array([[0, 29, 30, -1, 5]])
    _, gates = numpy(router(x[:1, :5], token_ids=tokens))
    np.testing.assert_array_equal(np.isnan(gates[0, :, 0]), [0, 0, 1, 1, 0])
    with pytest.raises(ValueError, match="one number for each token"):
        router.balance([1, 2])
    for count in (-1, np.nan, np.inf):
        with pytest.raises(ValueError, match="finite and not negative"):
            router.balance([count] * 30)
    for shape in ((1, 4), (1, 5, 1), (5,)):
        with pytest.raises(ValueError, match="one number for each token"):
            router(x[:1, :5], token_ids=np.zeros(shape, "int32"))
    with pytest.raises(ValueError, match="seed"):
        HashRouter(seed=-1)
    with pytest.raises(ValueError, match="vocabulary_size"):
        make(HashRouter)


@keras.saving.register_keras_serializable(package="tests")
class Alternating(Router):
    """A router of one's own: token t to expert t mod E."""

    def call(self, x, token_ids=None, mask=None, training=False):
        n = ops.shape(x)[1]
        ids = ops.arange(n, dtype="int32") % self.num_experts
        ids = ops.broadcast_to(ids[None, :, None], (ops.shape(x)[0], n, 1))
        return Routing(ids, ops.ones_like(ids, dtype="float32"))


@pytest.mark.parametrize(
    "router",
    [
        *ROUTERS,
        SwitchRouter(jitter=0.1, group="batch", z_loss_weight=0.5),
        keras.saving.serialize_keras_object(TopTwoRouter(second_choice="all")),
        Alternating(group="batch"),
    ],
)
def test_routers_by_name_pattern_and_configuration(router):
    made = get_router(router, E, vocabulary_size=30)
    assert made.num_experts == E
    assert made is not router
    config = made.get_config()
    again = type(made).from_config(config)
    assert again.get_config() == config
    if isinstance(router, Router):
        expected = {**router.get_config(), "num_experts": E, "name": "router"}
        assert config == expected
        assert made.loss_weights == router.loss_weights
    elif isinstance(router, dict):
        assert made.second_choice == "all"


class Mistaken(Router):
    """Says where nobody asked."""

    num_choices = 2
    answer = None

    def call(self, x, token_ids=None, mask=None, training=False):
        return type(self).answer


class Lossless(Mistaken):
    """Has a weight for a loss that it never computes."""

    def __init__(self, num_experts=None, **kwargs):
        kwargs["loss_weights"] = {"balance": 0.1}
        super().__init__(num_experts, **kwargs)


IDS, GATES = np.zeros((B, N, 2), "int32"), np.ones((B, N, 2), "float32")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (IDS, r"must return a .*Routing.* of shape \(3, 10, 2\)"),
        ((IDS, GATES), "must return a .*Routing.*Received: a tuple"),
        (None, "must return a .*Routing.*Received: a NoneType"),
        (
            Routing(IDS[..., 0], GATES),
            r"`expert_ids` .* here \(3, 10, 2\).*of shape \(3, 10\)",
        ),
        (
            Routing(IDS[..., :1], GATES[..., :1]),
            r"declares 2 \(`num_choices`\).*of shape \(3, 10, 1\)",
        ),
        (Routing(IDS[:, :4], GATES), r"`expert_ids`.*of shape \(3, 4, 2\)"),
        (Routing(IDS, GATES[..., 0]), r"`gates`.*of shape \(3, 10\)"),
        (Routing(IDS, None), "`gates`.*Received: a NoneType"),
        (Routing(GATES, GATES), "must be integers.*dtype=float32"),
    ],
)
def test_routings_that_are_none(x, answer, message, monkeypatch):
    if isinstance(answer, Routing):
        parts = [
            p if p is None else ops.convert_to_tensor(p) for p in answer[:2]
        ]
        answer = Routing(*parts)
    monkeypatch.setattr(Mistaken, "answer", answer)
    layer = SparseTokenExperts(E, 5, Mistaken())
    with pytest.raises(ValueError, match=message):
        layer(x)
    with pytest.raises(ValueError, match=message):
        layer.route(x)


def test_a_loss_that_is_declared_is_returned(x, monkeypatch):
    parts = map(ops.convert_to_tensor, (IDS, GATES))
    monkeypatch.setattr(Lossless, "answer", Routing(*parts))
    layer = SparseTokenExperts(E, 5, Lossless())
    with pytest.raises(ValueError, match="no 'balance' in losses="):
        layer(x, training=True)
    layer(x)  # in inference there is nothing to lose


def test_a_router_without_a_call(x):
    class Silent(Router):
        pass

    message = "a method `call.*Received: Silent without `call`"
    with pytest.raises(ValueError, match=message):
        SparseTokenExperts(E, 5, Silent())
    with pytest.raises(ValueError, match=message):
        Silent(E)(x)
    assert "Routing" in Router.call.__doc__


def test_a_class_is_no_router():
    message = r"not its class: `router=SwitchRouter\(\)`"
    with pytest.raises(ValueError, match=message):
        SparseTokenExperts(E, 5, SwitchRouter)


def test_routers_that_cannot_be():
    with pytest.raises(ValueError, match="`router` must be one of"):
        get_router("bass", E)
    with pytest.raises(ValueError, match="another `num_experts`"):
        get_router(SwitchRouter(num_experts=3), E)
    with pytest.raises(ValueError, match="another `vocabulary_size`"):
        get_router(HashRouter(vocabulary_size=3), E, 30)
    with pytest.raises(ValueError, match="float32"):
        SwitchRouter(dtype="mixed_bfloat16")
    with pytest.raises(ValueError, match="there must be two"):
        get_router("top_two", 1).build((None, None, D))
    for name, value in [
        ("group", "row"),
        ("jitter", 1.0),
        ("balance_loss_weight", -1),
        ("num_experts", 0),
    ]:
        with pytest.raises(ValueError, match=name):
            SwitchRouter(**{name: value})
    with pytest.raises(ValueError, match="second_choice"):
        TopTwoRouter(second_choice="best")
