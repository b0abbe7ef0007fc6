"""Weights from a hub's cache, and presets at another image size."""

import logging

import numpy as np
import pytest
from keras import ops

from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import ImageClassifier
from mlp_mixers.models import presets
from mlp_mixers.weights import export_checkpoint
from mlp_mixers.weights import resize_spatial_weights
from mlp_mixers.weights.files import write_arrays
from tests import golden
from tests.cases import gmlp_nano
from tests.cases import randomize

REPOSITORY = "timm/gmlp_made_up"
SIZES = {
    "image_shape": (32, 32, 3),
    "patch_size": 8,
    "num_layers": 3,
    "hidden_dim": 24,
    "intermediate_dim": 144,
}


@pytest.fixture
def preset(monkeypatch):
    """A built-in preset whose weights are on the hub."""
    entry = {
        "class_name": "GMLPBackbone",
        "config": SIZES,
        "weights": {"repository": REPOSITORY, "num_classes": 7},
    }
    monkeypatch.setitem(presets.PRESETS, "gmlp_public", entry)
    return "gmlp_public"


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """The hub's cache, empty, and no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def fill(cache, arrays):
    """Lays a repository into the cache as the hub's library does."""
    folder = cache / f"models--{REPOSITORY.replace('/', '--')}"
    commit = "0" * 40
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    write_arrays(snapshot / "model.safetensors", arrays)


def test_public_weights_from_the_cache(preset, cache):
    arrays, weights = golden.load("timm_gmlp_tiny")
    fill(cache, weights)
    model = GMLPImageClassifier.from_preset(preset)
    assert model.num_classes == 7
    np.testing.assert_allclose(
        model.predict(arrays["images_nhwc"], verbose=0),
        arrays["logits"],
        rtol=1e-4,
        atol=1e-4,
    )
    backbone = GMLPBackbone.from_preset(preset)
    features = ops.convert_to_numpy(backbone(arrays["images_nhwc"]))
    np.testing.assert_allclose(
        features,
        ops.convert_to_numpy(model.backbone(arrays["images_nhwc"])),
        rtol=1e-5,
        atol=1e-5,
    )


def test_other_classes_and_another_size(preset, cache, caplog):
    _, weights = golden.load("timm_gmlp_tiny")
    fill(cache, weights)
    with caplog.at_level(logging.WARNING, "mlp_mixers"):
        model = GMLPImageClassifier.from_preset(
            preset, num_classes=3, image_shape=(48, 48, 3)
        )
    assert model.output_shape == (None, 3)
    assert "resized from 4x4 to 6x6 patches" in caplog.text
    assert "head starts from random weights" in caplog.text
    np.testing.assert_allclose(
        ops.convert_to_numpy(
            model.backbone.blocks[0].gating_unit.spatial_kernel[0]
        ),
        resize_spatial_weights(
            weights["blocks.0.mlp_channels.gate.proj.weight"], (4, 4), (6, 6)
        ),
        rtol=1e-5,
        atol=1e-7,
    )


def test_no_network(preset, cache):
    with pytest.raises(ConnectionError) as error:
        GMLPImageClassifier.from_preset(preset)
    assert f"huggingface.co/{REPOSITORY}" in str(error.value)
    assert "load_checkpoint(model, path)" in str(error.value)
    assert "load_weights=False" in str(error.value)


@pytest.mark.slow
def test_gmlp_small_with_its_real_names_and_sizes(cache, monkeypatch):
    """Random weights under the names of the public file, through the cache."""
    monkeypatch.setattr(
        "tests.models.test_preset_weights.REPOSITORY",
        presets.PRESETS["gmlp_small_224"]["weights"]["repository"],
    )
    original = GMLPImageClassifier.from_preset(
        "gmlp_small_224", num_classes=1000, load_weights=False
    )
    fill(cache, export_checkpoint(original, "timm"))
    model = GMLPImageClassifier.from_preset("gmlp_small_224")
    assert model.count_params() == 19_422_656
    for a, b in zip(model.get_weights(), original.get_weights()):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("new_shape", [(8, 9, 3), (2, 3, 3)])
def test_a_folder_at_another_size(new_shape, rng, tmp_path, caplog):
    """Only what mixes tokens changes, and by the public function."""
    model = randomize(GMLPImageClassifier(gmlp_nano(), num_classes=3), rng)
    model.save_to_preset(tmp_path / "preset")
    new_grid = (new_shape[0] // 2, new_shape[1] // 3)
    with caplog.at_level(logging.WARNING, "mlp_mixers"):
        again = GMLPImageClassifier.from_preset(
            tmp_path / "preset", image_shape=new_shape
        )
    assert f"to {new_grid[0]}x{new_grid[1]} patches" in caplog.text
    assert again.backbone.image_shape == new_shape
    for new, old in zip(again.weights, model.weights):
        expected = ops.convert_to_numpy(old)
        if "spatial_kernel" in old.path:
            expected = resize_spatial_weights(expected, (2, 2), new_grid)
        elif "spatial_bias" in old.path:
            expected = resize_spatial_weights(
                expected, (2, 2), new_grid, output_axis=-1, input_axis=None
            )
        np.testing.assert_allclose(
            ops.convert_to_numpy(new), expected, rtol=1e-5, atol=1e-7
        )
    backbone = GMLPBackbone.from_preset(
        tmp_path / "preset", image_shape=new_shape
    )
    np.testing.assert_array_equal(
        backbone.get_weights()[4], again.backbone.get_weights()[4]
    )


def test_a_toeplitz_model_keeps_its_size(rng, tmp_path):
    model = gmlp_nano(toeplitz=True)
    model.save_to_preset(tmp_path / "preset")
    with pytest.raises(ValueError, match="does not fit the model"):
        GMLPBackbone.from_preset(tmp_path / "preset", image_shape=(8, 9, 3))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gmlp_digits_nano", "GMLPImageClassifier"),
        ("mixer_cifar_nano", "MixerImageClassifier"),
        ("resmlp_cifar_nano", "ResMLPImageClassifier"),
    ],
)
def test_the_preset_chooses_the_class(name, expected, tmp_path):
    model = ImageClassifier.from_preset(
        name, num_classes=2, num_layers=1, load_weights=False
    )
    assert type(model).__name__ == expected
    model.save_to_preset(tmp_path / "preset")
    again = ImageClassifier.from_preset(tmp_path / "preset")
    assert type(again).__name__ == expected
