"""The solutions of the exercises, against NumPy, SciPy and closed forms."""

import importlib.util
import pathlib

import numpy as np
import pytest
import scipy.linalg
from keras import ops
from PIL import Image

from mlp_mixers.analysis import count_flops
from mlp_mixers.data import CausalLMBatches
from mlp_mixers.layers import SparseFeatureExperts
from mlp_mixers.layers import SpatialGatingUnit
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import MixerBackbone
from mlp_mixers.models import SMLPBackbone
from mlp_mixers.models import SMLPCausalLM
from mlp_mixers.weights import export_checkpoint
from mlp_mixers.weights import load_checkpoint

SOLUTIONS = pathlib.Path(__file__).parents[2] / "tutorials" / "solutions"


def load(name):
    """Imports a file whose name is no identifier; its own asserts run."""
    spec = importlib.util.spec_from_file_location(
        f"solution_{name}", SOLUTIONS / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gating():
    return load("01_from_attention_to_gating")


@pytest.fixture(scope="module")
def images():
    return load("02_gmlp_on_images")


@pytest.fixture(scope="module")
def backends():
    return load("03_one_model_three_backends")


@pytest.fixture(scope="module")
def reading():
    return load("04_reading_with_mlps")


@pytest.fixture(scope="module")
def experts():
    return load("05_experts")


def arrays(*shapes):
    rng = np.random.default_rng(1)
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def tensor(x):
    return ops.convert_to_tensor(x)


def norm(z, gamma, beta):
    z = z - z.mean(-1, keepdims=True)
    return z / np.sqrt((z**2).mean(-1, keepdims=True) + 1e-5) * gamma + beta


def test_causal_unit_is_the_sum_over_earlier_tokens(gating):
    z, w, b, gamma, beta = arrays((2, 5, 8), (5, 5), 5, 4, 4)
    normed = norm(z[..., 4:], gamma, beta)
    expected = np.empty((2, 5, 4))
    for i in range(5):
        gate = b[i] + sum(w[i, j] * normed[:, j] for j in range(i + 1))
        expected[:, i] = z[:, i, :4] * gate
    got = gating.causal_gating_unit(*map(tensor, (z, w, b, gamma, beta)))
    np.testing.assert_allclose(
        ops.convert_to_numpy(got), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("n", [1, 2, 7])
def test_toeplitz_is_scipys(gating, n):
    (values,) = arrays(2 * n - 1)
    # SciPy takes the first column, downwards, and the first row.
    expected = scipy.linalg.toeplitz(values[n - 1 :: -1], values[n - 1 :])
    got = ops.convert_to_numpy(gating.toeplitz(tensor(values)))
    np.testing.assert_array_equal(got, expected)


def test_each_head_gates_its_own_channels(gating):
    z, w, b, gamma, beta = arrays((2, 5, 12), (3, 5, 5), (3, 5), 6, 6)
    normed = norm(z[..., 6:], gamma, beta)
    expected = np.empty((2, 5, 6))
    for head in range(3):
        own = slice(2 * head, 2 * head + 2)
        for example in range(2):
            gate = w[head] @ normed[example, :, own] + b[head][:, None]
            expected[example, :, own] = z[example, :, :6][:, own] * gate
    got = gating.multi_head_gating_unit(*map(tensor, (z, w, b, gamma, beta)))
    np.testing.assert_allclose(
        ops.convert_to_numpy(got), expected, rtol=1e-4, atol=1e-4
    )


def test_linear_gate_has_the_surplus_of_the_closed_form(images):
    split, linear = images.build(), images.build(gate="linear")
    surplus = linear.count_params() - split.count_params()
    # V: 4 blocks x 192 more rows of 64; γ and β of 192 more channels.
    assert surplus == 4 * (192 * 64 + 2 * 192)
    assert images.linear_surplus(4, 64, 384) == surplus


@pytest.mark.parametrize(("patch_size", "n"), [(1, 64), (2, 16), (4, 4)])
def test_spatial_parameters_are_those_of_the_model(images, patch_size, n):
    model = images.build(patch_size=patch_size)
    counted = sum(
        int(np.prod(weight.shape))
        for weight in model.weights
        if "spatial_" in weight.path
    )
    assert counted == 4 * (n * n + n)
    assert images.spatial_parameters(4, 8, patch_size) == counted


def test_accuracy_by_shift_moves_to_the_right(images):
    class ReadsTheLeftHalf:
        """Says 1 if there is ink in the four columns on the left."""

        def predict(self, x, verbose):
            ink = x[:, :, :4].sum(axis=(1, 2, 3)) > 0
            return np.stack([~ink, ink], axis=1).astype("float32")

    # A dot in column 0, 1, 2 and 3: k pixels to the right push k of them out.
    dots = np.zeros((4, 8, 8, 1), "float32")
    dots[np.arange(4), 5, np.arange(4)] = 1
    got = images.accuracy_by_shift(
        ReadsTheLeftHalf(), dots, np.ones(4, int), range(5)
    )
    assert got == {0: 1.0, 1: 0.75, 2: 0.5, 3: 0.25, 4: 0.0}


def small_gmlp(hidden_dim=8, side=8, patch_size=2):
    return GMLPImageClassifier.from_preset(
        "gmlp_digits_nano",
        num_classes=10,
        load_weights=False,
        image_shape=(side, side, 1),
        patch_size=patch_size,
        num_layers=1,
        hidden_dim=hidden_dim,
        intermediate_dim=12,
    )


def values(model):
    return {w.path: ops.convert_to_numpy(w) for w in model.weights}


def test_numpy_start_is_numpys_alone(backends):
    """The stream of NumPy, piece by piece, and no weight without its value."""
    got = list(values(backends.numpy_start(small_gmlp(), seed=3)).items())
    rng = np.random.default_rng(3)
    constants = {"norm/gamma": 1, "spatial_bias": 1, "beta": 0, "bias": 0}
    for path, value in got:
        if path.endswith("spatial_kernel"):
            expected = rng.normal(0, 1e-6, (1, 16, 16))
        elif path.endswith("patch_embedding/dense/bias"):
            expected = rng.uniform(-0.5, 0.5, 8)  # 4 pixels in a patch
        elif path.endswith("kernel"):
            limit = np.sqrt(6 / (value.shape[0] + value.shape[1]))
            expected = rng.uniform(-limit, limit, value.shape)
        else:
            constant = next(c for end, c in constants.items() if end in path)
            expected = np.full(value.shape, constant)
        np.testing.assert_allclose(value, expected, rtol=1e-6, err_msg=path)


def test_numpy_start_has_the_spread_of_keras(backends):
    keras_start = values(small_gmlp(hidden_dim=256))
    numpy_start = values(backends.numpy_start(small_gmlp(256), seed=0))
    for (path, theirs), ours in zip(keras_start.items(), numpy_start.values()):
        np.testing.assert_allclose(
            ours.std(), theirs.std(), rtol=0.2, atol=1e-9, err_msg=path
        )


def pillow(fields, old, new):
    """Fields `(k, n)` on another grid, by another library."""
    images = [Image.fromarray(f.reshape(old).astype("float32")) for f in fields]
    resized = [i.resize(new[::-1], Image.Resampling.BILINEAR) for i in images]
    return np.stack([np.asarray(image).ravel() for image in resized])


def test_resized_token_mlp_sees_the_same_sums(backends):
    old, new = (3, 4), (6, 8)
    w1, b1, w2, b2 = arrays((12, 5), 5, (5, 12), 12)
    got = backends.resize_token_mlp(w1, b1, w2, b2, old, new)
    np.testing.assert_allclose(
        got[0], pillow(w1.T, old, new).T / 4, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(got[1], b1)
    np.testing.assert_allclose(got[2], pillow(w2, old, new), atol=1e-5)
    np.testing.assert_allclose(got[3], pillow([b2], old, new)[0], atol=1e-5)
    # A constant field: the hidden units, and so the GELU, notice nothing.
    np.testing.assert_allclose(got[0].sum(0), w1.sum(0), rtol=1e-4, atol=1e-5)


def test_resized_token_mlp_is_what_load_checkpoint_makes(backends):
    sizes = {
        "patch_size": 2,
        "num_layers": 1,
        "hidden_dim": 4,
        "token_intermediate_dim": 5,
        "intermediate_dim": 8,
    }
    small, large = (
        MixerBackbone(image_shape=(side, side, 1), **sizes) for side in (6, 10)
    )
    own = export_checkpoint(small, "mlp_mixers")
    names = [
        f"block_0/token_{part}_dense/{kind}"
        for part in ("intermediate", "output")
        for kind in ("kernel", "bias")
    ]
    expected = backends.resize_token_mlp(
        *(own[name] for name in names), (3, 3), (5, 5)
    )
    load_checkpoint(large, own)
    moved = export_checkpoint(large, "mlp_mixers")
    for name, array in zip(names, expected):
        np.testing.assert_allclose(moved[name], array, rtol=1e-5, atol=1e-6)


def test_fresh_spatial_weights_leave_the_rest(backends):
    model = small_gmlp()
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=tuple(weight.shape)))
    before = values(model)
    after = values(backends.fresh_spatial_weights(model))
    for path, value in after.items():
        if path.endswith("spatial_kernel"):
            assert 0 < abs(value).max() < 1e-5
        elif path.endswith("spatial_bias"):
            np.testing.assert_array_equal(value, np.ones((1, 16)))
        else:
            np.testing.assert_array_equal(value, before[path])


def macs(hidden_dim, side, patch_size):
    """U, W and V of a block, as `count_flops` has them."""
    model = small_gmlp(hidden_dim, side, patch_size)
    by_name = {
        row.name.split("/")[-1]: row.macs for row in count_flops(model).rows
    }
    return [
        by_name[name]
        for name in ("intermediate_dense", "gating_unit", "output_dense")
    ]


@pytest.mark.parametrize(
    ("d", "patch_size", "side"), [(64, 2, 28), (256, 16, 448)]
)
def test_side_from_which_w_leads(backends, d, patch_size, side):
    assert backends.side_from_which_w_leads(d, patch_size) == side
    u, w, v = macs(d, side, patch_size)
    assert w > u + v
    n = (side // patch_size) ** 2
    assert backends.share_of_w(n, d) == pytest.approx(w / (u + w + v))
    u, w, v = macs(d, side - patch_size, patch_size)
    assert w <= u + v


@pytest.mark.parametrize("n", [1, 2, 7])
def test_toeplitz_product_is_scipys(reading, n):
    values, v = arrays((2 * n - 1,), (2, n, 3))
    first_column_and_row = values[n - 1 :: -1], values[n - 1 :]
    expected = [
        scipy.linalg.matmul_toeplitz(first_column_and_row, x) for x in v
    ]
    np.testing.assert_allclose(
        reading.toeplitz_product(values, v), expected, rtol=1e-4, atol=1e-5
    )


def test_gate_by_hand_is_that_of_the_layer(reading):
    unit = SpatialGatingUnit(sequence_length=9, toeplitz=True)
    unit.build((2, 9, 10))
    for weight, value in zip(
        unit.weights, arrays(*(w.shape for w in unit.weights))
    ):
        weight.assign(value)
    (z2,) = arrays((2, 9, 5))
    np.testing.assert_allclose(
        reading.gate_by_hand(unit, z2),
        reading.gate_of_layer(unit, z2),
        rtol=1e-4,
        atol=1e-4,
    )


def test_share_with_hints_counts_words_that_are_seen_in_part(reading):
    # Words ab, c, def | gh, i, jkl. Asked for: a, d, e, f | g, h, k.
    starts = np.array([[1, 0, 1, 1, 0, 0], [1, 0, 1, 1, 0, 0]], bool)
    positions = np.array([[0, 3, 4, 5, 0], [0, 1, 4, 0, 0]])
    weights = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], "float32")
    # With a hint: a, since b is seen, and k.
    got = reading.share_with_hints(starts, positions, weights)
    assert got == pytest.approx(2 / 7)


@pytest.mark.parametrize("padding", [1, 6])
def test_only_padding_that_is_not_kept_out_has_an_effect(reading, padding):
    ids = np.random.default_rng(0).integers(4, 50, (2, 10))
    kept_out, let_in = (
        reading.effect_of_padding(
            reading.stirred_backbone(mask_padding), ids, padding
        )
        for mask_padding in (True, False)
    )
    assert kept_out < 1e-5 < 1e-2 < let_in


@pytest.mark.parametrize("n", [1, 7, 300])
def test_places_in_queue_count_those_before(experts, n):
    ids = np.random.default_rng(n).integers(0, 4, n)
    expected = [int((ids[:t] == ids[t]).sum()) for t in range(n)]
    assert experts.places_in_queue(ids, 4).tolist() == expected
    kept = experts.queue(ids, 4, capacity=2)
    assert kept.tolist() == [place < 2 for place in expected]


def test_hard_leaky_unit_is_the_leaky_layer_without_its_gate(experts):
    layer = SparseFeatureExperts(3, routing="leaky", sequence_length=6)
    layer.build((None, 6, 10))
    weights = {w.name: w for w in layer.trainable_weights}
    for name in ("spatial_kernel", "spatial_bias", "router_kernel"):
        weights[name].assign(arrays(weights[name].shape)[0])
    (z,) = arrays((2, 6, 10))
    w, b, w_r = (
        ops.convert_to_numpy(weights[name])
        for name in ("spatial_kernel", "spatial_bias", "router_kernel")
    )
    v = norm(z[..., 5:], 1, 0)
    p = np.exp(np.einsum("rnc,ne->rce", v, w_r))
    gates = (p / p.sum(-1, keepdims=True)).max(-1)  # (2, 5)
    got = experts.hard_leaky_unit(z, np.tril(w), b, w_r)
    np.testing.assert_allclose(
        got * gates[:, None],
        ops.convert_to_numpy(layer(z)),
        rtol=1e-4,
        atol=1e-4,
    )


def test_a_leak_without_a_slope_shows_in_whole_suffixes_only(experts):
    nudge, token, half = map(experts.share_caught, ("nudge", "token", "half"))
    assert nudge < 0.01 < token < half
    assert half > 0.99


def test_perplexity_is_that_of_evaluate_on_the_same_window(experts):
    backbone = SMLPBackbone(
        vocabulary_size=9,
        sequence_length=10,
        num_dense_blocks=0,
        num_sparse_blocks=1,
        hidden_dim=8,
        intermediate_dim=16,
        num_experts=2,
        router="switch",
        routing="partial",
        prefix_fraction=0.4,
    )
    model = SMLPCausalLM(backbone)
    for weight, value in zip(
        model.trainable_weights,
        arrays(*(w.shape for w in model.trainable_weights)),
    ):
        weight.assign(value)
    model.compile("sgd")
    rows = np.random.default_rng(0).integers(0, 9, (4, 11)).astype("int32")
    rows[-1, 8:] = 0  # padding
    batches = CausalLMBatches(rows, pad_id=0, batch_size=2)
    expected = model.evaluate(batches, verbose=0, return_dict=True)
    assert model.first_predicted == 3
    assert experts.perplexity(model, batches, 3) == pytest.approx(
        expected["perplexity"], rel=1e-4
    )
    assert experts.perplexity(model, batches) != pytest.approx(
        expected["perplexity"], rel=1e-2
    )
