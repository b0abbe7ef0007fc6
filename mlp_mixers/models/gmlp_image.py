"""gMLP for images, and aMLP for images with `attention_dim`."""

import keras

from mlp_mixers.models.gmlp_blocks import block_config
from mlp_mixers.models.gmlp_blocks import block_maker
from mlp_mixers.models.image_backbone import ImageBackbone
from mlp_mixers.models.image_classifier import ImageClassifier


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GMLPBackbone(ImageBackbone):
    """gMLP image backbone: patches, a stack of gMLP blocks, a normalisation.

    No position embedding: the spatial weights know every token by its place,
    which also ties the model to one image size.

    Args:
        image_shape: `(height, width, channels)`.
        patch_size: Integer or `(height, width)`.
        num_layers: Number of blocks, L.
        hidden_dim: Width of a token between blocks, d.
        intermediate_dim: Width inside a block before the split, e; 6·d in the
            paper.
        attention_dim: Width of a tiny attention in every block (aMLP), `None`
            for none. The paper has no image model with attention.
        drop_path_rate: Stochastic depth, one minus the paper's survival
            probability.
        drop_path_schedule: `"constant"` drops every block with that rate;
            `"linear"` rises from 0 in the first block to it in the last. The
            paper does not say which it uses.
        gate: See `SpatialGatingUnit`.
        num_heads: See `SpatialGatingUnit`.
        toeplitz: See `SpatialGatingUnit`. Tokens are counted row by row, so
            this is a choice for one-dimensional data more than for images.
        activation: Of the expansion in each block.
        epsilon: Of the normalisations of blocks and output.
        gate_epsilon: Of the normalisation in the gating units.
        kernel_initializer: Of the spatial matrices, see `SpatialGatingUnit`.
        bias_initializer: Of the spatial biases, see `SpatialGatingUnit`.
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
    backbone = GMLPBackbone(
        image_shape=(32, 32, 3),
        patch_size=4,
        num_layers=8,
        hidden_dim=96,
        intermediate_dim=576,
    )
    features = backbone(keras.random.normal((2, 32, 32, 3)))  # (2, 64, 96)
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 2-3.
    """

    def __init__(
        self,
        image_shape,
        patch_size,
        num_layers,
        hidden_dim,
        intermediate_dim,
        attention_dim=None,
        drop_path_rate=0.0,
        drop_path_schedule="constant",
        gate="split",
        num_heads=1,
        toeplitz=False,
        activation="gelu",
        epsilon=1e-6,
        gate_epsilon=1e-5,
        kernel_initializer=None,
        bias_initializer=None,
        data_format=None,
        dtype=None,
        **kwargs,
    ):
        # === Layers ===
        make_block = block_maker(
            kernel_initializer,
            bias_initializer,
            intermediate_dim=intermediate_dim,
            attention_dim=attention_dim,
            gate=gate,
            num_heads=num_heads,
            toeplitz=toeplitz,
            activation=activation,
            epsilon=epsilon,
            gate_epsilon=gate_epsilon,
            dtype=dtype,
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
        block = self.blocks[0]
        self.attention_dim = block.attention_dim
        self.gate = gate
        self.num_heads = block.gating_unit.num_heads
        self.toeplitz = block.gating_unit.toeplitz
        self.epsilon = block.epsilon
        self.gate_epsilon = block.gating_unit.epsilon

    def get_config(self):
        config = super().get_config()
        config.update(block_config(self.blocks[0]))
        return config


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GMLPImageClassifier(ImageClassifier):
    """gMLP image classifier: a `GMLPBackbone`, mean over tokens, a head.

    Args:
        backbone: A `GMLPBackbone`.
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
    model = GMLPImageClassifier.from_preset(
        "gmlp_digits_nano", num_classes=10, load_weights=False
    )
    model.compile()
    model.fit(images, labels, epochs=10)
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 3.
    """

    backbone_cls = GMLPBackbone
