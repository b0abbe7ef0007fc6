"""The models that `recipes.finetune` starts from and those it has made."""

import dataclasses
import pathlib

import numpy as np

from mlp_mixers import data
from mlp_mixers.models import SpanPredictor
from mlp_mixers.models import TextClassifier
from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.preset_lookup import arguments_of
from recipes import finetune_data
from recipes import mlm_models
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
    texts = finetune_data.texts(task)
    tokenizer = text_models.tokenizer_for(config.model, texts)
    known = {field.name for field in dataclasses.fields(mlm_settings.Model)}
    sizes = {
        name: value
        for name, value in dataclasses.asdict(config.model).items()
        if name in known
    }
    sizes["model"] = sizes["model"] or "gmlp"
    asked = mlm_settings.Config(model=mlm_settings.Model(**sizes))
    backbone = mlm_models.build(
        asked, tokenizer, settings.max_length, None
    ).backbone
    return Origin(None, type(backbone), backbone.get_config(), tokenizer)


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


def trained_head(folder, labels, origin):
    """The weights of the head in a preset, if it is for the same task.

    Args:
        folder: Of the preset.
        labels: `Labels` of the task that is to be trained.
        origin: An `Origin`.

    Returns:
        `(weights, notes)`: a list of float64 arrays that say numbers in the
        labels' own units, or `None`; and what to say about it.
    """
    known = Labels.load(folder)
    if known is None:
        return None, []
    why = difference(known, labels)
    if why is not None:
        return None, [f"a new head: the model's own is for {known.task}, {why}"]
    model = task_class(origin, labels.kind).from_preset(folder)
    weights = [np.asarray(w, "float64") for w in model.head.get_weights()]
    if known.standard_bias is not None:
        # To all digits, which 32 bits do not hold.
        weights[1][:] = known.standard_bias * known.deviation + known.mean
    return weights, []


def difference(known, labels):
    """What tells two tasks apart, in words; `None` if it is one task.

    Args:
        known: `Labels` that a head was trained for.
        labels: `Labels` that one is wanted for.
    """
    if (known.kind, known.is_pair) != (labels.kind, labels.is_pair):
        return finetune_data.in_words(known)
    if known.class_names != labels.class_names:
        return "whose classes are other ones"
    # Numbers, and classes that are called by numbers, may mean anything.
    in_numbers = all(
        name.removeprefix("-").isdecimal() for name in labels.class_names
    )
    if labels.kind != "span" and in_numbers and known.about != labels.about:
        return f"where labels are {known.about or 'not named'}"
    if labels.kind == "regression" and not same_units(known, labels):
        return (
            f"whose labels are {known.mean:.4g} ± {known.deviation:.4g}, not "
            f"{labels.mean:.4g} ± {labels.deviation:.4g}"
        )
    return None


def same_units(known, labels):
    """Whether labels may be draws from one distribution."""
    if known.standard_bias is None:  # of an older version
        return False
    apart = abs(known.mean - labels.mean)
    ratio = labels.deviation / known.deviation
    return apart <= known.deviation and 0.5 <= ratio <= 2


def rescale_head(model, factor, offset):
    """Makes a linear head say `factor` · (what it says) + `offset`."""
    set_rescaled(model, model.head.get_weights(), factor, offset)


def set_rescaled(model, weights, factor, offset):
    """The same of the weights of another head; computed in 64 bits."""
    kernel, bias = (np.asarray(w, "float64") for w in weights)
    model.head.set_weights([kernel * factor, bias * factor + offset])


def open_finetuned(name):
    """The finetuned model that a name means, and its `Labels`.

    A head for numbers says them standardised, by `labels.mean` and
    `labels.deviation`.

    Raises:
        ValueError: If there is none, its tokenizer is not its own, or its
            weights are not finite.
    """
    folder = text_models.find(name)
    labels = Labels.load(folder)
    if labels is None:
        raise ValueError(
            "This model was not finetuned here, so nobody knows what it should "
            f"say: there is no {LABELS_FILE} in {folder}. "
            f"Finetune it first: --from {name} --task ..."
        )
    text_models.tokenizer_in(folder)
    base = SpanPredictor if labels.kind == "span" else TextClassifier
    model = base.from_preset(folder)
    text_models.check_finite(model, folder)
    if labels.standard_bias is not None:
        kernel, bias = model.head.get_weights()
        bias = np.full_like(bias, labels.standard_bias)
        model.head.set_weights([kernel / labels.deviation, bias])
    return model, labels
