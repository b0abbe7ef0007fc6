"""Reads and writes files of named arrays, never executing what is in them."""

import os
import pathlib
import zipfile

import numpy as np

SUFFIXES = (".safetensors", ".npz", ".pth", ".pt", ".bin")

# Training scripts wrap the state dict, in order of preference.
_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model")


def read_arrays(source):
    """Reads named arrays.

    Args:
        source: Path of a `.safetensors`, `.npz`, `.pth`, `.pt` or `.bin` file,
            of a folder that holds `model.safetensors`, or a dictionary of
            arrays.

    Returns:
        Dictionary from name to NumPy array. Names are as in the file, without
        a wrapper (`state_dict`) and without a prefix that all of them share
        (`module.`).

    Raises:
        ValueError: If there is no such file, it is of another kind, damaged,
            or holds anything but arrays.
    """
    if isinstance(source, dict):
        return _cleaned(source)
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(
            "Weights come from the path of a file or a dictionary of arrays. "
            f"Received: source={source!r}"
        )
    path = pathlib.Path(source).expanduser()
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise ValueError(
            "There is no file of weights here. It may be of the kinds "
            f"{', '.join(SUFFIXES)}. Received: source={str(source)!r}"
        )
    readers = {".safetensors": _read_safetensors, ".npz": _read_npz}
    readers |= dict.fromkeys((".pth", ".pt", ".bin"), _read_torch)
    if path.suffix not in readers:
        hint = ""
        if path.suffix in (".keras", ".h5"):
            hint = (
                " Keras's own files are opened by `keras.saving.load_model` "
                "or `model.load_weights`."
            )
        raise ValueError(
            f"Weights are read from files of the kinds {', '.join(SUFFIXES)}."
            f"{hint} Received: source={str(source)!r}"
        )
    try:
        arrays = readers[path.suffix](path)
    except ImportError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as a {path.suffix} file of arrays: {error}"
        ) from error
    return _cleaned(arrays)


def read_grid(source):
    """The grid of patches that `export_checkpoint` wrote into a file.

    Returns:
        `(rows, columns)`, or `None` if the source does not say it.
    """
    if isinstance(source, dict):
        return None
    path = pathlib.Path(source).expanduser()
    if path.is_dir():
        path = path / "model.safetensors"
    if path.suffix != ".safetensors":
        return None
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        grid = (file.metadata() or {}).get("grid", "")
    sides = grid.split("x")
    if len(sides) != 2 or not all(side.isdecimal() for side in sides):
        return None
    return tuple(map(int, sides))


def write_arrays(path, arrays, metadata=None):
    """Writes named arrays to a `.safetensors` or `.npz` file.

    Args:
        path: Path of the file.
        arrays: Dictionary from name to array.
        metadata: Strings by name, kept by `.safetensors` alone.

    Raises:
        ValueError: If the file is of another kind.
    """
    path = pathlib.Path(path)
    if path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file(arrays, path, metadata=metadata)
    elif path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        raise ValueError(
            "Weights are written to .safetensors or .npz files. "
            f"Received: path={str(path)!r}"
        )


def _read_safetensors(path):
    from safetensors.numpy import load_file

    return load_file(path)


def _read_npz(path):
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not a zip archive")
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_torch(path):
    # PyTorch's own format, which nothing else reads safely.
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"{path.suffix} files are PyTorch's and need it: `pip install "
            "torch`, or convert the file to .safetensors where it is."
        ) from error

    try:
        # `weights_only`: tensors and containers, no code.
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # PyTorch's own message advises to execute what is in the file.
        raise ValueError(
            "it is damaged, or holds more than tensors, and was not executed"
        ) from error


def _cleaned(content):
    """The arrays of a state dict that may be wrapped and prefixed."""
    for wrapper in _WRAPPERS:
        if isinstance(content.get(wrapper), dict):
            content = content[wrapper]
            break
    arrays = {str(name): _as_numpy(v, name) for name, v in content.items()}
    for prefix in ("module.", "model."):
        if arrays and all(name.startswith(prefix) for name in arrays):
            arrays = {k.removeprefix(prefix): v for k, v in arrays.items()}
    return arrays


def _as_numpy(value, name):
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # unknown to NumPy
            value = value.float()
    try:
        array = np.asarray(value)
    except Exception as error:
        raise ValueError(
            f"Weights must be arrays. Received: {name}={value!r}"
        ) from error
    if (
        array.dtype == object
        or array.dtype.kind in "USV"
        and ("float" not in array.dtype.name)
    ):
        raise ValueError(
            "Weights must be arrays of numbers. "
            f"Received: {name} of type {type(value).__name__}, "
            f"dtype {array.dtype}"
        )
    return array
