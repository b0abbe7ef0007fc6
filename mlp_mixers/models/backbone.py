"""What all backbones share.

The grammar is KerasHub's: a *backbone* turns inputs into features, a *task*
puts a head on a backbone, both are Functional models built in `__init__`,
and both come from a preset, `from_preset`, and go to one, `save_to_preset`.
"""

import keras

from mlp_mixers.models import preset_folder
from mlp_mixers.models.freezing import freeze
from mlp_mixers.models.freezing import frozen_config
from mlp_mixers.models.freezing import split_frozen
from mlp_mixers.models.preset_lookup import ClassProperty
from mlp_mixers.models.preset_lookup import check_arguments
from mlp_mixers.models.preset_lookup import find_backbone
from mlp_mixers.models.preset_lookup import subclass_named
from mlp_mixers.models.preset_lookup import with_dtype
from mlp_mixers.models.preset_lookup import with_subclasses
from mlp_mixers.models.preset_weights import load_folder_weights
from mlp_mixers.models.preset_weights import load_public_weights
from mlp_mixers.models.presets import PRESETS


class Backbone(keras.Model):
    """Base of the backbones: configuration, presets, nothing of a paper.

    A subclass builds its graph in `__init__`, hands inputs and outputs to
    `super().__init__`, keeps each argument as an attribute of the same name
    and lists them in `get_config`.
    """

    def __init__(self, *args, dtype=None, trainable=True, **kwargs):
        check_arguments(type(self), set(kwargs) - {"inputs", "outputs"})
        super().__init__(*args, **kwargs)
        self.dtype_policy = keras.dtype_policies.get(dtype)
        if not trainable:  # now that there are layers for it to reach
            self.trainable = False

    def get_config(self):
        # Not Functional's config, which would spell out every layer.
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            **frozen_config(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config, frozen = split_frozen(with_dtype(config))
        return freeze(cls(**config), frozen)

    @classmethod
    def from_preset(cls, preset, load_weights=True, **overrides):
        """Builds the backbone that a preset describes.

        With another `image_shape`, the weights that mix tokens are carried
        over to the new grid of patches
        (`mlp_mixers.weights.resize_spatial_weights`), and a message says so.

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
        folder, class_name, config = find_backbone(preset, load_weights)
        backbone_cls = subclass_named(cls, class_name, preset)
        check_arguments(backbone_cls, overrides)
        backbone = backbone_cls.from_config({**config, **overrides})
        if load_weights and folder is None:
            load_public_weights(backbone, preset, skip_head=True)
        elif load_weights:
            load_folder_weights(
                backbone,
                folder,
                overrides,
                build_saved=lambda: backbone_cls.from_config(config),
            )
        return backbone

    def save_to_preset(self, preset_dir):
        """Writes configuration and weights into a folder for `from_preset`.

        Args:
            preset_dir: Path of the folder.
        """
        preset_folder.write_preset(preset_dir, self)

    @ClassProperty
    def presets(cls):
        """The built-in presets of this class and its subclasses, by name."""
        names = {c.__name__ for c in with_subclasses(cls)}
        return {k: v for k, v in PRESETS.items() if v["class_name"] in names}
