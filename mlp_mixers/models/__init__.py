"""Backbones and tasks: Functional Keras models made of the layers."""

from mlp_mixers.models.base import Backbone
from mlp_mixers.models.base import ImageClassifier
from mlp_mixers.models.gmlp_image import GMLPBackbone
from mlp_mixers.models.gmlp_image import GMLPImageClassifier

__all__ = [
    "Backbone",
    "GMLPBackbone",
    "GMLPImageClassifier",
    "ImageClassifier",
]
