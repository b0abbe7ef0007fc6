"""What all span predictors share."""

import keras
import numpy as np
from keras import ops

from mlp_mixers.arguments import drop_rate
from mlp_mixers.data.span_windows import best_spans
from mlp_mixers.data.span_windows import span_windows
from mlp_mixers.data.text_encoder import check_texts
from mlp_mixers.data.text_encoder import check_tokenizer
from mlp_mixers.data.text_encoder import is_pair
from mlp_mixers.data.text_encoder import is_text
from mlp_mixers.models.input_checks import by_name
from mlp_mixers.models.input_checks import check_finite
from mlp_mixers.models.input_checks import shortened
from mlp_mixers.models.text_task import TextTask
from mlp_mixers.training.optimizer import AdamW

# What padding scores; finite, so that a loss with it is finite.
NEVER = -1e9


class SpanPredictor(TextTask):
    """Base of the span predictors: two numbers for each token.

    Args:
        backbone: A backbone whose output has shape `(batch, n, hidden_dim)`.
        dropout_rate: Dropout before the head.
        tokenizer: A `mlp_mixers.data.Tokenizer`, for text as input.
        dtype: Of the head; the backbone's own if `None`.
        trainable: Whether anything is trained.
        **kwargs: `name` of `keras.Model`.
    """

    reads = (
        "Questions come with the passages that hold the answers: "
        "`predict((questions, passages))`, two lists of strings."
    )

    def __init__(
        self,
        backbone,
        dropout_rate=0.0,
        tokenizer=None,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        self.check_backbone(backbone, kwargs)
        dropout_rate = drop_rate(dropout_rate, "dropout_rate")
        dtype = keras.dtype_policies.get(dtype or backbone.dtype_policy)

        # === Layers ===
        dropout = keras.layers.Dropout(
            dropout_rate, dtype=dtype, name="head_dropout"
        )
        head = keras.layers.Dense(
            2,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            dtype=dtype,
            name="head",
        )

        # === Functional Model ===
        inputs = dict(backbone.input)
        logits = head(dropout(backbone(inputs)))  # (b, n, 2)
        logits = ops.transpose(logits, (0, 2, 1))  # (b, 2, n)
        # In float32, where NEVER is a number.
        logits = ops.cast(logits, "float32")
        real = ops.expand_dims(inputs["padding_mask"] > 0, 1)  # (b, 1, n)
        outputs = ops.where(real, logits, NEVER)
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

        # === Config ===
        self.keep(backbone, dtype, trainable)
        self.keep_tokenizer(tokenizer, backbone)
        self.head_dropout = dropout
        self.head = head
        self.dropout_rate = dropout_rate

    def default_optimizer(self):
        """AdamW at 1e-4 with decay 0.01, biases and norms spared."""
        return AdamW(
            learning_rate=1e-4,
            weight_decay=0.01,
            epsilon=1e-6,
            global_clipnorm=1.0,
        )

    def default_loss(self):
        """Cross-entropy of the first and the last token of the answer."""
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def default_metrics(self):
        """How often a token is hit."""
        return {
            "metrics": [
                keras.metrics.SparseCategoricalAccuracy(name="accuracy")
            ]
        }

    def as_inputs(self, x):
        """Arrays after a look at them; to text, `predict` has the answer.

        Raises:
            ValueError: As `TextTask.as_inputs`; if `x` is text, since the
                places of answers are not known.
        """
        if is_text(x):
            raise ValueError(
                "Answers are marked by their tokens. Make windows of the "
                "passages, `windows = model.windows(questions, passages, "
                "answers=...)` (`mlp_mixers.data.span_windows`), and fit "
                "their `token_ids` and `padding_mask` to their `starts` and "
                "`ends`: see docs/language.md, In Python. "
                f"Received: {shortened(x)}"
            )
        return super().as_inputs(x)

    def num_labels(self, x):
        """Places of tokens: as many as the inputs have."""
        return np.shape(x["token_ids"])[1]

    def predict(self, x, *args, **kwargs):
        """As `keras.Model.predict`; `x` may be `(questions, contexts)`.

        Returns:
            Logits `(batch, 2, n)`; of text, the list of answers, see `answer`.

        Raises:
            ValueError: As `answer`.
        """
        if not is_text(x):
            return super().predict(x, *args, **kwargs)
        if not is_pair(x):
            raise ValueError(f"{self.reads} Received: {shortened(x)}")
        kwargs = by_name(keras.Model.predict, args, kwargs, known=2)
        return self.answer(*x, **kwargs).texts

    def answer(
        self,
        questions,
        contexts,
        stride=None,
        max_answer_tokens=30,
        null_threshold=None,
        **kwargs,
    ):
        """Finds the answer to each question in its passage.

        Args:
            questions: List of strings.
            contexts: List of as many strings; long ones are read in windows.
            stride: Tokens from one window to the next; half of what a window
                shows of a passage if `None`.
            max_answer_tokens: Longest answer.
            null_threshold: See `mlp_mixers.data.best_spans`; `None` always
                answers.
            **kwargs: Of `keras.Model.predict`.

        Returns:
            `mlp_mixers.data.SpanPredictions`.

        Raises:
            ValueError: If there is no tokenizer, or not one passage for each
                question; if the weights are not finite.
        """
        questions = check_texts(questions, "questions")
        contexts = check_texts(contexts, "contexts")
        windows = self.windows(questions, contexts, stride)
        inputs = {
            "token_ids": windows.token_ids,
            "padding_mask": windows.padding_mask,
        }
        logits = super().predict(inputs, **kwargs)  # (w, 2, n)
        check_finite(logits)
        return best_spans(
            logits[:, 0],
            logits[:, 1],
            windows,
            max_answer_tokens,
            null_threshold,
        )

    def windows(self, questions, contexts, stride=None, answers=None):
        """`mlp_mixers.data.span_windows` of this model's length."""
        check_tokenizer(self.tokenizer)
        n = self.backbone.sequence_length
        max_question = min(64, max(n // 4, 1))
        room = n - 3 - max_question
        if stride is None:
            stride = max(room // 2, 1)
        return span_windows(
            questions,
            contexts,
            self.tokenizer,
            n,
            stride,
            max_question,
            answers,
        )

    def get_config(self):
        config = super().get_config()
        config["dropout_rate"] = self.dropout_rate
        return config
