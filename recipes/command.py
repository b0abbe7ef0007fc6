"""The command line of every recipe, and the folder that it goes on with."""

import contextlib
import dataclasses
import errno
import pathlib
import sys
import types
import typing
from typing import Annotated

import tyro

from recipes import runs
from recipes.checks import dashed

# What h5py says in words, and the system by number.
FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
FULL_WORDS = ("No space left on device", "Disk quota exceeded")


def run(main, config_class, description, recipe):
    """Reads the command line and runs; bad settings end in one line.

    Args:
        main: Function of a configuration.
        config_class: The dataclass of all settings.
        description: What `--help` begins with.
        recipe: Name of the recipe's module in `recipes`.
    """
    config = tyro.cli(
        Annotated[config_class, tyro.conf.OmitArgPrefixes],
        description=description,
        prog=f"python -m recipes.{recipe}",
        args=spelled_out(sys.argv[1:], config_class),
    )
    try:
        main(config)
    except MemoryError as error:
        sys.exit(f"error: There is not enough memory. {error}")
    except (ValueError, FloatingPointError, OSError, ImportError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt as error:
        print(str(error) or "Interrupted.", file=sys.stderr)
        sys.exit(130)


def spelled_out(arguments, config_class):
    """The command line with `--toeplitz` and `--no-toeplitz` as tyro reads it.

    Of a setting that may be `None`, tyro wants a value: `--toeplitz True`.
    """
    names = set(_flags(config_class))
    found = []
    for i, argument in enumerate(arguments):
        name = argument.removeprefix("--").replace("_", "-")
        following = arguments[i + 1 : i + 2]
        if not argument.startswith("--"):
            found.append(argument)
        elif name in names and following not in (["True"], ["False"], ["None"]):
            found += [argument, "True"]
        elif name.startswith("no-") and name[3:] in names:
            found += [f"--{name[3:]}", "False"]
        else:
            found.append(argument)
    return found


def _flags(config_class):
    """Names of the settings that are `bool | None`."""
    for name, hint in typing.get_type_hints(config_class).items():
        if dataclasses.is_dataclass(hint):
            yield from _flags(hint)
        elif set(typing.get_args(hint)) == {bool, types.NoneType}:
            yield dashed(name)


def run_to_resume(config, is_alone, result_keys, recipe):
    """The folder of an interrupted run, and what it has recorded.

    Args:
        config: A configuration whose `resume` is set.
        is_alone: Whether nothing else was asked for.
        result_keys: Names that its `results.json` must have.
        recipe: Name of the recipe.

    Returns:
        `(folder, config.json's content, results.json's content or None)`.

    Raises:
        ValueError: If the folder holds no run, or one of another recipe, or
            other settings are given.
    """
    folder = pathlib.Path(config.resume).expanduser()
    if not is_alone:
        raise ValueError(
            "A run goes on with its own settings: give --resume alone. "
            "(For other settings, start a new run, with --from if you like.)"
        )
    if not (folder / "config.json").is_file():
        raise ValueError(
            "There is no run to go on with in this folder: it has no "
            f"config.json. Received: --resume {folder}"
        )
    record = runs.read(folder / "config.json")
    other = runs.recipe_of(record)
    if other not in (None, recipe):
        raise ValueError(
            f"The run in {folder} is one of recipes.{other}. Go on with: "
            f"python -m recipes.{other} --resume {folder}"
        )
    results = None
    if (folder / "results.json").exists():
        print(f"The run in {folder} has finished.")
        results = runs.read(folder / "results.json", result_keys)
    return folder, record, results


def check_identity(folder, record, identity):
    """Raises a ValueError if what must not change is not what it was.

    Args:
        folder: Of the run.
        record: What its `config.json` says.
        identity: Dictionary of what there is now, in words and digests.
    """
    saved = record.get("identity")
    if not isinstance(saved, dict):  # of an older version
        return
    changed = [k for k, v in identity.items() if saved.get(k) != v]
    if changed:
        raise ValueError(
            f"The run in {folder} began with another "
            f"{' and another '.join(changed)}. Go on with the same, or start a "
            "new run."
        )


class FullDisk(OSError):
    """There is no room for what a run writes."""


@contextlib.contextmanager
def room_for(folder, recipe):
    """Says which disk is full, and how to go on, where something is written.

    Args:
        folder: Of the run.
        recipe: Name of the recipe.

    Raises:
        FullDisk: In place of what the system or HDF5 raise.
    """
    try:
        yield
    except FullDisk:
        raise
    except (OSError, RuntimeError) as error:
        full = getattr(error, "errno", None) in FULL
        if not full and not any(words in str(error) for words in FULL_WORDS):
            raise
        raise FullDisk(
            f"The disk is full, and not all of {folder} could be written. "
            "What was written before is kept. Make room, then go on with: "
            f"python -m recipes.{recipe} --resume {folder}"
        ) from error
