"""What tasks say of labels, token ids and texts that are none of theirs."""

import keras
import numpy as np
import pytest

from mlp_mixers.data.masked_batches import MaskedLMBatches
from mlp_mixers.data.packing import pack_documents
from mlp_mixers.data.tokenizer import Tokenizer
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPSpanPredictor
from mlp_mixers.models import GMLPTextBackbone
from mlp_mixers.models import GMLPTextClassifier
from mlp_mixers.models.input_checks import by_name
from mlp_mixers.models.input_checks import check_labels
from mlp_mixers.models.input_checks import check_range
from tests.cases import gmlp_nano

TEXTS = ["The cat sat on the mat.", "The dog ate the bone."] * 2
NAN = float("nan")
V, N = 300, 16


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS * 3, V)


@pytest.fixture(scope="module")
def tasks(tokenizer):
    """One of each, compiled; none of them is to be trained here."""
    backbone = GMLPTextBackbone(V, N, 1, 8, 16)
    made = {
        "classifier": GMLPTextClassifier(backbone, 2, tokenizer=tokenizer),
        "number": GMLPTextClassifier(backbone, 1, tokenizer=tokenizer),
        "masked": GMLPMaskedLM(backbone, tokenizer=tokenizer),
        "span": GMLPSpanPredictor(backbone, tokenizer=tokenizer),
        "image": GMLPImageClassifier(gmlp_nano(), 2),
    }
    for task in made.values():
        task.compile()
    return made


def arrays(**changes):
    return {
        "token_ids": np.full((4, 6), 5, "int32"),
        "padding_mask": np.ones((4, 6), "int32"),
        **changes,
    }


IMAGES = np.zeros((4, 4, 6, 3), "float32")
PLACES = np.zeros((4, 2), "int32")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 2, 1, 2], "from 0 to 1. These seem .* label 2 at index 1"),
        ([0, -1, 0, 1], "label -1 at index 1"),
        ([0, 0.5, 0, 1], "label 0.5 at index 1"),
        ([0, 1, NAN, 1], "label nan at index 2"),
        (["bad", "good"] * 2, r"names.index\(label\).*'bad'"),
        (np.array(["bad", 1] * 2, object), r"names.index\(label\).*'bad'"),
        ([0, None, 1, 1], "must be numbers.*None among"),
        (np.eye(2)[[0, 1, 0, 1]], r"one-hot\? Pass `y.argmax.*\(4, 2\)"),
        ([[0], [1, 1], [0], [1]], "rows of `y` must be of one length"),
        (None, "There are no labels"),
    ],
)
@pytest.mark.parametrize(
    ("name", "x"), [("classifier", TEXTS), ("image", IMAGES)]
)
def test_labels_that_are_none(tasks, name, x, labels, message):
    task = tasks[name]
    right = [0, 1, 0, 1]
    for call in (
        lambda: task.fit(x, labels, verbose=0),
        lambda: task.fit(x, right, validation_data=(x, labels), verbose=0),
        lambda: task.evaluate(x, labels, verbose=0),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_labels_in_the_backend_s_own_arrays(tasks):
    labels = keras.ops.convert_to_tensor([1, 2, 1, 2])
    with pytest.raises(ValueError, match="label 2 at index 1"):
        tasks["image"].fit(IMAGES, labels, verbose=0)


@pytest.mark.parametrize(
    ("name", "x", "labels", "message"),
    [
        ("number", TEXTS, [0.5, NAN, 1, 2], "finite.*nan at index 1"),
        ("span", arrays(), np.full((4, 2), 6), "0 to 5.*label 6 at index 0, 0"),
        ("span", arrays(), np.zeros((4, 3)), r"\(None, 2\).*\(4, 3\)"),
        (
            "masked",
            arrays(mask_positions=PLACES),
            PLACES + V,
            "0 to 299.*label 300",
        ),
    ],
)
def test_labels_of_other_tasks(tasks, name, x, labels, message):
    with pytest.raises(ValueError, match=message):
        tasks[name].fit(x, labels, verbose=0)


def test_labels_that_are_fine():
    for labels in ([0, 1], [[0], [1]], [0.0, 1.0], [True, False]):
        check_labels(np.array(labels), (None, 2), 2)
    check_labels(np.array([0, -1]), (None, 2), 2, ignored=-1)
    check_labels(np.array([0.5, 7.0]), (None, 1))  # a regression
    check_labels(np.eye(2), (None, 2))  # for a loss that takes them
    check_range(np.zeros(0, int), 2, "`x`", "id")


def test_lists_of_labels_and_weights_train_and_measure(tokenizer):
    backbone = GMLPTextBackbone(V, N, 1, 8, 16)
    model = GMLPTextClassifier(backbone, 2, tokenizer=tokenizer)
    model.compile(keras.optimizers.SGD(0.0))
    labels, weights = [0, 1, 1, 0], [1.0, 0.0, 2.0, 1.0]
    logits = model.predict(TEXTS, verbose=0).astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    # Keras divides the weighted sum by the number of examples.
    expected = -(log_p[range(4), labels] * weights).sum() / 4
    history = model.fit(
        TEXTS,
        labels,
        4,  # a batch size by position
        sample_weight=weights,
        validation_data=(TEXTS, labels, weights),
        verbose=0,
    ).history
    assert history["loss"][0] == pytest.approx(expected, rel=1e-4)
    assert history["val_loss"][0] == pytest.approx(expected, rel=1e-4)
    found = model.evaluate(TEXTS, labels, sample_weight=weights, verbose=0)
    assert found[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        (
            "classifier",
            arrays(token_ids=np.full((4, 6), V)),
            "0 to 299.*id 300 at index 0, 0",
        ),
        ("classifier", arrays(token_ids=np.full((4, 6), -1)), "id -1"),
        ("classifier", arrays(token_ids=np.full((4, 6), 0.5)), "id 0.5"),
        ("classifier", arrays(token_ids=[[V] * 6] * 4), "id 300"),
        ("classifier", arrays(token_ids=np.full((4, 6), "a")), "be integers"),
        ("classifier", arrays(token_ids=np.zeros(4, int)), r"shape \(4,\)"),
        ("span", arrays(token_ids=np.zeros((4, 17), int)), r"\(4, 17\)"),
        ("classifier", {"text": TEXTS}, "dictionary of 'text'"),
        ("masked", arrays(), "token_ids, padding_mask, mask_positions"),
        ("masked", arrays(mask_positions=PLACES + 6), "0 to 5.*position 6"),
        ("masked", arrays(mask_positions=PLACES - 1), "position -1"),
    ],
)
def test_arrays_that_are_out_of_range(tasks, name, x, message):
    task = tasks[name]
    for call in (
        lambda: task.fit(x, [0, 1, 0, 1]),
        lambda: task.evaluate(x, [0, 1, 0, 1]),
        lambda: task.predict(x),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([], "Give a list of strings.*Received: \\[\\]"),
        (([], []), "a tuple of two such lists"),
        ([None], "Received: \\[None\\]"),
        (None, "Received: None"),
        (3, "Received: 3"),
        ([1, 2], "Received: \\[1, 2\\]"),
        ([("a", "b")], "a tuple of two such lists"),
        ([["a", "b"]], "a tuple of two such lists"),
        ((["a"], []), "no second texts"),
        (([], ["a"]), "no texts"),
        ((["a"], [1]), "second texts must be a string.*number 0 is 1"),
        ([b"a"], "Received: \\[b'a'\\]"),
        (b"a", "Received: b'a'"),
        (np.array([b"a"]), "number 0 is"),
    ],
)
def test_what_is_no_text(tasks, x, message):
    with pytest.raises(ValueError, match=message):
        tasks["classifier"].predict(x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit((TEXTS, TEXTS)), "reads documents, a list of strings"),
        (lambda m: m.evaluate((TEXTS, TEXTS)), "reads documents"),
        (lambda m: m.fit([None, "a b"]), "documents.*number 0 is None"),
        (lambda m: m.fit([]), "reads documents"),
        (lambda m: m.fit("a b"), "documents as a list"),
        (
            lambda m: m.fit(TEXTS, validation_data=(TEXTS,)),
            "`validation_data=documents`",
        ),
        (
            lambda m: m.fit(TEXTS, validation_data=(TEXTS, TEXTS)),
            "reads documents",
        ),
        (
            lambda m: m.fit(TEXTS, validation_data=()),
            r"must be `\(x, y\)`.*tuple of 0",
        ),
        (lambda m: m.fill_mask(None), "as a list of strings.*None"),
        (lambda m: m.fill_mask(3), "as a list of strings.*3"),
        (lambda m: m.fill_mask(b"a <mask>"), "as a list of strings"),
        (lambda m: m.fill_mask([]), "no texts"),
        (lambda m: GMLPMaskedLM(m.backbone).fit(TEXTS), "has no tokenizer"),
        (
            lambda m: GMLPMaskedLM(m.backbone).evaluate(TEXTS),
            "has no tokenizer",
        ),
    ],
)
def test_a_masked_language_model_reads_documents(tasks, call, message):
    with pytest.raises(ValueError, match=message):
        call(tasks["masked"])


@pytest.mark.parametrize("size", [264, 330])
def test_batches_of_another_tokenizer(tasks, size):
    words = [f"{a}{b}" for a in "qvxz" for b in "bdfghjklmnprstwy"]
    other = Tokenizer.train([" ".join(words)] * 3, size)
    batches = MaskedLMBatches(pack_documents(TEXTS, other, N), other)
    model = tasks["masked"]
    for call in (
        lambda: model.fit(batches, verbose=0),
        lambda: model.fit(TEXTS, validation_data=batches, verbose=0),
        lambda: model.evaluate(batches, verbose=0),
    ):
        with pytest.raises(ValueError, match="made with another tokenizer"):
            call()
    nameless = GMLPMaskedLM(model.backbone)
    nameless.compile()
    if size > V:
        with pytest.raises(ValueError, match="vocabulary_size=300"):
            nameless.evaluate(batches, verbose=0)
    else:  # nobody knows better
        assert np.isfinite(nameless.evaluate(batches, verbose=0)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.predict(["who?"]), "passages that hold the answers"),
        (lambda m: m.predict(("who?", "me")), "passages that hold"),
        (lambda m: m.predict([]), "passages that hold"),
        (lambda m: m.predict((["who?"], ["me", "you"])), "for 1 questions"),
        (lambda m: m.answer(["who?"], None), "contexts as a list"),
        (lambda m: m.answer(["who?"], ["me"], stride=0), "stride=0"),
        (lambda m: m.fit((["a"], ["b"]), ["b"]), "docs/language.md"),
        (lambda m: m.evaluate((["a"], ["b"]), ["b"]), "model.windows"),
    ],
)
def test_questions_come_with_passages(tasks, call, message):
    with pytest.raises(ValueError, match=message):
        call(tasks["span"])


def test_models_whose_training_diverged_say_so(tokenizer):
    backbone = GMLPTextBackbone(V, N, 1, 8, 16)
    embedding = backbone.token_embedding.embeddings
    embedding.assign(np.full(embedding.shape, NAN))
    message = "weights are not finite"
    with pytest.raises(ValueError, match=message):
        GMLPMaskedLM(backbone, tokenizer=tokenizer).fill_mask("a <mask>")
    with pytest.raises(ValueError, match=message):
        model = GMLPSpanPredictor(backbone, tokenizer=tokenizer)
        model.predict((["who?"], ["me"]), verbose=0)
    with pytest.raises(ValueError, match=message):
        GMLPTextClassifier(backbone, 2, tokenizer=tokenizer).classify("a")


def test_a_call_that_fails_leaves_the_weights():
    """Keras takes them away before the step, on JAX."""
    model = GMLPImageClassifier(gmlp_nano(), 2)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
    before = model.get_weights()
    for call in (
        lambda: model.predict(IMAGES[:, :3], verbose=0),
        lambda: model.evaluate(IMAGES[:, :3], [0, 1, 0, 1], verbose=0),
        lambda: model.fit(IMAGES[:, :3], [0, 1, 0, 1], verbose=0),
    ):
        with pytest.raises(ValueError, match="incompatible|expected shape"):
            call()
    for one, other in zip(model.get_weights(), before):
        np.testing.assert_array_equal(one, other)
    model.fit(IMAGES, [0, 1, 0, 1], verbose=0)


def test_arguments_by_name():
    def method(self, x, y=None, batch_size=None, **kwargs):
        pass

    assert by_name(method, (8,), {"steps": 2}, known=3) == {
        "batch_size": 8,
        "steps": 2,
    }
    with pytest.raises(TypeError, match="multiple values"):
        by_name(method, (8,), {"batch_size": 2}, known=3)
