"""Questions and passages with the answers marked: SQuAD's JSON files.

Reference: Rajpurkar et al., SQuAD: 100,000+ Questions for Machine
Comprehension of Text (arXiv 1606.05250); Rajpurkar, Jia and Liang, Know What
You Don't Know: Unanswerable Questions for SQuAD (arXiv 1806.03822).
"""

import collections
import dataclasses
import json
import pathlib
import re

import numpy as np

from mlp_mixers.data.split import shorten
from mlp_mixers.data.task_data import METRICS
from mlp_mixers.data.task_data import Examples
from mlp_mixers.data.task_data import TaskData
from mlp_mixers.data.task_data import check_fraction
from mlp_mixers.data.tsv import read_text


@dataclasses.dataclass(frozen=True)
class Question:
    """A question as a file has it, before its answers are checked.

    `answers` is a list of `(text, start)`, or `None` if the file has none.
    `groups` are names of what must not be torn apart: the article and the
    passage.
    """

    id: str
    text: str
    context: str
    answers: list | None
    is_impossible: bool
    groups: tuple = ("", "")


def load_squad(
    train,
    validation=None,
    test=None,
    version=None,
    validation_fraction=0.1,
    seed=0,
):
    """Questions about passages, whose answers are pieces of the passages.

        {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
            {"id": ..., "question": ..., "is_impossible": ...,
             "answers": [{"text": ..., "answer_start": ...}, ...]},
        ...]}]}]}

    `answer_start` counts characters. Where it points elsewhere, the place
    nearest to it where the answer stands is taken instead, and counted. A
    question for training whose answers are not in its passage is left out and
    counted; in the other parts the answer stays, since it takes part in the
    scores, and its start is -1. Questions about an empty passage are left out.

    Args:
        train: A file, or a folder with `train-v1.1.json` and
            `dev-v1.1.json`, or the same for v2.0.
        validation: A file, or `None`: then whole articles are drawn from the
            training questions until there are enough, or whole passages if
            there is one article only.
        test: A file, or `None`. Its questions may have no answers.
        version: `"1.1"` or `"2.0"`, for a folder that holds both.
        validation_fraction: Part of the questions that validates, if there is
            no file for it.
        seed: Integer, for drawing these.

    Returns:
        A `TaskData` of spans; see `Examples` for its labels.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a file is not UTF-8, not JSON or laid out differently,
            or none of its questions can be used.
    """
    check_fraction(validation_fraction)
    train = pathlib.Path(train).expanduser()
    if train.is_dir():
        train, found = _files(train, version)
        validation = validation if validation is not None else found
    paths = {"train": train, "validation": validation, "test": test}
    paths = {
        part: pathlib.Path(path).expanduser()
        for part, path in paths.items()
        if path is not None
    }
    parts, notes, groups = {}, [], None
    for part, path in paths.items():
        questions = read_questions(path)
        kept, examples, remarks = check_questions(questions, part)
        if not len(examples):
            raise ValueError(
                f"{path} has no question that can be used. "
                f"Received: {'; '.join(remarks) or 'no questions'}"
            )
        parts[part] = examples
        notes += [f"{path.name}: {remark}" for remark in remarks]
        if part == "train":
            groups = [question.groups for question in kept]
    return complete_spans(
        train.stem, parts, notes, groups, validation_fraction, seed
    )


def complete_spans(name, parts, notes, groups, fraction, seed):
    """A `TaskData` of spans; cuts the validation part off, if there is none.

    Args:
        name: What to call the task.
        parts: Dictionary from parts to `Examples`.
        notes: List of sentences.
        groups: For each training example `(article, passage)`.
        fraction: Part of the training questions that validates.
        seed: Integer.
    """
    if "train" in parts and "validation" not in parts:
        count = len(parts["train"])
        rows, unit = _draw_groups(groups, fraction, seed)
        rest = np.setdiff1d(np.arange(count), rows)
        held_out = parts["train"].take(rows)
        parts = {
            **parts,
            "train": parts["train"].take(rest),
            "validation": held_out,
        }
        notes = [
            *notes,
            f"there is no validation part: {len(rows):,} of the {count:,} "
            f"training questions serve as one, whole {unit}",
        ]
    return TaskData(
        name=name,
        kind="span",
        class_names=(),
        metrics=METRICS["span"],
        parts=parts,
        notes=tuple(notes),
    )


def read_questions(path):
    """The questions in a file, as a list of `Question`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is damaged or laid out differently; the message
            says where.
    """
    path = pathlib.Path(path)
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not JSON, or was cut off: {error}"
        ) from error
    questions = []
    for i, article in enumerate(_get(content, "data", list, path, "")):
        at = f"data[{i}]"
        title = article.get("title", "") if isinstance(article, dict) else ""
        paragraphs = _get(article, "paragraphs", list, path, at)
        for j, paragraph in enumerate(paragraphs):
            at = f"data[{i}].paragraphs[{j}]"
            groups = (f"{i} {title}", f"{i} {j}")
            context = _get(paragraph, "context", str, path, at)
            for k, entry in enumerate(_get(paragraph, "qas", list, path, at)):
                where = f"{at}.qas[{k}]"
                questions.append(_question(entry, context, groups, path, where))
    counts = collections.Counter(question.id for question in questions)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ValueError(
            f"Every question in {path} must have an id of its own. "
            f"Received: {shorten(twice)} more than once"
        )
    return questions


def _question(entry, context, groups, path, at):
    """A `Question` out of an entry of `qas`."""
    text = _get(entry, "question", str, path, at)
    name = _get(entry, "id", (str, int), path, at)
    impossible = False
    if "is_impossible" in entry:
        impossible = _get(entry, "is_impossible", bool, path, at)
    answers = None
    if "answers" in entry:
        found = _get(entry, "answers", list, path, at)
        answers = [
            (
                _get(answer, "text", str, path, f"{at}.answers[{n}]"),
                _get(answer, "answer_start", int, path, f"{at}.answers[{n}]"),
            )
            for n, answer in enumerate(found)
        ]
    elif impossible:
        answers = []
    return Question(str(name), text, context, answers, impossible, groups)


def _get(entry, key, kind, path, at):
    """`entry[key]`, which must be there and of that kind."""
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        called = {
            list: "a list",
            str: "a string",
            int: "an integer",
            bool: "true or false",
        }
        what = repr(entry)
        raise ValueError(
            f"{path} is not laid out as SQuAD is: {at or 'its top'} must have "
            f"`{key}`, {' or '.join(called[k] for k in kinds)}. "
            f"Received: {what[:80]}{'...' * (len(what) > 80)}"
        )
    return value


def check_questions(questions, part):
    """Examples out of questions, with their answers where they stand.

    Args:
        questions: List of `Question`.
        part: Name of the part; only for training, a question needs an answer
            that stands in its passage.

    Returns:
        `(kept, examples, notes)`: the questions that can be used, the same as
        `Examples`, and sentences about the others.
    """
    count = collections.Counter()
    kept, labels = [], []
    for question in questions:
        if not question.context.strip():
            count["empty"] += 1
            continue
        label = _label(question, count)
        if label is not None and not label["is_impossible"]:
            starts = label["answer_starts"]
            if part == "train":
                label = _located(label)
                if not label["answers"]:
                    count["lost"] += 1
                    continue
            elif not starts:
                count["lost"] += 1
                continue
            else:
                count["kept"] += min(starts) < 0
        kept.append(question)
        labels.append(label)
    without = sum(label is None for label in labels)
    if without and not (part == "test" and without == len(labels)):
        raise ValueError(
            "Every question needs `answers`, a list, but in a test file "
            f"without any. Received: {without:,} of {len(labels):,} questions "
            f"of the part `{part}` without, {kept[labels.index(None)].id!r} "
            "first"
        )
    examples = Examples(
        [question.text for question in kept],
        [question.context for question in kept],
        None if without else labels,
        [question.id for question in kept],
    )
    sentences = {
        "moved": "{} answers stood elsewhere than said: the nearest place "
        "is taken",
        "empty": "{} questions about an empty passage left out",
        "lost": "{} questions without an answer in their passage left out",
        "kept": "{} questions have an answer that is not in their passage, "
        "which counts for the scores only",
        "both": "{} questions have answers and are marked as impossible: "
        "taken as impossible",
    }
    notes = [text.format(f"{count[k]:,}") for k, text in sentences.items()]
    return kept, examples, [n for n, k in zip(notes, sentences) if count[k]]


def _label(question, count):
    """The label of a question, or `None`; a start is -1 if not found."""
    if question.answers is None:
        return None
    if question.is_impossible:
        count["both"] += bool(question.answers)
        return {"answers": [], "answer_starts": [], "is_impossible": True}
    texts, starts = [], []
    for text, start in question.answers:
        if not text.strip():
            continue
        place = _find(text, start, question.context)
        if place < 0 and text != text.strip():
            # White space around an answer is not part of it.
            text = text.strip()
            place = _find(text, start, question.context)
        count["moved"] += 0 <= place != start
        texts.append(text)
        starts.append(place)
    return {"answers": texts, "answer_starts": starts, "is_impossible": False}


def _find(text, start, context):
    """Where `text` stands in the context, nearest to `start`; or -1."""
    if start >= 0 and context.startswith(text, start):
        return start
    # With a lookahead, places that overlap are found too.
    places = re.finditer(f"(?={re.escape(text)})", context)
    distances = [(abs(m.start() - start), m.start()) for m in places]
    return min(distances)[1] if distances else -1


def _located(label):
    """The label with the answers alone that are in the passage."""
    pairs = zip(label["answers"], label["answer_starts"])
    pairs = [(text, start) for text, start in pairs if start >= 0]
    return {
        "answers": [text for text, _ in pairs],
        "answer_starts": [start for _, start in pairs],
        "is_impossible": False,
    }


def _draw_groups(groups, fraction, seed):
    """Rows of whole articles, or passages, that make up the fraction."""
    articles, passages = zip(*groups)
    names, unit = articles, "articles"
    if len(set(articles)) == 1:
        names, unit = passages, "passages"
    order = {name: k for k, name in enumerate(dict.fromkeys(names))}
    if len(order) == 1:
        raise ValueError(
            "There is one passage only, so that no questions can be held out. "
            f"Give a file for validation. Received: {len(groups)} questions"
        )
    numbers = np.array([order[name] for name in names])
    sizes = np.bincount(numbers)
    drawn = np.random.default_rng(seed).permutation(len(sizes))
    enough = np.cumsum(sizes[drawn]) >= fraction * len(groups)
    # One at least stays for training.
    count = min(int(np.argmax(enough)) + 1, len(sizes) - 1)
    return np.flatnonzero(np.isin(numbers, drawn[:count])), unit


def _files(folder, version):
    """`(train, validation)` in a folder; the second may be `None`."""
    if version not in (None, "1.1", "2.0"):
        raise ValueError(
            'SQuAD has the versions "1.1" and "2.0". '
            f"Received: version={version!r}"
        )
    there = sorted(folder.glob("*.json"))
    trains = [f for f in there if f.name.startswith("train")]
    if version:
        trains = [f for f in trains if version in f.name]
    if len(trains) != 1:
        names = [f.name for f in there]
        raise ValueError(
            f"{folder} must hold one file whose name begins with `train`"
            + (f" and has {version}" if version else "")
            + ". Name the file itself, or choose a `version`. "
            f"Received: {shorten(names, 8) or 'no JSON files'}"
        )
    (train,) = trains
    ending = train.name.removeprefix("train")
    for prefix in ("dev", "validation", "valid", "val"):
        if (folder / f"{prefix}{ending}").is_file():
            return train, folder / f"{prefix}{ending}"
    return train, None
