"""What can be asked of `recipes.finetune`, and the recipes by name.

A setting that is `None` is left to something else: to the recipe for how to
train, to the pretrained model or the preset for sizes, to the task's files for
what is in them.
"""

import dataclasses
import pathlib
from typing import Annotated
from typing import Literal

import tyro

from recipes.checks import check_ranges
from recipes.checks import check_seeds
from recipes.checks import dashed
from recipes.text_settings import Gate
from recipes.text_settings import TextTraining
from recipes.text_settings import check_tokenizer
from recipes.text_settings import resolved


@dataclasses.dataclass
class Model:
    """What to start from: a pretrained model, or random weights."""

    from_: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """A pretrained or finetuned model with its tokenizer: the folder of a run
    or of a preset."""
    freeze: bool = False
    """Train the head alone and leave the pretrained weights as they are."""
    model: Literal["gmlp", "amlp", "bert"] | None = None
    """Instead of --from: random weights. bert is KerasHub's, with as many
    parameters as the gMLP of --preset."""
    preset: str | None = None
    """Random weights: the sizes, gmlp_nano_en, amlp_base_en and so on."""
    num_layers: int | None = None
    """Random weights: number of blocks."""
    hidden_dim: int | None = None
    """Random weights: width of a token."""
    intermediate_dim: int | None = None
    """Random weights: width inside a block."""
    attention_dim: int | None = None
    """Random weights, gMLP: width of a tiny attention in every block."""
    num_heads: int | None = None
    """Random weights: spatial matrices of a gMLP's block; heads of bert."""
    gate: Gate | None = None
    """Random weights, gMLP: a gate of the paper's ablation."""
    toeplitz: bool | None = None
    """Random weights, gMLP: whether what passes between tokens depends on
    their distance."""
    mask_padding: bool | None = None
    """Random weights, gMLP: whether padding is kept out."""
    tokenizer: pathlib.Path | None = None
    """Random weights: a tokenizer.json, or a run's folder, instead of a
    tokenizer trained on the task's training texts."""
    vocabulary_size: int | None = None
    """Random weights: most tokens in that tokenizer (None: by the length of
    the texts, 512 to 32,000)."""


@dataclasses.dataclass
class Data:
    """Which task."""

    task: str | None = None
    """glue:DIR/SST-2 (the folder of a task of GLUE), tsv:TRAIN[,DEV[,TEST]],
    squad:DIR_OR_FILE[,DEV[,TEST]], tfds:NAME (glue/sst2, ...)."""
    sample: int | None = None
    """Train on so many examples, every class in proportion, drawn by --seed
    and the same for all seeds (None: on all)."""
    validation_fraction: float | None = None
    """Share of the training examples that validates, where there is no
    validation part (None: 0.1)."""
    glue_task: str | None = None
    """glue: the name of the task, where the folder has another."""
    text: str | None = None
    """tsv, tfds: the column with the text (None: sentence)."""
    text_pair: str | None = None
    """tsv, tfds: the column with the second text of a pair."""
    label: str | None = None
    """tsv, tfds: the column with the label (None: label)."""
    identifier: str | None = None
    """tsv: a column with names for the examples."""
    delimiter: str | None = None
    """tsv: the character between fields (None: a comma in files called .csv,
    else a tab)."""
    quotes: bool | None = None
    """tsv: whether quotes protect a field (None: in files called .csv)."""
    bad_lines: Literal["error", "skip"] | None = None
    """tsv: what to do with lines that have a wrong number of fields; skip
    leaves them out and counts them (None: error)."""
    regression: bool | None = None
    """tsv: whether labels are numbers to predict, not names of classes (None:
    they are names)."""
    class_names: tuple[str, ...] | None = None
    """tsv: the classes in the order wanted; f1 is that of the second. (None:
    in alphabetical order; with --evaluate, in that of the run.)"""
    metrics: tuple[str, ...] | None = None
    """tsv: accuracy, f1, matthews, pearson, spearman; the first one counts."""
    squad_version: Literal["1.1", "2.0"] | None = None
    """squad: which files, in a folder that holds both."""
    data_dir: str | None = None
    """tfds: where its data sets are prepared."""
    stride: int | None = None
    """squad: passage tokens from one window to the next (None: about half a
    window)."""
    max_answer_tokens: int | None = None
    """squad: the longest answer (None: 30)."""


@dataclasses.dataclass
class Training(TextTraining):
    """How to train (None: what the recipe says)."""

    recipe: Literal["small", "glue", "squad"] = "small"
    """small: the nano models on a CPU. glue and squad: the gMLP paper's,
    Table 9 (its warm-up of 1,000 steps as a share)."""
    epochs: int | None = None
    """Passes over the training examples."""
    batch_size: int | None = None
    """Examples in a step; of spans, windows."""
    learning_rate: float | None = None
    """Highest learning rate: linear warm-up, then linear decay to zero. The
    paper takes the best of 1e-5, 2e-5 and 3e-5 for its large models."""
    seeds: int | None = None
    """Train so many times, with the seeds from --seed on, and report the
    median and the spread."""
    max_length: int | None = None
    """Tokens to which longer inputs are cut; of spans, tokens in a window
    (None and no recipe's: what the model can read)."""
    dropout_rate: float | None = None
    """Dropout inside the model."""
    attention_dropout_rate: float | None = None
    """aMLP: dropout of the attention's weights."""
    head_dropout_rate: float | None = None
    """Dropout before the head."""


RECIPES = {
    "small": {
        "seeds": 1,
        "epochs": 5,
        "steps": None,
        "batch_size": 32,
        "learning_rate": 5e-4,
        "warmup_fraction": 0.1,
        "weight_decay": 0.01,
        "epsilon": 1e-6,
        "clip_norm": 1.0,
        "max_length": None,
        "dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "head_dropout_rate": 0.1,
    },
}
# Table 9 of the paper, and the median of five runs (Tables 5 and 6).
RECIPES["glue"] = {
    **RECIPES["small"],
    "seeds": 5,
    "learning_rate": 2e-5,
    "clip_norm": 0.0,
    "max_length": 128,
}
RECIPES["squad"] = {
    **RECIPES["glue"],
    "epochs": None,
    "steps": 8_000,
    "learning_rate": 5e-5,
    "warmup_fraction": 0.125,
    "max_length": 512,
}


@dataclasses.dataclass
class Config:
    """Finetune a text model for a task, go on with it, measure or ask it."""

    model: Model = dataclasses.field(default_factory=Model)
    data: Data = dataclasses.field(default_factory=Data)
    training: Training = dataclasses.field(default_factory=Training)
    seed: int = 0
    """The first seed: of new weights, order and dropout. Also of the sample
    and of what is held out, which are the same for all seeds."""
    keep: Literal["last", "best"] = "last"
    """Measure and save the weights of the last epoch, or of the one with the
    best first metric in validation, whose score is flattered by that."""
    out: pathlib.Path = pathlib.Path("runs/finetune")
    """Folder for the results; an existing one is kept, a number appended."""
    resume: pathlib.Path | None = None
    """Go on with the interrupted run in this folder, with its own settings."""
    evaluate: str | None = None
    """Do not train: measure this run's model on --task, by default its own.
    A table by class and a confusion matrix go into the run's folder, or into
    --out."""
    predict: tuple[str, ...] | None = None
    """Do not train: what the model of --from says about these texts; of spans,
    these questions."""
    predict_pair: tuple[str, ...] | None = None
    """The second texts to those of --predict; of spans, the passages."""
    predict_file: pathlib.Path | None = None
    """Do not train: what the model of --from says about the texts in this TSV
    or CSV file, in the columns --text and --text-pair. Written as a TSV file
    into the run's folder, or into --out."""


# What is asked of a model that is made with random weights.
RANDOM_ONLY = tuple(
    field.name
    for field in dataclasses.fields(Model)
    if field.name not in ("from_", "freeze")
)
# What can be asked for beside --evaluate, --predict and --predict-file.
EVALUATE = (
    *("task", "validation_fraction", "glue_task", "text", "text_pair"),
    *("label", "identifier", "delimiter", "quotes", "bad_lines"),
    *("regression", "class_names", "metrics", "squad_version", "data_dir"),
    *("stride", "max_answer_tokens", "batch_size", "out"),
)
PREDICT = (
    *("from_", "predict_pair", "stride", "max_answer_tokens", "batch_size"),
)
PREDICT_FILE = (
    *("from_", "text", "text_pair", "identifier", "delimiter", "quotes"),
    *("bad_lines", "stride", "max_answer_tokens", "batch_size", "out"),
)
# Tokens of the longest answer, where nothing is said.
ANSWER_TOKENS = 30
# Shortest input: <cls> a <sep> b <sep>.
SHORTEST = 5


def resolve(training):
    """A `Training` in which every setting has a value, but for `max_length`.

    Raises:
        ValueError: If a setting is out of range.
    """
    settings = resolved(training, RECIPES)
    check_ranges(
        settings,
        positive=("seeds",),
        below_one=(
            *("dropout_rate", "attention_dropout_rate", "head_dropout_rate"),
        ),
    )
    if settings.max_length is not None and settings.max_length < SHORTEST:
        raise ValueError(
            f"A pair of texts needs {SHORTEST} tokens at least, with <cls> "
            f"and two <sep>. Received: max_length={settings.max_length}"
        )
    return settings


def check(config):
    """Raises a ValueError for settings that do not go together."""
    model = config.model
    check_seeds(config.seed, resolve(config.training).seeds)
    check_data(config.data)
    check_ranges(
        model,
        positive=(
            *("num_layers", "hidden_dim", "intermediate_dim"),
            *("attention_dim", "num_heads"),
        ),
    )
    if config.predict_pair is not None:
        raise ValueError(
            "--predict-pair has the second texts to those of --predict. "
            "Received: --predict-pair without --predict"
        )
    if model.from_ is not None:
        for name in RANDOM_ONLY:
            if getattr(model, name) is not None:
                raise ValueError(
                    f"{model.from_} says itself which model it is, and which "
                    f"tokenizer it has: give --from without --{dashed(name)}."
                )
    elif model.freeze:
        raise ValueError(
            "--freeze trains the head alone, which needs a trained model "
            "below it: name one with --from."
        )
    elif model.model is None and model.preset is None:
        raise ValueError(
            "Finetuning starts from a pretrained model: --from runs/mlm. To "
            "start from random weights, name a model: --model gmlp, amlp or "
            "bert."
        )
    else:
        check_tokenizer(model)


def check_data(data):
    """Raises a ValueError for settings of a task that are out of range."""
    check_ranges(data, positive=("sample", "stride", "max_answer_tokens"))
