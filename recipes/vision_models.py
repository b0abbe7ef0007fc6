"""Opens the model that `--from`, `--evaluate` or a preset names."""

import dataclasses
import pathlib

import keras

from mlp_mixers import weights
from mlp_mixers.data import ImagePreprocessor
from mlp_mixers.models import ImageClassifier
from mlp_mixers.models import presets
from recipes import runs

# Where a run keeps what `--from` needs, inside its folder.
PRESET_FOLDER = "preset"
CHECKPOINTS = (".safetensors", ".npz", ".pth", ".pt", ".bin")


@dataclasses.dataclass
class Source:
    """Trained weights that somebody named, not yet loaded.

    Attributes:
        name: As it was typed.
        kind: `"preset"` (folder or built-in), `"keras"` or `"checkpoint"`.
        path: Where the files are; the name of a built-in preset.
        preprocessor: The model's own `ImagePreprocessor`, or `None`.
    """

    name: str
    kind: str
    path: pathlib.Path | str
    preprocessor: ImagePreprocessor | None = None


def find(name, preset=None):
    """What `name` names.

    Args:
        name: As it was typed.
        preset: The preset that was named beside it, or `None`.

    Raises:
        ValueError: If it is nothing that weights can be taken from, or a
            checkpoint, which needs a preset.
    """
    path = pathlib.Path(name).expanduser()
    is_checkpoint = path.suffix in CHECKPOINTS and path.is_file()
    if preset is not None and not is_checkpoint:
        raise ValueError(
            f"{name} says itself which model it is: give it without --preset."
        )
    if name in presets.PRESETS:
        return Source(name, "preset", name, _published(name))
    if path.is_dir():
        if (path / PRESET_FOLDER).is_dir():
            path = path / PRESET_FOLDER
        elif (path / "checkpoint").is_dir():
            raise ValueError(
                f"The run in {path} has not finished: it has no model yet. Go "
                f"on with it: --resume {path}"
            )
        return Source(name, "preset", path, _own_preprocessor(path))
    if path.suffix == ".keras" and path.is_file():
        return Source(name, "keras", path, _own_preprocessor(path.parent))
    if is_checkpoint:
        if preset is None:
            raise ValueError(
                "A checkpoint does not say which model it is for: name it "
                "with --preset (gmlp_small_224, mixer_base_224, ...). "
                f"Received: {name}"
            )
        return Source(name, "checkpoint", path)
    raise ValueError(
        "There is no model of this name: neither a preset, nor a run's folder, "
        "nor a preset's folder, nor a .keras file, nor a checkpoint "
        f"({', '.join(CHECKPOINTS)}). Presets with public weights: "
        f"{', '.join(k for k, v in presets.PRESETS.items() if v['weights'])}. "
        f"Received: {name!r}"
    )


def open_trained(source, preset=None, num_classes=None, **changes):
    """The classifier with trained weights.

    Args:
        source: A `Source`.
        preset: Name of the preset whose sizes a checkpoint has.
        num_classes: `None` for as many as were trained.
        **changes: Arguments of classifier and backbone to change,
            `image_shape` among them.

    Raises:
        ValueError: If the weights do not fit.
    """
    if num_classes is not None:
        changes["num_classes"] = num_classes
    if source.kind == "preset":
        return ImageClassifier.from_preset(source.path, **changes)
    if source.kind == "keras":
        return _from_keras(source.path, changes)
    return _from_checkpoint(source.path, preset, changes)


def _from_keras(path, changes):
    try:
        saved = keras.saving.load_model(path)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else error
        raise ValueError(
            f"{path} cannot be opened as a Keras model: it may be damaged. "
            f"{type(error).__name__}: {reason}"
        ) from error
    if not isinstance(saved, ImageClassifier):
        raise ValueError(
            f"{path} holds a {type(saved).__name__}, and no image classifier "
            "of this package."
        )
    if not changes:
        return saved
    own = {
        name: changes.pop(name)
        for name in ("num_classes", "dropout_rate")
        if name in changes
    }
    config = {**saved.backbone.get_config(), **changes}
    backbone = type(saved.backbone).from_config(config)
    model = type(saved).from_config(
        {**saved.get_config(), **own, "backbone": backbone}
    )
    skip = ["head"] if model.num_classes != saved.num_classes else []
    report = weights.load_checkpoint(
        model,
        weights.export_checkpoint(saved, "mlp_mixers"),
        skip=skip,
        source_grid=saved.backbone.grid_shape,
    )
    print(report)
    return model


def _from_checkpoint(path, preset, changes):
    trained = classes_in(path)
    changes.setdefault("num_classes", trained)
    model = ImageClassifier.from_preset(preset, load_weights=False, **changes)
    skip = [] if trained == model.num_classes else ["head"]
    print(weights.load_checkpoint(model, path, skip=skip))
    return model


def classes_in(path):
    """Number of classes of the head in a checkpoint with timm's names.

    Raises:
        ValueError: If it has no head.
    """
    arrays = weights.read_arrays(path)
    if "head.bias" not in arrays:
        raise ValueError(
            f"{path} has no head (`head.bias`), so it cannot classify by "
            "itself, and is not a checkpoint of timm's MLP models."
        )
    return len(arrays["head.bias"])


def _own_preprocessor(folder):
    try:
        return ImagePreprocessor.load(folder)
    except FileNotFoundError:
        return None


def _published(preset):
    """How the images were prepared that public weights were trained on."""
    entry = presets.PRESETS[preset]
    if not entry["weights"]:
        return None
    return ImagePreprocessor(
        entry["config"]["image_shape"],
        mean=entry["weights"]["mean"],
        std=entry["weights"]["std"],
    )


def saved_run(name):
    """What a run was asked for, and the digest of its data, or `None`.

    Args:
        name: Of the run's folder, or of a model in it.
    """
    path = pathlib.Path(name).expanduser()
    for folder in (path, path.parent):
        results = folder / "results.json"
        if results.exists():
            record = runs.read(folder / "config.json", ("data", "seed"))
            digest = runs.read(results).get("data_digest")
            return {**record, "data_digest": digest}
    return None
