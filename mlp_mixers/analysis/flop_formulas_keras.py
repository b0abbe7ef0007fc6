"""The formulas of the layers of Keras that image and text models use.

An element counts once for a sum, a product, a bias or a comparison, 5 times
in a normalisation or a softmax and 4 times in any other nonlinearity, GELU
for instance. Dropout is free, as it is in inference.
"""

import math

import keras

from mlp_mixers.analysis.flop_cost import Cost
from mlp_mixers.analysis.flop_cost import register_flops

NORMALISATION = 5
SOFTMAX = 5
NONLINEARITY = 4

# Free of floating-point operations: they move, rename or pass through.
FREE = (
    keras.layers.ActivityRegularization,
    keras.layers.AlphaDropout,
    keras.layers.Concatenate,
    keras.layers.Cropping1D,
    keras.layers.Cropping2D,
    keras.layers.Dropout,
    keras.layers.Embedding,
    keras.layers.Flatten,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
    keras.layers.Identity,
    keras.layers.InputLayer,
    keras.layers.Masking,
    keras.layers.Permute,
    keras.layers.RepeatVector,
    keras.layers.Reshape,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.UpSampling1D,
    keras.layers.ZeroPadding1D,
    keras.layers.ZeroPadding2D,
)

# Operations of `keras.ops` in a Functional graph, `x + y` for instance, by
# the names of their classes, which Keras does not export.
FREE_OPERATIONS = {
    "BroadcastTo",
    "Cast",
    "Concatenate",
    "ExpandDims",
    "GetItem",
    "Identity",
    "Pad",
    "Repeat",
    "Reshape",
    "Split",
    "Squeeze",
    "Stack",
    "StopGradient",
    "SwapAxes",
    "Transpose",
    "Where",
}
ELEMENTWISE_OPERATIONS = {
    "Absolute",
    "Add",
    "Divide",
    "Maximum",
    "Minimum",
    "Multiply",
    "Negative",
    "Relu",
    "Square",
    "Subtract",
    "TrueDivide",
}


def size(shape):
    """The number of elements of a tensor."""
    return math.prod(shape)


def activation_cost(activation, shape):
    """Operations of an activation function."""
    activations = keras.activations
    if activation in (None, activations.linear):
        return 0
    if activation is activations.relu:
        return size(shape)
    if activation is activations.softmax:
        return SOFTMAX * size(shape)
    return NONLINEARITY * size(shape)


def operation_cost(operation, output_shape):
    """The cost of an operation of `keras.ops`, `None` if it is not known."""
    name = type(operation).__name__
    if name in FREE_OPERATIONS:
        return Cost()
    if name in ELEMENTWISE_OPERATIONS:
        return Cost(elementwise=size(output_shape))
    return None


def _free(layer, *shapes, **named_shapes):
    return Cost()


for layer_class in FREE:
    register_flops(layer_class)(_free)


@register_flops(keras.layers.Dense)
def _dense(layer, x):
    output = (*x[:-1], layer.units)
    bias = size(output) if layer.use_bias else 0
    return Cost(
        macs=size(x) * layer.units,
        elementwise=bias + activation_cost(layer.activation, output),
    )


@register_flops(keras.layers.ReversibleEmbedding)
def _reversible_embedding(layer, x):
    # Called in reverse it takes vectors, otherwise the ids of a sequence.
    if len(x) > 1 and x[-1] == layer.output_dim:
        return Cost(macs=size(x) * layer.input_dim)
    return Cost()


@register_flops(keras.layers.EinsumDense)
def _einsum_dense(layer, x):
    inputs, output = layer.equation.split("->")
    x_letters, kernel_letters = inputs.split(",")
    # The ellipsis stands for axes that stay, on the left or on the right.
    named, shape = x_letters.strip("."), (1, *x)
    if x_letters.startswith("."):
        shape = shape[::-1]
        named = named[::-1]
    lengths = dict(zip(named, shape))
    lengths.update(zip(kernel_letters, layer.kernel.shape))
    outputs = size(shape[len(named) :]) * math.prod(
        lengths[letter] for letter in output.strip(".")
    )
    # Each output is a sum over all letters that it lacks.
    terms = math.prod(
        length for letter, length in lengths.items() if letter not in output
    )
    bias = 0 if layer.bias is None else outputs
    return Cost(
        macs=outputs * terms,
        elementwise=bias + activation_cost(layer.activation, (outputs,)),
    )


@register_flops(keras.layers.Conv1D)
@register_flops(keras.layers.Conv2D)
@register_flops(keras.layers.Conv3D)
def _convolution(layer, x):
    output = layer.compute_output_shape((1, *x))[1:]
    first = layer.data_format == "channels_first"
    channels = x[0] if first else x[-1]
    terms = math.prod(layer.kernel_size) * channels // layer.groups
    bias = size(output) if layer.use_bias else 0
    return Cost(
        macs=size(output) * terms,
        elementwise=bias + activation_cost(layer.activation, output),
    )


@register_flops(keras.layers.LayerNormalization)
@register_flops(keras.layers.GroupNormalization)
@register_flops(keras.layers.RMSNormalization)
def _normalisation(layer, x, **named_shapes):
    return Cost(elementwise=NORMALISATION * size(x))


@register_flops(keras.layers.BatchNormalization)
@register_flops(keras.layers.Normalization)
@register_flops(keras.layers.Rescaling)
def _scale_and_shift(layer, x, **named_shapes):
    return Cost(elementwise=2 * size(x))


@register_flops(keras.layers.Activation)
def _activation(layer, x):
    return Cost(elementwise=activation_cost(layer.activation, x))


@register_flops(keras.layers.ReLU)
def _relu(layer, x):
    return Cost(elementwise=size(x))


@register_flops(keras.layers.Softmax)
def _softmax(layer, x, **named_shapes):
    return Cost(elementwise=SOFTMAX * size(x))


@register_flops(keras.layers.Add)
@register_flops(keras.layers.Average)
@register_flops(keras.layers.Maximum)
@register_flops(keras.layers.Minimum)
@register_flops(keras.layers.Multiply)
@register_flops(keras.layers.Subtract)
def _merge(layer, inputs):
    output = layer.compute_output_shape([(1, *x) for x in inputs])[1:]
    return Cost(elementwise=(len(inputs) - 1) * size(output))


@register_flops(keras.layers.GlobalAveragePooling1D)
@register_flops(keras.layers.GlobalAveragePooling2D)
@register_flops(keras.layers.GlobalMaxPooling1D)
@register_flops(keras.layers.GlobalMaxPooling2D)
def _global_pooling(layer, x, **named_shapes):
    return Cost(elementwise=size(x))


@register_flops(keras.layers.AveragePooling1D)
@register_flops(keras.layers.AveragePooling2D)
@register_flops(keras.layers.MaxPooling1D)
@register_flops(keras.layers.MaxPooling2D)
def _pooling(layer, x):
    output = layer.compute_output_shape((1, *x))[1:]
    return Cost(elementwise=size(output) * math.prod(layer.pool_size))


@register_flops(keras.layers.MultiHeadAttention)
def _multi_head_attention(layer, query, value, key=None):
    """Projections of n queries and m keys, scores, their weighted sum."""
    (n, d), m, key = query, value[0], key or value
    queries = layer.num_heads * layer.key_dim
    values = layer.num_heads * layer.value_dim
    projections = n * d * queries + m * (key[-1] * queries + value[-1] * values)
    output = n * layer.output_dense.kernel.shape[-1]
    biases = (n + m) * queries + m * values + output
    return Cost(
        macs=projections + n * m * (queries + values) + output * values,
        elementwise=biases * layer.use_bias
        + n * queries  # the scale of the scores
        + SOFTMAX * layer.num_heads * n * m,
        whole=True,
    )
