"""What layers share that mix tokens and can do so one token at a time.

A causal layer keeps what later tokens will ask of a token in a *cache*: a
dictionary of arrays `(batch, length, ...)`, the tokens along the second axis.
A step takes one new token an example, at a position of its own, writes what
it leaves into the cache and reads the rows up to it. All shapes are static,
so a step compiles once, and no step does more than O(length) work a channel.

Letters: b batch, l length of the cache, h heads, c channels, i the new
token's position, j a token's in the cache.
"""

import keras
from keras import ops


def check_decodable(layer, causal):
    """Raises unless a layer is built and causal.

    Args:
        layer: The layer that is to decode.
        causal: Its `causal`.

    Raises:
        ValueError: If later tokens would change earlier outputs, or if the
            layer has no weights yet.
    """
    name = type(layer).__name__
    if not causal:
        raise ValueError(
            f"{name} can take tokens one by one only if none of them sees a "
            "later one. Make the layer with `causal=True`, or call it on all "
            f"tokens at once. Received: causal={causal}"
        )
    if not layer.built:
        raise ValueError(
            f"{name} must be built before it takes tokens one by one. Call "
            "it once on a whole input, or call `build`. "
            f"Received: built={layer.built}"
        )


def check_step(x, positions, caller):
    """Raises unless `x` is one token an example, and `positions` its places.

    Args:
        x: Tensor.
        positions: Tensor.
        caller: Name of the layer, for the message.

    Raises:
        ValueError: If `x` is not `(batch, 1, channels)` or `positions` not
            `(batch,)`.
    """
    fits = len(x.shape) == 3 and x.shape[1] == 1
    fits = fits and len(positions.shape) == 1
    batches = {x.shape[0], *positions.shape[:1]} - {None} if fits else set()
    if not fits or len(batches) > 1:
        raise ValueError(
            f"{caller}.step expects one token an example, `x` of shape "
            "`(batch, 1, channels)`, and the position of each, `positions` "
            f"of shape `(batch,)`. Received: x.shape={tuple(x.shape)}, "
            f"positions.shape={tuple(positions.shape)}"
        )


def up_to(positions, length):
    """Which rows of a cache a step may read: j <= i.

    Args:
        positions: Integer tensor of shape `(b,)`.
        length: The cache's length l.

    Returns:
        Boolean tensor of shape `(b, l)`.
    """
    return ops.arange(length, dtype="int32")[None] <= positions[:, None]


def write_at(cache, positions, values):
    """The cache with one token's values written in, an example.

    A choice between old and new in every row, not a scatter: the same on all
    backends, and free of the differences between their scatters at places
    out of range. Such a token is not written.

    No gradient flows through a cache: PyTorch would keep the graphs of all
    steps before, and decoding is inference.

    Args:
        cache: Tensor of shape `(b, l, c)`.
        positions: Integer tensor of shape `(b,)`.
        values: Tensor of shape `(b, 1, c)`.

    Returns:
        Tensor like `cache`.
    """
    rows = ops.arange(cache.shape[1], dtype="int32")[None, :, None]
    here = rows == positions[:, None, None]  # (b, l, 1)
    written = ops.where(here, ops.cast(values, cache.dtype), cache)
    return ops.stop_gradient(written)


def causal_rows(w, positions, length):
    """The rows `positions` of a lower triangular W.

    What stands above the diagonal of `w` is not looked at: a kernel is
    causal by the way it is used, not by what it holds.

    Args:
        w: Tensor of shape `(h, n, n)`.
        positions: Integer tensor of shape `(b,)`.
        length: How many columns, l <= n.

    Returns:
        Tensor of shape `(h, b, l)`.
    """
    rows = ops.take(w, positions, axis=1)[:, :, :length]
    return _lower(rows, positions, length)


def causal_toeplitz_rows(values, positions, length):
    """The rows `positions` of a lower triangular Toeplitz W.

        W[i, j] = values[(n - 1) + (j - i)]       for j <= i, else 0

    Each entry is looked up by its distance; W is never made.

    Args:
        values: Tensor of shape `(h, n)`, from the lowest-left diagonal to
            the main one.
        positions: Integer tensor of shape `(b,)`.
        length: How many columns, l <= n.

    Returns:
        Tensor of shape `(h, b, l)`.
    """
    last = values.shape[1] - 1
    j = ops.arange(length, dtype="int32")[None]
    # Above the diagonal there is no value; any will do, it becomes zero.
    distances = ops.clip(last + j - positions[:, None], 0, last)  # (b, l)
    return _lower(ops.take(values, distances, axis=1), positions, length)


def _lower(rows, positions, length):
    """Zero where j > i."""
    return ops.where(up_to(positions, length)[None], rows, 0.0)


def rows_product(rows, cache):
    """The spatial product of one output token an example.

        y[b, 0, h·c] = Σ_j rows[h, b, j] · cache[b, j, h·c]

    Args:
        rows: Tensor of shape `(h, b, l)`, of the type of `cache`.
        cache: Tensor of shape `(b, l, channels)`; head `h` owns the `h`-th
            of `h` equal groups of channels.

    Returns:
        Tensor of shape `(b, 1, channels)`.
    """
    heads = rows.shape[0]
    batch, length, channels = ops.shape(cache)
    by_head = ops.reshape(cache, (batch, length, heads, channels // heads))
    y = ops.einsum("hbl,blhc->bhc", rows, by_head)
    return ops.reshape(y, (batch, 1, channels))


def extend_cache(cache, length):
    """A cache with room for more tokens.

    Args:
        cache: Nested structure. What has three axes, `(b, l, c)`, has tokens
            along the second; the rest knows no tokens and stays.
        length: The new length, at least l.

    Returns:
        The same structure.
    """

    def extend(x):
        if len(x.shape) != 3:
            return x
        return ops.pad(x, [[0, 0], [0, length - x.shape[1]], [0, 0]])

    return keras.tree.map_structure(extend, cache)
