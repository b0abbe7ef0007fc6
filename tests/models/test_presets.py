import json

import h5py
import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.models import Backbone
from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import ImageClassifier
from tests.cases import gmlp_nano
from tests.cases import randomize


@pytest.fixture
def saved(tmp_path, rng):
    """A classifier with random weights and the folder it is saved in."""
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    randomize(model, rng)
    model.save_to_preset(tmp_path / "preset")
    return model, tmp_path / "preset"


def features(backbone):
    x = np.random.default_rng(1).normal(size=(2, 4, 6, 3)).astype("float32")
    return ops.convert_to_numpy(backbone(x))


def test_folder_has_kerashubs_layout(saved):
    _, folder = saved
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "model.weights.h5",
        "task.json",
        "task.weights.h5",
        "metadata.json",
    }
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["keras_version"] == keras.__version__
    assert metadata["parameter_count"] == gmlp_nano().count_params()


def test_other_number_of_classes_keeps_the_backbone(saved, caplog):
    model, folder = saved
    other = GMLPImageClassifier.from_preset(folder, num_classes=5)
    assert other.output_shape == (None, 5)
    np.testing.assert_array_equal(
        features(other.backbone), features(model.backbone)
    )
    assert "has num_classes=3 and 5 was asked for" in caplog.text
    assert "random weights" in caplog.text


def test_same_number_of_classes_says_nothing(saved, caplog):
    _, folder = saved
    GMLPImageClassifier.from_preset(folder, num_classes=3)
    assert not caplog.text


def test_backbone_of_a_saved_classifier(saved):
    model, folder = saved
    backbone = Backbone.from_preset(folder)
    assert type(backbone) is GMLPBackbone
    np.testing.assert_array_equal(features(backbone), features(model.backbone))


def test_backbone_saved_over_a_classifier_leaves_no_old_head(saved, rng):
    _, folder = saved
    backbone = randomize(gmlp_nano(hidden_dim=4), rng)
    backbone.save_to_preset(folder)
    assert not (folder / "task.json").exists()
    with pytest.raises(ValueError, match="`num_classes` must be given"):
        GMLPImageClassifier.from_preset(folder)
    model = GMLPImageClassifier.from_preset(folder, num_classes=2)
    np.testing.assert_array_equal(features(model.backbone), features(backbone))


def test_arguments_reach_backbone_and_head(saved):
    _, folder = saved
    model = GMLPImageClassifier.from_preset(
        folder,
        drop_path_rate=0.3,
        dropout_rate=0.2,
        activation="softmax",
        dtype="mixed_bfloat16",
        name="mine",
    )
    assert model.backbone.drop_path_rate == 0.3
    assert model.head_dropout.rate == 0.2
    assert model.activation is keras.activations.softmax
    assert model.dtype_policy.name == "mixed_bfloat16"
    block = model.backbone.blocks[0]
    assert block.gating_unit.dtype_policy.name == "mixed_bfloat16"
    assert model.name == "mine"


def test_built_in_preset_needs_load_weights_false():
    with pytest.raises(
        ValueError, match="`load_weights=False`.*Presets with weights"
    ):
        GMLPImageClassifier.from_preset("gmlp_tiny_224", num_classes=10)


def test_unknown_preset_lists_and_suggests():
    with pytest.raises(
        ValueError, match="Did you mean 'gmlp_tiny_224'?.*gmlp_base_224"
    ):
        GMLPBackbone.from_preset("gmlp_tny_224")


def test_unknown_argument_lists_the_known():
    with pytest.raises(
        ValueError, match=r"no argument \['hiden_dim'\].*'gate'"
    ):
        GMLPImageClassifier.from_preset(
            "gmlp_digits_nano", num_classes=2, hiden_dim=3, load_weights=False
        )


def test_weights_that_do_not_fit(saved):
    _, folder = saved
    with pytest.raises(ValueError, match="do not fit.*hidden_dim.*Keras says"):
        GMLPImageClassifier.from_preset(folder, hidden_dim=4)
    model = GMLPImageClassifier.from_preset(
        folder, hidden_dim=4, load_weights=False
    )
    assert model.backbone.hidden_dim == 4


def test_missing_weights(saved):
    _, folder = saved
    (folder / "model.weights.h5").unlink()
    with pytest.raises(ValueError, match="model.weights.h5 does not exist"):
        GMLPBackbone.from_preset(folder)


def test_damaged_weights(saved):
    _, folder = saved
    path = folder / "model.weights.h5"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="do not fit a GMLPBackbone"):
        GMLPBackbone.from_preset(folder)


def test_folders_that_are_no_presets(tmp_path):
    with pytest.raises(ValueError, match="not a preset: it has no config.json"):
        GMLPBackbone.from_preset(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not a preset's description"):
        GMLPBackbone.from_preset(tmp_path)


def test_nothing_outside_the_package_is_loaded(saved):
    _, folder = saved
    path = folder / "config.json"
    description = json.loads(path.read_text())
    description["registered_name"] = "os>system"
    path.write_text(json.dumps(description))
    with pytest.raises(ValueError, match="registered_name='os>system'"):
        GMLPBackbone.from_preset(folder)


def test_preset_of_another_class(saved):
    _, folder = saved

    class OtherBackbone(Backbone):
        """A class that the preset is not of."""

    with pytest.raises(ValueError, match="call `from_preset` on GMLPBackbone"):
        OtherBackbone.from_preset(folder)


def test_a_class_of_the_users_own(tmp_path, rng):
    @keras.saving.register_keras_serializable(package="mine")
    class OwnBackbone(GMLPBackbone):
        """What a user derives."""

    backbone = randomize(OwnBackbone(**gmlp_nano_sizes()), rng)
    backbone.save_to_preset(tmp_path / "own")
    for cls in (OwnBackbone, GMLPBackbone, Backbone):
        again = cls.from_preset(tmp_path / "own")
        assert type(again) is OwnBackbone
        np.testing.assert_array_equal(features(again), features(backbone))


def gmlp_nano_sizes():
    config = gmlp_nano().get_config()
    names = ("image_shape", "patch_size", "num_layers", "hidden_dim")
    return {name: config[name] for name in (*names, "intermediate_dim")}


def test_an_interrupted_save_leaves_the_old_preset(saved, monkeypatch):
    model, folder = saved

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    other = GMLPImageClassifier(gmlp_nano(gate="linear"), num_classes=7)
    monkeypatch.setattr(other.backbone, "save_weights", interrupt)
    with pytest.raises(KeyboardInterrupt):
        other.save_to_preset(folder)
    again = GMLPImageClassifier.from_preset(folder)
    assert again.num_classes == 3
    np.testing.assert_array_equal(
        features(again.backbone), features(model.backbone)
    )
    assert len(list(folder.iterdir())) == 5


def test_what_is_no_name_and_no_folder(tmp_path):
    for preset in (None, 3):
        with pytest.raises(ValueError, match=f"Received: preset={preset}"):
            GMLPBackbone.from_preset(preset)
    path = tmp_path / "model.keras"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="opened by `keras.saving.load_model`"):
        GMLPBackbone.from_preset(path)


def test_a_file_in_the_way(tmp_path):
    path = tmp_path / "taken"
    path.write_text("precious")
    with pytest.raises(ValueError, match="a file is in its place"):
        gmlp_nano().save_to_preset(path)
    assert path.read_text() == "precious"


def test_presets_of_a_class():
    assert "gmlp_small_224" in GMLPBackbone.presets
    assert GMLPImageClassifier.presets == GMLPBackbone.presets
    assert set(GMLPBackbone.presets) <= set(ImageClassifier.presets)


def test_a_preset_has_no_optimizer_in_it(tmp_path, rng):
    """And the model that was saved trains on with its own."""
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    model.compile()
    images = rng.normal(size=(4, 4, 6, 3)).astype("float32")
    model.fit(images, np.array([0, 1, 2, 0]), epochs=2, verbose=0)
    optimizer = model.optimizer
    model.save_to_preset(tmp_path)
    assert model.optimizer is optimizer
    assert int(optimizer.iterations) == 2
    assert arrays_in(tmp_path / "task.weights.h5") == len(model.weights)
    assert arrays_in(tmp_path / "model.weights.h5") == len(
        model.backbone.weights
    )
    model.fit(images, np.array([0, 1, 2, 0]), verbose=0)
    assert int(optimizer.iterations) == 3


def arrays_in(path):
    """How many arrays a file of weights holds."""
    found = []

    def note(_, item):
        if isinstance(item, h5py.Dataset):
            found.append(item)

    with h5py.File(path) as file:
        file.visititems(note)
    return len(found)


def test_a_preset_of_another_family_names_the_class_for_it():
    with pytest.raises(ValueError, match="on MixerImageClassifier"):
        GMLPImageClassifier.from_preset("mixer_base_224", load_weights=False)
