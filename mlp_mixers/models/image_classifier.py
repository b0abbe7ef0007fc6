"""What all image classifiers share."""

import keras

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.models.task import Task
from mlp_mixers.training.optimizer import AdamW


class ImageClassifier(Task):
    """Base of the image classifiers: mean over tokens, then a linear head.

    Args:
        backbone: A backbone whose output has shape `(batch, n, hidden_dim)`.
        num_classes: Number of classes.
        dropout_rate: Dropout before the head.
        activation: Activation of the head; `None` returns logits.
        dtype: Of the head; the backbone's own if `None`.
        trainable: Whether anything is trained.
        **kwargs: `name` of `keras.Model`.

    Raises:
        ValueError: If `backbone` is of another class, or `num_classes` is not
            positive.
    """

    head_arguments = ("num_classes",)

    def __init__(
        self,
        backbone,
        num_classes,
        dropout_rate=0.0,
        activation=None,
        dtype=None,
        trainable=True,
        **kwargs,
    ):
        self.check_backbone(backbone, kwargs)
        num_classes = positive_integer(num_classes, "num_classes")
        dropout_rate = drop_rate(dropout_rate, "dropout_rate")
        dtype = keras.dtype_policies.get(dtype or backbone.dtype_policy)

        # === Layers ===
        pooler = keras.layers.GlobalAveragePooling1D(
            data_format="channels_last", dtype=dtype, name="pooler"
        )
        dropout = keras.layers.Dropout(
            dropout_rate, dtype=dtype, name="head_dropout"
        )
        head = keras.layers.Dense(
            num_classes, activation=activation, dtype=dtype, name="head"
        )

        # === Functional Model ===
        x = backbone(backbone.input)  # (b, n, d)
        outputs = head(dropout(pooler(x)))  # (b, num_classes)
        super().__init__(inputs=backbone.input, outputs=outputs, **kwargs)

        # === Config ===
        self.keep(backbone, dtype, trainable)
        self.pooler = pooler
        self.head_dropout = dropout
        self.head = head
        self.num_classes = num_classes
        self.dropout_rate = dropout_rate
        self.activation = head.activation

    def default_optimizer(self):
        """AdamW at 1e-3 with decay 0.05, biases and norms spared."""
        return AdamW(learning_rate=1e-3, weight_decay=0.05)

    def default_loss(self):
        """Sparse categorical cross-entropy: integer labels."""
        activations = keras.activations
        if self.num_classes < 2 or self.activation not in (
            activations.linear,
            activations.softmax,
        ):
            raise ValueError(
                "The default loss needs two classes or more, and a head that "
                "returns logits or a softmax. Pass `loss=`. Received: "
                f"num_classes={self.num_classes}, "
                f"activation={activations.serialize(self.activation)!r}"
            )
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=self.activation is activations.linear
        )

    def default_metrics(self):
        """Accuracy."""
        return {"metrics": ["accuracy"]}

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
