import numpy as np
import pytest

from mlp_mixers.weights.files import read_arrays
from mlp_mixers.weights.files import write_arrays


@pytest.fixture
def arrays(rng):
    return {
        "blocks.0.weight": rng.normal(size=(2, 3)).astype("float32"),
        "bias": rng.normal(size=4).astype("float16"),
    }


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_what_is_written_is_read(suffix, arrays, tmp_path):
    path = tmp_path / f"Gewichte ä{suffix}"
    write_arrays(path, arrays)
    found = read_arrays(path)
    assert_same({name: found[name] for name in arrays}, arrays)
    assert set(found) == set(arrays)


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_files_of_pytorch(wrapper, prefix, arrays, tmp_path):
    torch = pytest.importorskip("torch")
    content = {prefix + k: torch.tensor(v) for k, v in arrays.items()}
    if wrapper:
        content = {wrapper: content, "epoch": 3}
    path = tmp_path / "model.pth"
    torch.save(content, path)
    assert_same(read_arrays(path), arrays)


def test_moving_averages_are_preferred():
    found = read_arrays(
        {"state_dict": {"a": [1.0]}, "state_dict_ema": {"a": [2.0]}}
    )
    np.testing.assert_array_equal(found["a"], [2.0])


def test_bfloat16_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.pt"
    torch.save({"a": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)}, path)
    np.testing.assert_array_equal(read_arrays(path)["a"], [1.5, -2.0])


def test_bfloat16_of_safetensors(tmp_path):
    import ml_dtypes

    path = tmp_path / "model.safetensors"
    write_arrays(path, {"a": np.array([1.5, -2.0], ml_dtypes.bfloat16)})
    found = read_arrays(path)["a"].astype("float32")
    np.testing.assert_array_equal(found, [1.5, -2.0])


class Harmful:
    def __reduce__(self):
        return (print, ("executed",))


def test_code_in_a_file_is_not_executed(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    torch.save({"a": Harmful()}, tmp_path / "model.pth")
    np.savez(tmp_path / "model.npz", a=np.array([Harmful()], dtype=object))
    capsys.readouterr()
    for name in ("model.pth", "model.npz"):
        with pytest.raises(ValueError, match="cannot be read"):
            read_arrays(tmp_path / name)
    assert "executed" not in capsys.readouterr().out


def test_a_folder_of_the_hub(arrays, tmp_path):
    write_arrays(tmp_path / "model.safetensors", arrays)
    assert set(read_arrays(tmp_path)) == set(arrays)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.npz", None, "There is no file"),
        ("model.keras", b"x", "keras.saving.load_model"),
        ("model.onnx", b"x", "of the kinds"),
        ("model.safetensors", b"not one", "cannot be read"),
        ("model.npz", b"not one", "cannot be read"),
        ("model.npz", b"", "cannot be read"),
    ],
)
def test_files_that_are_not(name, content, message, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_arrays(tmp_path / name)


def test_a_truncated_file(arrays, tmp_path):
    for name in ("model.safetensors", "model.npz"):
        path = tmp_path / name
        write_arrays(path, arrays)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(ValueError, match="cannot be read"):
            read_arrays(path)


def test_things_that_are_no_arrays():
    with pytest.raises(ValueError, match="arrays of numbers"):
        read_arrays({"a": "text"})
