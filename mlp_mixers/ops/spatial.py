"""The spatial product W·v, and W from Toeplitz values.

Letters: b batch, i and j tokens (i the output, j the input), h heads, c
channels of one head. `w` always has its head axis first, `(h, n, n)`, also
when there is one head.
"""

import keras
from keras import ops


def spatial_product(w, v):
    """Multiplies every example by `w` along its tokens.

        y[b, i, h·c] = Σ_j w[h, i, j] · v[b, j, h·c]

    One matrix per head, the same for every example and for every channel of
    the head (Pay Attention to MLPs, Sec. 2.1, the W·Z of eq. 2). The two
    forms below compute the same; `docs/spatial_product.md` has the timings
    by which each backend gets its own.

    Args:
        w: Tensor of shape `(heads, n, n)`.
        v: Tensor of shape `(batch, n, channels)`; head `h` owns the `h`-th
            of `heads` equal groups of channels.

    Returns:
        Tensor of shape `(batch, n, channels)`.
    """
    # Which form is fastest depends on the kernels that it and its gradient
    # reach; this is the only place that chooses by backend.
    if w.shape[0] == 1 and keras.backend.backend() != "jax":
        return _batched_product(w, v)
    return _folded_product(w, v)


def _batched_product(w, v):
    """One product per example, the one head's W repeated: (n, n) x (n, c)."""
    # Repeated aloud (no memory moves): PyTorch's implicit broadcast takes a
    # path whose gradient is 1.3 to 1.7 times slower.
    w = ops.broadcast_to(w, (ops.shape(v)[0], *ops.shape(w)[1:]))
    return ops.matmul(w, v)


def _folded_product(w, v):
    """One product per head over all examples: (n, n) x (n, b·c)."""
    heads, n, _ = ops.shape(w)
    if heads == 1:
        v = ops.transpose(v, (1, 0, 2))  # (n, b, c)
        product = ops.matmul(w[0], ops.reshape(v, (n, -1)))
        return ops.transpose(ops.reshape(product, ops.shape(v)), (1, 0, 2))
    v = ops.transpose(_split_heads(v, heads), (2, 1, 0, 3))  # (h, n, b, c)
    product = ops.matmul(w, ops.reshape(v, (heads, n, -1)))
    product = ops.reshape(product, ops.shape(v))
    return _join_heads(ops.transpose(product, (2, 1, 0, 3)))


def _split_heads(v, heads):
    """(b, n, h·c) -> (b, n, h, c)."""
    batch, n, channels = ops.shape(v)
    return ops.reshape(v, (batch, n, heads, channels // heads))


def _join_heads(v):
    """(b, n, h, c) -> (b, n, h·c)."""
    batch, n, heads, channels = ops.shape(v)
    return ops.reshape(v, (batch, n, heads * channels))


def toeplitz_matrix(values):
    """Expands 2n-1 values into the n×n matrix whose diagonals they are.

        W[i, j] = values[(n - 1) + (j - i)]

    Built by tiling and reshaping (Pay Attention to MLPs, App. C) instead of
    indexing, so that its gradient is a sum and not a scatter.

    Args:
        values: Tensor of shape `(heads, 2n - 1)`, from the lowest-left
            diagonal (`j - i = 1 - n`) to the upper-right one.

    Returns:
        Tensor of shape `(heads, n, n)`.
    """
    heads, length = values.shape
    n = (length + 1) // 2
    # Rows of 2n-1 read from a sequence of period 2n start one step earlier
    # each time: element (i, k) is value k - i (mod 2n).
    period = ops.pad(values, [[0, 0], [0, 1]])
    rows = ops.tile(period, (1, n))[:, : n * length]
    return ops.reshape(rows, (heads, n, length))[:, :, n - 1 :]
