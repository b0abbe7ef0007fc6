"""Train a gMLP image classifier on real images.

    python -m recipes.vision
    python -m recipes.vision --preset amlp_digits_nano --epochs 30
    KERAS_BACKEND=torch python -m recipes.vision --num-layers 8

Leaves a folder with the model, its history, the learning curves, the spatial
filters, the configuration and the results. On the digits, the default run
takes a minute or two on two CPU cores; `docs/results.md` has its accuracy.
"""

import dataclasses
import math
import pathlib
import sys
import time
from typing import Annotated
from typing import Literal

import tyro

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip
from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.training import AdamW
from mlp_mixers.training import ProgressBar
from mlp_mixers.training import warmup_cosine
from recipes import runs


@dataclasses.dataclass
class Model:
    """A preset, and what to change in it (None: what the preset says)."""

    preset: str = "gmlp_digits_nano"
    """gmlp_digits_nano, amlp_digits_nano, gmlp_cifar_nano, gmlp_tiny_224 and
    larger; its image size gives way to the data's."""
    patch_size: int | None = None
    """Side of a patch in pixels."""
    num_layers: int | None = None
    """Number of blocks."""
    hidden_dim: int | None = None
    """Width of a token."""
    intermediate_dim: int | None = None
    """Width inside a block, before the gate halves it."""
    attention_dim: int | None = None
    """Width of a tiny attention in every block (aMLP)."""
    gate: Literal["linear", "additive", "multiplicative", "split"] | None = None
    """Which gate of the paper's ablation; split is the paper's choice."""
    num_heads: int | None = None
    """Number of spatial matrices in a block."""
    drop_path_rate: float | None = None
    """Probability of dropping a block for an example (stochastic depth)."""


@dataclasses.dataclass
class Training:
    """How to train."""

    epochs: int = 60
    """Passes over the training images."""
    batch_size: int = 32
    """Images in a step."""
    learning_rate: float = 2e-3
    """Highest learning rate: linear warm-up, then a cosine to zero."""
    warmup_fraction: float = 0.05
    """Part of the training that warms up."""
    weight_decay: float = 0.05
    """Of AdamW; biases and normalisations are spared."""
    clip_norm: float = 1.0
    """Largest global norm of the gradients; 0 for no limit."""
    max_shift: int = 1
    """Training images are moved by up to so many pixels."""


@dataclasses.dataclass
class Config:
    """Train a gMLP image classifier on real images."""

    model: Model = dataclasses.field(default_factory=Model)
    training: Training = dataclasses.field(default_factory=Training)
    data: Literal["digits"] = "digits"
    """digits: 1,797 handwritten 8x8 digits, inside scikit-learn."""
    seed: int = 0
    """Of initial weights, order and shifts."""
    out: pathlib.Path = pathlib.Path("runs/vision")
    """Folder for the results; an existing one is kept, a number appended."""


def main(config):
    """Trains, evaluates and records one run.

    Args:
        config: A `Config`.

    Returns:
        Dictionary of results, as in `results.json`.

    Raises:
        ValueError: If a setting is out of range.
        FloatingPointError: If the loss becomes NaN or infinite.
    """
    check(config.training)
    keras.utils.set_random_seed(config.seed)
    split = data.load_digits()
    model = build(config.model, split)
    folder = runs.new_folder(config.out)
    # What was asked for, and every size that came of it.
    asked = dataclasses.asdict(config)
    runs.record(
        folder, "config.json", {**asked, "built": model.backbone.get_config()}
    )
    print(
        f"{model.name}: {model.count_params():,} parameters, "
        f"{len(split.train[0]):,} training images, "
        f"Keras {keras.__version__} on {keras.backend.backend()}"
    )
    start = time.perf_counter()
    history = train(model, split, config)
    seconds = time.perf_counter() - start

    scores = model.evaluate(*split.test, verbose=0, return_dict=True)
    results = {
        "test_accuracy": scores["accuracy"],
        "test_loss": scores["loss"],
        "test_images": len(split.test[0]),
        "parameters": model.count_params(),
        "epochs": len(history["loss"]),
        "seconds": seconds,
        "seed": config.seed,
        "versions": runs.versions(),
    }
    save(folder, model, history, results)
    report(folder, results)
    return results


def check(training):
    """Raises a ValueError for settings that cannot train."""
    for name in ("epochs", "batch_size", "learning_rate"):
        value = getattr(training, name)
        if not value > 0:
            raise ValueError(
                f"`{name}` must be positive. Received: {name}={value}"
            )
    for name in ("weight_decay", "clip_norm", "max_shift"):
        value = getattr(training, name)
        if not value >= 0:
            raise ValueError(
                f"`{name}` must not be negative. Received: {name}={value}"
            )
    if not 0 <= training.warmup_fraction < 1:
        raise ValueError(
            "`warmup_fraction` must lie in [0, 1). "
            f"Received: warmup_fraction={training.warmup_fraction}"
        )


def build(model, split):
    """The classifier that the configuration and the data ask for."""
    changes = {
        name: value
        for name, value in dataclasses.asdict(model).items()
        if value is not None and name != "preset"
    }
    return GMLPImageClassifier.from_preset(
        model.preset,
        num_classes=len(split.class_names),
        image_shape=split.train[0].shape[1:],
        load_weights=False,
        **changes,
    )


def optimizer(training, steps_per_epoch):
    """AdamW with the rate, decay and clipping of a `Training`."""
    rate = warmup_cosine(
        training.learning_rate,
        total_steps=steps_per_epoch * training.epochs,
        warmup_steps=int(
            steps_per_epoch * training.epochs * training.warmup_fraction
        ),
    )
    return AdamW(
        rate,
        weight_decay=training.weight_decay,
        global_clipnorm=training.clip_norm or None,
    )


def train(model, split, config):
    """Fits the model; returns the history, metric name to list of values."""
    settings = config.training
    batches = data.ImageBatches(
        *split.train,
        batch_size=settings.batch_size,
        max_shift=settings.max_shift,
        seed=config.seed,
    )
    model.compile(optimizer(settings, len(batches)))
    history, bar = keras.callbacks.History(), ProgressBar()
    try:
        model.fit(
            batches,
            epochs=settings.epochs,
            validation_data=split.validation,
            callbacks=[bar, keras.callbacks.TerminateOnNaN(), history],
            shuffle=False,  # the batches are shuffled, by our seed
            verbose=0,
        )
    except KeyboardInterrupt:
        if not history.history:
            raise
        print("Interrupted: what has been trained so far is saved.")
    finally:
        bar.close()
    if not math.isfinite(history.history["loss"][-1]):
        raise FloatingPointError(
            "The loss became NaN or infinite. Lower the learning rate, "
            "lengthen the warm-up or clip gradients harder."
        )
    return history.history


def save(folder, model, history, results):
    """Writes the model, the numbers and the pictures of a run."""
    model.save(folder / "model.keras")
    runs.record(folder, "history.json", history)
    runs.record(folder, "results.json", results)
    analysis.plot_history(history, path=folder / "learning_curves.png")
    analysis.plot_spatial_weights(model, path=folder / "spatial_filters.png")


def report(folder, results):
    """Prints what came out, and where it lies."""
    runs.show(
        "Results",
        {
            "test accuracy": f"{results['test_accuracy']:.4f}",
            "test loss": f"{results['test_loss']:.4f}",
            "training": f"{results['epochs']} epochs, "
            f"{results['seconds']:.0f} s",
            "model": folder / "model.keras",
            "learning curves": folder / "learning_curves.png",
            "spatial filters": folder / "spatial_filters.png",
        },
    )


def cli():
    """Reads the command line and runs; bad settings end in one line."""
    config = tyro.cli(
        Annotated[Config, tyro.conf.OmitArgPrefixes],
        description=__doc__,
        prog="python -m recipes.vision",
    )
    try:
        main(config)
    except (ValueError, FloatingPointError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("Interrupted before the first epoch: there is no model.")


if __name__ == "__main__":
    cli()
