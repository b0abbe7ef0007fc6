"""Images and labels in one npz file."""

import contextlib
import pathlib
import zipfile
import zlib

import numpy as np

from mlp_mixers.data.split import PARTS
from mlp_mixers.data.split import check_cut
from mlp_mixers.data.split import complete_split
from mlp_mixers.data.split import shorten

# What the arrays of a part may be called, before `_images` and `_labels`.
PREFIXES = {
    "train": ("train",),
    "validation": ("validation", "val"),
    "test": ("test",),
}


def load_npz(
    path,
    split="stratified",
    seed=0,
    validation_fraction=0.1,
    test_fraction=0.1,
):
    """Images and labels out of an npz file, without executing anything in it.

    The file holds either all images,

        images  (n, height, width) or (n, height, width, channels)
        labels  (n,) or (n, 1)

    or the parts, where `val` may be called `validation` and all but `train`
    may be missing:

        train_images  train_labels  val_images  val_labels
        test_images   test_labels

    and in both cases, if one likes, `classes`: the names of the labels 0, 1,
    2, ... Images are uint8, or floats in [0, 1]. Labels are integers from 0
    without gaps (with `classes`: any of them), or strings.

    All images stay in memory, uint8 as uint8.

    Args:
        path: The file.
        split: How parts that the file does not have are cut:
            `"stratified"`, every class in proportion and drawn by `seed`, or
            `"rows"`, the first 80% of the rows, the next 10% and the last.
        seed: Integer.
        validation_fraction: Part of the images that validates.
        test_fraction: Part of the images that tests.

    Returns:
        A `Split` of arrays.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file or an array in it is not as described.
    """
    check_cut(seed, validation_fraction, test_fraction, split)
    path = pathlib.Path(path).expanduser()
    with _open(path) as arrays:
        images, labels = _read_parts(arrays)
        labels, names, notes = _numbered(labels, arrays)
    return complete_split(
        {part: (images[part], labels[part]) for part in images},
        names,
        seed,
        validation_fraction,
        test_fraction,
        way=split,
        notes=notes,
    )


def _read_parts(arrays):
    """Images and labels as they are in the file: `{part: array}` of both."""
    keys = _keys(arrays)
    images = {part: _images(arrays, key) for part, (key, _) in keys.items()}
    labels = {
        part: _labels(arrays, key, len(images[part]))
        for part, (_, key) in keys.items()
    }
    shapes = {array.shape[1:] for array in images.values()}
    if len(shapes) > 1:
        raise ValueError(
            f"The parts in {arrays.path} must have images of one size. "
            f"Received: {sorted(shapes)}"
        )
    return images, labels


@contextlib.contextmanager
def _open(path):
    """The arrays of a file, which is closed in the end."""
    if path.is_dir():
        raise ValueError(f"This is a folder, not an npz file: {path}")
    if not path.exists():
        raise FileNotFoundError(f"There is no such file: {path}")
    with open(path, "rb") as file:
        try:
            # Never with pickle, which executes what a file says.
            arrays = np.load(file, allow_pickle=False)
            names = tuple(arrays.files)
        # A lone array, which is what `np.load` returns then, has no `files`.
        except (
            *(OSError, ValueError, EOFError, AttributeError),
            zipfile.BadZipFile,
        ) as error:
            raise ValueError(
                f"This is not an npz file, as `numpy.savez` writes it: {path}"
            ) from error
        with arrays:
            yield _Arrays(path, arrays, names)


class _Arrays:
    """The arrays of an open file, each read when it is asked for."""

    def __init__(self, path, file, names):
        self.path = path
        self.names = names
        self._file = file

    def __contains__(self, name):
        return name in self.names

    def __getitem__(self, name):
        try:
            return self._file[name]
        except ValueError as error:
            raise ValueError(
                f"The array `{name}` in {self.path} cannot be read without "
                "executing it. Save numbers, or strings with a dtype of "
                f"strings. NumPy says: {error}"
            ) from error
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(
                f"The array `{name}` in {self.path} is broken: {error}"
            ) from error


def _keys(arrays):
    """Names of the arrays: `{part: (images, labels)}`."""
    keys = {}
    for part in PARTS:
        for prefix in PREFIXES[part]:
            pair = (f"{prefix}_images", f"{prefix}_labels")
            if pair[0] not in arrays and pair[1] not in arrays:
                continue
            if part in keys:
                raise ValueError(
                    f"The {part} images are in {arrays.path} twice. "
                    f"Received: {keys[part][0]}, {pair[0]}"
                )
            keys[part] = pair
    if "images" in arrays or "labels" in arrays:
        if keys:
            raise ValueError(
                f"{arrays.path} must hold either all images or the parts, not "
                f"both. Received: arrays {', '.join(arrays.names)}"
            )
        keys["train"] = ("images", "labels")
    wanted = [key for pair in keys.values() for key in pair]
    if "train" not in keys or not all(key in arrays for key in wanted):
        missing = [key for key in wanted if key not in arrays]
        raise ValueError(
            f"{arrays.path} must hold `images` and `labels`, or "
            "`train_images`, `train_labels` and the same for val and test. "
            f"Missing: {', '.join(missing) or 'images to train with'}. "
            f"Received: arrays {', '.join(arrays.names) or 'none'}"
        )
    return keys


def _images(arrays, name):
    """uint8, or float32 in [0, 1], of shape (samples, h, w, channels)."""
    images = arrays[name]
    where = f"`{name}` in {arrays.path}"
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or 0 in images.shape or images.shape[-1] not in (1, 3):
        raise ValueError(
            f"{where} must have shape (samples, height, width), or "
            "(samples, height, width, channels) with 1 or 3 channels, and not "
            f"be empty. Received: shape={arrays[name].shape}"
        )
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise ValueError(
            f"{where} must be uint8, or floats in [0, 1]. "
            f"Received: dtype={images.dtype}"
        )
    low, high = images.min(), images.max()
    # Not a number fails this too.
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"{where} are floats and must lie in [0, 1]; grey values to 255 "
            "belong divided by 255, or stored as uint8. "
            f"Received: values from {low} to {high}"
        )
    return images.astype("float32", copy=False)


def _labels(arrays, name, samples):
    """Integers or strings of shape (samples,)."""
    labels = arrays[name]
    where = f"`{name}` in {arrays.path}"
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != samples:
        raise ValueError(
            f"{where} must hold one label for each of the {samples:,} images. "
            f"Received: shape={labels.shape}"
        )
    if labels.dtype.kind not in "iuUS":
        raise ValueError(
            f"{where} must be integers or strings. "
            f"Received: dtype={labels.dtype}"
        )
    if labels.dtype.kind in "iu" and labels.min() < 0:
        raise ValueError(
            f"{where} must count from 0. Received: a label {labels.min()}"
        )
    return _text(labels, where) if labels.dtype.kind == "S" else labels


def _text(labels, where):
    """Byte strings as text."""
    try:
        return np.char.decode(labels, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where} are bytes that are no text in UTF-8. {error}"
        ) from error


def _numbered(labels, arrays):
    """Labels as int32, the names of the classes, and notes."""
    kinds = {part: array.dtype.kind == "U" for part, array in labels.items()}
    if len(set(kinds.values())) > 1:
        raise ValueError(
            f"The labels in {arrays.path} must be integers in all parts, or "
            "strings in all."
        )
    present = np.unique(np.concatenate(list(labels.values())))
    names = _names(arrays)
    if kinds["train"]:
        names = names or tuple(map(str, present))
        number = {name: k for k, name in enumerate(names)}
        unknown = sorted(set(map(str, present)) - set(names))
        labels = {
            part: np.array([number.get(str(label), 0) for label in array])
            for part, array in labels.items()
        }
    else:
        known = range(len(names) if names else len(present))
        unknown = [str(k) for k in present if k not in known]
        names = names or tuple(map(str, present))
    if unknown:
        raise ValueError(
            f"The labels in {arrays.path} must be those in `classes`, or "
            "without `classes` integers from 0 without gaps. "
            f"Received: {len(names)} classes, and labels {shorten(unknown)}"
        )
    if len(names) < 2:
        raise ValueError(
            "Classification needs two classes at least. "
            f"Received: only {shorten(list(names))} in {arrays.path}"
        )
    labels = {part: array.astype("int32") for part, array in labels.items()}
    notes = [
        f"class '{name}' has no images to train with"
        for k, name in enumerate(names)
        if not (labels["train"] == k).any()
    ]
    return labels, names, notes


def _names(arrays):
    """The class names in the file, or `None`."""
    if "classes" not in arrays:
        return None
    names = arrays["classes"]
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        raise ValueError(
            f"`classes` in {arrays.path} must be a list of names. "
            f"Received: shape={names.shape}, dtype={names.dtype}"
        )
    if names.dtype.kind == "S":
        names = _text(names, f"`classes` in {arrays.path}")
    names = tuple(map(str, names))
    if len(set(names)) < len(names):
        raise ValueError(
            f"`classes` in {arrays.path} must name every class once. "
            f"Received: {shorten(list(names), 20)}"
        )
    return names
