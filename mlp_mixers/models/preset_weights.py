"""The weights of a preset, wherever it keeps them, into a new model.

A folder keeps them in Keras's files, a built-in preset on the Hugging Face
hub under timm's names. Either may be for another grid of patches than the
model has, when `from_preset` was given another image size.
"""

import logging

from mlp_mixers.layers.patch_embedding import patch_grid
from mlp_mixers.models import preset_folder
from mlp_mixers.models.presets import PRESETS
from mlp_mixers.weights import export_checkpoint
from mlp_mixers.weights import hub
from mlp_mixers.weights import load_checkpoint

logger = logging.getLogger("mlp_mixers")


def public_weights(preset):
    """Where a built-in preset's weights are; `{}` for any other preset."""
    entry = PRESETS.get(preset) if isinstance(preset, str) else None
    return (entry and entry["weights"]) or {}


def load_public_weights(model, preset, skip_head):
    """Fetches the weights of a built-in preset into `model`.

    Raises:
        ConnectionError: If they are not here and cannot be fetched.
        ValueError: If they do not fit.
    """
    path = hub.fetch(public_weights(preset)["repository"])
    report = load_checkpoint(model, path, skip=["head"] if skip_head else [])
    _say_what_was_resized(report, preset)


def load_folder_weights(model, folder, overrides, build_saved):
    """Loads the weights of a preset's folder into `model`.

    Args:
        model: A backbone, or a task with its trained head.
        folder: Path of the preset.
        overrides: Names of the arguments in which `model` differs from what
            was saved.
        build_saved: Function that builds the model as it was saved.

    Raises:
        ValueError: If they do not fit.
    """
    is_task = hasattr(model, "backbone")
    name = (
        preset_folder.TASK_WEIGHTS_FILE
        if is_task
        else preset_folder.BACKBONE_WEIGHTS_FILE
    )
    if not _is_another_grid(model, folder):
        preset_folder.read_weights(model, folder, name, overrides)
        return
    saved = build_saved()
    preset_folder.read_weights(saved, folder, name)
    report = load_checkpoint(
        model,
        export_checkpoint(saved, "mlp_mixers"),
        source_grid=_grid(saved),
    )
    _say_what_was_resized(report, folder)


def _is_another_grid(model, folder):
    """Whether the folder's weights are for other patches than the model's."""
    _, config = preset_folder.read_description(
        folder, preset_folder.BACKBONE_FILE
    )
    if not {"image_shape", "patch_size"} <= set(config):
        return False
    saved = patch_grid(config["image_shape"], config["patch_size"])
    return saved != _grid(model)


def _grid(model):
    return getattr(model, "backbone", model).grid_shape


def _say_what_was_resized(report, preset):
    if report.resized:
        logger.warning("Weights of %s: %s", preset, report)
