import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import PatchEmbedding


def test_is_a_dense_layer_on_each_patch(rng):
    images = rng.normal(size=(2, 4, 6, 3)).astype("float32")
    layer = PatchEmbedding(hidden_dim=5, patch_size=(2, 3))
    result = ops.convert_to_numpy(layer(images))
    kernel, bias = (ops.convert_to_numpy(w) for w in layer.dense.weights)
    assert layer.grid_shape == (2, 2)
    for row in range(2):
        for column in range(2):
            patch = images[
                :, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3
            ]
            np.testing.assert_allclose(
                result[:, 2 * row + column],
                patch.reshape(2, -1) @ kernel + bias,
                rtol=1e-4,
                atol=1e-5,
            )


def test_is_a_strided_convolution(rng):
    images = rng.normal(size=(2, 4, 6, 3)).astype("float32")
    layer = PatchEmbedding(hidden_dim=5, patch_size=(2, 3))
    result = ops.convert_to_numpy(layer(images))
    kernel, bias = (ops.convert_to_numpy(w) for w in layer.dense.weights)
    convolution = keras.layers.Conv2D(5, (2, 3), strides=(2, 3))
    convolution.build(images.shape)
    convolution.set_weights([kernel.reshape(2, 3, 3, 5), bias])
    expected = ops.convert_to_numpy(convolution(images)).reshape(2, 4, 5)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_dim": 0, "patch_size": 2}, "`hidden_dim` must be"),
        ({"hidden_dim": 4, "patch_size": 0}, "patch_size=0"),
        ({"hidden_dim": 4, "patch_size": (2, 2, 2)}, "pair of them"),
        (
            {"hidden_dim": 4, "patch_size": 2, "data_format": "channels_first"},
            "channels last.*data_format='channels_first'",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(**arguments)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((None, 5, 4, 3), "divide into whole patches.*(5, 4, 3)"),
        ((None, None, 4, 3), "must be known: resize or crop"),
        ((None, 4, 3), "expects images of shape"),
    ],
)
def test_wrong_images(shape, message):
    with pytest.raises(ValueError, match=message):
        PatchEmbedding(4, 2).build(shape)


def test_images_of_another_size_than_built_for():
    layer = PatchEmbedding(4, 2)
    layer.build((None, 8, 8, 1))
    with pytest.raises(ValueError, match="incompatible"):
        layer(np.zeros((1, 16, 16, 1), "float32"))


def test_channels_first_as_keras_setting_is_refused():
    keras.config.set_image_data_format("channels_first")
    with pytest.raises(ValueError, match="set_image_data_format"):
        PatchEmbedding(4, 2)
