"""What all text classifiers share."""

import keras

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.models.text_task import TextTask
from mlp_mixers.training.optimizer import AdamW


class TextClassifier(TextTask):
    """Base of the text classifiers: a linear head on the first token.

    Args:
        backbone: A backbone whose output has shape `(batch, n, hidden_dim)`.
        num_classes: Number of classes; 1 for a number (regression).
        dropout_rate: Dropout before the head.
        activation: Activation of the head; `None` returns logits.
        tokenizer: A `mlp_mixers.data.Tokenizer`, for text as input.
        dtype: Of the head; the backbone's own if `None`.
        trainable: Whether anything is trained.
        **kwargs: `name` of `keras.Model`.
    """

    head_arguments = ("num_classes",)

    def __init__(
        self,
        backbone,
        num_classes,
        dropout_rate=0.0,
        activation=None,
        tokenizer=None,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        self.check_backbone(backbone, kwargs)
        num_classes = positive_integer(num_classes, "num_classes")
        dropout_rate = drop_rate(dropout_rate, "dropout_rate")
        dtype = keras.dtype_policies.get(dtype or backbone.dtype_policy)

        # === Layers ===
        dropout = keras.layers.Dropout(
            dropout_rate, dtype=dtype, name="head_dropout"
        )
        head = keras.layers.Dense(
            num_classes,
            activation=activation,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            dtype=dtype,
            name="head",
        )

        # === Functional Model ===
        inputs = dict(backbone.input)
        x = backbone(inputs)[:, 0]  # <cls>: (b, d)
        outputs = head(dropout(x))  # (b, num_classes)
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)

        # === Config ===
        self.keep(backbone, dtype, trainable)
        self.keep_tokenizer(tokenizer, backbone)
        self.head_dropout = dropout
        self.head = head
        self.num_classes = num_classes
        self.dropout_rate = dropout_rate
        self.activation = head.activation

    def default_optimizer(self):
        """AdamW at 1e-4 with decay 0.01, biases and norms spared."""
        return AdamW(
            learning_rate=1e-4,
            weight_decay=0.01,
            epsilon=1e-6,
            global_clipnorm=1.0,
        )

    def default_loss(self):
        """Cross-entropy of integer labels; squared error for one output."""
        if self.num_classes == 1:
            return keras.losses.MeanSquaredError()
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=self.activation is keras.activations.linear
        )

    def default_metrics(self):
        """Accuracy; none for one output."""
        return {"metrics": ["accuracy"] if self.num_classes > 1 else None}

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "num_classes": self.num_classes,
                "dropout_rate": self.dropout_rate,
                "activation": keras.activations.serialize(self.activation),
            }
        )
        return config
