import json

import pytest

from mlp_mixers.data.squad import load_squad

CONTEXT = "Super Bowl 50 was won by the Denver Broncos. The Broncos won 24–10."


def answer(text, start=None, context=CONTEXT):
    start = context.index(text) if start is None else start
    return {"text": text, "answer_start": start}


def question(name, answers, text="Who won?", **more):
    return {"id": name, "question": text, "answers": answers, **more}


def article(*paragraphs, title="A title"):
    return {
        "title": title,
        "paragraphs": [
            {"context": context, "qas": list(questions)}
            for context, questions in paragraphs
        ],
    }


# As version 1.1 has it: three answers to a question of the validation part.
V1_TRAIN = [
    article(
        (
            CONTEXT,
            [
                question("a1", [answer("Denver Broncos")]),
                question("a2", [answer("24–10")], "How high?"),
            ],
        ),
        ("Rain fell.", [question("a3", [answer("Rain", 0)], "What fell?")]),
    )
]
V1_DEV = [
    article(
        (
            CONTEXT,
            [
                question(
                    "b1",
                    [
                        answer("Denver Broncos"),
                        answer("the Denver Broncos"),
                        answer("Broncos", 36),
                    ],
                )
            ],
        )
    )
]
# As version 2.0 has it.
V2_TRAIN = [
    article(
        (
            CONTEXT,
            [
                question("c1", [answer("Denver Broncos")], is_impossible=False),
                question(
                    "c2",
                    [],
                    "Who lost?",
                    is_impossible=True,
                    plausible_answers=[answer("Denver Broncos")],
                ),
            ],
        )
    )
]


@pytest.fixture
def save(tmp_path):
    def save(articles, name="train-v1.1.json", version="1.1"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        content = {"data": articles, "version": version}
        path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")
        return path

    return save


def one(save, *questions, context=CONTEXT, part="train"):
    """The part of a task with these questions about one passage."""
    made = save([article((context, questions))], "x.json")
    good = save(V1_TRAIN, "good.json")
    paths = {"train": good, "validation": good, part: made}
    return load_squad(**paths)


def test_version_1(save):
    task = load_squad(save(V1_TRAIN), save(V1_DEV, "dev-v1.1.json"))
    assert (task.name, task.kind) == ("train-v1.1", "span")
    assert task.metrics == ("f1", "exact_match")
    assert task.class_names == task.notes == ()
    assert not task.has_unanswerable
    part = task.parts["train"]
    assert part.first == ["Who won?", "How high?", "What fell?"]
    assert part.second == [CONTEXT, CONTEXT, "Rain fell."]
    assert part.ids == ["a1", "a2", "a3"]
    assert part.labels[1] == {
        "answers": ["24–10"],
        "answer_starts": [61],
        "is_impossible": False,
    }
    label = task.parts["validation"].labels[0]
    assert label["answers"][1:] == ["the Denver Broncos", "Broncos"]
    for part in task.parts.values():
        for context, label in zip(part.second, part.labels):
            for text, start in zip(label["answers"], label["answer_starts"]):
                assert context[start : start + len(text)] == text


def test_version_2(save):
    path = save(V2_TRAIN, "train-v2.0.json", "v2.0")
    task = load_squad(path, path)
    assert task.has_unanswerable
    assert task.parts["train"].labels[1] == {
        "answers": [],
        "answer_starts": [],
        "is_impossible": True,
    }
    assert task.notes == ()


@pytest.mark.parametrize(
    ("start", "expected"),
    [(0, 36), (37, 36), (35, 36), (44, 49), (46, 49), (-5, 36), (999, 49)],
)
def test_the_nearest_place_is_taken(save, start, expected):
    task = one(save, question("q", [answer("Broncos", start)]))
    assert task.parts["train"].labels[0]["answer_starts"] == [expected]
    assert "x.json: 1 answers stood elsewhere" in task.notes[0]


def test_the_place_may_be_right_where_there_are_several(save):
    task = one(save, question("q", [answer("Broncos", 49)]))
    assert task.parts["train"].labels[0]["answer_starts"] == [49]
    assert task.notes == ()


def test_white_space_around_an_answer(save):
    task = one(save, question("q", [answer(" 24–10\n", 60)]))
    assert task.parts["train"].labels[0] == {
        "answers": ["24–10"],
        "answer_starts": [61],
        "is_impossible": False,
    }


def test_answers_that_are_not_there(save):
    questions = [
        question("q", [answer("Carolina", 3)]),
        question("r", [answer("Carolina", 3), answer("won")]),
        question("s", [answer("", 3)]),
        question("t", []),
    ]
    task = one(save, *questions)
    assert task.parts["train"].ids == ["r"]
    assert task.parts["train"].labels[0]["answers"] == ["won"]
    assert "3 questions without an answer in their passage" in task.notes[0]
    task = one(save, *questions, part="validation")
    assert task.parts["validation"].ids == ["q", "r"]
    assert task.parts["validation"].labels[1] == {
        "answers": ["Carolina", "won"],
        "answer_starts": [-1, CONTEXT.index("won")],
        "is_impossible": False,
    }
    assert "2 questions without an answer" in task.notes[0]
    assert "2 questions have an answer that is not in" in task.notes[1]


def test_impossible_questions_with_answers(save):
    task = one(save, question("q", [answer("won")], is_impossible=True))
    assert task.parts["train"].labels[0]["answers"] == []
    assert "1 questions have answers and are marked" in task.notes[0]


@pytest.mark.parametrize("context", ["", " \n"])
def test_empty_passages(save, context):
    empty = (context, [question("e1", []), question("e2", [answer("x", 0)])])
    path = save([*V1_TRAIN, article(empty, (CONTEXT, []))])
    task = load_squad(path, path)
    assert task.parts["train"].ids == ["a1", "a2", "a3"]
    assert "2 questions about an empty passage left out" in task.notes[0]


def test_questions_without_answers_are_a_test(save):
    bare = [{"id": 7, "question": "Who?"}, {"id": "8", "question": "When?"}]
    good = save(V1_TRAIN)
    path = save([article((CONTEXT, bare))], "test.json")
    part = load_squad(good, good, path).parts["test"]
    assert (part.ids, part.labels) == (["7", "8"], None)
    with pytest.raises(ValueError, match="part `validation` without, '7'"):
        load_squad(good, path)
    some = [*bare, question("9", [answer("won")])]
    path = save([article((CONTEXT, some))], "test.json")
    with pytest.raises(ValueError, match="2 of 3 questions"):
        load_squad(good, good, path)


def many(articles, passages=4, questions=5):
    return [
        article(
            *(
                (
                    f"Fact {a}-{p} holds.",
                    [
                        question(f"{a}-{p}-{q}", [answer("Fact", 0)])
                        for q in range(questions)
                    ],
                )
                for p in range(passages)
            ),
            title=f"Article {a}",
        )
        for a in range(articles)
    ]


def test_whole_articles_are_held_out(save):
    path = save(many(10))
    task = load_squad(path, validation_fraction=0.25)
    part = task.parts["validation"]
    assert (len(task.parts["train"]), len(part)) == (140, 60)
    articles = [{i.split("-")[0] for i in p.ids} for p in task.parts.values()]
    assert [len(a) for a in articles] == [7, 3]
    assert not articles[0] & articles[1]
    assert "60 of the 200 training questions" in task.notes[0]
    assert "whole articles" in task.notes[0]
    again = load_squad(path, validation_fraction=0.25)
    assert again.parts["validation"].ids == part.ids
    other = load_squad(path, validation_fraction=0.25, seed=1)
    assert other.parts["validation"].ids != part.ids


def test_whole_passages_are_held_out(save):
    task = load_squad(save(many(1)))
    passages = [set(part.second) for part in task.parts.values()]
    assert [len(p) for p in passages] == [3, 1]
    assert not passages[0] & passages[1]
    assert len(load_squad(save(many(2)), validation_fraction=0.9).parts) == 2
    with pytest.raises(ValueError, match="one passage only"):
        load_squad(save(many(1, 1)))


def test_folders(save, tmp_path):
    save(V1_TRAIN, "one/train-v1.1.json")
    save(V1_DEV, "one/dev-v1.1.json")
    task = load_squad(tmp_path / "one")
    assert task.parts["validation"].ids == ["b1"]
    save(V2_TRAIN, "one/train-v2.0.json")
    with pytest.raises(ValueError, match="choose a `version`.*dev-v1.1.json"):
        load_squad(tmp_path / "one")
    assert load_squad(tmp_path / "one", version="1.1").name == "train-v1.1"
    other = save(V1_DEV, "b.json")
    task = load_squad(tmp_path / "one", other, version="2.0")
    assert task.has_unanswerable
    with pytest.raises(ValueError, match="version='3'"):
        load_squad(tmp_path / "one", version="3")
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no JSON files"):
        load_squad(tmp_path / "none")


def test_damaged_files(save, tmp_path):
    path = save(V1_TRAIN)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match="train-v1.1.json is not JSON, or was"):
        load_squad(path)
    where = data.index("–".encode())
    path.write_bytes(data.replace("–".encode(), b"\x96"))
    with pytest.raises(ValueError, match=rf"v1.1.json .*byte {where} .*0x96"):
        load_squad(path)
    path.write_bytes(b"\xef\xbb\xbf" + data)
    assert load_squad(path, path).parts
    with pytest.raises(FileNotFoundError, match="other.json"):
        load_squad(path, tmp_path / "other.json")


def change(path, value):
    """The content of a small file with one entry replaced."""
    content = {"data": json.loads(json.dumps(V1_TRAIN))}
    place = content
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


QUESTION = ("data", 0, "paragraphs", 0, "qas", 1)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("data",), None, "its top must have `data`, a list"),
        (("data", 0), "x", r"data\[0\] must have `paragraphs`, a list"),
        (("data", 0, "paragraphs"), 3, r"data\[0\] must have `paragraphs`"),
        ((*QUESTION[:4], "context"), None, r"paragraphs\[0\] must have `cont"),
        ((*QUESTION[:4], "qas"), None, r"paragraphs\[0\] must have `qas`"),
        ((*QUESTION, "question"), 7, r"qas\[1\] must have `question`, a str"),
        ((*QUESTION, "id"), None, r"`id`, a string or an integer"),
        ((*QUESTION, "answers"), "x", "`answers`, a list"),
        ((*QUESTION, "answers", 0), "x", r"answers\[0\] must have `text`"),
        ((*QUESTION, "answers", 0, "answer_start"), "3", "an integer"),
        ((*QUESTION, "is_impossible"), "no", "`is_impossible`, true or false"),
        ((*QUESTION, "id"), "a1", "id of its own. Received: a1 more"),
    ],
)
def test_files_laid_out_differently(tmp_path, path, value, message):
    file = tmp_path / "odd.json"
    file.write_text(json.dumps(change(path, value)))
    with pytest.raises(ValueError, match=message) as error:
        load_squad(file, file)
    assert "odd.json" in str(error.value)


def test_a_list_is_not_squad(tmp_path):
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match="its top must have `data`"):
        load_squad(tmp_path / "list.json")


def test_nothing_to_use(save):
    with pytest.raises(ValueError, match="can be used.*no questions"):
        load_squad(save([]))
    with pytest.raises(ValueError, match="can be used.*1 questions without"):
        load_squad(save([article((CONTEXT, [question("q", [])]))]))
    with pytest.raises(ValueError, match="validation_fraction=1"):
        load_squad(save(V1_TRAIN), validation_fraction=1)
