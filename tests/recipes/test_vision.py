import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from mlp_mixers import data
from recipes import vision

ROOT = pathlib.Path(__file__).parents[2]


def command(*arguments):
    """Runs the recipe as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "recipes.vision", *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "KERAS_BACKEND": keras.backend.backend(),
            "COLUMNS": "100",
        },
        capture_output=True,
        text=True,
    )


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
    history = json.loads((folder / "history.json").read_text())
    assert len(history["val_accuracy"]) == results["epochs"] == 60
    config = json.loads((folder / "config.json").read_text())
    assert config["model"]["preset"] == "gmlp_digits_nano"
    assert config["built"]["hidden_dim"] == 64
    for picture in ("learning_curves.png", "spatial_filters.png"):
        assert (folder / picture).stat().st_size > 10_000


def test_options_reach_the_model(tmp_path):
    settings = vision.Config(
        model=vision.Model(
            preset="amlp_digits_nano", num_layers=1, hidden_dim=8, gate="split"
        ),
        training=vision.Training(epochs=1, batch_size=500),
        out=tmp_path / "run",
    )
    results = vision.main(settings)
    model = keras.saving.load_model(tmp_path / "run" / "model.keras")
    assert model.backbone.num_layers == 1
    assert model.backbone.hidden_dim == 8
    assert model.backbone.attention_dim == 16
    assert model.count_params() == results["parameters"]


def test_help_names_every_option():
    run = command("--help")
    assert run.returncode == 0
    for option in ("--preset", "--num-layers", "--epochs", "--seed", "--out"):
        assert option in run.stdout


def test_the_same_seed_gives_the_same_start_and_order():
    """Two builds with one seed agree, another seed does not."""
    split = data.load_digits()
    weights = []
    for seed in (0, 0, 1):
        keras.utils.set_random_seed(seed)
        model = vision.build(vision.Model(), split)
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
    ],
)
def test_wrong_settings_before_anything_is_written(changes, message, tmp_path):
    settings = vision.Config(
        training=vision.Training(**changes), out=tmp_path / "run"
    )
    with pytest.raises(ValueError, match=message):
        vision.main(settings)
    assert not (tmp_path / "run").exists()


def test_wrong_sizes_end_in_one_line(tmp_path):
    run = command("--patch-size", "3", "--out", str(tmp_path))
    assert run.returncode == 1
    assert "error: The image must divide into whole patches" in run.stderr
    assert "Traceback" not in run.stderr


def test_loss_that_explodes_is_said(tmp_path):
    settings = vision.Config(
        model=vision.Model(num_layers=1),
        training=vision.Training(
            epochs=2, learning_rate=1e30, warmup_fraction=0, clip_norm=0
        ),
        out=tmp_path / "run",
    )
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        vision.main(settings)
