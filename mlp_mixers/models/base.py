"""What all backbones share, and all image classifiers.

The grammar is KerasHub's: a *backbone* turns inputs into features, a *task*
puts a head on a backbone, both are Functional models built in `__init__`,
and both come from a preset, `from_preset`, and go to one, `save_to_preset`.
"""

import difflib
import inspect
import logging
import pathlib

import keras

from mlp_mixers.arguments import positive_integer
from mlp_mixers.models import preset_folder
from mlp_mixers.models.presets import PRESETS
from mlp_mixers.training.optimizer import AdamW

logger = logging.getLogger("mlp_mixers")


class _ClassProperty:
    """A read-only property of the class itself."""

    def __init__(self, getter):
        self.getter = getter
        self.__doc__ = getter.__doc__

    def __get__(self, instance, owner):
        return self.getter(owner)


class Backbone(keras.Model):
    """Base of the backbones: configuration, presets, nothing of a paper.

    A subclass builds its graph in `__init__`, hands inputs and outputs to
    `super().__init__`, keeps each argument as an attribute of the same name
    and lists them in `get_config`.
    """

    def __init__(self, *args, dtype=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.dtype_policy = keras.dtype_policies.get(dtype)

    def get_config(self):
        # Not Functional's config, which would spell out every layer.
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**_with_dtype(config))

    @classmethod
    def from_preset(cls, preset, load_weights=True, **overrides):
        """Builds the backbone that a preset describes.

        Args:
            preset: Name of a built-in preset (`list(cls.presets)`) or path of
                a folder written by `save_to_preset`.
            load_weights: Whether to load its weights; `False` starts from
                random ones.
            **overrides: Constructor arguments to use instead of the preset's.

        Raises:
            ValueError: If the preset is unknown or of another class, has no
                weights to load, or its weights do not fit the overrides.

        Example:

        ```python
        backbone = GMLPBackbone.from_preset(
            "gmlp_tiny_224", load_weights=False, drop_path_rate=0.1
        )
        ```
        """
        folder, class_name, config = _find_backbone(preset, load_weights)
        backbone_cls = _subclass_named(cls, class_name, preset)
        _check_arguments(backbone_cls, overrides)
        backbone = backbone_cls.from_config({**config, **overrides})
        if load_weights:
            preset_folder.read_weights(
                backbone,
                folder,
                preset_folder.BACKBONE_WEIGHTS_FILE,
                overrides,
            )
        return backbone

    def save_to_preset(self, preset_dir):
        """Writes configuration and weights into a folder for `from_preset`.

        Args:
            preset_dir: Path of the folder.
        """
        preset_folder.write_preset(preset_dir, self)

    @_ClassProperty
    def presets(cls):
        """The built-in presets of this class and its subclasses, by name."""
        names = {c.__name__ for c in _with_subclasses(cls)}
        return {k: v for k, v in PRESETS.items() if v["class_name"] in names}


class ImageClassifier(keras.Model):
    """Base of the image classifiers: mean over tokens, then a linear head.

    Args:
        backbone: A backbone whose output has shape `(batch, n, hidden_dim)`.
        num_classes: Number of classes.
        dropout_rate: Dropout before the head.
        activation: Activation of the head; `None` returns logits.
        dtype: Of the head; the backbone's own if `None`.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Raises:
        ValueError: If `backbone` is of another class, or `num_classes` is not
            positive.
    """

    backbone_cls = Backbone

    def __init__(
        self,
        backbone,
        num_classes,
        dropout_rate=0.0,
        activation=None,
        dtype=None,
        **kwargs,
    ):
        if not isinstance(backbone, self.backbone_cls):
            raise ValueError(
                f"`backbone` must be a {self.backbone_cls.__name__}. "
                f"Received: backbone={backbone!r}"
            )
        num_classes = positive_integer(num_classes, "num_classes")
        dtype = keras.dtype_policies.get(dtype or backbone.dtype_policy)

        # === Layers ===
        pooler = keras.layers.GlobalAveragePooling1D(dtype=dtype, name="pooler")
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
            loss = keras.losses.SparseCategoricalCrossentropy(
                from_logits=self.activation is keras.activations.linear
            )
        if metrics == "auto":
            metrics = ["accuracy"]
        super().compile(
            optimizer=optimizer, loss=loss, metrics=metrics, **kwargs
        )

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
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = _with_dtype(config)
        if isinstance(config["backbone"], dict):
            config["backbone"] = keras.saving.deserialize_keras_object(
                config["backbone"], custom_objects=custom_objects
            )
        return cls(**config)

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Builds a classifier from a preset.

        A folder in which a classifier was saved gives it back, head included.
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
        folder, _, _ = _find_backbone(preset, load_weights)
        saved = folder and preset_folder.read_description(
            folder, preset_folder.TASK_FILE
        )
        task_cls, config = cls, {}
        if saved:
            task_cls = _subclass_named(cls, saved[0], preset)
            config = _with_dtype(saved[1])
        own = {k: kwargs[k] for k in kwargs if k in _arguments(task_cls)}
        for_backbone = {
            k: kwargs[k] for k in kwargs if k not in own or k == "dtype"
        }
        if "num_classes" not in {**config, **own}:
            raise ValueError(
                f"The preset {preset!r} holds no classifier, so the number "
                "of classes must be given. Received: num_classes=None"
            )
        same_head = (
            saved
            and own.get("num_classes", config["num_classes"])
            == config["num_classes"]
        )
        backbone = task_cls.backbone_cls.from_preset(
            preset,
            load_weights=load_weights and not same_head,
            **for_backbone,
        )
        task = task_cls(**{**config, **own, "backbone": backbone})
        if load_weights and same_head:
            preset_folder.read_weights(
                task, folder, preset_folder.TASK_WEIGHTS_FILE, for_backbone
            )
        elif load_weights and saved:
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

    @_ClassProperty
    def presets(cls):
        """The built-in presets that fit this class, by name."""
        return cls.backbone_cls.presets


def _find_backbone(preset, load_weights):
    """Returns `(folder or None, class name, config)` of a preset's backbone."""
    if preset in PRESETS:
        entry = PRESETS[preset]
        if load_weights and entry["weights"] is None:
            available = [k for k, v in PRESETS.items() if v["weights"]]
            raise ValueError(
                f"The preset {preset!r} has no public weights. Pass "
                "`load_weights=False` to start from random ones. Presets "
                f"with weights: {available or 'none yet'}"
            )
        return None, entry["class_name"], entry["config"]
    folder = pathlib.Path(preset)
    found = folder.is_dir() and preset_folder.read_description(
        folder, preset_folder.BACKBONE_FILE
    )
    if found:
        return folder, *found
    if folder.is_dir():
        raise ValueError(
            f"The folder {str(folder)!r} is not a preset: it has no "
            f"{preset_folder.BACKBONE_FILE}. `save_to_preset` writes one."
        )
    close = difflib.get_close_matches(str(preset), PRESETS, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"There is no preset and no folder of this name.{hint} Built-in "
        f"presets: {list(PRESETS)}. Received: preset={str(preset)!r}"
    )


def _with_subclasses(cls):
    yield cls
    for subclass in cls.__subclasses__():
        yield from _with_subclasses(subclass)


def _subclass_named(cls, class_name, preset):
    for candidate in _with_subclasses(cls):
        if candidate.__name__ == class_name:
            return candidate
    raise ValueError(
        f"The preset {str(preset)!r} holds a {class_name}, which is not a "
        f"{cls.__name__}. Call `from_preset` on {class_name}."
    )


def _arguments(cls):
    """The names that a constructor takes, `keras.Model`'s included."""
    names = set(inspect.signature(cls.__init__).parameters)
    return names - {"self", "args", "kwargs"} | {"name", "trainable"}


def _check_arguments(cls, given):
    unknown = set(given) - _arguments(cls)
    if unknown:
        raise ValueError(
            f"{cls.__name__} has no argument {sorted(unknown)}. It takes "
            f"{sorted(_arguments(cls))}."
        )


def _with_dtype(config):
    """A copy of `config` with its dtype policy rebuilt."""
    config = dict(config)
    if isinstance(config.get("dtype"), dict):
        config["dtype"] = keras.dtype_policies.deserialize(config["dtype"])
    return config
