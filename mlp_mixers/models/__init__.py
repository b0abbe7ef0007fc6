"""Backbones and tasks: Functional Keras models made of the layers."""

from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.causal_lm import CausalLM
from mlp_mixers.models.gmlp_image import GMLPBackbone
from mlp_mixers.models.gmlp_image import GMLPImageClassifier
from mlp_mixers.models.gmlp_text import GMLPMaskedLM
from mlp_mixers.models.gmlp_text import GMLPSpanPredictor
from mlp_mixers.models.gmlp_text import GMLPTextBackbone
from mlp_mixers.models.gmlp_text import GMLPTextClassifier
from mlp_mixers.models.image_classifier import ImageClassifier
from mlp_mixers.models.masked_lm import MaskedLM
from mlp_mixers.models.mixer import MixerBackbone
from mlp_mixers.models.mixer import MixerImageClassifier
from mlp_mixers.models.resmlp import ResMLPBackbone
from mlp_mixers.models.resmlp import ResMLPImageClassifier
from mlp_mixers.models.smlp_text import SMLPBackbone
from mlp_mixers.models.smlp_text import SMLPCausalLM
from mlp_mixers.models.span_predictor import SpanPredictor
from mlp_mixers.models.text_classifier import TextClassifier

__all__ = [
    "Backbone",
    "CausalLM",
    "GMLPBackbone",
    "GMLPImageClassifier",
    "GMLPMaskedLM",
    "GMLPSpanPredictor",
    "GMLPTextBackbone",
    "GMLPTextClassifier",
    "ImageClassifier",
    "MaskedLM",
    "MixerBackbone",
    "MixerImageClassifier",
    "ResMLPBackbone",
    "ResMLPImageClassifier",
    "SMLPBackbone",
    "SMLPCausalLM",
    "SpanPredictor",
    "TextClassifier",
]
