"""What every recipe does around its training: folder, records, table."""

import json
import os
import pathlib
import platform

import keras
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import mlp_mixers


def new_folder(wanted):
    """Makes a folder for one run, beside earlier ones and never over them.

    Args:
        wanted: Path. If something is there already, `-2`, `-3` and so on is
            appended.

    Returns:
        The `pathlib.Path` of a folder that did not exist before.
    """
    if not pathlib.Path(wanted).name:
        raise ValueError(
            f"A run needs a folder with a name. Received: {str(wanted)!r}"
        )
    wanted = pathlib.Path(os.path.abspath(wanted))
    # Outside the loop, where "exists" can only mean the folder itself.
    wanted.parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        name = wanted.name if number == 1 else f"{wanted.name}-{number}"
        folder = wanted.with_name(name)
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


def versions():
    """Versions of what decides a result, by name."""
    backend = keras.backend.backend()
    return {
        "mlp_mixers": mlp_mixers.__version__,
        "python": platform.python_version(),
        "keras": keras.__version__,
        "backend": backend,
        backend: __import__(backend).__version__,
        "numpy": np.__version__,
    }


def record(folder, name, content):
    """Writes `content` as indented JSON into `folder`, whole or not at all.

    Args:
        folder: Path of the run.
        name: Name of the file.
        content: Dictionary.
    """
    text = json.dumps(content, indent=2, default=str)
    path = pathlib.Path(folder) / name
    unfinished = path.with_name(f"{name}.{os.getpid()}.tmp")
    unfinished.write_text(text + "\n")
    os.replace(unfinished, path)


def read(path, keys=()):
    """Reads a dictionary that `record` has written.

    Args:
        path: Path of the file.
        keys: Names that must be in it.

    Raises:
        ValueError: If it is no JSON, or lacks a name.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text())
        for name in keys:
            content[name]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged, or was not written by this recipe: "
            f"{type(error).__name__}: {error}"
        ) from error
    return content


def show(title, rows):
    """Prints a table of two columns.

    Args:
        title: Heading.
        rows: Dictionary from label to value.
    """
    console = Console()
    # As `Text`: "[b]" in a string would be taken for markup. Above the table,
    # which may be too narrow for a heading.
    console.print(Text(title, style="italic"))
    table = Table(show_header=False)
    for label, value in rows.items():
        table.add_row(Text(str(label)), Text(str(value)))
    console.print(table)
