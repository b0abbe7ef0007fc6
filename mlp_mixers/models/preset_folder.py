"""A preset on disk: a folder that a model can be rebuilt from.

    config.json         the backbone: class name and constructor arguments
    model.weights.h5    its weights
    task.json           the task around it, if one was saved
    task.weights.h5     the weights of the whole task
    tokenizer.json      the vocabulary of a text task, Hugging Face's format
    labels.json         what the outputs stand for, if a recipe finetuned it
    metadata.json       versions, date, number of parameters

The file names and their roles are KerasHub's, but for the vocabulary. Nothing
in a folder is executed: a class is looked up by its registered name, among the
subclasses of the one that is asked.
"""

import datetime
import json
import os
import pathlib
import tempfile
import warnings

import keras

from mlp_mixers.data.tokenizer import Tokenizer
from mlp_mixers.version import __version__

BACKBONE_FILE = "config.json"
BACKBONE_WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
TOKENIZER_FILE = "tokenizer.json"
METADATA_FILE = "metadata.json"
# What a finetuned model's outputs stand for. The recipe writes it.
LABELS_FILE = "labels.json"
# Where the folder of a run keeps its preset.
INSIDE_A_RUN = "preset"


def locate(folder):
    """The preset in the folder of a run, or else the folder itself."""
    folder = pathlib.Path(folder)
    inside = folder / INSIDE_A_RUN
    return inside if (inside / BACKBONE_FILE).is_file() else folder


def write_preset(folder, backbone, task=None):
    """Writes `backbone`, and the `task` around it, into `folder`.

    Args:
        folder: Path; made if it does not exist.
        backbone: A `Backbone`.
        task: The task model whose backbone it is, or `None`.

    Raises:
        ValueError: If `folder` is a file.
    """
    folder = pathlib.Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            "A preset is saved as a folder, and a file is in its place. "
            f"Received: {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    # Written beside, then moved: an interruption leaves the old preset whole.
    with tempfile.TemporaryDirectory(
        prefix=".preset-", dir=folder
    ) as unfinished:
        new = pathlib.Path(unfinished)
        _write_json(new / BACKBONE_FILE, _describe(backbone))
        _write_json(new / METADATA_FILE, _metadata(backbone))
        if task is not None:
            _write_json(new / TASK_FILE, _describe(task))
            _save_weights(task, new / TASK_WEIGHTS_FILE)
        tokenizer = getattr(task, "tokenizer", None)
        if tokenizer is not None:
            tokenizer.save(new / TOKENIZER_FILE)
        _save_weights(backbone, new / BACKBONE_WEIGHTS_FILE)
        written = sorted(path.name for path in new.iterdir())
        for name in written:
            os.replace(new / name, folder / name)
    # A folder that held a task must not keep it beside another backbone.
    optional = {TASK_FILE, TASK_WEIGHTS_FILE, TOKENIZER_FILE}
    if not _labels_belong_to(folder, task):
        optional.add(LABELS_FILE)
    for name in optional - set(written):
        (folder / name).unlink(missing_ok=True)


def _labels_belong_to(folder, task):
    """Whether the names of classes in a folder are those of a task."""
    try:
        return _names_beside(folder) == getattr(task, "class_names", None)
    except ValueError:  # damaged
        return False


def _save_weights(model, path):
    """The weights alone: Keras would write the optimiser's state too."""
    optimizer = getattr(model, "optimizer", None)
    model.optimizer = None
    try:
        model.save_weights(path)
    finally:
        model.optimizer = optimizer


def _metadata(backbone):
    return {
        "keras_version": keras.__version__,
        "mlp_mixers_version": __version__,
        "parameter_count": backbone.count_params(),
        "date_saved": datetime.datetime.now().isoformat(timespec="seconds"),
    }


def read_description(folder, name):
    """Reads `config.json` or `task.json`.

    Returns:
        `(registered name, config)`, or `None` if the folder has no such file.

    Raises:
        ValueError: If the file is not a description of a class of ours.
    """
    path = pathlib.Path(folder, name)
    if not path.exists():
        return None
    try:
        description = json.loads(path.read_text())
        registered = str(description["registered_name"])
        return registered, dict(description["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a preset's description. If the folder is that of "
            "a run, it has not finished: it has no model yet."
        ) from error


def read_tokenizer(preset):
    """The tokenizer in the folder of a preset, or `None`.

    Raises:
        ValueError: If its file is damaged.
    """
    path = pathlib.Path(preset, TOKENIZER_FILE)
    return Tokenizer.load(path) if path.is_file() else None


def read_class_names(folder):
    """The names of the classes of the task in a folder, or `None`.

    They are the task's own, or those that a recipe wrote beside it.

    Raises:
        ValueError: If a file is damaged.
    """
    _, config = read_description(folder, TASK_FILE) or (None, {})
    if config.get("class_names"):
        return config["class_names"]
    return _names_beside(folder)


def _names_beside(folder):
    """The names of classes that a recipe wrote, or `None`."""
    path = pathlib.Path(folder, LABELS_FILE)
    if not path.is_file():
        return None
    try:
        return list(json.loads(path.read_text())["class_names"]) or None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged. Remove it, or pass `class_names=`."
        ) from error


def read_weights(model, folder, name, overrides=()):
    """Loads a weights file of `folder` into `model`.

    Raises:
        ValueError: If the file is missing, or does not fit the model.
    """
    path = pathlib.Path(folder, name)
    if not path.exists():
        raise ValueError(
            f"The preset has no weights: {path} does not exist. Pass "
            "`load_weights=False` for a model with random weights."
        )
    try:
        # Keras warns about each symptom of a misfit before it raises.
        with warnings.catch_warnings(record=True) as symptoms:
            model.load_weights(path)
    except Exception as error:
        changed = f" with other arguments ({', '.join(overrides)})"
        raise ValueError(
            f"The weights in {path} do not fit a {type(model).__name__}"
            f"{changed if overrides else ''}. Keep the preset's sizes, or "
            "pass `load_weights=False` for a model with random weights. "
            f"Keras says: {error}"
        ) from error
    for symptom in symptoms:
        warnings.warn(symptom.message, stacklevel=2)


def _describe(model):
    # What has a file of its own is not written twice.
    elsewhere = ("backbone", "tokenizer")
    config = {k: v for k, v in model.get_config().items() if k not in elsewhere}
    return {
        "module": type(model).__module__,
        "class_name": type(model).__name__,
        "registered_name": keras.saving.get_registered_name(type(model)),
        "config": config,
    }


def _write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n")
