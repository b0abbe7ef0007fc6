"""What a padding mask does to a tensor, a softmax and a careless caller.

A padding mask has shape `(batch, n)` and is true (or 1) at real tokens.
"""

from keras import ops


def check_padding_mask(mask, x_shape, caller):
    """Raises unless `mask` has the shape `(batch, n)` that `x` asks for.

    Args:
        mask: Tensor or `None`.
        x_shape: Shape of the tensor it masks, `(batch, n, channels)`.
        caller: Name of the layer, for the message.

    Raises:
        ValueError: If `mask` has another rank or another number of tokens.
    """
    if mask is None:
        return
    shape = getattr(mask, "shape", ())
    fits = len(shape) == 2 and all(
        m is None or s is None or m == s for m, s in zip(shape, x_shape[:2])
    )
    if not fits:
        raise ValueError(
            f"{caller} expects a padding mask of shape `(batch, n)`, true at "
            "real tokens, for inputs of shape `(batch, n, channels)`. "
            f"Received: mask={mask!r} of shape {tuple(shape)}, "
            f"x.shape={tuple(x_shape)}"
        )


def zero_padding(x, mask):
    """Sets padded tokens to zero, whatever they held.

    Args:
        x: Tensor of shape `(batch, n, channels)`.
        mask: Padding mask of shape `(batch, n)`, or `None` for no padding.

    Returns:
        Tensor of the shape of `x`.
    """
    if mask is None:
        return x
    # `where`, not a product: 0 · inf is NaN.
    mask = ops.expand_dims(ops.cast(mask, "bool"), -1)
    return ops.where(mask, x, ops.zeros_like(x))


def masked_softmax(scores, allowed=None):
    """Softmax over the last axis, in float32, among the allowed entries.

    A row with nothing allowed comes out uniform, not NaN.

    Args:
        scores: Tensor of any float type.
        allowed: Boolean tensor that broadcasts to `scores`, or `None`.

    Returns:
        Tensor like `scores`; its last axis sums to 1.
    """
    dtype = scores.dtype
    scores = ops.cast(scores, "float32")
    if allowed is not None:
        # Finite, so that a row of nothing but lows has no inf - inf.
        scores = ops.where(allowed, scores, -1e30)
    return ops.cast(ops.softmax(scores, axis=-1), dtype)
