"""Learning curves of text models, beside what frequencies alone reach."""

import pytest

from recipes.text_pictures import draw_history

HISTORY = {
    "loss": [3.0, 2.0],
    "perplexity": [20.0, 7.4],
    "val_loss": [3.1, 2.4],
    "val_perplexity": [22.0, 11.0],
}


def levels(axes):
    """Label to value of the lines that are level."""
    found = {}
    for line in axes.get_lines():
        values = set(line.get_ydata())
        if len(values) == 1:
            found[line.get_label()] = values.pop()
    return found


@pytest.mark.parametrize("unigram", [None, 35.0])
def test_frequencies_are_a_line_in_the_panel_of_perplexity(unigram, tmp_path):
    path = tmp_path / "curves.png"
    figure = draw_history(HISTORY, path, "seed 1 of 3", unigram)
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert set(panels) == {"loss", "perplexity"}
    assert levels(panels["loss"]) == {}
    expected = {"unigram": unigram} if unigram else {}
    assert levels(panels["perplexity"]) == expected
    texts = panels["perplexity"].get_legend().get_texts()
    words = [text.get_text() for text in texts]
    assert words == ["training", "validation", *expected]
    assert figure.get_suptitle() == "seed 1 of 3"
    low, high = panels["perplexity"].get_ylim()
    assert low < 7.4
    assert high > (unigram or 22)
    assert path.stat().st_size > 5_000
