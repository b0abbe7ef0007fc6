"""The tasks of GLUE, from folders as they are downloaded.

Reference: Wang et al., GLUE: A Multi-Task Benchmark and Analysis Platform for
Natural Language Understanding (arXiv 1804.07461), Table 1.
"""

import dataclasses
import difflib
import pathlib
import re

import numpy as np

from mlp_mixers.data.split import shorten
from mlp_mixers.data.task_data import Examples
from mlp_mixers.data.task_data import TaskData
from mlp_mixers.data.task_data import check_fraction
from mlp_mixers.data.task_data import complete_parts
from mlp_mixers.data.task_data import untrained_classes
from mlp_mixers.data.tsv import Table
from mlp_mixers.data.tsv import empty_notes
from mlp_mixers.data.tsv import number


def plain(name):
    """The small letters and digits of a name: `SST-2` is `sst2`."""
    return re.sub("[^a-z0-9]", "", name.lower())


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """What is known of a task.

    `first`, `second`, `label` and `ids` are the columns of its files;
    `classes` the names of labels 0, 1, ..., empty for a regression;
    `spelled` how the files write these labels; `features` the texts in
    tensorflow_datasets; `other_names` what its folder may be called too.
    """

    name: str
    first: str
    second: str | None
    label: str
    classes: tuple
    spelled: tuple
    metrics: tuple
    features: tuple
    ids: tuple = ("index",)
    other_names: tuple = ()

    @property
    def kind(self):
        return "classification" if self.classes else "regression"

    @property
    def key(self):
        """The name as tensorflow_datasets writes it."""
        return plain(self.name)


ACCURACY = ("accuracy",)
# GLUE prints both for the two tasks with classes of unequal size, F1 before
# accuracy; answering "yes" always has an accuracy of 0.68 in MRPC. BERT's
# paper reports F1 alone.
F1 = ("f1", "accuracy")
BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
INFERENCE = ("entailment", "neutral", "contradiction")
SENTENCES = ("sentence1", "sentence2")
COLA_COLUMNS = ("source", "label", "author", "sentence")
# No file of GLUE has more; a score above belongs to another data set.
LARGEST_SCORE = 5.0

# `{key: GlueTask}`, where the key is a name of letters and digits alone.
TASKS = {
    task.key: task
    for task in (
        GlueTask(
            *("CoLA", "sentence", None, "label"),
            ("unacceptable", "acceptable"),
            *(BINARY, ("matthews",), ("sentence",)),
        ),
        GlueTask(
            *("SST-2", "sentence", None, "label"),
            ("negative", "positive"),
            *(BINARY, ACCURACY, ("sentence",)),
            other_names=("sst",),
        ),
        GlueTask(
            *("MRPC", "#1 String", "#2 String", "Quality"),
            ("not_equivalent", "equivalent"),
            *(BINARY, F1, SENTENCES),
        ),
        GlueTask(
            *("STS-B", *SENTENCES, "score", (), ()),
            *(("pearson", "spearman"), SENTENCES),
            other_names=("sts", "stsbenchmark"),
        ),
        GlueTask(
            *("QQP", "question1", "question2", "is_duplicate"),
            ("not_duplicate", "duplicate"),
            *(BINARY, F1, ("question1", "question2")),
            ids=("id", "index"),
            other_names=("qqpclean",),
        ),
        GlueTask(
            *("MNLI", *SENTENCES, "gold_label", INFERENCE, INFERENCE),
            *(ACCURACY, ("premise", "hypothesis")),
            other_names=("multinli", "multinli10", "mnlim", "mnlimm"),
        ),
        GlueTask(
            *("QNLI", "question", "sentence", "label", ENTAILMENT, ENTAILMENT),
            *(ACCURACY, ("question", "sentence")),
            other_names=("qnliv2",),
        ),
        GlueTask(
            *("RTE", *SENTENCES, "label", ENTAILMENT, ENTAILMENT),
            *(ACCURACY, SENTENCES),
        ),
        GlueTask(
            *("WNLI", *SENTENCES, "label"),
            ("not_entailment", "entailment"),
            *(BINARY, ACCURACY, SENTENCES),
        ),
    )
}

# What the files of a part may be called; the first one there is read.
FILES = {
    "train": ("train.tsv", "multinli_1.0_train.txt"),
    "validation": ("dev.tsv", "val.tsv", "valid.tsv", "validation.tsv"),
    "test": ("test.tsv",),
}
MNLI_FILES = {
    "train": FILES["train"],
    "validation": (
        *("dev_matched.tsv", "multinli_1.0_dev_matched.txt"),
        *FILES["validation"],
    ),
    "validation_mismatched": (
        *("dev_mismatched.tsv", "multinli_1.0_dev_mismatched.txt"),
    ),
    "test": ("test_matched.tsv", *FILES["test"]),
    "test_mismatched": ("test_mismatched.tsv",),
}
# Microsoft's own files of MRPC; those for validation are listed beside them.
MRPC_FILES = {
    "train": (*FILES["train"], "msr_paraphrase_train.txt"),
    "validation": FILES["validation"],
    "test": (*FILES["test"], "msr_paraphrase_test.txt"),
}
TASK_FILES = {"MNLI": MNLI_FILES, "MRPC": MRPC_FILES}
MRPC_DEV_IDS = ("dev_ids.tsv", "mrpc_dev_ids.tsv")


def load_glue(folder, task=None, validation_fraction=0.1, seed=0):
    """A task of GLUE: `train.tsv`, `dev.tsv` and `test.tsv` in a folder.

    | task  | texts               | labels             | metrics           |
    |-------|---------------------|--------------------|-------------------|
    | CoLA  | sentence            | (un)acceptable     | matthews          |
    | SST-2 | sentence            | negative, positive | accuracy          |
    | MRPC  | two sentences       | (not_)equivalent   | f1, accuracy      |
    | STS-B | two sentences       | 0 to 5             | pearson, spearman |
    | QQP   | two questions       | (not_)duplicate    | f1, accuracy      |
    | MNLI  | premise, hypothesis | three, see below   | accuracy          |
    | QNLI  | question, sentence  | (not_)entailment   | accuracy          |
    | RTE   | premise, hypothesis | (not_)entailment   | accuracy          |
    | WNLI  | two sentences       | (not_)entailment   | accuracy          |

    The first metric is the one to report. The classes of MNLI are entailment,
    neutral and contradiction. It has two files for validation and two for
    testing, `dev_matched.tsv`, `dev_mismatched.tsv` and so on; what is not
    matched are the parts `validation_mismatched` and `test_mismatched`. MRPC
    may be given as `msr_paraphrase_train.txt` and `msr_paraphrase_test.txt`,
    with `dev_ids.tsv` or without.

    Some lines of QQP are broken into two. Lines without the right number of
    fields are left out and counted, as are the examples of MNLI whose label is
    `-`, on which the annotators did not agree.

    Args:
        folder: The folder of the task, or of all tasks if `task` is given.
        task: Name of the task; by default the one the folder is called by.
            Capital letters, `-` and `_` make no difference.
        validation_fraction: Part of the training examples that validates, if
            the folder has no such file; every class in proportion.
        seed: Integer, for drawing these.

    Returns:
        A `TaskData`. The `ids` of its examples are those in the files, or the
        number of the line, counted from 0.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If the task is unknown, the folder has none of its files,
            or a file is not one of this task.
    """
    check_fraction(validation_fraction)
    folder = _find_folder(pathlib.Path(folder).expanduser(), task)
    task = _find_task(folder, task)
    found = _files(folder, task)
    if not found:
        raise ValueError(_nothing_in(folder, task))
    parts, notes = {}, []
    for part, path in found.items():
        parts[part], remarks = _read(path, part, task)
        notes += remarks
    if task.name == "MRPC" and found.get("train", folder).suffix == ".txt":
        parts, remarks = _cut_mrpc(parts, folder, found["train"])
        notes += remarks
    parts, cut = complete_parts(parts, validation_fraction, seed)
    return TaskData(
        name=task.name,
        kind=task.kind,
        class_names=task.classes,
        metrics=task.metrics,
        parts=parts,
        notes=(*notes, *cut, *untrained_classes(parts, task.classes)),
    )


def task_named(name):
    """The `GlueTask` that a name means, or `None`.

    `SST-2`, `sst2`, `glue_SST-2` and `GLUE.sst-2.v1` all mean SST-2.
    """
    known = {
        spelling: task
        for key, task in TASKS.items()
        for spelling in (key, *task.other_names)
    }
    if plain(name) in known:
        return known[plain(name)]
    words = re.findall("[a-z0-9]+", name.lower())
    # Words one by one, and two in a row: `SST-2` are two.
    spellings = {*words, *map("".join, zip(words, words[1:]))}
    found = {known[s].name: known[s] for s in spellings & set(known)}
    return next(iter(found.values())) if len(found) == 1 else None


def _find_folder(folder, task):
    """The folder with the files; it may be spelled otherwise, or inside."""
    if not folder.is_dir():
        wanted = plain(folder.name)
        if folder.parent.is_dir() and wanted:
            for other in _folders(folder.parent):
                if plain(other.name) == wanted:
                    return _find_folder(other, task)
        raise FileNotFoundError(
            f"There is no such folder: {folder}. A folder of GLUE holds "
            "train.tsv and dev.tsv."
        )
    wanted = task_named(str(folder.resolve().name if task is None else task))
    if wanted is None or _files(folder, wanted):
        return folder
    inside = [f for f in _folders(folder) if task_named(f.name) is wanted]
    return _find_folder(inside[0], task) if len(inside) == 1 else folder


def _folders(folder):
    return sorted(path for path in folder.iterdir() if path.is_dir())


def _find_task(folder, name):
    """The task of that name, or the one that the folder is called by."""
    given = name if name is not None else folder.resolve().name
    task = task_named(given) if isinstance(given, str) else None
    if task:
        return task
    names = [task.name for task in TASKS.values()]
    if name is not None:
        lower = {n.lower(): n for n in names}
        close = difflib.get_close_matches(str(name).lower(), lower, 1)
        hint = f" Did you mean {lower[close[0]]!r}?" if close else ""
        raise ValueError(
            f"The tasks of GLUE are {', '.join(names)}.{hint} "
            f"Received: task={name!r}"
        )
    inside = [f.name for f in _folders(folder) if task_named(f.name)]
    if inside:
        raise ValueError(
            f"{folder} holds a folder for each task. Name the folder of one, "
            f"or the task: {', '.join(inside)}"
        )
    raise ValueError(
        "The folder is not called by a task of GLUE, which are "
        f"{', '.join(names)}. Say which one it is with `task`. "
        f"Received: folder={str(folder)!r}"
    )


def _files(folder, task):
    """`{part: path}` of the files of the task that are there."""
    files = TASK_FILES.get(task.name, FILES)
    found = {part: _first(folder, names) for part, names in files.items()}
    return {part: path for part, path in found.items() if path}


def _first(folder, names):
    """The first of the files that is there, or `None`."""
    return next((folder / n for n in names if (folder / n).is_file()), None)


def _nothing_in(folder, task):
    files = TASK_FILES.get(task.name, FILES)
    there = sorted(path.name for path in folder.iterdir())
    return (
        f"{folder} has no file of {task.name}. It must hold some of "
        f"{', '.join(names[0] for names in files.values())}. "
        f"Received: {shorten(there, 8) or 'an empty folder'}"
    )


def _read(path, part, task):
    """`(Examples, notes)` of a file."""
    secret = part.startswith("test")
    table = _table(path, task, secret)
    first = table.find(task.first)
    second = None if task.second is None else table.find(task.second)
    label = table.find(task.label, optional=secret)
    ids = table.find(*task.ids, optional=True)
    texts, pairs, labels, lines, names = [], [], [], [], []
    undecided = 0
    for row, (line, fields) in enumerate(table):
        if task.name == "MNLI" and label is not None and fields[label] == "-":
            undecided += 1
            continue
        texts.append(fields[first])
        pairs.append(None if second is None else fields[second])
        labels.append("" if label is None else fields[label])
        names.append(str(row) if ids is None else fields[ids])
        lines.append(line)
    _check_lines(table, len(texts) + undecided, task)
    notes = table.notes() + empty_notes(path, texts)
    if undecided:
        notes.append(
            f"{path.name}: {undecided:,} without an agreed label left out"
        )
    if secret and _without_labels(labels):
        labels = None
    else:
        labels = _labels(labels, lines, path, task)
    pairs = None if second is None else pairs
    return Examples(texts, pairs, labels, names), notes


def _table(path, task, secret):
    """A `Table` that reads the file as this task writes it."""
    options = {"bad_lines": "skip", "last_may_miss": secret}
    if task.name != "CoLA":
        return Table(path, **options)
    # Only the test file of CoLA has a first line with names. A tab more than
    # needed belongs to the sentence, which comes last.
    options["join_last"] = True
    whole = Table(path, columns=("line",), join_last=True)
    for _, (line,) in whole:
        if line.split("\t")[1:2] in (["0"], ["1"]):
            return Table(path, columns=COLA_COLUMNS, **options)
        break
    return Table(path, **options)


def _check_lines(table, read, task):
    """Raises a ValueError if so much is left out that the file is another."""
    left_out = len(table.skipped)
    if not read and not left_out:
        raise ValueError(f"There are no examples in {table.path}")
    if not read or (left_out > 10 and left_out > 0.1 * read):
        raise ValueError(
            f"{table.path} does not look like a file of {task.name}: of "
            f"{read + left_out:,} lines, {left_out:,} do not have the "
            f"{len(table.columns)} fields {', '.join(table.columns)}"
        )


def _without_labels(labels):
    """Whether these are the labels of a test file that hides them."""
    return all(label in ("", "-1", "-1.0") for label in labels)


def _labels(labels, lines, path, task):
    """Labels as an array: int32, or float64 of a regression."""
    if task.kind == "regression":
        scores = [_score(*row, path) for row in zip(labels, lines)]
        return np.array(scores, "float64")
    known = {spelled: k for k, spelled in enumerate(task.spelled)}
    for label, line in zip(labels, lines):
        if label not in known:
            raise ValueError(
                f"The label in line {line} of {path} must be one of "
                f"{', '.join(task.spelled)}, as {task.name} has them. "
                f"Received: {label!r}"
            )
    return np.array([known[label] for label in labels], "int32")


def _score(label, line, path):
    score = number(label, path, line)
    if not 0 <= score <= LARGEST_SCORE:
        raise ValueError(
            f"The score in line {line} of {path} must lie in [0, "
            f"{LARGEST_SCORE:.0f}]. Received: {label!r}"
        )
    return score


def _cut_mrpc(parts, folder, path):
    """Moves the examples that `dev_ids.tsv` lists from training to validation.

    A line of it has the ids of the two sentences of a pair.
    """
    listed = _first(folder, MRPC_DEV_IDS)
    if listed is None or "validation" in parts:
        return parts, []
    pairs = {
        tuple(fields) for _, fields in Table(listed, columns=("#1 ID", "#2 ID"))
    }
    table = Table(path, bad_lines="skip")
    places = (table.find("#1 ID"), table.find("#2 ID"))
    chosen = np.array(
        [tuple(row[p] for p in places) in pairs for _, row in table], bool
    )
    if not chosen.any():
        raise ValueError(
            f"None of the pairs in {listed} is in {path}. Received: "
            f"{len(pairs):,} pairs"
        )
    train = parts["train"]
    parts = {
        **parts,
        "train": train.take(np.flatnonzero(~chosen)),
        "validation": train.take(np.flatnonzero(chosen)),
    }
    missing = len(pairs) - int(chosen.sum())
    notes = [f"{listed.name}: {missing:,} pairs are not there"]
    return parts, notes if missing > 0 else []
