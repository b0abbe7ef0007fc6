"""The tiny attention that turns gMLP into aMLP.

Letters: a `attention_dim`.
"""

import keras

from mlp_mixers.layers.self_attention import SelfAttention


@keras.saving.register_keras_serializable(package="mlp_mixers")
class TinyAttention(SelfAttention):
    """One small self-attention head.

        q, k, v = x · W_qkv                       three of width a
        y = softmax(q · kᵀ / √a) · v · W_out

    In an aMLP block its input is the *normalised* block input, before the
    channel expansion, and its output joins the gate of the spatial gating
    unit: `Z₁ ⊙ (f(Z₂) + y)` (`gate_residual`). Positions are known to the
    gating unit, so the attention carries no position information.

    **Masks are explicit.** With `mask`, nobody attends to padded tokens, and
    the output there is zero. The softmax runs in float32. The mathematics
    and the decoding are those of `SelfAttention`.

    Args:
        output_dim: Width of the output; the gate's width in an aMLP block.
        attention_dim: Width of queries, keys and values, a. The paper uses
            64 in aMLP-base and 128 in aMLP-large.
        causal: Whether a token attends to itself and earlier ones only.
        use_bias: Whether both projections have biases.
        dropout_rate: Dropout of the attention weights, after the softmax.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call arguments:
        x: Tensor of shape `(batch, n, channels)`.
        mask: Padding mask of shape `(batch, n)`, true at real tokens.
        training: Whether dropout drops.

    Returns:
        Tensor of shape `(batch, n, output_dim)`.

    Raises:
        ValueError: If a width is not positive, the input has another rank
            than 3 or the mask another shape.

    Example:

    ```python
    attention = TinyAttention(output_dim=768, attention_dim=64)
    y = attention(keras.random.normal((8, 128, 512)))  # (8, 128, 768)
    ```

    Reference:
        [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 4.3
        and Fig. 6.
    """

    def __init__(
        self,
        output_dim,
        attention_dim=64,
        causal=False,
        use_bias=True,
        dropout_rate=0.0,
        **kwargs,
    ):
        super().__init__(
            output_dim,
            num_heads=1,
            attention_dim=attention_dim,
            causal=causal,
            use_bias=use_bias,
            dropout_rate=dropout_rate,
            **kwargs,
        )

    def get_config(self):
        config = super().get_config()
        del config["num_heads"]  # always one, and not an argument
        return config
