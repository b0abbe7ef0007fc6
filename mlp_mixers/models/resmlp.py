"""ResMLP for images."""

import keras

from mlp_mixers.arguments import positive_integer
from mlp_mixers.layers import Affine
from mlp_mixers.layers import ResMLPBlock
from mlp_mixers.models.image_backbone import ImageBackbone
from mlp_mixers.models.image_classifier import ImageClassifier


@keras.saving.register_keras_serializable(package="mlp_mixers")
class ResMLPBackbone(ImageBackbone):
    """ResMLP backbone: patches, a stack of ResMLP blocks, an affine map.

    No position embedding: the spatial weights know every token by its place,
    which also ties the model to one image size. And no normalisation: affine
    maps stand where other models normalise, `output_norm` among them.

    Args:
        image_shape: `(height, width, channels)`.
        patch_size: Integer or `(height, width)`.
        num_layers: Number of blocks, L.
        hidden_dim: Width of a token, the paper's d.
        intermediate_dim: Width of the MLPs over channels; `4 * hidden_dim`
            in the paper.
        drop_path_rate: Stochastic depth.
        drop_path_schedule: `"constant"` drops every branch with that rate;
            `"linear"` rises from 0 in the first block to it in the last.
        layer_scale_init: What the scales of the branches are at the start.
            `None` chooses by depth as the paper does: 0.1 up to 18 blocks,
            1e-5 up to 24, 1e-6 beyond.
        activation: Of the MLP in each block.
        data_format: Only `"channels_last"`.
        dtype: Dtype or policy of all layers.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Inputs and outputs:
        Images of shape `(batch, height, width, channels)` to features of
        shape `(batch, n, hidden_dim)`, n = `grid_shape[0] * grid_shape[1]`.

    Raises:
        ValueError: If the image does not divide into patches, a size is
            unknown or out of range.

    Example:

    ```python
    backbone = ResMLPBackbone(
        image_shape=(32, 32, 3),
        patch_size=4,
        num_layers=9,
        hidden_dim=96,
        intermediate_dim=384,
    )
    features = backbone(keras.random.normal((2, 32, 32, 3)))  # (2, 64, 96)
    ```

    Reference:
        [ResMLP](https://arxiv.org/abs/2105.03404), Sec. 2.
    """

    def __init__(
        self,
        image_shape,
        patch_size,
        num_layers,
        hidden_dim,
        intermediate_dim,
        drop_path_rate=0.0,
        drop_path_schedule="constant",
        layer_scale_init=None,
        activation="gelu",
        data_format=None,
        dtype=None,
        **kwargs,
    ):
        scale = layer_scale_init
        if scale is None:
            scale = layer_scale_for(positive_integer(num_layers, "num_layers"))

        # === Layers ===
        def make_block(rate, name):
            return ResMLPBlock(
                intermediate_dim,
                drop_path_rate=rate,
                layer_scale_init=scale,
                activation=activation,
                dtype=dtype,
                name=name,
            )

        output_norm = Affine(dtype=dtype, name="output_norm")
        super().__init__(
            image_shape,
            patch_size,
            num_layers,
            hidden_dim,
            make_block,
            output_norm,
            drop_path_rate,
            drop_path_schedule,
            data_format,
            dtype,
            **kwargs,
        )

        # === Config ===
        # As it came: with `None`, a preset of another depth starts rightly.
        self.layer_scale_init = layer_scale_init and float(layer_scale_init)

    def get_config(self):
        config = super().get_config()
        config["layer_scale_init"] = self.layer_scale_init
        return config


@keras.saving.register_keras_serializable(package="mlp_mixers")
class ResMLPImageClassifier(ImageClassifier):
    """ResMLP image classifier: a `ResMLPBackbone`, mean over tokens, a head.

    Args:
        backbone: A `ResMLPBackbone`.
        num_classes: Number of classes.
        dropout_rate: Dropout before the head.
        activation: Activation of the head; `None` returns logits.
        dtype: Of the head; the backbone's own if `None`.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Inputs and outputs:
        Images of shape `(batch, height, width, channels)` to logits of shape
        `(batch, num_classes)`.

    Raises:
        ValueError: If `backbone` is of another class, or `num_classes` is not
            positive.

    Example:

    ```python
    model = ResMLPImageClassifier.from_preset(
        "resmlp_cifar_nano", num_classes=10, load_weights=False
    )
    model.compile()
    model.fit(images, labels, epochs=10)
    ```

    Reference:
        [ResMLP](https://arxiv.org/abs/2105.03404), Sec. 2.
    """

    backbone_cls = ResMLPBackbone


def layer_scale_for(num_layers):
    """The scale at which the branches of a ResMLP start.

    The deeper the network, the closer to the identity it must start.

    Args:
        num_layers: Number of blocks.

    Returns:
        0.1 up to 18 blocks, 1e-5 up to 24, 1e-6 beyond.

    Reference:
        [Going deeper with Image Transformers](https://arxiv.org/abs/2103.17239),
        Sec. 2, which [ResMLP](https://arxiv.org/abs/2105.03404) follows.
    """
    if num_layers <= 18:
        return 0.1
    return 1e-5 if num_layers <= 24 else 1e-6
