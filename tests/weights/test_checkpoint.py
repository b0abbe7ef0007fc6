import keras
import numpy as np
import pytest
from keras import ops

from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.weights import export_checkpoint
from mlp_mixers.weights import load_checkpoint
from mlp_mixers.weights import resize_spatial_weights
from mlp_mixers.weights.files import write_arrays
from tests import golden
from tests.cases import gmlp_nano
from tests.cases import randomize


def timm_gmlp(**changes):
    """The model of the golden file, with random weights."""
    sizes = {
        "image_shape": (32, 32, 3),
        "patch_size": 8,
        "num_layers": 3,
        "hidden_dim": 24,
        "intermediate_dim": 144,
    }
    num_classes = changes.pop("num_classes", 7)
    return GMLPImageClassifier(
        GMLPBackbone(**{**sizes, **changes}), num_classes
    )


@pytest.fixture
def checkpoint():
    return golden.load("timm_gmlp_tiny")[1]


def as_file(arrays, suffix, folder):
    path = folder / f"model{suffix}"
    if suffix == ".pth":
        torch = pytest.importorskip("torch")
        torch.save({k: torch.tensor(v) for k, v in arrays.items()}, path)
    else:
        write_arrays(path, arrays)
    return path


def spatial_kernel(model, block):
    unit = model.backbone.blocks[block].gating_unit
    return ops.convert_to_numpy(unit.spatial_kernel)


def unchanged(model, before):
    return all(
        np.array_equal(a, b) for a, b in zip(model.get_weights(), before)
    )


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pth", None])
def test_every_kind_of_source(suffix, checkpoint, tmp_path):
    source = as_file(checkpoint, suffix, tmp_path) if suffix else checkpoint
    model = timm_gmlp()
    report = load_checkpoint(model, source)
    assert report.layout == "timm"
    assert len(report.loaded) == len(model.weights) == len(checkpoint)
    assert not report.resized
    assert not report.skipped
    assert "36 weights loaded (timm names)" in str(report)
    np.testing.assert_array_equal(
        spatial_kernel(model, 1)[0],
        checkpoint["blocks.1.mlp_channels.gate.proj.weight"],
    )


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_in_the_file(half, checkpoint):
    import ml_dtypes  # noqa: F401 - knows bfloat16

    model, expected = timm_gmlp(), timm_gmlp()
    load_checkpoint(expected, checkpoint)
    load_checkpoint(model, {k: v.astype(half) for k, v in checkpoint.items()})
    for a, b in zip(model.get_weights(), expected.get_weights()):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3)


def test_round_trip_is_exact(checkpoint, tmp_path):
    model = timm_gmlp()
    load_checkpoint(model, checkpoint)
    path = tmp_path / "model.safetensors"
    exported = export_checkpoint(model, "timm", path)
    assert set(exported) == set(checkpoint)
    for name, array in checkpoint.items():
        np.testing.assert_array_equal(exported[name], array)
    again = timm_gmlp()
    load_checkpoint(again, path)
    assert unchanged(again, model.get_weights())


def test_our_own_names(rng):
    model = randomize(timm_gmlp(attention_dim=4, num_heads=2), rng)
    arrays = export_checkpoint(model, "mlp_mixers")
    assert "block_2/gating_unit/spatial_kernel" in arrays
    again = timm_gmlp(attention_dim=4, num_heads=2)
    assert load_checkpoint(again, arrays).layout == "mlp_mixers"
    assert unchanged(again, model.get_weights())


def test_the_name_of_a_model_does_not_matter(checkpoint):
    model = timm_gmlp(name="something")
    load_checkpoint(model, checkpoint)
    load_checkpoint(model.backbone, checkpoint, skip="head")
    reloaded = GMLPImageClassifier.from_config(model.get_config())
    load_checkpoint(reloaded, checkpoint)
    assert unchanged(reloaded, model.get_weights())


def test_another_number_of_classes(checkpoint):
    model = timm_gmlp(num_classes=3)
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"head/kernel: \(24, 3\) here"):
        load_checkpoint(model, checkpoint)
    assert unchanged(model, before)
    report = load_checkpoint(model, checkpoint, skip=["head"])
    assert report.skipped == ("head/kernel", "head/bias")
    after = model.get_weights()
    np.testing.assert_array_equal(after[-2], before[-2])
    assert (after[0] != before[0]).any()


def test_a_backbone_has_no_head(checkpoint):
    backbone = timm_gmlp().backbone
    with pytest.raises(ValueError, match="the model has not:\n  head.weight"):
        load_checkpoint(backbone, checkpoint)
    report = load_checkpoint(backbone, checkpoint, skip=["head"])
    assert set(report.skipped) == {"head.weight", "head.bias"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c.pop("norm.bias"), r"output_norm/beta \(there: norm.bias"),
        (lambda c: c.update(extra=np.zeros(3)), "has not:\n  extra"),
        (
            lambda c: c.update({"head.bias": np.full(7, np.nan)}),
            "head/bias: NaN",
        ),
        (
            lambda c: c.update({"norm.bias": np.zeros((3, 8))}),
            r"output_norm/beta: \(24,\) here, \(3, 8\) there",
        ),
        (
            lambda c: c.update({"stem.proj.weight": np.zeros((24, 3, 4, 4))}),
            r"patch_embedding/dense/kernel: \(192, 24\) here, \(24, 3, 4, 4\)",
        ),
        (lambda c: c.update({"head.bias": "text"}), "arrays of numbers"),
    ],
)
def test_all_or_nothing(damage, message, checkpoint):
    model = timm_gmlp()
    before = model.get_weights()
    damage(checkpoint)
    with pytest.raises(ValueError, match=message):
        load_checkpoint(model, checkpoint)
    assert unchanged(model, before)


def test_another_model(checkpoint):
    with pytest.raises(ValueError, match="blocks.2.norm.weight"):
        load_checkpoint(timm_gmlp(num_layers=2), checkpoint)
    with pytest.raises(ValueError, match="No name in the checkpoint belongs"):
        load_checkpoint(timm_gmlp(), {"conv1.weight": np.zeros(3)})
    with pytest.raises(ValueError, match="No name in the checkpoint"):
        load_checkpoint(timm_gmlp(), {})
    with pytest.raises(ValueError, match="backbone or classifier"):
        load_checkpoint(keras.layers.Dense(3), checkpoint)


def test_what_timm_does_not_have(checkpoint):
    amlp = timm_gmlp(attention_dim=4)
    with pytest.raises(ValueError, match="attention/qkv_dense/kernel"):
        load_checkpoint(amlp, checkpoint)
    load_checkpoint(amlp, checkpoint, skip=["*/attention/*"])
    with pytest.raises(ValueError, match="no names for these"):
        export_checkpoint(amlp, "timm")
    with pytest.raises(ValueError, match="num_heads=2"):
        export_checkpoint(timm_gmlp(num_heads=2), "timm")
    with pytest.raises(ValueError, match="no Toeplitz weights"):
        export_checkpoint(timm_gmlp(toeplitz=True), "timm")
    with pytest.raises(ValueError, match="layout='keras'"):
        export_checkpoint(amlp, "keras")


def test_another_image_size(checkpoint):
    """Where tokens mix, weights are resized and reported; nowhere else."""
    model = timm_gmlp(image_shape=(48, 40, 3))
    report = load_checkpoint(model, checkpoint)
    assert report.grids == ((4, 4), (6, 5))
    assert [name for name, _, _ in report.resized] == [
        f"block_{i}/gating_unit/spatial_{part}"
        for i in range(3)
        for part in ("kernel", "bias")
    ]
    assert "6 of them resized from 4x4 to 6x5 patches" in str(report)
    there = checkpoint["blocks.1.mlp_channels.gate.proj.weight"]
    np.testing.assert_allclose(
        spatial_kernel(model, 1)[0],
        resize_spatial_weights(there, (4, 4), (6, 5)),
        rtol=1e-5,
    )
    before = timm_gmlp(image_shape=(48, 40, 3))
    with pytest.raises(ValueError, match=r"\(1, 30, 30\) here, \(16, 16\)"):
        load_checkpoint(before, checkpoint, resize=False)


def test_the_grid_that_cannot_be_guessed(rng):
    oblong = randomize(gmlp_nano(image_shape=(4, 18, 3)), rng)  # 2x6 patches
    square = gmlp_nano(image_shape=(6, 9, 3))  # 3x3
    arrays = export_checkpoint(oblong, "timm")
    with pytest.raises(ValueError, match="pass `source_grid="):
        load_checkpoint(square, arrays)
    with pytest.raises(ValueError, match=r"12 tokens. .*source_grid=\(3, 3\)"):
        load_checkpoint(square, arrays, source_grid=(3, 3))
    report = load_checkpoint(square, arrays, source_grid=(2, 6))
    assert report.grids == ((2, 6), (3, 3))


def test_our_own_file_says_its_grid(rng, tmp_path):
    oblong = randomize(gmlp_nano(image_shape=(4, 24, 3)), rng)  # 2x8
    path = tmp_path / "model.safetensors"
    export_checkpoint(oblong, "timm", path)
    square = gmlp_nano(image_shape=(8, 12, 3))  # 4x4, as many
    assert load_checkpoint(square, path).grids == ((2, 8), (4, 4))
    again = gmlp_nano(image_shape=(4, 24, 3))
    assert not load_checkpoint(again, path).resized
    with pytest.raises(ValueError, match="source_grid=48"):
        load_checkpoint(again, path, source_grid=48)
    with pytest.raises(ValueError, match="source=None"):
        load_checkpoint(again, None)


def test_as_many_patches_in_another_shape(rng):
    wide = randomize(gmlp_nano(image_shape=(4, 18, 3)), rng)  # 2x6
    tall = gmlp_nano(image_shape=(12, 6, 3))  # 6x2
    arrays = export_checkpoint(wide, "timm")
    assert not load_checkpoint(tall, arrays).resized
    report = load_checkpoint(tall, arrays, source_grid=(2, 6))
    assert report.grids == ((2, 6), (6, 2))


def test_patches_of_rectangles_go_both_ways(rng):
    model = randomize(gmlp_nano(), rng)  # patches of 2x3
    arrays = export_checkpoint(model, "timm")
    # The convolution that these weights are for, by brute force.
    kernel = arrays["stem.proj.weight"]  # (d, c, p, q)
    image = rng.normal(size=(1, 4, 6, 3)).astype("float32")
    patch = image[0, 2:4, 3:6]  # the last one
    expected = np.einsum("dcpq,pqc->d", kernel, patch)
    tokens = ops.convert_to_numpy(model.patch_embedding(image))
    np.testing.assert_allclose(
        tokens[0, -1], expected + arrays["stem.proj.bias"], rtol=1e-4, atol=1e-5
    )
    again = gmlp_nano()
    load_checkpoint(again, arrays)
    assert unchanged(again, model.get_weights())
