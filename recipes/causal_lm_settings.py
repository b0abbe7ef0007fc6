"""What can be asked of `recipes.causal_lm`, and the recipes by name.

A setting that is `None` is left to something else: to the recipe for how to
train, to the text for the vocabulary.
"""

import dataclasses
import pathlib
from typing import Annotated
from typing import Literal

import tyro

from recipes.checks import check_ranges
from recipes.checks import check_seeds
from recipes.text_settings import Text
from recipes.text_settings import TextTraining
from recipes.text_settings import check_tokenizer
from recipes.text_settings import resolved

Variant = Literal[
    "gmlp",
    "smlp",
    "smlp-partial",
    "smlp-leaky",
    "transformer",
    "switch",
    "gshard",
    "base",
    "hash",
]


@dataclasses.dataclass
class Model:
    """Which models, and how large."""

    models: tuple[Variant, ...] = ("smlp",)
    """One or several to compare. gmlp, transformer: dense. smlp: feature and
    token experts; smlp-partial: the first tokens choose (a text with fewer of
    them is written as by smlp); smlp-leaky: cheats. switch, gshard, base,
    hash: Transformers with token experts."""
    from_: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Ask the model of this run (its folder): with --generate, --zero-shot."""
    equal: Literal["flops", "width"] = "flops"
    """What models have in common: all cost as much as the gMLP of these
    sizes, by widths of their own; or --intermediate-dim itself."""
    sequence_length: int = 128
    """Tokens in a row."""
    num_layers: int = 4
    """Number of blocks, dense and sparse."""
    num_sparse_blocks: int = 1
    """How many of them are sparse, where a model has experts."""
    num_experts: int = 4
    """Experts in a sparse block."""
    hidden_dim: int = 128
    """Width of a token."""
    intermediate_dim: int = 512
    """Width inside a block of the gMLP, before the gate halves it."""
    attention_dim: int | None = None
    """gmlp, smlp: width of a tiny attention in every block (aMLP)."""
    num_heads: int | None = None
    """Transformers: heads of the attention (None: one for 64 channels)."""
    spatial_heads: int | None = None
    """gmlp, smlp: spatial matrices of a dense block (None: one)."""
    toeplitz: bool = False
    """gmlp, smlp: whether spatial weights depend on the distance only."""
    router: Literal["base", "switch", "top_two", "hash"] | None = None
    """smlp models: what chooses a token's expert (None: base)."""
    balance_loss_weight: float | None = None
    """Of the loss that keeps experts equally busy, where a route is learned:
    switch and top_two routers, smlp-partial's channels (None: 0.01)."""
    z_loss_weight: float | None = None
    """switch and top_two routers: of the loss that keeps logits small (None:
    0; ST-MoE's is 0.001)."""
    capacity_factor: float = 1.25
    """Places of a token expert in training; 1 is a fair share."""
    prefix_fraction: float = 0.2
    """smlp-partial: the share of the tokens that chooses."""
    norm_placement: Literal["pre", "post"] = "pre"
    """Where sparse blocks and Transformers normalise."""
    dropout_rate: float = 0.0
    """Dropout."""


# Models without experts.
DENSE = ("gmlp", "transformer")
# Not sizes of a backbone.
OTHERS = ("models", "from_", "equal", "intermediate_dim")


@dataclasses.dataclass
class Training(TextTraining):
    """How to train (None: what the recipe says)."""

    recipe: Literal["small"] = "small"
    """small: 15 epochs, batch size 16, learning rate 0.002, warm-up fraction
    0.05, weight decay 0.01, epsilon 1e-06, clip norm 1. For a CPU; the paper's
    settings are not known."""


RECIPES = {
    "small": {
        "epochs": 15,
        "steps": None,
        "batch_size": 16,
        "learning_rate": 2e-3,
        "warmup_fraction": 0.05,
        "weight_decay": 0.01,
        "epsilon": 1e-6,
        "clip_norm": 1.0,
    },
}


@dataclasses.dataclass
class Config:
    """Train causal language models, compare them, go on, or ask one."""

    model: Model = dataclasses.field(default_factory=Model)
    text: Text = dataclasses.field(default_factory=Text)
    training: Training = dataclasses.field(default_factory=Training)
    seed: int = 0
    """Of initial weights and order, and of what is held out."""
    window: int | None = None
    """Measure perplexity also from this token of a row on, counted from 0
    (None: from where smlp-partial begins, if it is trained). With --evaluate
    too."""
    keep: Literal["last", "best"] = "last"
    """Save the weights of the last epoch, or of the one with the lowest
    perplexity on held-out text."""
    out: pathlib.Path = pathlib.Path("runs/causal_lm")
    """Folder for the results; an existing one is kept, a number appended."""
    resume: pathlib.Path | None = None
    """Go on with the interrupted run in this folder, with its own settings."""
    evaluate: str | None = None
    """Do not train: the perplexity of this run's model on its held-out text,
    or on all of another --data; of several models, runs/causal_lm/smlp."""
    generate: tuple[str, ...] | None = None
    """Do not train: continue these texts, by the model of --from."""
    max_length: int | None = None
    """--generate: tokens of a text, the given ones included."""
    temperature: float = 1.0
    """--generate: the smaller, the closer to the most probable token."""
    top_k: int | None = None
    """--generate: draw from so many tokens (without this, --top-p and
    --temperature: take the most probable one)."""
    top_p: float | None = None
    """--generate: draw from the tokens that make up this probability."""
    zero_shot: tuple[str, ...] | None = None
    """Do not train: multiple choice by the model of --from: files with a JSON
    object a line (COPA, HellaSwag, PIQA, Winogrande, or prompt, choices and
    label), or glue:DIR/RTE and so on as clozes."""


# What can be asked for beside --evaluate, --generate and --zero-shot.
EVALUATE = (
    *("data", "validation_fraction", "separator", "feature", "data_dir"),
    *("batch_size", "window", "seed"),
)
GENERATE = ("from_", "max_length", "temperature", "top_k", "top_p", "seed")
ZERO_SHOT = ("from_",)


def sizes_of(model):
    """What a backbone takes of a `Model`, as a dictionary."""
    return {
        name: value
        for name, value in dataclasses.asdict(model).items()
        if name not in OTHERS
    }


def check(config):
    """Raises a ValueError for settings that are out of range."""
    check_seeds(config.seed)
    model = config.model
    check_ranges(
        model,
        positive=(
            *("sequence_length", "num_layers", "num_experts", "hidden_dim"),
            *("intermediate_dim", "attention_dim", "num_heads"),
            *("spatial_heads",),
            *("capacity_factor", "prefix_fraction"),
        ),
        not_negative=(
            *("num_sparse_blocks", "balance_loss_weight", "z_loss_weight"),
        ),
        below_one=("dropout_rate",),
    )
    check_ranges(config, positive=("window",))
    if config.window and config.window > model.sequence_length:
        raise ValueError(
            "The window must begin within a row. Received: "
            f"window={config.window}, sequence_length={model.sequence_length}"
        )
    check_tokenizer(config.text)
    if not model.models:
        raise ValueError("Name a model to train: --models smlp")
    if len(set(model.models)) < len(model.models):
        raise ValueError(
            "A model is named twice. "
            f"Received: --models {' '.join(model.models)}"
        )
    sparse = [name for name in model.models if name not in DENSE]
    if sparse and not model.num_sparse_blocks:
        raise ValueError(
            "Without sparse blocks there are no experts: train "
            f"{' or '.join(DENSE)}. Received: num_sparse_blocks=0, --models "
            f"{' '.join(sparse)}"
        )
    for name in ("max_length", "temperature", "top_k", "top_p"):
        if getattr(config, name) != getattr(Config, name):
            raise ValueError(
                f"--{name.replace('_', '-')} is for --generate and changes "
                f"nothing in a training. Received: {getattr(config, name)}"
            )
    if model.num_sparse_blocks > model.num_layers:
        raise ValueError(
            "There cannot be more sparse blocks than blocks. Received: "
            f"num_sparse_blocks={model.num_sparse_blocks}, "
            f"num_layers={model.num_layers}"
        )
    if model.from_ is not None:
        raise ValueError(
            "--from names a model to ask, with --generate or --zero-shot. "
            "(A run that was interrupted goes on with --resume.)"
        )


def resolve(training):
    """A `Training` in which every setting has a value.

    Raises:
        ValueError: If a setting is out of range.
    """
    return resolved(training, RECIPES)
