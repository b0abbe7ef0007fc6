"""The command line of every recipe, and what it says of a full disk."""

import contextlib
import dataclasses
import errno
import sys
import types
import typing
from typing import Annotated

import tyro

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
        args=spelled_out(apart(sys.argv[1:], config_class), config_class),
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


def apart(arguments, config_class):
    """The command line with `--models gmlp,smlp` as tyro reads it.

    Of a setting that names some of a few words, tyro wants spaces; words have
    no commas of their own.
    """
    names, within, found = set(_choices(config_class)), False, []
    for argument in arguments:
        if argument.startswith("--"):
            option, equals, value = argument.partition("=")
            within = dashed(option.replace("-", "_")) in names
            if within and equals:
                found.append(option)
                argument = value
        if within:
            found += [word for word in argument.split(",") if word]
        else:
            found.append(argument)
    return found


def _choices(config_class):
    """Names of the settings that are tuples of a few words."""
    for name, hint in typing.get_type_hints(config_class).items():
        if dataclasses.is_dataclass(hint):
            yield from _choices(hint)
            continue
        inside = (*typing.get_args(hint), None)[0]
        if typing.get_origin(hint) is tuple and (
            typing.get_origin(inside) is typing.Literal
        ):
            yield dashed(name)


def _flags(config_class):
    """Names of the settings that are `bool | None`."""
    for name, hint in typing.get_type_hints(config_class).items():
        if dataclasses.is_dataclass(hint):
            yield from _flags(hint)
        elif set(typing.get_args(hint)) == {bool, types.NoneType}:
            yield dashed(name)


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
