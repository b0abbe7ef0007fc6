"""Folders of image files, one for each class."""

import collections
import concurrent.futures
import os
import pathlib
import sys

import numpy as np

from mlp_mixers.data.image_files import ImageFiles
from mlp_mixers.data.image_files import check_channels
from mlp_mixers.data.image_files import check_header
from mlp_mixers.data.image_files import read_image
from mlp_mixers.data.split import check_cut
from mlp_mixers.data.split import complete_split
from mlp_mixers.data.split import shorten

EXTENSIONS = (
    *(".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp"),
    *(".tif", ".tiff", ".ppm"),
)
# What folders for the parts may be called.
PART_FOLDERS = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
LAYOUT = """It must hold a folder of images for each class,
    cats/1.jpg  dogs/1.jpg
or such folders for each part, of which `val` and `test` may be missing:
    train/cats/1.jpg  train/dogs/1.jpg  val/cats/2.jpg  val/dogs/2.jpg"""


def load_folder(
    folder,
    channels=3,
    seed=0,
    validation_fraction=0.1,
    test_fraction=0.1,
    check="full",
    progress=True,
):
    """Images in a folder for each class, or in such folders for each part.

        folder/cats/1.jpg           folder/train/cats/1.jpg
        folder/dogs/a/b.png         folder/val/cats/2.jpg
                                    folder/test/cats/3.jpg

    Folders inside a class belong to it, and links are followed. Hidden files
    and folders and `__MACOSX` are ignored; files without the extension of an
    image are counted and left out. Without a validation or test folder, that
    part is drawn from the training images, every class in proportion.

    Images are decoded when they are asked for. Of what was found, only the
    paths are kept in memory.

    Args:
        folder: Path.
        channels: 3 for RGB, 1 for grey.
        seed: Integer, for drawing the parts that have no folder.
        validation_fraction: Part of the training images that becomes the
            validation images, if these have no folder.
        test_fraction: The same for the test images.
        check: `"full"`: decode every file once, and leave out those that
            cannot be read. `"headers"`: only look at their beginnings, which
            is faster and misses truncated files.
        progress: Whether to show a bar while checking, on a terminal.

    Returns:
        A `Split` of `ImageFiles`, class names in alphabetical order. Its
        `notes` say what was left out.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the folder is laid out differently, nothing in it can be
            read, there is one class only, or parts have different classes.
    """
    check_channels(channels)
    check_cut(seed, validation_fraction, test_fraction)
    if check not in ("full", "headers"):
        raise ValueError(
            "Files are checked in `full`, or only their `headers`. "
            f"Received: check={check!r}"
        )
    folder = pathlib.Path(folder).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no such folder: {folder}")

    notes = []
    parts = _find(folder, notes)
    # Mistakes in the layout come out before every file is read.
    _classes(parts, folder, notes=[])
    parts = _without_broken(parts, folder, channels, check, progress, notes)
    names = _classes(parts, folder, notes)
    return complete_split(
        {part: _part(parts[part], names, channels) for part in parts},
        names,
        seed,
        validation_fraction,
        test_fraction,
        notes=notes,
    )


def _without_broken(parts, folder, channels, check, progress, notes):
    """The parts without the files that cannot be read."""
    paths = [p for c in parts.values() for files in c.values() for p in files]
    broken = find_broken(paths, channels, check, progress)
    if len(broken) == len(paths):
        raise ValueError(
            f"None of the {_count(len(paths), 'image')} in {folder} can be "
            f"read. The first: {next(iter(broken.values()))}"
        )
    if broken:
        names = [str(pathlib.Path(p).relative_to(folder)) for p in broken]
        notes.append(
            f"{_count(len(broken), 'file')} could not be read: left "
            f"out {shorten(names)}"
        )
    return {
        part: {
            name: [path for path in files if path not in broken]
            for name, files in classes.items()
        }
        for part, classes in parts.items()
    }


def find_broken(paths, channels=3, check="full", progress=True):
    """Reads every file once, several at a time.

    Returns:
        Dictionary from the paths that cannot be read to the reasons.
    """

    def reason(path):
        try:
            if check == "full":
                read_image(path, channels)
            else:
                check_header(path)
        except (ValueError, OSError) as error:
            return str(error)

    # Decoders release the interpreter while they work.
    workers = min(32, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        reasons = _with_bar(pool.map(reason, paths), len(paths), progress)
        try:
            return {p: why for p, why in zip(paths, reasons) if why}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _with_bar(items, total, progress):
    """The items as they come, with a bar if somebody is looking."""
    if not (progress and sys.stdout.isatty()):
        return items
    from rich.progress import track

    return track(items, "checking images", total=total, transient=True)


def _find(folder, notes):
    """Image files by part and class: `{part: {class: paths}}`."""
    names = {p.name: p for p in _folders(folder)}
    parts = _part_folders(names)
    if parts is None:
        return {"train": _find_classes(folder, "", notes)}
    others = sorted(set(names) - {p.name for p in parts.values()})
    if others:
        notes.append(
            "beside the folders of the parts lie others, left out: "
            f"{shorten(others)}"
        )
    found = {}
    for part, path in parts.items():
        if part == "test" and not _folders(path):
            notes.append(
                f"the folder '{path.name}' has no folders for classes, and so "
                "no labels: left out"
            )
            continue
        found[part] = _find_classes(path, f"{path.name}/", notes)
    return found


def _part_folders(names):
    """Folders by part, or `None` if the folders are the classes."""
    parts = {}
    for name, path in names.items():
        part = PART_FOLDERS.get(name.lower())
        if part in parts:
            raise ValueError(
                f"There are two folders for the {part} images. Keep one. "
                f"Received: {parts[part].name}, {name} in {path.parent}"
            )
        if part:
            parts[part] = path
    # `train` beside `car` and `plane` is a class of vehicles.
    alone = len(names) == 1
    return parts if "train" in parts and (len(parts) > 1 or alone) else None


def _find_classes(folder, prefix, notes):
    """Image files by class: `{class: paths}`, sorted both."""
    others = collections.Counter()
    outside, found = [], {}
    for entry in sorted(_visible(folder), key=lambda path: path.name):
        if entry.is_dir():
            found[entry.name] = sorted(_walk(entry, (), others))
        elif entry.suffix.lower() in EXTENSIONS:
            outside.append(entry.name)
        else:
            others[entry.suffix.lower()] += 1
    if not found:
        what = f"{_count(len(outside), 'image')} directly in it"
        raise ValueError(
            f"There are no folders for classes in {folder}. {LAYOUT}\n"
            f"Received: a folder with {what if outside else 'no images'}"
        )
    if outside:
        notes.append(
            f"{_count(len(outside), 'image')} directly in "
            f"'{prefix or folder.name}', outside of any class, left out: "
            f"{shorten(outside)}"
        )
    if others:
        kinds = (f"{k or 'no extension'} ({n})" for k, n in others.items())
        notes.append(
            f"{_count(others.total(), 'file')} without the extension of an "
            f"image left out: {shorten(list(kinds))}"
        )
    return found


def _walk(folder, above, others):
    """Paths of the images in `folder` and below; counts the other files."""
    # A link may lead back up.
    real = os.path.realpath(folder)
    if real in above:
        return
    for entry in _visible(folder):
        if entry.is_dir():
            yield from _walk(entry, (*above, real), others)
        elif entry.suffix.lower() in EXTENSIONS:
            yield str(entry)
        else:
            others[entry.suffix.lower()] += 1


def _visible(folder):
    return [
        path
        for path in pathlib.Path(folder).iterdir()
        if not path.name.startswith(".") and path.name != "__MACOSX"
    ]


def _folders(folder):
    return [path for path in _visible(folder) if path.is_dir()]


def _classes(parts, folder, notes):
    """Names of the classes, which must be the same in all parts."""
    train = parts["train"]
    names = [name for name, paths in train.items() if paths]
    if not names:
        raise ValueError(
            f"There are no images in the class folders of {folder}. Images "
            f"are files that end in {' '.join(EXTENSIONS)}. Received: "
            f"folders {shorten(list(train))}"
        )
    for part, classes in parts.items():
        filled = {name for name, paths in classes.items() if paths}
        extra, missing = filled - set(names), set(names) - set(classes)
        if extra or missing:
            only = {"train": sorted(missing), part: sorted(extra)}
            only = [f"{k}: {shorten(v)}" for k, v in only.items() if v]
            raise ValueError(
                "The parts must have the same classes. Received: classes in "
                f"one part only, {'; '.join(only)} (in {folder})"
            )
        notes.extend(
            f"class '{name}' has no images"
            + (": left out" if part == "train" else f" for {part}")
            for name in classes
            if name not in filled and (part == "train" or name in names)
        )
    if len(names) < 2:
        raise ValueError(
            f"Classification needs two classes at least. {LAYOUT}\n"
            f"Received: only {names[0]} in {folder}"
        )
    return tuple(names)


def _part(classes, names, channels):
    """`(images, labels)` of one part."""
    paths = [path for name in names for path in classes[name]]
    counts = [len(classes[name]) for name in names]
    labels = np.repeat(np.arange(len(names), dtype="int32"), counts)
    return ImageFiles(paths, channels), labels


def _count(number, noun):
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
