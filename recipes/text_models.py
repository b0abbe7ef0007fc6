"""Opens the text model that `--from`, `--evaluate` or a preset names."""

import hashlib
import json
import pathlib

import keras
import numpy as np

from mlp_mixers.data import Tokenizer
from mlp_mixers.data import suggested_vocabulary_size
from mlp_mixers.models import MaskedLM
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
    name = str(name)
    path = pathlib.Path(name).expanduser()
    if (path / PRESET_FOLDER).is_dir():
        path = path / PRESET_FOLDER
    described = path / preset_folder.BACKBONE_FILE
    content = runs.read(described) if described.is_file() else {}
    if "class_name" in content:
        register(path)
        return path
    several = sorted(path.glob(f"*/{PRESET_FOLDER}"))
    if several:
        names = ", ".join(str(preset.parent) for preset in several)
        raise ValueError(
            f"The run in {path} has several models. Name one: {names}"
        )
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
        ValueError: If it has none, or, as far as its run has recorded it,
            another one than it was trained with.
    """
    tokenizer = preset_folder.read_tokenizer(folder)
    if tokenizer is None:
        raise ValueError(
            f"The preset in {folder} has no {preset_folder.TOKENIZER_FILE}, so "
            "nobody knows which tokens its numbers stand for. Copy it there "
            "from where the model was trained."
        )
    known = None
    # A run of several models has its results one folder further up.
    for results in (folder / "../results.json", folder / "../../results.json"):
        results = results.resolve()
        if folder.name == PRESET_FOLDER and results.is_file():
            known = runs.read(results).get("tokenizer_digest")
            break
    if known not in (None, tokenizer.digest):
        raise ValueError(
            f"{folder / preset_folder.TOKENIZER_FILE} is not the tokenizer "
            "that the model was trained with, so that its words would be other "
            f"ones. Put that one back. Received: digest {tokenizer.digest}, "
            f"where {results} says {known}"
        )
    return tokenizer


def open_masked_lm(name):
    """The masked language model that a name means.

    Raises:
        ValueError: If there is none, its tokenizer is not its own, or its
            weights are not finite.
    """
    folder = find(name)
    tokenizer_in(folder)
    model = MaskedLM.from_preset(folder)
    check_finite(model, folder)
    return model


def introduce(name, parameters, tokenizer):
    """Says which model it is, how large, and what it runs on."""
    print(
        f"{name}: {parameters:,} parameters, "
        f"{tokenizer.vocabulary_size:,} tokens in the vocabulary, "
        f"Keras {keras.__version__} on {keras.backend.backend()}"
    )


def check_finite(model, folder):
    """Raises a ValueError if a weight is NaN or infinite."""
    for weight in model.weights:
        values = keras.ops.convert_to_numpy(weight)
        if not np.isfinite(values.astype("float32")).all():
            raise ValueError(
                f"The model's weights are not finite: in {folder}, "
                f"{weight.path} holds NaN or infinite numbers. Its training "
                "has diverged, or its file is damaged: train it again."
            )


def weights_digest(folder):
    """A short text that is another one when the weights are others."""
    path = folder / preset_folder.BACKBONE_WEIGHTS_FILE
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def run_folder(name):
    """The folder of the run that a name means, or of the preset alone."""
    folder = find(name)
    inside = folder.name == PRESET_FOLDER
    if inside and (folder.parent / "config.json").is_file():
        return folder.parent
    return folder


def tokenizer_for(settings, documents):
    """The tokenizer in the file that is named, or one trained on documents.

    Args:
        settings: With `tokenizer` and `vocabulary_size`, which may be `None`.
        documents: List of strings.
    """
    if settings.tokenizer is not None:
        return load_tokenizer(settings.tokenizer)
    size = settings.vocabulary_size
    if size is None:
        size = suggested_vocabulary_size(sum(map(len, documents)))
    return Tokenizer.train(documents, size)


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
