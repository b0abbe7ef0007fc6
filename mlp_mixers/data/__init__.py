"""Data without a framework: arrays in, batches out, on every backend."""

from mlp_mixers.data.augmentation import Compose
from mlp_mixers.data.augmentation import RandomErasing
from mlp_mixers.data.augmentation import RandomFlip
from mlp_mixers.data.augmentation import RandomResizedCrop
from mlp_mixers.data.augmentation import RandomShift
from mlp_mixers.data.augmentation import shift_images
from mlp_mixers.data.batches import FollowEpochs
from mlp_mixers.data.batches import ImageBatches
from mlp_mixers.data.digits import load_digits
from mlp_mixers.data.image_files import ImageFiles
from mlp_mixers.data.image_files import read_image
from mlp_mixers.data.image_folder import find_broken
from mlp_mixers.data.image_folder import load_folder
from mlp_mixers.data.keras_cv import KerasCVRandAugment
from mlp_mixers.data.mixing import Mixing
from mlp_mixers.data.mixing import one_hot
from mlp_mixers.data.npz import load_npz
from mlp_mixers.data.policies import AutoAugment
from mlp_mixers.data.policies import RandAugment
from mlp_mixers.data.preprocessing import ImagePreprocessor
from mlp_mixers.data.sources import load_data
from mlp_mixers.data.split import Split
from mlp_mixers.data.tfds import load_tfds

__all__ = [
    "AutoAugment",
    "Compose",
    "FollowEpochs",
    "ImageBatches",
    "ImageFiles",
    "ImagePreprocessor",
    "KerasCVRandAugment",
    "Mixing",
    "RandAugment",
    "RandomErasing",
    "RandomFlip",
    "RandomResizedCrop",
    "RandomShift",
    "Split",
    "find_broken",
    "load_data",
    "load_digits",
    "load_folder",
    "load_npz",
    "load_tfds",
    "one_hot",
    "read_image",
    "shift_images",
]
