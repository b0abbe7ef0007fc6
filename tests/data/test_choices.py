"""Multiple choice from files of the layouts in use."""

import json

import numpy as np
import pytest

from mlp_mixers.data.choices import CLOZES
from mlp_mixers.data.choices import cloze_of
from mlp_mixers.data.choices import load_choices
from mlp_mixers.data.glue import task_named
from mlp_mixers.data.task_data import Examples
from mlp_mixers.data.task_data import TaskData


def written(tmp_path, *records):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, records)) + "\n\n")
    return path


COPA = {
    "premise": "The man broke his toe.",
    "choice1": "He got a hole in his sock.",
    "choice2": "He dropped a hammer on his foot.",
    "question": "cause",
    "label": 1,
    "idx": 7,
}


def test_copa(tmp_path):
    effect = {
        **COPA,
        "premise": "I packed up my belongings.",
        "choice1": "I was hunting for a new apartment.",
        "choice2": "NASA called.",
        "question": "effect",
        "label": 0,
        "idx": 8,
    }
    task = load_choices(written(tmp_path, COPA, effect))
    assert task.options[0] == [
        ("The man broke his toe because", "he got a hole in his sock."),
        ("The man broke his toe because", "he dropped a hammer on his foot."),
    ]
    assert task.options[1] == [
        ("I packed up my belongings so", "I was hunting for a new apartment."),
        ("I packed up my belongings so", "NASA called."),
    ]
    np.testing.assert_array_equal(task.labels, [1, 0])
    assert task.ids == ["7", "8"]
    assert len(task) == 2


@pytest.mark.parametrize(
    "record, pairs, label",
    [
        (
            {"ctx": "A man sits.", "endings": ["He", "She", "It"], "label": 2},
            [("A man sits.", e) for e in ("He", "She", "It")],
            2,
        ),
        (
            {"goal": "Boil an egg", "sol1": "a", "sol2": "b", "label": 1},
            [("Boil an egg", "a"), ("Boil an egg", "b")],
            1,
        ),
        (
            {
                "sentence": "The cup fell off the shelf as the _ was small.",
                "option1": "cup",
                "option2": "shelf",
                "answer": "2",
            },
            [
                ("The cup fell off the shelf as the cup", "was small."),
                ("The cup fell off the shelf as the shelf", "was small."),
            ],
            1,
        ),
        (
            {"prompt": "2 + 2 =", "choices": ["3", "4"], "label": 1},
            [("2 + 2 =", "3"), ("2 + 2 =", "4")],
            1,
        ),
    ],
)
def test_other_layouts(tmp_path, record, pairs, label):
    task = load_choices(written(tmp_path, record))
    assert task.options == [pairs]
    assert task.labels.tolist() == [label]


def test_without_labels(tmp_path):
    plain = {k: v for k, v in COPA.items() if k != "label"}
    assert load_choices(written(tmp_path, plain)).labels is None
    some = load_choices(written(tmp_path, plain, COPA))
    assert some.labels.tolist() == [-1, 1]


@pytest.mark.parametrize(
    "lines, message",
    [
        ("", "holds no question"),
        ("{", "line 1.*known layout"),
        ('{"x": 1}', "line 1.*known layout"),
        ("[1]", "line 1"),
        (json.dumps({**COPA, "label": 2}), "label=2 of 2"),
        (json.dumps({**COPA, "question": "why"}), "line 1.*why"),
        (json.dumps({**COPA, "choice2": " "}), "an answer is empty"),
        (json.dumps({**COPA, "choice2": 3}), "line 1"),
        ('{"prompt": "a", "choices": ["b"]}', "two answers"),
        ('{"prompt": "a", "choices": "bc"}', "choices must be a list"),
        ('{"prompt": "a", "choices": {"text": ["b"]}}', "must be a list"),
        ('{"ctx": "a", "endings": "bc"}', "endings must be a list"),
        (json.dumps({**COPA, "label": 0.9}), "not 0.9"),
        (json.dumps({**COPA, "label": True}), "not True"),
        (json.dumps({**COPA, "label": -2}), "count from 0"),
        (
            '{"sentence": "a", "option1": "b", "option2": "c"}',
            "a sentence has no _",
        ),
    ],
)
def test_bad_files(tmp_path, lines, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(lines)
    with pytest.raises(ValueError, match=message):
        load_choices(path)
    with pytest.raises(ValueError, match="no such file"):
        load_choices(tmp_path / "none.jsonl")


def test_every_class_of_glue_has_its_answer():
    for name, cloze in CLOZES.items():
        assert tuple(sorted(cloze.answers)) == tuple(
            sorted(task_named(name).classes)
        )


def pairs_task(name="RTE", classes=("entailment", "not_entailment")):
    examples = Examples(
        ["Cats sleep. ", "Dogs bark."],
        ["Cats rest.", "Dogs fly."],
        np.array([0, 1], "int32"),
    )
    return TaskData(
        name=name,
        kind="classification",
        parts={"train": examples, "validation": examples},
        class_names=classes,
        metrics=("accuracy",),
    )


def test_pairs_become_clozes():
    found = cloze_of(pairs_task())
    prompt = "Dogs bark. Question: Dogs fly. True or false? Answer:"
    assert found.options[1] == [(prompt, "true."), (prompt, "false.")]
    assert found.labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="for the classes"):
        cloze_of(pairs_task(classes=("yes", "no")))
    with pytest.raises(ValueError, match="There are clozes for"):
        cloze_of(pairs_task("STS-B"))
    with pytest.raises(ValueError, match="has the parts"):
        cloze_of(pairs_task(), part="test")


@pytest.mark.parametrize("label", [-1, "-1", "", None])
def test_answers_that_are_not_known(tmp_path, label):
    path = tmp_path / "test.jsonl"
    lines = [json.dumps({**COPA, "label": value}) for value in (label, "1")]
    path.write_text("\r\n".join(lines))
    np.testing.assert_array_equal(load_choices(path).labels, [-1, 1])


def test_line_separators_within_a_text(tmp_path):
    path = tmp_path / "odd.jsonl"
    record = {**COPA, "premise": "A\u2028B\u0085C"}
    path.write_text(json.dumps(record, ensure_ascii=False), "utf-8")
    ((first, _),) = load_choices(path).options
    assert "A\u2028B\u0085C" in first[0]
