"""Sparse language models: what they are, and what they write."""

import functools
import pathlib
import re
import warnings

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.analysis import leaks_future
from mlp_mixers.data import Tokenizer
from mlp_mixers.data.streams import CausalLMBatches
from mlp_mixers.data.streams import stream_documents
from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers.hash_router import HashRouter
from mlp_mixers.layers.sparse_block import SMLPBlock
from mlp_mixers.layers.switch_router import SwitchRouter
from mlp_mixers.layers.transformer_block import TransformerBlock
from mlp_mixers.models.smlp_text import SMLPBackbone
from mlp_mixers.models.smlp_text import SMLPCausalLM
from mlp_mixers.models.smlp_text import sparse_positions
from tests.cases import randomize

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "sparse.md"
V, N, D, E = 40, 16, 12, 3
TEXTS = [
    "The cat sat on the mat and looked at the dog.",
    "A dog barks at the cat, and the cat runs away.",
    "On the mat there is a cat; the dog is not there.",
]
KINDS = {
    "dense": {"num_sparse_blocks": 0},
    "deterministic": {},
    "partial": {"routing": "partial", "short_prompt": "deterministic"},
    "attention and toeplitz": {"attention_dim": 4, "toeplitz": True},
    "post-norm, hash": {"router": "hash", "norm_placement": "post"},
    "transformer": {"mixing": "attention", "num_sparse_blocks": 0},
    "switch": {"mixing": "attention", "router": "switch", "num_heads": 2},
    "gshard": {"mixing": "attention", "router": "top_two"},
}


def backbone(vocabulary_size=V, **arguments):
    arguments = {
        "num_dense_blocks": 2,
        "num_sparse_blocks": 1,
        "hidden_dim": D,
        "intermediate_dim": 24,
        "num_experts": E,
        **arguments,
    }
    return SMLPBackbone(vocabulary_size, N, **arguments)


def language_model(rng, kind="deterministic", **arguments):
    """A model with random weights.

    Made once, and so are its programs: whoever asks again gets the same
    model, with weights of his own.
    """
    model, first = made(kind, tuple(arguments.items()))
    model.set_weights(first)
    tables = [
        layer.table
        for layer in model.backbone._flatten_layers()
        if hasattr(layer, "table")
    ]
    kept = [ops.convert_to_numpy(table) for table in tables]
    randomize(model, rng)
    for table, value in zip(tables, kept):
        table.assign(value)
    return model


@functools.cache
def made(kind, arguments):
    """A model and its first weights."""
    sizes = {"num_dense_blocks": 1, **KINDS[kind], **dict(arguments)}
    model = SMLPCausalLM(backbone(**sizes))
    return model, model.get_weights()


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS, 280)


def inputs_of(ids):
    """Rows of one length as inputs of the longest."""
    ids = np.asarray(ids, "int32")
    padded = np.zeros((len(ids), N), "int32")
    padded[:, : ids.shape[1]] = ids
    mask = np.zeros_like(padded)
    mask[:, : ids.shape[1]] = 1
    return {"token_ids": padded, "padding_mask": mask}


def logits_of(model, ids):
    """Logits of rows of one length, by a program that is made once."""
    logits = keras.Model.predict_on_batch(model, inputs_of(ids))
    return np.asarray(logits)[:, : np.shape(ids)[1]]


@pytest.mark.parametrize(
    "dense, sparse, expected",
    [
        (24, 6, (4, 8, 12, 17, 21, 25)),
        (6, 2, (2, 5)),
        (4, 4, (1, 3, 4, 6)),
        (5, 0, ()),
        (0, 2, (0, 1)),
        (1, 1, (1,)),
    ],
)
def test_places_of_sparse_blocks(dense, sparse, expected):
    assert sparse_positions(dense, sparse) == expected
    for i, place in enumerate(expected, 1):
        assert place == int(i * (dense + sparse) / (sparse + 1))


def test_the_stack():
    model = backbone(num_dense_blocks=4, num_sparse_blocks=2)
    kinds = [type(block) for block in model.blocks]
    assert len(kinds) == 6
    assert [i for i, k in enumerate(kinds) if k is SMLPBlock] == [2, 4]
    assert kinds.count(GMLPBlock) == 4
    model = backbone(mixing="attention", sparse_blocks=[0])
    assert [type(b) for b in model.blocks] == [TransformerBlock] * 3
    sparse = [bool(block.feed_forward) for block in model.blocks]
    assert sparse == [True, False, False]


def trained(model):
    return sum(int(np.prod(w.shape)) for w in model.trainable_weights)


def test_parameters_by_hand():
    d, e, n = D, 24, N
    gmlp = d * e + e + e // 2 * d + d + 2 * d
    unit = 2 * (e // 2)
    dense = gmlp + unit + n * n + n
    experts = E * (d * e + e + e * d + d) + d * E
    sparse = gmlp + unit + E * (n * n + n) + experts + 2 * d
    assert trained(backbone()) == V * d + 2 * dense + sparse + 2 * d
    attention = 4 * d * d + 4 * d + 2 * d
    feed_forward = d * e + e + e * d + d + 2 * d
    assert (
        trained(backbone(mixing="attention"))
        == V * d
        + n * d
        + 3 * attention
        + 2 * feed_forward
        + experts
        + 2 * d
        + 2 * d
    )


@pytest.mark.parametrize("kind", KINDS)
def test_one_token_at_a_time_is_the_whole(kind, rng):
    model = language_model(rng, kind)
    ids = rng.integers(0, V, (3, N)).astype("int32")
    whole = logits_of(model, ids)
    lengths = np.array([6, 9, N - 3])
    writer = model._make_writer()
    _, logits, caches = writer.prefill(ids[:, : lengths.max()], lengths)
    rows = np.arange(3)
    for more in range(3):
        np.testing.assert_allclose(
            ops.convert_to_numpy(logits),
            whole[rows, lengths - 1 + more],
            rtol=1e-5,
            atol=1e-5,
        )
        at = lengths + more
        if more < 2:
            _, logits, caches = writer.step(ids[rows, at], caches, at)


@pytest.mark.parametrize("kind", ["deterministic", "partial", "gshard"])
def test_a_row_is_the_same_twice_alone_and_shorter(kind, rng):
    """To the bit twice; to rounding alone, and as the start of a longer one.

    Experts of a whole batch are asked in other blocks than those of a row.
    """
    model = language_model(rng, kind)
    ids = rng.integers(0, V, (3, N)).astype("int32")
    whole = logits_of(model, ids)
    np.testing.assert_array_equal(logits_of(model, ids), whole)
    alone = logits_of(model, ids[1:2])
    np.testing.assert_allclose(alone, whole[1:2], rtol=1e-5, atol=1e-5)
    # Padded on the right, and cut there.
    n = N - 5
    short = logits_of(model, ids[:, :n])
    np.testing.assert_allclose(short, whole[:, :n], rtol=1e-5, atol=1e-5)
    cut = {k: v[:, :n] for k, v in inputs_of(ids[:, :n]).items()}
    cut = keras.Model.predict_on_batch(model, cut)
    np.testing.assert_allclose(cut, short, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["deterministic", "switch"])
def test_greedy_writing_is_the_argmax_of_the_whole(kind, rng):
    model = language_model(rng, kind)
    prompts = [[5, 9, 2], [7], [1, 2, 3, 4, 5, 6]]
    expected = []
    for prompt in prompts:
        row = list(prompt)
        while len(row) < 10:
            row.append(int(logits_of(model, [row])[0, -1].argmax()))
        expected.append(row)
    assert model.generate(prompts, max_length=10) == expected
    # One alone is the same as one in a batch.
    assert model.generate(prompts[1:2], max_length=10) == expected[1:2]
    stop = expected[0][5]
    found = model.generate(prompts[:1], 10, stop_token_ids=[stop])[0]
    first = expected[0].index(stop, 3)
    assert found == expected[0][: first + 1]
    new = model.generate(prompts, max_length=10, strip_prompt=True)
    assert new == [e[len(p) :] for e, p in zip(expected, prompts)]


def test_weights_that_change_are_used(rng):
    """JAX keeps constants of a compiled function, if it is let."""
    model = language_model(rng)
    before = model.generate([[5, 9]], max_length=12)
    randomize(model, np.random.default_rng(99))
    after = model.generate([[5, 9]], max_length=12)
    row = after[0][:-1]
    assert int(logits_of(model, [row])[0, -1].argmax()) == after[0][-1]
    assert before != after


@pytest.mark.parametrize(
    "name", ["GreedySampler", "BeamSampler", "TopKSampler"]
)
def test_samplers_of_keras_hub(name, rng):
    samplers = pytest.importorskip("keras_hub").samplers
    model = language_model(rng)
    prompts = [[5, 9, 2], [7, 1, 2, 3, 8]]
    if name == "GreedySampler":
        found = model.generate(prompts, 10, sampler=samplers.GreedySampler())
        assert found == model.generate(prompts, 10)
        return
    if name == "TopKSampler":
        sampler = samplers.TopKSampler(k=1, seed=0)
        found = model.generate(prompts, 10, sampler=sampler)
        assert found == model.generate(prompts, 10)
        return
    found = model.generate(prompts[:1], 6, sampler=samplers.BeamSampler(4))

    def log_probability(row):
        logits = logits_of(model, [row])[0].astype("float64")
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return sum(log_p[t, row[t + 1]] for t in range(2, len(row) - 1))

    greedy = model.generate(prompts[:1], 6)[0]
    assert found[0][:3] == prompts[0]
    assert log_probability(found[0]) >= log_probability(greedy) - 1e-6


def test_text_in_and_out(tokenizer, rng):
    model = SMLPCausalLM(
        backbone(tokenizer.vocabulary_size, num_dense_blocks=0),
        tokenizer=tokenizer,
    )
    model.compile()
    logs = model.fit(TEXTS * 4, batch_size=4, epochs=2, verbose=0).history
    assert logs["loss"][1] < logs["loss"][0]
    text = model.generate("The cat", max_length=9)
    assert text.startswith("The cat")
    both = model.generate(["The cat", "A dog"], max_length=9)
    assert both[0] == text
    drawn = model.generate("The", max_length=9, top_k=5, seed=1)
    assert drawn == model.generate(
        "The", max_length=9, sampler="sample", top_k=5, seed=1
    )
    with pytest.raises(ValueError, match="a prompt of"):
        model.generate("The cat sat on the mat " * 4)
    with pytest.raises(ValueError, match="must be one token"):
        model.generate("The", stop_token_ids=["The cat sat"])
    with pytest.raises(ValueError, match="no tokenizer"):
        language_model(rng).generate("The")
    with pytest.raises(ValueError, match="must have a token"):
        language_model(rng).generate([[]])


def test_score_is_the_sum_of_log_probabilities(tokenizer, rng):
    model = SMLPCausalLM(
        backbone(tokenizer.vocabulary_size, num_dense_blocks=0),
        tokenizer=tokenizer,
    )
    randomize(model, rng)
    prompts = ["The cat", "A dog barks at", ""]
    answers = ["sat on", "the cat", "The"]
    found = model.score(prompts, answers, batch_size=2)
    for i, (prompt, answer) in enumerate(zip(prompts, answers)):
        ids = [tokenizer.cls_id]
        if prompt:
            ids += tokenizer.encode([f" {prompt}"])[0].ids
        after = tokenizer.encode([f" {answer}"])[0].ids
        row = ids + after
        logits = logits_of(model, [row])[0].astype("float64")
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        expected = sum(log_p[t - 1, row[t]] for t in range(len(ids), len(row)))
        np.testing.assert_allclose(
            found["log_probability"][i], expected, rtol=1e-4
        )
        assert found["tokens"][i] == len(after)
    with pytest.raises(ValueError, match="one continuation"):
        model.score(prompts, answers[:2])
    with pytest.raises(ValueError, match="must have a token"):
        model.score(["a"], [""])


def test_score_of_partial_routing_knows_nothing_that_follows(tokenizer, rng):
    """Each token by the model's own call on what stands before it."""
    model = SMLPCausalLM(
        backbone(
            tokenizer.vocabulary_size,
            routing="partial",
            prefix_fraction=0.3,
            short_prompt="deterministic",
        ),
        tokenizer=tokenizer,
    )
    randomize(model, rng)
    prefix = model.backbone.prefix_length
    assert prefix == 4
    for prompt in ("", "the", "the cat the"):
        (score,) = model.score([prompt], ["cat dog"])["log_probability"]
        ids = [tokenizer.cls_id]
        if prompt:
            ids += tokenizer.encode([f" {prompt}"])[0].ids
        expected = 0.0
        for token in tokenizer.encode([" cat dog"])[0].ids:
            logits = logits_of(model, [ids])[0, len(ids) - 1].astype("float64")
            expected += logits[token] - np.log(np.exp(logits).sum())
            ids.append(token)
        np.testing.assert_allclose(score, expected, rtol=1e-4)
    strict = SMLPCausalLM(
        backbone(
            tokenizer.vocabulary_size, routing="partial", prefix_fraction=0.3
        ),
        tokenizer=tokenizer,
    )
    with pytest.raises(ValueError, match="needs prompts of 4 tokens"):
        strict.score([""], ["cat dog"])


@pytest.mark.parametrize(
    "prompts", [[[1.5, 2]], [["5"]], [[-1, 2]], [[True]], [[1, 10**6]], [1, 2]]
)
def test_prompts_that_are_no_token_ids(rng, prompts):
    model = language_model(rng, "deterministic")
    with pytest.raises(ValueError, match="lists of token ids"):
        model.generate(prompts)
    if isinstance(prompts[0], int):
        with pytest.raises(ValueError, match="lists of token ids"):
            model.generate(np.array(prompts))


def test_a_temperature_alone_draws(rng):
    model = language_model(rng, "deterministic")
    hot = [
        model.generate([[1, 2]], temperature=50.0, seed=seed)
        for seed in range(3)
    ]
    assert hot[0] != hot[1] or hot[1] != hot[2]
    named = model.generate([[1, 2]], sampler="sample", temperature=50.0, seed=0)
    assert hot[0] == named


def test_strings_need_a_tokenizer(rng):
    model = language_model(rng, "deterministic")
    for ask in (model.fit, model.evaluate):
        with pytest.raises(ValueError, match="has no tokenizer"):
            ask(TEXTS)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"stop_token_ids": V}, rf"from 0 to {V - 1}.*Received: {V}"),
        ({"stop_token_ids": [3, -1]}, "Received: -1"),
        ({"stop_token_ids": [[3]]}, r"Received: \[3\]"),
        ({"stop_token_ids": 2.5}, "Received: 2.5"),
        ({"stop_token_ids": True}, "Received: True"),
        ({"stop_token_ids": ["cat"]}, "no tokenizer.*'cat'"),
        ({"temperature": "1"}, "temperature='1'"),
        ({"top_p": "0.9"}, "top_p='0.9'"),
        ({"top_k": "3"}, "top_k='3'"),
        ({"sampler": "beam"}, "sampler='beam'"),
        ({"max_length": "9"}, "max_length='9'"),
    ],
)
def test_arguments_of_generate(arguments, message):
    model, _ = made("deterministic", ())
    for prompts in ([[1, 2]], []):
        with pytest.raises(ValueError, match=message):
            model.generate(prompts, **arguments)


def test_a_sampler_of_keras_hub_has_settings_of_its_own():
    class Sampler:
        """By the method that tells them."""

        def get_next_token(self, probabilities):
            return None

    model, _ = made("deterministic", ())
    for given in ({"temperature": 0.5}, {"top_k": 3}, {"seed": 0}):
        with pytest.raises(ValueError, match="settings of its own"):
            model.generate([[1, 2]], sampler=Sampler(), **given)


def test_one_stop_token_is_a_list_of_one(rng):
    model = language_model(rng)
    whole = model.generate([[5, 9, 2]], 10, stop_token_ids=None)[0]
    stop = whole[5]
    expected = [whole[: whole.index(stop, 3) + 1]]
    for given in (
        stop,
        [stop],
        (stop,),
        {stop},
        np.int64(stop),
        np.array([stop]),
    ):
        found = model.generate([[5, 9, 2]], 10, stop_token_ids=given)
        assert found == expected


def test_no_text_is_longer_than_the_model_reads(rng):
    model = language_model(rng)
    message = f"reads {N} tokens.*max_length={N + 1}"
    with pytest.warns(UserWarning, match=message):
        found = model.generate([[5, 9, 2]], N + 1)
    assert len(found[0]) == N
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert model.generate([[5, 9, 2]], N) == found
        assert model.generate([[5, 9, 2]]) == found


@pytest.mark.parametrize("nothing", [[], (), np.zeros((0, 3), "int32")])
def test_of_no_prompts_nothing_is_written(nothing):
    model, _ = made("deterministic", ())
    assert model.generate(nothing) == []


@pytest.mark.parametrize("prompts", [None, 5, {"token_ids": [[1]]}])
def test_what_is_no_list_of_prompts(prompts):
    model, _ = made("deterministic", ())
    with pytest.raises(ValueError, match="Prompts are strings, or lists"):
        model.generate(prompts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit([]), r"reads documents.*Received: \[\]"),
        (lambda m: m.evaluate([]), r"reads documents.*Received: \[\]"),
        (lambda m: m.predict([]), r"reads documents.*Received: \[\]"),
        (lambda m: m.fit((TEXTS, TEXTS)), "has no pairs"),
        (lambda m: m.evaluate((TEXTS, TEXTS)), "has no pairs"),
        (lambda m: m.predict((TEXTS, TEXTS)), "has no pairs"),
        (lambda m: m.fit("a cat"), "documents as a list"),
        (lambda m: m.fit([None, "a cat"]), "documents.*number 0 is None"),
        (
            lambda m: m.fit(TEXTS, validation_data=(TEXTS,)),
            "list of strings.*`validation_data=documents`",
        ),
        (
            lambda m: m.fit(TEXTS, validation_data=(TEXTS, TEXTS)),
            "`validation_data=documents`",
        ),
        (
            lambda m: m.fit(TEXTS, validation_data=[np.array(TEXTS)]),
            "`validation_data=documents`",
        ),
        (
            lambda m: m.fit(TEXTS, validation_data=[]),
            r"must be `\(x, y\)`.*list of 0",
        ),
    ],
)
def test_a_causal_language_model_reads_documents(readers_model, call, message):
    with pytest.raises(ValueError, match=message):
        call(readers_model)


@pytest.fixture(scope="module")
def readers_model(tokenizer):
    """Compiled, and not to be trained."""
    model = SMLPCausalLM(
        backbone(tokenizer.vocabulary_size), tokenizer=tokenizer
    )
    model.compile()
    return model


@pytest.mark.parametrize("prompts", [[[1, 2, 3]], [[1]]])
def test_a_cheat_does_not_write(prompts):
    """Before anything is compiled, with one text on all backends."""
    model = SMLPCausalLM(backbone(routing="leaky"))
    with pytest.raises(ValueError, match="cannot write.*routing='leaky'"):
        model.generate(prompts)


class Oracle(SwitchRouter):
    """Chooses by the last token of all."""

    causal_in_inference = False

    def call(self, x, token_ids=None, mask=None, training=False):
        x = ops.broadcast_to(x[:, -1:], ops.shape(x))
        return super().call(x, training=training)


def test_a_router_that_needs_the_future_cannot_write(rng):
    model = SMLPCausalLM(backbone(router=Oracle()))
    assert model.backbone.sees_future
    assert leaks_future(model, random_weights=True)
    with pytest.raises(ValueError, match="cannot write.*router=Oracle"):
        model.generate([[5, 6]])


def test_a_cheat_has_no_score(tokenizer):
    model = SMLPCausalLM(
        backbone(tokenizer.vocabulary_size, routing="leaky"),
        tokenizer=tokenizer,
    )
    with pytest.raises(ValueError, match="there is none"):
        model.score(["The"], ["cat"])


def test_what_generate_and_score_refuse(tokenizer, rng):
    model = SMLPCausalLM(
        backbone(tokenizer.vocabulary_size), tokenizer=tokenizer
    )
    with pytest.raises(ValueError, match="max_length"):
        model.generate("The cat", max_length=0)
    with pytest.raises(ValueError, match="must be one token"):
        model.generate("The cat", stop_token_ids="The cat sat")
    with pytest.raises(ValueError, match="batch_size"):
        model.score(["The"], ["cat"], batch_size=0)


def test_partial_routing_is_asked_for_the_later_tokens_only(tokenizer, rng):
    model = SMLPCausalLM(
        backbone(
            tokenizer.vocabulary_size,
            num_dense_blocks=0,
            routing="partial",
            prefix_fraction=0.3,
        ),
        tokenizer=tokenizer,
    )
    assert model.backbone.prefix_length == 4
    assert model.first_predicted == 3
    randomize(model, rng)
    model.compile(keras.optimizers.SGD(0.0))
    stream = stream_documents(TEXTS, tokenizer, N)
    batches = CausalLMBatches(stream, tokenizer.pad_id, 2)
    scores = model.evaluate(batches, verbose=0, return_dict=True)
    sums = counted = right = 0
    for i in range(len(batches)):
        inputs, labels, weights = batches[i]
        logits = keras.Model.predict_on_batch(model, inputs)
        logits = logits.astype("float64")
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        ce = -np.take_along_axis(log_p, labels[..., None], -1)[..., 0]
        weights = weights * (np.arange(N) >= 3)
        sums += (ce * weights).sum()
        right += ((logits.argmax(-1) == labels) * weights).sum()
        counted += weights.sum()
    np.testing.assert_allclose(
        scores["perplexity"], np.exp(sums / counted), rtol=1e-4
    )
    np.testing.assert_allclose(scores["accuracy"], right / counted, rtol=1e-5)


def test_no_gradient_comes_from_contaminated_outputs(rng):
    """Labels before the window are of no account, for the loss and weights."""
    model = language_model(rng, "partial", prefix_fraction=0.3)
    assert model.first_predicted == 3
    model.compile(keras.optimizers.SGD(0.1))
    ids = rng.integers(0, V, (2, N + 1)).astype("int32")
    inputs = {"token_ids": ids[:, :-1], "padding_mask": np.ones((2, N))}
    start = model.get_weights()
    results = []
    for change, at in ((0, 0), (1, 0), (1, 2), (1, 3)):
        model.set_weights(start)
        labels = ids[:, 1:].copy()
        labels[:, at] = (labels[:, at] + change) % V
        model.train_on_batch(inputs, labels)
        results.append(np.concatenate([w.ravel() for w in model.get_weights()]))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert (results[0] != results[3]).any()


def test_the_loss_looks_at_no_contaminated_output(rng):
    """Of P = 4 tokens that choose, outputs 0, 1, 2 know what follows."""
    model = SMLPCausalLM(backbone(routing="partial", prefix_fraction=0.3))
    model.compile(keras.optimizers.SGD(0.0))
    labels = rng.integers(0, V, (2, N))
    logits = rng.normal(size=(2, N, V)).astype("float32")

    def loss(changed=None):
        given = logits.copy()
        if changed is not None:
            given[:, changed] += rng.normal(size=V)
        y, given = map(ops.convert_to_tensor, (labels, given))
        return float(model.compute_loss(y=y, y_pred=given))

    p = np.exp(logits[:, 3:].astype("float64"))
    p /= p.sum(-1, keepdims=True)
    right = np.take_along_axis(p, labels[:, 3:, None], -1)
    np.testing.assert_allclose(loss(), -np.log(right).mean(), rtol=1e-5)
    moved = [loss(t) != loss() for t in range(N)]
    np.testing.assert_array_equal(moved, np.arange(N) >= 3)


def test_short_prompts_of_partial_routing(rng):
    model = SMLPCausalLM(
        backbone(num_dense_blocks=0, routing="partial", prefix_fraction=0.3)
    )
    with pytest.raises(ValueError, match="prompts of 4 tokens"):
        model.generate([[1, 2, 3]])
    model.generate([[1, 2, 3, 4]], max_length=6)
    lenient = language_model(rng, "partial", prefix_fraction=0.3)
    lenient.generate([[1]], max_length=6)


def test_metrics_of_experts_are_shown_in_training_only(rng):
    model = language_model(rng, "switch")
    model.compile(keras.optimizers.SGD(0.01))
    ids = rng.integers(0, V, (4, N + 1)).astype("int32")
    x = {"token_ids": ids[:, :-1], "padding_mask": np.ones((4, N), "int32")}
    logs = model.fit(
        x, ids[:, 1:], verbose=0, validation_data=(x, ids[:, 1:])
    ).history
    own = {k for k in logs if "drop_rate" in k}
    assert own == {"block_1_feed_forward_drop_rate"}
    assert {k for k in logs if k.startswith("val_")} == {
        "val_loss",
        "val_perplexity",
        "val_accuracy",
    }
    scores = model.evaluate(x, ids[:, 1:], verbose=0, return_dict=True)
    np.testing.assert_allclose(
        np.log(scores["perplexity"]), scores["loss"], rtol=1e-4
    )


@pytest.mark.parametrize("kind", KINDS)
def test_presets_give_it_back(kind, tokenizer, tmp_path, rng):
    model = SMLPCausalLM(
        backbone(tokenizer.vocabulary_size, num_dense_blocks=1, **KINDS[kind]),
        tokenizer=tokenizer,
    )
    model.save_to_preset(tmp_path)
    again = SMLPCausalLM.from_preset(tmp_path)
    for one, two in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)
    if kind == "partial":
        ids = rng.integers(0, V, (2, N)).astype("int32")
        expected = logits_of(model, ids)
        np.testing.assert_array_equal(logits_of(again, ids), expected)
    assert again.tokenizer == tokenizer
    assert again.backbone.get_config() == model.backbone.get_config()


def test_blocks_do_not_share_routers():
    model = backbone(
        num_dense_blocks=0,
        num_sparse_blocks=2,
        router=SwitchRouter(balance_loss_weight=0.5),
    )
    one, two = (block.token_experts.router for block in model.blocks)
    assert one is not two
    assert one.loss_weights["balance_loss"] == 0.5
    hashed = backbone(router=HashRouter(seed=4)).blocks[1]
    assert hashed.token_experts.router.vocabulary_size == V


@pytest.mark.parametrize(
    "policy, kind", [("mixed_bfloat16", "partial"), ("mixed_float16", "gshard")]
)
def test_half_precision(policy, kind, rng):
    model = SMLPCausalLM(
        backbone(num_dense_blocks=1, **KINDS[kind], dtype=policy)
    )
    model.compile(keras.optimizers.SGD(0.01))
    ids = rng.integers(0, V, (4, N + 1)).astype("int32")
    x = {"token_ids": ids[:, :-1], "padding_mask": np.ones((4, N), "int32")}
    logs = model.fit(x, ids[:, 1:], verbose=0).history
    assert all(np.isfinite(v[0]) for v in logs.values()), logs
    for layer in model.backbone._flatten_layers():
        if "router" in layer.name:
            assert layer.compute_dtype == "float32"
    found = model.generate([[1, 2, 3, 4, 5]], max_length=8)
    assert len(found[0]) == 8


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_experts": None}, "num_experts"),
        ({"mixing": "fourier"}, "mixing"),
        ({"mixing": "attention", "attention_dim": 4}, "attention_dim"),
        ({"sparse_blocks": [3]}, "indices among 3 blocks"),
        ({"sparse_blocks": [0, 1]}, "1 increasing indices"),
        ({"num_dense_blocks": 0, "num_sparse_blocks": 0}, "must be a block"),
        ({"num_dense_blocks": -1}, "num_dense_blocks"),
        ({"num_experts": 5}, "num_experts=5"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        backbone(**arguments)


def code_of(title):
    """The code of a section of docs/sparse.md."""
    section = re.split(r"\n##+ ", PAGE.read_text())
    (found,) = [part for part in section if part.startswith(f"{title}\n")]
    return re.findall(r"```python\n(.*?)```", found, re.DOTALL)


def run(code, names):
    exec(compile(code, str(PAGE), "exec"), names)


def test_a_router_of_one_s_own_as_documented(capsys, rng):
    names = {}
    (code,) = code_of("A router of your own")
    run(code, names)
    assert capsys.readouterr().out.startswith("causal: 0 of 64")
    cls, model = names["CosineRouter"], names["model"]
    experts = model.backbone.blocks[1].token_experts
    assert type(experts.router) is cls
    assert experts.router.temperature == 0.2
    # The class by its formula, in NumPy.
    x = rng.normal(size=(2, 5, 16)).astype("float32")
    mask = np.arange(5) < np.array([[5], [3]])
    routing = experts.router(x, mask=mask)
    w = ops.convert_to_numpy(experts.router.kernel).astype("float64")
    cosine = x @ w / np.linalg.norm(x, axis=-1, keepdims=True)
    p = np.exp(cosine / np.linalg.norm(w, axis=0) / 0.2)
    p /= p.sum(-1, keepdims=True)
    ids, gates = map(ops.convert_to_numpy, routing[:2])
    np.testing.assert_array_equal(ids[..., 0], p.argmax(-1))
    np.testing.assert_allclose(gates[..., 0], p.max(-1), rtol=1e-4)
    doubt = (1 - p.max(-1))[mask].mean()
    np.testing.assert_allclose(
        float(routing.losses["doubt_loss"]), doubt, rtol=1e-4
    )
    again = SMLPCausalLM.from_config(model.get_config())
    assert again.backbone.blocks[1].token_experts.router.temperature == 0.2


def test_loads_as_documented(readers_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = code_of("How busy experts are")
    run(code, {"model": readers_model, "held_out_documents": TEXTS})
    assert capsys.readouterr().out.startswith("block_1_token_experts [")
    assert (tmp_path / "expert_load.png").exists()


def test_reports_of_leaks_as_documented(capsys):
    _, fresh, own = code_of("Routes of channels, and how they cheat")
    names = {"fresh_model": SMLPCausalLM(backbone()), "keras": keras}
    run("from mlp_mixers.analysis import leaks_future", names)
    with pytest.warns(UserWarning, match="not known"):
        run(fresh, names)
    conclusive, report = capsys.readouterr().out.splitlines()
    assert conclusive == "False"
    assert re.fullmatch(
        r"not known: 0 of 64 .* pass `random_weights=True`", report
    )
    run(own, names)
    shown = capsys.readouterr().out
    assert shown.startswith(own.rsplit("# ")[-1].strip())
