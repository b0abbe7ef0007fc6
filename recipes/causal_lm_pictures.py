"""Perplexity of several models, by steps and by time."""

import numpy as np
from matplotlib.figure import Figure


def plot_comparison(histories, steps, path):
    """Draws held-out perplexity by training steps, and by seconds.

    Args:
        histories: Dictionary from a model's name to its history, with
            `val_perplexity` and `seconds`.
        steps: In an epoch.
        path: File to write.
    """
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    by_steps, by_time = figure.subplots(1, 2, sharey=True)
    for name, history in histories.items():
        values = history["val_perplexity"]
        epochs = np.arange(1, len(values) + 1)
        style = {"marker": ".", "label": f"{name}, {values[-1]:.1f}"}
        if name == "smlp-leaky":
            style["linestyle"] = ":"  # it cheats
        by_steps.plot(epochs * steps, values, **style)
        by_time.plot(np.cumsum(history["seconds"]), values, **style)
    by_steps.set_yscale("log")
    by_steps.set_xlabel("training steps")
    by_steps.set_ylabel("held-out perplexity")
    by_time.set_xlabel("seconds of training")
    by_time.legend(title="model, last value")
    for axes in (by_steps, by_time):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
