"""`recipes.mlm` from raw text to a filled mask, stopped and gone on."""

import dataclasses
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from mlp_mixers.data import load_text
from mlp_mixers.models import GMLPTextClassifier
from mlp_mixers.models import MaskedLM
from recipes import mlm
from recipes import mlm_models
from recipes.mlm_settings import Config
from recipes.mlm_settings import Model
from recipes.mlm_settings import Text
from recipes.mlm_settings import Training
from recipes.mlm_settings import resolve
from tests.recipes.commands import ROOT
from tests.recipes.commands import command
from tests.recipes.commands import environment
from tests.recipes.commands import interrupt_after
from tests.recipes.commands import saved_weights

SMALL = {
    "num_layers": 1,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "sequence_length": 32,
}
QUICK = {"epochs": 2, "batch_size": 16}


@pytest.fixture
def texts(tmp_path):
    """Forty short documents about who sees whom."""
    rng = np.random.default_rng(0)
    animals = ["cat", "dog", "horse", "sheep", "goose", "mouse"]
    documents = []
    for _ in range(40):
        sentences = [
            "The {} sees the {}, and the {} runs away.".format(
                *rng.choice(animals, 3)
            )
            for _ in range(8)
        ]
        documents.append(" ".join(sentences))
    path = tmp_path / "animals.txt"
    path.write_text("\n\n".join(documents))
    return path


def settings(texts, out, model=(), text=(), training=(), **others):
    return Config(
        model=Model(**{**SMALL, **dict(model)}),
        text=Text(f"text:{texts}", **dict(text)),
        training=Training(**{**QUICK, **dict(training)}),
        out=out,
        **others,
    )


@pytest.mark.each
def test_text_to_filled_masks(texts, tmp_path, capsys):
    out = tmp_path / "run"
    config = settings(
        texts, out, training={"epochs": 60, "learning_rate": 0.02}
    )
    results = mlm.main(config)
    # Six animals in three of eleven places; all else is always the same.
    assert 1 < results["perplexity"] < 6
    assert results["accuracy"] > 0.5
    assert "36 documents for training" in capsys.readouterr().out

    # Held-out text is what it was.
    scores = mlm.main(Config(evaluate=str(out)))
    assert scores["perplexity"] == pytest.approx(
        results["perplexity"], rel=1e-4
    )
    assert "note: the text is not" not in capsys.readouterr().out

    (candidates,) = mlm.main(
        Config(
            model=Model(from_=str(out)),
            fill=("The dog sees the <mask>, and the cat runs away.",),
        )
    )
    best = {candidate.token.strip() for candidate in candidates}
    assert best & {"cat", "dog", "horse", "sheep", "goose", "mouse"}

    # What `recipes.finetune` and people start from.
    folder = out / "preset"
    model = MaskedLM.from_preset(folder)
    assert model.tokenizer.vocabulary_size == results["vocabulary_size"]
    classifier = GMLPTextClassifier.from_preset(folder, num_classes=2)
    assert classifier.predict(["The cat."], verbose=0).shape == (1, 2)
    again = keras.saving.load_model(out / "model.keras")
    assert again.tokenizer == model.tokenizer
    history = json.loads((out / "history.json").read_text())
    assert len(history["val_perplexity"]) == 60
    for picture in ("learning_curves.png", "spatial_matrices.png"):
        assert (out / picture).stat().st_size > 10_000
    assert not (out / "checkpoint").exists()


def test_going_on_with_a_model_on_other_text(texts, tmp_path):
    mlm.main(settings(texts, tmp_path / "first"))
    config = Config(
        model=Model(from_=str(tmp_path / "first")),
        text=Text(f"text:{texts}"),
        training=Training(**QUICK),
        out=tmp_path / "second",
    )
    mlm.main(config)
    first, second = (
        MaskedLM.from_preset(tmp_path / name / "preset")
        for name in ("first", "second")
    )
    assert first.tokenizer == second.tokenizer
    assert first.backbone.num_layers == second.backbone.num_layers == 1
    # It went on from there: W has not started anew from near zero.
    before, after = (
        np.array(m.backbone.blocks[0].gating_unit.spatial_matrix())
        if keras.backend.backend() != "torch"
        else m.backbone.blocks[0].gating_unit.spatial_matrix().detach().numpy()
        for m in (first, second)
    )
    assert np.corrcoef(before.ravel(), after.ravel())[0, 1] > 0.5


@pytest.mark.each
@pytest.mark.parametrize(
    "training",
    [
        {},
        pytest.param(
            {"whole_words": True, "mask_rate": 0.3}, marks=pytest.mark.slow
        ),
    ],
)
def test_interrupted_and_gone_on_bit_for_bit(
    training, texts, tmp_path, monkeypatch, capsys
):
    def config(out):
        return settings(
            texts,
            out,
            model={"attention_dim": 4, "dropout_rate": 0.1},
            training={"epochs": 3, **training},
            workers=2,
        )

    whole = mlm.main(config(tmp_path / "whole"))
    undo = interrupt_after(1, monkeypatch)
    parts = tmp_path / "parts"
    with pytest.raises(
        KeyboardInterrupt, match=f"recipes.mlm --resume {parts}"
    ):
        mlm.main(config(parts))
    undo()
    with pytest.raises(ValueError, match="has not finished"):
        mlm.main(Config(evaluate=str(parts)))
    results = mlm.main(Config(resume=parts))
    assert "Going on after epoch 1 of 3" in capsys.readouterr().out
    for name in ("perplexity", "accuracy", "best_epoch", "epochs"):
        assert results[name] == whole[name]
    for a, b in zip(saved_weights(tmp_path / "whole"), saved_weights(parts)):
        np.testing.assert_array_equal(a, b)
    histories = [
        json.loads((tmp_path / name / "history.json").read_text())
        for name in ("whole", "parts")
    ]
    assert histories[0] == histories[1]


@pytest.mark.slow
def test_killed_and_gone_on(texts, tmp_path):
    """By SIGKILL, in a process; the losses are those of a whole run."""
    arguments = [
        *("--data", f"text:{texts}", "--epochs", "40", "--batch-size", "16"),
        *("--num-layers", "1", "--hidden-dim", "16"),
        *("--intermediate-dim", "32", "--sequence-length", "32"),
    ]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run = command(*arguments, "--out", whole, recipe="mlm")
    assert run.returncode == 0, run.stderr
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "recipes.mlm", *arguments),
            *("--out", str(parts)),
        ],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    state = parts / "checkpoint" / "state.npz"
    wait_for(lambda: state.exists(), process)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (parts / "results.json").exists()
    run = command("--resume", parts, recipe="mlm")
    assert run.returncode == 0, run.stderr
    assert "Going on after epoch" in run.stdout
    histories = [
        json.loads((folder / "history.json").read_text())
        for folder in (whole, parts)
    ]
    assert histories[0] == histories[1]


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["amlp", "bert"])
def test_other_models(kind, texts, tmp_path):
    if kind == "bert":
        pytest.importorskip("keras_hub")
    out = tmp_path / "run"
    changes = {"model": kind}
    if kind == "amlp":
        changes["attention_dim"] = None  # the preset's
    else:
        changes |= {"hidden_dim": 32, "intermediate_dim": None}
    results = mlm.main(settings(texts, out, model=changes))
    assert np.isfinite(results["perplexity"])
    config = json.loads((out / "config.json").read_text())
    assert (out / "spatial_matrices.png").exists() == (kind == "amlp")
    if kind == "amlp":
        assert config["built"]["attention_dim"] == 32
    scores = mlm.main(Config(evaluate=str(out)))
    assert scores["perplexity"] == pytest.approx(
        results["perplexity"], rel=1e-4
    )


def test_bert_is_as_large_as_the_gmlp():
    pytest.importorskip("keras_hub")
    from mlp_mixers.data import Tokenizer

    tokenizer = Tokenizer.train(["a"], 260)
    sizes = {}
    for kind in ("gmlp", "bert"):
        config = Config(model=Model(model=kind, num_layers=2))
        sizes[kind] = mlm_models.build(
            config, tokenizer, 64, None
        ).count_params()
    assert abs(sizes["bert"] - sizes["gmlp"]) < 0.005 * sizes["gmlp"]


def test_the_paper_s_settings():
    """Table 8."""
    training, length = resolve(Config(training=Training("ablation")))
    assert (length, training.batch_size, training.steps) == (128, 2048, 125_000)
    assert training.warmup_fraction * training.steps == 10_000
    assert training.learning_rate == 7e-4
    training, length = resolve(Config(training=Training("main")))
    assert (length, training.batch_size) == (512, 256)
    assert training.steps == 1_000_000
    assert training.warmup_fraction * training.steps == 10_000
    assert (training.learning_rate, training.clip_norm) == (1e-4, 0)
    assert (training.epsilon, training.weight_decay) == (1e-6, 0.01)
    assert training.epochs is None
    # One's own length of training replaces the paper's.
    training, _ = resolve(Config(training=Training("main", epochs=3)))
    assert (training.epochs, training.steps) == (3, None)


def test_steps_are_rounded_up_to_epochs(texts, tmp_path):
    config = settings(texts, tmp_path, training={"epochs": None, "steps": 3})
    prepared = mlm.prepare(config)
    steps = len(prepared.batches)
    assert prepared.epochs == -(-3 // steps)
    assert prepared.model.optimizer._learning_rate.total_steps == (
        steps * prepared.epochs
    )


def test_held_out_documents_are_not_trained_on(texts):
    split = load_text(f"text:{texts}")
    assert not {*split.train} & {*split.validation}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "text:nowhere.txt"), "nowhere.txt"),
        (("--data", "wikipedia"), "tfds:wikipedia"),
        (("--epochs", "0"), "epochs=0"),
        (("--mask-rate", "1.5"), "mask_rate=1.5"),
        (("--steps", "10", "--epochs", "2"), "--epochs or by --steps"),
        (("--batch-size", "100000"), "fewer than a batch"),
        (("--vocabulary-size", "100"), "at least 260"),
        (("--fill", "a <mask>"), "--from runs/mlm"),
        (("--from", "nowhere"), "no trained text model"),
        (("--from", "gmlp_nano_en"), "give it as --preset"),
        (("--evaluate", "a", "--from", "b"), "give it without --from"),
        (("--preset", "gmlp_nano"), "Did you mean 'gmlp_nano_en'"),
        (("--preset", "gmlp_small_224"), "GMLPTextBackbone"),
        (("--model", "amlp", "--preset", "gmlp_nano_en"), "--attention-dim"),
        (("--feature", "text"), "--feature is for data of the kind tfds"),
        (("--tokenizer", "nowhere.json"), "no such file"),
        (("--resume", "nowhere"), "no run to go on with"),
        (("--seed", "4294967296"), "seed=4294967296"),
        (("--vocabulary-size", "0"), "vocabulary_size=0"),
        (("--sequence-length", "0"), "sequence_length=0"),
        (("--resume", "a", "--epochs", "3"), "give --resume alone"),
    ],
)
def test_what_cannot_be_ends_in_one_line(
    arguments, message, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    monkeypatch.setattr("sys.argv", ["mlm", *arguments, "--out", str(out)])
    if "--resume" in arguments:
        monkeypatch.setattr("sys.argv", ["mlm", *arguments])
    with pytest.raises(SystemExit) as end:
        mlm.cli()
    assert str(end.value).startswith("error: ")
    assert message in str(end.value)
    assert not out.exists()


def test_resuming_on_changed_text_is_refused(texts, tmp_path, monkeypatch):
    undo = interrupt_after(1, monkeypatch)
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        mlm.main(settings(texts, out))
    undo()
    before = (out / "config.json").read_text()
    record = json.loads(before)
    record["training"]["epochs"] = 5
    (out / "config.json").write_text(json.dumps(record))
    # What differs is named, and nothing else.
    message = "settings or data: epochs: saved 2, now 5. Go on"
    with pytest.raises(ValueError, match=message):
        mlm.main(Config(resume=out))
    (out / "config.json").write_text(before)
    # As if it had been killed before its first checkpoint.
    shutil.rmtree(out / "checkpoint")
    text = pathlib.Path(texts).read_text()
    pathlib.Path(texts).write_text(text.replace("goose", "moose"))
    with pytest.raises(
        ValueError, match="began with another text and another tokenizer"
    ):
        mlm.main(Config(resume=out))


def test_help_names_every_option():
    run = command("--help", recipe="mlm")
    assert run.returncode == 0
    for group in (Model, Text, Training, Config):
        for field in dataclasses.fields(group):
            if not dataclasses.is_dataclass(field.default_factory):
                name = field.name.strip("_").replace("_", "-")
                assert f"--{name}" in run.stdout, name
