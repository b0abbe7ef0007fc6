"""`recipes.vision` from raw pictures to predictions, stopped and gone on."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from mlp_mixers import weights
from recipes import vision
from recipes.vision_settings import Config
from recipes.vision_settings import Data
from recipes.vision_settings import Model
from recipes.vision_settings import Training
from tests.recipes.commands import ROOT
from tests.recipes.commands import command
from tests.recipes.commands import environment
from tests.recipes.commands import interrupt_after
from tests.recipes.commands import saved_weights
from tests.recipes.commands import write_pictures

SMALL = {"num_layers": 1, "hidden_dim": 8, "intermediate_dim": 16}
QUICK = {"epochs": 2, "batch_size": 8}


@pytest.fixture
def pictures(tmp_path):
    folder = write_pictures(tmp_path / "pictures")
    (folder / "above" / "broken.png").write_bytes(b"no picture")
    return folder


def trained(pictures, out, **training):
    """A small model that knows the two classes."""
    settings = {"learning_rate": 0.02, "flip": True, **QUICK, **training}
    return Config(
        model=Model(image_size=(12, 16), **SMALL),
        data=Data(f"folder:{pictures}"),
        training=Training("cifar", **settings),
        out=out,
    )


def test_pictures_to_predictions(pictures, tmp_path, capsys, caplog):
    out = tmp_path / "run"
    results = vision.main(trained(pictures, out, epochs=6))
    assert results["test_accuracy"] == 1.0
    assert "1 file could not be read" in capsys.readouterr().out

    scores = vision.main(Config(evaluate=str(out)))
    assert scores["test_accuracy"] == 1.0
    assert scores["accuracy_by_class"] == {"above": 1.0, "below": 1.0}
    assert scores["test_loss"] == pytest.approx(results["test_loss"], rel=1e-4)

    # At another size, spatial weights and images are resized.
    scores = vision.main(
        Config(model=Model(image_size=(16, 16)), evaluate=str(out))
    )
    assert scores["test_accuracy"] == 1.0
    assert "resized from 3x4 to 4x4 patches" in caplog.text

    # Other pictures of the same kinds, of another size.
    others = write_pictures(tmp_path / "others", 3, (30, 41), seed=1)
    again = Config(evaluate=str(out), data=Data(f"folder:{others}"))
    scores = vision.main(again)
    assert scores["test_images"] == 2

    run = command(
        *("--from", out, "--predict"),
        *(others / "below" / "0 ä.png", pictures / "above" / "broken.png"),
    )
    assert run.returncode == 1  # one of the two could not be read
    assert "error: 1 of 2 images could not be read" in run.stderr
    names = [line.split()[1] for line in run.stdout.splitlines() if "%" in line]
    assert names == ["below", "above"]  # the more probable first


@pytest.mark.parametrize("kind", ["run", "keras", "preset"])
def test_finetuning_on_other_classes_at_another_size(kind, pictures, tmp_path):
    out = tmp_path / "run"
    vision.main(trained(pictures, out))
    names = {"run": out, "keras": out / "model.keras", "preset": out / "preset"}
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (40, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "new.npz", images=images, labels=np.arange(40) % 4)
    settings = Config(
        model=Model(from_=str(names[kind]), freeze=True, image_size=(24, 24)),
        data=Data(f"npz:{tmp_path / 'new.npz'}"),
        training=Training(**QUICK),
        out=tmp_path / "fine",
    )
    vision.main(settings)
    before = keras.saving.load_model(out / "model.keras")
    after = keras.saving.load_model(tmp_path / "fine" / "model.keras")
    assert after.num_classes == 4
    assert after.backbone.grid_shape == (6, 6)
    expected = {
        path: weight
        for path, weight in weights.export_checkpoint(
            before.backbone, "mlp_mixers"
        ).items()
        if "spatial" not in path
    }
    found = weights.export_checkpoint(after.backbone, "mlp_mixers")
    for path, weight in expected.items():
        np.testing.assert_array_equal(found[path], weight)


def test_a_checkpoint_of_timm(pictures, tmp_path):
    """Its preset must be named; its head is used if the classes agree."""
    out = tmp_path / "run"
    settings = trained(pictures, out)
    settings.model = Model(image_size=(16, 16), patch_size=8)
    settings.model.preset = "gmlp_cifar_nano"
    vision.main(settings)
    model = keras.saving.load_model(out / "model.keras")
    path = tmp_path / "model.safetensors"
    weights.export_checkpoint(model, "timm", path)
    with pytest.raises(ValueError, match="name it with --preset"):
        vision.main(Config(evaluate=str(path), data=Data(f"folder:{pictures}")))
    with pytest.raises(ValueError, match="does not fit the model"):
        vision.main(
            Config(
                model=Model("gmlp_cifar_nano"),
                evaluate=str(path),
                data=Data(f"folder:{pictures}"),
            )
        )


def everything(pictures, out, keep="last"):
    """All that is random, and all that has a state."""
    settings = trained(
        pictures,
        out,
        epochs=3,
        policy="autoaugment",
        crop=True,
        erase=0.3,
        mixup=0.8,
        cutmix=1.0,
        ema=0.9,
    )
    settings.model.drop_path_rate = 0.2
    settings.model.dropout_rate = 0.2
    settings.keep = keep
    return settings


@pytest.mark.each
@pytest.mark.parametrize(
    "keep", ["last", pytest.param("best", marks=pytest.mark.slow)]
)
def test_interrupted_and_gone_on_bit_for_bit(
    keep, pictures, tmp_path, monkeypatch, capsys
):
    whole = vision.main(everything(pictures, tmp_path / "whole", keep))
    undo = interrupt_after(1, monkeypatch)
    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt, match=f"--resume {parts}"):
        vision.main(everything(pictures, parts, keep))
    undo()
    with pytest.raises(ValueError, match="has not finished"):
        vision.main(Config(evaluate=str(parts)))
    results = vision.main(Config(resume=parts))
    assert "Going on after epoch 1 of 3" in capsys.readouterr().out
    for name in ("test_accuracy", "test_loss", "best_epoch", "epochs"):
        assert results[name] == whole[name]
    for a, b in zip(saved_weights(tmp_path / "whole"), saved_weights(parts)):
        np.testing.assert_array_equal(a, b)
    histories = [
        json.loads((tmp_path / name / "history.json").read_text())
        for name in ("whole", "parts")
    ]
    assert histories[0] == histories[1]

    # A run that has finished says so and stays as it is.
    assert vision.main(Config(resume=parts))["epochs"] == 3
    assert "has finished" in capsys.readouterr().out


def test_killed_after_the_last_epoch(pictures, tmp_path, monkeypatch):
    """All is trained and nothing saved: averages are the model's still."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    vision.main(everything(pictures, whole))

    def killed(*arguments):
        raise SystemExit

    monkeypatch.setattr(vision, "save", killed)
    with pytest.raises(SystemExit):
        vision.main(everything(pictures, parts))
    monkeypatch.undo()
    vision.main(Config(resume=parts))
    for a, b in zip(saved_weights(whole), saved_weights(parts)):
        np.testing.assert_array_equal(a, b)


def test_what_cannot_go_on(pictures, tmp_path, monkeypatch):
    undo = interrupt_after(1, monkeypatch)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        vision.main(trained(pictures, out))
    undo()
    with pytest.raises(ValueError, match="give --resume alone"):
        vision.main(Config(resume=out, seed=1))
    with pytest.raises(ValueError, match="no config.json"):
        vision.main(Config(resume=tmp_path))
    before = (out / "config.json").read_text()
    for name, value, message in (
        # What differs is named, and nothing else.
        ("epochs", 5, "settings or data: epochs: saved 2, now 5. Go on"),
        ("epochs", "5", "`epochs` must be an integer or null. Received"),
    ):
        record = json.loads(before)
        record["training"][name] = value
        (out / "config.json").write_text(json.dumps(record))
        with pytest.raises(ValueError, match=message):
            vision.main(Config(resume=out))
    (out / "config.json").write_text(before)
    # As many pictures as before, one of them another.
    paths = sorted((pictures / "below").iterdir())
    paths[0].write_bytes(paths[1].read_bytes() + b" ")
    with pytest.raises(ValueError, match="began with another set of images"):
        vision.main(Config(resume=out))
    # A run of an older version has no digest there; its checkpoint has one.
    record = json.loads(before)
    del record["identity"]
    (out / "config.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="settings or data: data_digest: sav"):
        vision.main(Config(resume=out))
    (out / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json is damaged"):
        vision.main(Config(resume=out))


def test_nan_leaves_the_last_good_checkpoint(pictures, tmp_path, monkeypatch):
    batches = vision.vision_data.TrainingBatches.__getitem__

    def broken(self, index):
        images, labels = batches(self, index)
        return (images * np.nan if self.epoch else images), labels

    monkeypatch.setattr(
        vision.vision_data.TrainingBatches, "__getitem__", broken
    )
    out = tmp_path / "run"
    with pytest.raises(FloatingPointError, match="after epoch 1 are kept in"):
        vision.main(trained(pictures, out, epochs=3))
    monkeypatch.undo()
    assert vision.main(Config(resume=out))["epochs"] == 3


def test_a_file_that_breaks_while_training(pictures, tmp_path):
    """With `--check headers` nobody has looked: the file is named then."""
    paths = sorted((pictures / "below").iterdir())
    for path in paths:  # cut off behind the header
        path.write_bytes(path.read_bytes()[:200])
    settings = trained(pictures, tmp_path / "run")
    settings.data.check = "headers"
    settings.data.data = f"folder:{pictures}"
    with pytest.raises(ValueError, match="cannot be read.*below"):
        vision.main(settings)


def test_the_runs_own_data_are_cut_as_they_were(tmp_path, capsys):
    """Labels at random, learned by heart: only other images show it."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (200, 4, 4, 1), np.uint8)
    path = tmp_path / "noise.npz"
    np.savez(path, images=images, labels=rng.integers(0, 2, 200))
    out = tmp_path / "run"
    results = vision.main(
        Config(
            model=Model(patch_size=2, num_layers=1, hidden_dim=8),
            data=Data(f"npz:{path}"),
            training=Training(**QUICK),
            seed=3,
            out=out,
        )
    )
    for data in (Data(), Data(f"npz:{path}")):
        scores = vision.main(Config(evaluate=str(out), data=data))
        assert scores["test_loss"] == pytest.approx(
            results["test_loss"], rel=1e-4
        )
    assert "not what they were" not in capsys.readouterr().out
    np.savez(path, images=255 - images, labels=rng.integers(0, 2, 200))
    vision.main(Config(evaluate=str(out)))
    assert "not what they were" in capsys.readouterr().out


def test_classes_without_names_must_agree_in_number(pictures, tmp_path):
    vision.main(trained(pictures, tmp_path / "run"))
    alone = tmp_path / "alone.keras"
    (tmp_path / "run" / "model.keras").rename(alone)
    (pictures / "between").mkdir()
    for path in (pictures / "below").iterdir():
        (pictures / "between" / path.name).write_bytes(path.read_bytes())
    data = Data(f"folder:{pictures}")
    with pytest.raises(ValueError, match="3 classes, and the model knows 2"):
        vision.main(Config(evaluate=str(alone), data=data))
    alone.write_bytes(alone.read_bytes()[:1000])
    with pytest.raises(ValueError, match="it may be damaged"):
        vision.main(Config(evaluate=str(alone), data=data))


def test_nothing_to_predict(pictures, tmp_path):
    out = tmp_path / "run"
    vision.main(trained(pictures, out))
    (tmp_path / "empty").mkdir()
    for paths in ((), (tmp_path / "empty",)):
        with pytest.raises(ValueError, match="There are no images"):
            vision.main(Config(model=Model(from_=str(out)), predict=paths))
    (pictures / "above" / "broken.png").unlink()
    found = vision.main(
        Config(model=Model(from_=str(out)), predict=(pictures,))
    )
    assert len(found) == 40  # in the folders of the classes too


def test_images_that_come_too_slowly_are_noted(pictures, tmp_path, capsys):
    class Slow:
        def __init__(self, batches):
            self.batches = batches
            self.batch_size = 8

        def __len__(self):
            return len(self.batches)

        def make(self, index):
            time.sleep(0.05)

    watch = vision.vision_data.InputWatch(Slow([1, 2, 3]))
    watch.on_epoch_begin(0)
    for batch in range(4):
        watch.on_train_batch_end(batch)
    watch.report()
    assert "the images may hold the training up" in capsys.readouterr().out
    watch.seconds = 10.0
    watch.report()
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_killed_and_gone_on(pictures, tmp_path):
    """SIGKILL in the middle of an epoch."""
    arguments = (
        *("--data", f"folder:{pictures}", "--recipe", "imagenet"),
        *("--epochs", "40", "--batch-size", "8", "--hidden-dim", "16"),
        *("--intermediate-dim", "32", "--num-layers", "2", "--ema", "0.9"),
        *("--drop-path-rate", "0.2", "--learning-rate", "0.01"),
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command(*arguments, "--out", whole).returncode == 0
    run = subprocess.Popen(
        [sys.executable, "-m", "recipes.vision", *arguments, "--out", parts],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
    )
    state = parts / "checkpoint" / "state.npz"
    while not state.exists():
        assert run.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert not (parts / "results.json").exists()
    go_on = command("--resume", parts)
    assert go_on.returncode == 0, go_on.stderr
    assert "Going on after epoch" in go_on.stdout
    for a, b in zip(saved_weights(whole), saved_weights(parts)):
        np.testing.assert_array_equal(a, b)


def test_no_machine_paths_in_the_record(pictures, tmp_path):
    """`--resume` works after the folder of the run was moved."""
    out = tmp_path / "run"
    vision.main(trained(pictures, out))
    moved = pathlib.Path(out.rename(tmp_path / "moved"))
    assert vision.main(Config(evaluate=str(moved)))["test_images"] == 4
