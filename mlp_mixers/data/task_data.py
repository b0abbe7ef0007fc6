"""Examples of a text task, and the parts of a task."""

import dataclasses
import numbers

import numpy as np

# What a task may be, and what it may be measured by.
METRICS = {
    "classification": ("accuracy", "f1", "matthews"),
    "regression": ("pearson", "spearman"),
    "span": ("f1", "exact_match"),
}
PARTS = (
    *("train", "validation", "validation_mismatched"),
    *("test", "test_mismatched"),
)


@dataclasses.dataclass(frozen=True)
class Examples:
    """Texts, or pairs of texts, with or without labels.

    Attributes:
        first: List of strings; of spans, the questions.
        second: List of strings, as long, or `None` if the task has no pairs;
            of spans, the contexts.
        labels: `None` where they are unknown, or one for each example. Of a
            classification an int32 array, of a regression a float64 array,
            of spans a list of dictionaries:

                {"answers": [str, ...], "answer_starts": [int, ...],
                 "is_impossible": bool}

            where an answer is `context[start : start + len(answer)]`.
        ids: List of strings that name the examples; by default their numbers,
            from 0.

    Raises:
        ValueError: If these are not of one length.
    """

    first: list
    second: list | None = None
    labels: np.ndarray | list | None = None
    ids: list | None = None

    def __post_init__(self):
        if self.ids is None:
            # The only way to set an attribute of a frozen class.
            object.__setattr__(self, "ids", [*map(str, range(len(self)))])
        for name in ("second", "labels", "ids"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.first):
                raise ValueError(
                    f"`{name}` must have one entry for each of the "
                    f"{len(self.first):,} texts, or be `None`. "
                    f"Received: {len(values):,} entries"
                )

    def __len__(self):
        return len(self.first)

    def take(self, rows):
        """The examples at the indices `rows`, as `Examples`."""

        def chosen(values):
            if values is None:
                return None
            if isinstance(values, np.ndarray):
                return values[np.asarray(rows, int)]
            return [values[i] for i in rows]

        return Examples(
            *map(chosen, (self.first, self.second, self.labels, self.ids))
        )


@dataclasses.dataclass(frozen=True)
class TaskData:
    """A task to finetune for: its examples, and how it is measured.

    Attributes:
        name: What to call it.
        kind: `"classification"`, `"regression"` or `"span"`.
        class_names: `class_names[k]` is the name of label k; empty unless the
            task is a classification.
        metrics: Names of metrics; the first one is the one to report. See
            `training/task_metrics.py` and `training/span_metrics.py`.
        parts: Dictionary from `"train"`, `"validation"`, `"test"`,
            `"validation_mismatched"` and `"test_mismatched"`, as far as they
            are there, to `Examples`.
        notes: Sentences about what was left out, cut or repaired on the way,
            for whoever prints them.

    Raises:
        ValueError: If there is no such kind, metric or part, or an example of
            the training or validation part has no label, or one that is no
            finite number.
    """

    name: str
    kind: str
    class_names: tuple
    metrics: tuple
    parts: dict
    notes: tuple = ()

    def __post_init__(self):
        if self.kind not in METRICS:
            raise ValueError(
                f"`kind` must be one of {tuple(METRICS)}. "
                f"Received: kind={self.kind!r}"
            )
        check_metrics(self.metrics, self.kind)
        if self.class_names and "f1" in self.metrics and self.num_classes != 2:
            raise ValueError(
                "`f1` is the one of the second of two classes; with more use "
                "`accuracy` or `matthews`. Received: "
                f"{self.num_classes} classes, metrics={self.metrics!r}"
            )
        unknown = sorted(set(self.parts) - set(PARTS))
        if unknown or not self.parts:
            raise ValueError(
                f"The parts of a task are called {', '.join(PARTS)}. "
                f"Received: parts {', '.join(self.parts) or '(none)'}"
            )
        for part, examples in self.parts.items():
            if examples.labels is None and not part.startswith("test"):
                raise ValueError(
                    f"Every example of the part `{part}` needs a label. "
                    f"Received: {self.name} without labels there"
                )
            if self.kind == "regression" and examples.labels is not None:
                _check_finite(self.name, part, examples)

    @property
    def num_classes(self):
        """Number of classes; 0 unless the task is a classification."""
        return len(self.class_names)

    @property
    def is_pair(self):
        """Whether an example is a pair of texts."""
        return any(part.second is not None for part in self.parts.values())

    @property
    def has_unanswerable(self):
        """Whether there are questions without an answer, as in SQuAD 2.0."""
        return self.kind == "span" and any(
            label["is_impossible"]
            for part in self.parts.values()
            for label in part.labels or ()
        )


def check_metrics(metrics, kind):
    """Raises a ValueError unless all are metrics of such a task."""
    metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    if not metrics or not set(metrics) <= set(METRICS[kind]):
        raise ValueError(
            f"A {kind} task is measured by {', '.join(METRICS[kind])}. "
            f"Received: metrics={metrics!r}"
        )
    return metrics


def sample(examples, count, seed=0):
    """Draws `count` examples, every class in proportion.

    Of a class with c of the n examples, `count`·c/n are drawn, rounded so that
    the sum is `count`; at least one of each, if `count` allows. Examples
    without class labels are drawn evenly.

    Args:
        examples: `Examples`.
        count: Positive integer. Where there are no more, all are taken.
        seed: Integer; the draw is a function of it and of the labels.

    Returns:
        `Examples`, in the order in which they were.

    Raises:
        ValueError: If `count` or `seed` is no such integer.
    """
    for name, value, least in (("count", count, 1), ("seed", seed, 0)):
        _check_integer(name, value, least)
    if count >= len(examples):
        return examples
    rng = np.random.default_rng(seed)
    labels = examples.labels
    if not _are_classes(labels):
        rows = rng.permutation(len(examples))[:count]
        return examples.take(np.sort(rows))
    classes, sizes = np.unique(labels, return_counts=True)
    shares = _shares(sizes, count)
    rows = [
        rng.permutation(np.flatnonzero(labels == label))[:share]
        for label, share in zip(classes, shares)
    ]
    return examples.take(np.sort(np.concatenate(rows)))


def hold_out(examples, fraction=0.1, seed=0):
    """Cuts off part of the examples, every class in proportion.

    Of a class with c examples, round(`fraction`·c) are cut off, and never all.

    Args:
        examples: `Examples`.
        fraction: Number in (0, 1).
        seed: Integer; the draw is a function of it and of the labels.

    Returns:
        `(rest, held_out)`: two `Examples`, in the order in which they were.

    Raises:
        ValueError: If an argument is out of range, or nothing is left to cut.
    """
    check_fraction(fraction)
    _check_integer("seed", seed, 0)
    rng = np.random.default_rng(seed)
    labels = examples.labels
    if not _are_classes(labels):
        labels = np.zeros(len(examples), int)
    held_out = np.zeros(len(examples), bool)
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        size = min(round(fraction * len(rows)), len(rows) - 1)
        held_out[rows[:size]] = True
    if not held_out.any():
        raise ValueError(_too_few(examples, fraction))
    return (
        examples.take(np.flatnonzero(~held_out)),
        examples.take(np.flatnonzero(held_out)),
    )


def _too_few(examples, fraction):
    """What to say where nothing can be held out."""
    count, by_class, hint = f"{len(examples)} examples", "", ""
    if _are_classes(examples.labels):
        count += f" of {len(np.unique(examples.labels))} classes"
        by_class = ", which is done class by class"
        hint = " (Or are these numbers to predict? Then: `regression=True`.)"
    return (
        f"There are too few examples to hold some of them out{by_class}. Add "
        f"examples, or give a file for validation.{hint} "
        f"Received: {count}, fraction={fraction!r}"
    )


def complete_parts(parts, fraction=0.1, seed=0):
    """Cuts a validation part off the training part, if there is none.

    Returns:
        `(parts, notes)`.
    """
    check_fraction(fraction)
    _check_integer("seed", seed, 0)
    if "train" not in parts:
        return parts, ["there is no training part: nothing to train with"]
    if "validation" in parts:
        return parts, []
    rest, held_out = hold_out(parts["train"], fraction, seed)
    total = len(parts["train"])
    note = (
        f"there is no validation part: {len(held_out):,} of the "
        f"{total:,} training examples serve as one"
    )
    share = len(held_out) / total
    if abs(share - fraction) > 0.01:
        note += (
            f", {share:.1%} and not {fraction:.1%}: of every class, a whole "
            "number of examples"
        )
    return {**parts, "train": rest, "validation": held_out}, [note]


def untrained_classes(parts, class_names):
    """Notes on classes that the training part lacks."""
    if "train" not in parts:
        return []
    there = set(np.unique(parts["train"].labels).tolist())
    return [
        f"class '{name}' has no examples to train with"
        for k, name in enumerate(class_names)
        if k not in there
    ]


def check_fraction(fraction):
    """Raises a ValueError for anything but a number in (0, 1)."""
    if not isinstance(fraction, numbers.Real) or not 0 < fraction < 1:
        raise ValueError(
            "The fraction of the examples that is held out must lie between "
            f"0 and 1. Received: validation_fraction={fraction!r}"
        )


def _check_finite(name, part, examples):
    """Raises a ValueError if a label is no finite number."""
    wrong = np.flatnonzero(~np.isfinite(examples.labels))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            "The labels of a regression must be finite numbers. Received: "
            f"{examples.labels[row]} in row {row} (id {examples.ids[row]}) of "
            f"the part `{part}` of {name}"
        )


def _are_classes(labels):
    return isinstance(labels, np.ndarray) and labels.dtype.kind == "i"


def _check_integer(name, value, least):
    fine = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not fine or value < least:
        raise ValueError(
            f"`{name}` must be an integer and at least {least}. "
            f"Received: {name}={value!r}"
        )


def _shares(sizes, count):
    """`count` in proportion to `sizes`, as integers (largest remainder)."""
    exact = sizes * (count / sizes.sum())
    shares = np.floor(exact).astype(int)
    if count >= len(sizes):
        shares = np.maximum(shares, 1)
    while shares.sum() < count:
        room = np.where(shares < sizes, exact - shares, -np.inf)
        shares[np.argmax(room)] += 1
    while shares.sum() > count:
        # Rare classes were rounded up to one; the others pay for it.
        spare = np.where(shares > 1, shares - exact, -np.inf)
        shares[np.argmax(spare)] -= 1
    return shares
