"""Arrays, batches and written answers of `recipes.finetune`."""

import json
import types

import numpy as np
import pytest

from mlp_mixers import data
from recipes import finetune_answers
from recipes import finetune_data
from recipes import finetune_models
from recipes import finetune_prepare
from recipes import finetune_results
from recipes import finetune_tables
from recipes import text_models
from recipes.finetune_answers import Labels
from recipes.finetune_settings import Data


def numbered(count, targets=True):
    ids = np.arange(1, count + 1, dtype="int32")[:, None].repeat(4, 1)
    examples = data.Examples([str(i) for i in range(count)])
    return finetune_data.Part(
        examples, ids, targets=ids[:, 0] if targets else None
    )


def test_batches_follow_from_seed_and_epoch():
    part = numbered(10)

    def epoch(seed, number):
        batches = finetune_data.TaskBatches(part, 4, 0, seed, True)
        batches.epoch = number
        made = [batches[i] for i in range(len(batches))]
        for inputs, targets in made:
            assert inputs["token_ids"].shape == (4, 4)
            np.testing.assert_array_equal(inputs["token_ids"][:, 0], targets)
            assert inputs["padding_mask"].all()
        return np.concatenate([targets for _, targets in made]).tolist()

    assert len(set(epoch(0, 0))) == 8
    assert epoch(0, 0) == epoch(0, 0)
    assert epoch(0, 0) != epoch(0, 1)
    assert epoch(0, 0) != epoch(1, 0)
    plain = finetune_data.TaskBatches(part, 4, 0)
    assert plain[2][1].tolist() == [9, 10]
    assert len(finetune_data.TaskBatches(numbered(3, False), 4, 0)[0]) == 1
    with pytest.raises(IndexError):
        plain[3]
    with pytest.raises(ValueError, match="fewer than a batch"):
        finetune_data.TaskBatches(part, 11, 0, drop_remainder=True)


def test_inputs_have_one_length_and_what_is_cut_is_counted(pretrained):
    tokenizer = text_models.tokenizer_in(text_models.find(pretrained))
    parts = {
        "train": data.Examples(["film"] * 3, ["a", "a b c", ""]),
        "test": data.Examples(["fox " * 60, "dull"], ["owl", "owl " * 45]),
    }
    lengths = {
        name: [
            3 + sum(len(e.ids) for e in tokenizer.encode([f" {a}", f" {b}"]))
            for a, b in zip(part.first, part.second)
        ]
        for name, part in parts.items()
    }
    for limit in (16, 50, 70, 500):
        found, notes = finetune_data.encode(
            parts, "classification", tokenizer, limit
        )
        longest = max(map(max, lengths.values()))
        expected = min(limit, -(-longest // 32) * 32)
        for part in found.values():
            assert part.token_ids.shape[1] == expected
        cut = sum(n > limit for n in lengths["test"])
        assert notes == [
            f"test: {cut} of 2 inputs {'is' if cut == 1 else 'are'} cut to "
            f"{limit} tokens"
        ] * (cut > 0)
        real = (found["train"].token_ids != 0).sum(1)
        if limit > 16:
            # "" has no token, and no space before it.
            assert real[:2].tolist() == lengths["train"][:2]


def test_predictions_stay_on_their_lines(tmp_path):
    labels = finetune_answers.Labels("t", "span", (), True, 8, 8)
    answers = finetune_answers.Answers(
        ["two\twords", "line\r\nend", "ü  ü"], np.array([1.0, 2.5, -3.0])
    )
    examples = data.Examples(["a"] * 3, ["b\nc"] * 3, None, ["x", "y\t", "z"])
    path = tmp_path / "p.tsv"
    finetune_answers.write_answers(path, answers, examples, labels)
    assert path.read_text("utf-8").split("\n") == [
        "id\tanswer\tscore\tquestion\tpassage",
        "x\ttwo words\t1\ta\tb c",
        "y \tline end\t2.5\ta\tb c",
        "z\tü  ü\t-3\ta\tb c",
        "",
    ]


def test_a_task_with_a_single_class():
    examples = data.Examples(["a"], labels=np.array([0]))
    task = data.TaskData(
        *("t", "classification", ("same",), ("accuracy",)), {"train": examples}
    )
    with pytest.raises(ValueError, match="nothing to tell apart"):
        finetune_data.trainable(task, Data("tfds:t"), 0)


def test_the_middle_is_the_median_and_never_the_better_of_two():
    rng = np.random.default_rng(0)
    for count in range(1, 8):
        values = rng.random(count).round(1).tolist()
        chosen = values[finetune_results.middle(values)]
        assert chosen <= np.median(values)
        assert sum(v < chosen for v in values) <= (count - 1) // 2
        assert sum(v > chosen for v in values) <= count // 2
    assert finetune_results.spread([0.5])["std"] is None


def numbers(values, first=None):
    texts = first or ["x"] * len(values)
    return data.Examples(texts, labels=np.array(values, "float64"))


def part_of(examples):
    ids = np.ones((len(examples), 4), "int32")
    return finetune_data.Part(examples, ids)


def test_numbers_are_standardised_and_measured_in_64_bits():
    """float32 has one number for every eight of these."""
    values = 1e8 + np.arange(64)
    parts, mean, deviation = finetune_data.with_targets(
        {"train": part_of(numbers(values))}, "regression"
    )
    assert (mean, deviation) == (values.mean(), values.std())
    targets = parts["train"].targets
    assert len(np.unique(targets)) == 64
    np.testing.assert_allclose(
        targets, (values - values.mean()) / values.std(), rtol=1e-6
    )
    labels = Labels(
        *("t", "regression", (), False, 8, 8), mean=mean, deviation=deviation
    )
    answers = finetune_answers.answers_of(
        targets[:, None], parts["train"], labels
    )
    np.testing.assert_allclose(answers.values, values, atol=1e-5, rtol=0)


def test_numbers_that_do_not_fit_are_named():
    for value, message in ((1e39, "1e\\+39 in row 1"), (-2e37, "row 1")):
        part = part_of(numbers([1.0, value]))
        with pytest.raises(ValueError, match=message):
            finetune_data.with_targets({"train": part}, "regression")
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="row 2 .id 2. of the part `test`"):
            data.TaskData(
                *("t", "regression", (), ("pearson",)),
                {"test": numbers([1.0, 2.0, value])},
            )


def test_numbers_are_written_with_their_digits(tmp_path):
    labels = Labels(*("t", "regression", (), False, 8, 8))
    values = np.array([100_000_001, 0.1, -1 / 3, 1e39])
    answers = finetune_answers.Answers(values, None)
    path = tmp_path / "p.tsv"
    finetune_answers.write_answers(path, answers, numbers(values), labels)
    rows = [line.split("\t") for line in path.read_text().split("\n")[1:-1]]
    assert [float(row[2]) for row in rows] == values.tolist()
    np.testing.assert_allclose(
        [float(row[1]) for row in rows], values, rtol=1e-11
    )
    assert rows[1][1:] == ["0.1", "0.1", "x"]


def labels_of(kind="regression", names=(), is_pair=False, **others):
    standard = {"standard_bias": 0.0} if kind == "regression" else {}
    return Labels(*("t", kind, names, is_pair, 8, 8), **{**standard, **others})


@pytest.mark.parametrize(
    ("known", "wanted", "expected"),
    [
        (labels_of(), labels_of(), None),
        # Stars and dollars.
        (
            labels_of(mean=3.0, deviation=1.0),
            labels_of(mean=500.0, deviation=100.0),
            "3 ± 1, not 500 ± 100",
        ),
        # A sample of the same.
        (
            labels_of(mean=3.0, deviation=1.0),
            labels_of(mean=3.4, deviation=0.8),
            None,
        ),
        (labels_of(about="a"), labels_of(about="b"), "where labels are a"),
        (labels_of(is_pair=True), labels_of(), "a regression of pairs"),
        (labels_of(standard_bias=None), labels_of(), "not"),
        (
            labels_of("classification", ("no", "yes"), about="a"),
            labels_of("classification", ("no", "yes"), about="b"),
            None,
        ),
        (
            labels_of("classification", ("0", "1"), about="a"),
            labels_of("classification", ("0", "1"), about="b"),
            "where labels are a",
        ),
        (
            labels_of("classification", ("no", "yes"), True),
            labels_of("classification", ("no", "yes")),
            "a classification of pairs",
        ),
        (
            labels_of("classification", ("no", "yes")),
            labels_of("classification", ("yes", "no")),
            "classes are other ones",
        ),
        (labels_of("span"), labels_of("span"), None),
    ],
)
def test_a_head_is_gone_on_with_for_the_same_task_only(known, wanted, expected):
    found = finetune_models.difference(known, wanted)
    if expected is None:
        assert found is None
    else:
        assert expected in found


def test_what_tells_tasks_apart():
    task = data.TaskData(
        *("a.tsv", "classification", ("a", "b"), ("accuracy",)),
        {"test": data.Examples(["x"])},
    )
    settings = Data("tsv:a.tsv", text="one", text_pair="two", label="points")
    assert finetune_data.about(settings, task) == "'points' of 'one' and 'two'"
    assert finetune_data.about(Data("tsv:b"), task) == "'label' of 'sentence'"
    assert finetune_data.about(Data("glue:a"), task) == "a.tsv"


def classes(labels, names=("a", "b"), metrics=("f1", "accuracy")):
    parts = {
        "train": data.Examples(["x"] * 3, labels=np.array([1, 1, 0], "int32")),
        "validation": data.Examples(
            ["x"] * len(labels), labels=np.array(labels, "int32")
        ),
    }
    task = data.TaskData("t", "classification", names, metrics, parts)
    return task, {name: part_of(part) for name, part in parts.items()}


def test_what_the_most_frequent_class_scores():
    """Of training, which is b; f1 of b is 2·TP / (2·TP + FP + FN)."""
    found = finetune_tables.baseline(*classes([1, 0, 0, 0, 1]))
    assert found == {
        "answer": "'b'",
        "parts": {"validation": {"f1": pytest.approx(4 / 7), "accuracy": 0.4}},
    }
    parts = {
        "train": numbers([1.0, 2.0, 6.0]),
        "validation": numbers([1.0, 2.0]),
    }
    task = data.TaskData("t", "regression", (), ("pearson",), parts)
    found = finetune_tables.baseline(
        task, {name: part_of(part) for name, part in parts.items()}
    )
    assert found == {
        "answer": "3, the mean",
        "parts": {"validation": {"pearson": 0.0}},
    }


def test_never_an_answer_is_right_where_there_is_none():
    none = {"answers": [], "answer_starts": [], "is_impossible": True}
    one = {"answers": ["x"], "answer_starts": [0], "is_impossible": False}
    examples = data.Examples(["q"] * 4, ["x"] * 4, [none, one, none, none])
    task = data.TaskData(
        *("t", "span", (), ("f1", "exact_match")),
        {"train": examples, "validation": examples},
    )
    parts = {name: part_of(examples) for name in task.parts}
    found = finetune_tables.baseline(task, parts)
    assert found["answer"] == "no answer"
    scores = found["parts"]["validation"]
    assert scores["exact_match"] == scores["f1"] == 0.75


def test_a_model_that_says_one_thing_is_told():
    answers = finetune_answers.Answers(np.array([1, 1, 1]), None)
    assert finetune_tables.only_answer(answers, ("a", "b")) == "b"
    answers = finetune_answers.Answers(np.array([1, 0, 1]), None)
    assert finetune_tables.only_answer(answers, ("a", "b")) is None
    baseline = {"answer": "'b'", "parts": {"validation": {"f1": 0.8}}}
    for median, count in ((0.8, 1), (0.81, 0)):
        parts = {"validation": {"f1": {"median": median}}}
        found = finetune_results.not_above(baseline, parts, "f1")
        assert len(found) == count


def test_labels_of_an_older_version(tmp_path):
    """Without the fields that have come later."""
    Labels(*("t", "classification", ("a", "b"), False, 8, 8)).save(tmp_path)
    path = tmp_path / "labels.json"
    content = json.loads(path.read_text())
    for name in ("mean", "deviation", "standard_bias", "about"):
        del content[name]
    path.write_text(json.dumps(content))
    found = Labels.load(tmp_path)
    assert (found.mean, found.standard_bias) == (0.0, None)


def test_options_in_messages_are_those_of_the_command_line():
    message = 'with `bad_lines="skip"`, `quotes=False`, `text_pair`, '
    assert finetune_data.as_typed(f"{message}`delimiter=';'`", "tsv") == (
        "with --bad-lines skip, --no-quotes, --text-pair, --delimiter ';'"
    )
    found = finetune_data.as_typed(
        "`class_names`", "tsv", {"`class_names`": "those of the model"}
    )
    assert found == "those of the model"


def test_windows_are_for_questions():
    task, _ = classes([0, 1])
    for settings in (Data("tsv:a", stride=3), Data("a", max_answer_tokens=3)):
        with pytest.raises(ValueError, match="is for questions and answers"):
            finetune_data.check_span_options(settings, task)


def test_hardly_any_class_twice():
    task, _ = classes([0, 1], tuple("abcd"), ("accuracy",))
    (note,) = finetune_data.trainable(task, Data("tsv:a"), 0).notes
    assert "3 training examples of 4 classes" in note
    assert "--regression" in note


def test_how_to_read_whole_what_is_cut():
    origin = types.SimpleNamespace(config={"sequence_length": 64}, folder="a")
    cut = ["train: 1 of 2 inputs is cut to 16 tokens"]
    (note,) = finetune_prepare.longer(cut, 16, origin)
    assert note == "--max-length, 64 at most, lets it read more"
    (note,) = finetune_prepare.longer(cut, 64, origin)
    assert "pretrained with a longer --sequence-length" in note
    assert finetune_prepare.longer(["another"], 64, origin) == []


def test_what_is_odd_about_answers():
    task, parts = classes([0, 1, 1])
    prepared = types.SimpleNamespace(task=task, parts=parts)
    answers = finetune_answers.Answers(np.array([1, 1, 1]), None)
    assert finetune_results.remarks_on(prepared, "validation", answers) == [
        "all 3 validation examples get the class 'b'"
    ]
    parts = {"train": part_of(numbers([0.5, 5.0]))}
    task = types.SimpleNamespace(kind="regression")
    prepared = types.SimpleNamespace(task=task, parts=parts)
    answers = finetune_answers.Answers(np.array([0.4, 1.0, 5.1]), None)
    assert finetune_results.remarks_on(prepared, "validation", answers) == [
        "2 of 3 validation predictions lie outside the labels of training, "
        "0.5 to 5"
    ]


@pytest.mark.parametrize(
    ("seeds", "title"), [([3, 4], "seed 4 of 2"), ([4], "seed 4")]
)
def test_curves_say_whose_they_are(seeds, title):
    results = {"seeds": seeds, "saved_seed": 4}
    assert finetune_results.curves_title(results) == title
