"""The models that `recipes.finetune` starts from and those it has made."""

import dataclasses
import hashlib
import pathlib

from mlp_mixers import data
from mlp_mixers.models import SpanPredictor
from mlp_mixers.models import TextClassifier
from mlp_mixers.models import preset_folder
from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.preset_lookup import arguments_of
from recipes import finetune_data
from recipes import mlm
from recipes import mlm_settings
from recipes import text_models
from recipes.finetune_answers import LABELS_FILE
from recipes.finetune_answers import Labels


@dataclasses.dataclass(frozen=True)
class Origin:
    """What every seed starts from.

    Attributes:
        folder: Of a preset with trained weights, or `None`.
        backbone_class: Class of the backbone.
        config: Its arguments.
        tokenizer: A `Tokenizer`.
    """

    folder: pathlib.Path | None
    backbone_class: type
    config: dict
    tokenizer: data.Tokenizer

    def backbone(self, settings=None):
        """A new backbone, with the dropout of a `Training`."""
        changes = {
            name: getattr(settings, name)
            for name in ("dropout_rate", "attention_dropout_rate")
            if settings and name in arguments_of(self.backbone_class)
        }
        if self.folder is not None:
            return self.backbone_class.from_preset(self.folder, **changes)
        return self.backbone_class.from_config({**self.config, **changes})


def open_origin(config, settings, task, folder):
    """The `Origin` that the settings ask for."""
    if folder is not None:
        tokenizer = text_models.tokenizer_in(folder)
        backbone = Backbone.from_preset(folder, load_weights=False)
        return Origin(folder, type(backbone), backbone.get_config(), tokenizer)
    tokenizer = tokenizer_for(config.model, task)
    known = {field.name for field in dataclasses.fields(mlm_settings.Model)}
    sizes = {
        name: value
        for name, value in dataclasses.asdict(config.model).items()
        if name in known
    }
    sizes["model"] = sizes["model"] or "gmlp"
    asked = mlm_settings.Config(model=mlm_settings.Model(**sizes))
    backbone = mlm.build(asked, tokenizer, settings.max_length, None).backbone
    return Origin(None, type(backbone), backbone.get_config(), tokenizer)


def tokenizer_for(model, task):
    """The tokenizer in a file, or one trained on the training texts."""
    if model.tokenizer is not None:
        return text_models.load_tokenizer(model.tokenizer)
    found = finetune_data.texts(task)
    size = model.vocabulary_size or data.suggested_vocabulary_size(
        sum(map(len, found))
    )
    return data.Tokenizer.train(found, size)


def task_class(origin, kind):
    """The class of a task on a backbone."""
    base = SpanPredictor if kind == "span" else TextClassifier
    for candidate in base.__subclasses__():
        if candidate.backbone_cls is origin.backbone_class:
            return candidate
    raise ValueError(
        f"There is no {base.__name__} on a {origin.backbone_class.__name__}: "
        f"it is no text model. Received: --from {origin.folder}"
    )


def trained_head(folder, task, origin):
    """The weights of the head in a preset, if it is for the same labels."""
    labels = Labels.load(folder)
    same = labels is not None and (labels.kind, labels.class_names) == (
        task.kind,
        task.class_names,
    )
    if not same:
        return None
    model = task_class(origin, task.kind).from_preset(folder)
    return model.head.get_weights()


def rescale_head(model, factor, offset):
    """Makes a linear head say `factor` · (what it says) + `offset`."""
    kernel, bias = model.head.get_weights()
    model.head.set_weights([kernel * factor, bias * factor + offset])


def weights_digest(folder):
    """A short text that is another one when the weights are others."""
    path = folder / preset_folder.BACKBONE_WEIGHTS_FILE
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def open_finetuned(name):
    """The finetuned model that a name means, and its `Labels`.

    Raises:
        ValueError: If there is none.
    """
    folder = text_models.find(name)
    labels = Labels.load(folder)
    if labels is None:
        raise ValueError(
            "This model was not finetuned here, so nobody knows what it should "
            f"say: there is no {LABELS_FILE} in {folder}. "
            f"Finetune it first: --from {name} --task ..."
        )
    base = SpanPredictor if labels.kind == "span" else TextClassifier
    return base.from_preset(folder), labels
