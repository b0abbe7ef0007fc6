"""Reads the golden files and copies their weights, name by name."""

import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent


def load(name):
    """Returns `(arrays, weights)`; weights under their original names."""
    arrays = dict(np.load(FOLDER / f"{name}.npz"))
    prefix = "weights/"
    weights = {
        key.removeprefix(prefix): arrays.pop(key)
        for key in list(arrays)
        if key.startswith(prefix)
    }
    return arrays, weights


def dense(layer, kernel, bias):
    """A PyTorch linear layer: weight (out, in) is the kernel transposed."""
    layer.kernel.assign(kernel.T)
    layer.bias.assign(bias)


def norm(layer, gamma, beta):
    layer.gamma.assign(gamma)
    layer.beta.assign(beta)
