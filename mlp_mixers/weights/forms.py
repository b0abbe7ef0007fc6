"""How an array lies there and here: a function each way for every form.

Letters: p×q patch, c colours, d `hidden_dim`, n tokens. The functions know
nothing of layers; what they cannot read off the array they are given as the
`shape` that it has with us.
"""

import numpy as np


def to_ours(array, form):
    """Turns a foreign array into one of ours.

    Args:
        array: NumPy array.
        form: Name of the form, as in `names`.

    Returns:
        NumPy array; the array as it is where its rank does not fit the form,
        so that whoever compares shapes can show it.
    """
    if form == "transposed" and array.ndim == 2:  # torch's (out, in)
        return array.T
    if form == "patches" and array.ndim == 4:  # (d, c, p, q) -> (p·q·c, d)
        return array.transpose(2, 3, 1, 0).reshape(-1, array.shape[0])
    if form == "one_head" and array.ndim in (1, 2):  # (n, n) -> (1, n, n)
        return array[None]
    if form == "leading_ones" and array.shape[:-1] == (1, 1):  # (1, 1, d)
        return array.reshape(-1)
    return array


def to_theirs(array, form, patch_shape):
    """Turns an array of ours into a foreign one; the inverse of `to_ours`.

    Args:
        array: NumPy array.
        form: Name of the form, as in `names`.
        patch_shape: `(p, q, c)` of the model.

    Raises:
        ValueError: If what is here cannot be said there.
    """
    if form == "transposed":
        return np.ascontiguousarray(array.T)
    if form == "patches":
        array = array.reshape(*patch_shape, array.shape[-1])
        return np.ascontiguousarray(array.transpose(3, 2, 0, 1))
    if form == "one_head":
        if array.shape[0] != 1:
            raise ValueError(
                "The layout has one spatial matrix in a block, and this "
                f"model has several heads. Received: num_heads={len(array)}"
            )
        return array[0]
    if form == "leading_ones":
        return array.reshape(1, 1, -1)
    return array
