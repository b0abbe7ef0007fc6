"""A finetuned model at work: measured on a task, or asked about texts."""

import collections
import dataclasses
import pathlib

from mlp_mixers import data
from mlp_mixers.data.task_data import PARTS
from mlp_mixers.data.tsv import load_texts
from recipes import checks
from recipes import finetune_answers
from recipes import finetune_data
from recipes import finetune_models
from recipes import finetune_results
from recipes import finetune_tables
from recipes import runs
from recipes import text_models
from recipes.finetune_settings import EVALUATE
from recipes.finetune_settings import PREDICT
from recipes.finetune_settings import PREDICT_FILE
from recipes.finetune_settings import Config
from recipes.finetune_settings import Model
from recipes.finetune_settings import check_data
from recipes.finetune_settings import resolve
from recipes.records import from_record

# Characters of a text that are shown above what the model makes of it.
TITLE = 200
# Settings that say what is where in a file, and how it is written.
COLUMNS = (
    *("text", "text_pair", "label", "identifier"),
    *("delimiter", "quotes", "bad_lines", "regression", "metrics"),
)


def evaluate(config):
    """Measures a finetuned model on its own task, or on another one."""
    if config.model != Model():
        raise ValueError(
            "--evaluate names the model already: give it without --from and "
            "without sizes."
        )
    checks.refuse_others(config, "evaluate", EVALUATE)
    check_data(config.data)
    model, labels = finetune_models.open_finetuned(config.evaluate)
    labels = with_options(labels, config.data)
    record = text_models.saved_run(config.evaluate)
    task, whole = task_for(config, record, labels)
    measured = measured_parts(task)
    parts, notes = encoded(measured, model, labels)
    runs.show_notes([*task.notes, *notes])
    found = {}
    for name, part in parts.items():
        where = task.name if whole else f"the {name} part of {task.name}"
        answers = answers_for(config, model, labels, part)
        answers = finetune_answers.as_in_task(answers, labels, task)
        found[name] = finetune_answers.scores(
            answers, part, task.kind, task.metrics
        )
        show_scores(config, task, where, part, found[name])
        if task.kind == "classification":
            stem = task.name if whole else f"{task.name}_{name}"
            show_errors(config, task, stem, part, answers)
    return found


def task_for(config, record, labels):
    """The task that is asked for, with the classes of the model.

    Returns:
        `(task, whole)`: a `TaskData`, and whether it is all of one file.
    """
    settings, seed = config.data, config.seed
    own = own_data(settings, record)
    if own is not None:
        # Cut as then, so that no example that was trained on is measured.
        settings, seed = own, record["seed"]
    else:
        settings = same_columns(settings, record)
        if is_tsv(settings) and labels.kind == "regression":
            settings = dataclasses.replace(settings, regression=True)
    task = finetune_data.load(
        settings, seed, whole=own is None, class_names=labels.class_names
    )
    finetune_answers.check_fit(labels, task)
    digest = finetune_data.digest(task)
    if own is not None and record["results"].get("data_digest") != digest:
        print(
            "note: the task is not what it was when the model was trained: it "
            "may have seen some of what is measured"
        )
    if settings.class_names is None:
        order = labels.class_names
    else:
        others = set(labels.class_names) - set(task.class_names)
        order = (*task.class_names, *sorted(others))
    whole = own is None and finetune_data.is_one_file(settings)
    return finetune_answers.with_classes(task, order), whole


def own_data(settings, record):
    """The `Data` of a run, if its task is the one that is asked for.

    Options of the task that are given win over the run's.

    Returns:
        A `Data` or `None`.
    """
    saved = saved_data(record)
    if saved is None or settings.task not in (None, saved.task):
        return None
    return dataclasses.replace(saved, **checks.given(settings))


def saved_data(record):
    """The `Data` of a run, or `None` if there is no run of this recipe."""
    if record is None or runs.recipe_of(record) != "finetune":
        return None
    return from_record(Config, record).data


def same_columns(settings, record):
    """Files of another task are written as those of the run, unless told."""
    saved = saved_data(record)
    if saved is None or not is_tsv(saved) or not is_tsv(settings):
        return settings
    columns = {name: getattr(saved, name) for name in COLUMNS}
    return dataclasses.replace(
        settings, **{**columns, **checks.given(settings)}
    )


def is_tsv(settings):
    """Whether a `Data` names files with columns."""
    return (settings.task or "").startswith("tsv:")


def with_options(labels, settings):
    """`Labels` with the windows and answers that a `Data` asks for."""
    asked = {
        name: getattr(settings, name)
        for name in ("stride", "max_answer_tokens")
        if getattr(settings, name) is not None
    }
    if asked and labels.kind != "span":
        names = " and ".join(f"--{checks.dashed(name)}" for name in asked)
        raise ValueError(
            f"{names} is for questions and answers, and the model was "
            f"finetuned for {labels.task}, {finetune_data.in_words(labels)}."
        )
    return dataclasses.replace(labels, **asked)


def measured_parts(task):
    """The parts with labels, but that for training."""
    measured = {
        name: task.parts[name]
        for name in PARTS[1:]
        if name in task.parts and task.parts[name].labels is not None
    }
    if not measured:
        raise ValueError(
            f"{task.name} has no part with labels beside that for training, "
            "so there is nothing to measure the model on."
        )
    return measured


def encoded(parts, model, labels):
    """Parts as arrays, encoded as in training, and notes."""
    return finetune_data.encode(
        parts,
        labels.kind,
        model.tokenizer,
        labels.max_length,
        labels.stride,
        labels.input_length,
    )


def answers_for(config, model, labels, part):
    """What a model says about the examples of a part: `Answers`."""
    size = resolve(config.training).batch_size
    logits = finetune_answers.logits_of(model, part, size)
    return finetune_answers.answers_of(logits, part, labels)


def show_scores(config, task, where, part, found):
    """Prints metrics; F1 says of which class it is."""
    examples = runs.counted(len(part.examples), "example")
    rows = {
        finetune_results.metric_in_words(name, task.class_names): f"{value:.4f}"
        for name, value in found.items()
    }
    runs.show(f"{config.evaluate} on {examples}, {where}", rows)


def show_errors(config, task, stem, part, answers):
    """A table by class, and the confusion matrix in a folder."""
    names, labels = task.class_names, part.examples.labels
    finetune_tables.show_by_class(
        finetune_tables.by_class(labels, answers.values, names)
    )
    only = finetune_tables.only_answer(answers, names)
    if only is not None and len(part.examples) > 1:
        print(f"note: all examples get the class {only!r}")
    matrix = finetune_tables.confusion(labels, answers.values, len(names))
    paths = finetune_tables.save_confusion(
        output_folder(config, config.evaluate),
        stem,
        matrix,
        names,
    )
    print(f"confusion matrix: {', '.join(map(str, paths))}")


def output_folder(config, model):
    """Where files about a model go: into --out, or the folder of its run."""
    if config.out != Config().out:
        return pathlib.Path(config.out).expanduser()
    return text_models.run_folder(model)


def predict(config):
    """Says what a finetuned model makes of texts."""
    check_from(config)
    checks.refuse_others(config, "predict", PREDICT)
    check_data(config.data)
    model, labels = finetune_models.open_finetuned(config.model.from_)
    labels = with_options(labels, config.data)
    examples = asked_examples(config, labels)
    part, logits = answered(config, model, labels, examples)
    found = list(finetune_answers.asked(logits, part, labels))
    for i, row in enumerate(found):
        runs.show(asked_in_words(examples, i), shown(row, labels))
    return found


def check_from(config):
    """Raises a ValueError unless a model is named."""
    if config.model.from_ is None:
        raise ValueError(
            "Say which model shall read the texts: --from runs/finetune"
        )


def answered(config, model, labels, examples):
    """`(Part, logits)` of texts."""
    parts, notes = encoded({"texts": examples}, model, labels)
    runs.show_notes(notes)
    size = resolve(config.training).batch_size
    logits = finetune_answers.logits_of(model, parts["texts"], size)
    return parts["texts"], logits


def predict_file(config):
    """Writes what a finetuned model makes of the texts in a file."""
    check_from(config)
    checks.refuse_others(config, "predict_file", PREDICT_FILE)
    check_data(config.data)
    name = config.model.from_
    model, labels = finetune_models.open_finetuned(name)
    labels = with_options(labels, config.data)
    columns = columns_for(config.data, text_models.saved_run(name), labels)
    try:
        examples, notes = load_texts(config.predict_file, **columns)
    except ValueError as error:
        raise ValueError(finetune_data.as_typed(str(error), "tsv")) from error
    runs.show_notes(notes)
    part, logits = answered(config, model, labels, examples)
    answers = finetune_answers.answers_of(logits, part, labels)
    folder = output_folder(config, name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"predictions_{config.predict_file.stem}.tsv"
    finetune_answers.write_answers(path, answers, examples, labels)
    rows = {"texts": f"{len(examples):,}", **frequencies(answers, labels)}
    runs.show(f"{config.predict_file} by {name}", {**rows, "written": path})
    return list(finetune_answers.asked(logits, part, labels))


def columns_for(settings, record, labels):
    """Arguments of `load_texts`: what is given, the run's, or usual names."""
    saved = saved_data(record)
    names = ("sentence", None)
    if labels.kind == "span":
        names = ("question", "context")
    elif labels.is_pair:
        names = ("sentence1", "sentence2")
    columns = dict(zip(("text", "text_pair"), names))
    if saved is not None and is_tsv(saved):
        columns |= {
            name: getattr(saved, name)
            for name in ("text", "text_pair", "delimiter", "quotes")
            if getattr(saved, name) is not None
        }
    asked = checks.given(settings)
    for name in ("stride", "max_answer_tokens"):
        asked.pop(name, None)
    if "text_pair" in asked and not labels.is_pair:
        raise ValueError(
            f"The model was finetuned for {labels.task}, whose texts come "
            "alone: give --text without --text-pair."
        )
    return {**columns, **asked}


def frequencies(answers, labels):
    """How often each class was said, as the rows of a table."""
    if labels.kind != "classification":
        return {}
    counts = collections.Counter(answers.values.tolist())
    return {labels.class_names[k]: f"{n:,}" for k, n in counts.most_common()}


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
    if labels.kind == "regression":
        return {name: f"{value:.6g}" for name, value in row.items()}
    return {
        name: value if isinstance(value, str) else f"{value:.4f}"
        for name, value in row.items()
    }
