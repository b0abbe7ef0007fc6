import os

import numpy as np
import pytest
from PIL import Image

from mlp_mixers.data.image_folder import EXTENSIONS
from mlp_mixers.data.image_folder import find_broken
from mlp_mixers.data.image_folder import load_folder


def draw(path, value=0, size=(4, 3)):
    """Saves an image of one grey value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = {".ppm": "PPM"}.get(path.suffix.lower())
    Image.new("RGB", size, (value, value, value)).save(path, kind)


def fill(folder, counts, first=0):
    """Makes a folder for each class; every image has its own grey value."""
    value = first
    for name, count in counts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            draw(folder / name / f"{i:03}.png", value)
            value += 1


def values(part):
    return [int(image[0, 0, 0]) for image in part[0]]


def parts_of(split):
    return split.train, split.validation, split.test


def test_a_folder_for_each_class(tmp_path):
    fill(tmp_path, {"dogs": 20, "cats": 10})
    split = load_folder(tmp_path)
    assert split.class_names == ("cats", "dogs")
    assert split.notes == ()
    assert [len(labels) for _, labels in parts_of(split)] == [24, 3, 3]
    assert sorted(sum(map(values, parts_of(split)), [])) == list(range(30))
    for part in parts_of(split):
        # Dogs were drawn first, and are class 1.
        assert (part[1] == (np.array(values(part)) < 20)).all()
        assert part[1].dtype == np.int32
        assert part[0][0].shape == (3, 4, 3)


def test_the_cut_follows_from_the_seed(tmp_path):
    fill(tmp_path, {"a": 20, "b": 20})
    first, again = load_folder(tmp_path, seed=1), load_folder(tmp_path, seed=1)
    other = load_folder(tmp_path, seed=2)
    assert values(first.test) == values(again.test)
    assert values(first.test) != values(other.test)


@pytest.mark.parametrize("name", ["val", "validation", "valid", "Val"])
def test_folders_for_each_part(tmp_path, name):
    fill(tmp_path / "train", {"a": 3, "b": 2})
    fill(tmp_path / name, {"a": 1, "b": 1}, first=10)
    fill(tmp_path / "test", {"a": 1, "b": 2}, first=20)
    split = load_folder(tmp_path, channels=1)
    assert values(split.train) == [0, 1, 2, 3, 4]
    assert split.train[1].tolist() == [0, 0, 0, 1, 1]
    assert values(split.validation) == [10, 11]
    assert values(split.test) == [20, 21, 22]
    assert split.test[1].tolist() == [0, 1, 1]
    assert split.train[0][0].shape == (3, 4, 1)


def test_missing_parts_are_cut_from_the_training_images(tmp_path):
    fill(tmp_path / "train", {"a": 10, "b": 10})
    split = load_folder(tmp_path)
    assert [len(labels) for _, labels in parts_of(split)] == [16, 2, 2]
    fill(tmp_path / "val", {"a": 1, "b": 1})
    split = load_folder(tmp_path)
    assert [len(labels) for _, labels in parts_of(split)] == [18, 2, 2]
    assert "there is no test part: 2 of the 20" in split.notes[0]


def test_train_may_be_a_class(tmp_path):
    fill(tmp_path, {"train": 5, "car": 5})
    assert load_folder(tmp_path).class_names == ("car", "train")


def test_a_test_folder_without_labels_is_left_out(tmp_path):
    fill(tmp_path / "train", {"a": 10, "b": 10})
    draw(tmp_path / "test" / "1.png")
    split = load_folder(tmp_path)
    assert len(split.test[1]) == 2
    assert any("'test' has no folders for classes" in n for n in split.notes)


def test_what_is_found_and_what_is_ignored(tmp_path):
    fill(tmp_path, {"a": 3, "b": 3, "__MACOSX": 2, ".cache": 2})
    draw(tmp_path / "a" / "deep" / "er" / "1.PNG")
    draw(tmp_path / "a" / "._hidden.png")
    draw(tmp_path / "a" / "__MACOSX" / "1.png")
    draw(tmp_path / "outside.png")
    (tmp_path / "b" / "notes.txt").write_text("no image")
    (tmp_path / "b" / "README").write_text("no image")
    (tmp_path / "data.csv").write_text("no image")
    (tmp_path / "c").mkdir()
    split = load_folder(tmp_path)
    names = sum((part[0].paths for part in parts_of(split)), [])
    assert len(names) == 7
    assert sum("deep" in name for name in names) == 1
    assert split.class_names == ("a", "b")
    notes = "\n".join(split.notes)
    assert "1 image directly in" in notes
    assert "outside.png" in notes
    assert "3 files without the extension" in notes
    for kind in (".txt (1)", "no extension (1)", ".csv (1)"):
        assert kind in notes
    assert "class 'c' has no images: left out" in notes


def test_all_extensions_in_any_case(tmp_path):
    fill(tmp_path, {"b": 3})
    for i, extension in enumerate(EXTENSIONS):
        draw(tmp_path / "a" / f"{i}{extension.upper()}")
        draw(tmp_path / "a" / f"{i}{extension}")
    split = load_folder(tmp_path)
    labels = np.concatenate([labels for _, labels in parts_of(split)])
    assert (labels == 0).sum() == 2 * len(EXTENSIONS) == 18


def test_links_are_followed_and_circles_are_not(tmp_path):
    fill(tmp_path / "data", {"a": 3})
    fill(tmp_path / "elsewhere", {"b": 3}, first=3)
    os.symlink(tmp_path / "elsewhere" / "b", tmp_path / "data" / "b")
    os.symlink(tmp_path / "data" / "a", tmp_path / "data" / "a" / "again")
    split = load_folder(tmp_path / "data")
    assert split.class_names == ("a", "b")
    assert sorted(sum(map(values, parts_of(split)), [])) == list(range(6))


def test_unreadable_files_are_left_out_and_named(tmp_path):
    fill(tmp_path, {"a": 5, "b": 5})
    (tmp_path / "a" / "broken.jpg").write_bytes(b"not an image")
    whole = (tmp_path / "b" / "000.png").read_bytes()
    (tmp_path / "b" / "half.png").write_bytes(whole[: len(whole) * 2 // 3])
    split = load_folder(tmp_path)
    assert sum(len(labels) for _, labels in parts_of(split)) == 10
    (note,) = split.notes
    assert "2 files could not be read" in note
    assert os.path.join("a", "broken.jpg") in note
    assert os.path.join("b", "half.png") in note


def test_headers_alone_miss_what_is_cut_off(tmp_path):
    fill(tmp_path, {"a": 5, "b": 5})
    (tmp_path / "a" / "broken.jpg").write_bytes(b"not an image")
    whole = (tmp_path / "b" / "000.png").read_bytes()
    (tmp_path / "b" / "half.png").write_bytes(whole[: len(whole) * 2 // 3])
    split = load_folder(tmp_path, check="headers")
    assert sum(len(labels) for _, labels in parts_of(split)) == 11
    assert "1 file could not be read" in split.notes[0]


def test_a_class_whose_every_image_is_broken(tmp_path):
    fill(tmp_path, {"a": 5, "b": 5})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "1.png").write_bytes(b"")
    split = load_folder(tmp_path)
    assert split.class_names == ("a", "b")
    assert "class 'c' has no images: left out" in split.notes


def test_an_empty_class_of_the_validation_images(tmp_path):
    fill(tmp_path / "train", {"a": 5, "b": 5})
    fill(tmp_path / "val", {"a": 1, "b": 0})
    split = load_folder(tmp_path)
    assert "class 'b' has no images for validation" in split.notes


def test_reasons_are_given_for_broken_files(tmp_path):
    draw(tmp_path / "fine.png")
    (tmp_path / "broken.png").write_bytes(b"")
    paths = [str(tmp_path / name) for name in ("fine.png", "broken.png")]
    broken = find_broken(paths)
    assert list(broken) == paths[1:]
    assert "not an image" in broken[paths[1]]


def test_the_bar_is_drawn_on_a_terminal_only(tmp_path, capsys, monkeypatch):
    fill(tmp_path, {"a": 3, "b": 3})
    load_folder(tmp_path)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    load_folder(tmp_path)
    assert "checking images" in capsys.readouterr().out
    load_folder(tmp_path, progress=False)
    assert capsys.readouterr().out == ""


def flat(folder):
    draw(folder / "1.png")


def one_class(folder):
    fill(folder, {"cats": 9})


def few(folder):
    fill(folder, {"cats": 2, "dogs": 9})


def empty_classes(folder):
    fill(folder, {"cats": 0, "dogs": 0})


def all_broken(folder):
    fill(folder, {"cats": 0, "dogs": 0})
    for name in ("cats", "dogs"):
        (folder / name / "1.png").write_bytes(b"")


def other_classes(folder):
    fill(folder / "train", {"cats": 2, "dogs": 2})
    fill(folder / "val", {"cats": 2, "cows": 2})


def fewer_classes(folder):
    fill(folder / "train", {"cats": 2, "dogs": 2})
    fill(folder / "test", {"cats": 2})


def flat_parts(folder):
    draw(folder / "train" / "1.png")
    draw(folder / "val" / "1.png")


def two_validations(folder):
    for name in ("train", "val", "validation"):
        fill(folder / name, {"cats": 2, "dogs": 2})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "no folders for classes.*no images"),
        (flat, r"no folders for classes.*cats/1.jpg.*1 image directly in it"),
        (one_class, "two classes.*Received: only cats"),
        (few, r"cats \(2\)"),
        (empty_classes, r"no images in the class folders.*\.webp.*cats, dogs"),
        (all_broken, r"None of the 2 images.*1\.png"),
        (other_classes, "train: dogs; validation: cows"),
        (fewer_classes, "same classes.*train: dogs "),
        (flat_parts, "no folders for classes in .*train"),
        (two_validations, "two folders for the validation.*val"),
    ],
)
def test_wrong_folders(tmp_path, make, message):
    make(tmp_path)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_folder(tmp_path)


def test_a_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder.*nowhere"):
        load_folder(tmp_path / "nowhere")
    draw(tmp_path / "1.png")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_folder(tmp_path / "1.png")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"check": "none"}, "check='none'"),
        ({"channels": 4}, "channels=4"),
        ({"test_fraction": 0}, "test_fraction=0"),
    ],
)
def test_wrong_arguments(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        load_folder(tmp_path, **arguments)
