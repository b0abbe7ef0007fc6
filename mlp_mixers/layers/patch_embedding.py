"""From an image to a row of tokens.

Letters: H×W image, p×q patch, c colours, n = (H/p)·(W/q) tokens.
"""

import keras
from keras import ops

from mlp_mixers.arguments import pair
from mlp_mixers.arguments import positive_integer


@keras.saving.register_keras_serializable(package="mlp_mixers")
class PatchEmbedding(keras.layers.Layer):
    """Cuts an image into patches and embeds each with one linear map.

    The patches go row by row, from the upper left. The weights are those of
    the strided convolution that other libraries use here: `kernel` is its
    `(p, q, c, hidden_dim)` kernel reshaped to `(p·q·c, hidden_dim)`. Written
    as a product it is the same on every backend.
    Biases start uniform in ±1/√(p·q·c), as PyTorch starts that convolution,
    so that a black patch is not a token of zeros.

    Args:
        hidden_dim: Width of a token.
        patch_size: Integer, or `(height, width)` of a patch.
        data_format: Only `"channels_last"`. `None` takes Keras's setting.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        images: Tensor of shape `(batch, H, W, c)`. Images and patches may be
            rectangular; H and W are fixed when the layer is built.

    Returns:
        Tensor of shape `(batch, n, hidden_dim)`.

    Raises:
        ValueError: If the image does not divide into whole patches, its size
            is unknown, or the data format is not channels-last.

    Example:

    ```python
    embed = PatchEmbedding(hidden_dim=256, patch_size=16)
    tokens = embed(keras.random.normal((8, 224, 224, 3)))  # (8, 196, 256)
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 3
        (the stem of ViT/16).
    """

    def __init__(self, hidden_dim, patch_size, data_format=None, **kwargs):
        super().__init__(**kwargs)
        check_data_format(data_format)
        self.hidden_dim = positive_integer(hidden_dim, "hidden_dim")
        self.patch_size = pair(patch_size, "patch_size")
        self.data_format = "channels_last"

    def build(self, images_shape):
        if len(images_shape) != 4:
            raise ValueError(
                f"{type(self).__name__} expects images of shape "
                "`(batch, height, width, channels)`. "
                f"Received: images.shape={images_shape}"
            )
        self.grid_shape = patch_grid(images_shape[1:], self.patch_size)
        # Another size would be cut on the wrong grid.
        self.input_spec = keras.InputSpec(shape=(None, *images_shape[1:]))
        p, q = self.patch_size
        n = self.grid_shape[0] * self.grid_shape[1]
        pixels = p * q * images_shape[-1]
        # A blank patch would become a token of zeros if biases were zero, and
        # stay one through all blocks. The normalisations have slope 1/√ε
        # there, and a few of them in a row overflow the gradient.
        limit = pixels**-0.5
        self.dense = keras.layers.Dense(
            self.hidden_dim,
            bias_initializer=keras.initializers.RandomUniform(-limit, limit),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build((None, n, pixels))

    def call(self, images):
        (rows, columns), (p, q) = self.grid_shape, self.patch_size
        c = images.shape[-1]
        x = ops.reshape(images, (-1, rows, p, columns, q, c))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (b, rows, columns, p, q, c)
        return self.dense(ops.reshape(x, (-1, rows * columns, p * q * c)))

    def compute_output_shape(self, images_shape):
        rows, columns = patch_grid(images_shape[1:], self.patch_size)
        return (images_shape[0], rows * columns, self.hidden_dim)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "hidden_dim": self.hidden_dim,
                "patch_size": self.patch_size,
                "data_format": self.data_format,
            }
        )
        return config


def patch_grid(image_shape, patch_size):
    """Counts the patches of an image.

    Args:
        image_shape: `(height, width, channels)`.
        patch_size: Integer or `(height, width)`.

    Returns:
        `(rows, columns)`.

    Raises:
        ValueError: If a size is unknown or does not divide.
    """
    patch_size = pair(patch_size, "patch_size")
    if not isinstance(image_shape, (tuple, list)) or len(image_shape) != 3:
        raise ValueError(
            "`image_shape` must be (height, width, channels). "
            f"Received: image_shape={image_shape!r}"
        )
    if any(size is None for size in image_shape):
        raise ValueError(
            "An image model learns weights for each pair of patches, so "
            "height, width and channels must be known: resize or crop the "
            "images to one size. "
            f"Received: image_shape={tuple(image_shape)}"
        )
    for size in image_shape:
        positive_integer(size, "each of image_shape")
    if image_shape[0] % patch_size[0] or image_shape[1] % patch_size[1]:
        raise ValueError(
            "The image must divide into whole patches: resize, crop or pad "
            "it, or choose another `patch_size`. "
            f"Received: image_shape={tuple(image_shape)}, "
            f"patch_size={patch_size}"
        )
    return image_shape[0] // patch_size[0], image_shape[1] // patch_size[1]


def check_data_format(data_format):
    """Raises unless images have their channels last.

    Raises:
        ValueError: For any other `data_format`, also for Keras's setting if
            `data_format` is `None`.
    """
    data_format = data_format or keras.config.image_data_format()
    if data_format != "channels_last":
        raise ValueError(
            "Images must have their channels last, on every backend: "
            "transpose them, and call "
            "`keras.config.set_image_data_format('channels_last')` if the "
            f"setting is Keras's. Received: data_format={data_format!r}"
        )
