"""Writes on, one token after another.

A model is asked once for the whole prompt, which fills the caches of its
blocks, and then for one token at a time.
"""

import keras
import numpy as np
from keras import ops

from mlp_mixers.ops.compiled import compiled
from mlp_mixers.ops.decoding import extend_cache

# Prompts are padded to a multiple of this, so that few lengths are compiled.
LENGTH_STEP = 32


class Writer:
    """The compiled functions of a causal language model.

    Args:
        model: A `CausalLM`.
        jit_compile: On TensorFlow, whether to compile by XLA.
    """

    def __init__(self, model, jit_compile=False):
        self.model = model
        backbone = model.backbone
        longest = backbone.sequence_length

        def prefill(token_ids, padding_mask, last):
            """Features, logits after each prompt, and caches."""
            x, caches = backbone.prefill(token_ids, padding_mask)
            at = last[:, None, None]
            x_last = ops.take_along_axis(x, at, axis=1)  # (b, 1, d)
            logits = backbone.token_embedding(x_last, reverse=True)
            return x, logits[:, 0], extend_cache(caches, longest)

        def step(token_ids, caches, positions):
            """Features and logits after one more token, and caches."""
            x, caches = backbone.step(token_ids, caches, positions)
            logits = backbone.token_embedding(x, reverse=True)
            return x[:, 0], logits[:, 0], caches

        variables = backbone.variables
        self._prefill = compiled(prefill, variables, jit_compile)
        self._step = compiled(step, variables, jit_compile)

    def prefill(self, token_ids, lengths):
        """Reads prompts.

        Args:
            token_ids: int32 `(b, n)`, padded on the right.
            lengths: int32 `(b,)`, at least 1.

        Returns:
            `(features, logits, caches)`: of all tokens, `(b, n', d)` with n'
            a multiple of `LENGTH_STEP`; after the last one, `(b, V)`; and of
            the model's longest input.
        """
        longest = self.model.backbone.sequence_length
        n = min(-(-token_ids.shape[1] // LENGTH_STEP) * LENGTH_STEP, longest)
        padded = np.zeros((len(token_ids), n), "int32")
        padded[:, : token_ids.shape[1]] = token_ids
        mask = np.arange(n) < lengths[:, None]
        return self._prefill(
            ops.convert_to_tensor(padded),
            ops.convert_to_tensor(mask.astype("int32")),
            ops.convert_to_tensor((lengths - 1).astype("int32")),
        )

    def step(self, token_ids, caches, positions):
        """Reads one more token an example.

        Args:
            token_ids: int32 `(b,)`.
            caches: From `prefill` or the step before.
            positions: int32 `(b,)`, where the tokens stand.

        Returns:
            `(features, logits, caches)`: `(b, d)`, `(b, V)`, as they came.
        """
        return self._step(
            ops.reshape(ops.convert_to_tensor(token_ids, "int32"), (-1, 1)),
            caches,
            ops.convert_to_tensor(positions, "int32"),
        )


def write(writer, prompts, ends, choose, stop_ids, forbidden, bar=None):
    """Continues prompts, each row at a place of its own.

    Args:
        writer: A `Writer`.
        prompts: List of lists of token ids, none empty.
        ends: Longest length of each, the prompt included.
        choose: Function from logits `(b, V)`, -inf for what is forbidden, to
            tokens `(b,)`.
        stop_ids: Tokens after which a row is done.
        forbidden: Tokens that are never chosen.
        bar: Called after each step.

    Returns:
        List of lists of token ids, the prompts included, a stop token too.
    """
    rows = [list(map(int, prompt)) for prompt in prompts]
    lengths = np.array([len(row) for row in rows], "int32")
    padded = np.zeros((len(rows), lengths.max()), "int32")
    for row, ids in zip(padded, rows):
        row[: len(ids)] = ids
    _, logits, caches = writer.prefill(padded, lengths)
    done = lengths >= np.asarray(ends)
    while not done.all():
        logits = np.array(
            ops.convert_to_numpy(ops.cast(logits, "float32")), "float64"
        )
        logits[:, forbidden] = -np.inf
        chosen = choose(logits)
        for i, token in enumerate(chosen):
            if not done[i]:
                rows[i].append(int(token))
                done[i] = token in stop_ids or len(rows[i]) >= ends[i]
        if bar is not None:
            bar()
        if done.all():
            break
        # Rows that are done repeat their last token in its place.
        last = np.array([row[-1] for row in rows], "int32")
        places = np.array([len(row) - 1 for row in rows], "int32")
        _, logits, caches = writer.step(last, caches, places)
    return rows


def write_by_keras_hub(writer, prompts, end, sampler, stop_ids):
    """Continues prompts by a sampler of KerasHub.

    Its loop has one place for all rows: it begins after the shortest prompt,
    and keeps what longer ones already have.

    Args:
        writer: A `Writer`.
        prompts: List of lists of token ids, none empty.
        end: Longest length, the prompts included.
        sampler: A `keras_hub.samplers.Sampler`.
        stop_ids: Tokens after which a row is done.

    Returns:
        As `write`.
    """
    lengths = np.array([len(prompt) for prompt in prompts], "int32")
    tokens = np.zeros((len(prompts), end), "int32")
    for row, ids in zip(tokens, prompts):
        row[: len(ids)] = ids
    given = np.arange(end) < lengths[:, None]
    features, _, caches = writer.prefill(tokens[:, : lengths.max()], lengths)
    missing = end - features.shape[1]
    if missing > 0:
        features = ops.pad(features, [[0, 0], [0, missing], [0, 0]])
    backbone = writer.model.backbone

    def next(prompt, cache, index):
        """What KerasHub's samplers call for the token at `index`."""
        at = ops.cast(index, "int32") - 1
        batch = ops.shape(prompt)[0]
        token = ops.slice(prompt, [0, at], [batch, 1])
        x, cache = backbone.step(token, cache, ops.broadcast_to(at, (batch,)))
        logits = backbone.token_embedding(x, reverse=True)
        return logits[:, 0], x[:, 0], cache

    written = sampler(
        next=next,
        prompt=ops.convert_to_tensor(tokens),
        cache=caches,
        index=int(lengths.min()),
        mask=ops.convert_to_tensor(given),
        stop_token_ids=list(stop_ids) or None,
        hidden_states=features[:, :end],
        model=writer.model,
    )
    written = ops.convert_to_numpy(written)
    return [
        _until_stop(row.tolist(), length, stop_ids)
        for row, length in zip(written, lengths)
    ]


def _until_stop(row, length, stop_ids):
    """A row up to the first stop token that it has written."""
    for place in range(length, len(row)):
        if row[place] in stop_ids:
            return row[: place + 1]
    return row


def progress(total):
    """A bar of so many steps, and its end."""
    bar = keras.utils.Progbar(total, unit_name="token")
    return lambda: bar.add(1)
