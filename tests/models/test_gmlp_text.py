import json

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.data.tokenizer import Tokenizer
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPSpanPredictor
from mlp_mixers.models import GMLPTextBackbone
from mlp_mixers.models import GMLPTextClassifier
from mlp_mixers.models import MaskedLM
from mlp_mixers.models import TextClassifier
from tests.cases import TEXT_VOCABULARY
from tests.cases import gmlp_nano
from tests.cases import gmlp_text_nano
from tests.cases import randomize

# --- sizes ---------------------------------------------------------------


def backbone_size(layers, d, f, n, attention=None, vocabulary=32_000):
    """Parameters of a text backbone, by the paper's parts.

    Embedding, blocks (U, V, two norms, 2n - 1 Toeplitz values and n biases),
    one more norm; tied, so that the masked language model adds none.
    """
    h = f // 2
    block = (d * f + f) + (h * d + d) + 2 * d + f + (2 * n - 1) + n
    if attention:
        block += (d * 3 * attention + 3 * attention) + (attention * h + h)
    return vocabulary * d + layers * block + 2 * d


# The paper's nine language models: Table 5 at n = 512, Table 4 at n = 128.
PAPER = {
    "gmlp_base_en": ((48, 512, 3072, 512), 130_073_552),
    "amlp_base_en": ((36, 512, 3072, 512, 64), 108_791_516),
    "gmlp_large_en": ((96, 768, 3072, 512), 365_274_528),
    "amlp_large_en": ((72, 768, 3072, 512, 128), 315_627_960),
    "gmlp_xlarge_en": ((144, 1024, 4096, 512), 940_582_768),
    18: ((18, 512, 3072, 128), 58_997_486),
    36: ((36, 512, 3072, 128), 101_609_948),
    72: ((72, 512, 3072, 128), 186_834_872),
    144: ((144, 512, 3072, 128), 357_284_720),
}


@pytest.mark.parametrize("name", PAPER)
def test_paper_sizes_by_arithmetic(name):
    sizes, expected = PAPER[name]
    assert backbone_size(*sizes) == expected


@pytest.mark.parametrize("name", [k for k in PAPER if isinstance(k, str)])
def test_presets_have_the_paper_s_sizes(name):
    preset = GMLPTextBackbone.presets[name]
    config, (sizes, expected) = preset["config"], PAPER[name]
    assert preset["parameters"] == expected
    assert config["vocabulary_size"] == 32_000
    found = (
        *(config["num_layers"], config["hidden_dim"]),
        *(config["intermediate_dim"], config["sequence_length"]),
    )
    if "attention_dim" in config:
        found = (*found, config["attention_dim"])
    assert found == sizes


@pytest.mark.parametrize("attention", [None, 5])
def test_arithmetic_is_that_of_real_builds(attention):
    model = GMLPMaskedLM(
        GMLPTextBackbone(
            vocabulary_size=50,
            sequence_length=9,
            num_layers=3,
            hidden_dim=6,
            intermediate_dim=16,
            attention_dim=attention,
        )
    )
    expected = backbone_size(3, 6, 16, 9, attention, vocabulary=50)
    assert model.count_params() == model.backbone.count_params() == expected


@pytest.mark.parametrize("name", ["gmlp_nano_en", "amlp_nano_en"])
def test_nano_presets_have_the_sizes_they_state(name):
    backbone = GMLPTextBackbone.from_preset(name, load_weights=False)
    stated = GMLPTextBackbone.presets[name]["parameters"]
    assert backbone.count_params() == stated


@pytest.mark.slow
def test_a_big_preset_has_the_size_it_states():
    model = GMLPMaskedLM.from_preset("amlp_base_en", load_weights=False)
    assert model.count_params() == 108_791_516


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        # n = 6 tokens, 2 blocks: n² - (2n - 1) values more in each
        ({"toeplitz": False}, 2 * (36 - 11)),
        ({"gate": "multiplicative"}, 2 * (6 * 8 + 12)),
        ({"gate": "linear"}, 2 * (6 * 8 + 12)),
        ({"gate": "additive"}, 2 * (6 * 8 + 12)),
        ({"num_heads": 2}, 2 * (11 + 6)),
        ({"mask_padding": False}, 0),
        ({"causal": True}, -2 * 5),
    ],
)
def test_options_cost_what_they_should(changes, difference):
    plain, changed = gmlp_text_nano(), gmlp_text_nano(**changes)
    assert changed.count_params() == plain.count_params() + difference


# --- inputs --------------------------------------------------------------


def inputs(rng, batch=3, length=6):
    return {
        "token_ids": rng.integers(0, TEXT_VOCABULARY, (batch, length), "int32"),
        "padding_mask": np.ones((batch, length), "int32"),
    }


def run(model, x):
    return ops.convert_to_numpy(model(x, training=False))


@pytest.mark.parametrize("attention_dim", [None, 4])
@pytest.mark.parametrize("toeplitz", [True, False])
def test_padding_is_inert(rng, attention_dim, toeplitz):
    backbone = randomize(
        gmlp_text_nano(attention_dim=attention_dim, toeplitz=toeplitz), rng
    )
    x = inputs(rng)
    x["padding_mask"][:, 4:] = 0
    others = {**x, "token_ids": x["token_ids"].copy()}
    others["token_ids"][:, 4:] = (x["token_ids"][:, 4:] + 3) % TEXT_VOCABULARY
    short = {name: array[:, :4] for name, array in x.items()}
    first = run(backbone, x)[:, :4]
    np.testing.assert_allclose(run(backbone, others)[:, :4], first, atol=1e-6)
    # And as if it were not there at all.
    np.testing.assert_allclose(run(backbone, short), first, atol=1e-5)


def test_without_a_mask_padding_is_read_as_in_the_paper(rng):
    backbone = randomize(gmlp_text_nano(mask_padding=False), rng)
    x = inputs(rng)
    unmasked = run(backbone, x)
    x["padding_mask"][:, 4:] = 0
    np.testing.assert_array_equal(run(backbone, x), unmasked)
    x["token_ids"][:, 4:] = (x["token_ids"][:, 4:] + 3) % TEXT_VOCABULARY
    assert abs(run(backbone, x) - unmasked)[:, :4].max() > 1e-3


def test_causal_models_look_back_only(rng):
    backbone = randomize(gmlp_text_nano(causal=True, attention_dim=4), rng)
    x = inputs(rng)
    changed = {**x, "token_ids": x["token_ids"].copy()}
    changed["token_ids"][:, 3:] = (changed["token_ids"][:, 3:] + 1) % 11
    difference = abs(run(backbone, changed) - run(backbone, x))
    assert difference[:, :3].max() < 1e-6
    assert difference[:, 3:].max() > 1e-3


def test_too_long_inputs_are_refused(rng):
    with pytest.raises(ValueError, match="cannot take more"):
        gmlp_text_nano()(inputs(rng, length=7))


def test_toeplitz_weights_depend_on_distance(rng):
    """The same text, one place to the right, inside of a window of padding."""
    backbone = randomize(gmlp_text_nano(num_layers=1), rng)
    for block in backbone.blocks:  # b belongs to places, not to distances
        block.gating_unit.spatial_bias.assign(np.full((1, 6), 0.7))
    ids = np.array([[1, 2, 3, 4, 0, 0], [0, 1, 2, 3, 4, 0]], "int32")
    mask = np.array([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]], "int32")
    y = run(backbone, {"token_ids": ids, "padding_mask": mask})
    np.testing.assert_allclose(y[0, :4], y[1, 1:5], atol=1e-5)


def test_dropout_reaches_embedding_blocks_and_attention():
    backbone = gmlp_text_nano(
        attention_dim=4, dropout_rate=0.2, attention_dropout_rate=0.3
    )
    assert backbone.embedding_dropout.rate == 0.2
    for block in backbone.blocks:
        assert block.dropout.rate == 0.2
        assert block.attention.dropout.rate == 0.3


def test_embeddings_start_as_bert_s(rng):
    backbone = gmlp_text_nano(vocabulary_size=3000)
    values = ops.convert_to_numpy(backbone.token_embedding.embeddings)
    # A truncated normal keeps 0.88 of the standard deviation it is cut from.
    assert abs(values.std() - 0.88 * 0.02) < 5e-4
    assert abs(values).max() <= 0.04


# --- masked language model -----------------------------------------------


def masked_inputs(rng):
    x = inputs(rng)
    x["mask_positions"] = np.array([[1, 4], [0, 0], [5, 2]], "int32")
    return x


def test_logits_are_features_times_the_embedding(rng):
    model = randomize(GMLPMaskedLM(gmlp_text_nano()), rng)
    x = masked_inputs(rng)
    features = run(
        model.backbone, {k: x[k] for k in ("token_ids", "padding_mask")}
    )
    embedding = ops.convert_to_numpy(model.backbone.token_embedding.embeddings)
    expected = np.stack(
        [
            features[i, p] @ embedding.T
            for i, p in enumerate(x["mask_positions"])
        ]
    )
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-4, atol=1e-5)


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_loss_and_perplexity_are_those_of_the_masked_tokens(rng):
    model = randomize(GMLPMaskedLM(gmlp_text_nano()), rng)
    x = masked_inputs(rng)
    labels = rng.integers(0, TEXT_VOCABULARY, (3, 2), "int32")
    weights = np.array([[1, 1], [0, 0], [1, 0]], "float32")
    chosen = np.take_along_axis(
        log_softmax(run(model, x).astype("float64")), labels[..., None], -1
    )[..., 0]
    mean = -(weights * chosen).sum() / weights.sum()
    model.compile()
    scores = model.evaluate(
        x, labels, sample_weight=weights, verbose=0, return_dict=True
    )
    assert scores["loss"] == pytest.approx(mean, rel=1e-4)
    assert scores["perplexity"] == pytest.approx(np.exp(mean), rel=1e-4)
    best = run(model, x).argmax(-1) == labels
    assert scores["accuracy"] == pytest.approx(
        (weights * best).sum() / weights.sum()
    )


TEXTS = [
    "The cat sat on the mat. The dog sat on the rug.",
    "The dog ate the bone. The cat ate the fish.",
    "The cat sees the dog, and the dog sees the cat.",
] * 4


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS, 300)


def text_backbone(**changes):
    sizes = {
        "vocabulary_size": 300,
        "sequence_length": 16,
        "num_layers": 1,
        "hidden_dim": 16,
        "intermediate_dim": 32,
    }
    return GMLPTextBackbone(**{**sizes, **changes})


@pytest.fixture(scope="module")
def trained(tokenizer):
    keras.utils.set_random_seed(0)
    model = GMLPMaskedLM(text_backbone(), tokenizer=tokenizer)
    model.compile(keras.optimizers.Adam(0.02))
    history = model.fit(TEXTS, batch_size=4, epochs=40, verbose=0).history
    return model, history


def test_it_learns_from_raw_text(trained):
    model, history = trained
    assert history["perplexity"][0] > 100
    assert history["perplexity"][-1] < 30
    first = model.evaluate(TEXTS[:3], verbose=0, return_dict=True)
    again = model.evaluate(TEXTS[:3], verbose=0, return_dict=True)
    assert first == again  # masked once and for all
    assert np.isfinite(first["perplexity"])


def test_fill_mask(trained, tokenizer):
    model, _ = trained
    text = "The cat <mask> on the mat."
    candidates = model.fill_mask(text, top_k=3)
    assert len(candidates) == 3
    assert candidates[0].probability >= candidates[1].probability
    for candidate in candidates:
        assert candidate.token == tokenizer.token(candidate.token_id)
        assert candidate.text == text.replace(" <mask>", candidate.token)
    # By the logits themselves.
    logits = model.predict([text], verbose=0)[0, 0, : tokenizer.vocabulary_size]
    logits[:4] = -np.inf
    assert candidates[0].token_id == logits.argmax()
    assert candidates[0].probability == pytest.approx(
        np.exp(log_softmax(logits)).max(), rel=1e-4
    )


def test_fill_mask_of_several(trained):
    model, _ = trained
    two = model.fill_mask("The <mask> ate the <mask>.", top_k=2)
    assert [len(candidates) for candidates in two] == [2, 2]
    assert two[0][0].text.endswith(" <mask>.")
    assert two[1][0].text.startswith("The <mask> ate")
    many = model.fill_mask(["The <mask>", "<mask> cat"], top_k=1)
    assert [len(candidates) for candidates in many] == [1, 1]


def test_mask_tokens_are_no_answers(trained):
    model, _ = trained
    everything = model.fill_mask("The <mask>", top_k=400)
    ids = {candidate.token_id for candidate in everything}
    assert not ids & {0, 1, 2, 3}
    assert sum(c.probability for c in everything) == pytest.approx(1, abs=1e-4)


# --- text in, anything out -----------------------------------------------


def test_a_preset_keeps_the_tokenizer(trained, tmp_path):
    model, _ = trained
    model.save_to_preset(tmp_path)
    again = MaskedLM.from_preset(tmp_path)
    assert isinstance(again, GMLPMaskedLM)
    assert again.tokenizer == model.tokenizer
    text = "The <mask> ate."
    for one, other in zip(again.fill_mask(text), model.fill_mask(text)):
        assert (one.token_id, one.text) == (other.token_id, other.text)
        assert one.probability == pytest.approx(other.probability, rel=1e-4)


def test_a_keras_file_keeps_the_tokenizer(trained, tmp_path):
    model, _ = trained
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.tokenizer == model.tokenizer


def test_other_tasks_start_from_a_masked_language_model(trained, tmp_path):
    model, _ = trained
    model.save_to_preset(tmp_path)
    classifier = GMLPTextClassifier.from_preset(
        tmp_path, num_classes=2, dropout_rate=0.1
    )
    span = GMLPSpanPredictor.from_preset(tmp_path)
    for task in (classifier, span):
        assert task.tokenizer == model.tokenizer
        for one, other in zip(task.backbone.weights, model.backbone.weights):
            np.testing.assert_array_equal(
                ops.convert_to_numpy(one), ops.convert_to_numpy(other)
            )
    with pytest.raises(ValueError, match="`num_classes` must be given"):
        GMLPTextClassifier.from_preset(tmp_path)
    with pytest.raises(ValueError, match="needs a GMLPBackbone. Call"):
        GMLPImageClassifier.from_preset(tmp_path, num_classes=2)


def test_a_classifier_takes_texts_and_pairs(tokenizer, tmp_path):
    model = GMLPTextClassifier(text_backbone(), 2, tokenizer=tokenizer)
    model.compile(keras.optimizers.SGD(0.01))
    model.fit(TEXTS[:4], [0, 1, 0, 1], verbose=0)
    pairs = (TEXTS[:4], TEXTS[1:5])
    model.fit(
        pairs, [0, 1, 0, 1], validation_data=(pairs, [0, 1, 0, 1]), verbose=0
    )
    scores = model.evaluate(pairs, [0, 1, 0, 1], verbose=0, return_dict=True)
    assert set(scores) == {"loss", "accuracy"}
    logits = model.predict(TEXTS[:3], verbose=0)
    assert logits.shape == (3, 2)
    arrays = model.encode(TEXTS[:3])
    np.testing.assert_array_equal(model.predict(arrays, verbose=0), logits)
    model.save_to_preset(tmp_path)
    again = GMLPTextClassifier.from_preset(tmp_path)
    np.testing.assert_allclose(
        again.predict(TEXTS[:3], verbose=0), logits, rtol=1e-5, atol=1e-6
    )


def test_classes_have_names(tokenizer, tmp_path):
    backbone = text_backbone()
    names = ["bad", "fair", "good"]
    model = GMLPTextClassifier(
        backbone, 3, tokenizer=tokenizer, class_names=names
    )
    logits = model.predict(TEXTS[:2], verbose=0).astype("float64")
    probabilities = np.exp(log_softmax(logits))
    found = model.classify(TEXTS[:2])
    for answer, row in zip(found, probabilities):
        expected = sorted(zip(row, names), reverse=True)
        assert [name for name, _ in answer] == [name for _, name in expected]
        assert [p for _, p in answer] == pytest.approx(
            [p for p, _ in expected], rel=1e-4
        )
    assert [n for n, _ in model.classify(TEXTS[0])] == [n for n, _ in found[0]]
    assert len(model.classify((TEXTS[:2], TEXTS[2:4]))) == 2
    # A head with a softmax says probabilities already; without names there
    # are numbers.
    softmax = GMLPTextClassifier(
        backbone, 3, activation="softmax", tokenizer=tokenizer
    )
    softmax.head.set_weights(model.head.get_weights())
    numbers = softmax.classify(TEXTS[0])
    assert [(names[k], pytest.approx(p)) for k, p in numbers] == found[0]
    # The names come back with the head that they belong to.
    model.save_to_preset(tmp_path / "preset")
    assert TextClassifier.from_preset(tmp_path / "preset").class_names == names
    other = TextClassifier.from_preset(tmp_path / "preset", num_classes=2)
    assert other.class_names is None
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.class_names == names


def test_names_that_the_recipe_wrote(tokenizer, tmp_path):
    model = GMLPTextClassifier(text_backbone(), 2, tokenizer=tokenizer)
    model.save_to_preset(tmp_path)
    labels = tmp_path / "labels.json"
    labels.write_text(json.dumps({"kind": "x", "class_names": ["no", "yes"]}))
    named = GMLPTextClassifier.from_preset(tmp_path)
    assert named.class_names == ["no", "yes"]
    three = GMLPTextClassifier.from_preset(tmp_path, num_classes=3)
    assert three.class_names is None
    own = GMLPTextClassifier.from_preset(tmp_path, class_names=["a", "b"])
    assert own.class_names == ["a", "b"]
    # They stay beside a model that has them, and beside no other.
    named.save_to_preset(tmp_path)
    assert labels.exists()
    model.save_to_preset(tmp_path)
    assert not labels.exists()
    assert GMLPTextClassifier.from_preset(tmp_path).class_names is None
    labels.write_text("{")
    with pytest.raises(ValueError, match="labels.json is damaged"):
        GMLPTextClassifier.from_preset(tmp_path)
    model.save_to_preset(tmp_path)  # which repairs it
    assert not labels.exists()


def test_the_folder_of_a_run_is_as_good_as_its_preset(trained, tmp_path):
    model, _ = trained
    model.save_to_preset(tmp_path / "run" / "preset")
    (tmp_path / "run" / "config.json").write_text('{"training": {}}')
    again = GMLPMaskedLM.from_preset(tmp_path / "run")
    assert again.tokenizer == model.tokenizer
    for one, other in zip(again.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, other)
    classifier = GMLPTextClassifier.from_preset(
        str(tmp_path / "run"), num_classes=2
    )
    assert classifier.tokenizer == model.tokenizer
    GMLPTextBackbone.from_preset(tmp_path / "run")
    (tmp_path / "fresh").mkdir()
    (tmp_path / "fresh" / "config.json").write_text('{"training": {}}')
    with pytest.raises(ValueError, match="a run, it has not finished"):
        GMLPMaskedLM.from_preset(tmp_path / "fresh")


def test_one_output_is_a_number(tokenizer):
    model = GMLPTextClassifier(text_backbone(), 1, tokenizer=tokenizer)
    model.compile(keras.optimizers.SGD(0.01))
    model.fit(TEXTS[:4], [0.5, 1.5, 2.5, 3.5], verbose=0)
    scores = model.evaluate(TEXTS[:2], [0.5, 1.0], verbose=0, return_dict=True)
    predicted = model.predict(TEXTS[:2], verbose=0)[:, 0]
    expected = np.mean((predicted - [0.5, 1.0]) ** 2)
    assert scores["loss"] == pytest.approx(expected, rel=1e-4)


def test_a_classifier_reads_the_first_token_alone(rng):
    model = randomize(GMLPTextClassifier(gmlp_text_nano(), 3), rng)
    x = inputs(rng)
    features = run(model.backbone, x)[:, 0]
    kernel, bias = (ops.convert_to_numpy(w) for w in model.head.weights)
    np.testing.assert_allclose(
        run(model, x), features @ kernel + bias, rtol=1e-4, atol=1e-5
    )


def test_spans(tokenizer, rng):
    model = GMLPSpanPredictor(text_backbone(), tokenizer=tokenizer)
    questions = ["What sat?", "What ate?"]
    contexts = ["The cat sat on the mat. " * 4, "The dog ate the bone."]
    answers = model.predict((questions, contexts), verbose=0)
    for answer, context in zip(answers, contexts):
        assert answer
        assert answer in context
    x = inputs(rng)
    x["padding_mask"][:, 4:] = 0
    small = randomize(GMLPSpanPredictor(gmlp_text_nano()), rng)
    logits = run(small, x)
    assert logits.shape == (3, 2, 6)
    assert (logits[:, :, 4:] < -1e8).all()
    assert (abs(logits[:, :, :4]) < 1e3).all()
    # A label a side, and a loss that padding does not touch.
    small.compile()
    labels = rng.integers(0, 4, (3, 2))
    chosen = np.take_along_axis(log_softmax(logits), labels[..., None], -1)
    loss = small.evaluate(x, labels, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(-chosen.mean(), rel=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: GMLPMaskedLM(gmlp_nano()), "must be a GMLPTextBackbone"),
        (
            lambda t: GMLPMaskedLM(gmlp_text_nano(), tokenizer=t),
            "more tokens than the backbone",
        ),
        (
            lambda t: GMLPMaskedLM(text_backbone(), tokenizer="bert"),
            "must be a `mlp_mixers.data.Tokenizer`",
        ),
        (
            lambda t: GMLPMaskedLM(text_backbone()).fill_mask("a <mask>"),
            "has no tokenizer",
        ),
        (
            lambda t: GMLPTextClassifier(text_backbone(), 2).predict(["a"]),
            "has no tokenizer",
        ),
        (
            lambda t: GMLPMaskedLM(text_backbone(), tokenizer=t).fill_mask("a"),
            "must contain <mask>",
        ),
        (
            lambda t: GMLPTextClassifier(
                text_backbone(), 2, tokenizer=t
            ).predict("one text"),
            "as a list",
        ),
        (
            lambda t: GMLPSpanPredictor(text_backbone(), tokenizer=t).fit(
                (["a"], ["b"]), ["b"]
            ),
            "Answers are marked by their tokens",
        ),
        (
            lambda t: GMLPTextClassifier(text_backbone(), 2, class_names="ab"),
            "class_names='ab'",
        ),
        (
            lambda t: GMLPTextClassifier(
                text_backbone(), 2, class_names=["a", "a"]
            ),
            "different string for each of the 2 classes",
        ),
        (
            lambda t: GMLPTextClassifier(text_backbone(), 2, class_names=["a"]),
            "each of the 2 classes",
        ),
        (
            lambda t: GMLPTextClassifier(
                text_backbone(), 1, tokenizer=t
            ).classify("a"),
            "num_classes=1",
        ),
        (
            lambda t: GMLPTextClassifier(
                text_backbone(), 2, activation="sigmoid", tokenizer=t
            ).classify("a"),
            "activation='sigmoid'",
        ),
        (lambda t: GMLPTextClassifier.from_preset(None), "preset=None"),
        (lambda t: gmlp_text_nano(mask_padding="no"), "mask_padding='no'"),
        (lambda t: gmlp_text_nano(vocabulary_size=0), "vocabulary_size=0"),
        (lambda t: gmlp_text_nano(dropout_rate=1.0), "dropout_rate=1.0"),
        (
            lambda t: GMLPMaskedLM.from_preset("gmlp_base_en"),
            "no public weights",
        ),
    ],
)
def test_what_cannot_be(call, message, tokenizer):
    with pytest.raises(ValueError, match=message):
        call(tokenizer)


def test_mixed_precision_projects_in_half_precision(rng):
    """Keras's own default would be float32 here."""
    model = GMLPMaskedLM(gmlp_text_nano(dtype="mixed_bfloat16"))
    outputs = model(masked_inputs(rng))
    assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"
