"""From the name or folder of a preset to a class and its arguments."""

import difflib
import inspect
import os

import keras

from mlp_mixers.models import preset_folder
from mlp_mixers.models.presets import PRESETS


def find_backbone(preset, load_weights):
    """Looks a preset's backbone up.

    Args:
        preset: Name of a built-in preset, or path of a folder: of the preset
            itself, or of a run that keeps it inside.
        load_weights: Whether weights are wanted.

    Returns:
        `(folder, registered name, config)`, the folder `None` if built in.

    Raises:
        ValueError: If there is no such preset, or weights are wanted and it
            has none.
    """
    if isinstance(preset, str) and preset in PRESETS:
        entry = PRESETS[preset]
        if load_weights and entry["weights"] is None:
            available = [k for k, v in PRESETS.items() if v["weights"]]
            raise ValueError(
                f"The preset {preset!r} has no public weights. Pass "
                "`load_weights=False` to start from random ones. Presets "
                f"with weights: {', '.join(available)}"
            )
        return None, f"mlp_mixers>{entry['class_name']}", entry["config"]
    folder = folder_of(preset)
    if folder.is_file():
        raise ValueError(
            f"{str(folder)!r} is a file, and a preset is a folder. A `.keras` "
            "file is opened by `keras.saving.load_model`."
        )
    found = folder.is_dir() and preset_folder.read_description(
        folder, preset_folder.BACKBONE_FILE
    )
    if found:
        return folder, *found
    if folder.is_dir():
        raise ValueError(
            f"The folder {str(folder)!r} is not a preset: it has no "
            f"{preset_folder.BACKBONE_FILE}. `save_to_preset` writes one."
        )
    close = difflib.get_close_matches(str(preset), PRESETS, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"There is no preset and no folder of this name.{hint} Built-in "
        f"presets: {list(PRESETS)}. Received: preset={str(preset)!r}"
    )


def folder_of(preset):
    """The folder that a preset names, there or not; `None` if built in.

    Raises:
        ValueError: If it is neither a name nor a path.
    """
    if isinstance(preset, str) and preset in PRESETS:
        return None
    if not isinstance(preset, (str, os.PathLike)):
        raise ValueError(
            "`preset` must be a name or the path of a folder. "
            f"Received: preset={preset!r}"
        )
    return preset_folder.locate(preset)


def with_subclasses(cls):
    """Yields a class and all that derive from it."""
    yield cls
    for subclass in cls.__subclasses__():
        yield from with_subclasses(subclass)


def is_known(cls, registered_name):
    """Whether this is the name of `cls` or of a class that derives from it."""
    return registered_name in map(
        keras.saving.get_registered_name, with_subclasses(cls)
    )


def subclass_named(cls, registered_name, preset):
    """Finds the class that a preset names, among `cls` and what derives.

    No other class is ever looked at, so a preset can load nothing else.

    Raises:
        ValueError: If there is none.
    """
    for candidate in with_subclasses(cls):
        if keras.saving.get_registered_name(candidate) == registered_name:
            return candidate
    class_name = registered_name.split(">")[-1]
    raise ValueError(
        f"The preset {str(preset)!r} holds a {class_name}, which is no "
        f"{cls.__name__} that is known here. Import the module that defines "
        f"it, or call `from_preset` on {class_name}. "
        f"Received: registered_name={registered_name!r}"
    )


def arguments_of(cls):
    """The names that a constructor takes, `keras.Model`'s included."""
    names = set(inspect.signature(cls.__init__).parameters)
    return names - {"self", "args", "kwargs"} | {"name", "trainable"}


def check_arguments(cls, given):
    """Raises a ValueError if a constructor does not take what is given."""
    unknown = set(given) - arguments_of(cls)
    if unknown:
        raise ValueError(
            f"{cls.__name__} has no argument {sorted(unknown)}. It takes "
            f"{sorted(arguments_of(cls))}."
        )


def with_dtype(config):
    """A copy of `config` with its dtype policy rebuilt."""
    config = dict(config)
    if isinstance(config.get("dtype"), dict):
        config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
    return config


class ClassProperty:
    """A read-only property of the class itself."""

    def __init__(self, getter):
        self.getter = getter
        self.__doc__ = getter.__doc__

    def __get__(self, instance, owner):
        return self.getter(owner)
