"""What all language models share that write on."""

import numbers
import warnings

import keras
import numpy as np
from keras import ops

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.epochs import FollowEpochs
from mlp_mixers.data.streams import CausalLMBatches
from mlp_mixers.data.streams import stream_documents
from mlp_mixers.data.text_encoder import check_texts
from mlp_mixers.data.text_encoder import is_pair
from mlp_mixers.data.text_encoder import is_text
from mlp_mixers.data.text_encoder import spaced
from mlp_mixers.models import generation
from mlp_mixers.models.input_checks import by_name
from mlp_mixers.models.input_checks import shortened
from mlp_mixers.models.sampling import Sampling
from mlp_mixers.models.text_task import TextTask
from mlp_mixers.training.metrics import Perplexity
from mlp_mixers.training.optimizer import AdamW
from mlp_mixers.training.routing_metrics import RoutingMetrics


class CausalLM(TextTask):
    """Base of the causal language models.

    The features of every token, times the embedding: `h · Eᵀ` are the logits
    of the token that follows.

    Args:
        backbone: A backbone with `token_embedding`, `prefill` and `step`.
        tokenizer: A `mlp_mixers.data.Tokenizer`, for text as input.
        dtype: Of the head; the backbone's own if `None`.
        trainable: Whether anything is trained.
        **kwargs: `name` of `keras.Model`.
    """

    reads = (
        "A causal language model reads documents, a list of strings: "
        "`fit(documents)`; or a dictionary of the arrays `token_ids` and "
        "`padding_mask`, and labels. It has no pairs."
    )

    def __init__(
        self, backbone, tokenizer=None, dtype=None, trainable=True, **kwargs
    ):
        self.check_backbone(backbone, kwargs)
        dtype = keras.dtype_policies.get(dtype or backbone.dtype_policy)
        inputs = dict(backbone.input)
        x = backbone(inputs)  # (b, n, d)
        logits = backbone.token_embedding(x, reverse=True)  # (b, n, V)
        super().__init__(inputs=inputs, outputs=logits, **kwargs)
        self.keep(backbone, dtype, trainable)
        self.keep_tokenizer(tokenizer, backbone)
        self._writer = None

    @property
    def first_predicted(self):
        """The first output that counts: P - 1 in partial routing, else 0.

        There P tokens choose the route, and what comes out at their places
        knows them all. Output P - 1 predicts token P, the first honest one.
        """
        return max(getattr(self.backbone, "prefix_length", 0) - 1, 0)

    def default_optimizer(self):
        """AdamW at 1e-3 with decay 0.01, biases and norms spared."""
        return AdamW(learning_rate=1e-3, weight_decay=0.01, epsilon=1e-6)

    def default_loss(self):
        """Σ w·ce / Σ w over what is predicted, from `first_predicted` on."""
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    def default_metrics(self):
        """Perplexity and accuracy, over the same tokens as the loss."""
        return {
            "weighted_metrics": [
                Perplexity(),
                keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            ]
        }

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        sample_weight = self._counted(y, sample_weight)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        sample_weight = self._counted(y, sample_weight)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _counted(self, y, sample_weight):
        """The weights, 0 before `first_predicted`."""
        first = self.first_predicted
        if not first or y is None:
            return sample_weight
        counted = ops.arange(ops.shape(y)[1]) >= first  # (n,)
        if sample_weight is None:
            sample_weight = ops.ones_like(y, dtype="float32")
        return sample_weight * ops.cast(counted, sample_weight.dtype)

    def fit(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.fit`; `x` may be a list of documents.

        They are put end to end and cut into rows of the backbone's
        `sequence_length` (`mlp_mixers.data.stream_documents`). Held-out
        documents are a list too: `validation_data=documents`.
        """
        kwargs = by_name(keras.Model.fit, args, kwargs, known=3)
        followers = []
        if is_text(x):
            seed = ops.convert_to_numpy(keras.random.SeedGenerator().state)
            x = self._batches(x, kwargs, int(seed[0]))
            followers = [FollowEpochs(x)]
        held_out = kwargs.get("validation_data")
        if isinstance(held_out, (tuple, list)) and any(map(_is_list, held_out)):
            raise ValueError(
                "Held-out documents are a list of strings, without labels and "
                "in no tuple: `validation_data=documents`. "
                f"Received: validation_data={shortened(held_out)}"
            )
        if is_text(held_out):
            kwargs["validation_data"] = self._batches(held_out, kwargs)
        if isinstance(x, CausalLMBatches):
            kwargs = {"shuffle": False, **kwargs}  # they are shuffled
            kwargs.pop("batch_size", None)
        given = kwargs.pop("callbacks", None) or []
        if not isinstance(given, keras.callbacks.CallbackList):
            given = given if isinstance(given, (list, tuple)) else [given]
            # First, so that what keeps logs gets them all.
            given = [RoutingMetrics(), *followers, *given]
        return super().fit(x, y, callbacks=given, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.evaluate`; `x` may be a list of documents."""
        kwargs = by_name(keras.Model.evaluate, args, kwargs, known=3)
        if is_text(x):
            x = self._batches(x, kwargs)
            kwargs.pop("batch_size", None)
        return super().evaluate(x, y, **kwargs)

    def as_inputs(self, x):
        """As `TextTask.as_inputs`; there are no pairs."""
        if is_pair(x):
            raise ValueError(f"{self.reads} Received: {shortened(x)}")
        return super().as_inputs(x)

    def _batches(self, texts, kwargs, seed=None):
        """Batches of documents; in their order without a seed."""
        if is_pair(texts):
            raise ValueError(f"{self.reads} Received: {shortened(texts)}")
        texts = check_texts(texts, "documents")
        if self.tokenizer is None:
            raise ValueError(
                "The model has no tokenizer, so it takes batches of token ids "
                "(`mlp_mixers.data.CausalLMBatches`), or pass `tokenizer=`. "
                "Received: strings"
            )
        length = self.backbone.sequence_length
        return CausalLMBatches(
            stream_documents(texts, self.tokenizer, length),
            self.tokenizer.pad_id,
            batch_size=kwargs.get("batch_size") or 32,
            seed=seed,
        )

    def generate(
        self,
        inputs,
        max_length=None,
        stop_token_ids="auto",
        strip_prompt=False,
        sampler="greedy",
        temperature=1.0,
        top_k=None,
        top_p=None,
        seed=None,
        verbose=0,
    ):
        """Continues texts.

        Args:
            inputs: A string or a list of strings; or token ids, a list of
                lists of them. Of an empty list, nothing is written.
            max_length: Tokens of a result, the prompt and `<cls>` included;
                the model's longest input if `None`. No text is longer than
                that: what asks for more is warned, and gets as much.
            stop_token_ids: Ids, or strings of one token each, after which a
                text is finished; one of them, or a sequence. `"auto"` is the
                end of a document, `<sep>`; `None` for none.
            strip_prompt: Whether to return only what is new.
            sampler: `"greedy"`, the most probable token; `"sample"`, a draw;
                or a `keras_hub.samplers.Sampler`, which has settings of its
                own.
            temperature: See `Sampling`; with it, `top_k` or `top_p`, `sampler`
                may be left out.
            top_k: See `Sampling`.
            top_p: See `Sampling`.
            seed: Of the draws.
            verbose: 1 shows a bar.

        Returns:
            A string or a list of strings; of ids, a list of lists of ids.

        Raises:
            ValueError: If a prompt is empty or leaves no room, an argument
                is out of range, or the routing is leaky.

        Example:

        ```python
        model.generate("The function returns", max_length=40)
        model.generate(["The", "A list is"], sampler="sample", top_p=0.9)
        ```
        """
        as_text = isinstance(inputs, str) or is_text(inputs)
        prompts = self._prompts(inputs, as_text)
        longest = self.backbone.sequence_length
        end = longest
        if max_length is not None:
            end = positive_integer(max_length, "max_length")
        if end > longest:
            warnings.warn(
                f"The model reads {longest} tokens, so texts end there. "
                f"Received: max_length={max_length}",
                stacklevel=2,
            )
            end = longest
        stop_ids = self._stop_ids(stop_token_ids)
        draws = temperature != 1, top_k is not None, top_p is not None
        if hasattr(sampler, "get_next_token"):
            _check_no_settings((*draws, seed is not None), sampler)
        else:
            if any(draws) and sampler == "greedy":
                sampler = "sample"
            sampler = Sampling(sampler, temperature, top_k, top_p, seed)
        if not prompts:
            return []
        self._check_honest(
            "needs all tokens, those that are not written yet too, so this "
            "model cannot write"
        )
        self._check_prompts(prompts, end)
        writer = self._make_writer()
        if hasattr(sampler, "get_next_token"):
            rows = generation.write_by_keras_hub(
                writer, prompts, end, sampler, stop_ids
            )
        else:
            steps = end - min(map(len, prompts))
            rows = generation.write(
                writer,
                prompts,
                [end] * len(prompts),
                sampler,
                stop_ids,
                self._forbidden(),
                generation.progress(steps) if verbose else None,
            )
        if strip_prompt:
            rows = [row[len(p) :] for row, p in zip(rows, prompts)]
        if not as_text:
            return rows
        texts = [self.tokenizer.decode(row) for row in rows]
        if not strip_prompt:
            # The space that every text begins with.
            texts = [text.removeprefix(" ") for text in texts]
        return texts[0] if isinstance(inputs, str) else texts

    def score(self, prompts, continuations, batch_size=32):
        """How probable continuations are, for multiple choice.

            Σ_t log p(token t | prompt, tokens before t)

        In partial routing, a token before place P is asked for by a text that
        is too short to choose a route (`short_prompt`).

        Args:
            prompts: List of strings; `""` for none.
            continuations: List of as many strings.
            batch_size: Rows at a time.

        Returns:
            Dictionary of `log_probability`, float64 `(rows,)`, the sum, and
            `tokens`, int `(rows,)`, over how many.

        Raises:
            ValueError: If they differ in number, a continuation is empty, or
                a text is longer than the model reads, a prompt too short for
                partial routing, or the routing leaky.
        """
        prompts = check_texts(prompts, "prompts")
        continuations = check_texts(continuations, "continuations")
        if len(prompts) != len(continuations):
            raise ValueError(
                "Every prompt has one continuation. "
                f"Received: {len(prompts)} and {len(continuations)}"
            )
        self._check_honest(
            "sees the tokens whose probability is asked for, so there is none"
        )
        rows, starts = [], []
        for prompt, continuation in zip(prompts, continuations):
            before = [self.tokenizer.cls_id, *self._ids(prompt)]
            after = self._ids(continuation)
            if not after:
                raise ValueError(
                    "A continuation must have a token. "
                    f"Received: continuation={continuation!r}"
                )
            starts.append(len(before))
            rows.append(before + after)
        batch_size = positive_integer(batch_size, "batch_size")
        self._check_prompts(rows, self.backbone.sequence_length + 1)
        befores = [row[:start] for row, start in zip(rows, starts)]
        self._check_prefix(befores)
        sums = [
            self._sums(rows[i : i + batch_size], starts[i : i + batch_size])
            for i in range(0, len(rows), batch_size)
        ]
        return {
            "log_probability": np.concatenate(sums),
            "tokens": np.array([len(r) - s for r, s in zip(rows, starts)]),
        }

    def _check_honest(self, why):
        """Raises a ValueError if a route needs tokens that come later."""
        cheat = getattr(self.backbone, "what_cheats", "")
        if cheat:
            raise ValueError(f"The routing {why}. Received: {cheat}")

    def _sums(self, rows, starts):
        """Sums of log-probabilities from `starts` on."""
        n = max(map(len, rows))
        targets = self._padded(rows, n)[:, 1:]  # output t predicts token t + 1
        log_p = self._log_p(rows, targets)
        # Where the first P tokens choose the route, outputs 0 to P - 2 know
        # them all. Those of a text that is too short to choose do not.
        first = self.first_predicted
        if min(starts) <= first:
            beginnings = [row[:first] for row in rows]
            log_p[:, :first] = self._log_p(beginnings, targets[:, :first])
        place = np.arange(1, n)
        lengths = np.array([[len(row)] for row in rows])
        counted = (place >= np.array(starts)[:, None]) & (place < lengths)
        return np.where(counted, log_p, 0).sum(-1)

    def _log_p(self, rows, targets):
        """log p of each target, float64 `(rows, targets)`."""
        n = max(map(len, rows))
        inputs = {
            "token_ids": self._padded(rows, n),
            "padding_mask": np.arange(n) < [[len(row)] for row in rows],
        }
        inputs["padding_mask"] = inputs["padding_mask"].astype("int32")
        logits = keras.Model.predict_on_batch(self, inputs)
        logits = np.asarray(logits, "float64")[:, : targets.shape[1]]
        logits -= logits.max(-1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return np.take_along_axis(log_p, targets[..., None], -1)[..., 0]

    def _padded(self, rows, n):
        """int32 `(rows, n)`."""
        padded = np.full((len(rows), n), self.tokenizer.pad_id, "int32")
        for row, ids in zip(padded, rows):
            row[: len(ids)] = ids
        return padded

    def _make_writer(self):
        if self._writer is None:
            self._writer = generation.Writer(self)
        return self._writer

    def _ids(self, text):
        return self.tokenizer.encode([spaced(text)])[0].ids if text else []

    def _prompts(self, inputs, as_text):
        """Lists of ids, with `<cls>` before a text."""
        if not as_text:
            if hasattr(inputs, "shape"):
                inputs = ops.convert_to_numpy(inputs).tolist()
            if not isinstance(inputs, (list, tuple)):
                self._checked_ids(inputs)  # raises
            return [self._checked_ids(row) for row in inputs]
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if self.tokenizer is None:
            raise ValueError(
                "The model has no tokenizer, so it takes token ids. "
                f"Received: inputs={inputs!r}"
            )
        check_texts(texts, "inputs")
        return [[self.tokenizer.cls_id, *self._ids(text)] for text in texts]

    def _checked_ids(self, row):
        """One prompt of token ids."""
        size = self.backbone.vocabulary_size
        row = row.tolist() if hasattr(row, "tolist") else row
        ids = list(row) if isinstance(row, (list, tuple)) else [row]
        are_ids = all(
            isinstance(i, numbers.Integral)
            and not isinstance(i, bool)
            and 0 <= i < size
            for i in ids
        )
        if not isinstance(row, (list, tuple)) or not are_ids:
            raise ValueError(
                "Prompts are strings, or lists of token ids, a list for each: "
                f"integers from 0 to {size - 1}. Received: {row!r}"
            )
        return [int(i) for i in ids]

    def _check_prompts(self, prompts, end):
        if not all(prompts):
            raise ValueError(
                "A prompt must have a token. Received: an empty one"
            )
        longest = max(map(len, prompts))
        if longest >= end:
            raise ValueError(
                "There is no room after the longest prompt: shorten it, raise "
                f"`max_length`, up to {self.backbone.sequence_length}. "
                f"Received: a prompt of {longest} tokens, `<cls>` included, "
                f"max_length={end}"
            )
        self._check_prefix(prompts)

    def _check_prefix(self, prompts):
        prefix = getattr(self.backbone, "prefix_length", 0)
        shortest = min(map(len, prompts))
        if shortest < prefix and self.backbone.short_prompt is None:
            raise ValueError(
                f"Partial routing needs prompts of {prefix} tokens. Give "
                "longer ones, or build the model with "
                "`short_prompt='deterministic'`. "
                f"Received: a prompt of {shortest} tokens"
            )

    def _stop_ids(self, stop_token_ids):
        if isinstance(stop_token_ids, str) and stop_token_ids == "auto":
            return {self.tokenizer.sep_id} if self.tokenizer else set()
        if stop_token_ids is None:
            return set()
        if hasattr(stop_token_ids, "shape"):
            stop_token_ids = ops.convert_to_numpy(stop_token_ids).tolist()
        if isinstance(stop_token_ids, (str, numbers.Number)):
            stop_token_ids = [stop_token_ids]
        size = self.backbone.vocabulary_size
        found = set()
        for token in _sequence(stop_token_ids):
            if isinstance(token, str):
                token = self._one_token(token)
            is_id = isinstance(token, numbers.Integral)
            if not is_id or isinstance(token, bool) or not 0 <= token < size:
                raise ValueError(
                    f"`stop_token_ids` are integers from 0 to {size - 1}, or "
                    "strings of one token each; one of them or a sequence. "
                    f"Received: {token!r}"
                )
            found.add(int(token))
        return found

    def _one_token(self, text):
        if self.tokenizer is None:
            raise ValueError(
                "The model has no tokenizer, so it stops at token ids. "
                f"Received: stop_token_ids with {text!r}"
            )
        ids = self.tokenizer.encode([text])[0].ids
        if len(ids) != 1:
            raise ValueError(
                "A text stops after a token, so a string must be one token. "
                f"Received: {text!r}, which is {len(ids)}"
            )
        return ids[0]

    def _forbidden(self):
        """Tokens that are no text: all special ones but the end."""
        if self.tokenizer is None:
            return []
        special = set(self.tokenizer.special_ids) - {self.tokenizer.sep_id}
        beyond = range(
            self.tokenizer.vocabulary_size, self.backbone.vocabulary_size
        )
        return sorted(special | set(beyond))


def _is_list(value):
    """Whether this is a list of documents inside of something."""
    return not isinstance(value, str) and is_text(value)


def _sequence(values):
    """A list or a set as it is, and anything else as the only one."""
    return values if isinstance(values, (list, tuple, set)) else [values]


def _check_no_settings(given, sampler):
    """Raises a ValueError for settings that a sampler would not look at."""
    if any(given):
        raise ValueError(
            "A sampler of KerasHub has settings of its own: leave out "
            "`temperature`, `top_k`, `top_p` and `seed`. "
            f"Received: them, and sampler={sampler!r}"
        )
