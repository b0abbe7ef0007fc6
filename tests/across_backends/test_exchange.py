"""The same file is the same model on TensorFlow, JAX and PyTorch."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from tests.across_backends.worker import MODELS

ROOT = pathlib.Path(__file__).parents[2]
BACKENDS = ("tensorflow", "jax", "torch")

pytestmark = pytest.mark.across


def start_worker(part, folder, backend):
    command = "-m", "tests.across_backends.worker", part, str(folder)
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where each backend has written its files and read the others'."""
    folder = tmp_path_factory.mktemp("exchange")
    for part in ("write", "read"):
        # All files are there before anyone reads.
        workers = [start_worker(part, folder, backend) for backend in BACKENDS]
        for worker in workers:
            _, errors = worker.communicate()
            assert worker.returncode == 0, errors
    return folder


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("writer", BACKENDS)
@pytest.mark.parametrize("reader", BACKENDS)
def test_forward_and_ten_steps_agree(name, writer, reader, folder):
    if reader == writer:
        # Nothing to compare; but training must have moved the model, or the
        # comparisons of the others say nothing.
        own = np.load(folder / f"{name}_{writer}_by_{writer}.npz")
        assert abs(own["trained"] - own["forward"]).max() > 1e-2
        return
    own, other = (
        np.load(folder / f"{name}_{writer}_by_{backend}.npz")
        for backend in (writer, reader)
    )
    assert abs(own["forward"] - other["forward"]).max() <= 1e-5
    assert abs(own["trained"] - other["trained"]).max() <= 1e-3
