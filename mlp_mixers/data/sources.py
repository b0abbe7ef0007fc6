"""One line that names a data set: `digits`, `folder:...`, `npz:...`."""

import difflib
import inspect
import pathlib

from mlp_mixers.data.digits import load_digits
from mlp_mixers.data.image_folder import load_folder
from mlp_mixers.data.npz import load_npz
from mlp_mixers.data.tfds import load_tfds

SOURCES = {
    "digits": load_digits,
    "npz": load_npz,
    "folder": load_folder,
    "tfds": load_tfds,
}
FORMS = """
    digits        1,797 handwritten 8x8 digits, inside scikit-learn
    npz:FILE      arrays `images` and `labels` in an npz file
    folder:DIR    a folder of images for each class
    tfds:NAME     a data set of tensorflow_datasets"""
# Names that people type when they mean tensorflow_datasets.
TFDS_NAMES = (
    *("mnist", "fashion_mnist", "emnist", "kmnist", "cifar10", "cifar100"),
    *("svhn_cropped", "stl10", "imagenet2012", "imagenette", "imagewoof"),
    *("oxford_flowers102", "oxford_iiit_pet", "food101", "cats_vs_dogs"),
    *("caltech101", "dtd", "eurosat", "beans", "stanford_dogs"),
)


def load_data(spec, **options):
    """Loads the images that one line names.

    Args:
        spec: `digits`, `npz:FILE`, `folder:DIR` or `tfds:NAME`. A `~` at the
            beginning of a path is the home folder.
        **options: Arguments of `load_npz`, `load_folder` or `load_tfds`.

    Returns:
        A `Split`.

    Raises:
        ValueError: If there is no such source, or it has no such option.
    """
    source, path = _parse(spec)
    load = SOURCES[source]
    allowed = [*inspect.signature(load).parameters]
    if path is not None:
        allowed = allowed[1:]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ValueError(
            f"The source `{source}` has the options "
            f"{', '.join(allowed) or '(none)'}. "
            f"Received: {', '.join(unknown)}"
        )
    return load(**options) if path is None else load(path, **options)


def _parse(spec):
    """`(source, what follows the colon or None)`."""
    if not isinstance(spec, str):
        raise ValueError(
            f"Data is named by a line of text:{FORMS}\nReceived: {spec!r}"
        )
    source, colon, path = spec.partition(":")
    if source == "digits" and not colon:
        return source, None
    if source in SOURCES and source != "digits" and path:
        return source, path
    hint = _hint(spec)
    raise ValueError(
        f"There is no such data: {spec!r}."
        + (f" Did you mean {hint}?" if hint else "")
        + f" Data is named by one of{FORMS}"
    )


def _hint(spec):
    """What `spec` may have been meant to be, or `None`."""
    source, colon, path = spec.partition(":")
    if source == "digits":
        return "digits"
    found = pathlib.Path(spec).expanduser()
    if spec and found.is_dir():
        return f"folder:{spec}"
    if found.suffix == ".npz" or found.is_file():
        return f"npz:{spec}"
    if path:
        close = difflib.get_close_matches(source.lower(), SOURCES, 1)
        return f"{close[0]}:{path}" if close and close != ["digits"] else None
    if colon:
        return f"{source}:..." if source in SOURCES else None
    if source.replace("-", "").lower() in TFDS_NAMES:
        return f"tfds:{source.replace('-', '').lower()}"
    close = difflib.get_close_matches(source.lower(), ("digits", *TFDS_NAMES))
    if close:
        return close[0] if close[0] == "digits" else f"tfds:{close[0]}"
    return f"{source}:..." if source in SOURCES else None
