"""Loads of experts against counts by hand."""

import numpy as np
import pytest
from keras import ops

from mlp_mixers.analysis import expert_load
from mlp_mixers.analysis import plot_expert_load
from mlp_mixers.models import SMLPBackbone

V, N, E = 12, 6, 3


def backbone(**arguments):
    return SMLPBackbone(V, N, 0, 2, 8, 12, num_experts=E, **arguments)


def test_loads_are_counts(rng, tmp_path):
    model = backbone(router="hash")
    for i, block in enumerate(model.blocks):
        # All tokens to expert 0 in the first block, by turns in the second.
        block.token_experts.router.table.assign(i * np.arange(V) % E)
    ids = rng.integers(0, V, (4, N)).astype("int32")
    mask = (np.arange(N) < np.array([[6], [4], [1], [0]])).astype("int32")
    batch = {"token_ids": ids, "padding_mask": mask}
    loads = expert_load(model, [batch, batch])
    assert list(loads) == ["block_0_token_experts", "block_1_token_experts"]
    expected = np.bincount(ids[mask > 0] % E, minlength=E) / mask.sum()
    np.testing.assert_allclose(loads["block_0_token_experts"], [1, 0, 0])
    np.testing.assert_allclose(loads["block_1_token_experts"], expected)
    # Nobody listens any more.
    assert all(b.token_experts.on_route is None for b in model.blocks)
    figure = plot_expert_load(loads, tmp_path / "load.png")
    assert (tmp_path / "load.png").stat().st_size > 0
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts[:3] == ["3.00", "0.00", "0.00"]
    assert texts[3:] == [f"{E * share:.2f}" for share in expected]


def test_channels_have_loads_too(rng):
    model = backbone(routing="leaky", router="hash")
    ids = rng.integers(0, V, (4, N)).astype("int32")
    loads = expert_load(
        model, {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    )
    found = [name for name in loads if "feature_experts" in name]
    assert len(found) == 2
    for name in found:
        np.testing.assert_allclose(loads[name].sum(), 1)


def test_a_model_without_routes():
    dense = SMLPBackbone(V, N, 1, 0, 8, 12)
    inputs = {name: ops.ones((1, N), "int32") for name in dense.input}
    with pytest.raises(ValueError, match="no layer that routes"):
        expert_load(dense, inputs)
