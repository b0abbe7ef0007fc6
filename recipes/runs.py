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

    Raises:
        ValueError: If it has no name, or one of its parents is no folder.
    """
    if not pathlib.Path(wanted).name:
        raise ValueError(
            f"A run needs a folder with a name. Received: {str(wanted)!r}"
        )
    wanted = pathlib.Path(os.path.abspath(wanted))
    # Outside the loop, where "exists" can only mean the folder itself.
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
    except (NotADirectoryError, FileExistsError) as error:
        raise ValueError(
            f"A folder for the run cannot be made: {error.filename} is no "
            "folder, or lies in a file or on a disk that is not there. Choose "
            f"another --out. Received: --out {wanted}"
        ) from error
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
    try:
        unfinished.write_text(text + "\n")
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


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
        if not isinstance(content, dict):
            raise TypeError(f"it holds a {type(content).__name__}")
        for name in keys:
            content[name]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged, or was not written by this recipe: "
            f"{type(error).__name__}: {error}"
        ) from error
    return content


def recipe_of(record):
    """Which recipe has written a `config.json`, or `None`."""
    if isinstance(record.get("text"), dict):
        return "causal_lm" if "generate" in record else "mlm"
    data = record.get("data")
    if not isinstance(data, dict) or "training" not in record:
        return None
    return "finetune" if "task" in data else "vision"


def counted(count, noun):
    """`1 epoch`, `2 epochs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def show_notes(notes):
    """Prints what a reader should know, a line each."""
    for note in notes:
        print(f"note: {note}")


def show(title, rows):
    """Prints a table of two columns.

    Args:
        title: Heading.
        rows: Dictionary from label to value.
    """
    show_table(title, None, rows.items())


def show_table(title, head, rows):
    """Prints a table.

    Args:
        title: Heading.
        head: Names of the columns, or `None` for a table of two without.
        rows: Iterable of tuples, a value for each column.
    """
    console = Console()
    # As `Text`: "[b]" in a string would be taken for markup. Above the table,
    # which may be too narrow for a heading.
    console.print(Text(title, style="italic"))
    table = Table(show_header=head is not None)
    for name in head or ("", ""):
        # What is too long goes on in the next line: a path must be whole.
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    console.print(table)
