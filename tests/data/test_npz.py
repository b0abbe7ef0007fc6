import gc

import numpy as np
import pytest

from mlp_mixers.data.npz import load_npz


@pytest.fixture
def save(tmp_path):
    def save(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return tmp_path / "data.npz"

    return save


def images(samples, shape=(2, 3, 3), dtype="uint8"):
    """Images that carry their number."""
    numbers = np.arange(samples).reshape(-1, *[1] * len(shape))
    return (numbers * np.ones(shape)).astype(dtype)


def parts_of(split):
    return split.train, split.validation, split.test


def numbers(part):
    return part[0].reshape(len(part[0]), -1)[:, 0].astype(int).tolist()


def test_rows_are_cut_in_proportion(save):
    labels = np.arange(100) % 2
    split = load_npz(save(images=images(100), labels=labels))
    assert [len(part[1]) for part in parts_of(split)] == [80, 10, 10]
    assert sorted(sum(map(numbers, parts_of(split)), [])) == list(range(100))
    for part in parts_of(split):
        assert part[0].dtype == np.uint8
        assert part[1].dtype == np.int32
        assert part[1].tolist() == [n % 2 for n in numbers(part)]
        assert part[1].mean() == 0.5
    assert split.class_names == ("0", "1")


def test_rows_are_taken_as_they_are(save):
    path = save(images=images(50), labels=np.arange(50) % 2)
    split = load_npz(path, split="rows")
    assert [numbers(part) for part in parts_of(split)] == [
        list(range(40)),
        list(range(40, 45)),
        list(range(45, 50)),
    ]


@pytest.mark.parametrize("val", ["val", "validation"])
def test_parts_that_are_ready(save, val):
    arrays = {}
    for name, samples in (("train", 4), (val, 3), ("test", 2)):
        arrays[f"{name}_images"] = images(samples)
        # As MedMNIST has them.
        arrays[f"{name}_labels"] = np.arange(samples)[:, None] % 2
    split = load_npz(save(**arrays))
    assert [len(part[0]) for part in parts_of(split)] == [4, 3, 2]
    assert split.train[1].tolist() == [0, 1, 0, 1]
    assert split.notes == ()


def test_missing_parts_are_cut_from_the_training_images(save):
    path = save(
        train_images=images(20),
        train_labels=np.arange(20) % 2,
        test_images=images(3),
        test_labels=[0, 1, 0],
    )
    split = load_npz(path)
    assert [len(part[0]) for part in parts_of(split)] == [18, 2, 3]
    assert "no validation part: 2 of the 20" in split.notes[0]


def test_grey_images_need_no_axis_for_it(save):
    labels = np.arange(20) % 2
    split = load_npz(save(images=images(20, (5, 4)), labels=labels))
    assert split.train[0].shape == (16, 5, 4, 1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_become_float32(save, rng, dtype):
    floats = rng.random((20, 2, 2, 1)).astype(dtype)
    split = load_npz(
        save(images=floats, labels=np.arange(20) % 2), split="rows"
    )
    assert split.train[0].dtype == np.float32
    np.testing.assert_array_equal(split.train[0], floats[:16].astype("float32"))


@pytest.mark.parametrize("dtype", ["U", "S"])
def test_labels_may_be_strings(save, dtype):
    labels = np.array(["dog", "cat"] * 10, dtype)
    split = load_npz(save(images=images(20), labels=labels), split="rows")
    assert split.class_names == ("cat", "dog")
    assert split.train[1][:3].tolist() == [1, 0, 1]


def test_strings_in_the_order_of_classes(save):
    path = save(
        images=images(20), labels=["dog", "cat"] * 10, classes=["dog", "cat"]
    )
    split = load_npz(path, split="rows")
    assert split.class_names == ("dog", "cat")
    assert split.train[1][:3].tolist() == [0, 1, 0]


def test_classes_give_names_and_allow_gaps(save):
    path = save(
        images=images(20),
        labels=np.arange(20) % 2 * 2,
        classes=["a", "b", "c"],
    )
    split = load_npz(path)
    assert split.class_names == ("a", "b", "c")
    assert set(split.train[1]) == {0, 2}
    assert split.notes == ("class 'b' has no images to train with",)


def fine(**changes):
    arrays = {"images": images(20), "labels": np.arange(20) % 2, **changes}
    return {k: v for k, v in arrays.items() if v is not None}


NAN = np.full((20, 2, 2, 1), np.nan)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "images to train with.*arrays none"),
        ({"x": [1], "y": [2]}, "must hold `images`.*arrays x, y"),
        (fine(labels=None), "Missing: labels.*arrays images"),
        (
            {"train_images": [1], "test_labels": [1]},
            "Missing: train_labels, test_images",
        ),
        (fine(train_images=images(2)), "not both"),
        (
            {f"{n}_images": images(2) for n in ("val", "validation")},
            "twice.*validation_images, val_images",
        ),
        (fine(images=images(20, (4,))), r"shape=\(20, 4\)"),
        (fine(images=images(20, (2, 2, 4))), r"shape=\(20, 2, 2, 4\)"),
        (fine(images=images(0), labels=[]), "not be empty"),
        (fine(images=images(20, dtype="int64")), "dtype=int64"),
        (fine(images=images(20, dtype="float32")), "from 0.0 to 19.0"),
        (fine(images=-images(20, dtype="float32") / 99), r"in \[0, 1\]"),
        (fine(images=NAN), "nan"),
        (fine(labels=np.arange(19)), r"20 images.*\(19,\)"),
        (fine(labels=np.zeros((20, 2), int)), r"\(20, 2\)"),
        (fine(labels=np.arange(20) % 2 - 1), "a label -1"),
        (fine(labels=np.arange(20) % 2 * 2), "without gaps.*labels 2"),
        (fine(labels=np.arange(20) % 2 + 1), "labels 2"),
        (fine(labels=np.arange(20) % 2 / 1), "dtype=float64"),
        (fine(labels=np.arange(20) % 2 == 1), "dtype=bool"),
        (fine(labels=np.zeros(20, int)), "two classes.*only 0"),
        (fine(labels=np.array([0, None] * 10)), "cannot be read without"),
        (fine(images=np.array([[1], [1, 2]], object)), "`images`.*executing"),
        (fine(classes=["a"]), "1 classes, and labels 1"),
        (fine(classes=["a", "a"]), "every class once"),
        (fine(classes=[["a", "b"]]), "list of names"),
        (fine(labels=["a", "b"] * 10, classes=["a", "c"]), "labels b"),
        (fine(labels=np.array([0] * 18 + [1] * 2)), r"1 \(2\)"),
    ],
)
def test_wrong_arrays(save, arrays, message):
    path = save(**arrays)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_npz(path)


def test_parts_must_agree(save):
    parts = {"train_images": images(4), "train_labels": [0, 1, 0, 1]}
    path = save(**parts, val_images=images(2, (9, 9, 3)), val_labels=[0, 1])
    with pytest.raises(ValueError, match="of one size"):
        load_npz(path)
    path = save(**parts, val_images=images(2), val_labels=["0", "1"])
    with pytest.raises(ValueError, match="integers in all parts"):
        load_npz(path)


def test_what_is_not_an_npz(tmp_path):
    np.save(tmp_path / "lone.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "half.npz").write_bytes(b"PK\x03\x04" + b"\0" * 40)
    for name in ("lone.npy", "text.npz", "empty.npz", "half.npz"):
        with pytest.raises(ValueError, match=f"not an npz file.*{name}"):
            load_npz(tmp_path / name)
    with pytest.raises(ValueError, match="a folder"):
        load_npz(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere.npz"):
        load_npz(tmp_path / "nowhere.npz")


@pytest.mark.filterwarnings("error::ResourceWarning")
def test_the_file_is_closed(save):
    path = save(**fine())
    load_npz(path)
    with pytest.raises(ValueError, match="Missing: images"):
        load_npz(save(labels=[0]))
    gc.collect()


def test_a_broken_array_is_named(save, rng):
    path = save(images=rng.integers(0, 9, (20, 9, 9)).astype("u1"), labels=[1])
    content = bytearray(path.read_bytes())
    content[400] ^= 255
    path.write_bytes(content)
    with pytest.raises(ValueError, match="`images` in .* is broken"):
        load_npz(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"split": "random"}, "'random'"), ({"seed": "0"}, "seed='0'")],
)
def test_wrong_arguments(save, arguments, message):
    with pytest.raises(ValueError, match=message):
        load_npz(save(**fine()), **arguments)


def test_byte_labels_are_text_in_utf8(tmp_path, rng):
    images = rng.integers(0, 255, (40, 2, 2), np.uint8)
    path = tmp_path / "bytes.npz"
    names = np.array(["für".encode(), b"wider"] * 20)
    np.savez(path, images=images, labels=names)
    assert load_npz(path).class_names == ("für", "wider")
    np.savez(path, images=images, labels=np.array([b"\xff", b"a"] * 20))
    with pytest.raises(ValueError, match="`labels` in .* no text in UTF-8"):
        load_npz(path)
