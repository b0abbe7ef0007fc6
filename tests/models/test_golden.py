"""The same function as independent implementations, on their weights."""

import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.layers import GMLPBlock
from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import MixerBackbone
from mlp_mixers.models import MixerImageClassifier
from mlp_mixers.models import ResMLPBackbone
from mlp_mixers.models import ResMLPImageClassifier
from mlp_mixers.weights import export_checkpoint
from mlp_mixers.weights import load_checkpoint
from tests import golden

CLOSE = {"rtol": 1e-4, "atol": 1e-4}

GMLP = {
    "image_shape": (32, 32, 3),
    "patch_size": 8,
    "num_layers": 3,
    "hidden_dim": 24,
    "intermediate_dim": 144,
}
OTHERS = {
    "image_shape": (24, 24, 3),
    "patch_size": 6,
    "num_layers": 2,
    "hidden_dim": 20,
    "intermediate_dim": 80,
}


def gmlp():
    return GMLPImageClassifier(GMLPBackbone(**GMLP), num_classes=7)


def mixer():
    backbone = MixerBackbone(**OTHERS, token_intermediate_dim=10)
    return MixerImageClassifier(backbone, num_classes=5)


def resmlp():
    return ResMLPImageClassifier(ResMLPBackbone(**OTHERS), num_classes=5)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (gmlp, "timm_gmlp_tiny"),
        (mixer, "timm_mixer_tiny"),
        (resmlp, "timm_resmlp_tiny"),
    ],
)
def test_the_model_is_timms(make, name):
    """Loaded by `load_checkpoint`: logits and intermediate outputs agree."""
    arrays, weights = golden.load(name)
    model = make()
    report = load_checkpoint(model, weights)
    assert len(report.loaded) == len(weights)
    backbone = model.backbone
    layers = {"taps/stem": backbone.patch_embedding, "logits": model.head}
    for i, block in enumerate(backbone.blocks):
        layers[f"taps/block{i}"] = block
    for tap, layer in layers.items():
        if tap not in arrays:
            continue
        if tap == "logits":
            found = model.predict(arrays["images_nhwc"], verbose=0)
        else:
            part = keras.Model(backbone.input, layer.output)
            found = part.predict(arrays["images_nhwc"], verbose=0)
        np.testing.assert_allclose(found, arrays[tap], **CLOSE)

    exported = export_checkpoint(model, "timm")
    assert set(exported) == set(weights)
    for name, array in weights.items():
        np.testing.assert_array_equal(exported[name], array)


def test_resmlp_under_its_authors_names():
    """Other names, and vectors where timm has (1, 1, d)."""
    arrays, weights = golden.load("timm_resmlp_tiny")
    renamed = {}
    for name, array in weights.items():
        for timm, theirs in (
            ("stem.", "patch_embed."),
            ("linear_tokens.", "attn."),
            ("mlp_channels.", "mlp."),
            ("ls1", "gamma_1"),
            ("ls2", "gamma_2"),
        ):
            name = name.replace(timm, theirs)
        renamed[name] = array.reshape(-1) if array.ndim == 3 else array
    model = resmlp()
    assert load_checkpoint(model, renamed).layout == "facebook"
    np.testing.assert_allclose(
        model.predict(arrays["images_nhwc"], verbose=0),
        arrays["logits"],
        **CLOSE,
    )
    assert set(export_checkpoint(model, "facebook")) == set(renamed)


def test_amlp_block_is_g_mlp_pytorchs():
    arrays, weights = golden.load("g_mlp_pytorch_amlp_block")
    block = GMLPBlock(48, attention_dim=8, epsilon=1e-5)
    block.build(arrays["x"].shape)
    w = {name.removeprefix("fn."): a for name, a in weights.items()}
    golden.norm(block.norm, w["norm.weight"], w["norm.bias"])
    golden.dense(
        block.intermediate_dense,
        w["fn.proj_in.0.weight"],
        w["fn.proj_in.0.bias"],
    )
    unit = block.gating_unit
    golden.norm(unit.norm, w["fn.sgu.norm.weight"], w["fn.sgu.norm.bias"])
    unit.spatial_kernel.assign(w["fn.sgu.weight"])  # (1, n, n)
    unit.spatial_bias.assign(w["fn.sgu.bias"])
    golden.dense(
        block.attention.qkv_dense, w["fn.attn.to_qkv.weight"], np.zeros(24)
    )
    golden.dense(
        block.attention.output_dense,
        w["fn.attn.to_out.weight"],
        w["fn.attn.to_out.bias"],
    )
    golden.dense(
        block.output_dense, w["fn.proj_out.weight"], w["fn.proj_out.bias"]
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(block(arrays["x"])), arrays["y"], **CLOSE
    )
