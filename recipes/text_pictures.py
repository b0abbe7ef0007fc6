"""Learning curves of text models."""

from mlp_mixers import analysis


def draw_history(history, path, title=None, unigram=None):
    """Draws the learning curves of a training.

    Args:
        history: Dictionary from the name of a metric to its values by epoch.
        path: File to write.
        title: What stands above all panels.
        unigram: The perplexity that frequencies of tokens alone reach, for a
            line in the panel of perplexity. A model above it has learned less
            than to count.

    Returns:
        The `matplotlib.figure.Figure`.
    """
    figure = analysis.plot_history(history, title=title)
    for axes in figure.axes:
        if unigram is not None and axes.get_title() == "perplexity":
            axes.axhline(unigram, color="0.4", ls="--", label="unigram")
            axes.legend()
    figure.savefig(path, dpi=150)
    return figure
