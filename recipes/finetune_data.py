"""The task that is asked for, as arrays and batches of them."""

import dataclasses
import hashlib
import json
import pathlib
import re

import numpy as np

from mlp_mixers import data
from mlp_mixers.data.epochs import EpochBatches
from mlp_mixers.data.epochs import EpochOrder
from mlp_mixers.data.epochs import number_of_batches
from mlp_mixers.data.task_data import sample
from mlp_mixers.data.task_sources import FORMS
from mlp_mixers.data.text_encoder import LENGTH_STEP
from mlp_mixers.data.text_encoder import spaced
from recipes.checks import dashed
from recipes.runs import counted

# What a note on inputs that are too long says.
CUT = "cut to"
# So many texts are encoded at a time.
CHUNK = 4096
# Settings that are options of a loader: its name of them, and which loaders.
OPTIONS = {
    "glue_task": ("task", ("glue",)),
    "text": ("text", ("tsv", "tfds")),
    "text_pair": ("text_pair", ("tsv", "tfds")),
    "label": ("label", ("tsv", "tfds")),
    "identifier": ("identifier", ("tsv",)),
    "delimiter": ("delimiter", ("tsv",)),
    "quotes": ("quotes", ("tsv",)),
    "bad_lines": ("bad_lines", ("tsv",)),
    "regression": ("regression", ("tsv",)),
    "class_names": ("class_names", ("tsv",)),
    "metrics": ("metrics", ("tsv",)),
    "squad_version": ("version", ("squad",)),
    "data_dir": ("data_dir", ("tfds",)),
    "validation_fraction": (
        *("validation_fraction", ("glue", "tsv", "squad", "tfds")),
    ),
}
KINDS = ("glue", "tsv", "squad", "tfds")
# Above, a head's 32-bit numbers may not hold it.
LARGEST = 1e37
# What a task is, in words: of single texts, or of pairs.
IN_WORDS = {
    "classification": (
        "a classification of texts",
        "a classification of pairs",
    ),
    "regression": ("a regression of texts", "a regression of pairs"),
    "span": ("question answering", "question answering"),
}


def in_words(task):
    """What a `TaskData` or `Labels` is: `a classification of pairs`."""
    return IN_WORDS[task.kind][task.is_pair]


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


class TaskBatches(EpochBatches):
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

    def __init__(
        self, part, batch_size, pad_id, seed=None, drop_remainder=False
    ):
        super().__init__(
            TaskBatchMaker(part, batch_size, pad_id, seed, drop_remainder)
        )


class TaskBatchMaker:
    """The batch as a function of (epoch, index); see `TaskBatches`."""

    def __init__(self, part, batch_size, pad_id, seed, drop_remainder):
        self.part = part
        self.batch_size = batch_size
        self.pad_id = pad_id
        self.drop_remainder = drop_remainder
        self._order = EpochOrder(len(part), seed)
        if not len(self):
            raise ValueError(
                f"The task has {counted(len(part), 'row')} to train with, "
                "fewer than a batch: lower --batch-size, or take more "
                f"examples. Received: batch_size={batch_size}"
            )

    def __len__(self):
        rows = len(self.part)
        return number_of_batches(rows, self.batch_size, self.drop_remainder)

    def __call__(self, epoch, index):
        start = index * self.batch_size
        rows = self._order(epoch)[start : start + self.batch_size]
        inputs = inputs_of(self.part.token_ids[rows], self.pad_id)
        if self.part.targets is None:
            return (inputs,)
        return inputs, self.part.targets[rows]


def load(settings, seed, whole=False, class_names=None):
    """The task that the settings name.

    Args:
        settings: A `Data`.
        seed: Of the sample and of what is held out.
        whole: Whether a task in a single file shall be measured on all of it,
            unless a share of it is asked for.
        class_names: Of files that do not name them: the classes of the model
            that is measured, in its order.

    Returns:
        A `TaskData`.

    Raises:
        ValueError: If there is none, or a setting is not for its kind.
    """
    if settings.task is None:
        raise ValueError(f"Say which task it is, with --task:{FORMS}")
    kind, _, value = settings.task.partition(":")
    options = {"seed": seed, **options_of(settings, kind)}
    names = {}
    if kind == "tsv" and class_names and not options.get("regression"):
        if "class_names" not in options:
            names = {"`class_names`": "those of the model"}
        options.setdefault("class_names", class_names)
    if whole and is_one_file(settings):
        options["validation"] = str(pathlib.Path(value).expanduser())
    try:
        task = data.load_task(settings.task, **options)
    except ValueError as error:
        raise ValueError(as_typed(str(error), kind, names)) from error
    for part, examples in task.parts.items():
        if not len(examples):
            raise ValueError(f"The part `{part}` of {task.name} is empty.")
    check_span_options(settings, task)
    return task


def is_one_file(settings):
    """Whether a `Data` names a single file, and no share of it."""
    kind, _, value = settings.task.partition(":")
    path = pathlib.Path(value).expanduser()
    no_share = settings.validation_fraction is None
    return kind in ("tsv", "squad") and path.is_file() and no_share


def options_of(settings, kind):
    """Arguments of the loader of such tasks, as far as they are given.

    Raises:
        ValueError: If a setting is for another kind.
    """
    options = {}
    for name, (argument, kinds) in OPTIONS.items():
        given = getattr(settings, name)
        # What was not asked for was `False` in older records.
        if given is None or (name == "regression" and not given):
            continue
        if kind not in kinds and kind in KINDS:
            raise ValueError(
                f"--{dashed(name)} is for tasks of the kind "
                f"{' and '.join(kinds)}. Received: --task {settings.task}"
            )
        options[argument] = given
    return options


def check_span_options(settings, task):
    """Raises a ValueError if windows are asked for where there are none."""
    for name in ("stride", "max_answer_tokens"):
        if getattr(settings, name) is not None and task.kind != "span":
            raise ValueError(
                f"--{dashed(name)} is for questions and answers. Received: "
                f"--task {settings.task}, {in_words(task)}"
            )


def as_typed(message, kind, names=()):
    """A loader's message with the names that its options have here.

    Args:
        message: The message, with options between backticks.
        kind: Of the task.
        names: Dictionary of other words for some of them.
    """
    for before, after in dict(names).items():
        message = message.replace(before, after)
    for name, (argument, kinds) in OPTIONS.items():
        if kind not in kinds:
            continue
        option = dashed(name)
        message = message.replace(f"`{argument}=False`", f"--no-{option}")
        message = message.replace(f"`{argument}=True`", f"--{option}")
        message = message.replace(f"`{argument}`", f"--{option}")
        # What is no word needs quotes in a shell.
        message = re.sub(
            f"`{argument}=([\"'])(\\w+)\\1`", f"--{option} \\2", message
        )
        message = re.sub(
            f"`{argument}=([\"'].+?[\"'])`", f"--{option} \\1", message
        )
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
            f"{task.class_names[0]!r}: there is nothing to tell apart. "
            "(Numbers to predict are asked for with --regression.)"
        )
    train = task.parts["train"]
    if task.num_classes > max(2, len(train) / 2):
        hint = " (Numbers to predict are asked for with --regression.)"
        task = dataclasses.replace(
            task,
            notes=(
                *task.notes,
                f"{counted(len(train), 'training example')} of "
                f"{task.num_classes:,} classes: hardly any class has a second "
                f"one to learn from.{hint}",
            ),
        )
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
        inputs = counted(len(examples), "input")
        are = "is" if cut == 1 else "are"
        notes = [f"{cut:,} of {inputs} {are} {CUT} {length} tokens"]
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
    return max(room // 2, 1) if stride is None else stride, max_question


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
            f"{counted(len(examples), 'question')} in "
            f"{counted(len(windows), 'window')} of {length} tokens"
        )
    targets = None
    if windows.starts is not None:
        targets = np.stack([windows.starts, windows.ends], 1)  # (w, 2)
        whole = len(np.unique(windows.example[windows.starts > 0]))
        asked = sum(not label["is_impossible"] for label in examples.labels)
        if whole < asked:
            missing = asked - whole
            notes.append(
                f"{missing:,} of {counted(asked, 'answer')} "
                f"{'is' if missing == 1 else 'are'} not whole in any window"
            )
    return Part(examples, windows.token_ids, windows, targets), notes


def with_targets(parts, kind):
    """The parts with what the loss compares with.

    Numbers are standardised by mean and standard deviation of the training
    part, so that one learning rate suits all units.

    Returns:
        `(parts, mean, deviation)`, which are 0 and 1 unless of numbers.

    Raises:
        ValueError: If a number is too large for a model's.
    """
    mean, deviation = 0.0, 1.0
    if kind == "span":
        return parts, mean, deviation
    if kind == "regression":
        for name, part in parts.items():
            check_sizes(name, part.examples)
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


def check_sizes(name, examples):
    """Raises a ValueError for labels that no model here can say."""
    if examples.labels is None:
        return
    large = np.flatnonzero(np.abs(examples.labels) > LARGEST)
    if len(large):
        row = int(large[0])
        raise ValueError(
            "The model's numbers have 32 bits, and labels beyond "
            f"{LARGEST:g} do not fit: divide them all by the same number. "
            f"Received: {examples.labels[row]:g} in row {row} (id "
            f"{examples.ids[row]}) of the part `{name}`"
        )


def about(settings, task):
    """What tells a task from another one of the same kind, in words."""
    kind = settings.task.partition(":")[0]
    if kind != "tsv":
        return task.name
    texts = [settings.text or "sentence", settings.text_pair]
    label = settings.label or "label"
    return f"{label!r} of {' and '.join(repr(t) for t in texts if t)}"


def inputs_of(token_ids, pad_id):
    """What a text model takes."""
    return {"token_ids": token_ids, "padding_mask": token_ids != pad_id}
