"""One declaration for each public layer and model.

Whatever stands here is put through `tests.checks` on every backend, saved
and reloaded in a fresh process, and exchanged between backends. A public name
that does not stand here fails `test_contracts.py`.
"""

import dataclasses

import keras
import numpy as np

from mlp_mixers import layers
from mlp_mixers import models


@dataclasses.dataclass(frozen=True)
class LayerCase:
    """How to make a layer and what to expect of it; shapes without batch."""

    name: str
    layer: type
    arguments: dict
    input_shape: tuple
    output_shape: tuple
    parameters: int
    extra_inputs: dict = dataclasses.field(default_factory=dict)
    takes_mask: bool = True
    # Whether length may be `None` in a symbolic call.
    any_length: bool = True
    # Inputs by name that are positions of tokens.
    positions: tuple = ()
    # Of layers with experts, how many weights one token does not use; half
    # precision may send it elsewhere.
    idle: int = 0

    def make(self, **changes):
        return self.layer(**{**self.arguments, **changes})


@dataclasses.dataclass(frozen=True)
class ModelCase:
    """How to make a model and what to expect of it; shapes without batch."""

    name: str
    make: callable
    input_shape: tuple
    output_shape: tuple
    parameters: int
    # Endings of the paths of weights that cancel before the output.
    without_effect: tuple = ()
    # As of layers.
    idle: int = 0
    # Of the outputs under a mixed policy, if it is not the half one.
    output_dtype: str | None = None

    def inputs(self, batch, rng):
        """Inputs for a batch, as the model takes them."""
        return _normal((batch, *self.input_shape), rng)

    @property
    def declared_shape(self):
        """What `model.output_shape` says."""
        return (None, *self.output_shape)


@dataclasses.dataclass(frozen=True)
class TextCase(ModelCase):
    """A text model; `input_shape` is `(n,)`. Rows end in padding."""

    declared: tuple = ()
    masked: int = 0  # positions of a masked language model

    def inputs(self, batch, rng):
        (n,) = self.input_shape
        lengths = np.linspace(n, n // 2, batch).astype(int)
        real = np.arange(n) < lengths[:, None]
        inputs = {
            "token_ids": rng.integers(0, TEXT_VOCABULARY, (batch, n), "int32"),
            "padding_mask": real.astype("int32"),
        }
        if self.masked:
            inputs["mask_positions"] = rng.integers(
                0, n // 2, (batch, self.masked), "int32"
            )
        return inputs

    @property
    def declared_shape(self):
        return (None, *self.declared)


def _sgu(name, output_dim, parameters, **arguments):
    arguments = {"sequence_length": 6, **arguments}
    return LayerCase(
        f"spatial_gating_unit_{name}",
        layers.SpatialGatingUnit,
        arguments,
        (6, 8),
        (6, output_dim),
        parameters,
    )


def _block(name, parameters, **arguments):
    arguments = {"intermediate_dim": 12, "sequence_length": 6, **arguments}
    return LayerCase(
        f"gmlp_block_{name}",
        layers.GMLPBlock,
        arguments,
        (6, 8),
        (6, 8),
        parameters,
    )


def _image_layer(name, layer, arguments, parameters, any_length=False):
    """A layer without padding, of the shape it takes."""
    return LayerCase(
        name,
        layer,
        arguments,
        (6, 8),
        (6, 8),
        parameters,
        takes_mask=False,
        any_length=any_length,
    )


# Parameters by hand. Unit: n² (or 2n-1, or n) + n a head, 2 a channel of the
# normalisation. Block: d·e + e + (e/2)·d + d + 2d around it.
LAYER_CASES = [
    _sgu("split", 4, 36 + 6 + 8),
    _sgu("linear", 8, 36 + 6 + 16, gate="linear"),
    _sgu("additive_heads", 8, 2 * 42 + 16, gate="additive", num_heads=2),
    _sgu("multiplicative", 8, 36 + 6 + 16, gate="multiplicative"),
    _sgu("toeplitz", 4, 11 + 6 + 8, toeplitz=True),
    _sgu("causal", 4, 36 + 6 + 8, causal=True),
    _sgu(
        "causal_toeplitz_heads",
        4,
        2 * (6 + 6) + 8,
        causal=True,
        toeplitz=True,
        num_heads=2,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
    ),
    LayerCase(
        "spatial_gating_unit_gate_residual",
        layers.SpatialGatingUnit,
        {"sequence_length": 6},
        (6, 8),
        (6, 4),
        36 + 6 + 8,
        extra_inputs={"gate_residual": (6, 4)},
    ),
    LayerCase(
        "tiny_attention",
        layers.TinyAttention,
        {"output_dim": 5, "attention_dim": 4},
        (6, 8),
        (6, 5),
        8 * 12 + 12 + 4 * 5 + 5,
    ),
    LayerCase(
        "tiny_attention_causal",
        layers.TinyAttention,
        {
            "output_dim": 5,
            "attention_dim": 4,
            "causal": True,
            "use_bias": False,
        },
        (6, 8),
        (6, 5),
        8 * 12 + 4 * 5,
    ),
    _block("plain", 8 * 12 + 12 + 6 * 8 + 8 + 16 + 36 + 6 + 12),
    _block(
        "amlp",
        (8 * 12 + 12 + 6 * 8 + 8 + 16 + 11 + 6 + 12)
        + (8 * 12 + 12 + 4 * 6 + 6),
        attention_dim=4,
        toeplitz=True,
        drop_path_rate=0.2,
    ),
    _block(
        "additive_causal",
        8 * 12 + 12 + 12 * 8 + 8 + 16 + 36 + 6 + 24,
        gate="additive",
        causal=True,
        activation="relu",
    ),
    LayerCase(
        "stochastic_depth",
        layers.StochasticDepth,
        {"rate": 0.3, "seed": 1},
        (6, 8),
        (6, 8),
        0,
        takes_mask=False,
    ),
    LayerCase(
        "patch_embedding",
        layers.PatchEmbedding,
        {"hidden_dim": 5, "patch_size": (2, 3)},
        (4, 6, 3),
        (4, 5),
        (2 * 3 * 3) * 5 + 5,
        takes_mask=False,
        any_length=False,
    ),
    LayerCase(
        "gather_tokens",
        layers.GatherTokens,
        {},
        (6, 8),
        (3, 8),
        0,
        extra_inputs={"positions": (3,)},
        positions=("positions",),
        takes_mask=False,
        any_length=False,
    ),
    _image_layer("affine", layers.Affine, {}, 8 + 8, any_length=True),
    _image_layer(
        "layer_scale", layers.LayerScale, {"init": 0.1}, 8, any_length=True
    ),
    _image_layer("spatial_projection", layers.SpatialProjection, {}, 36 + 6),
    _image_layer(
        "mixer_block",
        layers.MixerBlock,
        {
            "token_intermediate_dim": 5,
            "intermediate_dim": 12,
            "drop_path_rate": 0.2,
            "activation": "relu",
        },
        2 * 16 + (6 * 5 + 5) + (5 * 6 + 6) + (8 * 12 + 12) + (12 * 8 + 8),
    ),
    _image_layer(
        "resmlp_block",
        layers.ResMLPBlock,
        {
            "intermediate_dim": 12,
            "drop_path_rate": 0.2,
            "layer_scale_init": 0.1,
        },
        2 * 16 + 36 + 6 + 2 * 8 + (8 * 12 + 12) + (12 * 8 + 8),
    ),
]

_SELF_ATTENTION = 8 * 24 + 24 + 8 * 8 + 8
_EXPERT = 8 * 12 + 12 + 12 * 8 + 8


def _experts(name, router, parameters, **arguments):
    return LayerCase(
        f"sparse_token_experts_{name}",
        layers.SparseTokenExperts,
        {
            "num_experts": 3,
            "intermediate_dim": 12,
            "router": router,
            **arguments,
        },
        (6, 8),
        (6, 8),
        3 * _EXPERT + parameters,
        idle=(1 if name == "top_two" else 2) * _EXPERT,
    )


def _features(name, parameters, **arguments):
    return LayerCase(
        f"sparse_feature_experts_{name}",
        layers.SparseFeatureExperts,
        {"num_experts": 2, "sequence_length": 6, **arguments},
        (6, 8),
        (6, 4),
        2 * (36 + 6) + 8 + parameters,
    )


LAYER_CASES += [
    LayerCase(
        "self_attention",
        layers.SelfAttention,
        {
            "output_dim": 5,
            "num_heads": 2,
            "attention_dim": 4,
            "causal": True,
            "dropout_rate": 0.1,
        },
        (6, 8),
        (6, 5),
        8 * 12 + 12 + 4 * 5 + 5,
    ),
    LayerCase(
        "position_embedding",
        layers.PositionEmbedding,
        {"sequence_length": 6},
        (6, 8),
        (6, 8),
        6 * 8,
        takes_mask=False,
    ),
    LayerCase(
        "transformer_block",
        layers.TransformerBlock,
        {
            "intermediate_dim": 12,
            "num_heads": 2,
            "drop_path_rate": 0.2,
            "attention_dropout_rate": 0.1,
        },
        (6, 8),
        (6, 8),
        _SELF_ATTENTION + 2 * 16 + _EXPERT,
    ),
    LayerCase(
        "transformer_block_experts",
        layers.TransformerBlock,
        {
            "intermediate_dim": None,
            "num_heads": 2,
            "causal": True,
            "feed_forward": layers.SparseTokenExperts(3, 12, "switch"),
            "norm_placement": "post",
            "dropout_rate": 0.1,
        },
        (6, 8),
        (6, 8),
        _SELF_ATTENTION + 2 * 16 + 3 * _EXPERT + 8 * 3,
        idle=2 * _EXPERT,
    ),
    _experts("base", "base", 8 * 3),
    _experts(
        "top_two",
        layers.TopTwoRouter(jitter=0.1, z_loss_weight=0.01, seed=1),
        8 * 3,
        activation="relu",
        capacity_factor=2.0,
    ),
    _features("deterministic", 0),
    _features("partial", 2 * 2, routing="partial", prefix_fraction=0.4),
    LayerCase(
        "smlp_block",
        layers.SMLPBlock,
        {
            "num_experts": 3,
            "intermediate_dim": 12,
            "router": "switch",
            "sequence_length": 6,
            "attention_dim": 4,
            "norm_placement": "post",
        },
        (6, 8),
        (6, 8),
        (3 * _EXPERT + 8 * 3 + 16)
        + (8 * 12 + 12 + 6 * 8 + 8 + 16)
        + (3 * (36 + 6) + 12)
        + (8 * 12 + 12 + 4 * 6 + 6),
        idle=2 * _EXPERT,
    ),
]

_NANO = {
    "image_shape": (4, 6, 3),
    "patch_size": (2, 3),
    "num_layers": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
}
_STEM = 18 * 8 + 8
_BLOCK = (8 * 12 + 12) + (6 * 8 + 8) + 16 + (4 * 4 + 4 + 12)
_ATTENTION = (8 * 12 + 12) + (4 * 6 + 6)


def gmlp_nano(**changes):
    """A gMLP image backbone of two small blocks."""
    return models.GMLPBackbone(**{**_NANO, **changes})


def mixer_nano(**changes):
    """A Mixer image backbone of two small blocks."""
    sizes = {**_NANO, "token_intermediate_dim": 5}
    return models.MixerBackbone(**{**sizes, **changes})


def resmlp_nano(**changes):
    """A ResMLP image backbone of two small blocks."""
    return models.ResMLPBackbone(**{**_NANO, **changes})


_CHANNEL_MLP = (8 * 12 + 12) + (12 * 8 + 8)
# It adds the same to all channels of a token, which every norm removes.
_MIXER_CANCELS = ("token_output_dense/bias",)
_MIXER_BLOCK = 2 * 16 + (4 * 5 + 5) + (5 * 4 + 4) + _CHANNEL_MLP
_RESMLP_BLOCK = 2 * 16 + (4 * 4 + 4) + 2 * 8 + _CHANNEL_MLP

MODEL_CASES = [
    ModelCase(
        "gmlp_backbone",
        lambda **dtype: gmlp_nano(
            drop_path_rate=0.1, drop_path_schedule="linear", **dtype
        ),
        (4, 6, 3),
        (4, 8),
        _STEM + 2 * _BLOCK + 16,
    ),
    ModelCase(
        "gmlp_image_classifier",
        lambda **dtype: models.GMLPImageClassifier(
            gmlp_nano(**dtype), num_classes=3, dropout_rate=0.1
        ),
        (4, 6, 3),
        (3,),
        _STEM + 2 * _BLOCK + 16 + 8 * 3 + 3,
    ),
    ModelCase(
        "amlp_image_classifier",
        lambda **dtype: models.GMLPImageClassifier(
            gmlp_nano(attention_dim=4, **dtype), num_classes=3
        ),
        (4, 6, 3),
        (3,),
        _STEM + 2 * (_BLOCK + _ATTENTION) + 16 + 8 * 3 + 3,
    ),
    ModelCase(
        "mixer_backbone",
        lambda **dtype: mixer_nano(
            drop_path_rate=0.1, drop_path_schedule="linear", **dtype
        ),
        (4, 6, 3),
        (4, 8),
        _STEM + 2 * _MIXER_BLOCK + 16,
        without_effect=_MIXER_CANCELS,
    ),
    ModelCase(
        "mixer_image_classifier",
        lambda **dtype: models.MixerImageClassifier(
            mixer_nano(**dtype), num_classes=3, dropout_rate=0.1
        ),
        (4, 6, 3),
        (3,),
        _STEM + 2 * _MIXER_BLOCK + 16 + 8 * 3 + 3,
        without_effect=_MIXER_CANCELS,
    ),
    ModelCase(
        "resmlp_backbone",
        lambda **dtype: resmlp_nano(
            drop_path_rate=0.1, drop_path_schedule="linear", **dtype
        ),
        (4, 6, 3),
        (4, 8),
        _STEM + 2 * _RESMLP_BLOCK + 16,
    ),
    ModelCase(
        "resmlp_image_classifier",
        lambda **dtype: models.ResMLPImageClassifier(
            resmlp_nano(**dtype), num_classes=3, dropout_rate=0.1
        ),
        (4, 6, 3),
        (3,),
        _STEM + 2 * _RESMLP_BLOCK + 16 + 8 * 3 + 3,
    ),
]

TEXT_VOCABULARY = 11
_TEXT = {
    "vocabulary_size": TEXT_VOCABULARY,
    "sequence_length": 6,
    "num_layers": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
}


def gmlp_text_nano(**changes):
    """A gMLP text backbone of two small blocks."""
    return models.GMLPTextBackbone(**{**_TEXT, **changes})


_TEXT_BLOCK = (8 * 12 + 12) + (6 * 8 + 8) + 16 + (11 + 6 + 12)
_TEXT_BACKBONE = TEXT_VOCABULARY * 8 + 2 * _TEXT_BLOCK + 16

MODEL_CASES += [
    TextCase(
        "gmlp_text_backbone",
        lambda **dtype: gmlp_text_nano(
            dropout_rate=0.1, attention_dropout_rate=0.1, **dtype
        ),
        (6,),
        (6, 8),
        _TEXT_BACKBONE,
        declared=(None, 8),
    ),
    TextCase(
        "amlp_text_backbone",
        lambda **dtype: gmlp_text_nano(
            attention_dim=4, attention_dropout_rate=0.1, **dtype
        ),
        (6,),
        (6, 8),
        _TEXT_BACKBONE + 2 * _ATTENTION,
        declared=(None, 8),
    ),
    TextCase(
        "gmlp_masked_lm",
        lambda **dtype: models.GMLPMaskedLM(gmlp_text_nano(**dtype)),
        (6,),
        (2, TEXT_VOCABULARY),
        _TEXT_BACKBONE,
        declared=(None, TEXT_VOCABULARY),
        masked=2,
    ),
    TextCase(
        "gmlp_text_classifier",
        lambda **dtype: models.GMLPTextClassifier(
            gmlp_text_nano(mask_padding=False, **dtype),
            num_classes=3,
            dropout_rate=0.1,
        ),
        (6,),
        (3,),
        _TEXT_BACKBONE + 8 * 3 + 3,
        declared=(3,),
    ),
    TextCase(
        "gmlp_span_predictor",
        lambda **dtype: models.GMLPSpanPredictor(gmlp_text_nano(**dtype)),
        (6,),
        (2, 6),
        _TEXT_BACKBONE + 8 * 2 + 2,
        declared=(2, None),
        output_dtype="float32",
    ),
]

_SMLP = {
    "vocabulary_size": TEXT_VOCABULARY,
    "sequence_length": 6,
    "num_dense_blocks": 1,
    "num_sparse_blocks": 1,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "num_experts": 3,
}


def smlp_nano(**changes):
    """A sparse text backbone of a dense and a sparse block."""
    return models.SMLPBackbone(**{**_SMLP, **changes})


_SMLP_DENSE = (8 * 12 + 12) + (6 * 8 + 8) + 16 + (36 + 6 + 12)
_SMLP_SPARSE = _SMLP_DENSE + 2 * (36 + 6) + 3 * _EXPERT + 8 * 3 + 16

MODEL_CASES += [
    TextCase(
        "smlp_backbone",
        lambda **dtype: smlp_nano(dropout_rate=0.1, **dtype),
        (6,),
        (6, 8),
        TEXT_VOCABULARY * 8 + _SMLP_DENSE + _SMLP_SPARSE + 16,
        idle=2 * _EXPERT,
        declared=(None, 8),
    ),
    TextCase(
        "switch_causal_lm",
        lambda **dtype: models.SMLPCausalLM(
            smlp_nano(mixing="attention", router="switch", **dtype)
        ),
        (6,),
        (6, TEXT_VOCABULARY),
        (TEXT_VOCABULARY * 8 + 6 * 8 + 2 * _SELF_ATTENTION + 2 * 32)
        + (_EXPERT + 3 * _EXPERT + 8 * 3 + 16),
        idle=2 * _EXPERT,
        declared=(None, TEXT_VOCABULARY),
    ),
]

# Layers that return where tokens go and not tokens: see `test_routers.py`.
ROUTERS = {
    "BaseRouter",
    "HashRouter",
    "Router",
    "Routing",
    "SwitchRouter",
    "TopTwoRouter",
}

# Bases that are not models by themselves.
ABSTRACT = {
    "Backbone",
    "CausalLM",
    "ImageClassifier",
    "MaskedLM",
    "SpanPredictor",
    "TextClassifier",
}


def as_model(case, **changes):
    """The layer of a `LayerCase` as a Functional model, or a model's own."""
    if isinstance(case, ModelCase):
        return case.make(**changes)
    inputs = keras.Input(case.input_shape, name="x")
    others = {
        name: keras.Input(
            shape, name=name, dtype="int32" if name in case.positions else None
        )
        for name, shape in case.extra_inputs.items()
    }
    outputs = case.make(**changes)(inputs, **others)
    return keras.Model(
        [inputs, *others.values()] if others else inputs, outputs
    )


def random_inputs(case, batch, rng):
    """Inputs for `as_model(case)`: an array, or a list or dictionary."""
    if isinstance(case, ModelCase):
        return case.inputs(batch, rng)
    arrays = [_normal((batch, *case.input_shape), rng)]
    for name, shape in case.extra_inputs.items():
        if name in case.positions:
            n = case.input_shape[0]
            arrays.append(rng.integers(0, n, (batch, *shape), "int32"))
        else:
            arrays.append(_normal((batch, *shape), rng))
    return arrays if len(arrays) > 1 else arrays[0]


def _normal(shape, rng):
    return rng.normal(size=shape).astype("float32")


def randomize(model, rng):
    """Gives every weight a random value, so that nothing hides behind a 0."""
    for weight in model.weights:
        if weight.dtype.startswith("float"):
            weight.assign(
                weight + rng.normal(0, 0.3, weight.shape).astype("float32")
            )
    return model
