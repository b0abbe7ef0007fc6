"""`recipes.finetune` from made tasks to predictions, stopped and gone on."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import TextClassifier
from mlp_mixers.training import TrainingCheckpoint
from recipes import finetune
from recipes import finetune_answers
from recipes import finetune_results
from recipes import fitting
from recipes import runs
from recipes import text_models
from recipes.finetune_settings import Config
from recipes.finetune_settings import Data
from recipes.finetune_settings import Model
from recipes.finetune_settings import Training
from tests.recipes import tasks
from tests.recipes.commands import ROOT
from tests.recipes.commands import command
from tests.recipes.commands import environment
from tests.recipes.tasks import SIZES
from tests.recipes.tasks import rows_of
from tests.recipes.tasks import sentence
from tests.recipes.tasks import settings
from tests.recipes.tasks import write_films
from tests.recipes.tasks import write_questions
from tests.recipes.tasks import write_table


@pytest.fixture
def cola(tmp_path):
    """In GLUE's layout, with a test file that hides its labels."""
    folder = tmp_path / "CoLA"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", 32), ("dev", 20)):
        rows = []
        for i in range(count):
            rows.append(
                ("x", i % 2, "", sentence(rng, (tasks.BAD, tasks.GOOD)[i % 2]))
            )
        write_table(folder / f"{name}.tsv", rows)
    rows = [("index", "sentence"), (7, "a fine owl"), (8, "a dull owl")]
    write_table(folder / "test.tsv", rows)
    return f"glue:{folder}"


@pytest.mark.each
def test_medians_and_the_model_of_the_median_seed(classifier):
    folder, _, results, printed = classifier
    out = folder / "run"
    assert f"start: {folder / 'mlm'}, a new head" in printed
    assert "median of 2 seeds" in printed
    assert "train.tsv, dev.tsv: a classification of texts, 48 training" in (
        printed
    )
    assert "the lower of the two in the middle" in " ".join(
        printed.replace("│", "").split()
    )
    # Half of the examples are of each class; "bad" is the first one.
    assert results["baseline"] == {
        "answer": "'bad'",
        "parts": {"validation": {"accuracy": 0.5}},
    }
    assert "accuracy of always 'bad'" in printed
    assert results["remarks"] == []
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
    assert [row["text"] for row in rows] == [
        row["sentence"] for row in rows_of(folder / "dev.tsv")
    ]

    # The saved models say the same to strings.
    texts = [row["sentence"] for row in rows_of(folder / "dev.tsv")]
    for model in (
        keras.saving.load_model(out / "model.keras"),
        TextClassifier.from_preset(out / "preset"),
    ):
        logits = model.predict(texts, verbose=0)
        names = [("bad", "good")[k] for k in logits.argmax(-1)]
        assert names == [row["prediction"] for row in rows]
        assert [best[0] for best, _ in model.classify(texts)] == names
    assert not list(out.glob("checkpoint*"))
    assert not list(out.rglob("seed-*/*.h5"))
    history = json.loads((out / "history.json").read_text())
    assert len(history["val_accuracy"]) == results["epochs"] == 8


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
            words = (tasks.BAD, tasks.GOOD)[i % 2]
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

    # As it is measured later: the saved head says what training said.
    again = finetune.main(Config(evaluate=str(out)))["validation"]
    assert again["pearson"] == pytest.approx(pearson, abs=1e-5)

    # For labels of other units, there is a new head.
    lines = (tmp_path / "train.tsv").read_text()
    stars = tmp_path / "stars.tsv"
    stars.write_text(lines.replace("\t500", "\t1").replace("\t520", "\t2"))
    other = dataclasses.replace(task, task=f"tsv:{stars}")
    prepared = finetune.prepare(settings(other, str(out), tmp_path / "stars"))
    assert prepared.head is None
    assert any("510 ± 10, not" in note for note in prepared.notes)

    # Its head is gone on with, in the units of training.
    task.sample = 8
    config = settings(
        task, str(out), tmp_path / "more", epochs=1, learning_rate=1e-9
    )
    more = finetune.main(config)
    assert more["start"].endswith("its head, same labels")
    assert not any("new head" in note for note in more["notes"])
    after = rows_of(tmp_path / "more" / "predictions_validation.tsv")
    np.testing.assert_allclose(
        [float(row["prediction"]) for row in after], predictions, rtol=1e-3
    )


def test_large_numbers_keep_their_digits(pretrained, tmp_path):
    """float32 has one number for every eight of these."""
    rng = np.random.default_rng(0)
    rows = [("sentence", "label")]
    for i in range(40):
        words = (tasks.BAD, tasks.GOOD)[i % 2]
        rows.append((sentence(rng, words), 100_000_000 + 5 * (i % 2)))
    train = write_table(tmp_path / "train.tsv", rows)
    task = Data(f"tsv:{train},{train}", regression=True)
    out = tmp_path / "run"
    results = finetune.main(settings(task, pretrained, out, epochs=10))
    rows = rows_of(out / "predictions_validation.tsv")
    assert {row["label"] for row in rows} == {"100000000", "100000005"}
    predictions = np.array([float(row["prediction"]) for row in rows])
    labels = np.array([float(row["label"]) for row in rows])
    assert len(set(predictions)) > 4
    assert np.abs(predictions - labels).mean() < 2
    assert any("seven digits" in note for note in results["notes"])
    asked = Config(Model(str(out)), predict=(rows[0]["text"], rows[1]["text"]))
    found = [answer["number"] for answer in finetune.main(asked)]
    np.testing.assert_allclose(found, predictions[:2], rtol=0, atol=1e-3)
    # And where the head is gone on with.
    more = settings(task, str(out), tmp_path / "b", learning_rate=1e-9)
    finetune.main(more)
    after = rows_of(tmp_path / "b" / "predictions_validation.tsv")
    np.testing.assert_allclose(
        [float(row["prediction"]) for row in after],
        predictions,
        rtol=0,
        atol=1e-2,
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
        assert (
            row["answer"] in ("", *tasks.THINGS)
            or row["answer"] != row["label"]
        )

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
    message = f"Seed 0 has finished .* epoch 1 of seed 1 .* --resume {parts}$"
    with pytest.raises(KeyboardInterrupt, match=message):
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

    monkeypatch.setattr(finetune_results, "save", killed)
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
    assert list(rows[0]) == ["id", "prediction", "probability", "text"]

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
    assert finetune.done_in_words(out, Config(seed=0)) == ""
    for seed, words in ((0, " Seed 0 has"), (1, " Seeds 0 to 1 have")):
        (out / f"seed-{seed}").mkdir()
        record = dict.fromkeys(finetune.SEED_KEYS)
        runs.record(out / f"seed-{seed}", "results.json", record)
        found = finetune.done_in_words(out, Config(seed=0))
        assert found.startswith(words)
    shutil.rmtree(out / "seed-0")
    shutil.rmtree(out / "seed-1")
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


def test_what_is_kept_of_several_seeds(tmp_path):
    checkpoint = TrainingCheckpoint(tmp_path / "checkpoint-1")
    found = fitting._how_to_go_on(checkpoint, "finetune", "seed 1")
    assert found.startswith("Interrupted. No epoch of seed 1 had ended. Go on")
    found = fitting._how_to_go_on(checkpoint, "mlm", "")
    assert "No epoch had ended, so there is no model." in found


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
        (
            ("--from", "MLM", "--predict", "x"),
            "Beside --predict, which trains nothing, --out",
        ),
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
    for open_ in (text_models.find, text_models.load_tokenizer):
        with pytest.raises(ValueError, match="no trained text model") as error:
            open_(tmp_path)
        assert f"Received: '{tmp_path}'" in str(error.value)


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
