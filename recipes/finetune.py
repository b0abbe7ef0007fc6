"""Finetune a text model for a task, evaluate it and use it.

    python -m recipes.finetune --from runs/mlm --task glue:DIR/SST-2
    python -m recipes.finetune --from runs/mlm --task glue:DIR/RTE --seeds 5
    python -m recipes.finetune --from runs/mlm \\
        --task tsv:train.tsv,dev.tsv --text sentence --label topic
    python -m recipes.finetune --from runs/mlm --task squad:DIR
    python -m recipes.finetune --model gmlp --task glue:DIR/CoLA  # from scratch
    python -m recipes.finetune --resume runs/finetune
    python -m recipes.finetune --evaluate runs/finetune --task tsv:other.tsv
    python -m recipes.finetune --from runs/finetune --predict "A fine film."
    python -m recipes.finetune --from runs/finetune \\
        --predict "A dog barks." --predict-pair "There is a dog."

Starts from what `recipes.mlm` has pretrained, or from random weights if a
--model is named. Trains with one seed or with several and reports the median
and the spread, never the best; the model that is saved is the one of the
median seed. A run leaves a folder with the model, its tokenizer and the names
of its classes, its predictions, its history, the learning curves, the
configuration and the results, and a folder for each seed.
"""

import dataclasses
import gc
import shutil
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip
import numpy as np

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.data.task_data import PARTS
from mlp_mixers.training import TrainingCheckpoint
from recipes import command
from recipes import finetune_answers
from recipes import finetune_data
from recipes import finetune_models
from recipes import finetune_use
from recipes import fitting
from recipes import runs
from recipes import text_models
from recipes.finetune_answers import Labels
from recipes.finetune_data import TaskBatches
from recipes.finetune_settings import Config
from recipes.finetune_settings import Training
from recipes.finetune_settings import check
from recipes.finetune_settings import from_record
from recipes.finetune_settings import resolve

RESULT_KEYS = ("metric", "parts", "saved_seed", "epochs", "seconds", "notes")
SEED_KEYS = ("seed", "scores", "null_threshold", "epochs", "seconds")
# Weights of a finished seed, until it is known whose model is saved.
WEIGHTS_FILE = "model.weights.h5"


def main(config):
    """Does what the settings ask for: train, go on, evaluate or predict.

    Args:
        config: A `Config`.

    Returns:
        Dictionary of results, as in `results.json`; for `evaluate`, one from
        parts of the task to their metrics; for `predict`, a list with a
        dictionary for each text: class to probability, `{"number": ...}` or
        `{"answer": ..., "score": ...}`.

    Raises:
        ValueError: If a setting is out of range, task or model cannot be had.
        FloatingPointError: If the loss becomes NaN or infinite.
        KeyboardInterrupt: If it is interrupted, with how to go on.
    """
    if config.predict is not None:
        return finetune_use.predict(config)
    if config.evaluate is not None:
        return finetune_use.evaluate(config)
    if config.resume is not None:
        return resume(config)
    return start(config)


def start(config):
    """A new run in a new folder."""
    prepared = prepare(config)
    folder = runs.new_folder(config.out)
    # What was asked for, every size that came of it, and what must not change.
    runs.record(
        folder,
        "config.json",
        {
            **dataclasses.asdict(config),
            "built": prepared.origin.config,
            "identity": prepared.identity,
        },
    )
    return run(folder, config, prepared)


def resume(config):
    """The rest of an interrupted run, in its folder, with its settings."""
    folder, record, results = command.run_to_resume(
        config,
        dataclasses.replace(config, resume=None) == Config(),
        RESULT_KEYS,
    )
    if results is not None:
        report(folder, results)
        return results
    config = from_record(record)
    prepared = prepare(config)
    changed = [
        name
        for name, value in prepared.identity.items()
        if record.get("identity", {}).get(name) != value
    ]
    if changed:
        raise ValueError(
            f"The run in {folder} began with another "
            f"{' and another '.join(changed)}. Go on with the same, or start a "
            "new run."
        )
    return run(folder, config, prepared)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """All that a run needs, made before its folder.

    Attributes:
        settings: A `Training`.
        task: A `TaskData`.
        origin: An `Origin`.
        freeze: Whether the head alone is trained.
        labels: `Labels`, without a threshold.
        parts: Dictionary of `Part`.
        mean, deviation: By which numbers are standardised.
        head: Weights of a head that was trained for the same labels, or
            `None`.
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
    mean: float
    deviation: float
    head: list | None
    steps: int
    epochs: int
    parameters: int
    identity: dict
    notes: list


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
    kind, stride = task.kind, None
    if kind == "span":
        stride, _ = finetune_data.span_sizes(length, config.data.stride)
    parts, remarks = finetune_data.encode(
        task.parts, kind, origin.tokenizer, length, stride
    )
    parts, mean, deviation = finetune_data.with_targets(parts, kind)
    train = parts["train"]
    batches = TaskBatches(
        train, settings.batch_size, origin.tokenizer.pad_id, 0, True
    )
    head = folder and finetune_models.trained_head(folder, task, origin)
    prepared = Prepared(
        settings=settings,
        task=task,
        origin=origin,
        freeze=config.model.freeze,
        labels=Labels(
            task=task.name,
            kind=kind,
            class_names=task.class_names,
            is_pair=task.is_pair,
            max_length=length,
            input_length=train.token_ids.shape[1],
            stride=stride,
            max_answer_tokens=config.data.max_answer_tokens,
        ),
        parts=parts,
        mean=mean,
        deviation=deviation,
        head=head,
        steps=len(batches),
        epochs=settings.epochs or -(-settings.steps // len(batches)),
        parameters=0,
        identity={
            "task": finetune_data.digest(whole),
            "tokenizer": origin.tokenizer.digest,
            "pretrained model": folder
            and finetune_models.weights_digest(folder),
        },
        notes=[*task.notes, *notes, *remarks, *notes_on(task, settings)],
    )
    # Once for all that can be wrong with it.
    model = build(prepared)
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


def notes_on(task, settings):
    """What a reader of the results should know."""
    notes = []
    if task.kind == "regression":
        notes.append(
            "labels are standardised for training; predictions, and the saved "
            "model, are in the labels' own units"
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
    """A new model, by the random state that there is."""
    task = prepared.task
    backbone = prepared.origin.backbone(prepared.settings)
    backbone.trainable = not prepared.freeze
    sizes = {}
    if task.kind != "span":
        sizes["num_classes"] = task.num_classes or 1
    model = finetune_models.task_class(prepared.origin, task.kind)(
        backbone,
        dropout_rate=prepared.settings.head_dropout_rate,
        tokenizer=prepared.origin.tokenizer,
        **sizes,
    )
    if prepared.head is not None:
        model.head.set_weights(prepared.head)
        if task.kind == "regression":
            # From the labels' units to those of training.
            d = prepared.deviation
            finetune_models.rescale_head(model, 1 / d, -prepared.mean / d)
    return model


def run(folder, config, prepared):
    """Trains every seed, measures and records; all that `folder` is for."""
    introduce(config, prepared)
    try:
        records = run_seeds(folder, config, prepared)
        results = summarise(config, prepared, records)
        save(folder, prepared, results)
    except KeyboardInterrupt as error:
        how = f"Go on with: python -m recipes.finetune --resume {folder}"
        # A training that was interrupted says more.
        raise KeyboardInterrupt(str(error) or f"Interrupted. {how}") from None
    report(folder, results)
    return results


def run_seeds(folder, config, prepared):
    """What every seed has come to, as a list of dictionaries."""
    records = []
    for seed in range(config.seed, config.seed + prepared.settings.seeds):
        record = finished(folder, seed)
        if record is None:
            record = run_seed(folder, config, prepared, seed)
            gc.collect()  # of one model at a time
        # Left behind if the run was killed just then.
        shutil.rmtree(checkpoint_folder(folder, seed), ignore_errors=True)
        found = (
            f"{name} {value:.4f}"
            for name, value in record["scores"]["validation"].items()
        )
        print(f"seed {seed}: validation {', '.join(found)}", flush=True)
        records.append(record)
    return records


def introduce(config, prepared):
    """Says what is trained, and on what."""
    task, train = prepared.task, prepared.parts["train"]
    name = finetune_models.task_class(prepared.origin, task.kind).__name__
    print(
        f"{name}: {prepared.parameters:,} parameters, "
        f"{prepared.origin.tokenizer.vocabulary_size:,} tokens in the "
        f"vocabulary, Keras {keras.__version__} on {keras.backend.backend()}"
    )
    classes = f" of {task.num_classes} classes" if task.num_classes else ""
    print(
        f"{task.name}: a {task.kind}, {len(train.examples):,} training "
        f"examples{classes}, {train.token_ids.shape[1]} tokens"
    )
    print(f"start: {origin_in_words(config, prepared)}")
    for note in prepared.notes:
        print(f"note: {note}")


def origin_in_words(config, prepared):
    """Where the first weights come from."""
    if prepared.origin.folder is None:
        return "random weights, nothing is pretrained"
    head = "a new head" if prepared.head is None else "its head, same labels"
    frozen = ", only the head is trained" if prepared.freeze else ""
    return f"{config.model.from_}, {head}{frozen}"


def seed_folder(folder, seed):
    return folder / f"seed-{seed}"


def checkpoint_folder(folder, seed):
    return folder / f"checkpoint-{seed}"


def finished(folder, seed):
    """What a seed has come to, or `None` if it has not finished."""
    path = seed_folder(folder, seed) / "results.json"
    return runs.read(path, SEED_KEYS) if path.is_file() else None


def run_seed(folder, config, prepared, seed):
    """Trains and measures one model; returns what is recorded of it."""
    keras.utils.set_random_seed(seed)
    model = build(prepared)
    total = prepared.epochs * prepared.steps
    model.compile(fitting.linear_adamw(prepared.settings, total))
    begin = time.perf_counter()
    checkpoint = train(folder, config, prepared, model, seed)
    seconds = time.perf_counter() - begin
    if prepared.task.kind == "regression":
        finetune_models.rescale_head(model, prepared.deviation, prepared.mean)
    own = seed_folder(folder, seed)
    own.mkdir(exist_ok=True)
    scores, labels = measure(own, prepared, model)
    best = fitting.best_of(checkpoint)
    record = {
        "seed": seed,
        "scores": scores,
        "null_threshold": labels.null_threshold,
        "epochs": len(checkpoint.history["loss"]),
        "best_epoch": best and best[0],
        "seconds": seconds,
    }
    model.compile()  # Keras would save the optimiser's state too
    model.save_weights(own / WEIGHTS_FILE)
    runs.record(own, "history.json", checkpoint.history)
    # Last: this file says that the seed has finished.
    runs.record(own, "results.json", record)
    return record


def train(folder, config, prepared, model, seed):
    """Fits a model, from where its checkpoint left it.

    Returns:
        The `TrainingCheckpoint`.
    """
    settings = dataclasses.asdict(config)
    for name in ("out", "resume", "evaluate", "predict", "predict_pair"):
        del settings[name]
    batch_size = prepared.settings.batch_size
    metric = prepared.task.metrics[0]
    checkpoint = TrainingCheckpoint(
        checkpoint_folder(folder, seed),
        monitor=f"val_{metric}",
        mode="max",
        identity={**settings, **prepared.identity, "seed": seed},
    )
    pad_id = prepared.origin.tokenizer.pad_id
    validation = prepared.parts["validation"]
    scoring = []
    if metric != "accuracy":  # which Keras has
        scoring = [
            finetune_answers.ValidationScore(
                metric, validation, first_metric(prepared), batch_size
            )
        ]
    fitting.fit(
        model,
        TaskBatches(
            prepared.parts["train"],
            batch_size,
            pad_id,
            seed,
            drop_remainder=True,
        ),
        TaskBatches(validation, batch_size, pad_id),
        prepared.epochs,
        checkpoint,
        "finetune",
        before=scoring,
    )
    if config.keep == "best":
        checkpoint.load_best(model)
    return checkpoint


def first_metric(prepared):
    """The function `(logits, part) -> float` that the task is measured by."""

    def score(logits, part):
        task = prepared.task
        labels = with_threshold(prepared, logits, part)
        answers = finetune_answers.answers_of(logits, part, labels)
        found = finetune_answers.scores(answers, part, task.kind, task.metrics)
        return found[task.metrics[0]]

    return score


def with_threshold(prepared, logits, part):
    """`Labels`, with a threshold if questions may have no answer."""
    labels = prepared.labels
    if not prepared.task.has_unanswerable:
        return labels
    threshold = finetune_answers.null_threshold(
        logits, part, labels.max_answer_tokens
    )
    return dataclasses.replace(labels, null_threshold=threshold)


def measure(folder, prepared, model):
    """Writes predictions for all parts but that for training.

    Returns:
        Dictionary from part to metrics, and `Labels`.
    """
    task, labels, found = prepared.task, prepared.labels, {}
    # `validation` first: the threshold is chosen there.
    for name in sorted(set(prepared.parts) - {"train"}, key=PARTS.index):
        part = prepared.parts[name]
        logits = finetune_answers.logits_of(
            model, part, prepared.settings.batch_size
        )
        if name == "validation":
            labels = with_threshold(prepared, logits, part)
        answers = finetune_answers.answers_of(logits, part, labels)
        finetune_answers.write_answers(
            folder / f"predictions_{name}.tsv", answers, part.examples, labels
        )
        if part.examples.labels is not None:
            found[name] = finetune_answers.scores(
                answers, part, task.kind, task.metrics
            )
    return found, labels


def summarise(config, prepared, records):
    """What all seeds have come to, as in `results.json`."""
    task = prepared.task
    metric = task.metrics[0]
    first = [record["scores"]["validation"][metric] for record in records]
    saved = records[middle(first)]
    parts = {
        part: {
            name: spread([record["scores"][part][name] for record in records])
            for name in saved["scores"][part]
        }
        for part in saved["scores"]
    }
    return {
        "task": task.name,
        "kind": task.kind,
        "metric": metric,
        "parts": parts,
        "seeds": [record["seed"] for record in records],
        "saved_seed": saved["seed"],
        "saved_scores": saved["scores"],
        "null_threshold": saved["null_threshold"],
        "start": origin_in_words(config, prepared),
        "class_names": task.class_names,
        "train_examples": len(prepared.parts["train"].examples),
        "input_length": prepared.labels.input_length,
        "parameters": prepared.parameters,
        "vocabulary_size": prepared.origin.tokenizer.vocabulary_size,
        "epochs": saved["epochs"],
        "best_epoch": saved["best_epoch"],
        "seconds": sum(record["seconds"] for record in records),
        "data_digest": prepared.identity["task"],
        "tokenizer_digest": prepared.identity["tokenizer"],
        "notes": prepared.notes,
        "versions": runs.versions(),
    }


def middle(values):
    """Index of the median; of the two in the middle, of the lower one."""
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    return order[(len(values) - 1) // 2]


def spread(values):
    """Median, least, largest and standard deviation (of a sample)."""
    several = len(values) > 1
    return {
        "median": float(np.median(values)),
        "min": min(values),
        "max": max(values),
        "std": float(np.std(values, ddof=1)) if several else None,
        "by_seed": values,
    }


def save(folder, prepared, results):
    """Writes the model of the median seed, the numbers and the pictures."""
    own = seed_folder(folder, results["saved_seed"])
    model = build(prepared)
    model.load_weights(own / WEIGHTS_FILE)
    preset = folder / text_models.PRESET_FOLDER
    model.save_to_preset(preset)
    labels = dataclasses.replace(
        prepared.labels, null_threshold=results["null_threshold"]
    )
    labels.save(preset)
    # As people will go on with it: with a rate that is not zero yet, and with
    # the variables that Keras looks for when it loads the file.
    model.compile()
    model.optimizer.build(model.trainable_variables)
    model.save(folder / "model.keras")
    for path in own.glob("predictions_*.tsv"):
        shutil.copy(path, folder / path.name)
    history = runs.read(own / "history.json")
    runs.record(folder, "history.json", history)
    analysis.plot_history(history, path=folder / "learning_curves.png")
    # Last: this file says that the run is whole.
    runs.record(folder, "results.json", results)
    for seed in results["seeds"]:
        (seed_folder(folder, seed) / WEIGHTS_FILE).unlink(missing_ok=True)


def report(folder, results):
    """Prints what came out, and where it lies."""
    rows, several = {}, len(results["seeds"]) > 1
    for part, metrics in results["parts"].items():
        for name, found in metrics.items():
            rows[f"{part} {name}"] = _in_words(found, several)
    count = len(results["seeds"])
    seeds = f"{count} seeds, " if several else ""
    rows["training"] = (
        f"{seeds}{results['epochs']} epochs, {results['seconds']:.0f} s"
    )
    model = folder / "model.keras"
    if several:
        model = f"{model} (seed {results['saved_seed']}, the median)"
    rows["model"] = model
    rows["for --from and --evaluate"] = folder
    rows["predictions"] = folder / "predictions_validation.tsv"
    rows["learning curves"] = folder / "learning_curves.png"
    title = "Results"
    if several:
        title = f"Results: median of {count} seeds (least to largest; "
        title += "standard deviation)"
    runs.show(title, rows)


def _in_words(found, several):
    if not several:
        return f"{found['median']:.4f}"
    return (
        f"{found['median']:.4f} ({found['min']:.4f} to {found['max']:.4f}; "
        f"{found['std']:.4f})"
    )


def cli():
    """The command line."""
    command.run(main, Config, __doc__, "finetune")


if __name__ == "__main__":
    cli()
