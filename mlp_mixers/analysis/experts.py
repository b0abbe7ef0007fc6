"""How busy experts are, as numbers and as a picture."""

import contextlib

import numpy as np
from keras import ops


def expert_load(model, inputs):
    """Which share of the choices falls on each expert, in inference.

    Args:
        model: A model with layers of experts, such as a `SMLPCausalLM`.
        inputs: Inputs of one batch, or an iterable of such.

    Returns:
        Dictionary from a layer's name to float64 `(E,)` shares that add up to
        1. Padding does not count. Layers without a route, such as feature
        experts with deterministic routing, are left out.

    Raises:
        ValueError: If the model has no layer with a route.
    """
    counts = {}
    with _listening(model, counts):
        batches = [inputs] if isinstance(inputs, (dict, np.ndarray)) else inputs
        for batch in batches:
            model(batch, training=False)
    if not counts:
        raise ValueError(
            "The model has no layer that routes: no token experts, and no "
            "feature experts with a learned route. "
            f"Received: model={model!r}"
        )
    return {name: c / max(c.sum(), 1) for name, c in counts.items()}


@contextlib.contextmanager
def _listening(model, counts):
    """Counts choices by layer while a model is called, outside of compiled
    functions."""
    layers = [x for x in model._flatten_layers() if hasattr(x, "on_route")]

    def listener(layer):
        def listen(ids):
            ids = ops.convert_to_numpy(ids).ravel()
            tally = np.bincount(ids, minlength=layer.num_experts + 1)
            counts.setdefault(layer.name, np.zeros(layer.num_experts))
            counts[layer.name] += tally[: layer.num_experts]

        return listen

    try:
        for layer in layers:
            layer.on_route = listener(layer)
        yield
    finally:
        for layer in layers:
            layer.on_route = None


def plot_expert_load(loads, path=None):
    """Draws loads as a heat map: a row for each layer, a column an expert.

    A fair share is white, more is red, less is blue, and each cell says how
    many times a fair share it is.

    Args:
        loads: What `expert_load` returns.
        path: File to write; `None` only returns the figure.

    Returns:
        The `matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure

    names, experts = list(loads), max(map(len, loads.values()))
    figure = Figure(
        figsize=(2.5 + 0.6 * experts, 1.4 + 0.45 * len(names)),
        layout="constrained",
    )
    axes = figure.subplots()
    table = np.full((len(names), experts), np.nan)
    for row, load in zip(table, loads.values()):
        row[: len(load)] = load * len(load)
    image = axes.imshow(table, cmap="RdBu_r", vmin=0, vmax=2, aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        if np.isfinite(value):
            color = "white" if abs(value - 1) > 0.7 else "black"
            axes.text(
                j, i, f"{value:.2f}", ha="center", va="center", color=color
            )
    axes.set_xticks(range(experts))
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("expert")
    bar = figure.colorbar(image, ax=axes, ticks=[0, 1, 2], extend="max")
    bar.set_label("load over a fair share")
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure
