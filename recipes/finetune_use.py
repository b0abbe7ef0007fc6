"""A finetuned model at work: measured on a task, or asked about texts."""

import dataclasses

from mlp_mixers import data
from mlp_mixers.data.task_data import PARTS
from recipes import finetune_answers
from recipes import finetune_data
from recipes import finetune_models
from recipes import runs
from recipes import text_models
from recipes.finetune_settings import Data
from recipes.finetune_settings import Model
from recipes.finetune_settings import from_record
from recipes.finetune_settings import resolve

# Characters of a text that are shown above what the model makes of it.
TITLE = 200


def evaluate(config):
    """Measures a finetuned model on its own task, or on another one."""
    if config.model != Model():
        raise ValueError(
            "--evaluate names the model already: give it without --from and "
            "without sizes."
        )
    model, labels = finetune_models.open_finetuned(config.evaluate)
    record = text_models.saved_run(config.evaluate)
    own = own_data(config.data, record)
    if own is not None:
        # Cut as then, so that no example that was trained on is measured.
        config = dataclasses.replace(config, data=own, seed=record["seed"])
    task = finetune_data.load(config.data, config.seed, whole=own is None)
    finetune_answers.check_fit(labels, task)
    digest = finetune_data.digest(task)
    if own is not None and record["results"].get("data_digest") != digest:
        print(
            "note: the task is not what it was when the model was trained: it "
            "may have seen some of what is measured"
        )
    measured = {
        name: task.parts[name]
        for name in PARTS[1:]  # not the one for training
        if name in task.parts and task.parts[name].labels is not None
    }
    if not measured:
        raise ValueError(
            f"{task.name} has no part with labels beside that for training, "
            "so there is nothing to measure the model on."
        )
    parts, notes = finetune_data.encode(
        measured,
        labels.kind,
        model.tokenizer,
        labels.max_length,
        labels.stride,
        labels.input_length,
    )
    for note in (*task.notes, *notes):
        print(f"note: {note}")
    size = resolve(config.training).batch_size
    found = {}
    for name, part in parts.items():
        logits = finetune_answers.logits_of(model, part, size)
        answers = finetune_answers.answers_of(logits, part, labels)
        answers = finetune_answers.as_in_task(answers, labels, task)
        found[name] = finetune_answers.scores(
            answers, part, task.kind, task.metrics
        )
        runs.show(
            f"{config.evaluate} on {len(part.examples):,} examples of "
            f"{task.name}, {name}",
            {metric: f"{value:.4f}" for metric, value in found[name].items()},
        )
    return found


def own_data(settings, record):
    """The `Data` of a run, if its task is the one that is asked for.

    Options of the task that are given win over the run's.

    Returns:
        A `Data` or `None`.
    """
    if record is None or "data" not in record:
        return None
    saved = from_record(record).data
    if settings.task not in (None, saved.task):
        return None
    given = {
        name: value
        for name, value in dataclasses.asdict(settings).items()
        if value != getattr(Data(), name)
    }
    return dataclasses.replace(saved, **given)


def predict(config):
    """Says what a finetuned model makes of texts."""
    if config.model.from_ is None:
        raise ValueError(
            "Say which model shall read the texts: --from runs/finetune"
        )
    model, labels = finetune_models.open_finetuned(config.model.from_)
    examples = asked_examples(config, labels)
    parts, notes = finetune_data.encode(
        {"texts": examples},
        labels.kind,
        model.tokenizer,
        labels.max_length,
        labels.stride,
        labels.input_length,
    )
    for note in notes:
        print(f"note: {note}")
    part = parts["texts"]
    logits = finetune_answers.logits_of(model, part, len(part))
    found = list(finetune_answers.in_words(logits, part, labels))
    for i, row in enumerate(found):
        runs.show(asked_in_words(examples, i), shown(row, labels))
    return found


def asked_examples(config, labels):
    """The texts that are asked for, as `Examples`.

    Raises:
        ValueError: If they are not what the model reads.
    """
    first, second = config.predict, config.predict_pair
    names = "first texts", "second texts"
    if labels.kind == "span":
        names = "questions", "passages"
    if not first:
        raise ValueError("There are no texts. Received: --predict without any")
    if labels.is_pair and len(second or ()) != len(first):
        raise ValueError(
            f"The model reads {names[0]} and {names[1]}: give as many with "
            "--predict-pair as with --predict. Received: "
            f"{len(first)} and {len(second or ())}"
        )
    if not labels.is_pair and second is not None:
        raise ValueError(
            f"The model was finetuned for {labels.task}, whose texts come "
            "alone: give --predict without --predict-pair."
        )
    return data.Examples(list(first), second and list(second))


def asked_in_words(examples, i):
    """The beginning of an example's texts."""
    texts = [examples.first[i], *(examples.second or [])[i : i + 1]]
    return " | ".join(
        f"{text[:TITLE]}..." if len(text) > TITLE else text for text in texts
    )


def shown(row, labels):
    """What the model says, as it is printed."""
    if labels.kind == "classification":
        return {name: f"{value:.1%}" for name, value in row.items()}
    return {
        name: value if isinstance(value, str) else f"{value:.4f}"
        for name, value in row.items()
    }
