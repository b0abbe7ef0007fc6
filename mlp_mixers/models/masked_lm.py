"""What all masked language models share."""

import dataclasses

import keras
import numpy as np
from keras import ops

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.epochs import FollowEpochs
from mlp_mixers.data.masked_batches import MaskedLMBatches
from mlp_mixers.data.packing import pack_documents
from mlp_mixers.data.text_encoder import TextEncoder
from mlp_mixers.data.text_encoder import check_texts
from mlp_mixers.data.text_encoder import check_tokenizer
from mlp_mixers.data.text_encoder import is_pair
from mlp_mixers.data.text_encoder import is_text
from mlp_mixers.layers.gather_tokens import GatherTokens
from mlp_mixers.models.input_checks import by_name
from mlp_mixers.models.input_checks import check_finite
from mlp_mixers.models.input_checks import check_range
from mlp_mixers.models.input_checks import shortened
from mlp_mixers.models.input_checks import to_numpy
from mlp_mixers.models.text_task import TextTask
from mlp_mixers.training.metrics import Perplexity
from mlp_mixers.training.optimizer import AdamW


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A token for a masked place.

    Attributes:
        token: The token, with the space that belongs to it.
        token_id: Its number.
        probability: What the model gives it.
        text: The text with the token in the place.
    """

    token: str
    token_id: int
    probability: float
    text: str


class MaskedLM(TextTask):
    """Base of the masked language models.

    The features of the masked tokens, times the embedding: `h · Eᵀ`.

    Args:
        backbone: A backbone with a `token_embedding` that can be called in
            reverse (`keras.layers.ReversibleEmbedding`).
        tokenizer: A `mlp_mixers.data.Tokenizer`, for text as input.
        dtype: Of the head; the backbone's own if `None`.
        trainable: Whether anything is trained.
        **kwargs: `name` of `keras.Model`.
    """

    reads = (
        "A masked language model reads documents, a list of strings: "
        "`fit(documents)`. It has no pairs, and no labels but the tokens that "
        "it masks."
    )

    def __init__(
        self,
        backbone,
        tokenizer=None,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        self.check_backbone(backbone, kwargs)
        dtype = keras.dtype_policies.get(dtype or backbone.dtype_policy)

        # === Layers ===
        gather = GatherTokens(dtype=dtype, name="gather_tokens")

        # === Functional Model ===
        inputs = dict(backbone.input)
        mask_positions = keras.Input(
            (None,), dtype="int32", name="mask_positions"
        )
        x = gather(backbone(inputs), mask_positions)  # (b, p, d)
        logits = backbone.token_embedding(x, reverse=True)  # (b, p, V)
        super().__init__(
            inputs={**inputs, "mask_positions": mask_positions},
            outputs=logits,
            **kwargs,
        )

        # === Config ===
        self.keep(backbone, dtype, trainable)
        self.keep_tokenizer(tokenizer, backbone)
        self.gather_tokens = gather

    def default_optimizer(self):
        """AdamW at 1e-3 with decay 0.01, biases and norms spared."""
        return AdamW(learning_rate=1e-3, weight_decay=0.01, epsilon=1e-6)

    def default_loss(self):
        """Σ w·ce / Σ w over the masked positions, w from `mask_weights`."""
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    def default_metrics(self):
        """Masked perplexity and accuracy."""
        return {
            "weighted_metrics": [
                Perplexity(),
                keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            ]
        }

    def fit(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.fit`; `x` may be a list of documents.

        Documents are packed to the backbone's `sequence_length` and 15% of
        their tokens are masked, afresh in every epoch. For another share, or
        for whole words, make `mlp_mixers.data.MaskedLMBatches` yourself.

        Raises:
            ValueError: As `Task.fit`; if there is no tokenizer for documents,
                or batches were made with another one than the model's.
        """
        kwargs = by_name(keras.Model.fit, args, kwargs, known=3)
        if is_text(x):
            # Keras draws this one from what `set_random_seed` has set.
            seed = ops.convert_to_numpy(keras.random.SeedGenerator().state)
            x = self._batches(x, kwargs, int(seed[0]))
            kwargs["callbacks"] = [
                *(kwargs.get("callbacks") or ()),
                FollowEpochs(x),
            ]
        validation = kwargs.get("validation_data")
        if is_text(validation):
            kwargs["validation_data"] = self._batches(validation, kwargs)
        if isinstance(x, MaskedLMBatches):
            kwargs = {"shuffle": False, **kwargs}  # they are shuffled
            kwargs.pop("batch_size", None)
        return super().fit(x, y, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.evaluate`; `x` may be a list of documents.

        They are masked the same in every call.
        """
        kwargs = by_name(keras.Model.evaluate, args, kwargs, known=3)
        if is_text(x):
            x = self._batches(x, kwargs)
            kwargs.pop("batch_size", None)
        return super().evaluate(x, y, **kwargs)

    def as_inputs(self, x):
        """Arrays and batches after a look at them; text is not for here.

        Raises:
            ValueError: As `TextTask.as_inputs`; if they are batches of
                another tokenizer's tokens.
        """
        if is_text(x):
            raise ValueError(
                f"{self.reads} Held-out documents likewise: "
                "`validation_data=documents`. "
                f"Received: {shortened(x)}"
            )
        if isinstance(x, MaskedLMBatches):
            self._check_tokenizer_of(x)
        return super().as_inputs(x)

    def check_arrays(self, x):
        super().check_arrays(x)
        places = to_numpy(x["mask_positions"])
        length = np.shape(x["token_ids"])[1]
        check_range(places, length, "`mask_positions`", "position")

    def _check_tokenizer_of(self, batches):
        tokenizer = batches.tokenizer
        known = self.backbone.vocabulary_size
        other = self.tokenizer is not None and tokenizer != self.tokenizer
        if other or tokenizer.vocabulary_size > known:
            raise ValueError(
                "The batches were made with another tokenizer than the "
                "model's. Make them with `model.tokenizer`, or build the "
                "model with theirs. Received: batches of "
                f"{tokenizer!r}, a model of {self.tokenizer!r} with "
                f"vocabulary_size={known}"
            )

    def _batches(self, texts, kwargs, seed=None):
        """Batches of documents; masked the same for ever without a seed."""
        if is_pair(texts):
            raise ValueError(f"{self.reads} Received: {shortened(texts)}")
        texts = check_texts(texts, "documents")
        length = self.backbone.sequence_length
        tokenizer = check_tokenizer(self.tokenizer)
        return MaskedLMBatches(
            pack_documents(texts, tokenizer, length),
            tokenizer,
            batch_size=kwargs.get("batch_size") or 32,
            seed=seed or 0,
            fixed=seed is None,
            shuffle=seed is not None,
        )

    def predict(self, x, *args, **kwargs):
        """As `keras.Model.predict`; `x` may be texts with `<mask>` in them.

        Returns:
            Logits `(texts, most masks in a text, V)`.
        """
        if is_text(x):
            x, _ = self._encoder().with_masks(x)
        return super().predict(x, *args, **kwargs)

    def fill_mask(self, text, top_k=5):
        """The most probable tokens for each `<mask>` in a text.

        Args:
            text: String with `<mask>` in it, or a list of such strings.
            top_k: How many tokens.

        Returns:
            List of `Candidate`s, the most probable first; a list of such
            lists if the text has several masks, which are filled
            independently; a list of all that for a list of texts.

        Raises:
            ValueError: If there is no tokenizer, a text has no mask, or is
                longer than the model reads; if the weights are not finite.
        """
        top_k = positive_integer(top_k, "top_k")
        texts = [text] if isinstance(text, str) else text
        inputs, counts = self._encoder().with_masks(texts)
        logits = check_finite(self.predict(inputs, verbose=0))
        answers = []
        for i, count in enumerate(counts):
            per_mask = [
                self._candidates(inputs, i, slot, logits[i, slot], top_k)
                for slot in range(count)
            ]
            answers.append(per_mask[0] if count == 1 else per_mask)
        return answers[0] if isinstance(text, str) else answers

    def _encoder(self):
        return TextEncoder(self.tokenizer, self.backbone.sequence_length)

    def _candidates(self, inputs, row, slot, logits, top_k):
        # The backbone may have more rows than the tokenizer has tokens.
        logits = np.array(logits[: self.tokenizer.vocabulary_size], "float32")
        logits[self.tokenizer.special_ids] = -np.inf
        probabilities = ops.convert_to_numpy(ops.softmax(logits))
        ids = np.array(inputs["token_ids"][row])
        ids = ids[inputs["padding_mask"][row]]
        ordinary = len(logits) - len(self.tokenizer.special_ids)
        best = np.argsort(-probabilities, kind="stable")[:ordinary][:top_k]
        candidates = []
        for token_id in best:
            filled = ids.copy()
            filled[inputs["mask_positions"][row, slot]] = token_id
            candidates.append(
                Candidate(
                    self.tokenizer.token(token_id),
                    int(token_id),
                    float(probabilities[token_id]),
                    self._readable(filled),
                )
            )
        return candidates

    def _readable(self, ids):
        """The text of ids, `<mask>` where one is left."""
        ids = ids[1:-1]  # without <cls> and <sep>
        parts, mask = [], self.tokenizer.mask_id
        edges = [-1, *np.flatnonzero(ids == mask), len(ids)]
        for begin, end in zip(edges[:-1], edges[1:]):
            parts.append(self.tokenizer.decode(ids[begin + 1 : end]))
        return " <mask>".join(parts).lstrip(" ")
