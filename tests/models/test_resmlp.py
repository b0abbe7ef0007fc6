import keras
import numpy as np
import pytest

from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import ResMLPBackbone
from mlp_mixers.models import ResMLPImageClassifier
from tests.cases import gmlp_nano
from tests.cases import resmlp_nano


def classifier_size(layers, d=384, e=1536, classes=1000, n=196):
    """Parameters of a ResMLP classifier at 224/16, by the paper's parts."""
    channels = (d * e + e) + (e * d + d)
    block = 4 * d + (n * n + n) + 2 * d + channels
    return (768 * d + d) + layers * block + 2 * d + (d * classes + classes)


# The paper prints 15, 30 and 45 million; these are the public models' sizes.
SIZES = {
    "resmlp_12_224": (12, 15_350_872),
    "resmlp_24_224": (24, 30_020_680),
    "resmlp_36_224": (36, 44_690_488),
}


@pytest.mark.parametrize("preset", SIZES)
def test_sizes(preset):
    num_layers, expected = SIZES[preset]
    assert classifier_size(num_layers) == expected
    model = ResMLPImageClassifier.from_preset(
        preset, num_classes=1000, load_weights=False
    )
    assert model.count_params() == expected


def test_every_preset_has_the_size_it_states():
    assert set(SIZES) < set(ResMLPBackbone.presets)
    for name, preset in ResMLPBackbone.presets.items():
        backbone = ResMLPBackbone.from_preset(name, load_weights=False)
        assert backbone.count_params() == preset["parameters"], name


def test_the_small_one_is_as_large_as_the_gmlp():
    size = ResMLPBackbone.presets["resmlp_cifar_nano"]["parameters"]
    gmlp = GMLPBackbone.presets["gmlp_cifar_nano"]["parameters"]
    assert abs(size / gmlp - 1) < 0.03


def test_has_the_attributes_of_a_backbone():
    backbone = resmlp_nano()
    assert backbone.grid_shape == (2, 2)
    assert [block.name for block in backbone.blocks] == ["block_0", "block_1"]
    assert backbone.patch_embedding.name == "patch_embedding"
    assert backbone.output_norm.name == "output_norm"
    tap = keras.Model(backbone.input, backbone.blocks[0].output)
    assert tap.output_shape == (None, 4, 8)


@pytest.mark.parametrize(
    ("num_layers", "expected"),
    [(1, 0.1), (12, 0.1), (18, 0.1), (19, 1e-5), (24, 1e-5), (25, 1e-6)],
)
def test_scales_start_by_depth(num_layers, expected):
    backbone = resmlp_nano(num_layers=num_layers)
    for block in (backbone.blocks[0], backbone.blocks[-1]):
        for scale in (block.token_scale, block.channel_scale):
            np.testing.assert_allclose(scale.get_weights(), [[expected] * 8])


def test_another_depth_chooses_again():
    backbone = ResMLPBackbone.from_preset(
        "resmlp_36_224", load_weights=False, num_layers=2, hidden_dim=8
    )
    assert backbone.layer_scale_init is None
    assert backbone.blocks[0].layer_scale_init == 0.1


def test_options_reach_every_block():
    backbone = resmlp_nano(
        activation="relu",
        layer_scale_init=0.25,
        drop_path_rate=0.2,
        drop_path_schedule="linear",
        dtype="mixed_bfloat16",
    )
    assert backbone.layer_scale_init == 0.25
    for block, rate in zip(backbone.blocks, (0.0, 0.2)):
        assert block.intermediate_dense.activation is keras.activations.relu
        assert block.layer_scale_init == 0.25
        for part in (block.token_drop_path, block.channel_drop_path):
            assert part.rate == rate
            assert part.dtype_policy.name == "mixed_bfloat16"
        assert block.spatial_projection.dtype_policy.name == "mixed_bfloat16"


def test_there_is_no_normalisation():
    def parts(layer):
        return [layer, *(p for child in layer._layers for p in parts(child))]

    names = [type(part).__name__ for part in parts(resmlp_nano())]
    assert names.count("Affine") == 2 * 2 + 1
    assert not [name for name in names if "Norm" in name]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch_size": 3}, "whole patches"),
        ({"image_shape": (None, None, 3)}, "must be known"),
        ({"layer_scale_init": 0}, "must be a positive number"),
        ({"drop_path_schedule": "cosine"}, "'constant' or 'linear'"),
        ({"data_format": "channels_first"}, "channels last"),
        ({"epsilon": 1e-6}, r"no argument \['epsilon'\]"),
    ],
)
def test_wrong_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        resmlp_nano(**changes)


def test_takes_its_own_backbone_only():
    with pytest.raises(ValueError, match="must be a ResMLPBackbone"):
        ResMLPImageClassifier(gmlp_nano(), num_classes=3)
