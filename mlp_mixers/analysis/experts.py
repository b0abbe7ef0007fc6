"""How busy experts are, as numbers and as a picture."""

import contextlib
import numbers

import keras
import numpy as np
from keras import ops

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.streams import CausalLMBatches
from mlp_mixers.data.streams import stream_documents
from mlp_mixers.data.text_encoder import check_texts
from mlp_mixers.data.text_encoder import check_tokenizer
from mlp_mixers.data.text_encoder import is_text
from mlp_mixers.models.input_checks import as_array
from mlp_mixers.models.input_checks import to_numpy


def expert_load(model, inputs, batch_size=32):
    """Which share of the choices falls on each expert, in inference.

    Args:
        model: A model with layers of experts, such as a `SMLPCausalLM`.
        inputs: One of
            - documents, a list of strings, for a model with a tokenizer; they
              are cut into rows as `evaluate` cuts them;
            - token ids, an array `(rows, n)` or a list of rows of one length.
              All of them are real tokens; where some are not, give the model
              its dictionary with the `padding_mask`;
            - inputs of one batch, as the model is called with;
            - a `keras.utils.PyDataset`, such as `CausalLMBatches`, whose
              labels are left out;
            - an iterable of batches of inputs.
        batch_size: Rows at a time, of documents and of token ids.

    Returns:
        Dictionary from a layer's name to float64 `(E,)` shares that add up to
        1. Padding does not count. Layers without a route, such as feature
        experts with deterministic routing, are left out.

    Raises:
        ValueError: If the model has no layer with a route, there are no
            inputs, or they are strings and there is no tokenizer.

    Example:

    ```python
    loads = expert_load(model, documents)
    plot_expert_load(loads, path="load.png")
    ```
    """
    batch_size = positive_integer(batch_size, "batch_size")
    counts, batches = {}, 0
    check = getattr(model, "check_arrays", None)
    with _listening(model, counts):
        for batch in _batches(model, inputs, batch_size):
            if check is not None and isinstance(batch, dict):
                check(batch)
            model(batch, training=False)
            batches += 1
    if not batches:
        raise ValueError(
            "There is nothing to route: give a list of strings, token ids, or "
            f"batches. Received: inputs={inputs!r}"
        )
    if not counts:
        raise ValueError(
            "The model has no layer that routes: no token experts, and no "
            "feature experts with a learned route. "
            f"Received: model={model!r}"
        )
    return {name: c / max(c.sum(), 1) for name, c in counts.items()}


def _batches(model, inputs, batch_size):
    """What the model is called with, batch by batch."""
    if is_text(inputs):
        texts = check_texts(inputs, "documents")
        tokenizer = check_tokenizer(getattr(model, "tokenizer", None))
        length = model.backbone.sequence_length
        inputs = CausalLMBatches(
            stream_documents(texts, tokenizer, length),
            tokenizer.pad_id,
            batch_size=batch_size,
        )
    if isinstance(inputs, keras.utils.PyDataset):
        return (
            batch[0] if isinstance(batch, tuple) else batch
            for batch in (inputs[i] for i in range(len(inputs)))
        )
    if _is_rows(inputs):
        inputs = as_array(inputs, "inputs")
    if isinstance(inputs, dict):
        return [inputs]
    if not hasattr(inputs, "shape"):
        return inputs
    names = getattr(model, "input", None)
    if not isinstance(names, dict) or "token_ids" not in names:
        return [inputs]
    return _with_masks(to_numpy(inputs), names, batch_size)


def _is_rows(inputs):
    """Whether this is a list of lists of numbers."""
    return isinstance(inputs, (list, tuple)) and any(
        isinstance(row, (list, tuple))
        and row
        and isinstance(row[0], numbers.Real)
        for row in inputs
    )


def _with_masks(token_ids, names, batch_size):
    """Rows of token ids, all real, as inputs by name."""
    for start in range(0, len(token_ids), batch_size):
        rows = token_ids[start : start + batch_size]
        inputs = {"token_ids": rows}
        if "padding_mask" in names:
            inputs["padding_mask"] = np.ones(rows.shape, "int32")
        yield inputs


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
    bar.set_label("load over\na fair share")
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure
