"""Learning curves of text models."""

import re

from mlp_mixers import analysis

# How layers with experts name what they record, and how a reader would.
OF_EXPERTS = re.compile(
    r"block_(\d+)_(token_experts|feature_experts|feed_forward)_(.+)"
)
KINDS = {
    "token_experts": "token experts",
    "feature_experts": "feature experts",
    "feed_forward": "token experts",
}


def draw_history(history, path, title=None, unigram=None):
    """Draws the learning curves of a training.

    What layers with experts have recorded has a panel if it ever changes; of
    the rest the picture says which value it has all the time.

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
    drawn, level = {}, {}
    for name, values in history.items():
        layer, what = in_words(name)
        if layer and len({*map(rounded, values)}) == 1:
            level.setdefault(layer, []).append(f"{what} {rounded(values[0]):g}")
        else:
            drawn[f"{layer},\n{what}" if layer else what] = values
    figure = analysis.plot_history(drawn, title=title)
    for axes in figure.axes:
        if unigram is not None and axes.get_title() == "perplexity":
            axes.axhline(unigram, color="0.4", ls="--", label="unigram")
            axes.legend()
    if level:
        lines = ["the same in all epochs:"]
        lines += [f"{name}: {', '.join(what)}" for name, what in level.items()]
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.18 * len(lines))
        figure.supxlabel("\n".join(lines), fontsize=9)
    figure.savefig(path, dpi=150)
    return figure


def rounded(value):
    """As much of it as a picture shows: 1 where float32 has 0.9999999."""
    return round(value, 4)


def in_words(name):
    """`(layer, metric)` as a reader would write them; no layer but experts."""
    found = OF_EXPERTS.fullmatch(name)
    if found is None:
        return "", name
    block, kind, what = found.groups()
    return f"block {block} {KINDS[kind]}", what.replace("_", " ")
