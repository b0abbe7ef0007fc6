"""Opens the text model that `--from`, `--evaluate` or a preset names."""

import json
import pathlib

from mlp_mixers.data import Tokenizer
from mlp_mixers.models import preset_folder
from mlp_mixers.models import presets
from recipes import runs

# Where a run keeps what `--from` needs, inside its folder.
PRESET_FOLDER = "preset"


def find(name):
    """The folder of the preset that `name` names: a run's, or one itself.

    Raises:
        ValueError: If there is none, or the run has not finished.
    """
    path = pathlib.Path(name).expanduser()
    if (path / PRESET_FOLDER).is_dir():
        path = path / PRESET_FOLDER
    described = path / preset_folder.BACKBONE_FILE
    content = runs.read(described) if described.is_file() else {}
    if "class_name" in content:
        register(path)
        return path
    if "training" in content:  # a run's settings, in a file of that name
        raise ValueError(
            f"The run in {path} has not finished: it has no model yet. Go on "
            f"with it: --resume {path}"
        )
    hint = ""
    if name in presets.PRESETS:
        hint = " A built-in preset has sizes only: give it as --preset."
    raise ValueError(
        "There is no trained text model of this name: neither the folder of a "
        f"run, nor that of a preset.{hint} Received: {name!r}"
    )


def register(folder):
    """Imports what defines the class of a preset, if it is not of the package.

    KerasHub takes seconds to import, so only for those that need it.
    """
    described = json.loads((folder / preset_folder.BACKBONE_FILE).read_text())
    if described.get("class_name") == "BertTextBackbone":
        import recipes.bert_baseline  # noqa: F401 - registers it


def tokenizer_in(folder):
    """The tokenizer of a preset.

    Raises:
        ValueError: If it has none.
    """
    tokenizer = preset_folder.read_tokenizer(folder)
    if tokenizer is None:
        raise ValueError(
            f"The preset in {folder} has no {preset_folder.TOKENIZER_FILE}, so "
            "nobody knows which tokens its numbers stand for."
        )
    return tokenizer


def load_tokenizer(path):
    """The tokenizer in a file, or in the folder of a run or a preset.

    Raises:
        ValueError: If there is none.
    """
    path = pathlib.Path(path).expanduser()
    if path.is_dir():
        return tokenizer_in(find(path))
    if not path.is_file():
        raise ValueError(f"There is no such file. Received: --tokenizer {path}")
    return Tokenizer.load(path)


def saved_run(name):
    """What a run was asked for, and its results, or `None`.

    Args:
        name: Of the run's folder, or of one inside.
    """
    path = pathlib.Path(name).expanduser()
    for folder in (path, path.parent):
        results = folder / "results.json"
        if results.exists():
            return {
                **runs.read(folder / "config.json", ("seed",)),
                "results": runs.read(results),
            }
    return None
