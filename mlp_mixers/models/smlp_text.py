"""Sparse all-MLP for text, the dense gMLP and the Transformers beside it."""

import keras
from keras import initializers

from mlp_mixers.arguments import drop_rate
from mlp_mixers.arguments import positive_integer
from mlp_mixers.layers.blocks import GMLPBlock
from mlp_mixers.layers.get_router import get_router
from mlp_mixers.layers.position_embedding import PositionEmbedding
from mlp_mixers.layers.sparse_block import SMLPBlock
from mlp_mixers.layers.token_experts import SparseTokenExperts
from mlp_mixers.layers.transformer_block import TransformerBlock
from mlp_mixers.models.backbone import Backbone
from mlp_mixers.models.causal_lm import CausalLM

MIXINGS = ("spatial", "attention")


def sparse_positions(num_dense_blocks, num_sparse_blocks):
    """Which blocks of the stack are sparse, as the paper spreads them.

        ⌊i · (N₁ + N₂) / (N₂ + 1)⌋   for i = 1, ..., N₂

    read as indices from 0 in the final stack: read as "after so many dense
    blocks", the last of them would come after more than there are.

    Args:
        num_dense_blocks: N₁.
        num_sparse_blocks: N₂.

    Returns:
        Tuple of integers.

    Reference:
        [Efficient Language Modeling with Sparse all-MLP](
        https://arxiv.org/abs/2203.06850), Sec. 3.
    """
    total = num_dense_blocks + num_sparse_blocks
    return tuple(
        i * total // (num_sparse_blocks + 1)
        for i in range(1, num_sparse_blocks + 1)
    )


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SMLPBackbone(Backbone):
    """Causal text backbone of dense and sparse blocks.

    An embedding, N₁ dense blocks with N₂ sparse ones among them, and a
    normalisation. Every token sees itself and earlier ones only. With

    - `mixing="spatial"`: dense blocks are gMLP's, sparse ones `SMLPBlock`s:
      sparse all-MLP. With `num_sparse_blocks=0` it is a causal gMLP.
    - `mixing="attention"`: dense blocks are a Transformer's, and sparse ones
      have token experts in place of the feed-forward part. With
      `router="switch"`, `"top_two"`, `"base"` or `"hash"` these are the
      Switch Transformer, GShard, BASE and Hash layers that the paper compares
      with. Positions are learned.

    Args:
        vocabulary_size: Number of tokens in the vocabulary, V.
        sequence_length: The longest input, n. Shorter ones are welcome.
        num_dense_blocks: N₁.
        num_sparse_blocks: N₂.
        hidden_dim: Width of a token between blocks, d.
        intermediate_dim: Width inside a block: before the split in gMLP's, of
            the feed-forward part in a Transformer's.
        num_experts: Number of experts, E, in each sparse block.
        routing: Of the feature experts, see `SparseFeatureExperts`.
        router: Of the token experts, see `SparseTokenExperts`.
        mixing: See above.
        attention_dim: Spatial mixing: width of a tiny attention in every
            block (aMLP), `None` for none.
        num_heads: Attention: heads of a block, `None` for one per 64
            channels. Spatial: spatial matrices of a dense block, `None` for
            one.
        token_intermediate_dim: Width inside a token expert;
            `intermediate_dim` if `None`.
        capacity_factor: See `SparseTokenExperts`.
        prefix_fraction: See `SparseFeatureExperts`.
        short_prompt: See `SparseFeatureExperts`.
        balance_loss_weight: Of feature experts, see `SparseFeatureExperts`.
            Token experts have theirs in their router.
        sparse_blocks: Indices of the sparse blocks in the stack;
            `sparse_positions` of the paper if `None`.
        norm_placement: `"pre"` or `"post"`, of sparse blocks and of all of a
            Transformer's.
        toeplitz: Whether spatial weights depend on the distance only. The
            paper does not say; its counts of parameters are those of dense
            matrices.
        activation: In all blocks.
        epsilon: Of the normalisations of blocks and output.
        gate_epsilon: Of the normalisation in the gating units.
        dropout_rate: Dropout behind the embedding and of every branch.
        attention_dropout_rate: Dropout of the weights of attention.
        kernel_initializer: Of the spatial matrices.
        bias_initializer: Of the spatial biases.
        embeddings_initializer: Of the embedding, which is also the output
            projection of a language model.
        dtype: Dtype or policy of all layers.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Inputs and outputs:
        A dictionary of `token_ids` and `padding_mask` (1 at real tokens),
        both `(batch, n)` and padded on the right, to features
        `(batch, n, hidden_dim)`. Those of padded tokens have no meaning.

    Raises:
        ValueError: If a size is out of range or an input is too long.

    Example:

    ```python
    backbone = SMLPBackbone(
        vocabulary_size=32000,
        sequence_length=512,
        num_dense_blocks=4,
        num_sparse_blocks=2,
        hidden_dim=512,
        intermediate_dim=2048,
        num_experts=8,
    )
    ```

    Reference:
        [Efficient Language Modeling with Sparse all-MLP](
        https://arxiv.org/abs/2203.06850), Sec. 3 and 4.
    """

    def __init__(
        self,
        vocabulary_size,
        sequence_length,
        num_dense_blocks,
        num_sparse_blocks,
        hidden_dim,
        intermediate_dim,
        num_experts=None,
        routing="deterministic",
        router="base",
        mixing="spatial",
        attention_dim=None,
        num_heads=None,
        token_intermediate_dim=None,
        capacity_factor=1.25,
        prefix_fraction=0.2,
        short_prompt=None,
        balance_loss_weight=0.01,
        sparse_blocks=None,
        norm_placement="pre",
        toeplitz=False,
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
        hidden_dim = positive_integer(hidden_dim, "hidden_dim")
        dropout_rate = drop_rate(dropout_rate, "dropout_rate")
        num_blocks = _count_blocks(num_dense_blocks, num_sparse_blocks)
        if mixing not in MIXINGS:
            raise ValueError(
                f"`mixing` must be one of {MIXINGS}. "
                f"Received: mixing={mixing!r}"
            )
        if mixing == "attention" and attention_dim is not None:
            raise ValueError(
                "A tiny attention joins spatial gates: leave `attention_dim` "
                "to `mixing='spatial'`. "
                f"Received: attention_dim={attention_dim}"
            )
        if num_sparse_blocks and num_experts is None:
            raise ValueError(
                "Sparse blocks have experts: pass `num_experts`. "
                f"Received: num_sparse_blocks={num_sparse_blocks}, "
                "num_experts=None"
            )
        if num_sparse_blocks:
            router = get_router(router, num_experts, vocabulary_size)
        if sparse_blocks is None:
            places = sparse_positions(num_dense_blocks, num_sparse_blocks)
        else:
            places = _check_places(sparse_blocks, num_blocks, num_sparse_blocks)

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
        # The output projection gets features that carry Keras's own mask; it
        # makes nothing of it, and need not warn of that.
        token_embedding.supports_masking = True
        position_embedding = None
        if mixing == "attention":
            position_embedding = PositionEmbedding(
                sequence_length, dtype=dtype, name="position_embedding"
            )
        embedding_dropout = keras.layers.Dropout(
            dropout_rate, dtype=dtype, name="embedding_dropout"
        )
        common = {
            "activation": activation,
            "epsilon": epsilon,
            "dropout_rate": dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "causal": True,
            "dtype": dtype,
        }
        experts = {
            "num_experts": num_experts,
            "router": router,
            "capacity_factor": capacity_factor,
        }
        spatial = {
            "intermediate_dim": intermediate_dim,
            "attention_dim": attention_dim,
            "sequence_length": sequence_length,
            "toeplitz": toeplitz,
            "gate_epsilon": gate_epsilon,
        }
        first = {
            "kernel_initializer": kernel_initializer,
            "bias_initializer": bias_initializer,
        }
        heads = num_heads
        if heads is None:
            heads = max(1, hidden_dim // 64) if mixing == "attention" else 1

        def make_block(index):
            """Block number `index` of the stack."""
            name, is_sparse = f"block_{index}", index in places
            draws = {k: _clone(v) for k, v in first.items()}
            if mixing == "spatial" and not is_sparse:
                return GMLPBlock(
                    num_heads=heads, name=name, **spatial, **common, **draws
                )
            if mixing == "spatial":
                return SMLPBlock(
                    token_intermediate_dim=token_intermediate_dim,
                    routing=routing,
                    prefix_fraction=prefix_fraction,
                    short_prompt=short_prompt,
                    balance_loss_weight=balance_loss_weight,
                    norm_placement=norm_placement,
                    name=name,
                    **experts,
                    **spatial,
                    **common,
                    **draws,
                )
            feed_forward = "dense"
            if is_sparse:
                feed_forward = SparseTokenExperts(
                    intermediate_dim=token_intermediate_dim or intermediate_dim,
                    activation=activation,
                    **experts,
                )
            return TransformerBlock(
                intermediate_dim,
                heads,
                feed_forward=feed_forward,
                norm_placement=norm_placement,
                name=name,
                **common,
            )

        blocks = [make_block(i) for i in range(num_blocks)]
        output_norm = keras.layers.LayerNormalization(
            epsilon=epsilon, dtype=dtype, name="output_norm"
        )

        # === Functional Model ===
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        padding_mask = keras.Input((None,), dtype="int32", name="padding_mask")
        x = token_embedding(token_ids)  # (b, n, d)
        if position_embedding is not None:
            x = position_embedding(x)
        x = embedding_dropout(x)
        for block in blocks:
            ids = _token_ids_for(block, token_ids)
            x = block(x, mask=padding_mask, **ids)
        super().__init__(
            inputs={"token_ids": token_ids, "padding_mask": padding_mask},
            outputs=output_norm(x),
            dtype=dtype,
            **kwargs,
        )

        # === Config ===
        self.token_embedding = token_embedding
        self.position_embedding = position_embedding
        self.embedding_dropout = embedding_dropout
        self.blocks = blocks
        self.output_norm = output_norm
        self.vocabulary_size = vocabulary_size
        self.sequence_length = sequence_length
        self.num_dense_blocks = num_dense_blocks
        self.num_sparse_blocks = num_sparse_blocks
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.num_experts = num_experts
        self.routing = routing
        self.router = router
        self.mixing = mixing
        self.attention_dim = attention_dim
        self.num_heads = num_heads
        self.token_intermediate_dim = token_intermediate_dim
        self.capacity_factor = capacity_factor
        self.prefix_fraction = prefix_fraction
        self.short_prompt = short_prompt
        self.balance_loss_weight = balance_loss_weight
        self.sparse_blocks = places
        self.norm_placement = norm_placement
        self.toeplitz = toeplitz
        self.activation = activation
        self.epsilon = epsilon
        self.gate_epsilon = gate_epsilon
        self.dropout_rate = dropout_rate
        self.attention_dropout_rate = attention_dropout_rate
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)

    @property
    def prefix_length(self):
        """P of partial routing: how many tokens choose the route; else 0."""
        sparse = [self.blocks[i] for i in self.sparse_blocks]
        return max(
            (getattr(block, "prefix_length", 0) for block in sparse), default=0
        )

    @property
    def sees_future(self):
        """Whether a route needs tokens that come later, in inference too."""
        return bool(self.what_cheats)

    @property
    def what_cheats(self):
        """The argument that makes a route see the future, or ""."""
        blocks = [self.blocks[i] for i in self.sparse_blocks]
        of_features = any(isinstance(b, SMLPBlock) for b in blocks)
        if of_features and self.routing == "leaky":
            return "routing='leaky'"
        if blocks and not self.router.causal_in_inference:
            name = type(self.router).__name__
            return f"router={name} with causal_in_inference=False"
        return ""

    def make_cache(self, batch, length):
        """Empty caches of all blocks, see `SpatialGatingUnit.make_cache`."""
        return [block.make_cache(batch, length) for block in self.blocks]

    def prefill(self, token_ids, padding_mask=None):
        """The call, in inference, and the caches that continue it.

        Args:
            token_ids: Integers `(batch, n)`, padded on the right.
            padding_mask: `(batch, n)`, 1 at real tokens; all are if `None`.

        Returns:
            `(features, caches)`: `(batch, n, hidden_dim)`, and a list with a
            cache of length n for each block.
        """
        x = self.token_embedding(token_ids)
        if self.position_embedding is not None:
            x = self.position_embedding(x)
        caches = []
        for block in self.blocks:
            ids = _token_ids_for(block, token_ids)
            x, cache = block.prefill(x, mask=padding_mask, **ids)
            caches.append(cache)
        return self.output_norm(x), caches

    def step(self, token_ids, caches, positions):
        """The features of one new token an example.

        Args:
            token_ids: Integers `(batch, 1)`.
            caches: From `make_cache`, `prefill` or the step before.
            positions: Integers `(batch,)`, the place of each new token.

        Returns:
            `(features, caches)`: `(batch, 1, hidden_dim)`, and the caches
            with the new token in them.
        """
        x = self.token_embedding(token_ids)
        if self.position_embedding is not None:
            x = self.position_embedding(x, positions)
        new = []
        for block, cache in zip(self.blocks, caches):
            ids = _token_ids_for(block, token_ids)
            x, cache = block.step(x, cache, positions, **ids)
            new.append(cache)
        return self.output_norm(x), new

    def get_config(self):
        config = super().get_config()
        plain = (
            *("vocabulary_size", "sequence_length", "num_dense_blocks"),
            *("num_sparse_blocks", "hidden_dim", "intermediate_dim"),
            *("num_experts", "routing", "mixing", "attention_dim"),
            *("num_heads", "token_intermediate_dim", "capacity_factor"),
            *("prefix_fraction", "short_prompt", "balance_loss_weight"),
            *("norm_placement", "toeplitz", "epsilon", "gate_epsilon"),
            *("dropout_rate", "attention_dropout_rate"),
        )
        config.update({name: getattr(self, name) for name in plain})
        router = self.router
        if not isinstance(router, (str, dict)):
            router = keras.saving.serialize_keras_object(router)
        config.update(
            {
                "router": router,
                "sparse_blocks": list(self.sparse_blocks),
                "activation": keras.activations.serialize(
                    keras.activations.get(self.activation)
                ),
                "kernel_initializer": _serialize(self.kernel_initializer),
                "bias_initializer": _serialize(self.bias_initializer),
                "embeddings_initializer": initializers.serialize(
                    self.token_embedding.embeddings_initializer
                ),
            }
        )
        return config


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SMLPCausalLM(CausalLM):
    """Sparse all-MLP that writes on, and the models beside it.

    The logits come from the embedding itself (tied weights). In partial
    routing, loss and metrics count from output P - 1 on: what comes out
    before knows the tokens that it would have to predict.

    Args:
        backbone: A `SMLPBackbone`.
        tokenizer: A `mlp_mixers.data.Tokenizer`, for text as input.
        dtype: Of the head; the backbone's own if `None`.
        **kwargs: `name`, `trainable` of `keras.Model`.

    Inputs and outputs:
        A dictionary of `token_ids` and `padding_mask`, both `(batch, n)` and
        padded on the right, to logits `(batch, n, V)` of the tokens that
        follow.

    Raises:
        ValueError: If `backbone` is of another class, or the tokenizer's
            vocabulary is larger than the backbone's.

    Example:

    ```python
    model = SMLPCausalLM.from_preset("runs/causal_lm/preset")
    model.generate("The function returns", max_length=40)
    ```

    Reference:
        [Efficient Language Modeling with Sparse all-MLP](
        https://arxiv.org/abs/2203.06850), Sec. 4.
    """

    backbone_cls = SMLPBackbone


def _token_ids_for(block, token_ids):
    """Token ids as an argument, for blocks with experts."""
    if isinstance(block, (SMLPBlock, TransformerBlock)):
        return {"token_ids": token_ids}
    return {}


def _count_blocks(num_dense_blocks, num_sparse_blocks):
    for name, value in (
        ("num_dense_blocks", num_dense_blocks),
        ("num_sparse_blocks", num_sparse_blocks),
    ):
        if value != 0:
            positive_integer(value, name)
    if num_dense_blocks + num_sparse_blocks == 0:
        raise ValueError(
            "There must be a block. Received: num_dense_blocks=0, "
            "num_sparse_blocks=0"
        )
    return num_dense_blocks + num_sparse_blocks


def _check_places(places, num_blocks, count):
    places = tuple(int(place) for place in places)
    if sorted(set(places)) != list(places) or len(places) != count:
        raise ValueError(
            f"`sparse_blocks` must be {count} increasing indices, as many as "
            f"`num_sparse_blocks`. Received: sparse_blocks={places}"
        )
    if places and not 0 <= places[0] <= places[-1] < num_blocks:
        raise ValueError(
            f"`sparse_blocks` must be indices among {num_blocks} blocks, from "
            f"0. Received: sparse_blocks={places}"
        )
    return places


def _clone(initializer):
    """A fresh initializer for each block: a shared one repeats its draws."""
    initializer = initializers.get(initializer)
    return initializer and initializer.clone()


def _serialize(initializer):
    return initializer and initializers.serialize(initializer)
