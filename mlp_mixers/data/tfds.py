"""Image data sets of tensorflow_datasets."""

import difflib
import importlib.util
import io
import os

import numpy as np

from mlp_mixers.data.image_files import check_channels
from mlp_mixers.data.image_files import read_image
from mlp_mixers.data.split import check_cut
from mlp_mixers.data.split import complete_split

READERS = ("auto", "tf.data", "data_source")
SPLITS = {
    "train": ("train",),
    "validation": ("validation", "val", "valid"),
    "test": ("test",),
}
GIB = 2**30


def load_tfds(
    name,
    data_dir=None,
    channels=3,
    seed=0,
    validation_fraction=0.1,
    test_fraction=0.1,
    reader="auto",
    download=True,
    memory_limit_gib=4.0,
):
    """Images and labels of a data set of tensorflow_datasets.

    Which way they are read depends on the format in which the data set was
    prepared, and both ways give the same images in the same order:

    - `array_record`: any image can be read at any time. Nothing but labels is
      kept in memory, and TensorFlow is not needed. Since a record holds its
      image beside its label, everything is read once at the beginning.
    - `tfrecord`: TensorFlow's tf.data reads everything once, and the images
      are kept in memory as they were encoded (PNG or JPEG), up to a limit.

    Pillow decodes the images, when they are asked for (`read_image`).

    Args:
        name: `NAME`, `NAME/CONFIG` or `NAME/CONFIG:VERSION`.
        data_dir: Where data sets are prepared; `None` for the usual folder
            of tensorflow_datasets.
        channels: 3 for RGB, 1 for grey.
        seed: Integer, for drawing the parts that the data set does not have.
        validation_fraction: Part of the training images that becomes the
            validation images, if the data set has none.
        test_fraction: The same for the test images.
        reader: `"data_source"` or `"tf.data"` to insist on one of the two
            ways; `"auto"` for the one that fits the format.
        download: Whether to download and prepare a data set that is not
            there; as `array_record`, unless `reader="tf.data"`.
        memory_limit_gib: Largest size of the encoded images, in GiB, that
            tf.data may read into memory.

    Returns:
        A `Split`; its images are `RecordImages` or `EncodedImages`.

    Raises:
        ImportError: If tensorflow_datasets is not installed.
        ValueError: If the data set is unknown, not there, not one of images
            with one label each, in a format that the reader does not read,
            or too large for the memory.
    """
    check_channels(channels)
    check_cut(seed, validation_fraction, test_fraction)
    if reader not in READERS:
        raise ValueError(
            f"`reader` must be one of {READERS}. Received: reader={reader!r}"
        )
    data_dir = None if data_dir is None else os.path.expanduser(data_dir)
    try:
        builder = import_tfds().builder(name, data_dir=data_dir)
    # An AssertionError is what the package raises for a missing version.
    except (AssertionError, ValueError) as error:
        raise ValueError(not_found(name, data_dir, error)) from error
    # Before anything is downloaded.
    keys = _feature_keys(builder)
    if not builder.is_prepared():
        builder = prepared(builder, name, data_dir, reader, download)
    splits = splits_of(builder)
    if choose_reader(builder, reader) == "data_source":
        load = _from_data_source
    else:
        check_size(builder, splits.values(), memory_limit_gib)
        load = _from_tf_data
    parts = {
        part: load(builder, split, keys, channels)
        for part, split in splits.items()
    }
    notes = _without_labels(parts, name)
    return complete_split(
        parts,
        builder.info.features[keys[1]].names,
        seed,
        validation_fraction,
        test_fraction,
        notes=notes,
    )


class EncodedImages:
    """A sequence of images that are decoded when they are asked for.

    Args:
        encoded: Sequence with the bytes of an image file at each index.
        channels: 3 for RGB, 1 for grey.
    """

    def __init__(self, encoded, channels=3):
        check_channels(channels)
        self.encoded = encoded
        self.channels = channels

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, index):
        return read_image(io.BytesIO(self.encoded[index]), self.channels)

    def take(self, rows):
        """The same for the images at the indices `rows`."""
        return EncodedImages([self.encoded[i] for i in rows], self.channels)


class RecordImages:
    """A sequence of images that are read and decoded when asked for.

    Args:
        source: A data source of tensorflow_datasets that skips decoding.
        key: Name of the feature with the image.
        channels: 3 for RGB, 1 for grey.
        rows: Indices of the records; all if `None`.
    """

    def __init__(self, source, key, channels=3, rows=None):
        check_channels(channels)
        self.source = source
        self.key = key
        self.channels = channels
        self.rows = np.arange(len(source)) if rows is None else rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        record = self.source[int(self.rows[index])]
        return read_image(io.BytesIO(record[self.key]), self.channels)

    def take(self, rows):
        """The same for the images at the indices `rows`."""
        return RecordImages(
            self.source, self.key, self.channels, self.rows[rows]
        )


def import_tfds():
    """The package tensorflow_datasets; TensorFlow comes with it only later."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            "Data sets named `tfds:...` need tensorflow_datasets: "
            "pip install 'mlp_mixers[data]'"
        ) from error
    # The package logs what goes wrong while it is imported, and goes on.
    if not hasattr(tfds, "builder"):
        raise ImportError(
            "tensorflow_datasets is installed and cannot be imported; the "
            "log says why. Something it needs may be missing: "
            "pip install 'mlp_mixers[data]'"
        )
    return tfds


def prepared(builder, name, data_dir, reader, download):
    """Downloads and prepares; returns the builder that did."""
    if not download:
        raise ValueError(
            f"The data set {name!r} is not prepared in {builder.data_dir}. "
            f"Prepare it:\n{_how_to_prepare(name, data_dir)}"
        )
    file_format = "tfrecord" if reader == "tf.data" else "array_record"
    builder = import_tfds().builder(
        name, data_dir=data_dir, file_format=file_format
    )
    try:
        builder.download_and_prepare()
    # The package raises whatever its many builders and servers raise.
    except Exception as error:
        raise ValueError(
            f"The data set {name!r} is not prepared in {builder.data_dir}, "
            f"and could not be downloaded and prepared. {error}"
        ) from error
    return builder


def not_found(name, data_dir, error):
    """What to say instead of the package's catalogue of all its data sets."""
    tfds = import_tfds()
    base = name.split("/")[0].split(":")[0]
    close = difflib.get_close_matches(base, tfds.list_builders(), n=1)
    hint = f" Did you mean {close[0]!r}?" if close and close != [base] else ""
    where = data_dir or os.environ.get("TFDS_DATA_DIR", "the usual folder")
    reason = str(error).split("Available datasets")[0].strip()
    return (
        f"tensorflow_datasets has no data set {name!r}, and none of this name, "
        f"version and configuration is prepared in {where}.{hint} It says: "
        f"{reason.splitlines()[0] if reason else type(error).__name__}"
    )


def _how_to_prepare(name, data_dir):
    where = f", data_dir={str(data_dir)!r}" if data_dir else ""
    return (
        "    import tensorflow_datasets as tfds\n"
        f"    tfds.builder({name!r}{where}, "
        'file_format="array_record").download_and_prepare()'
    )


def _feature_keys(builder):
    """Names of the features with the image and the label."""
    tfds = import_tfds()
    features = builder.info.features
    named = dict(features.items()) if hasattr(features, "items") else {}
    keys = builder.info.supervised_keys
    if keys is None:
        keys = [
            [k for k, feature in named.items() if type(feature) is kind]
            for kind in (tfds.features.Image, tfds.features.ClassLabel)
        ]
        # Without a hint, only what cannot be mistaken.
        keys = [k[0] for k in keys if len(k) == 1]
    fine = (
        len(keys) == 2
        and all(isinstance(k, str) and k in named for k in keys)
        and isinstance(named[keys[0]], tfds.features.Image)
        and isinstance(named[keys[1]], tfds.features.ClassLabel)
        and named[keys[0]].np_dtype == np.uint8
        and named[keys[1]].names
    )
    if not fine:
        described = (f"{k}: {feature!r}" for k, feature in named.items())
        raise ValueError(
            f"{builder.info.full_name} is not a data set for image "
            "classification: it needs one image of 8 bits and one class "
            "label. Received: features "
            f"{', '.join(described) or repr(features)}; "
            f"supervised_keys={builder.info.supervised_keys}"
        )
    return tuple(keys)


def splits_of(builder):
    """Names of the data set's splits by part."""
    there = builder.info.splits
    splits = {
        part: name
        for part, names in SPLITS.items()
        for name in reversed(names)
        if name in there
    }
    if "train" not in splits:
        raise ValueError(
            f"{builder.info.full_name} has no split `train`. "
            f"Received: splits {', '.join(there) or 'none'}"
        )
    return splits


def choose_reader(builder, reader):
    """`"data_source"` or `"tf.data"`, as the files allow."""
    info = builder.info
    formats = {f.value for f in info.available_file_formats()}
    formats = formats or {info.file_format.value}
    possible = {
        way
        for way, form in (
            ("data_source", "array_record"),
            ("tf.data", "tfrecord"),
        )
        if form in formats
    }
    chosen = reader
    if reader == "auto":
        # Random access wherever there is a choice.
        chosen = "data_source" if "data_source" in possible else "tf.data"
    here = (
        f"{info.full_name} in {builder.data_dir} is in the format "
        f"{', '.join(sorted(formats))}"
    )
    again = (
        "Prepare it as array_record, in another folder:\n"
        f"{_how_to_prepare(info.full_name, 'ANOTHER_FOLDER')}"
    )
    if chosen not in possible:
        raise ValueError(
            f"{here}, which the reader {chosen!r} does not read. "
            + (again if "data_source" not in possible else 'Use reader="auto".')
            + f"\nReceived: reader={reader!r}"
        )
    if chosen == "tf.data" and importlib.util.find_spec("tensorflow") is None:
        raise ImportError(
            f"{here}, which needs TensorFlow: pip install tensorflow. Or "
            f"without: {again}"
        )
    return chosen


def check_size(builder, splits, limit):
    """Raises a ValueError for what does not fit into memory."""
    size = sum(builder.info.splits[name].num_bytes for name in splits)
    if size > limit * GIB:
        raise ValueError(
            f"{builder.info.full_name} takes {size / GIB:.3g} GiB, and tf.data "
            f"would keep all of it in memory, where the limit is {limit} GiB "
            "(`memory_limit_gib`). As array_record nothing is kept; prepare it "
            "so, in another folder:\n"
            f"{_how_to_prepare(builder.info.full_name, 'ANOTHER_FOLDER')}"
        )


def _from_data_source(builder, split, keys, channels):
    """`(images, labels)` of a split, by random access."""
    image, label = keys
    source = builder.as_data_source(
        split, decoders={image: import_tfds().decode.SkipDecoding()}
    )
    # A record is one piece: labels cannot be read without the images.
    labels = np.array([source[i][label] for i in range(len(source))], "int32")
    return RecordImages(source, image, channels), labels


def _from_tf_data(builder, split, keys, channels):
    """`(images, labels)` of a split, read from beginning to end."""
    # TensorFlow would take all memory of a GPU that another backend needs.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    tfds = import_tfds()
    image, label = keys
    records = builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders={image: tfds.decode.SkipDecoding()},
        # One file after the other; otherwise their records are interleaved.
        read_config=tfds.ReadConfig(
            interleave_cycle_length=1, try_autocache=False
        ),
    )
    encoded, labels = [], []
    for record in records.as_numpy_iterator():
        encoded.append(record[image])
        labels.append(record[label])
    return EncodedImages(encoded, channels), np.array(labels, "int32")


def _without_labels(parts, name):
    """Removes parts whose labels are secret, written as -1; returns notes."""
    notes = []
    for part, (_, labels) in list(parts.items()):
        if len(labels) and (labels >= 0).all():
            continue
        if part != "test":
            raise ValueError(
                f"The {part} images of {name} need a label each. Received: "
                f"{len(labels):,} images, {(labels < 0).sum():,} without label"
            )
        notes.append(f"the test images of {name} have no labels: left out")
        del parts[part]
    return notes
