"""A masked language model measured on text, and what it is measured against."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from mlp_mixers import data
from mlp_mixers.models import MaskedLM
from recipes import mlm
from recipes import mlm_models
from recipes import mlm_text
from recipes import mlm_use
from recipes import text_baseline
from recipes import text_corpus
from recipes import text_models
from recipes.mlm_settings import Config
from recipes.mlm_settings import Model
from recipes.mlm_settings import Text
from recipes.mlm_settings import Training
from recipes.mlm_settings import check
from recipes.records import from_record

ANIMALS = ("cat", "dog", "horse", "sheep", "goose", "mouse")
SIZES = {"num_layers": 1, "hidden_dim": 16, "intermediate_dim": 32}


def write_text(path, count, names=ANIMALS, seed=0):
    rng = np.random.default_rng(seed)
    documents = [
        " ".join(
            "The {} sees the {}, and then the {} runs away.".format(
                *rng.choice(names, 3)
            )
            for _ in range(4)
        )
        for _ in range(count)
    ]
    path.write_text("\n\n".join(documents))
    return f"text:{path}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of one epoch: its folder, its text, its results."""
    folder = tmp_path_factory.mktemp("mlm")
    text = write_text(folder / "animals.txt", 40)
    config = Config(
        Model(sequence_length=32, **SIZES),
        Text(text, validation_fraction=0.2),
        Training(epochs=1, batch_size=16, mask_rate=0.2),
        seed=1,
        out=folder / "run",
    )
    return folder / "run", text, mlm.main(config)


@pytest.fixture
def copied(trained, tmp_path):
    """A copy of the run, to be damaged."""
    return shutil.copytree(trained[0], tmp_path / "copied")


def measured(run, text=None, **others):
    """`(documents, notes and what it is)`, without measuring them."""
    config = Config(evaluate=str(run), text=text or Text(), **others)
    record = text_models.saved_run(run)
    tokenizer = text_models.tokenizer_in(text_models.find(run))
    saved = mlm_use.saved_settings(run, record)
    documents, what, notes = mlm_use.documents_for(
        config, saved, record, tokenizer
    )
    return documents, "; ".join([*notes, what])


def test_held_out_text_is_measured_as_it_was(trained, capsys):
    run, text, results = trained
    found = mlm.main(Config(evaluate=str(run)))
    for name in ("perplexity", "unigram_perplexity"):
        assert found[name] == pytest.approx(results[name], rel=1e-4)
    printed = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert f"{results['vocabulary_size']:,}, the vocabulary" in printed
    assert "20% of all; of these, 80% are <mask>" in printed

    split = data.load_text(text, validation_fraction=0.2, seed=1)
    for given in (Text(), Text(text)):
        documents, words = measured(run, given, seed=3)
        assert documents == split.validation
        assert "trained on" not in words
        assert "held-out text of" in words


def test_what_is_asked_for_wins_over_the_run_s(trained):
    """Of its own text, another share: some of it was trained on."""
    run, text, _ = trained
    split = data.load_text(text, validation_fraction=0.5, seed=1)
    documents, words = measured(run, Text(validation_fraction=0.5))
    assert documents == split.validation
    assert "stand in the text that the model was trained on" in words
    split = data.load_text(
        text, validation_fraction=0.2, seed=1, separator="file"
    )
    documents, words = measured(run, Text(separator="file"))
    assert documents == split.validation


def test_other_text_is_measured_whole(trained, tmp_path):
    run = trained[0]
    other = write_text(tmp_path / "other.txt", 6, ("fox", "owl"), seed=2)
    documents, words = measured(run, Text(other))
    assert documents == (tmp_path / "other.txt").read_text().split("\n\n")
    assert "all of it is measured, 6 documents" in words
    assert "for training" not in words
    assert "trained on" not in words
    # Unless a share is asked for.
    documents, _ = measured(run, Text(other, validation_fraction=0.5))
    split = data.load_text(other, validation_fraction=0.5)
    assert documents == split.validation


def test_text_that_the_run_has_seen_is_told(trained, tmp_path):
    """The first document of its own, in another file."""
    run, text, _ = trained
    split = data.load_text(text, validation_fraction=0.2, seed=1)
    new = ["Nobody has ever seen this sentence, nor will anybody again."] * 4
    path = tmp_path / "some.txt"
    path.write_text("\n\n".join([*split.train[:1], " ".join(new)]))
    _, words = measured(run, Text(f"text:{path}"))
    assert "50.0% of the longer sentences" in words
    assert text_corpus.share_seen(new, split.train) == 0
    assert text_corpus.share_seen(split.train, split.train) == 1
    assert text_corpus.share_seen(["See also: this."], split.train) == 0


def test_the_default_text_can_be_asked_for(trained, monkeypatch):
    read = {"topics": lambda: (["A topic."], [], [])}
    monkeypatch.setattr(text_corpus, "SOURCES", {**text_corpus.SOURCES, **read})
    documents, words = measured(trained[0], Text("topics"))
    assert documents == ["A topic."]
    assert words.endswith("topics")


def test_a_held_out_part_of_a_data_set_is_what_is_measured(monkeypatch):
    read = {"tfds": lambda name: (["seen"], [" not seen ", " "], ["a note"])}
    monkeypatch.setattr(text_corpus, "SOURCES", {**text_corpus.SOURCES, **read})
    documents, notes = text_corpus.load_whole(Text("tfds:made"))
    assert documents == ["not seen"]
    assert notes == [
        "a note",
        "tfds:made: its held-out part is measured, 1 document",
    ]
    with pytest.raises(ValueError, match="There is no such text: 'nowhere'"):
        text_corpus.load_whole(Text("nowhere"))


def test_an_option_of_another_kind_of_text(trained):
    run, text, _ = trained
    with pytest.raises(ValueError, match="the text of the run") as error:
        measured(run, Text(data_dir="somewhere"))
    assert f"Received: --data {text}" in str(error.value)


def test_masked_as_it_is_asked_for(trained):
    """Held-out rows, by the package alone."""
    run, text, _ = trained
    split = data.load_text(text, validation_fraction=0.2, seed=1)
    model = MaskedLM.from_preset(run / "preset")
    model.compile()
    packed = data.pack_documents(split.validation, model.tokenizer, 32)
    batches = data.MaskedLMBatches(
        *(packed, model.tokenizer, 16, 5),
        rate=0.4,
        whole_words=True,
        fixed=True,
    )
    scores = model.evaluate(batches, verbose=0, return_dict=True)
    training = Training(mask_rate=0.4, whole_words=True)
    found = mlm.main(Config(evaluate=str(run), training=training, seed=5))
    assert found["perplexity"] == pytest.approx(scores["perplexity"], rel=1e-4)
    assert found["mask_rate"] == 0.4


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (Config(training=Training(epochs=3)), "--epochs"),
        (Config(model=Model(num_layers=3)), "--num-layers"),
        (Config(text=Text(vocabulary_size=300)), "--vocabulary-size"),
        (Config(workers=2), "--workers"),
        (Config(training=Training("main")), "--recipe"),
    ],
)
def test_what_would_change_nothing_is_refused(config, name, trained):
    run = str(trained[0])
    config = dataclasses.replace(config, evaluate=run)
    with pytest.raises(ValueError, match=f"{name} would change nothing"):
        mlm.main(config)
    fill = Config(
        Model(from_=run), training=Training(mask_rate=0.5), fill=("a",)
    )
    with pytest.raises(ValueError, match="--mask-rate would change nothing"):
        mlm.main(fill)
    with pytest.raises(ValueError, match="There are no texts"):
        mlm.main(Config(Model(from_=run), fill=()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "bert"}, "without --model"),
        ({"model": "amlp"}, "without --model"),
        ({"preset": "gmlp_nano_en"}, "without --preset"),
        ({"num_layers": 5}, "has num_layers=1.*without --num-layers"),
        ({"hidden_dim": 32}, "without --hidden-dim"),
        ({"sequence_length": 64}, "has sequence_length=32"),
        ({"gate": "linear"}, "without --gate"),
        ({"attention_dim": 8}, "has attention_dim=None"),
    ],
)
def test_a_trained_model_stays_what_it_is(changes, message, trained, tmp_path):
    run, text, _ = trained
    config = Config(
        Model(from_=str(run), **changes), Text(text), out=tmp_path / "new"
    )
    with pytest.raises(ValueError, match=message) as error:
        mlm.main(config)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "new").exists()


def test_what_may_change_in_a_trained_model(trained):
    run = trained[0]
    asked = Model(
        from_=str(run), num_layers=1, dropout_rate=0.3, mask_padding=False
    )
    source = text_models.find(str(run))
    model = mlm_models.build(Config(asked), None, None, source)
    assert model.backbone.dropout_rate == 0.3
    assert not model.backbone.mask_padding


@pytest.mark.parametrize(
    "config",
    [
        Config(text=Text(vocabulary_size=0)),
        Config(model=Model(sequence_length=0)),
        Config(model=Model(attention_dim=0)),
        Config(seed=2**32),
        Config(seed=-1),
        Config(workers=0),
    ],
)
def test_nothing_is_a_number_too(config):
    with pytest.raises(ValueError, match="=0|seed="):
        check(config)


def test_a_tokenizer_that_is_not_the_model_s(copied, tmp_path):
    path = copied / "preset" / "tokenizer.json"
    data.Tokenizer.train(["entirely other words " * 9], 262).save(path)
    asked = Config(Model(from_=str(copied)), fill=("a <mask>",))
    other = Config(
        Model(from_=str(copied)), Text(write_text(tmp_path / "a.txt", 30))
    )
    for config in (asked, Config(evaluate=str(copied)), other):
        with pytest.raises(ValueError, match="not the tokenizer that"):
            mlm.main(config)
    path.unlink()
    for config in (asked, Config(evaluate=str(copied)), other):
        with pytest.raises(ValueError, match="has no tokenizer.json"):
            mlm.main(config)


def test_weights_that_are_not_finite(copied, tmp_path):
    model = MaskedLM.from_preset(copied / "preset")
    weights = model.get_weights()
    weights[0][0, 0] = np.nan
    model.set_weights(weights)
    model.save_to_preset(copied / "preset")
    for config in (
        Config(Model(from_=str(copied)), fill=("a <mask>",)),
        Config(evaluate=str(copied)),
        Config(
            Model(from_=str(copied)), Text(write_text(tmp_path / "a.txt", 30))
        ),
    ):
        with pytest.raises(ValueError, match="weights are not finite"):
            mlm.main(config)


def test_a_preset_without_its_run(trained, tmp_path, capsys):
    run, text, _ = trained
    preset = shutil.copytree(run / "preset", tmp_path / "alone")
    with pytest.raises(ValueError, match="name one to measure it on"):
        mlm.main(Config(evaluate=str(preset)))
    other = write_text(tmp_path / "other.txt", 6)
    found = mlm.main(Config(evaluate=str(preset), text=Text(other)))
    assert found["mask_rate"] == 0.15
    assert "may have seen some" in capsys.readouterr().out


def test_what_frequencies_alone_score():
    """By hand: c = 3, 1, 0 of three tokens, and what is masked is 4, 5, 6."""
    tokenizer = data.Tokenizer.train(["abc " * 20], 270)
    counts = np.zeros(7, int)
    counts[:4] = 99  # special ones are never masked
    counts[4:] = 3, 1, 0

    class Batches:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            labels = np.array([[4, 5, 0], [6, 0, 0]])[i : i + 1]
            weights = np.array([[1, 1, 0], [1, 0, 0]], "float32")[i : i + 1]
            return {}, labels, weights

    found = text_baseline.unigram_perplexity(
        Batches(), counts, tokenizer.special_ids
    )
    p = np.array([4, 2, 1]) / 7
    assert found == pytest.approx(np.exp(-np.log(p).mean()))


def test_frequencies_are_those_of_the_training_text(trained):
    run, text, results = trained
    split = data.load_text(text, validation_fraction=0.2, seed=1)
    tokenizer = MaskedLM.from_preset(run / "preset").tokenizer
    ids = data.pack_documents(split.train, tokenizer, 32).token_ids
    counts = np.load(run / "token_counts.npy")
    assert counts.tolist() == [
        int((ids == k).sum()) for k in range(tokenizer.vocabulary_size)
    ]
    assert 1 < results["unigram_perplexity"] < tokenizer.vocabulary_size


@pytest.mark.parametrize(
    ("part", "name", "value", "expected"),
    [
        ("training", "epochs", "three", "an integer or null"),
        ("training", "recipe", "huge", "'small' or 'ablation' or 'main'"),
        ("model", "num_layers", 1.5, "an integer or null"),
        ("text", "data", ["a"], "a text or null"),
        (None, "seed", "0", "an integer"),
        (None, "seed", True, "an integer"),
    ],
)
def test_a_record_with_wrong_types(part, name, value, expected, trained):
    record = json.loads((trained[0] / "config.json").read_text())
    assert from_record(Config, record).seed == 1
    (record[part] if part else record)[name] = value
    message = f"`{name}` must be {expected}. Received: {name}={value!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        from_record(Config, record)


def test_one_of_each_is_counted_in_the_singular(trained):
    model = MaskedLM.from_preset(trained[0] / "preset")
    packed = data.pack_documents(["a"], model.tokenizer, 32)
    found = mlm_text.described(packed)
    assert found.startswith("1 document, 1 sentence (0 cut), 1 character, 1 ")
    assert "1 row of 32" in found


def test_why_another_share_is_held_out(tmp_path):
    """Four equal documents: a quarter is the least that can be."""
    path = tmp_path / "four.txt"
    path.write_text("\n\n".join(letter * 50 for letter in "abcd"))
    notes = text_corpus.load(Text(f"text:{path}"), 0).notes
    assert any("25.0% are held out, not 10.0%" in note for note in notes)
    path.write_text("\n\n".join(chr(97 + i) * 50 for i in range(10)))
    notes = text_corpus.load(Text(f"text:{path}"), 0).notes
    assert not any("are held out" in note for note in notes)
