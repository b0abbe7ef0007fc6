"""MLP-Mixer for images."""

import keras

from mlp_mixers.layers import MixerBlock
from mlp_mixers.models.image_backbone import ImageBackbone
from mlp_mixers.models.image_classifier import ImageClassifier


@keras.saving.register_keras_serializable(package="mlp_mixers")
class MixerBackbone(ImageBackbone):
    """MLP-Mixer backbone: patches, a stack of Mixer blocks, a normalisation.

    No position embedding: the MLPs over tokens know every token by its place,
    which also ties the model to one image size.

    Args:
        image_shape: `(height, width, channels)`.
        patch_size: Integer or `(height, width)`.
        num_layers: Number of blocks, L.
        hidden_dim: Width of a token, the paper's C.
        token_intermediate_dim: Width of the MLPs over tokens, the paper's
            D_S; `hidden_dim / 2` there.
        intermediate_dim: Width of the MLPs over channels, the paper's D_C;
            `4 * hidden_dim` there.
        drop_path_rate: Stochastic depth.
        drop_path_schedule: `"constant"` drops every branch with that rate;
            `"linear"` rises from 0 in the first block to it in the last.
        activation: Of both MLPs in each block.
        epsilon: Of all normalisations.
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
    backbone = MixerBackbone(
        image_shape=(32, 32, 3),
        patch_size=4,
        num_layers=8,
        hidden_dim=96,
        token_intermediate_dim=96,
        intermediate_dim=384,
    )
    features = backbone(keras.random.normal((2, 32, 32, 3)))  # (2, 64, 96)
    ```

    Reference:
        [MLP-Mixer](https://arxiv.org/abs/2105.01601), Sec. 2.
    """

    def __init__(
        self,
        image_shape,
        patch_size,
        num_layers,
        hidden_dim,
        token_intermediate_dim,
        intermediate_dim,
        drop_path_rate=0.0,
        drop_path_schedule="constant",
        activation="gelu",
        epsilon=1e-6,
        data_format=None,
        dtype=None,
        **kwargs,
    ):
        # === Layers ===
        def make_block(rate, name):
            return MixerBlock(
                token_intermediate_dim,
                intermediate_dim,
                drop_path_rate=rate,
                activation=activation,
                epsilon=epsilon,
                dtype=dtype,
                name=name,
            )

        output_norm = keras.layers.LayerNormalization(
            epsilon=epsilon, dtype=dtype, name="output_norm"
        )
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
        self.token_intermediate_dim = self.blocks[0].token_intermediate_dim
        self.epsilon = self.blocks[0].epsilon

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "token_intermediate_dim": self.token_intermediate_dim,
                "epsilon": self.epsilon,
            }
        )
        return config


@keras.saving.register_keras_serializable(package="mlp_mixers")
class MixerImageClassifier(ImageClassifier):
    """MLP-Mixer image classifier: a `MixerBackbone`, mean over tokens, a head.

    Args:
        backbone: A `MixerBackbone`.
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
    model = MixerImageClassifier.from_preset(
        "mixer_cifar_nano", num_classes=10, load_weights=False
    )
    model.compile()
    model.fit(images, labels, epochs=10)
    ```

    Reference:
        [MLP-Mixer](https://arxiv.org/abs/2105.01601), Sec. 2.
    """

    backbone_cls = MixerBackbone
