import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.analysis import spatial_weights
from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers import ResMLPBlock
from mlp_mixers.layers import SpatialGatingUnit
from mlp_mixers.layers import SpatialProjection
from mlp_mixers.models import GMLPImageClassifier
from tests.cases import gmlp_nano
from tests.cases import mixer_nano
from tests.cases import randomize
from tests.cases import resmlp_nano


def test_one_matrix_for_each_block_in_order(rng):
    model = randomize(GMLPImageClassifier(gmlp_nano(), num_classes=3), rng)
    weights = spatial_weights(model)
    assert list(weights) == ["block_0", "block_1"]
    for name, block in zip(weights, model.backbone.blocks):
        np.testing.assert_array_equal(
            weights[name],
            ops.convert_to_numpy(block.gating_unit.spatial_kernel),
        )


def test_are_the_weights_that_multiply(rng):
    """A linear gate fed with unit vectors spells out its matrix."""
    unit = SpatialGatingUnit(
        gate="linear", toeplitz=True, causal=True, name="unit"
    )
    unit.build((None, 4, 4))
    randomize(unit, rng)
    w = spatial_weights(unit)["unit"][0]
    assert w.shape == (4, 4)
    assert not np.triu(w, 1).any()
    x = rng.normal(size=(1, 4, 4)).astype("float32")
    normed = ops.convert_to_numpy(unit.norm(x))
    bias = ops.convert_to_numpy(unit.spatial_bias)[0][:, None]
    np.testing.assert_allclose(
        ops.convert_to_numpy(unit(x))[0],
        w @ normed[0] + bias,
        rtol=1e-4,
        atol=1e-5,
    )


def test_blocks_of_the_same_name_are_kept_apart():
    inputs = keras.Input((4, 6, 3))
    outputs = [gmlp_nano(name=name)(inputs) for name in ("left", "right")]
    weights = spatial_weights(keras.Model(inputs, outputs))
    assert len(weights) == 4


def test_finds_units_in_models_of_any_kind():
    model = keras.Sequential([keras.Input((4, 8)), GMLPBlock(12, name="mine")])
    assert list(spatial_weights(model)) == ["mine"]


def test_units_outside_of_blocks_have_their_own_names():
    units = [SpatialGatingUnit(name=name) for name in ("a", "b")]
    model = keras.Sequential([keras.Input((4, 8)), *units])
    assert list(spatial_weights(model)) == ["a", "b"]


def test_reads_resmlp_too(rng):
    model = randomize(resmlp_nano(), rng)
    weights = spatial_weights(model)
    assert list(weights) == ["block_0", "block_1"]
    for name, block in zip(weights, model.blocks):
        np.testing.assert_array_equal(
            weights[name], block.spatial_projection.get_weights()[0]
        )


def test_projections_outside_of_blocks_have_their_own_names():
    model = keras.Sequential([keras.Input((4, 8)), SpatialProjection(name="p")])
    assert spatial_weights(model)["p"].shape == (1, 4, 4)


@pytest.mark.parametrize("block", [GMLPBlock, ResMLPBlock])
def test_a_model_that_is_not_built(block):
    with pytest.raises(ValueError, match="no weights yet: build it"):
        spatial_weights(block(12))


def test_a_mixer_has_no_one_matrix():
    with pytest.raises(ValueError, match="no `SpatialProjection`.*one matrix"):
        spatial_weights(mixer_nano())


def test_a_model_without_gating_units():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="no `SpatialGatingUnit`"):
        spatial_weights(model)
