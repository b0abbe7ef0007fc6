import keras
import pytest

from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import MixerBackbone
from mlp_mixers.models import MixerImageClassifier
from tests.cases import gmlp_nano
from tests.cases import mixer_nano


def classifier_size(layers, d, t, e, classes=1000, n=196):
    """Parameters of a Mixer classifier at 224/16, by the paper's parts."""
    tokens = (n * t + t) + (t * n + n)
    channels = (d * e + e) + (e * d + d)
    block = 4 * d + tokens + channels
    return (768 * d + d) + layers * block + 2 * d + (d * classes + classes)


# The paper prints 18 and 59 million; these are the public models' sizes.
SIZES = {
    "mixer_small_224": ((8, 512, 256, 2048), 18_528_264),
    "mixer_base_224": ((12, 768, 384, 3072), 59_880_472),
}


@pytest.mark.parametrize("preset", SIZES)
def test_sizes(preset):
    sizes, expected = SIZES[preset]
    assert classifier_size(*sizes) == expected
    model = MixerImageClassifier.from_preset(
        preset, num_classes=1000, load_weights=False
    )
    assert model.count_params() == expected


def test_every_preset_has_the_size_it_states():
    assert set(SIZES) < set(MixerBackbone.presets)
    for name, preset in MixerBackbone.presets.items():
        backbone = MixerBackbone.from_preset(name, load_weights=False)
        assert backbone.count_params() == preset["parameters"], name


def test_the_small_one_is_as_large_as_the_gmlp():
    size = MixerBackbone.presets["mixer_cifar_nano"]["parameters"]
    gmlp = GMLPBackbone.presets["gmlp_cifar_nano"]["parameters"]
    assert abs(size / gmlp - 1) < 0.03


def test_has_the_attributes_of_a_backbone():
    backbone = mixer_nano()
    assert backbone.grid_shape == (2, 2)
    assert [block.name for block in backbone.blocks] == ["block_0", "block_1"]
    assert backbone.patch_embedding.name == "patch_embedding"
    assert backbone.output_norm.name == "output_norm"
    tap = keras.Model(backbone.input, backbone.blocks[0].output)
    assert tap.output_shape == (None, 4, 8)


def test_options_reach_every_block():
    backbone = mixer_nano(
        activation="relu",
        epsilon=1e-3,
        drop_path_rate=0.2,
        drop_path_schedule="linear",
        dtype="mixed_bfloat16",
    )
    for block, rate in zip(backbone.blocks, (0.0, 0.2)):
        assert block.token_intermediate_dim == 5
        assert block.intermediate_dim == 12
        assert block.token_norm.epsilon == 1e-3
        assert block.activation is keras.activations.relu
        for part in (block.token_drop_path, block.channel_drop_path):
            assert part.rate == rate
            assert part.dtype_policy.name == "mixed_bfloat16"
        assert block.output_dense.dtype_policy.name == "mixed_bfloat16"
    assert backbone.output_norm.epsilon == 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch_size": 3}, "whole patches"),
        ({"image_shape": (None, None, 3)}, "must be known"),
        ({"token_intermediate_dim": 0}, "`token_intermediate_dim` must be"),
        ({"drop_path_schedule": "cosine"}, "'constant' or 'linear'"),
        ({"data_format": "channels_first"}, "channels last"),
        ({"gate": "split"}, r"no argument \['gate'\]"),
    ],
)
def test_wrong_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        mixer_nano(**changes)


def test_takes_its_own_backbone_only():
    with pytest.raises(ValueError, match="must be a MixerBackbone"):
        MixerImageClassifier(gmlp_nano(), num_classes=3)
