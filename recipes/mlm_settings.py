"""What can be asked of `recipes.mlm`, and the recipes by name.

A setting that is `None` is left to something else: to the recipe for how to
train, to the preset for sizes, to the text for the vocabulary.
"""

import dataclasses
import pathlib
from typing import Annotated
from typing import Literal

import tyro

from recipes.checks import check_ranges
from recipes.checks import check_seeds
from recipes.text_settings import Gate
from recipes.text_settings import Text
from recipes.text_settings import TextTraining
from recipes.text_settings import check_tokenizer
from recipes.text_settings import resolved


@dataclasses.dataclass
class Model:
    """Which model, and what to change in its preset (None: nothing)."""

    model: Literal["gmlp", "amlp", "bert"] | None = None
    """A new model (None: gmlp). bert is KerasHub's, with as many parameters
    as the gMLP of --preset."""
    preset: str | None = None
    """gmlp_nano_en or amlp_nano_en for a CPU; gmlp_base_en, amlp_base_en,
    gmlp_large_en, amlp_large_en, gmlp_xlarge_en are the paper's."""
    from_: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Go on pretraining the model of another run (its folder, or that of a
    preset), with its tokenizer and its sizes."""
    sequence_length: int | None = None
    """Tokens in a row."""
    num_layers: int | None = None
    """Number of blocks."""
    hidden_dim: int | None = None
    """Width of a token."""
    intermediate_dim: int | None = None
    """Width inside a block (gMLP: before the gate halves it)."""
    attention_dim: int | None = None
    """gMLP: width of a tiny attention in every block (aMLP)."""
    num_heads: int | None = None
    """gMLP: spatial matrices in a block. bert: heads of the attention."""
    gate: Gate | None = None
    """gMLP: a gate of the paper's ablation; split is the paper's choice."""
    toeplitz: bool | None = None
    """gMLP: whether what passes between tokens depends on their distance."""
    mask_padding: bool | None = None
    """gMLP: whether padding is kept out; the paper's models learn to."""
    dropout_rate: float | None = None
    """Dropout; the paper has none in pretraining."""


@dataclasses.dataclass
class Training(TextTraining):
    """How to train (None: what the recipe says)."""

    recipe: Literal["small", "ablation", "main"] = "small"
    """small: 30 epochs, batch size 32, learning rate 0.002; a CPU in minutes.
    ablation and main: the gMLP paper's, Table 8 (128 tokens for 125,000 steps
    of 2,048 rows, learning rate 0.0007; 512, 1,000,000, 256, 0.0001)."""
    mask_rate: float | None = None
    """Share of the tokens that is masked, anew in every epoch."""
    whole_words: bool | None = None
    """Mask all tokens of a word together."""


RECIPES = {
    "small": {
        "epochs": 30,
        "steps": None,
        "batch_size": 32,
        "learning_rate": 2e-3,
        "warmup_fraction": 0.05,
        "weight_decay": 0.01,
        "epsilon": 1e-6,
        "clip_norm": 1.0,
        "mask_rate": 0.15,
        "whole_words": False,
    },
}
# Table 8 of the paper. It gives the warm-up as 10,000 steps.
RECIPES["ablation"] = {
    **RECIPES["small"],
    "epochs": None,
    "steps": 125_000,
    "batch_size": 2048,
    "learning_rate": 7e-4,
    "warmup_fraction": 0.08,
    "clip_norm": 0.0,
}
RECIPES["main"] = {
    **RECIPES["ablation"],
    "steps": 1_000_000,
    "batch_size": 256,
    "learning_rate": 1e-4,
    "warmup_fraction": 0.01,
}
# Tokens in a row; otherwise the preset's.
LENGTHS = {"ablation": 128, "main": 512}


@dataclasses.dataclass
class Config:
    """Pretrain a masked language model, go on with it, measure or ask it."""

    model: Model = dataclasses.field(default_factory=Model)
    text: Text = dataclasses.field(default_factory=Text)
    training: Training = dataclasses.field(default_factory=Training)
    seed: int = 0
    """Of initial weights, order and masks, and of what is held out. With
    --evaluate, of the places that are masked."""
    keep: Literal["last", "best"] = "last"
    """Save the weights of the last epoch, or of the one with the lowest
    perplexity on held-out text."""
    workers: int = 1
    """Threads that mask batches ahead; one does it in between."""
    out: pathlib.Path = pathlib.Path("runs/mlm")
    """Folder for the results; an existing one is kept, a number appended."""
    resume: pathlib.Path | None = None
    """Go on with the interrupted run in this folder, with its own settings."""
    evaluate: str | None = None
    """Do not train: the perplexity of this run's model on its held-out text,
    or on all of another --data. --mask-rate, --whole-words, --batch-size and
    --seed say how it is masked and measured."""
    fill: tuple[str, ...] | None = None
    """Do not train: the likeliest tokens for each <mask> in these texts, by
    the model of --from."""


# What can be asked for beside --evaluate and --fill.
EVALUATE = (
    *("data", "validation_fraction", "separator", "feature", "data_dir"),
    *("mask_rate", "whole_words", "batch_size", "seed"),
)
FILL = ("from_",)


def check(config):
    """Raises a ValueError for settings that are out of range."""
    check_seeds(config.seed)
    check_ranges(config, positive=("workers",))
    check_tokenizer(config.text)
    check_ranges(
        config.model,
        positive=(
            *("sequence_length", "num_layers", "hidden_dim"),
            *("intermediate_dim", "attention_dim", "num_heads"),
        ),
        below_one=("dropout_rate",),
    )


def resolve(config):
    """`(Training, sequence_length or None)`, every training setting a value.

    Raises:
        ValueError: If a setting is out of range.
    """
    settings = resolved(config.training, RECIPES)
    check_ranges(settings, share=("mask_rate",))
    length = config.model.sequence_length
    if length is None:
        length = LENGTHS.get(settings.recipe)
    return settings, length
