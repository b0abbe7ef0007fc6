"""What to hold a finetuned model's scores against, and where it errs."""

import re

import numpy as np
from matplotlib.figure import Figure

from recipes import runs
from recipes.finetune_answers import Answers
from recipes.finetune_answers import scores

# More classes than this make a picture that nobody can read.
MOST_IN_PICTURE = 40


def baseline(task, parts):
    """What a model scores that has read nothing.

    Always the class that is most frequent in training, the mean of the numbers
    there, or that there is no answer.

    Args:
        task: A `TaskData`.
        parts: Dictionary of `Part`, `"train"` among them.

    Returns:
        Dictionary of `answer`, in words, and `parts`, from parts to metrics;
        `None` where every question has an answer.
    """
    labels = parts["train"].examples.labels
    if task.kind == "classification":
        value = int(np.bincount(labels).argmax())
        answer = repr(task.class_names[value])
    elif task.kind == "regression":
        value = float(labels.mean())
        answer = f"{value:.6g}, the mean"
    elif task.has_unanswerable:
        value, answer = "", "no answer"
    else:
        return None
    return {
        "answer": answer,
        "parts": {
            name: scores(_always(value, part), part, task.kind, task.metrics)
            for name, part in parts.items()
            if name != "train" and part.examples.labels is not None
        },
    }


def _always(value, part):
    count = len(part.examples)
    if isinstance(value, str):
        return Answers([value] * count, None)
    return Answers(np.full(count, value), None)


def only_answer(answers, names):
    """The class that every example gets, or `None` if there are several.

    Args:
        answers: `Answers` of a classification.
        names: Of the classes.
    """
    values = np.unique(answers.values)
    return names[values[0]] if len(values) == 1 else None


def by_class(labels, predictions, names):
    """Precision, recall, F1 and number of examples of every class.

    Args:
        labels: Classes, integers `(n,)`.
        predictions: Classes, integers `(n,)`.
        names: Of the classes.

    Returns:
        List of tuples `(name, precision, recall, f1, count)`; 0 where 0/0.
    """
    from sklearn.metrics import precision_recall_fscore_support

    found = precision_recall_fscore_support(
        labels, predictions, labels=range(len(names)), zero_division=0
    )
    return [
        (name, float(p), float(r), float(f), int(n))
        for name, p, r, f, n in zip(names, *found)
    ]


def show_by_class(rows):
    """Prints what `by_class` returns."""
    runs.show_table(
        "by class",
        ("class", "precision", "recall", "f1", "examples"),
        [(name, *(f"{x:.4f}" for x in xs), n) for name, *xs, n in rows],
    )


def confusion(labels, predictions, classes):
    """How often class i was taken for class j: int array `(k, k)`."""
    found = np.zeros((classes, classes), int)
    np.add.at(found, (labels, predictions), 1)
    return found


def save_confusion(folder, name, matrix, names):
    """Writes a confusion matrix as a TSV file, and as a picture.

    Args:
        folder: Where to.
        name: What it is of, for the names of the files.
        matrix: As `confusion` returns it.
        names: Of the classes.

    Returns:
        List of the paths that were written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = "confusion_" + re.sub(r"[^\w.-]+", "_", name)
    # A class may be called by a tab.
    plain = [re.sub(r"\s+", " ", name) for name in names]
    lines = ["\t".join(["label \\ prediction", *plain])]
    lines += ["\t".join([n, *map(str, row)]) for n, row in zip(plain, matrix)]
    paths = [folder / f"{stem}.tsv"]
    paths[0].write_text("\n".join(lines) + "\n", "utf-8")
    if len(names) <= MOST_IN_PICTURE:
        paths.append(folder / f"{stem}.png")
        draw_confusion(matrix, plain, paths[1])
    return paths


def draw_confusion(matrix, names, path):
    """Draws a confusion matrix: colours are shares of each row."""
    k = len(names)
    side = 2.5 + 0.45 * k
    figure = Figure(figsize=(side + 0.5, side), layout="constrained")
    axis = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.ndindex(k, k):
        colour = "white" if shares[i, j] > 0.5 else "black"
        axis.text(j, i, matrix[i, j], ha="center", va="center", color=colour)
    # "$" in a name would begin a formula.
    shown = [name[:20].replace("$", r"\$") for name in names]
    axis.set_xticks(range(k), shown, rotation=90 if k > 4 else 0)
    axis.set_yticks(range(k), shown)
    axis.set(xlabel="prediction", ylabel="label")
    figure.savefig(path, dpi=150)
