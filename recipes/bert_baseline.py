"""KerasHub's BERT in the place of a gMLP: the baseline of the text recipes.

Same inputs, same head, same presets; only the backbone is another one. It
needs `keras-nlp` (the name that KerasHub is installed under here), which
brings TensorFlow along; the model itself runs on every backend.
"""

import keras
from keras import ops

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.models import MaskedLM
from mlp_mixers.models import SpanPredictor
from mlp_mixers.models import TextClassifier
from mlp_mixers.models.backbone import Backbone


@keras.saving.register_keras_serializable(package="mlp_mixers")
class BertTextBackbone(Backbone):
    """KerasHub's `BertBackbone` with the inputs of `GMLPTextBackbone`.

    Args:
        vocabulary_size: Number of tokens in the vocabulary.
        sequence_length: The longest input.
        num_layers: Number of Transformer layers.
        hidden_dim: Width of a token.
        intermediate_dim: Width inside the feed-forward parts.
        num_heads: Heads of the attention.
        dropout_rate: Dropout everywhere that BERT has it.
        dtype: Dtype or policy of all layers.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Raises:
        ImportError: If KerasHub is not installed.
        ValueError: If a size is out of range.
    """

    def __init__(
        self,
        vocabulary_size,
        sequence_length,
        num_layers,
        hidden_dim,
        intermediate_dim,
        num_heads,
        dropout_rate=0.0,
        dtype=None,
        **kwargs,
    ):
        bert = _keras_hub().models.BertBackbone(
            vocabulary_size=positive_integer(
                vocabulary_size, "vocabulary_size"
            ),
            num_layers=positive_integer(num_layers, "num_layers"),
            num_heads=positive_integer(num_heads, "num_heads"),
            hidden_dim=positive_integer(hidden_dim, "hidden_dim"),
            intermediate_dim=positive_integer(
                intermediate_dim, "intermediate_dim"
            ),
            max_sequence_length=positive_integer(
                sequence_length, "sequence_length"
            ),
            dropout=drop_rate(dropout_rate, "dropout_rate"),
            dtype=dtype,
        )
        # Without the pooler, which nothing here reads.
        features = keras.Model(
            bert.input, bert.output["sequence_output"], name="bert"
        )
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        padding_mask = keras.Input((None,), dtype="int32", name="padding_mask")
        x = features(
            {
                "token_ids": token_ids,
                "segment_ids": ops.zeros_like(token_ids),
                "padding_mask": padding_mask,
            }
        )
        super().__init__(
            inputs={"token_ids": token_ids, "padding_mask": padding_mask},
            outputs=x,
            dtype=dtype,
            **kwargs,
        )
        self.features = features
        self.token_embedding = bert.token_embedding
        self.vocabulary_size = vocabulary_size
        self.sequence_length = sequence_length
        self.num_layers = num_layers
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate

    def get_config(self):
        config = super().get_config()
        for name in (
            *("vocabulary_size", "sequence_length", "num_layers"),
            *("hidden_dim", "intermediate_dim", "num_heads", "dropout_rate"),
        ):
            config[name] = getattr(self, name)
        return config


@keras.saving.register_keras_serializable(package="mlp_mixers")
class BertMaskedLM(MaskedLM):
    """`MaskedLM` on BERT: no transform before the tied output, as for gMLP."""

    backbone_cls = BertTextBackbone


@keras.saving.register_keras_serializable(package="mlp_mixers")
class BertTextClassifier(TextClassifier):
    """`TextClassifier` on BERT: a linear head on `<cls>`, as for gMLP."""

    backbone_cls = BertTextBackbone


@keras.saving.register_keras_serializable(package="mlp_mixers")
class BertSpanPredictor(SpanPredictor):
    """`SpanPredictor` on BERT."""

    backbone_cls = BertTextBackbone


def equal_intermediate_dim(
    parameters, vocabulary_size, sequence_length, num_layers, hidden_dim
):
    """The `intermediate_dim` with which BERT has so many parameters, nearly.

    Embeddings of tokens, positions and 2 segments, a norm; in a layer four
    projections d·d, two of d·f, their biases, two norms.

    Args:
        parameters: How many the backbone should have.
        vocabulary_size: V.
        sequence_length: n.
        num_layers: L.
        hidden_dim: d.

    Raises:
        ValueError: If the rest of the model has more already.
    """
    d = hidden_dim
    embeddings = (vocabulary_size + sequence_length + 2) * d + 2 * d
    layer = 4 * (d * d + d) + d + 4 * d  # without what has f in it
    left = parameters - embeddings - num_layers * layer
    width = round(left / (num_layers * (2 * d + 1)))
    if width < 1:
        raise ValueError(
            "A BERT with these sizes has more parameters than the model it "
            "should equal: give it fewer layers, or an `intermediate_dim`. "
            f"Received: num_layers={num_layers}, hidden_dim={hidden_dim}"
        )
    return width


def _keras_hub():
    try:
        import keras_hub
    except ImportError as error:
        raise ImportError(
            "The BERT baseline is KerasHub's: pip install keras-nlp "
            "(or `pip install -e '.[keras]'` from this folder)."
        ) from error
    return keras_hub
