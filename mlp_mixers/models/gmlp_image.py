"""gMLP for images, and aMLP for images with `attention_dim`."""

import keras

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import pair
from mlp_mixers.arguments import positive_integer
from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers import PatchEmbedding
from mlp_mixers.layers.patch_embedding import check_data_format
from mlp_mixers.layers.patch_embedding import patch_grid
from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.drop_path import drop_path_rates
from mlp_mixers.models.image_classifier import ImageClassifier


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GMLPBackbone(Backbone):
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
        check_data_format(data_format)
        patch_size = pair(patch_size, "patch_size")
        grid_shape = patch_grid(image_shape, patch_size)
        image_shape = tuple(int(size) for size in image_shape)
        hidden_dim = positive_integer(hidden_dim, "hidden_dim")
        drop_path_rate = drop_rate(drop_path_rate, "drop_path_rate")
        num_layers = positive_integer(num_layers, "num_layers")
        rates = drop_path_rates(drop_path_rate, num_layers, drop_path_schedule)

        # === Layers ===
        patch_embedding = PatchEmbedding(
            hidden_dim,
            patch_size,
            data_format="channels_last",
            dtype=dtype,
            name="patch_embedding",
        )
        blocks = [
            GMLPBlock(
                intermediate_dim,
                attention_dim=attention_dim,
                drop_path_rate=block_rate,
                sequence_length=grid_shape[0] * grid_shape[1],
                gate=gate,
                num_heads=num_heads,
                toeplitz=toeplitz,
                activation=activation,
                epsilon=epsilon,
                gate_epsilon=gate_epsilon,
                kernel_initializer=_clone(kernel_initializer),
                bias_initializer=_clone(bias_initializer),
                dtype=dtype,
                name=f"block_{i}",
            )
            for i, block_rate in enumerate(rates)
        ]
        output_norm = keras.layers.LayerNormalization(
            epsilon=epsilon, dtype=dtype, name="output_norm"
        )

        # === Functional Model ===
        images = keras.Input(image_shape, name="images")
        x = patch_embedding(images)  # (b, n, d)
        for block in blocks:
            x = block(x)
        super().__init__(
            inputs=images, outputs=output_norm(x), dtype=dtype, **kwargs
        )

        # === Config ===
        self.patch_embedding = patch_embedding
        self.blocks = blocks
        self.output_norm = output_norm
        self.grid_shape = grid_shape
        self.image_shape = image_shape
        self.patch_size = patch_size
        self.num_layers = num_layers
        self.hidden_dim = hidden_dim
        self.intermediate_dim = blocks[0].intermediate_dim
        self.attention_dim = blocks[0].attention_dim
        self.drop_path_rate = drop_path_rate
        self.drop_path_schedule = drop_path_schedule
        self.gate = gate
        self.num_heads = blocks[0].gating_unit.num_heads
        self.toeplitz = blocks[0].gating_unit.toeplitz
        self.epsilon = blocks[0].epsilon
        self.gate_epsilon = blocks[0].gating_unit.epsilon
        self.data_format = "channels_last"

    def get_config(self):
        config = super().get_config()
        block = self.blocks[0].get_config()
        config.update(
            {
                "image_shape": self.image_shape,
                "patch_size": self.patch_size,
                "num_layers": self.num_layers,
                "hidden_dim": self.hidden_dim,
                "intermediate_dim": self.intermediate_dim,
                "attention_dim": self.attention_dim,
                "drop_path_rate": self.drop_path_rate,
                "drop_path_schedule": self.drop_path_schedule,
                "gate": self.gate,
                "num_heads": self.num_heads,
                "toeplitz": self.toeplitz,
                "activation": block["activation"],
                "epsilon": self.epsilon,
                "gate_epsilon": self.gate_epsilon,
                "data_format": self.data_format,
                "kernel_initializer": block["kernel_initializer"],
                "bias_initializer": block["bias_initializer"],
            }
        )
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


def _clone(initializer):
    """A fresh initializer for each block: a shared one repeats its draws."""
    initializer = keras.initializers.get(initializer)
    return initializer and initializer.clone()
