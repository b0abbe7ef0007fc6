"""Learning curves of text models, beside what frequencies alone reach."""

import pytest

from recipes.causal_lm_pictures import plot_comparison
from recipes.text_pictures import draw_history

HISTORY = {
    "loss": [3.0, 2.0],
    "perplexity": [20.0, 7.4],
    "val_loss": [3.1, 2.4],
    "val_perplexity": [22.0, 11.0],
}


EXPERTS = {
    "block_1_token_experts_load_entropy": [1.0, 0.9999999],
    "block_1_token_experts_drop_rate": [0.0, 0.0],
    "block_1_feature_experts_max_load": [1.4, 1.1],
    "block_12_feed_forward_drop_rate": [0.2, 0.1],
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


def test_what_experts_never_change_is_said_and_not_drawn(tmp_path):
    history = {**HISTORY, **EXPERTS, "rate": [1.0, 1.0]}
    figure = draw_history(history, tmp_path / "curves.png")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [
        "loss",
        "perplexity",
        "block 1 feature experts,\nmax load",
        "block 12 token experts,\ndrop rate",
        "rate",
    ]
    assert figure.get_supxlabel().split("\n")[1:] == [
        "block 1 token experts: load entropy 1, drop rate 0"
    ]
    figure = draw_history(HISTORY, tmp_path / "curves.png")
    assert figure.get_supxlabel() == ""


@pytest.mark.parametrize("later", [(), ("smlp-partial",)])
def test_models_in_one_picture(tmp_path, later):
    histories = {
        "gmlp": {"val_perplexity": [140.0], "seconds": [9.0]},
        "smlp-partial": {"val_perplexity": [137.25], "seconds": [20.0]},
    }
    path = tmp_path / "comparison.png"
    figure = plot_comparison(histories, 30, path, later)
    by_steps, by_time = figure.axes
    assert by_steps.lines[1].get_xdata().tolist() == [30]
    assert by_time.lines[1].get_xdata().tolist() == [20]
    words = [text.get_text() for text in by_time.get_legend().get_texts()]
    star = "*" if later else ""
    assert words == ["gmlp, 140.0", f"smlp-partial, 137.2{star}"]
    assert figure.get_supxlabel().startswith(star)
    assert bool(figure.get_supxlabel()) == bool(later)
    for axes in figure.axes:
        assert axes.get_xlim()[0] == 0
    figure.canvas.draw()
    ticks = [label.get_text() for label in by_steps.get_yticklabels()]
    assert "138" in ticks
    assert path.stat().st_size > 5_000
