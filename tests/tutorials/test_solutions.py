"""The solutions of the exercises, against NumPy, SciPy and closed forms."""

import importlib.util
import pathlib

import numpy as np
import pytest
import scipy.linalg
from keras import ops

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
