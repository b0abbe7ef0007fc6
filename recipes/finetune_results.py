"""What a finetuning has come to: measured, summed up, saved and shown."""

import dataclasses
import shutil

import numpy as np

from mlp_mixers.data.task_data import PARTS
from recipes import finetune_answers
from recipes import finetune_models
from recipes import finetune_tables
from recipes import runs
from recipes import text_models
from recipes import text_pictures
from recipes.finetune_prepare import build

# Weights of a finished seed, until it is known whose model is saved.
WEIGHTS_FILE = "model.weights.h5"


def seed_folder(folder, seed):
    return folder / f"seed-{seed}"


def with_threshold(prepared, logits, part):
    """`Labels`, with a threshold if questions may have no answer."""
    labels = prepared.labels
    if not prepared.task.has_unanswerable:
        return labels
    threshold = finetune_answers.null_threshold(
        logits, part, labels.max_answer_tokens
    )
    return dataclasses.replace(labels, null_threshold=threshold)


def first_metric(prepared):
    """The function `(logits, part) -> float` that the task is measured by."""

    def score(logits, part):
        task = prepared.task
        labels = with_threshold(prepared, logits, part)
        answers = finetune_answers.answers_of(logits, part, labels)
        found = finetune_answers.scores(answers, part, task.kind, task.metrics)
        return found[task.metrics[0]]

    return score


def measure(folder, prepared, model):
    """Writes predictions for all parts but that for training.

    Returns:
        Dictionary of what is recorded of a seed: `scores` from parts to
        metrics, `null_threshold` and `remarks`, sentences.
    """
    task, labels = prepared.task, prepared.labels
    found, remarks = {}, []
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
        remarks += remarks_on(prepared, name, answers)
        if part.examples.labels is not None:
            found[name] = finetune_answers.scores(
                answers, part, task.kind, task.metrics
            )
    return {
        "scores": found,
        "null_threshold": labels.null_threshold,
        "remarks": remarks,
    }


def remarks_on(prepared, name, answers):
    """What is odd about a model's answers, as a list of sentences."""
    task, count = prepared.task, len(answers.values)
    if task.kind == "classification" and count > 1:
        only = finetune_tables.only_answer(answers, task.class_names)
        if only is not None:
            return [f"all {count:,} {name} examples get the class {only!r}"]
    if task.kind == "regression":
        labels = prepared.parts["train"].examples.labels
        low, high = labels.min(), labels.max()
        outside = int(np.sum((answers.values < low) | (answers.values > high)))
        if outside:
            write = finetune_answers.label_in_words
            return [
                f"{outside:,} of {runs.counted(count, f'{name} prediction')} "
                "lie outside the labels of training, "
                f"{write(low)} to {write(high)}"
            ]
    return []


def summarise(prepared, records, start):
    """What all seeds have come to, as in `results.json`.

    Args:
        prepared: A `Prepared`.
        records: What is recorded of every seed.
        start: Where the first weights come from, in words.
    """
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
    baseline = finetune_tables.baseline(task, prepared.parts)
    remarks = [
        *(
            f"seed {r['seed']}: {text}"
            for r in records
            for text in r.get("remarks", ())
        ),
        *not_above(baseline, parts, metric),
    ]
    return {
        "task": task.name,
        "kind": task.kind,
        "metric": metric,
        "parts": parts,
        "baseline": baseline,
        "seeds": [record["seed"] for record in records],
        "saved_seed": saved["seed"],
        "saved_scores": saved["scores"],
        "null_threshold": saved["null_threshold"],
        "start": start,
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
        "remarks": remarks,
        "versions": runs.versions(),
    }


def not_above(baseline, parts, metric):
    """A remark for every part where reading the texts has not paid."""
    if baseline is None:
        return []
    return [
        f"{part} {metric} is not above {scores[metric]:.4f}, which always "
        f"saying {baseline['answer']} would score"
        for part, scores in baseline["parts"].items()
        if parts[part][metric]["median"] <= scores[metric]
    ]


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
    labels = dataclasses.replace(
        prepared.labels, null_threshold=results["null_threshold"]
    )
    if labels.kind == "regression":
        bias = float(model.head.get_weights()[1][0])
        labels = dataclasses.replace(labels, standard_bias=bias)
        finetune_models.rescale_head(model, labels.deviation, labels.mean)
    preset = folder / text_models.PRESET_FOLDER
    model.save_to_preset(preset)
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
    text_pictures.draw_history(
        history, folder / "learning_curves.png", title=curves_title(results)
    )
    # Last: this file says that the run is whole.
    runs.record(folder, "results.json", results)
    for seed in results["seeds"]:
        (seed_folder(folder, seed) / WEIGHTS_FILE).unlink(missing_ok=True)


def curves_title(results):
    """Whose learning curves these are: those of the seed that was saved."""
    count = len(results["seeds"])
    of = f" of {count}" if count > 1 else ""
    return f"seed {results['saved_seed']}{of}"


def report(folder, results):
    """Prints what came out, and where it lies."""
    count = len(results["seeds"])
    several = count > 1
    rows = score_rows(results, several)
    seeds = f"{runs.counted(count, 'seed')}, " if several else ""
    epochs = runs.counted(results["epochs"], "epoch")
    rows["training"] = f"{seeds}{epochs}, {results['seconds']:.0f} s"
    model = folder / "model.keras"
    if several:
        which = "the median"
        if count % 2 == 0:
            which = "the lower of the two in the middle"
        model = f"{model} (seed {results['saved_seed']}, {which})"
    rows["model"] = model
    rows["for --from and --evaluate"] = folder
    rows["predictions"] = folder / "predictions_validation.tsv"
    rows["learning curves"] = folder / "learning_curves.png"
    title = "Results"
    if several:
        title = f"Results: median of {count} seeds (least to largest; "
        title += "standard deviation)"
    runs.show(title, rows)
    runs.show_notes(results.get("remarks", ()))


def score_rows(results, several):
    """Metrics by part, each above what a constant answer scores."""
    rows = {}
    baseline = results.get("baseline") or {"parts": {}}
    for part, metrics in results["parts"].items():
        constant = baseline["parts"].get(part, {})
        for name, found in metrics.items():
            title = f"{part} {metric_in_words(name, results['class_names'])}"
            rows[title] = _in_words(found, several)
            if name in constant:
                title = f"{part} {name} of always {baseline['answer']}"
                rows[title] = f"{constant[name]:.4f}"
    return rows


def metric_in_words(name, class_names):
    """The name of a metric; F1 says of which class it is."""
    if name == "f1" and len(class_names) == 2:
        return f"f1 of {class_names[1]!r}"
    return name


def _in_words(found, several):
    if not several:
        return f"{found['median']:.4f}"
    return (
        f"{found['median']:.4f} ({found['min']:.4f} to {found['max']:.4f}; "
        f"{found['std']:.4f})"
    )
