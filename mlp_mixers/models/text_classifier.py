"""What all text classifiers share."""

import keras
import numpy as np

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.models import preset_folder
from mlp_mixers.models.input_checks import check_finite
from mlp_mixers.models.preset_lookup import folder_of
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
        class_names: List of `num_classes` different strings, the first that
            of class 0; `None` if they have none.
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
        class_names=None,
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
        self.class_names = _check_names(class_names, num_classes)

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

    def classify(self, texts, **kwargs):
        """Says how probable the classes are.

        Args:
            texts: List of strings, a tuple of two lists for pairs, or arrays;
                or one string.
            **kwargs: Of `keras.Model.predict`.

        Returns:
            For each text a list of pairs `(name, probability)`, the most
            probable class first; its number where classes have no names. For
            one string, that list alone.

        Raises:
            ValueError: If the model says a number and no class, has an
                activation that makes no probabilities, or weights that are
                not finite.

        Example:

        ```python
        name, probability = model.classify("A fine film.")[0]
        ```
        """
        probable = self.activation in (
            keras.activations.linear,
            keras.activations.softmax,
        )
        if self.num_classes == 1 or not probable:
            raise ValueError(
                "Probabilities of classes need two classes or more, and a "
                "head that returns logits or a softmax. Call `predict`. "
                f"Received: num_classes={self.num_classes}, activation="
                f"{keras.activations.serialize(self.activation)!r}"
            )
        alone = isinstance(texts, str)
        texts = [texts] if alone else texts
        outputs = self.predict(texts, **{"verbose": 0, **kwargs})
        outputs = check_finite(np.asarray(outputs, "float32"))
        if self.activation is keras.activations.linear:
            outputs = keras.ops.convert_to_numpy(keras.ops.softmax(outputs))
        names = self.class_names or range(self.num_classes)
        found = [
            [(names[k], float(row[k])) for k in np.argsort(-row, kind="stable")]
            for row in outputs
        ]
        return found[0] if alone else found

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """As `Task.from_preset`; names of classes come along with their head.

        They are the task's own, or those that `recipes.finetune` wrote.
        """
        folder = folder_of(preset)
        if "class_names" not in kwargs and folder is not None:
            names = preset_folder.read_class_names(folder)
            same = names and len(names) == kwargs.get("num_classes", len(names))
            kwargs = {**kwargs, "class_names": names if same else None}
        return super().from_preset(preset, load_weights, **kwargs)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "num_classes": self.num_classes,
                "dropout_rate": self.dropout_rate,
                "activation": keras.activations.serialize(self.activation),
                "class_names": self.class_names,
            }
        )
        return config


def _check_names(names, num_classes):
    """A list of one name for each class, or `None`."""
    if names is None:
        return None
    fits = isinstance(names, (list, tuple)) and all(
        isinstance(name, str) for name in names
    )
    if not fits or len(set(names)) != len(names) or len(names) != num_classes:
        raise ValueError(
            "`class_names` must be a list of a different string for each of "
            f"the {num_classes} classes. Received: class_names={names!r}"
        )
    return list(names)
