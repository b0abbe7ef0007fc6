import numpy as np
import pytest
from PIL import Image

from mlp_mixers.data.sources import load_data


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with a data set of each kind."""
    for name, value in (("cats", 10), ("dogs", 20)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(5):
            image = Image.new("L", (4, 4), value)
            image.save(tmp_path / "pets" / name / f"{i}.png")
    np.savez(
        tmp_path / "pets.npz",
        images=np.zeros((20, 2, 2), "uint8"),
        labels=np.arange(20) % 2,
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_digits():
    assert len(load_data("digits").train[0]) == 1257


@pytest.mark.parametrize("where", ["~/", "", "{home}/"])
def test_folders_and_files(home, where):
    where = where.format(home=home)
    split = load_data(f"folder:{where}pets", channels=1)
    assert split.class_names == ("cats", "dogs")
    assert split.train[0][0].shape == (4, 4, 1)
    split = load_data(f"npz:{where}pets.npz", split="rows")
    assert split.train[1].tolist() == [0, 1] * 8


def test_tfds_gets_the_whole_name(monkeypatch):
    from mlp_mixers.data import sources

    def load_tfds(name, data_dir=None):
        return name, data_dir

    monkeypatch.setitem(sources.SOURCES, "tfds", load_tfds)
    name = "imagenet_resized/32x32:0.1.0"
    assert load_data(f"tfds:{name}", data_dir="x") == (name, "x")


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("cifar10", "tfds:cifar10"),
        ("cifar-10", "tfds:cifar10"),
        ("cifar_10", "tfds:cifar10"),
        ("MNIST", "tfds:mnist"),
        ("digit", "digits"),
        ("digits:8", "digits"),
        ("Digits", "digits"),
        ("pets", "folder:pets"),
        ("~/pets", "folder:~/pets"),
        ("pets.npz", "npz:pets.npz"),
        ("missing.npz", "npz:missing.npz"),
        ("folders:pets", "folder:pets"),
        ("TFDS:mnist", "tfds:mnist"),
        ("npz:", "npz:..."),
        ("npz", "npz:..."),
    ],
)
def test_hints(home, spec, hint):
    with pytest.raises(ValueError, match="There is no such data") as error:
        load_data(spec)
    assert f"Did you mean {hint}?" in str(error.value)
    assert "folder:DIR" in str(error.value)


@pytest.mark.parametrize("spec", ["", "xyzzy", "http://a.b/c.zip", None, 3])
def test_without_a_hint(home, spec):
    with pytest.raises(ValueError, match="tfds:NAME") as error:
        load_data(spec)
    assert "mean" not in str(error.value)
    assert repr(spec) in str(error.value)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("digits", {"seed": 1}, r"options \(none\). Received: seed"),
        ("npz:pets.npz", {"channels": 1}, "seed.*Received: channels"),
        ("folder:pets", {"folder": "."}, "channels.*Received: folder"),
    ],
)
def test_options_that_a_source_does_not_have(home, spec, options, message):
    with pytest.raises(ValueError, match=message):
        load_data(spec, **options)
