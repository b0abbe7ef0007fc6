"""Perplexity of several models, by steps and by time."""

import numpy as np
from matplotlib.figure import Figure

from mlp_mixers.analysis.plots import log_axis_in_plain_numbers


def plot_comparison(histories, steps, path, later=()):
    """Draws held-out perplexity by training steps, and by seconds.

    Args:
        histories: Dictionary from a model's name to its history, with
            `val_perplexity` and `seconds`.
        steps: In an epoch.
        path: File to write.
        later: Names of the models that were measured on the later tokens of a
            row only: they have a star, and a line that says so.

    Returns:
        The `matplotlib.figure.Figure`.
    """
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    for name, history in histories.items():
        values = history["val_perplexity"]
        epochs = np.arange(1, len(values) + 1)
        star = "*" if name in later else ""
        style = {"marker": ".", "label": f"{name}, {values[-1]:.1f}{star}"}
        if name == "smlp-leaky":
            style["linestyle"] = ":"  # it cheats
        by_steps.plot(epochs * steps, values, **style)
        by_time.plot(np.cumsum(history["seconds"]), values, **style)
    log_axis_in_plain_numbers(by_steps)
    by_steps.set_xlabel("training steps")
    by_steps.set_ylabel("held-out perplexity")
    by_time.set_xlabel("seconds of training")
    by_time.legend(title="model, last value")
    for axes in (by_steps, by_time):
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)
    if later:
        figure.supxlabel(
            "* of the later tokens of a row only: not to be compared with "
            "whole rows",
            fontsize=9,
        )
    figure.savefig(path, dpi=120)
    return figure
