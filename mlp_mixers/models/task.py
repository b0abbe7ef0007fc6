"""What all tasks share: a head on a backbone, compiled, saved and found again.

The grammar is KerasHub's, see `mlp_mixers.models.backbone`.
"""

import contextlib
import logging

import keras

from mlp_mixers.models import preset_folder
from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.freezing import freeze
from mlp_mixers.models.freezing import frozen_config
from mlp_mixers.models.freezing import split_frozen
from mlp_mixers.models.input_checks import are_arrays
from mlp_mixers.models.input_checks import as_array
from mlp_mixers.models.input_checks import by_name
from mlp_mixers.models.input_checks import check_labels
from mlp_mixers.models.input_checks import values_kept
from mlp_mixers.models.preset_lookup import ClassProperty
from mlp_mixers.models.preset_lookup import arguments_of
from mlp_mixers.models.preset_lookup import check_arguments
from mlp_mixers.models.preset_lookup import find_backbone
from mlp_mixers.models.preset_lookup import is_known
from mlp_mixers.models.preset_lookup import subclass_named
from mlp_mixers.models.preset_lookup import with_dtype
from mlp_mixers.models.preset_lookup import with_subclasses
from mlp_mixers.models.preset_weights import load_folder_weights
from mlp_mixers.models.preset_weights import load_public_weights
from mlp_mixers.models.preset_weights import public_weights

logger = logging.getLogger("mlp_mixers")


class Task(keras.Model):
    """Base of the tasks.

    A subclass checks its backbone with `check_backbone`, builds its graph in
    `__init__`, calls `keep` with its backbone and dtype, and says in
    `default_loss`, `default_metrics` and `default_optimizer` what `compile()`
    stands for.
    """

    backbone_cls = Backbone
    # Arguments that decide the shape of the head: a preset saved with others
    # gives its backbone only.
    head_arguments = ()
    _compiles_as_keras_decides = False

    def check_backbone(self, backbone, kwargs):
        """Raises a ValueError for a wrong backbone or unknown arguments."""
        if not isinstance(backbone, self.backbone_cls):
            raise ValueError(
                f"`backbone` must be a {self.backbone_cls.__name__}. "
                f"Received: backbone={backbone!r}"
            )
        check_arguments(type(self), kwargs)

    def keep(self, backbone, dtype, trainable):
        """What a constructor does last."""
        self.dtype_policy = dtype
        if not trainable:
            self.trainable = False  # all layers, the backbone's too
        self.backbone = backbone

    def default_optimizer(self):
        """What `compile(optimizer="auto")` takes."""
        raise NotImplementedError  # each task has its own

    def default_loss(self):
        """What `compile(loss="auto")` takes."""
        raise NotImplementedError  # each task has its own

    def default_metrics(self):
        """What `compile(metrics="auto")` takes, as arguments of `compile`."""
        raise NotImplementedError  # each task has its own

    def compile(
        self, optimizer="auto", loss="auto", *, metrics="auto", **kwargs
    ):
        """Configures the model for training, with defaults that train.

        Args:
            optimizer: `"auto"` is the task's own.
            loss: `"auto"` is the task's own.
            metrics: `"auto"` are the task's own.
            **kwargs: See `keras.Model.compile`.
        """
        if optimizer == "auto":
            optimizer = self.default_optimizer()
        if loss == "auto":
            loss = self.default_loss()
        kwargs = {"metrics": metrics, **kwargs}
        if metrics == "auto":
            kwargs = {**kwargs, "metrics": None, **self.default_metrics()}
        jit_compile = kwargs.get("jit_compile", "auto")
        self._compiles_as_keras_decides = jit_compile == "auto"
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def as_inputs(self, x):
        """What the model is called with; a task that reads text encodes it.

        Args:
            x: What `fit`, `evaluate` or `predict` got.
        """
        return x

    def fit(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.fit`; labels and weights may be lists.

        Raises:
            ValueError: If arrays come without labels, or a label is none of
                this task's.
        """
        kwargs = by_name(keras.Model.fit, args, kwargs, known=3)
        weights = kwargs.get("sample_weight")
        x, y, kwargs["sample_weight"] = self._examples(x, y, weights)
        validation = kwargs.get("validation_data")
        if isinstance(validation, (tuple, list)):
            if not 1 <= len(validation) <= 3:
                raise ValueError(
                    "`validation_data` must be `(x, y)` or "
                    "`(x, y, sample_weight)`. "
                    f"Received: a {type(validation).__name__} of "
                    f"{len(validation)}"
                )
            kwargs["validation_data"] = self._examples(*validation)
        elif validation is not None:
            kwargs["validation_data"] = self.as_inputs(validation)
        with self._unharmed():
            return super().fit(x, y, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.evaluate`; labels and weights may be lists.

        Raises:
            ValueError: As `fit`.
        """
        kwargs = by_name(keras.Model.evaluate, args, kwargs, known=3)
        weights = kwargs.get("sample_weight")
        x, y, kwargs["sample_weight"] = self._examples(x, y, weights)
        with self._unharmed():
            return super().evaluate(x, y, **kwargs)

    def predict(self, x, *args, **kwargs):
        """As `keras.Model.predict`."""
        with self._unharmed():
            return super().predict(self.as_inputs(x), *args, **kwargs)

    def _examples(self, x, y=None, sample_weight=None):
        """Inputs, labels and weights as arrays, if that is what they are."""
        x = self.as_inputs(x)
        if not are_arrays(x):
            return x, y, sample_weight
        y = as_array(y, "y")
        if y is not None:
            self._check_labels(x, y)
        elif getattr(self, "loss", None) is not None:
            raise ValueError(
                "There are no labels: give them as `y`, one for each example. "
                "Received: y=None"
            )
        return x, y, as_array(sample_weight, "sample_weight")

    def _check_labels(self, x, y):
        """Raises a ValueError for labels that the loss would not take."""
        loss = getattr(self, "loss", None)
        sparse = keras.losses.SparseCategoricalCrossentropy
        by_class = isinstance(loss, sparse) or loss in (
            "sparse_categorical_crossentropy",
            keras.losses.sparse_categorical_crossentropy,
        )
        check_labels(
            y,
            self.output_shape,
            self.num_labels(x) if by_class else None,
            getattr(loss, "ignore_class", None),
        )

    def num_labels(self, x):
        """How many labels there are for inputs: as many as outputs."""
        return self.output_shape[-1]

    @contextlib.contextmanager
    def _unharmed(self):
        """Leaves a model that can go on, if a call of Keras fails."""
        optimizer = getattr(self, "optimizer", None)
        variables = [
            *self.variables,
            *self.metrics_variables,
            *(optimizer.variables if optimizer else ()),
        ]
        try:
            with values_kept(variables):
                yield
        except Exception:
            # TensorFlow does not trace a step again that failed half-way.
            self.train_function = None
            self.test_function = None
            self.predict_function = None
            raise

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
        """Builds the task from a preset.

        A folder in which such a task was saved gives it back, head included.
        Called on a base class, the class is found by the preset. Where the
        head is asked for in another shape, and from a preset that holds a
        backbone or another task, the head starts from random weights; a
        message says so when trained head weights are left behind.

        Args:
            preset: Name of a built-in preset (`list(cls.presets)`) or path of
                a folder written by `save_to_preset`.
            load_weights: Whether to load weights; `False` starts from random
                ones.
            **kwargs: Arguments of this class, and of its backbone, to use
                instead of the preset's.

        Raises:
            ValueError: As `Backbone.from_preset`, and if an argument that the
                head needs is neither saved nor given.

        Example:

        ```python
        model = GMLPImageClassifier.from_preset(
            "gmlp_small_224", num_classes=10, load_weights=False
        )
        ```
        """
        folder, backbone_name, _ = find_backbone(preset, load_weights)
        if cls.backbone_cls is Backbone:
            cls = cls._for_backbone(backbone_name)
        cls._check_backbone_of(preset, backbone_name)
        task_cls, config = cls._saved(folder, preset)
        if not config and load_weights and not folder:
            public = public_weights(preset)
            config = {k: public[k] for k in task_cls.head_arguments}
        own = {k: kwargs[k] for k in kwargs if k in arguments_of(task_cls)}
        for_backbone = {
            k: kwargs[k] for k in kwargs if k not in own or k == "dtype"
        }
        task_cls._check_head(preset, {**config, **own})
        same_head = bool(config) and all(
            own.get(name, config[name]) == config[name]
            for name in task_cls.head_arguments
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
        elif load_weights and config:
            _say_head_is_fresh(preset, config, task)
        return task

    @classmethod
    def _for_backbone(cls, backbone_name):
        """The subclass whose backbone has this registered name."""
        for candidate in with_subclasses(cls):
            name = keras.saving.get_registered_name(candidate.backbone_cls)
            if name == backbone_name:
                return candidate
        raise ValueError(
            f"No {cls.__name__} that is known here takes this backbone. "
            f"Received: registered_name={backbone_name!r}"
        )

    @classmethod
    def _check_backbone_of(cls, preset, backbone_name):
        """Raises a ValueError if the preset is for tasks of other classes."""
        if is_known(cls.backbone_cls, backbone_name):
            return
        others = [
            candidate.__name__
            for candidate in with_subclasses(Task)
            if candidate.backbone_cls is not Backbone
            and is_known(candidate.backbone_cls, backbone_name)
        ]
        if others:
            raise ValueError(
                f"The preset {str(preset)!r} holds a "
                f"{backbone_name.split('>')[-1]}, and a {cls.__name__} needs a "
                f"{cls.backbone_cls.__name__}. Call `from_preset` on "
                f"{' or '.join(others)}."
            )

    @classmethod
    def _saved(cls, folder, preset):
        """The class and arguments of the task in a folder; `cls` and `{}`.

        A folder may hold another task on the same backbone, such as the
        masked language model that a text classifier starts from.
        """
        saved = folder and preset_folder.read_description(
            folder, preset_folder.TASK_FILE
        )
        if not saved:
            return cls, {}
        if is_known(Task, saved[0]) and not is_known(cls, saved[0]):
            return cls, {}
        return subclass_named(cls, saved[0], preset), with_dtype(saved[1])

    @classmethod
    def _check_head(cls, preset, arguments):
        for name in cls.head_arguments:
            if arguments.get(name) is None:
                raise ValueError(
                    f"The preset {preset!r} holds no {cls.__name__}, so "
                    f"`{name}` must be given. Received: {name}=None"
                )

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


def _say_head_is_fresh(preset, config, task):
    for name in task.head_arguments:
        logger.warning(
            "The head of %s has %s=%s and %s was asked for: the head starts "
            "from random weights.",
            preset,
            name,
            config[name],
            getattr(task, name),
        )
