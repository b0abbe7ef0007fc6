"""Spatial weights for another number of patches.

The weights that mix tokens belong to one grid of patches. On another grid,
every field of tokens v is a picture that was resized, and W should do to the
resized picture what it did to the picture:

    W'·up(v) ≈ up(W·v),     so     W' = U·W·D

with U the matrix that interpolates fields from the old grid to the new one,
and D a way back. Interpolating the columns of W (the tokens that come *in*)
is W·Uᵀ, which has n_new/n_old times as many terms in each sum; hence the
factor n_old/n_new, and D = (n_old/n_new)·Uᵀ. Where the grids do not divide,
the rows of D are brought to a sum of exactly 1, so that a row of W' sums to
what the row of W did. Biases and output axes are interpolated by U alone.
"""

import math
import numbers

import numpy as np


def resize_spatial_weights(
    weights, old_grid, new_grid, output_axis=-2, input_axis=-1
):
    """Carries weights that mix tokens over to another grid of patches.

    Args:
        weights: Array; two of its axes count tokens, or one.
        old_grid: `(rows, columns)` of patches that the weights are for.
        new_grid: `(rows, columns)` wanted.
        output_axis: Axis of the tokens that come out, `None` if there is
            none. Values along it are interpolated: biases, rows of W.
        input_axis: Axis of the tokens that are summed over, `None` if there
            is none. Interpolated and multiplied by n_old/n_new, so that sums
            over it stay.

    Returns:
        Array of the dtype of `weights` (float32 at least in between).

    Raises:
        ValueError: If a grid is not a pair of positive integers, or does not
            hold as many tokens as the axis has.

    Example:

    ```python
    w = resize_spatial_weights(w, (14, 14), (16, 16))  # (n, n) -> (n', n')
    b = resize_spatial_weights(
        b, (14, 14), (16, 16), output_axis=-1, input_axis=None
    )
    ```
    """
    weights = np.asarray(weights)
    old_grid = check_grid(old_grid, "old_grid")
    new_grid = check_grid(new_grid, "new_grid")
    if not np.issubdtype(weights.dtype, np.floating):
        weights = weights.astype("float32")  # integers cannot be interpolated
    for axis in (output_axis, input_axis):
        if axis is not None and weights.shape[axis] != math.prod(old_grid):
            raise ValueError(
                f"`old_grid` must hold the {weights.shape[axis]} tokens of "
                f"axis {axis}. Received: old_grid={old_grid}, "
                f"weights.shape={weights.shape}"
            )
    up = interpolation_matrix(old_grid, new_grid)  # U: (n_new, n_old)
    result = weights.astype(np.result_type(weights.dtype, np.float32))
    if output_axis is not None:
        result = _apply(up, result, output_axis)
    if input_axis is not None:
        # Dᵀ: every column of U, divided by its sum.
        result = _apply(up / up.sum(0), result, input_axis)
    return result.astype(weights.dtype)


def interpolation_matrix(old_grid, new_grid):
    """The matrix U that resizes a field over a grid, row by row of patches.

    Linear interpolation in both directions between the centres of patches,
    with a wider triangle when the new grid is coarser (antialiasing) and the
    edge continued beyond itself: what image libraries call bilinear.

    Args:
        old_grid: `(rows, columns)`.
        new_grid: `(rows, columns)`.

    Returns:
        Array of shape `(n_new, n_old)`; every row sums to 1.
    """
    rows, columns = (
        _interpolate(old, new) for old, new in zip(old_grid, new_grid)
    )
    return np.kron(rows, columns)


def _interpolate(old, new):
    """Linear interpolation along one direction, `(new, old)`."""
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    width = max(1.0, old / new)
    distance = abs(np.arange(old)[None, :] - centres[:, None]) / width
    triangle = np.maximum(0.0, 1.0 - distance)
    return triangle / triangle.sum(1, keepdims=True)


def _apply(matrix, array, axis):
    """Multiplies `array` by `matrix` along one axis."""
    product = np.tensordot(matrix.astype(array.dtype), array, axes=(1, axis))
    return np.moveaxis(product, 0, axis)


def check_grid(grid, name):
    """Returns `(rows, columns)`.

    Raises:
        ValueError: If `grid` is no pair of positive integers.
    """
    values = tuple(grid) if isinstance(grid, (tuple, list)) else ()
    if len(values) != 2 or not all(
        isinstance(v, numbers.Integral) and v > 0 for v in values
    ):
        raise ValueError(
            f"`{name}` must be (rows, columns) of patches. "
            f"Received: {name}={grid!r}"
        )
    return tuple(int(v) for v in values)
