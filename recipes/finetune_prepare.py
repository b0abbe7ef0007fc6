"""Task, arrays and model of `recipes.finetune`, before anything is trained."""

import dataclasses

from mlp_mixers import data
from recipes import finetune_data
from recipes import finetune_models
from recipes import fitting
from recipes import text_models
from recipes.finetune_answers import Labels
from recipes.finetune_data import TaskBatches
from recipes.finetune_settings import ANSWER_TOKENS
from recipes.finetune_settings import Training
from recipes.finetune_settings import check
from recipes.finetune_settings import resolve

# Below this share of their size, 32 bits do not tell labels well apart.
COARSE = 1e-4


@dataclasses.dataclass(frozen=True)
class Prepared:
    """All that a run needs, made before its folder.

    Attributes:
        settings: A `Training`.
        task: A `TaskData`.
        origin: An `Origin`.
        freeze: Whether the head alone is trained.
        labels: `Labels`, without a threshold; `mean` and `deviation` are by
            which numbers are standardised.
        parts: Dictionary of `Part`.
        head: Weights of a head that was trained for the same task, or
            `None`; one for numbers says them in their own units.
        steps: In an epoch.
        epochs: Of the training of a seed.
        parameters: Number of weights.
        identity: Dictionary of what must not change when a run goes on.
        notes: List of sentences.
    """

    settings: Training
    task: data.TaskData
    origin: finetune_models.Origin
    freeze: bool
    labels: Labels
    parts: dict
    head: list | None
    steps: int
    epochs: int
    parameters: int
    identity: dict
    notes: list

    @property
    def built(self):
        return self.origin.config


def prepare(config):
    """Task, arrays and model; whatever can be wrong is said here.

    Raises:
        ValueError: If a setting is out of range, task or model cannot be had.
    """
    check(config)
    settings = resolve(config.training)
    folder = config.model.from_ and text_models.find(config.model.from_)
    whole = finetune_data.load(config.data, config.seed)
    task = finetune_data.trainable(whole, config.data, config.seed)
    origin = finetune_models.open_origin(config, settings, task, folder)
    length, notes = length_for(config, settings, origin)
    stride = None
    if task.kind == "span":
        stride, _ = finetune_data.span_sizes(length, config.data.stride)
    parts, remarks = finetune_data.encode(
        task.parts, task.kind, origin.tokenizer, length, stride
    )
    parts, mean, deviation = finetune_data.with_targets(parts, task.kind)
    batches = TaskBatches(
        parts["train"], settings.batch_size, origin.tokenizer.pad_id, 0, True
    )
    labels = Labels(
        task=task.name,
        kind=task.kind,
        class_names=task.class_names,
        is_pair=task.is_pair,
        max_length=length,
        input_length=parts["train"].token_ids.shape[1],
        stride=stride,
        max_answer_tokens=config.data.max_answer_tokens or ANSWER_TOKENS,
        mean=mean,
        deviation=deviation,
        about=finetune_data.about(config.data, task),
    )
    head, about_head = None, []
    if folder:
        head, about_head = finetune_models.trained_head(folder, labels, origin)
    prepared = Prepared(
        settings=settings,
        task=task,
        origin=origin,
        freeze=config.model.freeze,
        labels=labels,
        parts=parts,
        head=head,
        steps=len(batches),
        epochs=fitting.epochs_of(settings, len(batches)),
        parameters=0,
        identity={
            "task": finetune_data.digest(whole),
            "tokenizer": origin.tokenizer.digest,
            "pretrained model": folder and text_models.weights_digest(folder),
        },
        notes=[
            *task.notes,
            *notes,
            *remarks,
            *longer(remarks, length, origin),
            *about_head,
            *notes_on(task, settings, labels),
        ],
    )
    # Once for all that can be wrong with it.
    model = build(prepared)
    if folder:
        text_models.check_finite(model, folder)
    return dataclasses.replace(prepared, parameters=model.count_params())


def length_for(config, settings, origin):
    """Tokens to which inputs are cut, and notes.

    Raises:
        ValueError: If the model cannot read so many, or they are too few.
    """
    readable = origin.config["sequence_length"]
    asked = config.training.max_length
    if asked is not None and asked > readable:
        raise ValueError(
            f"The model reads {readable} tokens and no more. "
            f"Received: max_length={asked}"
        )
    wanted = settings.max_length or readable
    if wanted <= readable:
        return wanted, []
    return readable, [
        f"the model reads {readable} tokens, not the {wanted} of the recipe "
        f"{settings.recipe}"
    ]


def longer(remarks, length, origin):
    """How to read inputs whole, if some are cut."""
    if not any(finetune_data.CUT in remark for remark in remarks):
        return []
    readable = origin.config["sequence_length"]
    if length < readable:
        return [f"--max-length, {readable} at most, lets it read more"]
    longest = "--sequence-length"
    how = f"one pretrained with a longer {longest} reads more"
    if origin.folder is None:
        how = "--max-length makes one that reads more"
    return [f"the model reads {readable} tokens and no more; {how}"]


def notes_on(task, settings, labels):
    """What a reader of the results should know."""
    notes = []
    if task.kind == "regression":
        notes.append(
            "labels are standardised for training; predictions, and the saved "
            "model, are in the labels' own units"
        )
        if labels.deviation < COARSE * abs(labels.mean):
            notes.append(
                "labels differ little beside their size: what this recipe says "
                "has all digits, while model.keras and the preset by "
                "themselves compute with 32 bits, about seven digits"
            )
    if task.has_unanswerable:
        notes.append(
            "the threshold for no answer is chosen on the validation questions "
            "that are measured, as published numbers are"
        )
    if settings.seeds == 1:
        notes.append(
            "one seed: how far results spread is not known; --seeds 5 tells"
        )
    return notes


def build(prepared):
    """A new model, by the random state that there is.

    A head for numbers says them standardised.
    """
    task = prepared.task
    backbone = prepared.origin.backbone(prepared.settings)
    backbone.trainable = not prepared.freeze
    sizes = {}
    if task.kind != "span":
        sizes["num_classes"] = task.num_classes or 1
        sizes["class_names"] = list(task.class_names) or None
    model = finetune_models.task_class(prepared.origin, task.kind)(
        backbone,
        dropout_rate=prepared.settings.head_dropout_rate,
        tokenizer=prepared.origin.tokenizer,
        **sizes,
    )
    if prepared.head is not None:
        d = prepared.labels.deviation
        finetune_models.set_rescaled(
            model, prepared.head, 1 / d, -prepared.labels.mean / d
        )
    return model


def origin_in_words(config, prepared):
    """Where the first weights come from."""
    if prepared.origin.folder is None:
        return "random weights, nothing is pretrained"
    head = "a new head" if prepared.head is None else "its head, same labels"
    frozen = ", only the head is trained" if prepared.freeze else ""
    return f"{config.model.from_}, {head}{frozen}"
