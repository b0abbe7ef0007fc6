"""Between a task and the arrays of a model: encoding, batches, answers."""

import dataclasses
import hashlib
import json
import pathlib
import re

import keras
import numpy as np

from mlp_mixers import data
from mlp_mixers import training
from mlp_mixers.data.task_data import sample
from mlp_mixers.data.task_sources import FORMS
from mlp_mixers.data.text_encoder import LENGTH_STEP
from mlp_mixers.data.text_encoder import spaced
from mlp_mixers.training.span_metrics import best_null_threshold
from recipes import runs
from recipes.finetune_settings import Data
from recipes.finetune_settings import dashed

# Beside the preset of a finetuned model: what its outputs stand for.
LABELS_FILE = "labels.json"
# What would end a field or a line of a TSV file.
BREAKS = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
# So many texts are encoded at a time.
CHUNK = 4096
# Settings that are options of a loader: its name of them, and which loaders.
OPTIONS = {
    "glue_task": ("task", ("glue",)),
    "text": ("text", ("tsv", "tfds")),
    "text_pair": ("text_pair", ("tsv", "tfds")),
    "label": ("label", ("tsv", "tfds")),
    "identifier": ("identifier", ("tsv",)),
    "regression": ("regression", ("tsv",)),
    "class_names": ("class_names", ("tsv",)),
    "metrics": ("metrics", ("tsv",)),
    "squad_version": ("version", ("squad",)),
    "data_dir": ("data_dir", ("tfds",)),
}


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
        names = [field.name for field in dataclasses.fields(cls)]
        content = runs.read(path, names)
        content["class_names"] = tuple(content["class_names"])
        return cls(**{name: content[name] for name in names})


@dataclasses.dataclass(frozen=True)
class Part:
    """The arrays of some examples.

    Attributes:
        examples: `Examples`.
        token_ids: int32 `(rows, n)`; of spans, a row is a window.
        windows: `SpanWindows` of the same arrays, or `None`.
        targets: What the loss compares with, or `None`: int32 `(rows,)` of
            classes, float32 `(rows,)` of numbers, int32 `(rows, 2)` of the
            first and the last token of an answer.
    """

    examples: data.Examples
    token_ids: np.ndarray
    windows: data.SpanWindows | None = None
    targets: np.ndarray | None = None

    def __len__(self):
        return len(self.token_ids)

    def cut(self, length):
        """The same, without what all rows have beyond `length` tokens."""
        token_ids = np.ascontiguousarray(self.token_ids[:, :length])
        windows = self.windows and dataclasses.replace(
            self.windows,
            token_ids=token_ids,
            padding_mask=self.windows.padding_mask[:, :length],
        )
        return dataclasses.replace(self, token_ids=token_ids, windows=windows)


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a model says about examples.

    Attributes:
        values: int array of classes, float array of numbers, or list of
            strings.
        scores: Float array: the probability of a class, the logits of a span;
            `None` for numbers.
    """

    values: np.ndarray | list
    scores: np.ndarray | None


class TaskBatches(keras.utils.PyDataset):
    """Encoded examples in batches whose order follows from seed and epoch.

    A batch is `(inputs, targets)`, or `(inputs,)` without targets; inputs are
    the dictionary of `token_ids`, int32 `(b, n)`, and `padding_mask`, boolean
    `(b, n)`.

    Args:
        part: A `Part`.
        batch_size: Rows in a batch.
        pad_id: The token that is padding.
        seed: Integer that the order follows from; `None` keeps it.
        drop_remainder: Whether to leave out a last, smaller batch, so that
            all have one shape and are compiled once.

    Raises:
        ValueError: If there is no batch.
    """

    def __init__(self, part, batch_size, pad_id, seed=None, drop_remainder=False):
        super().__init__(workers=1, use_multiprocessing=False)
        self.part = part
        self.batch_size = batch_size
        self.pad_id = pad_id
        self.seed = seed
        self.drop_remainder = drop_remainder
        self.epoch = 0
        self._drawn = None  # the last order drawn, and its epoch
        if not len(self):
            raise ValueError(
                f"The task has {len(part):,} rows to train with, fewer than a "
                "batch: lower --batch-size, or take more examples. Received: "
                f"batch_size={batch_size}"
            )

    def __len__(self):
        if self.drop_remainder:
            return len(self.part) // self.batch_size
        return -(-len(self.part) // self.batch_size)

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(
                f"There are {len(self)} batches. Received: index={index}"
            )
        start = index * self.batch_size
        rows = self._order()[start : start + self.batch_size]
        inputs = inputs_of(self.part.token_ids[rows], self.pad_id)
        if self.part.targets is None:
            return (inputs,)
        return inputs, self.part.targets[rows]

    def on_epoch_end(self):
        self.epoch += 1

    def close(self):
        """For `fitting.fit`: there are no workers to end."""

    def _order(self):
        if self.seed is None:
            return np.arange(len(self.part))
        if self._drawn is None or self._drawn[0] != self.epoch:
            rng = np.random.default_rng([self.seed, self.epoch])
            self._drawn = self.epoch, rng.permutation(len(self.part))
        return self._drawn[1]


def load(settings, seed, whole=False):
    """The task that the settings name.

    Args:
        settings: A `Data`.
        seed: Of the sample and of what is held out.
        whole: Whether a task in a single file shall be measured on all of it.

    Returns:
        A `TaskData`.

    Raises:
        ValueError: If there is none, or a setting is not for its kind.
    """
    if settings.task is None:
        raise ValueError(f"Say which task it is, with --task:{FORMS}")
    kind, _, value = settings.task.partition(":")
    options = {
        "seed": seed,
        "validation_fraction": settings.validation_fraction,
    }
    for name, (argument, kinds) in OPTIONS.items():
        given = getattr(settings, name)
        if given == getattr(Data(), name):
            continue
        if kind not in kinds and kind in ("glue", "tsv", "squad", "tfds"):
            raise ValueError(
                f"--{dashed(name)} is for tasks of the kind "
                f"{' and '.join(kinds)}. Received: --task {settings.task}"
            )
        options[argument] = given
    if whole and kind in ("tsv", "squad"):
        path = pathlib.Path(value).expanduser()
        if path.is_file():
            options["validation"] = str(path)
    try:
        task = data.load_task(settings.task, **options)
    except ValueError as error:
        raise ValueError(_as_typed(str(error), kind)) from error
    for part, examples in task.parts.items():
        if not len(examples):
            raise ValueError(f"The part `{part}` of {task.name} is empty.")
    return task


def _as_typed(message, kind):
    """A loader's message with the names that its options have here."""
    for name, (argument, kinds) in OPTIONS.items():
        if kind in kinds:
            message = message.replace(f"`{argument}`", f"--{dashed(name)}")
    return message


def trainable(task, settings, seed):
    """The task with as many training examples as are asked for.

    Args:
        task: A `TaskData`.
        settings: A `Data`.
        seed: Of the sample.

    Raises:
        ValueError: If it cannot be trained with.
    """
    if "train" not in task.parts:
        raise ValueError(
            f"{task.name} has no training part, so there is nothing to train "
            f"with. Received: --task {settings.task} with "
            f"{', '.join(task.parts)}"
        )
    if task.kind == "classification" and task.num_classes < 2:
        raise ValueError(
            f"All examples of {task.name} have the label "
            f"{task.class_names[0]!r}: there is nothing to tell apart. (Numbers "
            "to predict are asked for with --regression.)"
        )
    train = task.parts["train"]
    if settings.sample is None:
        return task
    drawn = sample(train, settings.sample, seed)
    note = f"{len(drawn):,} of {len(train):,} training examples are used"
    return dataclasses.replace(
        task,
        parts={**task.parts, "train": drawn},
        notes=(*task.notes, note),
    )


def texts(task):
    """The different texts to train with, for a tokenizer."""
    train = task.parts["train"]
    return list(dict.fromkeys([*train.first, *(train.second or ())]))


def digest(task):
    """A short text that is another one when an example is another."""
    found = hashlib.sha256(repr((task.kind, task.class_names)).encode())
    for name, part in sorted(task.parts.items()):
        labels = part.labels
        if isinstance(labels, np.ndarray):
            labels = labels.tolist()
        content = [name, part.first, part.second, labels]
        found.update(json.dumps(content).encode())
    return found.hexdigest()[:16]


def encode(parts, kind, tokenizer, length, stride=None, least=1):
    """The arrays of the parts of a task, all of one length.

    That is the length of the longest input, rounded up.

    Args:
        parts: Dictionary of `Examples`.
        kind: As in `TaskData`.
        tokenizer: A `Tokenizer`.
        length: Tokens to which longer inputs are cut.
        stride: Of spans, as in `span_windows`.
        least: The least length.

    Returns:
        Dictionary of `Part`, of classes and numbers without targets, and a
        list of notes.
    """
    found, notes = {}, []
    for name, examples in parts.items():
        if kind == "span":
            found[name], note = _windows(examples, tokenizer, length, stride)
        else:
            found[name], note = _encoded(examples, tokenizer, length)
        notes += [f"{name}: {text}" for text in note]
    used = max(
        int((part.token_ids != tokenizer.pad_id).sum(1).max())
        for part in found.values()
    )
    rounded = -(-max(used, least) // LENGTH_STEP) * LENGTH_STEP
    rounded = min(rounded, length)
    return {name: part.cut(rounded) for name, part in found.items()}, notes


def _encoded(examples, tokenizer, length):
    """A `Part` of texts or pairs of them, and notes."""
    encoder = data.TextEncoder(tokenizer, length)
    token_ids = np.empty((len(examples), length), "int32")
    for begin in range(0, len(examples), CHUNK):
        some = slice(begin, begin + CHUNK)
        second = examples.second and examples.second[some]
        encoded = encoder(examples.first[some], second, length)
        token_ids[some] = encoded["token_ids"]
    full = np.flatnonzero((token_ids != tokenizer.pad_id).all(1))
    cut = _count_longer(examples.take(full), tokenizer, length)
    notes = []
    if cut:
        notes = [f"{cut:,} of {len(examples):,} inputs are cut to {length}"]
        notes[0] += " tokens"
    return Part(examples, token_ids), notes


def _count_longer(examples, tokenizer, length):
    """How many of these have more tokens than there is room for."""
    if not len(examples):
        return 0
    tokens = np.full(len(examples), 2)
    for column, more in ((examples.first, 0), (examples.second, 1)):
        if column is not None:
            encodings = tokenizer.encode([spaced(text) for text in column])
            tokens += [len(e.ids) + more for e in encodings]
    return int((tokens > length).sum())


def span_sizes(length, stride=None):
    """`(stride, max_question)` of windows, as `SpanPredictor` takes them."""
    max_question = min(64, max(length // 4, 1))
    room = length - 3 - max_question
    return stride or max(room // 2, 1), max_question


def _windows(examples, tokenizer, length, stride):
    """A `Part` of windows onto passages, and notes."""
    stride, max_question = span_sizes(length, stride)
    windows = data.span_windows(
        examples.first,
        examples.second,
        tokenizer,
        length,
        stride,
        max_question,
        examples.labels,
    )
    notes = []
    if len(windows) > len(examples):
        notes.append(
            f"{len(examples):,} questions in {len(windows):,} windows of "
            f"{length} tokens"
        )
    targets = None
    if windows.starts is not None:
        targets = np.stack([windows.starts, windows.ends], 1)  # (w, 2)
        whole = len(np.unique(windows.example[windows.starts > 0]))
        asked = sum(not label["is_impossible"] for label in examples.labels)
        if whole < asked:
            notes.append(
                f"{asked - whole:,} of {asked:,} answers are not whole in any "
                "window"
            )
    return Part(examples, windows.token_ids, windows, targets), notes


def with_targets(parts, kind):
    """The parts with what the loss compares with.

    Numbers are standardised by mean and standard deviation of the training
    part, so that one learning rate suits all units.

    Returns:
        `(parts, mean, deviation)`, which are 0 and 1 unless of numbers.
    """
    mean, deviation = 0.0, 1.0
    if kind == "span":
        return parts, mean, deviation
    if kind == "regression":
        values = parts["train"].examples.labels.astype("float64")
        mean = float(values.mean())
        deviation = float(values.std()) or 1.0
    found = {}
    for name, part in parts.items():
        targets = part.examples.labels
        if targets is not None and kind == "regression":
            targets = ((targets - mean) / deviation).astype("float32")
        found[name] = dataclasses.replace(part, targets=targets)
    return found, mean, deviation


def inputs_of(token_ids, pad_id):
    """What a text model takes."""
    return {"token_ids": token_ids, "padding_mask": token_ids != pad_id}


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
        logits: Array `(rows, ...)`.
        part: A `Part`.
        labels: `Labels`.
    """
    if labels.kind == "span":
        found = data.best_spans(
            logits[:, 0],
            logits[:, 1],
            part.windows,
            labels.max_answer_tokens,
            labels.null_threshold,
        )
        return Answers(found.texts, found.scores)
    if not np.isfinite(logits).all():
        raise ValueError(
            "The model's outputs are not finite: the training has diverged. "
            "Lower the learning rate, or lengthen the warm-up."
        )
    if labels.kind == "regression":
        return Answers(logits[:, 0], None)
    probabilities = softmax(logits)
    return Answers(logits.argmax(-1), probabilities.max(-1))


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
    """Answers of a model with its classes numbered as a task numbers them.

    A class that the task does not have gets a number beyond its own.

    Raises:
        ValueError: If the two are of other kinds, or the model lacks a class.
    """
    check_fit(labels, task)
    if task.kind != "classification":
        return answers
    numbers = {name: k for k, name in enumerate(task.class_names)}
    known = [numbers.get(n, len(numbers)) for n in labels.class_names]
    return dataclasses.replace(
        answers, values=np.array(known)[answers.values]
    )


def check_fit(labels, task):
    """Raises a ValueError unless a model can be measured on a task."""
    if labels.kind != task.kind or labels.is_pair != task.is_pair:
        sorts = [
            f"{x.kind} of {'pairs' if x.is_pair else 'single texts'}"
            for x in (labels, task)
        ]
        raise ValueError(
            f"The model was finetuned for {labels.task}, a {sorts[0]}; "
            f"{task.name} is a {sorts[1]}."
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
    scored = answers.scores is not None
    score_name = "score" if labels.kind == "span" else "probability"
    head = ["id", "answer" if labels.kind == "span" else "prediction"]
    head += [score_name] * scored
    head += ["label"] * (examples.labels is not None)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(head) + "\n")
        for i, name in enumerate(examples.ids):
            fields = [name, _written(answers.values[i], labels)]
            if scored:
                fields.append(f"{answers.scores[i]:.6g}")
            if examples.labels is not None:
                fields.append(_written(examples.labels[i], labels))
            line = "\t".join(BREAKS.sub(" ", field) for field in fields)
            file.write(line + "\n")


def _written(value, labels):
    """An answer or a label in words."""
    if isinstance(value, dict):
        found = [] if value["is_impossible"] else value["answers"]
        return found[0] if found else ""
    if labels.kind == "classification":
        return labels.class_names[value]
    return value if isinstance(value, str) else f"{value:.6g}"


def softmax(logits):
    """Probabilities over the last axis."""
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


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
