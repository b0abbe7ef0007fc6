"""What mixing tokens costs, against the table of Sparse all-MLP.

Its setting: T = 1024 tokens, H = 1024 channels, and D = 2048 channels that a
gating unit projects, half of a feed-forward width of 4096. The paper's numbers
are parameters in millions and floating-point operations in thousand millions.
"""

import math
import pathlib

import pytest

from mlp_mixers.analysis import count_flops
from mlp_mixers.layers import SelfAttention
from mlp_mixers.layers import SparseFeatureExperts
from mlp_mixers.layers import SpatialGatingUnit

T, H, D = 1024, 1024, 2048
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "sparse.md"


def attention(heads):
    return SelfAttention(H, heads, attention_dim=H, causal=True), H


def gating_unit(heads):
    # Initial values are of no account, and zeros take no time to draw.
    unit = SpatialGatingUnit(
        num_heads=heads, causal=True, kernel_initializer="zeros"
    )
    return unit, 2 * D


def feature_experts(experts):
    return SparseFeatureExperts(experts, kernel_initializer="zeros"), 2 * D


def measure(layer, channels):
    """Parameters of the built layer, and what `count_flops` says of it."""
    layer.build((None, T, channels))
    parameters = sum(math.prod(w.shape) for w in layer.trainable_weights)
    return parameters, count_flops(layer, (T, channels))


def millions(number):
    return round(number / 1e6, 3)


def billions(number):
    return round(number / 1e9, 3)


# Parameters by hand, those of the paper; products by hand, those of the paper.
ATTENTION = (4 * H * H + 4 * H, 4.198, 8 * T * H * H + 4 * T * T * H, 12.885)
PRODUCTS = (2 * T * T * D, 4.295)
ROWS = {
    "self-attention 16": (lambda: attention(16), *ATTENTION),
    "self-attention 1": (lambda: attention(1), *ATTENTION),
    "gating unit 16": (
        lambda: gating_unit(16),
        *(16 * (T * T + T) + 2 * D, 16.798),
        *PRODUCTS,
    ),
    "gating unit 1": (
        lambda: gating_unit(1),
        *(T * T + T + 2 * D, 1.054),
        *PRODUCTS,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_parameters_and_products_are_the_papers(name):
    make, by_hand, published, products, published_products = ROWS[name]
    parameters, report = measure(*make())
    assert parameters == report.parameters == by_hand
    assert millions(parameters) == published
    assert 2 * report.macs == products
    assert billions(2 * report.macs) == published_products


@pytest.mark.parametrize("experts", [1, 4, 16])
def test_experts_in_all_and_one_by_one(experts):
    """The paper counts one expert, that of one device."""
    parameters, report = measure(*feature_experts(experts))
    assert parameters == experts * (T * T + T) + 2 * D
    # The normalisation is of all experts; each has a W and a b.
    shared = 2 * D
    assert (parameters - shared) // experts == T * T + T
    assert T * T + T + shared == ROWS["gating unit 1"][1]
    # Every expert has work for every text: experts are placed on devices,
    # not spared.
    assert report.active_parameters == report.parameters == parameters
    assert 2 * report.macs == PRODUCTS[0]


def test_other_operations_by_hand():
    """Biases, scores and softmax of attention; norm, b and gate of a unit."""
    for heads in (1, 16):
        _, report = measure(*attention(heads))
        others = 4 * T * H + T * H + 5 * heads * T * T
        assert report.flops - 2 * report.macs == others
        _, report = measure(*gating_unit(heads))
        assert report.flops - 2 * report.macs == (5 + 1 + 1) * T * D
    _, report = measure(*feature_experts(16))
    assert report.flops - 2 * report.macs == (5 + 1 + 1) * T * D


def row(title, number, paper, parameters, report):
    """A line of the table in the documentation."""
    published, operations = paper
    numbers = (
        *(published, f"{millions(parameters):.3f}"),
        *(operations, f"{billions(2 * report.macs):.3f}"),
        f"{billions(report.flops):.3f}",
    )
    return f"| {title} | {number} | {' | '.join(numbers)} |"


def test_the_documentation_has_these_numbers():
    lines = []
    for title, paper, make in (
        ("self-attention", ("4.198", "12.885"), attention),
        ("spatial gating unit", None, gating_unit),
    ):
        for heads in (16, 1):
            of_unit = "16.798" if heads == 16 else "1.054", "4.316"
            found = measure(*make(heads))
            lines.append(row(title, heads, paper or of_unit, *found))
    for title, experts, paper in (
        ("all", 16, ("–", "–")),
        ("one of them", 1, ("1.058", "4.387")),
    ):
        found = measure(*feature_experts(experts))
        lines.append(row(f"feature experts, {title}", experts, paper, *found))
    page = PAGE.read_text()
    missing = [line for line in lines if line not in page]
    assert not missing, "\n".join(lines)
