"""Causal language models from text to answers, in small."""

import contextlib
import dataclasses
import inspect
import io
import json
import shutil

import numpy as np
import pytest

from mlp_mixers.analysis import count_flops
from mlp_mixers.data import MultipleChoice
from mlp_mixers.data import Tokenizer
from mlp_mixers.data import load_text
from mlp_mixers.models import SMLPCausalLM
from recipes import causal_lm
from recipes import causal_lm_models
from recipes import causal_lm_settings
from recipes import causal_lm_use
from recipes import mlm
from recipes import text_corpus
from recipes.causal_lm_settings import Config
from recipes.causal_lm_settings import Model
from recipes.causal_lm_settings import Training
from recipes.mlm_settings import Config as MLMConfig
from recipes.text_settings import Text

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
    gmlp = count_flops(causal_lm_models.build("gmlp", SIZES, 8)).macs
    switch = count_flops(causal_lm_models.build("switch", SIZES, 2)).macs
    message = (
        f"gmlp costs {gmlp:,} multiply-adds a row, switch already {switch:,} "
        "with the smallest width, 2. Choose a larger --intermediate-dim.*"
        "Received: hidden_dim=16, num_experts=2"
    )
    with pytest.raises(ValueError, match=message):
        causal_lm_models.build("switch", SIZES, 8, "gmlp")


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """A run of two models: its folder, its results, what it has printed."""
    out = tmp_path_factory.mktemp("trained") / "run"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        results = causal_lm.main(settings(text, out, "smlp", "hash"))
    return out, results, printed.getvalue()


def test_from_text_to_answers(trained, tmp_path, capsys):
    out, results, printed = trained
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
    line = f"perplexity is {results['unigram_perplexity']:.2f}"
    again = capsys.readouterr().out
    for words in (line, "idlest expert", "dropped", "accuracy"):
        assert words in printed
        assert words in again


def test_what_is_told_of_experts(trained, capsys):
    _, results, _ = trained
    scores = results["models"]["hash"]
    ((layer, load),) = scores["load"].items()
    assert scores["drop_rate"].keys() == {layer}
    causal_lm.report_experts(results["models"])
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:5]]
        for cells in (
            line.split("│") for line in capsys.readouterr().out.split("\n")
        )
        if len(cells) == 6
    }
    assert rows["hash"] == [
        f"{2 * max(load):.2f}",
        f"{2 * min(load):.2f}",
        f"{scores['drop_rate'][layer]:.1%}",
    ]
    # Dense models, and a run of an older version.
    causal_lm.report_experts({"gmlp": {"load": None}})
    assert capsys.readouterr().out == ""
    causal_lm.report_experts({"hash": {"load": {layer: load}}})
    assert "unknown" in capsys.readouterr().out


def test_a_saved_model_is_measured(trained, text, capsys):
    out, results, _ = trained
    found = causal_lm.main(Config(evaluate=str(out / "hash")))
    scores = results["models"]["hash"]
    for name in ("perplexity", "accuracy"):
        assert found[name] == pytest.approx(scores[name], rel=1e-4)
    expected = results["unigram_perplexity"]
    assert found["unigram_perplexity"] == pytest.approx(expected)
    assert found["rows"] == results["held_out_rows"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "held-out text of text:" in printed
    assert "trained on" not in printed
    # The same by its preset, from a token of a row on: fewer of them count.
    found = causal_lm.main(
        Config(evaluate=str(out / "hash" / "preset"), window=15)
    )
    assert found["perplexity"] == pytest.approx(scores["perplexity"], rel=1e-4)
    assert found["window"] == 15
    assert found["window_perplexity"] != found["perplexity"]


def test_a_model_is_measured_on_other_text(trained, text, tmp_path, capsys):
    """As `fit` would measure it on all of these documents."""
    out, _, _ = trained
    documents = ["The fox sees the owl and hides."] * 5
    (tmp_path / "other.txt").write_text("\n\n".join(documents))
    other = Text(f"text:{tmp_path / 'other.txt'}")
    found = causal_lm.main(Config(evaluate=str(out / "smlp"), text=other))
    model = SMLPCausalLM.from_preset(out / "smlp" / "preset")
    model.compile()
    expected = model.evaluate(documents, verbose=0, return_dict=True)
    assert found["perplexity"] == pytest.approx(
        expected["perplexity"], rel=1e-4
    )
    assert "all of it is measured, 5 documents" in capsys.readouterr().out
    # What it was trained on is told.
    seen = load_text(f"text:{text}", validation_fraction=0.1, seed=0).train
    (tmp_path / "other.txt").write_text(
        "\n\n".join(f"{a} {b}" for a, b in zip(seen[:4], seen[4:8]))
    )
    causal_lm.main(Config(evaluate=str(out / "smlp"), text=other))
    printed = " ".join(capsys.readouterr().out.split())
    long = [s for s in seen[:8] if len(s) >= text_corpus.LONG]
    assert ("100.0% of the longer sentences" in printed) == bool(long)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": Model(from_="runs/x")}, "without --from"),
        ({"training": Training(epochs=3)}, "--epochs would change nothing"),
        ({"model": Model(num_layers=3)}, "--num-layers would change nothing"),
        ({"window": 99}, "tokens 1 to 16 of a row"),
        ({"training": Training(batch_size=0)}, "batch_size=0"),
    ],
)
def test_what_cannot_be_measured(trained, changes, message):
    config = Config(evaluate=str(trained[0] / "hash"), **changes)
    with pytest.raises(ValueError, match=message):
        causal_lm.main(config)


def test_several_models_are_measured_one_by_one(trained):
    with pytest.raises(ValueError, match=r"Name one: .*hash, .*smlp"):
        causal_lm.main(Config(evaluate=str(trained[0])))


def test_a_run_of_another_recipe_is_not_measured(trained):
    with pytest.raises(ValueError, match="python -m recipes.causal_lm --eval"):
        mlm.main(MLMConfig(evaluate=str(trained[0] / "hash")))


def test_questions_without_labels_are_answered(trained, tmp_path, capsys):
    model = str(trained[0] / "smlp")
    long = "The cat sees the dog and runs. " * 9
    records = [
        {"prompt": "The cat sees", "choices": ["z\tz", "the dog"]},
        {"sentence": "The _ runs.", "option1": "q", "option2": "dog"},
        {"prompt": long, "choices": ["runs.", "and the mouse."]},
    ]
    path = tmp_path / "open.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    found = causal_lm.main(
        Config(model=Model(from_=model), zero_shot=(str(path),))
    )["open"]
    assert "accuracy" not in found
    printed = " ".join(capsys.readouterr().out.split())
    assert "no labels" in printed
    assert "1 of 3 questions of open did not fit in 16 tokens" in printed
    assert "by token" not in printed
    written = (trained[0] / "smlp" / "choices_open.tsv").read_text()
    head, *lines = [line.split("\t") for line in written.split("\n")[:-1]]
    assert head == ["id", "choice", "answer", "choice_by_token"]
    assert [line[0] for line in lines] == ["0", "1", "2"]
    assert [int(line[1]) for line in lines] == found["answers"]
    assert [int(line[3]) for line in lines] == found["answers_by_token"]
    assert lines[0][2] == ("z z", "the dog")[found["answers"][0]]
    assert lines[1][2] == f"The {('q', 'dog')[found['answers'][1]]} runs."


def test_choices_that_cannot_be_written_are_told(tmp_path, capsys):
    options = [[("A cat", "runs."), ("A cat", "sleeps.")]]
    task = MultipleChoice("made", options, None, ["a"])
    scores = {"answers": [1], "answers_by_token": [0]}
    path = tmp_path / "nowhere" / "choices.tsv"
    causal_lm_use.write_choices(path, task, scores)
    assert "could not be written" in capsys.readouterr().out
    causal_lm_use.write_choices(tmp_path / "choices.tsv", task, scores)
    assert "all of them are in" in capsys.readouterr().out
    written = (tmp_path / "choices.tsv").read_text().split("\n")
    assert written[1:] == ["a\t1\tsleeps.\t0", ""]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat\n\nruns.\n", "The cat\n\nruns.\n\n"),
        ("The cat" + "\n" * 57 + "runs", "The cat\n[57 line ends]\nruns\n\n"),
        ("The cat" + " \n" * 9, "The cat\n[9 line ends]\n\n"),
        ("the [b]cat " + "sees " * 30, "the [b]cat " + "sees " * 30 + "\n\n"),
    ],
)
def test_texts_are_printed_as_they_are(text, expected, capsys):
    causal_lm_use.show_text("The", text)
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("router", ["base", "switch", "top_two", "hash"])
def test_a_router_for_the_experts_of_an_all_mlp(router):
    asked = {"router": router, "z_loss_weight": 0.5}
    backbone = causal_lm_models.build("smlp", {**SIZES, **asked}, 64)
    name = {"top_two": "TopTwoRouter"}.get(router, f"{router.title()}Router")
    experts = backbone.blocks[backbone.sparse_blocks[0]].token_experts
    assert type(experts.router).__name__ == name
    weights = experts.router.loss_weights
    with_losses = router in ("switch", "top_two")
    assert weights.get("z_loss") == (0.5 if with_losses else None)
    assert weights.get("balance_loss") == (0.01 if with_losses else None)
    for variant in ("gmlp", "transformer", "gshard"):  # have their own
        own = causal_lm_models.build(variant, SIZES, 64).get_config()
        other = causal_lm_models.build(variant, {**SIZES, "router": router}, 64)
        assert other.num_sparse_blocks == own["num_sparse_blocks"]
        if other.num_sparse_blocks:
            found = other.router
            assert type(found).__name__ == "TopTwoRouter"


def test_weights_of_losses_reach_their_layers():
    asked = {"balance_loss_weight": 0.25}
    partial = causal_lm_models.build("smlp-partial", {**SIZES, **asked}, 64)
    assert partial.balance_loss_weight == 0.25
    switch = causal_lm_models.build("switch", {**SIZES, **asked}, 64, "gmlp")
    assert switch.router.loss_weights == {"balance_loss": 0.25, "z_loss": 0.0}


def test_what_is_not_asked_for_is_as_before():
    """New settings leave sizes, and what a run goes on by, as they were."""
    new = dict.fromkeys(causal_lm.LATER_SETTINGS)
    for variant in causal_lm_models.VARIANTS:
        found = causal_lm_models.arguments_of(variant, {**SIZES, **new})
        assert found == causal_lm_models.arguments_of(variant, SIZES)
    names = causal_lm.settings_of_training(Config())
    assert not {*new, "evaluate", "generate"} & names.keys()
    config = Config(model=Model(router="hash"))
    assert causal_lm.settings_of_training(config)["router"] == "hash"


def test_help_says_what_the_recipe_says():
    told = inspect.getsource(causal_lm_settings.Training)
    told = " ".join(told.split())
    for name, value in causal_lm_settings.RECIPES["small"].items():
        word = {"warmup_fraction": "warm-up fraction"}.get(name)
        word = word or name.replace("_", " ")
        if name == "epochs":
            assert f"{value} epochs," in told
        elif value is not None:
            assert f"{word} {value:g}" in told
    first = causal_lm.__doc__
    values = causal_lm_settings.RECIPES["small"]
    assert f"read {values['epochs']} times" in first
    assert f"batches of {values['batch_size']} rows" in first
    assert f"learning rate of {values['learning_rate']:g} at most" in first
    assert f"{Model().sequence_length} tokens" in first


@pytest.mark.each
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


def test_choices_are_the_largest_sums(trained):
    model = SMLPCausalLM.from_preset(trained[0] / "smlp" / "preset")
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
    for i, pairs in enumerate(options[:2]):
        scored = model.score(*map(list, zip(*pairs)))
        sums = scored["log_probability"]
        assert found["answers"][i] == sums.argmax()
        means = sums / scored["tokens"]
        assert found["answers_by_token"][i] == means.argmax()
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
        ({"router": "hash", "models": ("gmlp",)}, "--router is for smlp"),
        ({"z_loss_weight": 0.1}, "--z-loss-weight is for switch and top_two"),
        ({"balance_loss_weight": 0.1}, "--balance-loss-weight is for"),
        ({"z_loss_weight": -1.0}, "z_loss_weight=-1"),
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


def test_models_that_cannot_be_asked(trained, tmp_path):
    """Weights that are no numbers, and a tokenizer of another run."""
    place = shutil.copytree(trained[0], tmp_path / "run") / "smlp"
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
