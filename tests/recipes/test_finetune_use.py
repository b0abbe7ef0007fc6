"""A finetuned model measured on tasks, and asked about texts."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from sklearn.metrics import f1_score as sklearn_f1

from mlp_mixers import data
from mlp_mixers.data import Tokenizer
from mlp_mixers.models import TextClassifier
from mlp_mixers.training import score
from recipes import finetune
from recipes import finetune_answers
from recipes import finetune_tables
from recipes import finetune_use
from recipes import mlm
from recipes import mlm_settings
from recipes.finetune_settings import Config
from recipes.finetune_settings import Data
from recipes.finetune_settings import Model
from recipes.finetune_settings import Training
from tests.recipes.tasks import rows_of
from tests.recipes.tasks import settings
from tests.recipes.tasks import write_films
from tests.recipes.tasks import write_questions


def test_evaluated_on_its_own_task(classifier, capsys):
    folder, task, results, _ = classifier
    expected = results["saved_scores"]
    for given in (Data(), Data(task, text="sentence")):
        scores = finetune.main(Config(evaluate=str(folder / "run"), data=given))
        assert scores == expected
        assert "not what it was" not in capsys.readouterr().out


def test_other_files_with_the_classes_in_another_order(classifier, tmp_path):
    out = classifier[0] / "run"
    other = write_films(tmp_path / "other.tsv", 30, seed=5)
    scores = [
        finetune.main(
            Config(
                evaluate=str(out),
                data=Data(f"tsv:{other}", class_names=names),
            )
        )["validation"]["accuracy"]
        for names in (("bad", "good"), ("good", "bad"))
    ]
    model = TextClassifier.from_preset(out / "preset")
    rows = rows_of(other)
    logits = model.predict([row["sentence"] for row in rows], verbose=0)
    expected = [("bad", "good")[k] for k in logits.argmax(-1)]
    right = np.mean([a == r["label"] for a, r in zip(expected, rows)])
    assert scores == [right, right]  # all 30, though none is for validation

    write_films(other, 30, labels=("bad", "superb"))
    with pytest.raises(
        ValueError, match=r"those of the model. Received: 'superb' \(line"
    ):
        finetune.main(Config(evaluate=str(out), data=Data(f"tsv:{other}")))
    dev = write_questions(tmp_path / "dev.json", 3)
    with pytest.raises(ValueError, match="dev is question answering"):
        finetune.main(Config(evaluate=str(out), data=Data(f"squad:{dev}")))


def test_asked_about_texts(classifier, capsys):
    out = classifier[0] / "run"
    row = rows_of(out / "predictions_validation.tsv")[0]
    text = rows_of(classifier[0] / "dev.tsv")[0]["sentence"]
    model = Model(str(out))
    answers = finetune.main(Config(model, predict=(text, "[b]a great film")))
    best = next(iter(answers[0]))
    assert best == row["prediction"]
    assert answers[0][best] == pytest.approx(
        float(row["probability"]), abs=1e-4
    )
    assert sum(answers[0].values()) == pytest.approx(1)
    assert "[b]a great film" in capsys.readouterr().out
    for texts, pair, message in (
        (("a",), ("b",), "whose texts come alone"),
        ((), None, "There are no texts"),
    ):
        with pytest.raises(ValueError, match=message):
            finetune.main(Config(model, predict=texts, predict_pair=pair))


def test_a_class_that_the_task_lacks_is_wrong(tmp_path):
    labels = finetune_answers.Labels(
        "m", "classification", tuple("abc"), False, 8, 8
    )
    examples = data.Examples(["x"] * 4, labels=np.array([0, 1, 0, 1]))
    task = data.TaskData(
        *("n", "classification", ("c", "a"), ("accuracy",)),
        {"test": examples},
    )
    answers = finetune_answers.Answers(np.array([2, 0, 1, 2]), None)
    task = finetune_answers.with_classes(task, ("c", "a", "b"))
    found = finetune_answers.as_in_task(answers, labels, task)
    assert score("accuracy", examples.labels, found.values) == {"accuracy": 0.5}


def test_labels_that_are_damaged(tmp_path):
    (tmp_path / "labels.json").write_text("{}")
    with pytest.raises(ValueError, match="labels.json is damaged"):
        finetune_answers.Labels.load(tmp_path)


def test_a_file_of_another_task_is_written_as_the_run_s_was(tmp_path):
    """Its columns, and numbers where the run's labels are numbers."""
    record = {
        "data": dataclasses.asdict(
            Data("tsv:a.tsv", text="one", label="points", regression=True)
        ),
        **{"model": dataclasses.asdict(Model(tokenizer=None)), "seed": 0},
        **{"training": dataclasses.asdict(Training()), "keep": "last"},
        "out": "runs/a",
    }
    found = finetune_use.same_columns(Data("tsv:b.tsv", label="stars"), record)
    assert (found.text, found.label, found.regression) == ("one", "stars", True)
    assert found.task == "tsv:b.tsv"
    other = Data("glue:SST-2")
    assert finetune_use.same_columns(other, record) == other
    # Of its own task, what is given wins, and what is not is the run's.
    own = finetune_use.own_data(Data(validation_fraction=0.1), record)
    assert (own.task, own.validation_fraction) == ("tsv:a.tsv", 0.1)
    assert finetune_use.own_data(Data("tsv:b.tsv"), record) is None


@pytest.mark.parametrize("names", [None, ("good", "bad"), ("bad", "good")])
def test_f1_is_of_the_run_s_second_class(names, classifier, tmp_path, capsys):
    """Alphabetically "bad" comes first; a file may have another order."""
    out = classifier[0] / "run"
    task = Data(
        f"tsv:{write_films(tmp_path / 'other.tsv', 31, seed=9)}",
        metrics=("f1", "accuracy"),
        class_names=names,
    )
    asked = Config(evaluate=str(out), data=task, out=tmp_path / "made")
    found = finetune.main(asked)["validation"]["f1"]
    said = predictions(out, tmp_path / "other.tsv")
    labels = [row["label"] for row in rows_of(tmp_path / "other.tsv")]
    positive = "bad" if names == ("good", "bad") else "good"
    expected = sklearn_f1(labels, said, pos_label=positive)
    assert found == pytest.approx(expected)
    assert f"f1 of '{positive}'" in capsys.readouterr().out


def predictions(run, path):
    model = TextClassifier.from_preset(run / "preset")
    texts = [row["sentence"] for row in rows_of(path)]
    logits = model.predict(texts, verbose=0)
    return [("bad", "good")[k] for k in logits.argmax(-1)]


def test_a_file_with_one_class(classifier, tmp_path, capsys):
    """The model knows the other one; a tenth held out would say nothing."""
    path = write_films(tmp_path / "one.tsv", 10, labels=("bad", "bad"))
    out = classifier[0] / "run"
    asked = Config(evaluate=str(out), data=Data(f"tsv:{path}"), out=tmp_path)
    found = finetune.main(asked)["validation"]["accuracy"]
    assert found == np.mean([n == "bad" for n in predictions(out, path)])
    assert "10 examples, one.tsv" in (" ".join(capsys.readouterr().out.split()))


def test_where_a_classifier_errs(classifier, tmp_path, capsys):
    """Half of the labels are exchanged, so that there is something to see."""
    out, folder = classifier[0] / "run", tmp_path / "new" / "folder"
    path = write_films(tmp_path / "other.tsv", 24, seed=3)
    lines = path.read_text().split("\n")
    lines[1:7] = [line.replace("\tgood", "\tbad") for line in lines[1:7]]
    path.write_text("\n".join(lines))
    asked = Config(evaluate=str(out), data=Data(f"tsv:{path}"), out=folder)
    finetune.main(asked)
    labels = [row["label"] for row in rows_of(path)]
    said = predictions(out, path)
    with open(folder / "confusion_other.tsv.tsv") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    assert rows[0][1:] == ["bad", "good"]
    for i, name in enumerate(("bad", "good")):
        assert rows[i + 1] == [
            name,
            *(
                str(sum(pair == (name, other) for pair in zip(labels, said)))
                for other in ("bad", "good")
            ),
        ]
    picture = folder / "confusion_other.tsv.png"
    assert picture.stat().st_size > 5_000
    precision = sum(a == b == "bad" for a, b in zip(labels, said)) / (
        said.count("bad")
    )
    assert f"{precision:.4f}" in capsys.readouterr().out


def test_precision_recall_and_counts_of_classes():
    labels, said = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    rows = finetune_tables.by_class(labels, said, ("a", "b", "c"))
    assert rows == [
        ("a", 0.5, 0.5, 0.5, 2),
        (
            "b",
            pytest.approx(2 / 3),
            pytest.approx(2 / 3),
            *(
                pytest.approx(2 / 3),
                3,
            ),
        ),
        ("c", 0.0, 0.0, 0.0, 0),
    ]
    matrix = finetune_tables.confusion(labels, said, 3)
    assert matrix.tolist() == [[1, 1, 0], [1, 2, 0], [0, 0, 0]]


def test_predictions_for_a_file(classifier, tmp_path, capsys):
    out = classifier[0] / "run"
    path = tmp_path / "new.csv"
    path.write_text('n,words\n7,"a fine, old film"\n8,a dull film\n')
    model = Model(str(out))
    found = finetune.main(
        Config(
            model,
            Data(text="words", identifier="n"),
            predict_file=path,
            out=tmp_path / "made",
        )
    )
    rows = rows_of(tmp_path / "made" / "predictions_new.tsv")
    assert [row["id"] for row in rows] == ["7", "8"]
    assert [row["text"] for row in rows] == ["a fine, old film", "a dull film"]
    assert "label" not in rows[0]
    for row, answer in zip(rows, found):
        assert row["prediction"] == next(iter(answer))
        assert float(row["probability"]) == pytest.approx(
            max(answer.values()), abs=1e-5
        )
    assert f"{rows[0]['prediction']}" in capsys.readouterr().out
    # As the run's own files unless told otherwise; into its folder.
    path = write_films(tmp_path / "more.tsv", 3)
    finetune.main(Config(model, predict_file=path))
    rows = rows_of(out / "predictions_more.tsv")
    assert [row["prediction"] for row in rows] == predictions(out, path)
    for data_, message in (
        (Data(text="nothing"), "called with --text"),
        (Data(text_pair="label"), "whose texts come alone"),
        (Data(stride=2), "--stride is for questions"),
    ):
        with pytest.raises(ValueError, match=message):
            finetune.main(Config(model, data_, predict_file=path))


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (Config(training=Training(epochs=3)), "--epochs"),
        (Config(training=Training(learning_rate=1.0)), "--learning-rate"),
        (Config(seed=3), "--seed"),
        (Config(data=Data(sample=3)), "--sample"),
        (Config(keep="best"), "--keep"),
    ],
)
def test_what_would_change_nothing_is_refused(config, names, classifier):
    out = str(classifier[0] / "run")
    for asked in (
        dataclasses.replace(config, evaluate=out),
        dataclasses.replace(config, model=Model(out), predict=("a",)),
    ):
        with pytest.raises(ValueError, match=f"{names} would change nothing"):
            finetune.main(asked)
    task = Config(Model(out), Data("tsv:a"), predict=("a",))
    with pytest.raises(ValueError, match="--task would change nothing"):
        finetune.main(task)


def test_a_run_of_the_other_recipe(classifier, tmp_path):
    out = classifier[0] / "run"
    with pytest.raises(ValueError, match="recipes.finetune --resume"):
        mlm.main(mlm_settings.Config(resume=out))
    with pytest.raises(ValueError, match="recipes.finetune --evaluate"):
        mlm.main(mlm_settings.Config(evaluate=str(out)))
    record = {"text": {}, "training": {}}
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="one of recipes.mlm"):
        finetune.main(Config(resume=tmp_path))


@pytest.fixture
def copied(classifier, tmp_path):
    """A copy of the run, to be damaged."""
    return shutil.copytree(classifier[0] / "run", tmp_path / "copied")


def test_a_tokenizer_that_is_not_the_model_s(copied, tmp_path):
    path = copied / "preset" / "tokenizer.json"
    Tokenizer.train(["other words than those of films " * 9], 270).save(path)
    asked = Config(Model(str(copied)), predict=("a",))
    for config in (asked, Config(evaluate=str(copied))):
        with pytest.raises(ValueError, match="not the tokenizer that"):
            finetune.main(config)
    task = f"tsv:{write_films(tmp_path / 'a.tsv', 20)}"
    with pytest.raises(ValueError, match="not the tokenizer that"):
        finetune.main(settings(task, str(copied), tmp_path / "new"))
    path.unlink()
    with pytest.raises(ValueError, match="has no tokenizer.json"):
        finetune.main(asked)


def test_weights_that_are_not_finite(copied):
    model = TextClassifier.from_preset(copied / "preset")
    labels = (copied / "preset" / "labels.json").read_text()
    weights = model.get_weights()
    weights[0][0, 0] = np.nan
    model.set_weights(weights)
    model.save_to_preset(copied / "preset")
    (copied / "preset" / "labels.json").write_text(labels)
    for config in (
        Config(Model(str(copied)), predict=("a",)),
        Config(evaluate=str(copied)),
    ):
        with pytest.raises(ValueError, match="weights are not finite"):
            finetune.main(config)
