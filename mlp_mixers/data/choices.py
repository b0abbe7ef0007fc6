"""Multiple choice for language models: which continuation is likelier.

No training: a question becomes a prompt, and each answer a continuation of
it; the answer is the one to which the model gives the highest probability.
"""

import dataclasses
import json
import pathlib

import numpy as np

from mlp_mixers.data.tsv import read_text


@dataclasses.dataclass(frozen=True)
class MultipleChoice:
    """Questions, each with its answers as pairs of texts.

    Attributes:
        name: Of the task.
        options: A list for each question of `(prompt, continuation)` pairs,
            one for each answer.
        labels: int32 array of the right answers, -1 where one is not known;
            `None` if none is.
        ids: List of strings that name the questions.
    """

    name: str
    options: list
    labels: np.ndarray | None
    ids: list

    def __len__(self):
        return len(self.options)


@dataclasses.dataclass(frozen=True)
class Cloze:
    """A GLUE task as a text with a gap at its end.

    Attributes:
        template: With `{first}` and `{second}`, up to the gap.
        answers: What fills it, by class name.
    """

    template: str
    answers: dict


# One way to ask among many; others give other numbers.
CLOZES = {
    "SST-2": Cloze(
        "{first} It was", {"negative": "terrible.", "positive": "great."}
    ),
    "CoLA": Cloze(
        "{first} This sentence is",
        {"unacceptable": "wrong.", "acceptable": "right."},
    ),
    "MRPC": Cloze(
        "{first} In other words, {second} These two sentences are",
        {"not_equivalent": "different.", "equivalent": "the same."},
    ),
    "QQP": Cloze(
        "{first} {second} These two questions are",
        {"not_duplicate": "different.", "duplicate": "the same."},
    ),
    "RTE": Cloze(
        "{first} Question: {second} True or false? Answer:",
        {"entailment": "true.", "not_entailment": "false."},
    ),
    "WNLI": Cloze(
        "{first} Question: {second} True or false? Answer:",
        {"entailment": "true.", "not_entailment": "false."},
    ),
    "QNLI": Cloze(
        "{second} Question: {first} Is it answered? Answer:",
        {"entailment": "yes.", "not_entailment": "no."},
    ),
    "MNLI": Cloze(
        "{first} Question: {second} True, false or neither? Answer:",
        {
            "entailment": "true.",
            "contradiction": "false.",
            "neutral": "neither.",
        },
    ),
}


def load_choices(path):
    """Questions in a file with a JSON object a line.

    What stands in the objects says which layout it is:

        {"premise", "choice1", "choice2", "question": "cause"|"effect",
         "label"}                                        COPA
        {"ctx", "endings": [...], "label"}               HellaSwag
        {"goal", "sol1", "sol2", "label"}                PIQA
        {"sentence" with _, "option1", "option2",
         "answer": "1"|"2"}                              Winogrande
        {"prompt", "choices": [...], "label"}            anything else

    COPA's premise goes on with "because" or "so". Winogrande's options are
    put into the gap, and what follows it is what is compared, as is usual:
    the continuation is the same text after two prompts. Labels count from 0;
    they may be missing, or -1 (test files).

    Args:
        path: Path of the file.

    Returns:
        A `MultipleChoice`.

    Raises:
        ValueError: If the file is not UTF-8, a line is no JSON object of one
            of these layouts, or there is none.
    """
    path = pathlib.Path(path).expanduser()
    if not path.is_file():
        raise ValueError(f"There is no such file. Received: {str(path)!r}")
    options, labels, ids = [], [], []
    # Not `splitlines`, which cuts at characters that may stand in a text.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            pairs, label = _question(record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"{path}, line {number}: no question of a known layout (COPA, "
                "HellaSwag, PIQA, Winogrande, or prompt, choices and label): "
                f"{type(error).__name__}: {error}"
            ) from error
        if label is not None and label >= len(pairs):
            raise ValueError(
                f"{path}, line {number}: answers count from 0. "
                f"Received: label={label} of {len(pairs)} answers"
            )
        options.append(pairs)
        labels.append(-1 if label is None else label)
        ids.append(str(record.get("idx", record.get("id", number - 1))))
    if not options:
        raise ValueError(f"{path} holds no question.")
    labels = np.array(labels, "int32")
    return MultipleChoice(
        path.stem, options, None if (labels < 0).all() else labels, ids
    )


def _question(record):
    """`(pairs, label or None)` of one record."""
    label = _label(record.get("label"))
    if "premise" in record:
        pairs = _copa(record)
    elif "endings" in record:
        pairs = [(record["ctx"], text) for text in _list(record, "endings")]
    elif "goal" in record:
        pairs = [(record["goal"], record[name]) for name in ("sol1", "sol2")]
    elif "option1" in record:
        pairs = _winogrande(record)
        answer = _label(record.get("answer"))
        if answer == 0:
            raise ValueError("Winogrande's answers count from 1")
        label = None if answer is None else answer - 1
    else:
        pairs = [(record["prompt"], text) for text in _list(record, "choices")]
    for text in (text for pair in pairs for text in pair):
        if not isinstance(text, str):
            raise TypeError(f"a text is {text!r}")
    if len(pairs) < 2:
        raise ValueError("a question has two answers at least")
    if any(not continuation.strip() for _, continuation in pairs):
        raise ValueError("an answer is empty")
    return pairs, label


def _list(record, name):
    """The answers that stand in a list."""
    if not isinstance(record[name], list):
        raise TypeError(f"{name} must be a list of texts")
    return record[name]


def _label(value):
    """An integer, or `None` where the answer is not known."""
    if value in ("", None):
        return None
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"an answer is a number, not {value!r}")
    if value < -1:
        raise ValueError(f"answers count from 0, not {value}")
    return None if value == -1 else value


def _copa(record):
    word = {"cause": "because", "effect": "so"}[record["question"]]
    prompt = f"{record['premise'].strip().rstrip('.')} {word}"
    return [
        (prompt, _lower_first(record[name].strip()))
        for name in ("choice1", "choice2")
    ]


def _lower_first(text):
    """A sentence as the rest of another one. "I" stays, and so do names in
    capitals."""
    if text[:2] in ("I ", "I'") or text[1:2].isupper():
        return text
    return text[:1].lower() + text[1:]


def _winogrande(record):
    before, gap, after = record["sentence"].partition("_")
    if not gap:
        raise ValueError("a sentence has no _")
    return [
        (before + record[name], after.strip())
        for name in ("option1", "option2")
    ]


def cloze_of(task, name=None, part="validation"):
    """A classification of GLUE as multiple choice.

    Args:
        task: A `TaskData` of `load_glue`.
        name: Which cloze of `CLOZES`; by the task's name if `None`.
        part: Which examples.

    Returns:
        A `MultipleChoice`, its labels those of the task.

    Raises:
        ValueError: If there is no cloze for the task, or it has other
            classes.
    """
    name = name or task.name
    if name not in CLOZES:
        raise ValueError(
            f"There are clozes for {', '.join(CLOZES)}. Received: {name!r}"
        )
    cloze = CLOZES[name]
    if set(task.class_names) != set(cloze.answers):
        raise ValueError(
            f"The cloze for {name} is for the classes "
            f"{', '.join(cloze.answers)}. "
            f"Received: {', '.join(task.class_names)}"
        )
    if part not in task.parts:
        raise ValueError(
            f"{task.name} has the parts {', '.join(task.parts)}. "
            f"Received: part={part!r}"
        )
    examples = task.parts[part]
    second = examples.second or [""] * len(examples)
    options = []
    for one, other in zip(examples.first, second):
        prompt = cloze.template.format(first=one.strip(), second=other.strip())
        options.append(
            [(prompt, cloze.answers[label]) for label in task.class_names]
        )
    return MultipleChoice(task.name, options, examples.labels, examples.ids)
