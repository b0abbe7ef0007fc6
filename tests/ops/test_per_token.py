import keras
import numpy as np
from keras import ops

from mlp_mixers.ops import per_token


def test_is_the_layer_on_every_token(rng):
    layer = keras.layers.Dense(5)
    x = rng.normal(size=(2, 3, 4)).astype("float32")
    y = ops.convert_to_numpy(per_token(layer, ops.convert_to_tensor(x)))
    kernel, bias = (ops.convert_to_numpy(w) for w in layer.weights)
    np.testing.assert_allclose(y, x @ kernel + bias, rtol=1e-5, atol=1e-6)
