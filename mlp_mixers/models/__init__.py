"""Backbones and tasks: Functional Keras models made of the layers."""

from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.gmlp_image import GMLPBackbone
from mlp_mixers.models.gmlp_image import GMLPImageClassifier
from mlp_mixers.models.image_classifier import ImageClassifier
from mlp_mixers.models.mixer import MixerBackbone
from mlp_mixers.models.mixer import MixerImageClassifier
from mlp_mixers.models.resmlp import ResMLPBackbone
from mlp_mixers.models.resmlp import ResMLPImageClassifier

__all__ = [
    "Backbone",
    "GMLPBackbone",
    "GMLPImageClassifier",
    "ImageClassifier",
    "MixerBackbone",
    "MixerImageClassifier",
    "ResMLPBackbone",
    "ResMLPImageClassifier",
]
