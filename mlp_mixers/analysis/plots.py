"""Pictures of what was learned."""

import math

import keras
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from matplotlib.ticker import MaxNLocator
from matplotlib.ticker import NullLocator

from mlp_mixers.analysis.weights import spatial_weights
from mlp_mixers.analysis.weights import walk
from mlp_mixers.layers import PatchEmbedding


def plot_spatial_weights(
    model, blocks=None, tokens=None, grid_shape=None, head=0, path=None
):
    """Draws rows of the spatial matrices as images over the patch grid.

    Row i of W says how much token i takes from every other token. Laid out
    over the grid of patches it is the *filter* of that token, as the paper
    draws it (Sec. 3). There is a row of pictures for each block and a column
    for each token, which a square marks. Red adds, blue subtracts. Each block
    has its own scale, written beside it: the 99th percentile of what is drawn.

    Args:
        model: A model with gating units or spatial projections.
        blocks: Which of them to draw, as indices (negative from the end);
            `None` draws up to six, first and last included.
        tokens: Which rows of W, as indices; `None` draws eight from the upper
            left to the lower right.
        grid_shape: `(rows, columns)` of patches. `None` takes that of the
            model's patch embedding; a square, or a line, if it has none.
        head: Which head, where there are several.
        path: File to save the picture to, `.png` for instance.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If a block, token or head does not exist, the grid does
            not hold the tokens, or the tokens are those of text, which stand
            in a line.
    """
    if grid_shape is None and _reads_text(model):
        raise ValueError(
            "The tokens of text stand in a line, and this draws them on a "
            "grid. Call `plot_spatial_matrices`, or say which grid. "
            f"Received: grid_shape=None, model={model.name}"
        )
    weights = spatial_weights(model)
    names = list(weights)
    heads = weights[names[0]].shape[0]
    blocks = _chosen(blocks, len(names), 6, "blocks")
    sizes = {names[block]: weights[names[block]].shape[-1] for block in blocks}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "Blocks with different numbers of tokens do not fit into one "
            f"picture: choose `blocks`. Received: {sizes}"
        )
    n = sizes[names[blocks[0]]]
    rows, columns = _grid(model, grid_shape, n)
    tokens = _chosen(tokens, n, 8, "tokens")
    if not 0 <= head < heads:
        raise ValueError(f"The model has {heads} heads. Received: head={head}")

    width = 1.3 * len(tokens) + 1.4
    height = 1.3 * len(blocks) * rows / columns + 1.0
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(len(blocks), len(tokens), squeeze=False)
    for row, block in zip(axes, blocks):
        w = weights[names[block]][head]
        # Not the largest value, which alone could bleach all others.
        limit = max(np.percentile(abs(w[tokens]), 99), 1e-12)
        for axis, token in zip(row, tokens):
            image = axis.imshow(
                w[token].reshape(rows, columns),
                cmap="RdBu_r",
                vmin=-limit,
                vmax=limit,
            )
            axis.plot(
                token % columns,
                token // columns,
                "s",
                ms=5,
                mfc="none",
                mec="k",
            )
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"{names[block]}\n±{limit:.2g}", fontsize=8)
    for axis, token in zip(axes[0], tokens):
        axis.set_title(f"token {token}", fontsize=8)
    bar = figure.colorbar(image, ax=axes, aspect=40, shrink=0.8)
    bar.set_ticks([-limit, 0, limit], labels=["subtracts", "0", "adds"])
    figure.suptitle(
        "Spatial weights: what each token (square) takes from every place, "
        f"{len(tokens)} of {n} tokens in {len(blocks)} of {len(names)} blocks",
        fontsize=10,
    )
    return _save(figure, path)


def plot_spatial_matrices(model, blocks=None, head=0, path=None):
    """Draws whole spatial matrices, and what they weigh by distance.

    For text, whose tokens stand in a line. Above, W of some blocks: the row is
    the token that takes, the column the token it takes from. Each has its own
    colours, which end at the 99th percentile of |W|; what lies beyond has the
    last colour. Below, the mean of W along each diagonal, over the distance
    j - i between the two, on one scale for all: the matrix itself, if it is
    Toeplitz. The paper finds its language models to learn such matrices by
    themselves (Sec. 4.1).

    Args:
        model: A model with gating units or spatial projections.
        blocks: Which of them to draw, as indices (negative from the end);
            `None` draws up to six, first and last included.
        head: Which head, where there are several.
        path: File to save the picture to.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If a block or head does not exist.
    """
    weights = spatial_weights(model)
    names = list(weights)
    blocks = _chosen(blocks, len(names), 6, "blocks")
    heads = weights[names[0]].shape[0]
    if not 0 <= head < heads:
        raise ValueError(f"The model has {heads} heads. Received: head={head}")
    # No narrower than the title.
    width = max(2.9 * len(blocks), 4.4)
    figure = Figure(figsize=(width, 5.4), layout="constrained")
    axes = figure.subplots(2, len(blocks), squeeze=False, sharey="row")
    toeplitz = True
    for above, below, block in zip(*axes, blocks):
        w = weights[names[block]][head]
        toeplitz &= _draw_by_distance(below, w)
        image = _draw_matrix(above, w)
        above.set_title(names[block], fontsize=10)
        bar = figure.colorbar(
            image, ax=above, extend="both", location="bottom", aspect=25
        )
        ends = image.get_clim()
        bar.set_ticks([*ends, 0], labels=[*(f"{x:.2g}" for x in ends), "0"])
    axes[0, 0].set_ylabel("token i, which takes")
    axes[1, 0].set_ylabel("weight" if toeplitz else "mean weight")
    figure.suptitle(
        "Spatial weights: what token i takes\n"
        "from token j (red adds, blue subtracts)",
        fontsize=10,
    )
    return _save(figure, path)


def _draw_matrix(axis, w):
    # Not the largest value, which alone could bleach all others.
    limit = max(np.percentile(abs(w), 99), 1e-12)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axis.set_xlabel("token j")
    return axis.imshow(w, cmap="RdBu_r", vmin=-limit, vmax=limit)


def _draw_by_distance(axis, w):
    """Draws the means of the diagonals; returns whether W is Toeplitz."""
    distances = np.arange(1 - len(w), len(w))
    diagonals = [np.diagonal(w, int(k)) for k in distances]
    axis.plot(distances, [diagonal.mean() for diagonal in diagonals])
    axis.axhline(0, color="0.7", lw=0.8)
    axis.set_xlabel("distance j - i")
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    return all(np.ptp(diagonal) == 0 for diagonal in diagonals)


def plot_history(history, path=None, title=None):
    """Draws the learning curves of a training.

    Args:
        history: What `fit` returns, or its `history` dictionary (metric name
            to list of values by epoch).
        path: File to save the picture to.
        title: What to write above all panels.

    Returns:
        A `matplotlib.figure.Figure` with a panel for each metric, training
        and validation together, up to four in a row. Perplexities are on a
        logarithmic axis, where they look like the cross-entropy they are the
        exponential of. A panel with one line has no legend where another
        panel says what its colour means.

    Raises:
        ValueError: If the history is empty.
    """
    curves = dict(getattr(history, "history", history))
    names = [*dict.fromkeys(name.removeprefix("val_") for name in curves)]
    if not any(len(values) for values in curves.values()):
        raise ValueError(
            "There is no epoch to draw: was the model trained? "
            f"Received: history={history!r}"
        )
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, name in zip(axes, names):
        _draw_curves(axis, name, curves)
    for axis in axes[len(names) :]:
        axis.remove()
    _name_lines(axes[: len(names)])
    if title is not None:
        figure.suptitle(title)
    return _save(figure, path)


def _draw_curves(axis, name, curves):
    for key, label in ((name, "training"), (f"val_{name}", "validation")):
        if key in curves:
            epochs = range(1, len(curves[key]) + 1)
            # A single epoch is a point, and no line shows it.
            marker = "o" if len(curves[key]) == 1 else None
            color = "C0" if label == "training" else "C1"
            axis.plot(
                epochs, curves[key], color=color, label=label, marker=marker
            )
    axis.set(title=name, xlabel="epoch")
    if "perplexity" in name:
        log_axis_in_plain_numbers(axis)
    else:
        axis.ticklabel_format(axis="y", useOffset=False)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.grid(alpha=0.3)


def _name_lines(axes):
    """A legend where there are two lines, and where no other names the line."""
    named = set()
    for axis in sorted(axes, key=lambda axis: -len(axis.lines)):
        labels = {line.get_label() for line in axis.lines}
        if len(labels) > 1 or not labels <= named:
            axis.legend()
            named |= labels


def log_axis_in_plain_numbers(axes):
    """Makes the y axis logarithmic, with 200 beside it and not 2 x 10^2."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(_PlainLogLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


class _PlainLogLocator(LogLocator):
    """1, 2, 5, 10, 20 and so on; round steps where that would be too few."""

    def __init__(self):
        super().__init__(subs=(1, 2, 5), numticks=99)
        self._steps = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])

    def tick_values(self, vmin, vmax):
        if vmin > 0 and vmax < 10 * vmin:
            return self._steps.tick_values(vmin, vmax)
        return super().tick_values(vmin, vmax)


def _reads_text(model):
    return any(
        isinstance(layer, keras.layers.Embedding) for _, layer in walk(model)
    )


def _grid(model, grid_shape, n):
    if grid_shape is None:
        grid_shape = next(
            (
                layer.grid_shape
                for _, layer in walk(model)
                if isinstance(layer, PatchEmbedding)
            ),
            None,
        )
    if grid_shape is None:
        side = math.isqrt(n)
        grid_shape = (side, side) if side * side == n else (1, n)
    if grid_shape[0] * grid_shape[1] != n:
        raise ValueError(
            f"The grid must hold the {n} tokens of the model. "
            f"Received: grid_shape={tuple(grid_shape)}"
        )
    return grid_shape


def _chosen(indices, count, at_most, name):
    """Indices checked and counted from the front; spread out if `None`."""
    if indices is None:
        spread = np.linspace(0, count - 1, min(at_most, count))
        return [round(float(i)) for i in spread]
    if not isinstance(indices, (list, tuple, range)) or not len(indices):
        raise ValueError(
            f"`{name}` must be a list of one index or more. "
            f"Received: {name}={indices!r}"
        )
    for index in indices:
        if not -count <= index < count:
            raise ValueError(
                f"The model has {count} {name}. Received: {name}={indices}"
            )
    return [index % count for index in indices]


def _save(figure, path):
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
