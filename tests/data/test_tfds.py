import importlib.util
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from mlp_mixers.data.tfds import load_tfds

tfds = pytest.importorskip("tensorflow_datasets")
if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("preparing data sets takes TensorFlow", allow_module_level=True)
FORMATS = {"array_record": "data_source", "tfrecord": "tf.data"}


def example(i, channels=3):
    """An image of random pixels, whose size depends on its number."""
    rng = np.random.default_rng(i)
    shape = (8 + i % 3, 9, channels)
    return rng.integers(0, 256, shape, dtype=np.uint8)


class Base(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A data set of images whose labels are their numbers modulo 3."""

    VERSION = tfds.core.Version("1.0.0")
    SIZES = {"train": 60, "test": 9}
    KEYS = ("image", "label")

    def features(self):
        return {
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(names=["a", "b", "c"]),
        }

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(self.features()),
            supervised_keys=self.KEYS,
        )

    def _split_generators(self, dl_manager):
        start = np.cumsum([0, *self.SIZES.values()])
        return {
            name: self._generate_examples(first, first + size)
            for (name, size), first in zip(self.SIZES.items(), start)
        }

    def _generate_examples(self, first, last):
        for i in range(first, last):
            yield i, self.example(i)

    def example(self, i):
        return {"image": example(i), "label": i % 3}


class LocalImages(Base):
    """The plain case."""


class LocalParts(Base):
    """All parts are there, `val` among them; the test labels are secret."""

    SIZES = {"train": 12, "val": 6, "test": 3}
    KEYS = None

    def example(self, i):
        return {"image": example(i), "label": -1 if i >= 18 else i % 3}


class LocalMasks(Base):
    """Two images and no hint which is meant."""

    KEYS = None

    def features(self):
        image = tfds.features.Image(shape=(None, None, 3))
        return {**super().features(), "mask": image}


class LocalDepth(Base):
    """Images of 16 bits."""

    def features(self):
        image = tfds.features.Image(shape=(None, None, 1), dtype=np.uint16)
        return {**super().features(), "image": image}


class LocalUnsplit(Base):
    """No training images."""

    SIZES = {"everything": 6}


BUILDERS = {
    "local_images": LocalImages,
    "local_parts": LocalParts,
    "local_masks": LocalMasks,
    "local_depth": LocalDepth,
    "local_unsplit": LocalUnsplit,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Folders with the data sets in each file format, made when asked for."""
    folders = {}

    def prepare(name, file_format, shards=3):
        key = (name, file_format)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp(f"{name}_{file_format}")
            builder = BUILDERS[name](
                data_dir=str(folders[key]), file_format=file_format
            )
            builder.download_and_prepare(
                download_config=tfds.download.DownloadConfig(num_shards=shards)
            )
        return folders[key]

    return prepare


def load(prepared, name, file_format, **options):
    return load_tfds(name, prepared(name, file_format), **options)


def parts_of(split):
    return split.train, split.validation, split.test


@pytest.mark.parametrize("file_format", FORMATS)
def test_every_image_is_there_with_its_label(prepared, file_format):
    split = load(prepared, "local_images", file_format)
    assert split.class_names == ("a", "b", "c")
    assert [len(part[0]) for part in parts_of(split)] == [54, 6, 9]
    assert "there is no validation part: 6 of the 60" in split.notes[0]
    known = {example(i).tobytes(): i for i in range(69)}
    found = []
    for part, allowed in zip(parts_of(split), ([0, 60], [0, 60], [60, 69])):
        numbers = [known[image.tobytes()] for image in part[0]]
        assert part[1].dtype == np.int32
        np.testing.assert_array_equal(part[1], np.array(numbers) % 3)
        assert allowed[0] <= min(numbers)
        assert max(numbers) < allowed[1]
        found += numbers
    assert sorted(found) == list(range(69))
    assert split.train[0][0].shape[1:] == (9, 3)


def test_both_formats_give_the_same_in_the_same_order(prepared):
    first, second = (
        load(prepared, "local_images", file_format) for file_format in FORMATS
    )
    assert type(first.train[0]) is not type(second.train[0])
    for one, other in zip(parts_of(first), parts_of(second)):
        np.testing.assert_array_equal(one[1], other[1])
        for a, b in zip(one[0], other[0]):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_order_is_tensorflow_datasets_own(prepared, file_format):
    """Its own decoding of the test images, which we do not shuffle."""
    folder = prepared("local_images", file_format)
    builder = tfds.builder("local_images", data_dir=folder)
    if file_format == "tfrecord":
        config = tfds.ReadConfig(interleave_cycle_length=1)
        records = builder.as_dataset(split="test", read_config=config)
        records = list(records.as_numpy_iterator())
    else:
        records = builder.as_data_source("test")
    images, labels = load_tfds("local_images", folder).test
    assert [record["label"] for record in records] == labels.tolist()
    for record, image in zip(records, images):
        np.testing.assert_array_equal(record["image"], image)


@pytest.mark.parametrize("file_format", FORMATS)
def test_parts_that_are_there_are_used(prepared, file_format):
    split = load(prepared, "local_parts", file_format, channels=1)
    sizes = [len(part[0]) for part in parts_of(split)]
    # The test images have no labels: some training images serve instead.
    assert sizes == [9, 6, 3]
    assert "have no labels: left out" in split.notes[0]
    assert "there is no test part" in split.notes[1]
    assert split.validation[0][0].shape[1:] == (9, 1)


@pytest.mark.parametrize("file_format", FORMATS)
def test_images_can_be_copied_and_chosen(prepared, file_format):
    images, _ = load(prepared, "local_images", file_format).train
    copy = pickle.loads(pickle.dumps(images))
    np.testing.assert_array_equal(copy[5], images[5])
    chosen = images.take(np.array([7, 3])).take([1])
    assert len(chosen) == 1
    np.testing.assert_array_equal(chosen[0], images[3])
    np.testing.assert_array_equal(images[-1], images[len(images) - 1])
    with pytest.raises(IndexError):
        images[len(images)]


def test_a_version_may_be_named(prepared):
    folder = prepared("local_images", "array_record")
    assert load_tfds("local_images:1.0.0", folder).class_names[0] == "a"
    with pytest.raises(ValueError, match="2.0.0"):
        load_tfds("local_images:2.0.0", folder)


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_reader_for_another_format(prepared, file_format):
    folder = prepared("local_images", file_format)
    right = FORMATS[file_format]
    assert load_tfds("local_images", folder, reader=right).train
    (wrong,) = set(FORMATS.values()) - {right}
    advice = {"data_source": 'file_format="array_record"', "tf.data": "auto"}
    with pytest.raises(
        ValueError, match=f"(?s)format {file_format}.*{advice[wrong]}"
    ):
        load_tfds("local_images", folder, reader=wrong)


def test_tf_data_keeps_to_the_memory_limit(prepared):
    options = {"memory_limit_gib": 1e-6}
    with pytest.raises(ValueError, match="(?s)1e-06 GiB.*array_record"):
        load(prepared, "local_images", "tfrecord", **options)
    assert load(prepared, "local_images", "array_record", **options).train


def other_backend():
    """An installed backend that is not TensorFlow."""
    for name in ("jax", "torch"):
        if importlib.util.find_spec(name) is not None:
            return name
    pytest.skip("only TensorFlow is installed, which Keras imports itself")


def test_reading_at_random_needs_no_tensorflow(prepared):
    folder = prepared("local_images", "array_record")
    code = f"""
        import sys
        from mlp_mixers.data.tfds import load_tfds
        split = load_tfds("local_images", {str(folder)!r})
        assert split.train[0][0].dtype == "uint8"
        assert "tensorflow" not in sys.modules
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        # On TensorFlow, Keras imports it.
        env={**os.environ, "KERAS_BACKEND": other_backend()},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("local_masks", "one image.*mask: Image.*supervised_keys=None"),
        ("local_depth", "8 bits.*uint16"),
        ("glue/sst2", "not a data set for image class.*sentence: Text"),
        ("coco/2017", "not a data set for image class.*objects: Sequence"),
    ],
)
def test_other_data_sets_are_refused_before_downloading(
    name, message, tmp_path
):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_tfds(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_training_images(prepared):
    with pytest.raises(ValueError, match="no split `train`.*everything"):
        load(prepared, "local_unsplit", "array_record")


def test_data_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="xyzzy"):
        load_tfds("xyzzy", tmp_path)
    with pytest.raises(ValueError, match="(?s)not prepared.*array_record"):
        load_tfds("mnist", tmp_path, download=False)


def test_a_download_that_fails(tmp_path, monkeypatch):
    def fail(self, **arguments):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    with pytest.raises(ValueError, match="could not be down.*no route to host"):
        load_tfds("mnist", tmp_path)


@pytest.mark.parametrize("file_format", FORMATS)
def test_mock_data(prepared, file_format):
    """Pipelines can be tried with what tensorflow_datasets makes up."""
    folder = prepared("local_images", file_format)
    with tfds.testing.mock_data(num_examples=40, data_dir=folder):
        split = load_tfds("local_images")
        assert [len(part[0]) for part in parts_of(split)][2] == 40
        image = split.train[0][0]
    assert (image.dtype, image.shape[2]) == (np.uint8, 3)


@pytest.mark.parametrize(
    "options", [{"reader": "numpy"}, {"channels": 2}, {"test_fraction": 1}]
)
def test_wrong_arguments(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}="):
        load_tfds("mnist", **options)
