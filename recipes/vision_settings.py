"""What can be asked of `recipes.vision`, and the recipes by name.

A setting that is `None` is left to something else: to the recipe for how to
train, to the preset for sizes, to the data or to the model for the image.
"""

import dataclasses
import pathlib
from typing import Annotated
from typing import Literal

import tyro

from mlp_mixers.data.split import WAYS
from recipes.checks import check_ranges
from recipes.checks import filled_in

Gate = Literal["linear", "additive", "multiplicative", "split"]
Policy = Literal["none", "autoaugment", "randaugment", "keras_cv"]


@dataclasses.dataclass
class Model:
    """A preset or trained weights, and what to change (None: nothing)."""

    preset: str | None = None
    """gmlp_digits_nano for the digits, gmlp_cifar_nano for other data; or
    amlp_..., mixer_..., resmlp_..., gmlp_small_224, as in the README."""
    from_: Annotated[str | None, tyro.conf.arg(name="from")] = None
    """Start from trained weights: a run's folder, a preset's folder, a .keras
    file, a preset with public weights (gmlp_small_224), or a .safetensors,
    .npz or .pth file with timm's names for the model of --preset."""
    freeze: bool = False
    """Train the head alone."""
    image_size: tuple[int, int] | None = None
    """Height and width that images are brought to. None: those of the data
    if all its images are alike, or else of the preset; with --from, --evaluate
    and --predict those that the model was trained on. Trained spatial weights
    are resized to fit."""
    patch_size: int | None = None
    """Side of a patch in pixels."""
    num_layers: int | None = None
    """Number of blocks."""
    hidden_dim: int | None = None
    """Width of a token."""
    intermediate_dim: int | None = None
    """Width inside a block (gMLP: before the gate halves it)."""
    token_intermediate_dim: int | None = None
    """Mixer: width of the MLP over tokens."""
    attention_dim: int | None = None
    """gMLP: width of a tiny attention in every block (aMLP)."""
    gate: Gate | None = None
    """gMLP: a gate of the paper's ablation; split is the paper's choice."""
    num_heads: int | None = None
    """gMLP: number of spatial matrices in a block."""
    drop_path_rate: float | None = None
    """Probability of dropping a block for an example (stochastic depth)."""
    dropout_rate: float | None = None
    """Dropout before the head."""


@dataclasses.dataclass
class Data:
    """Which images."""

    data: str | None = None
    """digits (1,797 handwritten 8x8 digits, inside scikit-learn; the default),
    npz:FILE (arrays images and labels), folder:DIR (a folder for each class,
    or train/ and val/ with such folders), tfds:NAME (tensorflow_datasets)."""
    split: Literal[WAYS] = "stratified"
    """How parts that the data do not have are cut: every class in proportion,
    or, of an npz file, the first rows, the next and the last."""
    channels: Literal[1, 3] | None = None
    """Grey or RGB, for folder: and tfds: (None: RGB, or the model's)."""
    check: Literal["full", "headers"] = "full"
    """folder: decode every file once before training and leave out what is
    broken, or look at the headers alone."""
    data_dir: str | None = None
    """tfds: where its data sets are prepared."""


@dataclasses.dataclass
class Training:
    """How to train (None: what the recipe says)."""

    recipe: Literal["small", "cifar", "imagenet"] = "small"
    """small: a CPU in a minute. cifar: small colour pictures. imagenet: the
    gMLP paper's, Appendix A.1 (its warm-up of 10,000 steps as a share)."""
    epochs: int | None = None
    """Passes over the training images."""
    batch_size: int | None = None
    """Images in a step."""
    learning_rate: float | None = None
    """Highest learning rate: linear warm-up, then a cosine to zero."""
    warmup_fraction: float | None = None
    """Part of the training that warms up."""
    weight_decay: float | None = None
    """Of AdamW; biases and normalisations are spared."""
    epsilon: float | None = None
    """Of AdamW."""
    clip_norm: float | None = None
    """Largest global norm of the gradients; 0 for no limit."""
    label_smoothing: float | None = None
    """Share of a label that is spread over all classes."""
    max_shift: int | None = None
    """Move training images by up to so many pixels."""
    flip: bool | None = None
    """Mirror training images left and right, one in two."""
    crop: bool | None = None
    """Train on random parts of the images, 8% to 100% of the area."""
    policy: Policy | None = None
    """Operations on colour and geometry; keras_cv is KerasCV's RandAugment,
    which needs TensorFlow beside any backend."""
    erase: float | None = None
    """Probability of covering a random rectangle with noise."""
    mixup: float | None = None
    """Mix images in pairs, with this alpha; 0 for not."""
    cutmix: float | None = None
    """Paste rectangles between images, with this alpha; 0 for not."""
    cutmix_rate: float | None = None
    """Share of cutmix, where there are both."""
    ema: float | None = None
    """Evaluate and save a moving average of the weights with this momentum,
    0.9999 for instance; 0 for none."""


# How each recipe trains. `imagenet` is Table 7 of the paper; it gives the
# warm-up as 10,000 of about 93,800 steps.
RECIPES = {
    "small": {
        "epochs": 60,
        "batch_size": 32,
        "learning_rate": 2e-3,
        "warmup_fraction": 0.05,
        "weight_decay": 0.05,
        "epsilon": 1e-7,
        "clip_norm": 1.0,
        "label_smoothing": 0.0,
        "max_shift": 1,
        "flip": False,
        "crop": False,
        "policy": "none",
        "erase": 0.0,
        "mixup": 0.0,
        "cutmix": 0.0,
        "cutmix_rate": 0.5,
        "ema": 0.0,
    },
}
RECIPES["cifar"] = {
    **RECIPES["small"],
    "batch_size": 64,
    "learning_rate": 1e-3,
    "label_smoothing": 0.1,
    "max_shift": 4,
    "flip": True,
}
RECIPES["imagenet"] = {
    **RECIPES["small"],
    "epochs": 300,
    "batch_size": 4096,
    "learning_rate": 1e-3,
    "warmup_fraction": 0.1066,
    "epsilon": 1e-6,
    "label_smoothing": 0.1,
    "max_shift": 0,
    "flip": True,
    "crop": True,
    "policy": "autoaugment",
    "mixup": 0.8,
    "cutmix": 1.0,
}


@dataclasses.dataclass
class Config:
    """Train an image classifier, go on with it, evaluate it or use it."""

    model: Model = dataclasses.field(default_factory=Model)
    data: Data = dataclasses.field(default_factory=Data)
    training: Training = dataclasses.field(default_factory=Training)
    seed: int = 0
    """Of initial weights, order and augmentation, and of how data are cut."""
    keep: Literal["last", "best"] = "last"
    """Save the weights of the last epoch, or of the best one in validation."""
    workers: int | None = None
    """Threads that make batches ahead (None: two where images are decoded or
    a policy is applied, one otherwise)."""
    out: pathlib.Path = pathlib.Path("runs/vision")
    """Folder for the results; an existing one is kept, a number appended."""
    resume: pathlib.Path | None = None
    """Go on with the interrupted run in this folder, with its own settings."""
    evaluate: str | None = None
    """Do not train: evaluate this model (as in --from) on the test images of
    --data, by default the data that it was trained on."""
    predict: tuple[pathlib.Path, ...] | None = None
    """Do not train: say what these image files (or the images in these
    folders) show, by the model of --from."""


def resolve(training):
    """A `Training` in which every setting has a value.

    Raises:
        ValueError: If a setting is out of range.
    """
    resolved = Training(**filled_in(training, RECIPES))
    check_ranges(
        resolved,
        positive=("epochs", "batch_size", "learning_rate", "epsilon"),
        not_negative=(
            *("weight_decay", "clip_norm", "max_shift", "mixup", "cutmix"),
        ),
        below_one=("warmup_fraction", "label_smoothing", "ema"),
        share=("erase", "cutmix_rate"),
    )
    return resolved
