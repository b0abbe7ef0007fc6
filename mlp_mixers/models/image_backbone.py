"""What the image backbones share."""

import keras

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import pair
from mlp_mixers.arguments import positive_integer
from mlp_mixers.layers import PatchEmbedding
from mlp_mixers.layers.patch_embedding import check_data_format
from mlp_mixers.layers.patch_embedding import patch_grid
from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.drop_path import drop_path_rates


class ImageBackbone(Backbone):
    """Base of the image backbones: patches, a stack of blocks, a last norm.

    Args:
        image_shape: `(height, width, channels)`.
        patch_size: Integer or `(height, width)`.
        num_layers: Number of blocks.
        hidden_dim: Width of a token between blocks.
        make_block: Function `(drop_path_rate, name)` that returns a block.
        output_norm: The layer behind the last block.
        drop_path_rate: Stochastic depth, as `drop_path_rates` spreads it.
        drop_path_schedule: `"constant"` or `"linear"`.
        data_format: Only `"channels_last"`.
        dtype: Dtype or policy of the patch embedding.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Raises:
        ValueError: If the image does not divide into patches, a size is
            unknown or out of range.
    """

    def __init__(
        self,
        image_shape,
        patch_size,
        num_layers,
        hidden_dim,
        make_block,
        output_norm,
        drop_path_rate=0.0,
        drop_path_schedule="constant",
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
            make_block(rate, f"block_{i}") for i, rate in enumerate(rates)
        ]

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
        self.drop_path_rate = drop_path_rate
        self.drop_path_schedule = drop_path_schedule
        self.data_format = "channels_last"

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "image_shape": self.image_shape,
                "patch_size": self.patch_size,
                "num_layers": self.num_layers,
                "hidden_dim": self.hidden_dim,
                "intermediate_dim": self.intermediate_dim,
                "drop_path_rate": self.drop_path_rate,
                "drop_path_schedule": self.drop_path_schedule,
                # As the blocks say it, serialised.
                "activation": self.blocks[0].get_config()["activation"],
                "data_format": self.data_format,
            }
        )
        return config
