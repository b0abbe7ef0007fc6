import math

import keras
import numpy as np
import pytest

from mlp_mixers.analysis import Cost
from mlp_mixers.analysis import Part
from mlp_mixers.analysis import count_flops
from mlp_mixers.analysis import register_flops
from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers import SparseTokenExperts
from mlp_mixers.layers import SpatialGatingUnit
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPSpanPredictor
from mlp_mixers.models import GMLPTextClassifier
from mlp_mixers.models import MixerImageClassifier
from mlp_mixers.models import ResMLPImageClassifier
from tests.cases import LAYER_CASES
from tests.cases import MODEL_CASES
from tests.cases import TEXT_VOCABULARY
from tests.cases import TextCase
from tests.cases import as_model
from tests.cases import gmlp_nano
from tests.cases import gmlp_text_nano
from tests.cases import random_inputs

CASES = [*LAYER_CASES, *MODEL_CASES]


# --- against other counters ----------------------------------------------


def executed_macs(model, inputs):
    """Multiply-adds of the products that the backend runs for one example."""
    backend = keras.backend.backend()
    if backend == "torch":
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            model(inputs, training=False)
        return counter.get_total_flops() / 2
    if backend == "jax":
        import jax

        program = jax.make_jaxpr(lambda x: model(x, training=False))(inputs)
        return sum(map(macs_of_equation, equations(program.jaxpr)))
    pytest.skip("TensorFlow has no counter of the products it runs")


def equations(program):
    """All equations of a JAX program, those inside of calls too."""
    for equation in program.eqns:
        inner = [p for p in equation.params.values() if hasattr(p, "jaxpr")]
        yield equation
        for closed in inner:
            yield from equations(closed.jaxpr)


def macs_of_equation(equation):
    name = equation.primitive.name
    if name not in ("dot_general", "conv_general_dilated"):
        return 0
    outputs = math.prod(equation.outvars[0].aval.shape)
    left, right = (v.aval.shape for v in equation.invars[:2])
    numbers = equation.params["dimension_numbers"]
    if name == "dot_general":
        (contracted, _), _ = numbers
        return outputs * math.prod(left[i] for i in contracted)
    return outputs * math.prod(right) // right[numbers.rhs_spec[0]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_multiply_adds_are_those_that_run(case, rng):
    model = as_model(case)
    inputs = random_inputs(case, 1, rng)
    report = count_flops(model, shapes_of(case, rng))
    executed = executed_macs(model, inputs)
    if routed(model):  # blocks of experts that are not full run too
        assert report.macs <= executed
    else:
        assert report.macs == executed


def routed(model):
    """Whether a layer asks experts for what a route says."""
    return any(
        isinstance(layer, SparseTokenExperts)
        or getattr(layer, "routing", "deterministic") != "deterministic"
        for layer in model._flatten_layers()
    )


def shapes_of(case, rng):
    """The inputs of text models have no length until they are given one."""
    if not isinstance(case, TextCase):
        return None
    return {k: v.shape[1:] for k, v in random_inputs(case, 1, rng).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_parameters_add_up(case, rng):
    model = as_model(case)
    report = count_flops(model, shapes_of(case, rng))
    assert report.parameters == model.count_params()
    trained = sum(math.prod(w.shape) for w in model.trainable_weights)
    assert trained == case.parameters
    assert report.active_parameters == report.parameters - case.idle


@pytest.mark.parametrize(
    ("equation", "output", "bias_axes", "shape", "macs", "biases"),
    [
        ("...x,xy->...y", 5, "y", (4, 3), 4 * 3 * 5, 4 * 5),
        ("abc,cde->abde", (None, 2, 5), "de", (4, 3), 4 * 3 * 10, 4 * 10),
        ("abcd,cde->abe", (None, 5), "e", (4, 3, 6), 4 * 18 * 5, 4 * 5),
        ("ab...,bc->ac...", (5, None), None, (4, 3), 3 * 4 * 5, 0),
    ],
    ids=str,
)
def test_einsum_dense(equation, output, bias_axes, shape, macs, biases, rng):
    layer = keras.layers.EinsumDense(equation, output, bias_axes=bias_axes)
    inputs = keras.Input(shape)
    # What follows needs to know the sizes that come out.
    x = keras.layers.Activation("relu")(layer(inputs))
    model = keras.Model(inputs, x)
    report = count_flops(model)
    assert report.macs == macs
    assert report.rows[0].flops == 2 * macs + biases
    x = rng.normal(size=(1, *shape)).astype("float32")
    assert macs == executed_macs(model, x)


@pytest.mark.parametrize(
    "arguments",
    [
        {"strides": 2, "padding": "same"},
        {"padding": "valid", "groups": 2},
        {"padding": "valid", "use_bias": False},
    ],
)
def test_convolution(arguments, rng):
    layer = keras.layers.Conv2D(6, (2, 3), **arguments)
    model = keras.Sequential([keras.Input((8, 9, 4)), layer])
    x = rng.normal(size=(1, 8, 9, 4)).astype("float32")
    report = count_flops(model)
    assert report.macs == executed_macs(model, x)
    biases = math.prod(model.output_shape[1:]) * layer.use_bias
    assert report.flops == 2 * report.macs + biases


# --- against the papers ---------------------------------------------------


def gmlp_flops(layers, d, f, n=196, classes=1000):
    """Operations of a gMLP classifier at 224/16, part by part."""
    h = f // 2
    products = n * d * f + n * n * h + n * h * d
    norms = 5 * n * d + 5 * n * h
    biases = n * f + n * h + n * d
    gelu, gate, residual = 4 * n * f, n * h, n * d
    block = 2 * products + norms + biases + gelu + gate + residual
    stem = 2 * n * 768 * d + n * d
    head = 5 * n * d + n * d + 2 * d * classes + classes
    return stem + layers * block + head


GMLP = {
    "gmlp_tiny_224": ((30, 128, 768), 2.7, 1.34),
    "gmlp_small_224": ((30, 256, 1536), 8.9, 4.42),
    "gmlp_base_224": ((30, 512, 3072), 31.6, 15.78),
}


@pytest.mark.parametrize("preset", GMLP)
def test_gmlp_has_the_flops_of_the_paper(preset):
    """Pay Attention to MLPs, Table 1; multiply-adds as timm counts them."""
    sizes, published, public_macs = GMLP[preset]
    report = count_flops(
        GMLPImageClassifier.from_preset(
            preset, num_classes=1000, load_weights=False
        )
    )
    assert report.flops == gmlp_flops(*sizes)
    assert round(report.flops / 1e9, 1) == published
    assert abs(report.macs / 1e9 / public_macs - 1) < 0.02


@pytest.mark.parametrize(
    ("classifier", "preset", "public_macs"),
    [
        (MixerImageClassifier, "mixer_small_224", 3.8),
        (MixerImageClassifier, "mixer_base_224", 12.6),
        (ResMLPImageClassifier, "resmlp_12_224", 3.0),
        (ResMLPImageClassifier, "resmlp_24_224", 6.0),
        (ResMLPImageClassifier, "resmlp_36_224", 8.9),
    ],
)
def test_mixers_have_the_multiply_adds_that_timm_states(
    classifier, preset, public_macs
):
    model = classifier.from_preset(preset, num_classes=1000, load_weights=False)
    assert abs(count_flops(model).macs / 1e9 / public_macs - 1) < 0.02


@pytest.mark.parametrize("attention_dim", [None, 64])
def test_language_model_blocks_are_those_of_table_5(attention_dim):
    """gMLP-base and aMLP-base at n = 512: 154.6 and 125.6 G in products."""
    layers, published = (36, 125.6) if attention_dim else (48, 154.6)
    block = GMLPBlock(3072, attention_dim=attention_dim, toeplitz=True)
    block.build((None, 512, 512))
    report = count_flops(block, (512, 512))
    assert round(layers * 2 * report.macs / 1e9, 1) == published


# --- element by element ---------------------------------------------------


def test_toeplitz_learns_less_and_multiplies_the_same():
    reports = []
    for toeplitz in (False, True):
        unit = SpatialGatingUnit(toeplitz=toeplitz)
        unit.build((None, 6, 8))
        reports.append(count_flops(unit, (6, 8)))
    dense, toeplitz = reports
    assert dense.parameters - toeplitz.parameters == 36 - 11
    assert dense.macs == toeplitz.macs == 6 * 6 * 4
    assert dense.flops == toeplitz.flops


def test_element_wise_operations_by_hand():
    """n = 6, e = 8, c = 4: 5 for the norm; b; the gate; what joins it."""
    unit = SpatialGatingUnit()
    unit.build((None, 6, 8))
    norm, bias, gate = 5 * 6 * 4, 6 * 4, 6 * 4
    assert count_flops(unit, (6, 8)).flops == 2 * 144 + norm + bias + gate
    x, y = keras.Input((6, 8)), keras.Input((6, 4))
    joined = keras.Model([x, y], unit(x, gate_residual=y))
    assert count_flops(joined).flops == 2 * 144 + norm + bias + gate + 6 * 4


@pytest.mark.parametrize(
    ("activation", "each"),
    [("linear", 0), ("relu", 1), ("gelu", 4), ("tanh", 4), ("softmax", 5)],
)
def test_activations(activation, each):
    layer = keras.layers.Dense(3, activation=activation)
    model = keras.Sequential([keras.Input((2, 5)), layer])
    assert count_flops(model).flops == 2 * 30 + 6 + each * 6
    layer = keras.layers.Activation(activation)
    model = keras.Sequential([keras.Input((2, 3)), layer])
    assert count_flops(model).flops == each * 6


def test_layers_and_operations_between():
    inputs = keras.Input((4, 6))
    x = keras.layers.Reshape((6, 4))(inputs)  # 0
    x = keras.layers.Permute((2, 1))(x)  # 0
    x = keras.layers.Add()([x, inputs, inputs])  # 2 · 24
    x = keras.layers.Multiply()([x, inputs])  # 24
    x = x + inputs  # 24
    x = keras.ops.transpose(x, (0, 2, 1))  # 0
    x = keras.layers.Dropout(0.5)(x)  # 0
    x = keras.layers.BatchNormalization()(x)  # 2 · 24
    x = keras.layers.GlobalAveragePooling1D()(x)  # 24
    report = count_flops(keras.Model(inputs, x))
    assert (report.flops, report.macs) == (7 * 24, 0)
    assert report.parameters == 4 * 4


def test_what_touches_no_float_is_free():
    tokens = keras.Input((7,), dtype="int32")
    real = keras.ops.not_equal(tokens, 0)
    x = keras.layers.Embedding(10, 4)(tokens)
    model = keras.Model(tokens, [x, real])
    report = count_flops(model)
    assert (report.flops, report.parameters) == (0, 40)


# --- the report -----------------------------------------------------------


def test_rows_and_depths():
    model = GMLPImageClassifier(
        gmlp_nano(attention_dim=4, name="backbone"), num_classes=3
    )
    report = count_flops(model)
    assert [row.name for row in report.rows_to(0)] == [
        "backbone/patch_embedding",
        "backbone/block_0",
        "backbone/block_1",
        "backbone/output_norm",
        "pooler",
        "head_dropout",
        "head",
    ]
    for attribute in ("flops", "macs", "parameters", "active_parameters"):
        assert getattr(report, attribute) == sum(
            getattr(row, attribute) for row in report.rows_to(0)
        )
    rows = {row.name: row for row in report.rows}
    unit = rows["backbone/block_1/gating_unit"]
    assert (unit.layer_class, unit.depth) == ("SpatialGatingUnit", 1)
    assert (unit.output_shape, unit.parameters) == ((4, 6), 16 + 4 + 12)
    assert rows["backbone/block_0/attention/qkv_dense"].depth == 2
    assert "backbone/block_0/norm" not in [r.name for r in report.rows_to(0)]


def test_the_table_can_be_read():
    report = count_flops(gmlp_nano(name="mine"))
    lines = str(report).splitlines()
    assert lines[0].split() == [
        *("layer", "class", "output", "parameters", "active", "MACs", "FLOPs")
    ]
    assert len(lines) == 1 + 1 + 4 + 1 + 1
    assert lines[-1].split()[:2] == ["mine", "total"]
    assert lines[-1].endswith(f"{report.flops:,}")
    assert "block_1/gating_unit" not in str(report)
    assert "block_1/gating_unit" in report.table(depth=1)


def test_a_layer_that_is_called_twice_has_its_parameters_once():
    dense = keras.layers.Dense(6)
    inputs = keras.Input((6,))
    model = keras.Model(inputs, dense(dense(inputs)))
    report = count_flops(model)
    assert [row.parameters for row in report.rows] == [42, 0]
    assert report.macs == 2 * 36
    assert report.parameters == model.count_params()


# --- inputs ---------------------------------------------------------------


def test_unknown_length_must_be_given():
    block = GMLPBlock(12, sequence_length=6)
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, block(inputs))
    with pytest.raises(ValueError, match="not known: pass `input_shape`"):
        count_flops(model)
    long, short = (count_flops(model, (n, 8)) for n in (6, 3))
    assert long.macs == count_flops(block, (6, 8)).macs
    assert long.macs - 2 * short.macs == (36 - 2 * 9) * 6
    with pytest.raises(ValueError, match="an input of 7 tokens"):
        count_flops(model, (7, 8))


@pytest.mark.parametrize("length", [None, 4])
def test_text_models_know_their_longest_input(length):
    """As many multiply-adds as by hand: n = 9, of which 1 is masked."""
    backbone = gmlp_text_nano(sequence_length=9)
    n = length or 9
    shapes = {"token_ids": (n,), "padding_mask": (n,)}
    block = n * 8 * 12 + n * n * 6 + n * 6 * 8
    expected = {
        backbone: 2 * block,
        GMLPMaskedLM(backbone): 2 * block + TEXT_VOCABULARY * 8,
        GMLPTextClassifier(backbone, 3): 2 * block + 8 * 3,
        GMLPSpanPredictor(backbone): 2 * block + n * 8 * 2,
    }
    for model, macs in expected.items():
        given = None
        if length:
            given = {name: shapes.get(name, (1,)) for name in model.input}
        assert count_flops(model, given).macs == macs


def test_shapes_by_name_and_in_order():
    x, y = keras.Input((None, 2), name="b"), keras.Input((None, 3), name="a")
    outputs = [keras.layers.Dense(1)(t) for t in (x, y)]
    model = keras.Model([x, y], outputs)
    by_order = count_flops(model, [(np.int64(4), 2), [5, 3]])
    by_name = count_flops(model, {"a": (5, 3), "b": (4, 2)})
    assert by_order == by_name
    assert by_order.macs == 8 + 15
    for wrong in ([(4, 2)], {"a": (5, 3)}, (4, 2)):
        with pytest.raises(ValueError, match=r"inputs \['b', 'a'\]"):
            count_flops(model, wrong)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 6), "does not fit the input 'images'"),
        ((4, 8, 3), "does not fit the input 'images'"),
        ((4, None, 3), "tuple of positive integers"),
    ],
)
def test_shapes_that_do_not_fit(shape, message):
    with pytest.raises(ValueError, match=message):
        count_flops(gmlp_nano(), shape)


def test_layers_alone():
    block = GMLPBlock(12)
    with pytest.raises(ValueError, match="must be built"):
        count_flops(block, (6, 8))
    block.build((None, 6, 8))
    with pytest.raises(ValueError, match="inputs of many sizes: pass"):
        count_flops(block)
    assert count_flops(block, (6, 8)).parameters == block.count_params()
    with pytest.raises(ValueError, match="positive integers. Received"):
        count_flops(block, 6)


def test_sequential_and_models_inside_of_models():
    inner = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4)])
    middle = keras.Sequential([keras.Input((5,)), inner], name="middle")
    inputs = keras.Input((5,))
    model = keras.Model(inputs, middle(inputs))
    report = count_flops(model)
    assert (report.macs, report.parameters) == (20, 24)
    (row,) = report.rows
    assert row.name.startswith("middle/")
    assert row.depth == 0


# --- layers of the user's own ---------------------------------------------


class Gate(keras.layers.Layer):
    """A composite layer without a formula."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(8, name="dense")
        self.other = keras.layers.Dense(8, name="other")

    def build(self, x_shape):
        self.dense.build(x_shape)
        self.other.build(x_shape)
        self.scale = self.add_weight(name="scale", shape=(8,))

    def call(self, x):
        return self.scale * self.dense(x) * self.other(x)


def gated(gate):
    return keras.Sequential([keras.Input((6, 8)), gate])


def test_a_layer_without_formula_is_named():
    with pytest.raises(
        ValueError, match="layer class Gate. Register.*@register_flops.*=mine"
    ):
        count_flops(gated(Gate(name="mine")))


def test_a_layer_without_weights_is_not_free():
    """Dot-product attention has none, and is all products."""
    x = keras.Input((6, 8))
    model = keras.Model(x, keras.layers.Attention()([x, x]))
    with pytest.raises(ValueError, match="layer class Attention"):
        count_flops(model)
    model = keras.Model(x, keras.ops.matmul(x, keras.ops.transpose(x[0])))
    with pytest.raises(ValueError, match="layer class Matmul"):
        count_flops(model)


def test_register_a_formula():
    class Full(Gate):
        """Has a formula."""

    @register_flops(Full)
    def cost(layer, x):
        parts = [Part(layer.dense, x), Part(layer.other, x)]
        return Cost(elementwise=2 * math.prod(x), parts=parts)

    class Derived(Full):
        """Has that of its base."""

    for cls in (Full, Derived):
        report = count_flops(gated(cls(name="gate")))
        assert report.macs == 2 * 6 * 8 * 8
        assert report.flops == 2 * report.macs + 2 * 48 + 2 * 48
        assert report.parameters == 2 * 72 + 8
        assert [row.name for row in report.rows] == [
            "gate",
            "gate/dense",
            "gate/other",
        ]


def test_a_formula_may_not_forget_a_child():
    class Forgetful(Gate):
        """Its formula leaves out a child."""

    @register_flops(Forgetful)
    def cost(layer, x):
        return Cost(parts=[Part(layer.dense, x)])

    with pytest.raises(ValueError, match="Forgetful leaves out its child 'oth"):
        count_flops(gated(Forgetful()))


def test_a_formula_may_speak_for_children():
    class Whole(Gate):
        """Its formula has no parts, and says so."""

    @register_flops(Whole)
    def cost(layer, x):
        return Cost(macs=7, whole=True)

    report = count_flops(gated(Whole()))
    assert (report.macs, report.flops) == (7, 14)
    assert report.parameters == 2 * 72 + 8


def test_active_parameters_of_a_sparse_layer():
    class OneOfTwo(Gate):
        """An example goes through one of the two."""

    @register_flops(OneOfTwo)
    def cost(layer, x):
        return Cost(macs=math.prod(x) * 8, whole=True, active_parameters=80)

    model = keras.Sequential(
        [keras.Input((6, 8)), OneOfTwo(), keras.layers.Dense(1)]
    )
    report = count_flops(model)
    assert report.parameters == 2 * 72 + 8 + 9
    assert report.active_parameters == 80 + 9
    assert str(report).splitlines()[-1].split()[2:4] == ["161", "89"]

    layer, inputs = OneOfTwo(), keras.Input((6, 8))
    twice = count_flops(keras.Model(inputs, layer(layer(inputs))))
    assert (twice.parameters, twice.active_parameters) == (152, 80)


def test_counts_do_not_depend_on_the_batch_or_precision():
    inputs = keras.Input(batch_shape=(5, 6, 8))
    model = keras.Model(inputs, GMLPBlock(12)(inputs))
    half = keras.Input((6, 8))
    half = keras.Model(half, GMLPBlock(12, dtype="mixed_bfloat16")(half))
    reports = [count_flops(m) for m in (model, half)]
    assert len({report.flops for report in reports}) == 1


@pytest.mark.parametrize(
    ("arguments", "query", "value"),
    [
        ({"num_heads": 2, "key_dim": 3}, (5, 8), (5, 8)),
        ({"num_heads": 2, "key_dim": 3, "value_dim": 4}, (5, 8), (7, 6)),
        ({"num_heads": 1, "key_dim": 3, "output_shape": 9}, (5, 8), (7, 6)),
    ],
)
def test_attention_of_keras(arguments, query, value):
    layer = keras.layers.MultiHeadAttention(**arguments)
    inputs = keras.Input(query), keras.Input(value)
    model = keras.Model(inputs, layer(*inputs))
    report = count_flops(model)
    # Product by product: q, k, v, scores, weighted sum, output.
    (n, d), (m, e) = query, value
    h, a = arguments["num_heads"], arguments["key_dim"]
    b, c = arguments.get("value_dim", a), arguments.get("output_shape", d)
    assert report.macs == (
        n * d * h * a
        + m * e * h * a
        + m * e * h * b
        + h * n * m * a
        + h * n * m * b
        + n * h * b * c
    )
    assert report.parameters == model.count_params()
