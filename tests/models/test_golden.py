"""The same function as independent implementations, on their weights."""

import keras
import numpy as np
from keras import ops

from mlp_mixers.layers import GMLPBlock
from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import GMLPImageClassifier
from tests import golden

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def test_gmlp_is_timms():
    arrays, weights = golden.load("timm_gmlp_tiny")
    backbone = GMLPBackbone(
        image_shape=(32, 32, 3),
        patch_size=8,
        num_layers=3,
        hidden_dim=24,
        intermediate_dim=144,
    )
    model = GMLPImageClassifier(backbone, num_classes=7)
    load_timm(model, weights)

    layers = [backbone.patch_embedding, backbone.blocks[0], backbone.blocks[2]]
    taps = keras.Model(backbone.input, [x.output for x in layers])
    outputs = taps(arrays["images_nhwc"])
    for name, output in zip(("stem", "block0", "block2"), outputs):
        np.testing.assert_allclose(
            ops.convert_to_numpy(output), arrays[f"taps/{name}"], **CLOSE
        )
    np.testing.assert_allclose(
        model.predict(arrays["images_nhwc"], verbose=0),
        arrays["logits"],
        **CLOSE,
    )


def load_timm(model, weights):
    """Copies a timm state dict; every name must be used."""
    unused = set(weights)

    def pair(name):
        unused.difference_update({f"{name}.weight", f"{name}.bias"})
        return weights[f"{name}.weight"], weights[f"{name}.bias"]

    backbone = model.backbone
    kernel, bias = pair("stem.proj")  # (d, c, p, q) -> (p·q·c, d)
    kernel = kernel.transpose(2, 3, 1, 0).reshape(-1, len(bias))
    backbone.patch_embedding.dense.set_weights([kernel, bias])
    for i, block in enumerate(backbone.blocks):
        mlp = f"blocks.{i}.mlp_channels"
        golden.norm(block.norm, *pair(f"blocks.{i}.norm"))
        golden.dense(block.intermediate_dense, *pair(f"{mlp}.fc1"))
        golden.norm(block.gating_unit.norm, *pair(f"{mlp}.gate.norm"))
        w, b = pair(f"{mlp}.gate.proj")  # (n, n) as in the paper: W
        block.gating_unit.spatial_kernel.assign(w[None])
        block.gating_unit.spatial_bias.assign(b[None])
        golden.dense(block.output_dense, *pair(f"{mlp}.fc2"))
    golden.norm(backbone.output_norm, *pair("norm"))
    golden.dense(model.head, *pair("head"))
    assert not unused


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
