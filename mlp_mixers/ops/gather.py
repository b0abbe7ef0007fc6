"""Picks entries of the last axis, each row its own."""

from keras import ops


def take_along_last(x, indices):
    """`y[..., k] = x[..., indices[..., k]]`.

    What `ops.take_along_axis` does, over a flat axis: on PyTorch that one
    fixes the size of the batch when a model is exported.

    Args:
        x: Tensor of shape `(..., n)`.
        indices: int32 tensor of shape `(..., k)`, the same leading axes.

    Returns:
        Tensor of the shape of `indices`.
    """
    n, k = ops.shape(x)[-1], indices.shape[-1]
    rows = ops.reshape(
        indices, (-1, ops.shape(indices)[-1] if k is None else k)
    )
    first = ops.arange(ops.shape(rows)[0], dtype="int32")[:, None] * n
    taken = ops.take(ops.reshape(x, (-1,)), rows + first)
    return ops.reshape(taken, ops.shape(indices))
