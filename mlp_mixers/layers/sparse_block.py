"""The sparse block of sparse all-MLP: token experts, then feature experts."""

import keras

from mlp_mixers.arguments import positive_integer
from mlp_mixers.layers.blocks import GMLPBlock
from mlp_mixers.layers.feature_experts import SparseFeatureExperts
from mlp_mixers.layers.token_experts import SparseTokenExperts
from mlp_mixers.ops import per_token
from mlp_mixers.ops import zero_padding

PLACEMENTS = ("pre", "post")


@keras.saving.register_keras_serializable(package="mlp_mixers")
class SMLPBlock(GMLPBlock):
    """Token experts in place of the feed-forward part, then feature experts.

        U = X + tMoE(norm(X))                      which token goes where
        Z = σ(norm(U) · W₁)                        channels d -> e
        Y = U + sMoE(Z) · W₂                       which channel goes where

    with `norm_placement="pre"`. The paper draws the normalisation behind each
    sum, `U = norm(X + tMoE(X))`, and its gMLP and Transformer, and the code
    that it builds on, have it before each branch: so both can be had. It does
    not say either where the two maps around the feature experts are, without
    which its count of operations does not come out; here they are as in gMLP,
    so that the second half of the block is a gMLP block with experts.

    Args:
        num_experts: Number of experts, E, of each kind.
        intermediate_dim: Width e of the expansion, before the gating unit
            halves it.
        token_intermediate_dim: Width f inside a token expert;
            `intermediate_dim` if `None`.
        router: Of the token experts, see `SparseTokenExperts`.
        capacity_factor: See `SparseTokenExperts`.
        routing: Of the feature experts, see `SparseFeatureExperts`.
        prefix_fraction: See `SparseFeatureExperts`.
        short_prompt: See `SparseFeatureExperts`.
        balance_loss_weight: See `SparseFeatureExperts`.
        norm_placement: `"pre"` or `"post"`.
        attention_dim: Width of a tiny attention that joins the gate, as in
            aMLP; `None` for none.
        drop_path_rate: Probability of dropping the second branch in training.
        sequence_length: See `SpatialGatingUnit`.
        toeplitz: See `SpatialGatingUnit`.
        causal: Whether tokens see earlier ones only.
        activation: σ, of the expansion and in the token experts.
        epsilon: Added to the variance in the block's normalisations.
        gate_epsilon: The same inside the feature experts.
        kernel_initializer: Of the spatial matrices.
        bias_initializer: Of the spatial biases.
        dropout_rate: Dropout of both branches.
        attention_dropout_rate: Dropout of the tiny attention's weights.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, d)`.
        token_ids: Integers of shape `(batch, n)`, for a `HashRouter`.
        mask: Padding mask of shape `(batch, n)`, true at real tokens.
        training: Whether to route, drop and add losses as in training.

    Returns:
        Tensor of the shape of `x`.

    Raises:
        ValueError: As `SparseTokenExperts` and `SparseFeatureExperts`.

    Example:

    ```python
    block = SMLPBlock(num_experts=4, intermediate_dim=512, sequence_length=128)
    y = block(keras.random.normal((8, 128, 128)))  # (8, 128, 128)
    ```

    Reference:
        [Efficient Language Modeling with Sparse all-MLP](
        https://arxiv.org/abs/2203.06850), Sec. 3, Fig. 2.
    """

    def __init__(
        self,
        num_experts,
        intermediate_dim,
        token_intermediate_dim=None,
        router="base",
        capacity_factor=1.25,
        routing="deterministic",
        prefix_fraction=0.2,
        short_prompt=None,
        balance_loss_weight=0.01,
        norm_placement="pre",
        attention_dim=None,
        drop_path_rate=0.0,
        sequence_length=None,
        toeplitz=False,
        causal=True,
        activation="gelu",
        epsilon=1e-6,
        gate_epsilon=1e-5,
        kernel_initializer=None,
        bias_initializer=None,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        **kwargs,
    ):
        if norm_placement not in PLACEMENTS:
            raise ValueError(
                f"`norm_placement` must be one of {PLACEMENTS}. "
                f"Received: norm_placement={norm_placement!r}"
            )
        self.norm_placement = norm_placement
        # What `_make_gating_unit`, which the constructor calls, needs more.
        self._features = {
            "num_experts": positive_integer(num_experts, "num_experts"),
            "routing": routing,
            "prefix_fraction": prefix_fraction,
            "short_prompt": short_prompt,
            "balance_loss_weight": balance_loss_weight,
        }
        super().__init__(
            intermediate_dim,
            attention_dim=attention_dim,
            drop_path_rate=drop_path_rate,
            sequence_length=sequence_length,
            toeplitz=toeplitz,
            causal=causal,
            activation=activation,
            epsilon=epsilon,
            gate_epsilon=gate_epsilon,
            kernel_initializer=kernel_initializer,
            bias_initializer=bias_initializer,
            dropout_rate=dropout_rate,
            attention_dropout_rate=attention_dropout_rate,
            **kwargs,
        )
        self.token_norm = keras.layers.LayerNormalization(
            epsilon=self.epsilon, dtype=self.dtype_policy, name="token_norm"
        )
        self.token_experts = SparseTokenExperts(
            num_experts,
            token_intermediate_dim or intermediate_dim,
            router,
            capacity_factor,
            activation,
            dtype=self.dtype_policy,
            name=f"{self.name}_token_experts",
        )

    def _make_gating_unit(self, gate, num_heads, **arguments):
        return SparseFeatureExperts(
            **{**arguments, "name": f"{self.name}_feature_experts"},
            **self._features,
        )

    @property
    def prefix_length(self):
        """See `SparseFeatureExperts`."""
        return self.gating_unit.prefix_length

    def build(self, x_shape):
        super().build(x_shape)
        self.token_norm.build(x_shape)
        self.token_experts.build(x_shape)

    def call(self, x, token_ids=None, mask=None, training=False):
        x = self._with_token_experts(x, token_ids, mask, training)
        return super().call(x, mask=mask, training=training)

    def prefill(self, x, mask=None, token_ids=None):
        """See `GMLPBlock`."""
        x = self._with_token_experts(x, token_ids, mask)
        return super().prefill(x, mask=mask)

    def step(self, x, cache, positions, token_ids=None):
        """See `GMLPBlock`."""
        x = self._with_token_experts(x, token_ids)
        return super().step(x, cache, positions)

    def _with_token_experts(self, x, token_ids, mask=None, training=False):
        """U = X + tMoE(norm(X)), or the normalised sum."""
        x = keras.ops.cast(x, self.compute_dtype)
        if self.norm_placement == "post":
            # The sum is normalised, so padding must be finite in it too.
            x = zero_padding(x, mask)
        h = zero_padding(x, mask)
        if self.norm_placement == "pre":
            h = per_token(self.token_norm, h)
        y = self.token_experts(
            h, token_ids=token_ids, mask=mask, training=training
        )
        u = x + self.dropout(y, training=training)
        if self.norm_placement == "post":
            u = per_token(self.token_norm, u)
        return u

    def _before(self, x, mask):
        """What enters the branch of the feature experts."""
        if self.norm_placement == "pre":
            return super()._before(x, mask)
        return zero_padding(x, mask)

    def _after(self, x, y):
        """The block's output from what entered it and its branch."""
        if self.norm_placement == "pre":
            return super()._after(x, y)
        return per_token(self.norm, x + y)

    def get_config(self):
        config = super().get_config()
        experts = self.token_experts.get_config()
        config.update(
            {
                **self._features,
                "token_intermediate_dim": experts["intermediate_dim"],
                "router": experts["router"],
                "capacity_factor": experts["capacity_factor"],
                "norm_placement": self.norm_placement,
            }
        )
        return config
