"""`recipes.finetune` from made tasks to predictions, stopped and gone on."""

import contextlib
import csv
import io
import json
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from mlp_mixers import data
from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPTextBackbone
from mlp_mixers.models import TextClassifier
from mlp_mixers.training import TrainingCheckpoint
from mlp_mixers.training import score
from recipes import finetune
from recipes import finetune_answers
from recipes import finetune_data
from recipes import fitting
from recipes import runs
from recipes import text_models
from recipes.finetune_settings import Config
from recipes.finetune_settings import Data
from recipes.finetune_settings import Model
from recipes.finetune_settings import Training
from tests.recipes.commands import ROOT
from tests.recipes.commands import command
from tests.recipes.commands import environment

GOOD, BAD = ("fine", "lovely", "great"), ("dull", "awful", "poor")
NAMES, THINGS = ("Ada", "Bob", "Cleo", "Dan"), ("cat", "dog", "fox", "owl")
SIZES = {"num_layers": 1, "hidden_dim": 16, "intermediate_dim": 32}


def sentence(rng, words):
    return f"a {rng.choice(words)} film with {rng.choice(THINGS)}s"


def write_table(path, rows):
    lines = ["\t".join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def write_films(path, count, labels=("bad", "good"), seed=0):
    """Sentences of two classes that one word tells apart."""
    rng = np.random.default_rng(seed)
    rows = [("sentence", "label")]
    for i in range(count):
        words = (BAD, GOOD)[i % 2]
        rows.append((sentence(rng, words), labels[i % 2]))
    return write_table(path, rows)


def write_questions(path, count, seed=0, impossible=True):
    """SQuAD's JSON: one question with an answer and one without."""
    rng = np.random.default_rng(seed)
    articles = []
    for i in range(count):
        name, other = rng.permutation(NAMES)[:2]
        thing = rng.choice(THINGS)
        context = f"{name} has a {thing}."
        qas = [
            {
                "id": f"{i}a",
                "question": f"What does {name} have?",
                "is_impossible": False,
                "answers": [
                    {
                        "text": str(thing),
                        "answer_start": context.index(f" {thing}") + 1,
                    }
                ],
            },
            {
                "id": f"{i}b",
                "question": f"What does {other} have?",
                "is_impossible": True,
                "answers": [],
            },
        ]
        qas = qas if impossible else qas[:1]
        paragraph = {"context": context, "qas": qas}
        articles.append({"title": str(i), "paragraphs": [paragraph]})
    path.write_text(json.dumps({"data": articles}))
    return path


def films_in(folder):
    train = write_films(folder / "train.tsv", 48)
    dev = write_films(folder / "dev.tsv", 20, seed=1)
    return f"tsv:{train},{dev}"


@pytest.fixture
def films(tmp_path):
    return films_in(tmp_path)


@pytest.fixture
def cola(tmp_path):
    """In GLUE's layout, with a test file that hides its labels."""
    folder = tmp_path / "CoLA"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", 32), ("dev", 20)):
        rows = []
        for i in range(count):
            rows.append(("x", i % 2, "", sentence(rng, (BAD, GOOD)[i % 2])))
        write_table(folder / f"{name}.tsv", rows)
    rows = [("index", "sentence"), (7, "a fine owl"), (8, "a dull owl")]
    write_table(folder / "test.tsv", rows)
    return f"glue:{folder}"


def pretrained_in(folder):
    """A masked language model as `recipes.mlm` leaves it."""
    keras.utils.set_random_seed(0)
    texts = [f"a {w} film with {t}s" for w in GOOD + BAD for t in THINGS]
    texts += [
        f"What does {n} have? {n} has a {t}." for n in NAMES for t in THINGS
    ]
    tokenizer = data.Tokenizer.train(texts, 330)
    backbone = GMLPTextBackbone(
        tokenizer.vocabulary_size, 24, attention_dim=4, **SIZES
    )
    model = GMLPMaskedLM(backbone, tokenizer=tokenizer)
    model.save_to_preset(folder / "mlm" / "preset")
    return str(folder / "mlm")


@pytest.fixture
def pretrained(tmp_path):
    return pretrained_in(tmp_path)


def settings(task, pretrained, out, **training):
    training = {
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 0.02,
        **training,
    }
    task = task if isinstance(task, Data) else Data(task)
    return Config(Model(pretrained), task, Training(**training), out=out)


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(
            csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        )


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A run with two seeds: its folder, its task, its results, its output."""
    folder = tmp_path_factory.mktemp("classifier")
    task = films_in(folder)
    config = settings(task, pretrained_in(folder), folder / "run")
    config.training = Training(
        epochs=8, seeds=2, batch_size=4, learning_rate=0.02
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        results = finetune.main(config)
    return folder, task, results, printed.getvalue()


def test_medians_and_the_model_of_the_median_seed(classifier):
    folder, _, results, printed = classifier
    out = folder / "run"
    assert f"start: {folder / 'mlm'}, a new head" in printed
    assert "median of 2 seeds" in printed
    found = results["parts"]["validation"]["accuracy"]
    by_seed = found["by_seed"]
    assert found["median"] == pytest.approx(np.mean(by_seed))
    assert found["median"] > 0.9
    assert found["std"] == pytest.approx(np.std(by_seed, ddof=1))
    saved = by_seed[results["saved_seed"]]
    assert saved == min(by_seed)
    rows = rows_of(out / "predictions_validation.tsv")
    right = np.mean([row["prediction"] == row["label"] for row in rows])
    assert right == saved

    # The saved models say the same to strings.
    texts = [row["sentence"] for row in rows_of(folder / "dev.tsv")]
    for model in (
        keras.saving.load_model(out / "model.keras"),
        TextClassifier.from_preset(out / "preset"),
    ):
        logits = model.predict(texts, verbose=0)
        names = [("bad", "good")[k] for k in logits.argmax(-1)]
        assert names == [row["prediction"] for row in rows]
    assert not list(out.glob("checkpoint*"))
    assert not list(out.rglob("seed-*/*.h5"))
    history = json.loads((out / "history.json").read_text())
    assert len(history["val_accuracy"]) == results["epochs"] == 8


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
    with pytest.raises(ValueError, match="does not know: superb. It knows bad"):
        finetune.main(Config(evaluate=str(out), data=Data(f"tsv:{other}")))
    dev = write_questions(tmp_path / "dev.json", 3)
    with pytest.raises(ValueError, match="dev is a span of pairs"):
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


def test_labels_that_are_damaged(tmp_path):
    (tmp_path / "labels.json").write_text("{}")
    with pytest.raises(ValueError, match="labels.json is damaged"):
        finetune_answers.Labels.load(tmp_path)


def prepared_model(config):
    prepared = finetune.prepare(config)
    return prepared, finetune.build(prepared)


def test_from_a_finetuned_model(classifier, tmp_path):
    """Its head is kept if the labels are the same; the rest is trainable."""
    folder, task, *_ = classifier
    run = folder / "run"
    config = settings(Data(task, sample=16), str(run), tmp_path / "new")
    config.model.freeze = True
    prepared, model = prepared_model(config)
    assert len(prepared.parts["train"].examples) == 16
    trained = TextClassifier.from_preset(run / "preset")
    for a, b in zip(trained.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(a, b)
    assert len(model.trainable_weights) == 2

    # Frozen once is not frozen for ever.
    model.save_to_preset(tmp_path / "preset")
    other = write_films(tmp_path / "other.tsv", 20, labels=("a", "b"))
    config = settings(f"tsv:{other}", str(tmp_path / "preset"), tmp_path)
    prepared, model = prepared_model(config)
    assert prepared.head is None
    assert len(model.trainable_weights) == len(model.weights) - sum(
        "seed" in weight.path for weight in model.weights
    )


def test_random_weights_are_asked_for(films, classifier, tmp_path):
    config = settings(films, None, tmp_path / "run", max_length=16)
    config.model = Model(model="amlp", vocabulary_size=300, **SIZES)
    prepared, model = prepared_model(config)
    words = finetune.origin_in_words(config, prepared)
    assert words.startswith("random weights")
    assert model.backbone.attention_dim == 32  # of the nano preset
    assert model.backbone.sequence_length == 16
    assert model.backbone.dropout_rate == 0.1
    assert model.backbone.attention_dropout_rate == 0.1
    assert model.head_dropout.rate == 0.1
    assert model.tokenizer.vocabulary_size <= 300
    # Another run's tokenizer.
    config.model = Model(
        preset="gmlp_nano_en", tokenizer=classifier[0] / "run", **SIZES
    )
    prepared, model = prepared_model(config)
    digest = classifier[2]["tokenizer_digest"]
    assert model.tokenizer.digest == prepared.identity["tokenizer"] == digest
    assert model.backbone.attention_dim is None


def test_numbers_in_their_own_units(pretrained, tmp_path):
    """Labels far from 0 would need many steps at this rate."""
    paths = []
    for name, count in (("train", 40), ("dev", 20)):
        rng = np.random.default_rng(count)
        rows = [("one", "two", "points")]
        for i in range(count):
            words = (BAD, GOOD)[i % 2]
            rows.append(
                (sentence(rng, words), sentence(rng, words), 500 + 20 * (i % 2))
            )
        paths.append(str(write_table(tmp_path / f"{name}.tsv", rows)))
    task = Data(
        f"tsv:{','.join(paths)}",
        text="one",
        text_pair="two",
        label="points",
        regression=True,
    )
    out = tmp_path / "run"
    results = finetune.main(settings(task, pretrained, out, epochs=10))
    rows = rows_of(out / "predictions_validation.tsv")
    predictions = np.array([float(row["prediction"]) for row in rows])
    labels = np.array([float(row["label"]) for row in rows])
    assert np.abs(predictions - labels).mean() < 5
    pearson = results["parts"]["validation"]["pearson"]["median"]
    assert pearson == pytest.approx(
        np.corrcoef(predictions, labels)[0, 1], abs=1e-3
    )
    model = keras.saving.load_model(out / "model.keras")
    pair = [[row[k] for row in rows_of(paths[1])] for k in ("one", "two")]
    found = model.predict(tuple(pair), verbose=0)[:, 0]
    np.testing.assert_allclose(found, predictions, rtol=1e-4)
    asked = Config(
        Model(str(out)), predict=(pair[0][0],), predict_pair=(pair[1][0],)
    )
    assert finetune.main(asked)[0]["number"] == pytest.approx(
        predictions[0], rel=1e-4
    )

    # Its head is gone on with, in the units of training.
    task.sample = 8
    config = settings(
        task, str(out), tmp_path / "more", epochs=1, learning_rate=1e-9
    )
    more = finetune.main(config)
    assert more["start"].endswith("its head, same labels")
    after = rows_of(tmp_path / "more" / "predictions_validation.tsv")
    np.testing.assert_allclose(
        [float(row["prediction"]) for row in after], predictions, rtol=1e-3
    )


def test_spans_and_questions_without_an_answer(pretrained, tmp_path):
    train = write_questions(tmp_path / "train.json", 30)
    dev = write_questions(tmp_path / "dev.json", 10, seed=1)
    out = tmp_path / "run"
    task = f"squad:{train},{dev}"
    config = settings(task, pretrained, out, epochs=4)
    config.keep = "best"
    results = finetune.main(config)
    history = json.loads((out / "history.json").read_text())
    found = results["parts"]["validation"]
    assert found["f1"]["median"] == pytest.approx(max(history["val_f1"]))

    # One word is right or wrong: both metrics by hand.
    rows = rows_of(out / "predictions_validation.tsv")
    right = np.mean([row["answer"] == row["label"] for row in rows])
    assert found["exact_match"]["median"] == pytest.approx(right)
    with_answer = [row for row in rows if row["label"]]
    assert len(with_answer) == 10
    right = np.mean([row["answer"] == row["label"] for row in with_answer])
    assert found["has_answer_exact_match"]["median"] == pytest.approx(right)
    for row in rows:
        assert row["answer"] in ("", *THINGS) or row["answer"] != row["label"]

    # The threshold is the model's from then on.
    again = finetune.main(Config(evaluate=str(out)))["validation"]
    assert again["f1"] == pytest.approx(found["f1"]["median"])
    labels = finetune_answers.Labels.load(out / "preset")
    assert labels.null_threshold == results["null_threshold"]
    asked = Config(
        Model(str(out)),
        predict=("What does Ada have?",),
        predict_pair=("Ada has a cat.",),
    )
    assert finetune.main(asked)[0]["answer"] in (
        *("", "Ada has a cat"),
        *("Ada has a cat."[i:j] for i in range(14) for j in range(i, 15)),
    )


def interrupt_after(epochs, monkeypatch):
    """A Ctrl-C at the end of an epoch, counted over all seeds."""
    save = TrainingCheckpoint.on_epoch_end
    done = []

    def save_and_interrupt(self, epoch, logs=None):
        if len(done) == epochs:
            raise KeyboardInterrupt
        done.append(epoch)
        save(self, epoch, logs)

    monkeypatch.setattr(TrainingCheckpoint, "on_epoch_end", save_and_interrupt)
    return lambda: monkeypatch.setattr(TrainingCheckpoint, "on_epoch_end", save)


def without_seconds(results):
    return {k: v for k, v in results.items() if k != "seconds"}


def same_weights(one, other):
    weights = [
        keras.saving.load_model(folder / "model.keras").get_weights()
        for folder in (one, other)
    ]
    for a, b in zip(*weights):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["best", "last"])
def test_interrupted_and_gone_on_bit_for_bit(
    keep, cola, pretrained, tmp_path, monkeypatch, capsys
):
    """In the second epoch of the second seed of two."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"

    def config(out):
        made = settings(cola, pretrained, out, epochs=3, seeds=2)
        made.keep = keep
        return made

    expected = finetune.main(config(whole))
    undo = interrupt_after(4, monkeypatch)
    with pytest.raises(KeyboardInterrupt, match=f"--resume {parts}$"):
        finetune.main(config(parts))
    undo()
    with pytest.raises(ValueError, match="has not finished"):
        finetune.main(Config(evaluate=str(parts)))
    kept = (parts / "seed-0" / "results.json").read_text()
    # As if it had been killed before this was cleared away.
    (parts / "checkpoint-0").mkdir()
    capsys.readouterr()

    def killed(*arguments):
        raise SystemExit

    monkeypatch.setattr(finetune, "save", killed)
    with pytest.raises(SystemExit):
        finetune.main(Config(resume=parts))
    monkeypatch.undo()
    printed = capsys.readouterr().out
    assert printed.count("Going on after epoch 1 of 3") == 1
    results = finetune.main(Config(resume=parts))
    assert "epoch 3/3" not in capsys.readouterr().out
    assert (parts / "seed-0" / "results.json").read_text() == kept
    assert without_seconds(results) == without_seconds(expected)
    same_weights(whole, parts)
    for name in ("history.json", "predictions_test.tsv"):
        assert (whole / name).read_text() == (parts / name).read_text()
    assert not list(parts.glob("checkpoint*"))
    if keep == "best":
        history = json.loads((whole / "history.json").read_text())
        saved = results["saved_scores"]["validation"]["matthews"]
        assert saved == pytest.approx(max(history["val_matthews"]))
    rows = rows_of(parts / "predictions_test.tsv")
    assert [row["id"] for row in rows] == ["7", "8"]
    assert set(rows[0]) == {"id", "prediction", "probability"}

    # A run that has finished says so and stays as it is.
    assert finetune.main(Config(resume=parts))["epochs"] == 3
    assert "has finished" in capsys.readouterr().out


def test_what_cannot_go_on(films, pretrained, tmp_path, monkeypatch):
    """A run that was stopped before anything was trained."""

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(finetune, "run_seed", interrupt)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match=f"--resume {out}$"):
        finetune.main(settings(films, pretrained, out))
    with pytest.raises(ValueError, match="give --resume alone"):
        finetune.main(Config(resume=out, training=Training(epochs=9)))
    with pytest.raises(ValueError, match="no config.json"):
        finetune.main(Config(resume=tmp_path))
    train = tmp_path / "train.tsv"
    before = train.read_text()
    train.write_text(before.replace("film", "play"))
    with pytest.raises(ValueError, match="began with another task"):
        finetune.main(Config(resume=out))
    train.write_text(before)
    model = GMLPMaskedLM.from_preset(f"{pretrained}/preset")
    model.set_weights([w + 1 for w in model.get_weights()])
    model.save_to_preset(f"{pretrained}/preset")
    with pytest.raises(ValueError, match="with another pretrained model"):
        finetune.main(Config(resume=out))
    (out / "config.json").write_text("{")
    with pytest.raises(ValueError, match="config.json is damaged"):
        finetune.main(Config(resume=out))


@pytest.mark.slow
def test_a_seed_that_diverges_leaves_the_others(
    films, pretrained, tmp_path, monkeypatch
):
    made = fitting.linear_adamw

    def explosive(settings, total):
        if list((tmp_path / "run").glob("seed-*")):
            settings.learning_rate = 1e30
        return made(settings, total)

    monkeypatch.setattr(fitting, "linear_adamw", explosive)
    config = settings(films, pretrained, tmp_path / "run", seeds=2)
    config.training.clip_norm = 0.0
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        finetune.main(config)
    assert (tmp_path / "run" / "seed-0" / "results.json").exists()
    monkeypatch.undo()
    assert finetune.main(Config(resume=tmp_path / "run"))["seeds"] == [0, 1]


def test_the_middle_is_the_median_and_never_the_better_of_two():
    rng = np.random.default_rng(0)
    for count in range(1, 8):
        values = rng.random(count).round(1).tolist()
        chosen = values[finetune.middle(values)]
        assert chosen <= np.median(values)
        assert sum(v < chosen for v in values) <= (count - 1) // 2
        assert sum(v > chosen for v in values) <= count // 2
    assert finetune.spread([0.5])["std"] is None


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
            f"test: {cut} of 2 inputs are cut to {limit} tokens"
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
    examples = data.Examples(["a"] * 3, ["b"] * 3, None, ["x", "y\t", "z"])
    path = tmp_path / "p.tsv"
    finetune_answers.write_answers(path, answers, examples, labels)
    assert path.read_text("utf-8").split("\n") == [
        "id\tanswer\tscore",
        "x\ttwo words\t1",
        "y \tline end\t2.5",
        "z\tü  ü\t-3",
        "",
    ]


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
    found = finetune_answers.as_in_task(answers, labels, task)
    assert score("accuracy", examples.labels, found.values) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "starts from a pretrained model: --from runs/mlm"),
        (("--from", "nowhere"), "There is no trained text model of this name"),
        (("--from", "gmlp_nano_en"), "give it as --preset"),
        (("--model", "gmlp"), "Say which task it is, with --task"),
        (("--model", "gmlp", "--task", "sst2"), "Did you mean tfds:glue/sst2"),
        (("--model", "gmlp", "--task", "glue:MADE"), "with --glue-task"),
        (("--model", "gmlp", "--task", "tsv:gone.tsv"), "no such file"),
        (
            ("--model", "gmlp", "--task", "FILMS", "--squad-version", "2.0"),
            "--squad-version is for tasks of the kind squad",
        ),
        (
            ("--model", "gmlp", "--task", "FILMS", "--label", "tag"),
            "no column 'tag'",
        ),
        (
            ("--model", "gmlp", "--task", "FILMS", "--metrics", "pearson"),
            "measured by accuracy, f1, matthews",
        ),
        (("--model", "gmlp", "--task", "FILMS", "--regression"), "number"),
        (
            ("--from", "MLM", "--task", "FILMS", "--max-length", "25"),
            "reads 24 tokens and no more",
        ),
        (("--from", "MLM", "--task", "FILMS", "--batch-size", "49"), "48 rows"),
        (("--from", "MLM", "--task", "ONE"), "two classes at least"),
        (("--from", "MLM", "--task", "NOTHING"), "NOTHING"),
        (("--from", "MLM", "--predict", "x"), "Finetune it first"),
        (("--evaluate", "MLM"), "Finetune it first"),
        (("--evaluate", "MLM", "--from", "MLM"), "give it without --from"),
        (("--predict", "x"), "--from runs/finetune"),
        (("--resume", "MADE"), "give --resume alone"),
    ],
)
def test_what_cannot_be_ends_in_one_line(
    arguments, message, films, pretrained, tmp_path, monkeypatch
):
    (tmp_path / "made").mkdir()
    one = write_films(tmp_path / "one.tsv", 20, labels=("same", "same"))
    nothing = write_films(tmp_path / "nothing.tsv", 0)
    for word, meaning in (
        ("NOTHING", f"tsv:{tmp_path / 'train.tsv'},{nothing}"),
        ("FILMS", films),
        ("ONE", f"tsv:{one}"),
        ("MADE", str(tmp_path / "made")),
        ("MLM", pretrained),
    ):
        arguments = [a.replace(word, meaning) for a in arguments]
    if message == "NOTHING":
        message = str(nothing)
    out = tmp_path / "run"
    monkeypatch.setattr("sys.argv", ["finetune", *arguments, "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        finetune.cli()
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)
    assert not out.exists()


def test_a_task_with_a_single_class():
    examples = data.Examples(["a"], labels=np.array([0]))
    task = data.TaskData(
        *("t", "classification", ("same",), ("accuracy",)), {"train": examples}
    )
    with pytest.raises(ValueError, match="nothing to tell apart"):
        finetune_data.trainable(task, Data("tfds:t"), 0)


def test_a_task_without_a_training_part(pretrained, tmp_path):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    write_films(folder / "dev.tsv", 10, labels=("0", "1"))
    config = settings(f"glue:{folder}", pretrained, tmp_path / "run")
    with pytest.raises(ValueError, match="no training part"):
        finetune.main(config)


def test_folders_that_only_look_like_models(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"training": {}, "seed": 0}))
    with pytest.raises(ValueError, match="has not finished"):
        text_models.find(tmp_path)
    path.write_text(json.dumps({"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(ValueError, match="There is no trained text model"):
        text_models.find(tmp_path)


def test_what_is_shown_is_no_markup(capsys):
    runs.show("[/b] a [red]text", {"[x": "[/y]"})
    printed = capsys.readouterr().out
    assert "[/b] a [red]text" in printed
    assert "[x" in printed
    assert "[/y]" in printed


@pytest.mark.slow
def test_no_threshold_where_every_question_has_an_answer(pretrained, tmp_path):
    train = write_questions(tmp_path / "train.json", 20, impossible=False)
    out = tmp_path / "run"
    task = Data(f"squad:{train}")
    results = finetune.main(settings(task, pretrained, out, epochs=1))
    assert results["null_threshold"] is None
    assert list(results["parts"]["validation"]) == ["f1", "exact_match"]
    rows = rows_of(out / "predictions_validation.tsv")
    assert all(row["answer"] for row in rows)


@pytest.mark.slow
def test_bert(films, pretrained, tmp_path):
    """The baseline, from random weights and on from there."""
    model = ("--model", "bert", "--num-layers", "1", "--hidden-dim", "8")
    small = ("--intermediate-dim", "8", "--max-length", "16")
    often = ("--epochs", "2", "--batch-size", "8", "--learning-rate", "0.01")
    first, second = tmp_path / "first", tmp_path / "second"
    run = command(
        *(*model, *small, *often, "--task", films, "--out", first),
        recipe="finetune",
    )
    assert run.returncode == 0, run.stderr
    run = command(
        *("--from", first, *often, "--task", films, "--out", second),
        recipe="finetune",
    )
    assert run.returncode == 0, run.stderr
    assert "BertTextClassifier" in run.stdout
    assert "its head, same labels" in run.stdout
    questions = write_questions(tmp_path / "train.json", 30)
    run = command(
        *("--from", first, *often, "--task", f"squad:{questions}"),
        *("--out", tmp_path / "third"),
        recipe="finetune",
    )
    assert run.returncode == 0, run.stderr
    run = command(
        *("--from", tmp_path / "third", "--predict", "What does Ada have?"),
        *("--predict-pair", "Ada has a cat."),
        recipe="finetune",
    )
    assert run.returncode == 0, run.stderr
    assert "answer" in run.stdout


@pytest.mark.slow
def test_killed_and_gone_on(cola, pretrained, tmp_path):
    """SIGKILL in the middle of the second seed."""
    arguments = (
        *("--from", pretrained, "--task", cola, "--epochs", "60"),
        *("--seeds", "2", "--batch-size", "4", "--learning-rate", "0.01"),
    )
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run = command(*arguments, "--out", whole, recipe="finetune")
    assert run.returncode == 0, run.stderr
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "recipes.finetune"),
            *(*arguments, "--out", str(parts)),
        ],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
    )
    state = parts / "checkpoint-1" / "state.npz"
    while not state.exists():
        assert run.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert not (parts / "results.json").exists()
    go_on = command("--resume", parts, recipe="finetune")
    assert go_on.returncode == 0, go_on.stderr
    assert "Going on after epoch" in go_on.stdout
    same_weights(whole, parts)
