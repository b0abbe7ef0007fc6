"""What all image classifiers share."""

import logging

import keras

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.models import preset_folder
from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.freezing import freeze
from mlp_mixers.models.freezing import frozen_config
from mlp_mixers.models.freezing import split_frozen
from mlp_mixers.models.preset_lookup import ClassProperty
from mlp_mixers.models.preset_lookup import arguments_of
from mlp_mixers.models.preset_lookup import check_arguments
from mlp_mixers.models.preset_lookup import find_backbone
from mlp_mixers.models.preset_lookup import subclass_named
from mlp_mixers.models.preset_lookup import with_dtype
from mlp_mixers.models.preset_lookup import with_subclasses
from mlp_mixers.models.preset_weights import load_folder_weights
from mlp_mixers.models.preset_weights import load_public_weights
from mlp_mixers.models.preset_weights import public_weights
from mlp_mixers.training.optimizer import AdamW

logger = logging.getLogger("mlp_mixers")


class ImageClassifier(keras.Model):
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

    backbone_cls = Backbone
    _compiles_as_keras_decides = False

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
        if not isinstance(backbone, self.backbone_cls):
            raise ValueError(
                f"`backbone` must be a {self.backbone_cls.__name__}. "
                f"Received: backbone={backbone!r}"
            )
        num_classes = positive_integer(num_classes, "num_classes")
        check_arguments(type(self), kwargs)
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
        self.dtype_policy = dtype
        if not trainable:
            self.trainable = False  # all layers, the backbone's too
        self.backbone = backbone
        self.pooler = pooler
        self.head_dropout = dropout
        self.head = head
        self.num_classes = num_classes
        self.dropout_rate = dropout_rate
        self.activation = head.activation

    def compile(
        self, optimizer="auto", loss="auto", *, metrics="auto", **kwargs
    ):
        """Configures the model for training, with defaults that train.

        Args:
            optimizer: `"auto"` is AdamW at 1e-3 with weight decay 0.05 that
                spares biases and normalisations.
            loss: `"auto"` is sparse categorical cross-entropy: integer labels.
            metrics: `"auto"` is accuracy.
            **kwargs: See `keras.Model.compile`.
        """
        if optimizer == "auto":
            optimizer = AdamW(learning_rate=1e-3, weight_decay=0.05)
        if loss == "auto":
            loss = self._default_loss()
        if metrics == "auto":
            metrics = ["accuracy"]
        jit_compile = kwargs.get("jit_compile", "auto")
        self._compiles_as_keras_decides = jit_compile == "auto"
        super().compile(
            optimizer=optimizer, loss=loss, metrics=metrics, **kwargs
        )

    def _default_loss(self):
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

    def make_train_function(self, force=False):
        # The optimiser's variables before the step is traced: TensorFlow
        # would trace all of it twice otherwise (`docs/benchmarks.md`).
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def get_compile_config(self):
        config = super().get_compile_config()
        # Keras keeps what "auto" came to on the backend that saves, which is
        # not what it should be on the one that loads.
        if config and self._compiles_as_keras_decides:
            config["jit_compile"] = "auto"
        return config

    def compile_from_config(self, config):
        # Keras skips this for models with their own `compile`; ours takes
        # whatever Keras's does.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def get_config(self):
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "num_classes": self.num_classes,
            "dropout_rate": self.dropout_rate,
            "activation": keras.activations.serialize(self.activation),
            **frozen_config(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config, frozen = split_frozen(with_dtype(config))
        if isinstance(config["backbone"], dict):
            config["backbone"] = keras.saving.deserialize_keras_object(
                config["backbone"], custom_objects=custom_objects
            )
        return freeze(cls(**config), frozen)

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Builds a classifier from a preset.

        A folder in which a classifier was saved gives it back, head included.
        Called on `ImageClassifier` itself, the class is found by the preset.
        With another `num_classes`, and from a preset that holds a backbone
        alone, the head starts from random weights; a message says so when
        trained head weights are left behind.

        Args:
            preset: Name of a built-in preset (`list(cls.presets)`) or path of
                a folder written by `save_to_preset`.
            load_weights: Whether to load weights; `False` starts from random
                ones.
            **kwargs: Arguments of this class, `num_classes` among them, and
                of its backbone, to use instead of the preset's.

        Raises:
            ValueError: As `Backbone.from_preset`, and if the number of
                classes is neither saved nor given.

        Example:

        ```python
        model = GMLPImageClassifier.from_preset(
            "gmlp_small_224", num_classes=10, load_weights=False
        )
        ```
        """
        folder, backbone_name, _ = find_backbone(preset, load_weights)
        if cls is ImageClassifier:
            cls = _classifier_for(backbone_name)
        saved = folder and preset_folder.read_description(
            folder, preset_folder.TASK_FILE
        )
        task_cls, config = cls, {}
        if saved:
            task_cls = subclass_named(cls, saved[0], preset)
            config = with_dtype(saved[1])
        elif load_weights and not folder:
            config = {"num_classes": public_weights(preset)["num_classes"]}
        own = {k: kwargs[k] for k in kwargs if k in arguments_of(task_cls)}
        for_backbone = {
            k: kwargs[k] for k in kwargs if k not in own or k == "dtype"
        }
        if "num_classes" not in {**config, **own}:
            raise ValueError(
                f"The preset {preset!r} holds no classifier, so the number "
                "of classes must be given. Received: num_classes=None"
            )
        has_head = "num_classes" in config
        same_head = (
            has_head
            and own.get("num_classes", config["num_classes"])
            == config["num_classes"]
        )
        backbone = task_cls.backbone_cls.from_preset(
            preset,
            load_weights=load_weights and not same_head,
            **for_backbone,
        )
        task = task_cls.from_config({**config, **own, "backbone": backbone})
        if load_weights and same_head and folder is None:
            load_public_weights(task, preset, skip_head=False)
        elif load_weights and same_head:
            load_folder_weights(
                task,
                folder,
                for_backbone,
                build_saved=lambda: task_cls.from_preset(
                    preset, load_weights=False
                ),
            )
        elif load_weights and has_head:
            logger.warning(
                "The head of %s has %s classes and %s were asked for: the "
                "head starts from random weights.",
                preset,
                config["num_classes"],
                task.num_classes,
            )
        return task

    def save_to_preset(self, preset_dir):
        """Writes configuration and weights into a folder for `from_preset`.

        Args:
            preset_dir: Path of the folder.
        """
        preset_folder.write_preset(preset_dir, self.backbone, task=self)

    @ClassProperty
    def presets(cls):
        """The built-in presets that fit this class, by name."""
        return cls.backbone_cls.presets


def _classifier_for(backbone_name):
    """The class whose backbone has this registered name."""
    for candidate in with_subclasses(ImageClassifier):
        name = keras.saving.get_registered_name(candidate.backbone_cls)
        if name == backbone_name:
            return candidate
    raise ValueError(
        "No image classifier that is known here takes this backbone. "
        f"Received: registered_name={backbone_name!r}"
    )
