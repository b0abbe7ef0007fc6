"""gMLP for text, and aMLP for text with `attention_dim`."""

import keras
from keras import initializers

from mlp_mixers.arguments import boolean
from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.gmlp_blocks import block_config
from mlp_mixers.models.gmlp_blocks import block_maker
from mlp_mixers.models.masked_lm import MaskedLM
from mlp_mixers.models.span_predictor import SpanPredictor
from mlp_mixers.models.text_classifier import TextClassifier


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GMLPTextBackbone(Backbone):
    """gMLP text backbone: an embedding, gMLP blocks, a normalisation.

    No position embedding: the spatial weights know every token by its place.
    They are Toeplitz by default, as in the paper's language models, so what
    passes between two tokens depends on their distance.

    **Padding** reaches no real token by default. The paper's models have no
    mask and learn to ignore `<pad>`; `mask_padding=False` does the same.

    Args:
        vocabulary_size: Number of tokens in the vocabulary, V.
        sequence_length: The longest input, n. Shorter ones are welcome.
        num_layers: Number of blocks, L.
        hidden_dim: Width of a token between blocks, d.
        intermediate_dim: Width inside a block before the split, e.
        attention_dim: Width of a tiny attention in every block (aMLP), `None`
            for none.
        toeplitz: See `SpatialGatingUnit`.
        causal: Whether tokens see earlier ones only. Not in the paper.
        mask_padding: Whether padded tokens are kept out of everything.
        gate: See `SpatialGatingUnit`.
        num_heads: See `SpatialGatingUnit`.
        activation: Of the expansion in each block.
        epsilon: Of the normalisations of blocks and output.
        gate_epsilon: Of the normalisation in the gating units.
        dropout_rate: Dropout behind the embedding and of every block's
            branch. The paper: 0.1 for finetuning, 0 for pretraining.
        attention_dropout_rate: Dropout of the attention's weights; likewise.
        kernel_initializer: Of the spatial matrices, see `SpatialGatingUnit`.
        bias_initializer: Of the spatial biases, see `SpatialGatingUnit`.
        embeddings_initializer: Of the embedding, which is also the output
            projection of a masked language model. The default is BERT's.
        dtype: Dtype or policy of all layers.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Inputs and outputs:
        A dictionary of `token_ids` and `padding_mask` (1 at real tokens),
        both `(batch, n)`, to features `(batch, n, hidden_dim)`. Those of
        padded tokens have no meaning.

    Raises:
        ValueError: If a size is out of range or an input is too long.

    Example:

    ```python
    backbone = GMLPTextBackbone(
        vocabulary_size=32000,
        sequence_length=512,
        num_layers=36,
        hidden_dim=512,
        intermediate_dim=3072,
        attention_dim=64,
    )  # aMLP-base
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 2 and
        4; sizes in Table 5; Toeplitz in App. C.
    """

    def __init__(
        self,
        vocabulary_size,
        sequence_length,
        num_layers,
        hidden_dim,
        intermediate_dim,
        attention_dim=None,
        toeplitz=True,
        causal=False,
        mask_padding=True,
        gate="split",
        num_heads=1,
        activation="gelu",
        epsilon=1e-6,
        gate_epsilon=1e-5,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        kernel_initializer=None,
        bias_initializer=None,
        embeddings_initializer=None,
        dtype=None,
        **kwargs,
    ):
        vocabulary_size = positive_integer(vocabulary_size, "vocabulary_size")
        sequence_length = positive_integer(sequence_length, "sequence_length")
        num_layers = positive_integer(num_layers, "num_layers")
        hidden_dim = positive_integer(hidden_dim, "hidden_dim")
        mask_padding = boolean(mask_padding, "mask_padding")
        dropout_rate = drop_rate(dropout_rate, "dropout_rate")

        # === Layers ===
        token_embedding = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=initializers.get(embeddings_initializer)
            or initializers.TruncatedNormal(stddev=0.02),
            # Said aloud: inside of a model, Keras would take float32.
            reverse_dtype=keras.dtype_policies.get(dtype).compute_dtype,
            dtype=dtype,
            name="token_embedding",
        )
        embedding_dropout = keras.layers.Dropout(
            dropout_rate, dtype=dtype, name="embedding_dropout"
        )
        make_block = block_maker(
            kernel_initializer,
            bias_initializer,
            intermediate_dim=intermediate_dim,
            attention_dim=attention_dim,
            sequence_length=sequence_length,
            toeplitz=toeplitz,
            causal=causal,
            gate=gate,
            num_heads=num_heads,
            activation=activation,
            epsilon=epsilon,
            gate_epsilon=gate_epsilon,
            dropout_rate=dropout_rate,
            attention_dropout_rate=attention_dropout_rate,
            dtype=dtype,
        )
        blocks = [make_block(0.0, f"block_{i}") for i in range(num_layers)]
        output_norm = keras.layers.LayerNormalization(
            epsilon=epsilon, dtype=dtype, name="output_norm"
        )

        # === Functional Model ===
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        padding_mask = keras.Input((None,), dtype="int32", name="padding_mask")
        mask = padding_mask if mask_padding else None
        x = embedding_dropout(token_embedding(token_ids))  # (b, n, d)
        for block in blocks:
            x = block(x, mask=mask)
        super().__init__(
            inputs={"token_ids": token_ids, "padding_mask": padding_mask},
            outputs=output_norm(x),
            dtype=dtype,
            **kwargs,
        )

        # === Config ===
        block = blocks[0]
        self.token_embedding = token_embedding
        self.embedding_dropout = embedding_dropout
        self.blocks = blocks
        self.output_norm = output_norm
        self.vocabulary_size = vocabulary_size
        self.sequence_length = sequence_length
        self.num_layers = num_layers
        self.hidden_dim = hidden_dim
        self.intermediate_dim = block.intermediate_dim
        self.attention_dim = block.attention_dim
        self.toeplitz = block.gating_unit.toeplitz
        self.causal = block.gating_unit.causal
        self.mask_padding = mask_padding
        self.gate = gate
        self.num_heads = block.gating_unit.num_heads
        self.epsilon = block.epsilon
        self.gate_epsilon = block.gating_unit.epsilon
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = block.attention_dropout_rate

    def get_config(self):
        config = super().get_config()
        config.update(block_config(self.blocks[0]))
        config.update(
            {
                "vocabulary_size": self.vocabulary_size,
                "sequence_length": self.sequence_length,
                "num_layers": self.num_layers,
                "hidden_dim": self.hidden_dim,
                "causal": self.causal,
                "mask_padding": self.mask_padding,
                "dropout_rate": self.dropout_rate,
                "attention_dropout_rate": self.attention_dropout_rate,
                "embeddings_initializer": initializers.serialize(
                    self.token_embedding.embeddings_initializer
                ),
            }
        )
        return config


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GMLPMaskedLM(MaskedLM):
    """gMLP that fills in masked tokens, as it is pretrained.

    The logits come from the embedding itself (tied weights) at the masked
    positions alone; there is no other layer and no bias, as the paper's
    parameter counts say.

    Args:
        backbone: A `GMLPTextBackbone`.
        tokenizer: A `mlp_mixers.data.Tokenizer`, for text as input.
        dtype: Of the head; the backbone's own if `None`.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Inputs and outputs:
        A dictionary of `token_ids`, `padding_mask`, both `(batch, n)`, and
        `mask_positions`, `(batch, p)`, to logits `(batch, p, V)`.

    Raises:
        ValueError: If `backbone` is of another class, or the tokenizer's
            vocabulary is larger than the backbone's.

    Example:

    ```python
    model = GMLPMaskedLM.from_preset("runs/mlm/preset")
    model.fill_mask("The capital of France is <mask>.")
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 4.
    """

    backbone_cls = GMLPTextBackbone


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GMLPTextClassifier(TextClassifier):
    """gMLP that classifies texts, or pairs of them.

    A linear head on the last features of `<cls>`, the first token.

    Args:
        backbone: A `GMLPTextBackbone`.
        num_classes: Number of classes; 1 for a number (regression).
        dropout_rate: Dropout before the head.
        activation: Activation of the head; `None` returns logits.
        tokenizer: A `mlp_mixers.data.Tokenizer`, for text as input.
        class_names: List of `num_classes` different strings, the first that
            of class 0, for `classify`; `None` if they have none.
        dtype: Of the head; the backbone's own if `None`.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Inputs and outputs:
        A dictionary of `token_ids` and `padding_mask`, both `(batch, n)`, to
        logits `(batch, num_classes)`.

    Raises:
        ValueError: If `backbone` is of another class, `num_classes` is not
            positive, the names are not as many different strings, or the
            tokenizer's vocabulary is too large.

    Example:

    ```python
    model = GMLPTextClassifier.from_preset("runs/mlm/preset", num_classes=2)
    model.compile()
    model.fit(["A fine film.", "A waste of time."], [1, 0])
    model.fit((["A dog barks."], ["There is a dog."]), [1])  # pairs
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 4.
    """

    backbone_cls = GMLPTextBackbone


@keras.saving.register_keras_serializable(package="mlp_mixers")
class GMLPSpanPredictor(SpanPredictor):
    """gMLP that marks the answer to a question in a text, as SQuAD asks.

    Args:
        backbone: A `GMLPTextBackbone`.
        dropout_rate: Dropout before the head.
        tokenizer: A `mlp_mixers.data.Tokenizer`, for text as input.
        dtype: Of the head; the backbone's own if `None`.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Inputs and outputs:
        A dictionary of `token_ids` and `padding_mask`, both `(batch, n)`, to
        logits `(batch, 2, n)`: how well each token begins the answer, and
        how well it ends it. The first token stands for "no answer".

    Raises:
        ValueError: If `backbone` is of another class, or the tokenizer's
            vocabulary is too large.

    Example:

    ```python
    model = GMLPSpanPredictor.from_preset("runs/finetune/preset")
    model.predict((["Who wrote it?"], ["It was written by Ada Lovelace."]))
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 4.4,
        SQuAD.
    """

    backbone_cls = GMLPTextBackbone
