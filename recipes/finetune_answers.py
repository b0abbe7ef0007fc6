"""What a finetuned model's outputs stand for, measured and written down."""

import dataclasses
import pathlib
import re

import keras
import numpy as np

from mlp_mixers import data
from mlp_mixers import training
from mlp_mixers.training.span_metrics import best_null_threshold
from recipes import runs
from recipes.finetune_data import in_words
from recipes.finetune_data import inputs_of

# Beside the preset of a finetuned model: what its outputs stand for.
LABELS_FILE = "labels.json"
# Columns of the texts in a file of predictions.
TEXTS = ("text", "text_pair")
# What would end a field or a line of a TSV file.
BREAKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclasses.dataclass(frozen=True)
class Labels:
    """What the outputs of a finetuned model stand for.

    Attributes:
        task: Name of the task.
        kind: As in `TaskData`.
        class_names: The names of its classes.
        is_pair: Whether it reads pairs of texts.
        max_length: Tokens to which longer inputs are cut.
        input_length: Tokens that inputs were padded to.
        stride: Of spans, as in `span_windows`.
        max_answer_tokens: Of spans.
        null_threshold: Of spans, as in `best_spans`.
        mean, deviation: Of the numbers that the head was trained for: it said
            (number - mean) / deviation.
        standard_bias: Of numbers, the bias of that head. The one of the saved
            model, which says the numbers themselves, has fewer digits. `None`
            if nothing was standardised.
        about: What the labels are, in words: their column, or the task.
    """

    task: str
    kind: str
    class_names: tuple
    is_pair: bool
    max_length: int
    input_length: int
    stride: int | None = None
    max_answer_tokens: int = 30
    null_threshold: float | None = None
    mean: float = 0.0
    deviation: float = 1.0
    standard_bias: float | None = None
    about: str = ""

    def save(self, folder):
        """Writes `labels.json` into a folder."""
        runs.record(folder, LABELS_FILE, dataclasses.asdict(self))

    @classmethod
    def load(cls, folder):
        """The `Labels` in a folder, or `None`.

        Raises:
            ValueError: If the file is damaged.
        """
        path = pathlib.Path(folder, LABELS_FILE)
        if not path.is_file():
            return None
        fields = dataclasses.fields(cls)
        # The others have come later.
        first = [f.name for f in fields if f.default is dataclasses.MISSING]
        content = runs.read(path, first)
        content["class_names"] = tuple(content["class_names"])
        names = [field.name for field in fields if field.name in content]
        return cls(**{name: content[name] for name in names})


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model says about examples.

    Attributes:
        values: int array of classes, float64 array of numbers, or list of
            strings.
        scores: Float array: the probability of a class, the logits of a span;
            `None` for numbers.
    """

    values: np.ndarray | list
    scores: np.ndarray | None


def logits_of(model, part, batch_size):
    """The outputs of a model, float32, computed in batches of one shape."""
    rows = len(part)
    size = min(batch_size, rows)
    # The last row again and again, up to a whole batch.
    filled = np.minimum(np.arange(-(-rows // size) * size), rows - 1)
    inputs = inputs_of(part.token_ids[filled], model.tokenizer.pad_id)
    logits = model.predict(inputs, batch_size=size, verbose=0)
    return np.asarray(logits[:rows], "float32")


def answers_of(logits, part, labels):
    """The `Answers` that a model's outputs stand for.

    Args:
        logits: Array `(rows, ...)`; of numbers, standardised.
        part: A `Part`.
        labels: `Labels`.

    Raises:
        ValueError: If the outputs are not finite.
    """
    if not np.isfinite(logits).all():
        raise ValueError(
            "The model's outputs are not finite: the training has diverged. "
            "Lower the learning rate, or lengthen the warm-up."
        )
    if labels.kind == "span":
        found = data.best_spans(
            logits[:, 0],
            logits[:, 1],
            part.windows,
            labels.max_answer_tokens,
            labels.null_threshold,
        )
        return Answers(found.texts, found.scores)
    if labels.kind == "regression":
        standardised = logits[:, 0].astype("float64")
        return Answers(standardised * labels.deviation + labels.mean, None)
    probabilities = softmax(logits)
    return Answers(logits.argmax(-1), probabilities.max(-1))


def softmax(logits):
    """Probabilities over the last axis."""
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def null_threshold(logits, part, max_answer_tokens):
    """The threshold for "no answer" that is best for these questions."""
    found = data.best_spans(
        logits[:, 0], logits[:, 1], part.windows, max_answer_tokens
    )
    threshold, _ = best_null_threshold(
        part.examples.labels, found.texts, found.null_differences
    )
    # JSON has no infinite numbers; no score is beyond these.
    return float(np.clip(threshold, -1e30, 1e30))


def scores(answers, part, kind, metrics):
    """The metrics of answers, by name."""
    labels = part.examples.labels
    if kind == "span":
        found = training.span_score(labels, answers.values)
        return {k: v for k, v in found.items() if not k.endswith("total")}
    return training.score(metrics, labels, answers.values)


def as_in_task(answers, labels, task):
    """Answers of a model with its classes numbered as a task numbers them."""
    if task.kind != "classification":
        return answers
    known = [task.class_names.index(name) for name in labels.class_names]
    return dataclasses.replace(answers, values=np.array(known)[answers.values])


def with_classes(task, class_names):
    """A task with its classes, and maybe others, in another order."""
    if task.kind != "classification":
        return task
    numbers = np.array([class_names.index(n) for n in task.class_names])
    parts = {
        name: part
        if part.labels is None
        else dataclasses.replace(
            part, labels=numbers[part.labels].astype("int32")
        )
        for name, part in task.parts.items()
    }
    return dataclasses.replace(
        task, class_names=tuple(class_names), parts=parts
    )


def check_fit(labels, task):
    """Raises a ValueError unless a model can be measured on a task."""
    if labels.kind != task.kind or labels.is_pair != task.is_pair:
        raise ValueError(
            f"The model was finetuned for {labels.task}, {in_words(labels)}; "
            f"{task.name} is {in_words(task)}."
        )
    unknown = [n for n in task.class_names if n not in labels.class_names]
    if unknown:
        raise ValueError(
            f"{task.name} has classes that the model does not know: "
            f"{', '.join(unknown[:5])}. It knows "
            f"{', '.join(labels.class_names[:10])}"
            f"{' ...' if len(labels.class_names) > 10 else ''}."
        )


def write_answers(path, answers, examples, labels):
    """Writes what a model says as a TSV file, an example a line.

    Tabs and line ends inside a field become spaces.
    """
    columns = {"id": examples.ids}
    name = "answer" if labels.kind == "span" else "prediction"
    columns[name] = _written(answers.values, labels, number_in_words)
    if answers.scores is not None:
        name = "score" if labels.kind == "span" else "probability"
        columns[name] = (f"{score:.6g}" for score in answers.scores)
    if examples.labels is not None:
        columns["label"] = _written(examples.labels, labels, label_in_words)
    names = ("question", "passage") if labels.kind == "span" else TEXTS
    for name, texts in zip(names, (examples.first, examples.second)):
        if texts is not None:
            columns[name] = texts
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(columns) + "\n")
        for row in zip(*columns.values()):
            line = "\t".join(BREAKS.sub(" ", field) for field in row)
            file.write(line + "\n")


def _written(values, labels, in_digits):
    """Answers or labels in words, one by one."""
    for value in values:
        if labels.kind == "classification":
            yield labels.class_names[value]
        elif labels.kind == "regression":
            yield in_digits(value)
        elif isinstance(value, str):
            yield value
        else:
            found = [] if value["is_impossible"] else value["answers"]
            yield found[0] if found else ""


def number_in_words(value):
    """A number to twelve digits; a model's 32 bits give no more."""
    return f"{value:.12g}"


def label_in_words(value):
    """A number to all the digits that it has."""
    short = number_in_words(value)
    return short if float(short) == value else repr(float(value))


def asked(logits, part, labels):
    """For each example a dictionary of what the model says."""
    if labels.kind == "classification":
        for row in softmax(logits):
            order = np.argsort(-row, kind="stable")
            yield {labels.class_names[k]: float(row[k]) for k in order}
        return
    answers = answers_of(logits, part, labels)
    for i, value in enumerate(answers.values):
        if labels.kind == "regression":
            yield {"number": float(value)}
        else:
            yield {"answer": value, "score": float(answers.scores[i])}


class ValidationScore(keras.callbacks.Callback):
    """Adds a metric of the task to what is known after an epoch.

    Keras has loss and accuracy of batches; F1 and correlations are of all
    examples together.

    Args:
        name: Of the metric.
        part: The `Part` that validates.
        score: Function `(logits, part) -> float`.
        batch_size: Rows that are computed at a time.
    """

    def __init__(self, name, part, score, batch_size):
        super().__init__()
        self.name = name
        self.part = part
        self.score = score
        self.batch_size = batch_size

    def on_epoch_end(self, epoch, logs=None):
        logits = logits_of(self.model, self.part, self.batch_size)
        # The checkpoint says what a diverged training has come to.
        if np.isfinite(logits).all():
            logs[f"val_{self.name}"] = float(self.score(logits, self.part))
