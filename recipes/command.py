"""The command line of every recipe, and the folder that it goes on with."""

import pathlib
import sys
from typing import Annotated

import tyro

from recipes import runs


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


def run_to_resume(config, is_alone, result_keys):
    """The folder of an interrupted run, and what it has recorded.

    Args:
        config: A configuration whose `resume` is set.
        is_alone: Whether nothing else was asked for.
        result_keys: Names that its `results.json` must have.

    Returns:
        `(folder, config.json's content, results.json's content or None)`.

    Raises:
        ValueError: If the folder holds no run, or other settings are given.
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
    results = None
    if (folder / "results.json").exists():
        print(f"The run in {folder} has finished.")
        results = runs.read(folder / "results.json", result_keys)
    return folder, runs.read(folder / "config.json"), results
