"""`recipes.vision` on the digits: train, options, start, what goes wrong."""

import json

import keras
import numpy as np
import pytest

from mlp_mixers import data
from recipes import vision
from recipes.vision_settings import Config
from recipes.vision_settings import Model
from recipes.vision_settings import Training
from tests.recipes.commands import command


def test_the_default_run_reads_digits(tmp_path):
    """The quick start: real digits, at least 95% of the test images right."""
    run = command("--out", str(tmp_path / "run"))
    assert run.returncode == 0, run.stderr
    folder = tmp_path / "run"
    results = json.loads((folder / "results.json").read_text())
    assert results["test_accuracy"] >= 0.95
    assert f"{results['test_accuracy']:.4f}" in run.stdout

    # The saved model is the one that was measured.
    model = keras.saving.load_model(folder / "model.keras")
    images, labels = data.load_digits().test
    predicted = model.predict(images, verbose=0).argmax(-1)
    assert (predicted == labels).mean() == pytest.approx(
        results["test_accuracy"]
    )
    scores = model.evaluate(images, labels, verbose=0, return_dict=True)
    assert scores["accuracy"] == pytest.approx(results["test_accuracy"])
    history = json.loads((folder / "history.json").read_text())
    assert len(history["val_accuracy"]) == results["epochs"] == 60
    config = json.loads((folder / "config.json").read_text())
    assert config["built"]["hidden_dim"] == 64
    for picture in ("learning_curves.png", "spatial_filters.png"):
        assert (folder / picture).stat().st_size > 10_000
    assert not (folder / "checkpoint").exists()


def test_options_reach_the_model(tmp_path):
    settings = Config(
        model=Model(
            preset="amlp_digits_nano", num_layers=1, hidden_dim=8, gate="split"
        ),
        training=Training(epochs=1, batch_size=500),
        out=tmp_path / "run",
    )
    results = vision.main(settings)
    model = keras.saving.load_model(tmp_path / "run" / "model.keras")
    assert model.backbone.num_layers == 1
    assert model.backbone.hidden_dim == 8
    assert model.backbone.attention_dim == 16
    assert model.count_params() == results["parameters"]


@pytest.mark.parametrize("preset", ["mixer_cifar_nano", "resmlp_cifar_nano"])
def test_other_families(preset, tmp_path):
    """A Mixer has no spatial filters to draw."""
    settings = Config(
        model=Model(preset, patch_size=2, num_layers=1, hidden_dim=8),
        training=Training(epochs=1, batch_size=500),
        out=tmp_path / "run",
    )
    vision.main(settings)
    filters = tmp_path / "run" / "spatial_filters.png"
    assert filters.exists() == (preset != "mixer_cifar_nano")


def test_help_names_every_option():
    run = command("--help")
    assert run.returncode == 0
    for option in (
        *("--preset", "--num-layers", "--epochs", "--seed", "--out"),
        *("--from", "--freeze", "--data", "--recipe", "--resume"),
        *("--evaluate", "--predict", "--image-size", "--policy", "--ema"),
    ):
        assert option in run.stdout


def test_the_same_seed_gives_the_same_start_and_order():
    """Two builds with one seed agree, another seed does not."""
    split = data.load_digits()
    weights = []
    for seed in (0, 0, 1):
        keras.utils.set_random_seed(seed)
        model, _ = vision.build(Config(), split)
        weights.append(model.get_weights()[0])
    np.testing.assert_array_equal(weights[0], weights[1])
    assert (weights[0] != weights[2]).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"warmup_fraction": 1.0}, "warmup_fraction=1.0"),
        ({"max_shift": -1}, "max_shift=-1"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ({"ema": 1.0}, "ema=1.0"),
        ({"erase": 1.5}, "erase=1.5"),
    ],
)
def test_wrong_settings_before_anything_is_written(changes, message, tmp_path):
    settings = Config(training=Training(**changes), out=tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        vision.main(settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--patch-size", "3"), "The image must divide into whole patches"),
        (("--data", "cifar10"), "Did you mean tfds:cifar10?"),
        (("--channels", "1"), "--channels is for data of the kind folder"),
        (("--from", "nowhere"), "There is no model of this name"),
        (("--predict", "a.png"), "--from runs/vision"),
        (("--freeze",), "name one with --from"),
        (("--predict", "--from", "gmlp_digits_nano"), "no public weights"),
        (("--evaluate", "a", "--from", "b"), "give it without --from"),
        (("--from", "a", "--preset", "gmlp_digits_nano"), "without --preset"),
        (("--policy", "autoaugment"), "8-bit"),
        (("--workers", "-1"), "workers=-1"),
    ],
)
def test_what_cannot_be_ends_in_one_line(
    arguments, message, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    monkeypatch.setattr("sys.argv", ["vision", *arguments, "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        vision.cli()
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)
    assert not out.exists()


def test_loss_that_explodes_is_said(tmp_path):
    settings = Config(
        model=Model(num_layers=1),
        training=Training(
            epochs=2, learning_rate=1e30, warmup_fraction=0, clip_norm=0
        ),
        out=tmp_path / "run",
    )
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        vision.main(settings)


def test_the_papers_recipe_is_the_papers():
    """Pay Attention to MLPs, Table 7."""
    recipe = vision.resolve(Training(recipe="imagenet"))
    assert (recipe.epochs, recipe.batch_size) == (300, 4096)
    assert (recipe.learning_rate, recipe.weight_decay) == (1e-3, 0.05)
    assert (recipe.epsilon, recipe.clip_norm) == (1e-6, 1.0)
    assert recipe.label_smoothing == 0.1
    assert recipe.policy == "autoaugment"
    assert (recipe.mixup, recipe.cutmix, recipe.cutmix_rate) == (0.8, 1, 0.5)
    assert (recipe.erase, recipe.ema) == (0, 0)
    steps = 300 * (1_281_167 // 4096)
    assert steps * recipe.warmup_fraction == pytest.approx(10_000, rel=0.01)
    optimizer = vision.optimizer(recipe, 100)
    assert optimizer.beta_1 == 0.9
    assert optimizer.beta_2 == 0.999
    assert optimizer.global_clipnorm == 1.0
    # Explicit settings win over the recipe's.
    assert vision.resolve(Training("imagenet", epochs=3)).epochs == 3


@pytest.mark.parametrize(("batch_size", "notes"), [(500, 1), (32, 0)])
def test_an_epoch_of_few_steps_is_said(batch_size, notes):
    training = Training(epochs=1, batch_size=batch_size)
    prepared = vision.prepare(
        Config(model=Model(num_layers=1), training=training)
    )
    assert len(vision.few_steps(prepared)) == notes


def test_many_predictions_get_a_line_each(capsys):
    vision.show_predictions([(f"{i}.png", [("cat", 0.9)]) for i in range(9)])
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if "cat" in line]
    assert len(lines) == 9
    assert "3.png" in lines[3]
