"""Settings that the recipes for text have in common."""

import dataclasses
import pathlib
from typing import Literal

from recipes.checks import check_ranges
from recipes.checks import filled_in

Gate = Literal["linear", "additive", "multiplicative", "split"]


@dataclasses.dataclass
class Text:
    """Which text, and what it is cut into."""

    data: str | None = None
    """topics (the manual inside every Python; a few minutes), text:PATH (a
    file, .gz too, a folder of them, or several with commas), tfds:NAME. (None:
    topics; with --evaluate, the text of the run.)"""
    validation_fraction: float | None = None
    """Share of the characters that is held out, by document (None: 0.1; with
    --evaluate, all of a text that is not the run's is measured)."""
    separator: Literal["blank_line", "line", "file"] | None = None
    """text: what stands between documents (None: blank_line)."""
    feature: str | None = None
    """tfds: the name of the text in a record, where there are several."""
    data_dir: str | None = None
    """tfds: where its data sets are prepared."""
    vocabulary_size: int | None = None
    """Most tokens in the vocabulary (None: by the length of the text, 512 to
    32,000)."""
    tokenizer: pathlib.Path | None = None
    """A tokenizer.json of another run, instead of training one."""


# What a `Text` is left to. `None` tells what is asked for from what is not.
TEXT = {
    "data": "topics",
    "validation_fraction": 0.1,
    "separator": "blank_line",
}


@dataclasses.dataclass
class TextTraining:
    """How to train; the names of the recipes are each recipe's own."""

    recipe: str = "small"
    """What settings that are None are left to."""
    epochs: int | None = None
    """Passes over the text."""
    steps: int | None = None
    """Steps instead of --epochs, up to whole epochs."""
    batch_size: int | None = None
    """Rows in a step."""
    learning_rate: float | None = None
    """Highest learning rate: linear warm-up, then linear decay to zero."""
    warmup_fraction: float | None = None
    """Part of the training that warms up."""
    weight_decay: float | None = None
    """Of AdamW; biases and normalisations are spared."""
    epsilon: float | None = None
    """Of AdamW."""
    clip_norm: float | None = None
    """Largest global norm of the gradients; 0 for no limit."""


def resolved(training, recipes):
    """A `TextTraining` in which every setting has the recipe's value.

    Args:
        training: A `TextTraining`.
        recipes: Dictionary of recipes by name.

    Raises:
        ValueError: If a setting that all share is out of range.
    """
    settings = type(training)(**filled_in(training, recipes))
    check_ranges(
        settings,
        positive=("epochs", "steps", "batch_size", "learning_rate", "epsilon"),
        not_negative=("weight_decay", "clip_norm"),
        below_one=("warmup_fraction",),
    )
    return settings


def check_tokenizer(settings):
    """Raises a ValueError for settings of a tokenizer that contradict."""
    check_ranges(settings, positive=("vocabulary_size",))
    if None not in (settings.tokenizer, settings.vocabulary_size):
        raise ValueError(
            "A tokenizer has its vocabulary: give --tokenizer without "
            "--vocabulary-size."
        )
