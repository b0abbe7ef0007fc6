"""Causal language models from text to answers, in small."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from mlp_mixers.analysis import count_flops
from mlp_mixers.data import MultipleChoice
from mlp_mixers.data import Tokenizer
from mlp_mixers.models import SMLPCausalLM
from recipes import causal_lm
from recipes import causal_lm_models
from recipes import causal_lm_use
from recipes.causal_lm_settings import Config
from recipes.causal_lm_settings import Model
from recipes.causal_lm_settings import Training
from recipes.mlm_settings import Text

SIZES = {
    "vocabulary_size": 300,
    "sequence_length": 32,
    "hidden_dim": 16,
    "num_layers": 3,
    "num_sparse_blocks": 1,
    "num_experts": 2,
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "animals.txt"
    rng = np.random.default_rng(0)
    animals = ["cat", "dog", "bird", "mouse"]
    lines = [
        f"The {rng.choice(animals)} sees the {rng.choice(animals)} and runs."
        for _ in range(160)
    ]
    path.write_text("\n\n".join(lines))
    return path


def settings(text, out, *models, epochs=2, **others):
    return Config(
        model=Model(
            models=models or ("smlp",),
            sequence_length=16,
            num_layers=2,
            num_experts=2,
            hidden_dim=8,
            intermediate_dim=64,
        ),
        text=Text(f"text:{text}", vocabulary_size=280),
        training=Training(epochs=epochs, batch_size=8),
        out=out,
        **others,
    )


@pytest.mark.parametrize("variant", causal_lm_models.VARIANTS)
def test_all_cost_as_much_as_the_gmlp(variant):
    dense = causal_lm_models.build("gmlp", SIZES, 256, "gmlp")
    other = causal_lm_models.build(variant, SIZES, 256, "gmlp")
    expected = count_flops(dense).macs
    np.testing.assert_allclose(count_flops(other).macs, expected, rtol=0.02)
    wide = causal_lm_models.build(variant, SIZES, 256)
    assert wide.intermediate_dim == 256


def test_what_cannot_be_as_cheap():
    with pytest.raises(ValueError, match="A switch with these sizes costs"):
        causal_lm_models.build("switch", SIZES, 8, "gmlp")


def test_from_text_to_answers(text, tmp_path, capsys):
    out = tmp_path / "run"
    results = causal_lm.main(settings(text, out, "smlp", "hash"))
    assert set(results["models"]) == {"smlp", "hash"}
    for name, scores in results["models"].items():
        place = out / name
        for file in ("history.json", "learning_curves.png", "expert_load.png"):
            assert (place / file).is_file()
        assert scores["perplexity"] < 280
        for load in scores["load"].values():
            np.testing.assert_allclose(sum(load), 1)
        history = json.loads((place / "history.json").read_text())
        assert len(history["seconds"]) == 2
        assert any("drop_rate" in key for key in history)
    assert 1 < results["unigram_perplexity"] < 280
    assert (out / "comparison.png").is_file()
    assert not list(out.glob("checkpoint*"))
    again = causal_lm.main(Config(resume=out))
    assert again["models"] == results["models"]
    with pytest.raises(ValueError, match=r"Name one: .*hash, .*smlp"):
        causal_lm.main(
            Config(model=Model(from_=str(out)), generate=("The cat",))
        )
    model = str(out / "smlp")
    (written,) = causal_lm.main(
        Config(model=Model(from_=model), generate=("The cat",), max_length=9)
    )
    assert written.startswith("The cat")
    questions = tmp_path / "animals.jsonl"
    record = {
        "prompt": "The cat sees",
        "choices": ["the dog", "zq zq zq"],
        "label": 0,
    }
    questions.write_text(json.dumps(record))
    found = causal_lm.main(
        Config(model=Model(from_=model), zero_shot=(str(questions),))
    )
    assert found["animals"]["accuracy"] == 1
    with pytest.raises(ValueError, match="rename a file"):
        causal_lm.main(
            Config(model=Model(from_=model), zero_shot=(str(questions),) * 2)
        )
    captured = capsys.readouterr()
    assert "comparison" not in captured.err
    line = f"perplexity is {results['unigram_perplexity']:.2f}"
    assert captured.out.count(line) == 2


@pytest.mark.parametrize("epoch", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_an_interrupted_comparison_goes_on(text, tmp_path, monkeypatch, epoch):
    whole = causal_lm.main(settings(text, tmp_path / "whole", "gmlp", "smlp"))
    calls = []
    saved = causal_lm.TrainingCheckpoint.on_epoch_end

    def interrupting(self, number, logs=None):
        saved(self, number, logs)
        calls.append(number)
        if len(calls) == epoch:
            raise KeyboardInterrupt

    monkeypatch.setattr(
        causal_lm.TrainingCheckpoint, "on_epoch_end", interrupting
    )
    out = tmp_path / "part"
    with pytest.raises(KeyboardInterrupt, match="Go on with"):
        causal_lm.main(settings(text, out, "gmlp", "smlp"))
    monkeypatch.undo()
    results = causal_lm.main(Config(resume=out))
    for name, scores in whole["models"].items():
        for key in ("perplexity", "accuracy", "load"):
            assert results["models"][name][key] == scores[key], (name, key)


def test_a_single_model_lies_in_the_folder_itself(text, tmp_path):
    out = tmp_path / "run"
    config = settings(text, out, "smlp-partial", epochs=1)
    results = causal_lm.main(config)
    scores = results["models"]["smlp-partial"]
    assert scores["first_predicted"] == 2  # of ⌊0.2 · 16⌋ = 3 tokens
    assert scores["window"] == 3
    assert scores["window_perplexity"] == pytest.approx(scores["perplexity"])
    assert not scores["leaks"]
    assert (out / "preset").is_dir()
    assert not (out / "comparison.png").exists()


def test_rows_of_one_token_have_no_future(text, tmp_path):
    config = settings(text, tmp_path / "run", "gmlp", epochs=1)
    config.model.sequence_length = 1
    config.training.batch_size = 64
    scores = causal_lm.main(config)["models"]["gmlp"]
    assert not scores["leaks"]


def test_a_window_to_compare_in_and_who_cheats(text, tmp_path, capsys):
    out = tmp_path / "run"
    config = settings(text, out, "gmlp", "smlp-leaky", epochs=1, window=5)
    scores = causal_lm.main(config)["models"]
    assert not scores["gmlp"]["leaks"]
    assert scores["smlp-leaky"]["leaks"]
    printed = capsys.readouterr().out
    assert "smlp-leaky sees what it predicts" in printed
    assert "gmlp sees" not in printed
    assert "from token 5 of a row on" in printed
    # From logits, by hand.
    model = SMLPCausalLM.from_preset(out / "gmlp" / "preset")
    held_out = causal_lm.prepare(config).validation
    lost = []
    for i in range(len(held_out)):
        inputs, labels, weights = held_out[i]
        logits = np.asarray(model.predict_on_batch(inputs), "float64")
        logits -= logits.max(-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        log_p = np.take_along_axis(log_p, labels[..., None], -1)[..., 0]
        for row, column in np.argwhere(weights > 0):
            if column + 1 >= 5:  # the place of the token that is predicted
                lost.append(-log_p[row, column])
    expected = np.exp(np.mean(lost))
    found = scores["gmlp"]["window_perplexity"]
    assert found == pytest.approx(expected, rel=1e-4)


def test_heads_of_gmlp_and_of_attention():
    sizes = {**SIZES, "spatial_heads": 4, "num_heads": 2}
    for variant, heads in (("gmlp", 4), ("smlp", 4), ("transformer", 2)):
        backbone = causal_lm_models.build(variant, sizes, 256, "gmlp")
        assert backbone.num_heads == heads


@pytest.mark.parametrize("first", [0, 5])
def test_what_frequencies_alone_score(text, tmp_path, first):
    """From the text itself, every token but the very first asked for once."""
    prepared = causal_lm.prepare(settings(text, tmp_path / "run"))
    tokenizer = prepared.tokenizer
    streams = []
    for documents in (prepared.text.train, prepared.text.validation):
        ids = [tokenizer.encode([f" {d}"])[0].ids for d in documents]
        framed = [[tokenizer.cls_id, *i, tokenizer.sep_id] for i in ids]
        streams.append([token for ids in framed for token in ids][1:])
    train, held_out = streams
    size = tokenizer.vocabulary_size
    p = {t: train.count(t) + 1 for t in range(size)}
    del p[tokenizer.pad_id], p[tokenizer.mask_id]
    total = sum(p.values())
    asked = [t for i, t in enumerate(held_out) if i % 16 >= first]
    expected = np.exp(-np.mean([np.log(p[t] / total) for t in asked]))
    found = causal_lm.unigram_perplexity(prepared, first)
    assert found == pytest.approx(expected)


def test_choices_are_the_largest_sums(text, tmp_path):
    config = settings(text, tmp_path / "run", "gmlp", epochs=1)
    causal_lm.main(config)
    model = SMLPCausalLM.from_preset(tmp_path / "run" / "preset")
    long = "The cat sees the dog and runs. " * 9
    options = [
        [("The dog", "sees the cat."), ("The dog", "qq")],
        [("A", "x"), ("A", "the bird"), ("A", "and")],
        [(long, "runs."), (long, "and the mouse.")],
    ]
    labels = np.array([0, -1, 1], "int32")
    task = MultipleChoice("made", options, labels, ["a", "b", "c"])
    found = causal_lm_use.choose(model, task)
    assert found["cut"] == 1
    for answer, pairs in zip(found["answers"][:2], options):
        sums = model.score(*map(list, zip(*pairs)))["log_probability"]
        assert answer == sums.argmax()
    right = [found["answers"][0] == 0, found["answers"][2] == 1]
    assert found["accuracy"] == np.mean(right)
    assert found["chance"] == 0.5


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"models": ()}, "Name a model"),
        ({"models": ("smlp", "smlp")}, "named twice"),
        ({"models": ("gmlp", "smlp-partial")}, "begin the window there"),
        ({"num_sparse_blocks": 9}, "more sparse blocks"),
        ({"num_sparse_blocks": 0}, "there are no experts"),
        ({"capacity_factor": float("inf")}, "capacity_factor"),
        ({"num_experts": 0}, "num_experts"),
        ({"from_": "runs/x"}, "--generate or --zero-shot"),
    ],
)
def test_settings(text, tmp_path, changes, message):
    config = settings(text, tmp_path / "run", window=2)
    config.model = dataclasses.replace(config.model, **changes)
    with pytest.raises(ValueError, match=message):
        causal_lm.main(config)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "option", [{"max_length": 5}, {"top_k": 1}, {"temperature": 0.5}]
)
def test_what_is_for_writing_only(text, tmp_path, option):
    with pytest.raises(ValueError, match="is for --generate"):
        causal_lm.main(settings(text, tmp_path / "run", **option))


def test_questions_without_a_model():
    with pytest.raises(ValueError, match="which model"):
        causal_lm.main(Config(generate=("a",)))
    with pytest.raises(ValueError, match="no text to continue"):
        causal_lm.main(Config(generate=()))
    with pytest.raises(ValueError, match="trains nothing"):
        causal_lm.main(
            Config(training=Training(epochs=3), zero_shot=("x.jsonl",))
        )


def test_models_that_cannot_be_asked(text, tmp_path):
    """Weights that are no numbers, and a tokenizer of another run."""
    config = settings(text, tmp_path / "run", "gmlp", "transformer", epochs=1)
    causal_lm.main(config)
    place = tmp_path / "run" / "gmlp"
    ask = Config(model=Model(from_=str(place)), generate=("The cat",))
    own = (place / "preset" / "tokenizer.json").read_text()
    other = Tokenizer.train(["Something else, 1 2 3 4 5."] * 9, 280)
    other.save(place / "preset" / "tokenizer.json")
    with pytest.raises(ValueError, match="not the tokenizer that the model"):
        causal_lm.main(ask)
    (place / "preset" / "tokenizer.json").write_text(own)
    model = SMLPCausalLM.from_preset(place / "preset")
    model.trainable_weights[0].assign(
        np.full(model.trainable_weights[0].shape, np.nan)
    )
    shutil.rmtree(place / "preset")
    model.save_to_preset(place / "preset")
    with pytest.raises(ValueError, match="not finite"):
        causal_lm.main(ask)


def test_a_checkpoint_that_was_left_behind_goes(text, tmp_path):
    out = tmp_path / "run"
    causal_lm.main(settings(text, out, "gmlp", epochs=1))
    (out / "results.json").unlink()
    (out / "checkpoint-gmlp").mkdir()
    causal_lm.main(Config(resume=out))
    assert not (out / "checkpoint-gmlp").exists()
