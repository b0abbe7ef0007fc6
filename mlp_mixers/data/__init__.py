"""Data without a framework: arrays in, batches out, on every backend."""

from mlp_mixers.data.augmentation import Compose
from mlp_mixers.data.augmentation import RandomErasing
from mlp_mixers.data.augmentation import RandomFlip
from mlp_mixers.data.augmentation import RandomResizedCrop
from mlp_mixers.data.augmentation import RandomShift
from mlp_mixers.data.augmentation import shift_images
from mlp_mixers.data.batches import ImageBatches
from mlp_mixers.data.choices import MultipleChoice
from mlp_mixers.data.choices import cloze_of
from mlp_mixers.data.choices import load_choices
from mlp_mixers.data.digits import load_digits
from mlp_mixers.data.epochs import FollowEpochs
from mlp_mixers.data.glue import load_glue
from mlp_mixers.data.image_files import ImageFiles
from mlp_mixers.data.image_files import read_image
from mlp_mixers.data.image_folder import find_broken
from mlp_mixers.data.image_folder import load_folder
from mlp_mixers.data.keras_cv import KerasCVRandAugment
from mlp_mixers.data.masked_batches import MaskedLMBatches
from mlp_mixers.data.masking import mask_tokens
from mlp_mixers.data.mixing import Mixing
from mlp_mixers.data.mixing import one_hot
from mlp_mixers.data.npz import load_npz
from mlp_mixers.data.packing import PackedText
from mlp_mixers.data.packing import pack_documents
from mlp_mixers.data.policies import AutoAugment
from mlp_mixers.data.policies import RandAugment
from mlp_mixers.data.preprocessing import ImagePreprocessor
from mlp_mixers.data.sources import load_data
from mlp_mixers.data.span_windows import SpanPredictions
from mlp_mixers.data.span_windows import SpanWindows
from mlp_mixers.data.span_windows import best_spans
from mlp_mixers.data.span_windows import span_windows
from mlp_mixers.data.split import Split
from mlp_mixers.data.squad import load_squad
from mlp_mixers.data.streams import CausalLMBatches
from mlp_mixers.data.streams import TextStream
from mlp_mixers.data.streams import stream_documents
from mlp_mixers.data.task_data import Examples
from mlp_mixers.data.task_data import TaskData
from mlp_mixers.data.task_sources import load_task
from mlp_mixers.data.text_encoder import TextEncoder
from mlp_mixers.data.text_sources import TextSplit
from mlp_mixers.data.text_sources import load_text
from mlp_mixers.data.tfds import load_tfds
from mlp_mixers.data.tokenizer import Tokenizer
from mlp_mixers.data.tokenizer import suggested_vocabulary_size
from mlp_mixers.data.tsv import load_tsv

__all__ = [
    "AutoAugment",
    "CausalLMBatches",
    "Compose",
    "Examples",
    "FollowEpochs",
    "ImageBatches",
    "ImageFiles",
    "ImagePreprocessor",
    "KerasCVRandAugment",
    "MaskedLMBatches",
    "Mixing",
    "MultipleChoice",
    "PackedText",
    "RandAugment",
    "RandomErasing",
    "RandomFlip",
    "RandomResizedCrop",
    "RandomShift",
    "SpanPredictions",
    "SpanWindows",
    "Split",
    "TaskData",
    "TextEncoder",
    "TextSplit",
    "TextStream",
    "Tokenizer",
    "best_spans",
    "cloze_of",
    "find_broken",
    "load_choices",
    "load_data",
    "load_digits",
    "load_folder",
    "load_glue",
    "load_npz",
    "load_squad",
    "load_task",
    "load_text",
    "load_tfds",
    "load_tsv",
    "mask_tokens",
    "one_hot",
    "pack_documents",
    "read_image",
    "shift_images",
    "span_windows",
    "stream_documents",
    "suggested_vocabulary_size",
]
