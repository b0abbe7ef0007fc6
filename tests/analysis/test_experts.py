"""Loads of experts against counts by hand."""

import numpy as np
import pytest
from keras import ops

from mlp_mixers.analysis import expert_load
from mlp_mixers.analysis import plot_expert_load
from mlp_mixers.data import Tokenizer
from mlp_mixers.data.streams import CausalLMBatches
from mlp_mixers.data.streams import stream_documents
from mlp_mixers.models import SMLPBackbone
from mlp_mixers.models import SMLPCausalLM

V, N, E = 12, 6, 3
TEXTS = ["the cat sat on the mat", "a dog"] * 3


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


@pytest.fixture(scope="module")
def reader():
    """A language model whose tables are known: token t to expert t mod E."""
    tokenizer = Tokenizer.train(TEXTS, 270)
    model = SMLPCausalLM(
        SMLPBackbone(270, N, 0, 1, 8, 12, num_experts=E, router="hash"),
        tokenizer=tokenizer,
    )
    experts = model.backbone.blocks[0].token_experts
    experts.router.table.assign(np.arange(270) % E)
    return model


def shares_of(ids):
    return np.bincount(np.asarray(ids) % E, minlength=E) / len(ids)


def test_loads_of_documents(reader):
    ids = []
    for text in TEXTS:
        encoded = reader.tokenizer.encode([f" {text}"])[0].ids
        ids += [reader.tokenizer.cls_id, *encoded, reader.tokenizer.sep_id]
    rows = -(-(len(ids) - 1) // N)  # the last token may follow a full row
    expected = shares_of(ids[: rows * N])
    (load,) = expert_load(reader, TEXTS).values()
    np.testing.assert_allclose(load, expected)
    stream = stream_documents(TEXTS, reader.tokenizer, N)
    batches = CausalLMBatches(stream, reader.tokenizer.pad_id, 32)
    (load,) = expert_load(reader, batches).values()
    np.testing.assert_allclose(load, expected)


def test_loads_of_token_ids(reader, rng):
    ids = rng.integers(0, 270, (4, N))
    expected = shares_of(ids.ravel())
    for given in (ids, ops.convert_to_tensor(ids, "int32"), ids.tolist()):
        (load,) = expert_load(reader, given, batch_size=4).values()
        np.testing.assert_allclose(load, expected)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("a cat", "documents as a list"),
        ([], "nothing to route.*inputs=\\[\\]"),
        (np.zeros((0, N), int), "nothing to route"),
        ([[1, 2], [3]], "of one length"),
        ([[1, 270]], "id 270 at index 0, 1"),
        ([[1] * (N + 1)], r"no longer than the 6 tokens"),
        (["a", None], "number 1 is None"),
    ],
)
def test_inputs_that_have_no_load(reader, inputs, message):
    with pytest.raises(ValueError, match=message):
        expert_load(reader, inputs)


def test_documents_need_a_tokenizer(reader):
    for model in (reader.backbone, SMLPCausalLM(reader.backbone)):
        with pytest.raises(ValueError, match="no tokenizer"):
            expert_load(model, TEXTS)
    with pytest.raises(ValueError, match="batch_size"):
        expert_load(reader, TEXTS, batch_size=0)


def test_a_model_without_routes():
    dense = SMLPBackbone(V, N, 1, 0, 8, 12)
    inputs = {name: ops.ones((1, N), "int32") for name in dense.input}
    with pytest.raises(ValueError, match="no layer that routes"):
        expert_load(dense, inputs)
