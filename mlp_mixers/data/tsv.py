"""Tables of text: TSV and CSV files with named columns."""

import contextlib
import csv
import difflib
import io
import math
import pathlib
import sys

import numpy as np

from mlp_mixers.data.split import shorten
from mlp_mixers.data.task_data import METRICS
from mlp_mixers.data.task_data import Examples
from mlp_mixers.data.task_data import TaskData
from mlp_mixers.data.task_data import check_fraction
from mlp_mixers.data.task_data import check_metrics
from mlp_mixers.data.task_data import complete_parts
from mlp_mixers.data.utf8_file import not_utf_8
from mlp_mixers.data.utf8_file import read_bytes
from mlp_mixers.data.utf8_file import read_text

# Columns that are read, and the arguments that name them.
COLUMNS = ("first", "second", "labels", "ids")
ARGUMENTS = ("text", "text_pair", "label", "identifier")
# What may stand between fields where it was not expected.
DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab"}


def load_tsv(
    train,
    validation=None,
    test=None,
    text="sentence",
    text_pair=None,
    label="label",
    identifier=None,
    regression=False,
    class_names=None,
    metrics=None,
    delimiter=None,
    quotes=None,
    bad_lines="error",
    validation_fraction=0.1,
    seed=0,
):
    """A task out of files whose first line names the columns.

        sentence        label
        a fine film     good
        one to avoid    bad

    A file called `.csv` is separated by commas, and quotes around a field may
    protect commas and line ends; any other one is separated by tabs, and a
    quote is an ordinary character. The encoding is UTF-8, and lines end as on
    Unix, Windows or old Macs. White space around a label is no part of it.

    The test file may lack the column of labels, or leave it empty.

    Args:
        train: Path of the file with the training examples.
        validation: Path, or `None` to cut them off the training examples.
        test: Path, or `None`.
        text: Name of the column with the text.
        text_pair: Name of the column with the second text of a pair.
        label: Name of the column with the labels.
        identifier: Name of a column with names for the examples; by default
            they are numbered from 0 in each file.
        regression: Whether labels are numbers to predict. Otherwise they are
            the names of classes.
        class_names: The names of the classes in the order wanted. By default
            those in the training file, in alphabetical order, or as numbers
            if they are integers.
        metrics: Names of metrics, the first one is reported; by default
            accuracy for classes, Pearson's and Spearman's correlation for
            numbers. `"f1"` counts the second of two classes as positive.
        delimiter: Character between fields, if the name misleads.
        quotes: Whether quotes protect a field, if the name misleads.
        bad_lines: `"error"`, or `"skip"` to leave out and count lines with a
            wrong number of fields.
        validation_fraction: Part of the training examples that validates, if
            there is no file for it; every class in proportion.
        seed: Integer, for drawing these.

    Returns:
        A `TaskData`, called as its files.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a file is not UTF-8 or lacks a column, a line has a
            wrong number of fields or no label, a label is no number where one
            is needed, or there is a label that the training file lacks.
    """
    check_fraction(validation_fraction)
    kind = "regression" if regression else "classification"
    default = METRICS[kind] if regression else ("accuracy",)
    metrics = check_metrics(metrics or default, kind)
    paths = {"train": train, "validation": validation, "test": test}
    paths = {k: _path(v) for k, v in paths.items() if v is not None}
    columns = (text, text_pair, label, identifier)
    raw, notes = {}, []
    for part, path in paths.items():
        raw[part] = _read(path, part, columns, delimiter, quotes, bad_lines)
        notes += raw[part].pop("notes")
    names, whose = (), "`class_names`"
    if not regression:
        names = _class_names(class_names, raw["train"]["labels"], paths)
        if class_names is None:
            whose = f"those of {paths['train']}; or name all of them with "
            whose += "`class_names`"
    parts = {
        part: _examples(rows, part, paths[part], names, whose)
        for part, rows in raw.items()
    }
    parts, cut = complete_parts(parts, validation_fraction, seed)
    return TaskData(
        # One file may be several parts.
        name=", ".join(dict.fromkeys(path.name for path in paths.values())),
        kind=kind,
        class_names=names,
        metrics=metrics,
        parts=parts,
        notes=(*notes, *cut),
    )


def load_texts(
    path,
    text="sentence",
    text_pair=None,
    identifier=None,
    delimiter=None,
    quotes=None,
    bad_lines="error",
):
    """The texts in a file whose first line names the columns, without labels.

    Args:
        path: Path of the file.
        text, text_pair, identifier, delimiter, quotes, bad_lines: As in
            `load_tsv`.

    Returns:
        `(Examples, notes)`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not UTF-8 or lacks a column, or a line has a wrong
            number of fields.
    """
    columns = (text, text_pair, None, identifier)
    rows = _read(_path(path), "test", columns, delimiter, quotes, bad_lines)
    columns = rows["first"], rows.get("second"), None, rows.get("ids")
    return Examples(*columns), rows["notes"]


class Table:
    """The rows of a file with columns, one after the other.

        for line, fields in table: ...

    `line` counts from 1 through the file. `fields` has one string for each of
    `table.columns`.

    Args:
        path: The file.
        delimiter: Character between fields.
        quotes: Whether quotes around a field protect what is in it.
        columns: Names of the columns; by default the first line.
        bad_lines: What to do with a line with a wrong number of fields:
            `"error"`, or `"skip"`: its number is added to `table.skipped`.
        last_may_miss: Whether a line may lack its last field, which is empty
            then.
        join_last: Whether whatever follows the last delimiter that is needed
            belongs to the last field.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is empty or not UTF-8, or a line is bad.
    """

    def __init__(
        self,
        path,
        delimiter="\t",
        quotes=False,
        columns=None,
        bad_lines="error",
        last_may_miss=False,
        join_last=False,
    ):
        if bad_lines not in ("error", "skip"):
            raise ValueError(
                '`bad_lines` must be "error" or "skip". '
                f"Received: bad_lines={bad_lines!r}"
            )
        if not isinstance(delimiter, str) or len(delimiter) != 1:
            raise ValueError(
                "`delimiter` must be one character. "
                f"Received: delimiter={delimiter!r}"
            )
        self.path = path
        self.delimiter = delimiter
        self.skipped = []
        self._skip = bad_lines == "skip"
        self._last_may_miss = last_may_miss
        self._join_last = join_last
        reader = _quoted if quotes else _plain
        self._records = reader(path, delimiter)
        self.columns = tuple(columns or self._header())

    def _header(self):
        _, names = next(self._records, (0, None))
        if names is None:
            raise ValueError(f"The file is empty: {self.path}")
        names = [name.strip() for name in names]
        # As in the other lines, delimiters at the end say nothing; and a
        # column without a name is one that nobody asks for.
        while len(names) > 1 and not names[-1]:
            names.pop()
        twice = sorted({n for n in names if n and names.count(n) > 1})
        if twice:
            raise ValueError(
                f"The first line of {self.path} must name every column once. "
                f"Received: {shorten(twice)} more than once"
            )
        return names

    def __iter__(self):
        width = len(self.columns)
        for line, fields in self._records:
            if len(fields) > width:
                fields = self._shortened(fields, width)
            if len(fields) == width - 1 and self._last_may_miss and any(fields):
                fields = [*fields, ""]
            if len(fields) == width:
                yield line, fields
            elif self._skip:
                self.skipped.append(line)
            else:
                raise ValueError(
                    f"Line {line} of {self.path} has {_fields(len(fields))}, "
                    f"where the columns are {_listed(self.columns)}. A field "
                    "with a tab or a line end in it? Mend the line, or leave "
                    'such lines out with `bad_lines="skip"`.'
                )

    def _shortened(self, fields, width):
        if self._join_last:
            head, tail = fields[: width - 1], fields[width - 1 :]
            return [*head, self.delimiter.join(tail)]
        # Delimiters at the end of a line say nothing.
        return fields if any(fields[width:]) else fields[:width]

    def find(self, *names, optional=False, argument=None):
        """Index of the first of the columns `names` that is there.

        Args:
            *names: What the column may be called.
            optional: Whether it may be missing.
            argument: Name of the argument that says what it is called.

        Raises:
            ValueError: If none is, unless `optional`: then `None`.
        """
        for name in names:
            if name in self.columns:
                return self.columns.index(name)
        if optional:
            return None
        raise ValueError(
            f"{self.path} has no column {names[0]!r}."
            f"{self._hint(names[0], argument)} Its columns are: "
            f"{', '.join(map(repr, self.columns))}"
        )

    def _hint(self, name, argument):
        """What may be the matter where there is no such column."""
        if len(self.columns) == 1:
            for other, called in DELIMITERS.items():
                if other in self.columns[0]:
                    then = f"say `delimiter={other!r}`"
                    if other == "\t":
                        then = "call the file .tsv"
                    return f" Is {called} between the fields? Then {then}."
        close = difflib.get_close_matches(name, self.columns, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        if argument is not None:
            hint += f" Say what it is called with `{argument}`."
        return hint

    def notes(self):
        """What was left out, as a list of at most one sentence."""
        if not self.skipped:
            return []
        count = len(self.skipped)
        return [
            f"{pathlib.Path(self.path).name}: {count:,} "
            f"{'line' if count == 1 else 'lines'} without the "
            f"{len(self.columns)} fields of a line left out: "
            f"{shorten(list(map(str, self.skipped)))}"
        ]


def _plain(path, delimiter):
    """Yields `(line number, fields)`; quotes mean nothing."""
    data, offset = read_bytes(path)
    # Only here a line ends: other characters that look like line ends occur
    # inside sentences. Old Macs end lines with \r, and have no \n at all.
    lines = data.split(b"\n" if b"\n" in data else b"\r")
    while lines and not lines[-1].strip(b"\r"):
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            text = line.removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise not_utf_8(path, number, error, offset) from error
        offset += len(line) + 1
        yield number, text.split(delimiter)


def _quoted(path, delimiter):
    """Yields `(line number, fields)`; a quoted field may span lines."""
    text = read_text(path)
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, strict=True
    )
    while True:
        line = reader.line_num + 1
        try:
            with _any_size():
                fields = next(reader, None)
        except csv.Error as error:
            raise ValueError(
                f"The quotes in line {line} of {path} do not fit: {error}. "
                "Where quotes are ordinary characters, use `quotes=False`."
            ) from error
        if fields is None:
            return
        if fields:
            yield line, fields


@contextlib.contextmanager
def _any_size():
    """Lets the csv module read fields of more than 131,072 characters."""
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _path(path):
    return pathlib.Path(path).expanduser()


def _read(path, part, columns, delimiter, quotes, bad_lines):
    """The wanted columns of a file, as lists, with the numbers of its lines."""
    is_csv = path.suffix.lower() == ".csv"
    table = Table(
        path,
        delimiter=delimiter or ("," if is_csv else "\t"),
        quotes=is_csv if quotes is None else quotes,
        bad_lines=bad_lines,
        last_may_miss=part == "test",
    )
    places = {}
    for name, argument, column in zip(COLUMNS, ARGUMENTS, columns):
        if column is None:
            continue
        may_miss = name == "labels" and part == "test"
        place = table.find(column, optional=may_miss, argument=argument)
        if place is not None:
            places[name] = place
    rows = {name: [] for name in ("lines", "labels", *places)}
    for line, fields in table:
        rows["lines"].append(line)
        for name, place in places.items():
            rows[name].append(fields[place])
    if not rows["lines"]:
        raise ValueError(f"There are no examples in {path}")
    # "good " and "good" are one class, whoever typed them.
    rows["labels"] = [label.strip() for label in rows["labels"]]
    return {**rows, "notes": table.notes() + empty_notes(path, rows["first"])}


def _fields(count):
    return f"{count} field{'' if count == 1 else 's'}"


def _listed(columns):
    """Names of columns, in which one without a name is seen."""
    return ", ".join(name or "(no name)" for name in columns)


def empty_notes(path, texts):
    """A sentence about empty texts, if there are any."""
    empty = sum(not text.strip() for text in texts)
    if not empty:
        return []
    have = "example has" if empty == 1 else "examples have"
    return [f"{pathlib.Path(path).name}: {empty:,} {have} an empty text"]


def _class_names(names, labels, paths):
    """The names of the classes in their order."""
    if names is None:
        names = sorted(set(labels) - {""})
        if all(name.removeprefix("-").isdecimal() for name in names):
            names = sorted(names, key=lambda name: (int(name), name))
    names = tuple(map(str, names))
    if len(set(names)) < len(names):
        raise ValueError(
            "`class_names` must name every class once. "
            f"Received: class_names={names!r}"
        )
    if len(names) < 2:
        raise ValueError(
            "Classification needs two classes at least; where a file has "
            "examples of one only, name all of them with `class_names`. "
            f"Received: {f'only {names[0]!r}' if names else 'no label'} in "
            f"{paths['train']}"
        )
    return names


def _examples(rows, part, path, class_names, whose):
    """`Examples` out of the columns of a file."""
    labels = rows["labels"]
    # A test file without labels has no such column, or an empty one.
    if part == "test" and not any(labels):
        labels = None
    elif class_names:
        labels = _numbers_of_classes(rows, path, class_names, whose)
    else:
        labels = [
            number(label, path, line)
            for label, line in zip(labels, rows["lines"])
        ]
        labels = np.array(labels, "float64")
    return Examples(rows["first"], rows.get("second"), labels, rows.get("ids"))


def _numbers_of_classes(rows, path, class_names, whose):
    """Labels as int32."""
    known = {name: k for k, name in enumerate(class_names)}
    unknown = {}
    for label, line in zip(rows["labels"], rows["lines"]):
        if label not in known:
            unknown.setdefault(label, line)
    if "" in unknown:
        raise ValueError(
            f"Line {unknown['']} of {path} has no label. Every example needs "
            "one; remove the line, or give it one."
        )
    if unknown:
        where = [f"{k!r} (line {v})" for k, v in unknown.items()]
        raise ValueError(
            f"{path} has labels that are not among the classes "
            f"{shorten(list(map(repr, class_names)), 10)}, which are {whose}. "
            f"Received: {shorten(where)}"
        )
    return np.array([known[label] for label in rows["labels"]], "int32")


def number(text, path, line):
    """`text` as a float.

    Raises:
        ValueError: If it is none, or not finite.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(
            f"The label in line {line} of {path} must be a number. "
            f"Received: {text!r}"
        )
    return value
