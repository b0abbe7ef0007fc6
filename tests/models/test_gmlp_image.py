import keras
import numpy as np
import pytest

from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import ImageClassifier
from mlp_mixers.models.drop_path import drop_path_rates
from tests.cases import gmlp_nano


def classifier_size(layers, d, f, classes=1000, n=196):
    """Parameters of a gMLP classifier at 224/16, by the paper's parts."""
    block = (d * f + f) + (f // 2 * d + d) + 2 * d + f + n * n + n
    return (768 * d + d) + layers * block + 2 * d + (d * classes + classes)


SIZES = {
    "gmlp_tiny_224": ((30, 128, 768), 5_867_328),
    "gmlp_small_224": ((30, 256, 1536), 19_422_656),
    "gmlp_base_224": ((30, 512, 3072), 73_075_392),
}


@pytest.mark.parametrize("preset", SIZES)
def test_sizes_by_arithmetic(preset):
    sizes, expected = SIZES[preset]
    assert classifier_size(*sizes) == expected
    config = GMLPBackbone.presets[preset]["config"]
    assert sizes == (
        config["num_layers"],
        config["hidden_dim"],
        config["intermediate_dim"],
    )


@pytest.mark.parametrize("preset", SIZES)
def test_sizes_of_real_builds(preset):
    model = GMLPImageClassifier.from_preset(
        preset, num_classes=1000, load_weights=False
    )
    assert model.count_params() == SIZES[preset][1]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        # n = 4 tokens, 2 blocks: n² - (2n - 1) values fewer in each
        ({"toeplitz": True}, -2 * (16 - 7)),
        # another n² + n for the second head
        ({"num_heads": 2}, 2 * (16 + 4)),
        # d·3a + 3a + a·(e/2) + e/2
        ({"attention_dim": 4}, 2 * (8 * 12 + 12 + 4 * 6 + 6)),
        # V reads e instead of e/2, and e instead of e/2 are normalised
        ({"gate": "linear"}, 2 * (6 * 8 + 12)),
    ],
)
def test_options_cost_what_they_should(changes, difference):
    assert (
        gmlp_nano(**changes).count_params()
        == gmlp_nano().count_params() + difference
    )


def test_every_preset_has_the_size_it_states():
    for name, preset in GMLPBackbone.presets.items():
        backbone = GMLPBackbone.from_preset(name, load_weights=False)
        assert backbone.count_params() == preset["parameters"], name


def test_options_reach_every_block():
    backbone = gmlp_nano(
        attention_dim=4,
        num_heads=2,
        toeplitz=True,
        activation="relu",
        epsilon=1e-3,
        gate_epsilon=1e-2,
        drop_path_rate=0.2,
        drop_path_schedule="linear",
        dtype="mixed_bfloat16",
    )
    for block, rate in zip(backbone.blocks, (0.0, 0.2)):
        unit = block.gating_unit
        assert block.attention.attention_dim == 4
        assert (unit.num_heads, unit.toeplitz, unit.epsilon) == (2, True, 1e-2)
        assert block.norm.epsilon == 1e-3
        assert block.intermediate_dense.activation is keras.activations.relu
        assert block.drop_path.rate == rate
        assert block.drop_path.dtype_policy.name == "mixed_bfloat16"
        assert unit.norm.dtype_policy.name == "mixed_bfloat16"
    assert backbone.output_norm.epsilon == 1e-3


def test_blocks_start_differently_with_one_initializer():
    backbone = gmlp_nano(
        kernel_initializer=keras.initializers.RandomNormal(stddev=1.0)
    )
    first, second = (
        keras.ops.convert_to_numpy(block.gating_unit.spatial_kernel)
        for block in backbone.blocks
    )
    assert abs(first - second).max() > 0.1


def test_black_images_have_ordinary_gradients():
    """A token of zeros would multiply slopes of 1/√ε from block to block."""
    model = GMLPImageClassifier(
        gmlp_nano(num_layers=16, hidden_dim=16, intermediate_dim=96), 3
    )
    before = model.get_weights()
    # A step of plain SGD at rate 1 moves a weight by its gradient.
    model.compile(keras.optimizers.SGD(1.0))
    model.fit(np.zeros((4, 4, 6, 3)), np.arange(4) % 3, verbose=0)
    gradients = [a - b for a, b in zip(before, model.get_weights())]
    assert max(abs(g).max() for g in gradients) < 10
    assert all(np.isfinite(g).all() for g in gradients)


def test_drop_path_rates():
    assert drop_path_rates(0.2, 3) == [0.2, 0.2, 0.2]
    np.testing.assert_allclose(drop_path_rates(0.2, 3, "linear"), [0, 0.1, 0.2])
    assert drop_path_rates(0.2, 1, "linear") == [0.2]
    with pytest.raises(ValueError, match="drop_path_schedule='cosine'"):
        drop_path_rates(0.2, 3, "cosine")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_shape": (5, 6, 3)}, "divide into whole patches"),
        ({"image_shape": (None, None, 3)}, "resize or crop"),
        ({"image_shape": (4, 6)}, "must be .height, width, channels"),
        ({"image_shape": 8}, "image_shape=8"),
        ({"image_shape": (0, 6, 3)}, "image_shape.*=0"),
        ({"image_shape": (4.0, 6, 3)}, "image_shape.*=4.0"),
        ({"toeplitz": "no"}, "toeplitz='no'"),
        ({"epsilon": -1}, "epsilon=-1"),
        ({"attention_dimm": 4}, r"no argument \['attention_dimm'\]"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"hidden_dim": 0}, "hidden_dim=0"),
        ({"intermediate_dim": 7}, "halves"),
        ({"gate": "none"}, "gate='none'"),
        ({"drop_path_rate": 1.0}, "drop_path_rate=1.0"),
        ({"drop_path_rate": "0.1"}, "drop_path_rate='0.1'"),
        ({"data_format": "channels_first"}, "channels last"),
    ],
)
def test_wrong_sizes(changes, message):
    with pytest.raises(ValueError, match=message):
        gmlp_nano(**changes)


def test_wrong_task_arguments():
    with pytest.raises(ValueError, match="must be a GMLPBackbone"):
        GMLPImageClassifier(keras.Sequential(), num_classes=3)
    for num_classes in (0, 2.5, "3"):
        with pytest.raises(ValueError, match="num_classes="):
            GMLPImageClassifier(gmlp_nano(), num_classes=num_classes)
    with pytest.raises(ValueError, match=r"no argument \['dropout'\]"):
        GMLPImageClassifier(gmlp_nano(), num_classes=3, dropout=0.5)


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match="incompatible"):
        GMLPImageClassifier(gmlp_nano(), num_classes=3).predict(
            np.zeros((1, 8, 12, 3)), verbose=0
        )


def test_compile_without_arguments_trains(rng):
    images = rng.normal(size=(6, 4, 6, 3)).astype("float32")
    labels = np.arange(6) % 3
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    model.compile()
    # Enough steps to learn six images by heart.
    history = model.fit(images, labels, epochs=200, verbose=0).history
    assert history["accuracy"][-1] == 1
    assert history["loss"][-1] < 0.1
    assert model.loss.get_config()["from_logits"]


def test_probabilities_on_request(rng):
    images = rng.normal(size=(6, 4, 6, 3)).astype("float32")
    model = GMLPImageClassifier(
        gmlp_nano(), num_classes=3, activation="softmax"
    )
    np.testing.assert_allclose(
        model.predict(images, verbose=0).sum(-1), 1, rtol=1e-5
    )
    model.compile()
    assert not model.loss.get_config()["from_logits"]


@pytest.mark.parametrize(
    "arguments",
    [{"num_classes": 1}, {"num_classes": 3, "activation": "log_softmax"}],
)
def test_no_default_loss_where_it_would_be_wrong(arguments):
    model = GMLPImageClassifier(gmlp_nano(), **arguments)
    with pytest.raises(ValueError, match="Pass `loss=`. Received"):
        model.compile()
    model.compile(loss="mse")


def test_channels_last_by_name_whatever_keras_is_set_to(rng):
    images = rng.normal(size=(2, 4, 6, 3)).astype("float32")
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    expected = model.predict(images, verbose=0)
    config = model.get_config()
    keras.config.set_image_data_format("channels_first")
    again = GMLPImageClassifier.from_config(config)
    again.set_weights(model.get_weights())
    np.testing.assert_allclose(
        again.predict(images, verbose=0), expected, rtol=1e-5, atol=1e-6
    )


def freeze_a_block(model):
    model.backbone.blocks[0].trainable = False


def freeze_a_unit(model):
    model.backbone.blocks[1].gating_unit.trainable = False


def freeze_the_backbone(model):
    model.backbone.trainable = False


def freeze_all(model):
    model.trainable = False


@pytest.mark.parametrize(
    "freeze", [freeze_a_block, freeze_a_unit, freeze_the_backbone, freeze_all]
)
def test_frozen_layers_stay_frozen(freeze, tmp_path):
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    freeze(model)
    expected = [w.path.split("/")[-2:] for w in model.trainable_weights]
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    for again in (
        keras.saving.load_model(tmp_path / "model.keras"),
        GMLPImageClassifier.from_preset(tmp_path / "preset"),
    ):
        found = [w.path.split("/")[-2:] for w in again.trainable_weights]
        assert found == expected


def test_trainable_false_reaches_the_layers():
    backbone = gmlp_nano(trainable=False)
    for model in (
        backbone,
        GMLPImageClassifier(gmlp_nano(), num_classes=3, trainable=False),
    ):
        assert not any(v.trainable for v in model.variables)
    assert len(GMLPImageClassifier(backbone, 3).trainable_weights) == 2


def test_numbers_from_numpy_are_taken(tmp_path):
    backbone = gmlp_nano(
        image_shape=[np.int64(4), np.int64(6), np.int64(3)],
        hidden_dim=np.int64(8),
        drop_path_rate=np.float32(0.5),
    )
    model = GMLPImageClassifier(backbone, num_classes=np.int32(3))
    model.save_to_preset(tmp_path / "preset")
    again = GMLPImageClassifier.from_preset(tmp_path / "preset")
    assert again.get_config() == model.get_config()


def test_a_saved_model_goes_on_training_where_it_was(tmp_path, rng):
    """Optimiser state, settings and step survive; the next step is equal."""
    images = rng.normal(size=(6, 4, 6, 3)).astype("float32")
    labels = np.arange(6) % 3
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    model.compile()
    model.fit(images, labels, epochs=2, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.optimizer.not_decayed == model.optimizer.not_decayed
    for m in (model, again):
        m.fit(images, labels, epochs=1, shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), again.get_weights()):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("asked", ["auto", False])
def test_whether_steps_are_compiled_is_decided_where_they_run(asked, tmp_path):
    """The file keeps what was asked for, not what it came to here."""
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    model.compile("sgd", jit_compile=asked)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_compile_config()["jit_compile"] == asked
    assert again.jit_compile == model.jit_compile


def test_the_optimizer_is_built_before_the_step_is_traced():
    """Its variables would be made while TensorFlow traces, twice, otherwise."""
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    model.compile()
    assert not model.optimizer.built  # a model that is only used needs none
    model.make_train_function()
    slots = 2 * len(model.trainable_variables)
    assert len(model.optimizer.variables) >= slots


def test_base_class_finds_the_right_one(tmp_path):
    model = GMLPImageClassifier(gmlp_nano(), num_classes=3)
    model.save_to_preset(tmp_path / "p")
    again = ImageClassifier.from_preset(tmp_path / "p")
    assert type(again) is GMLPImageClassifier
