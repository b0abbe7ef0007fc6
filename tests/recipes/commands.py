"""Recipes as users call them, and small data for them."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
from PIL import Image

from mlp_mixers.training import TrainingCheckpoint

ROOT = pathlib.Path(__file__).parents[2]


def environment():
    return {
        **os.environ,
        "KERAS_BACKEND": keras.backend.backend(),
        "COLUMNS": "100",
    }


def command(*arguments, recipe="vision"):
    """Runs a recipe to its end."""
    return subprocess.run(
        [sys.executable, "-m", f"recipes.{recipe}", *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )


def write_pictures(folder, count=20, size=(20, 24), seed=0):
    """Pictures of two classes: bright above and bright below."""
    rng = np.random.default_rng(seed)
    for name, bright in (("above", slice(0, 10)), ("below", slice(10, None))):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 100, (*size, 3), np.uint8)
            pixels[bright] += 120
            Image.fromarray(pixels).save(folder / name / f"{i} ä.png")
    return folder


def interrupt_after(epochs, monkeypatch):
    """A Ctrl-C in the epoch after so many."""
    save = TrainingCheckpoint.on_epoch_end

    def save_and_interrupt(self, epoch, logs=None):
        if epoch == epochs:
            raise KeyboardInterrupt
        save(self, epoch, logs)

    monkeypatch.setattr(TrainingCheckpoint, "on_epoch_end", save_and_interrupt)
    return lambda: monkeypatch.setattr(TrainingCheckpoint, "on_epoch_end", save)


def saved_weights(folder):
    return keras.saving.load_model(folder / "model.keras").get_weights()
