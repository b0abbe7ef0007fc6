import keras
import matplotlib.image
import numpy as np
import pytest

from mlp_mixers.analysis import plot_history
from mlp_mixers.analysis import plot_spatial_matrices
from mlp_mixers.analysis import plot_spatial_weights
from mlp_mixers.layers import GMLPBlock
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import GMLPMaskedLM
from tests.cases import gmlp_nano
from tests.cases import gmlp_text_nano
from tests.cases import randomize
from tests.cases import resmlp_nano


@pytest.fixture
def model(rng):
    backbone = gmlp_nano(image_shape=(4, 9, 3))  # a grid of 2 x 3 patches
    return randomize(GMLPImageClassifier(backbone, num_classes=3), rng)


def pictures(figure):
    """The arrays that are drawn, by row and column."""
    return [axis.images[0].get_array() for axis in filters(figure)]


def filters(figure):
    """The axes of the pictures; the last one is the colour bar."""
    return figure.axes[:-1]


def test_each_picture_is_a_row_of_w_over_the_grid(model, tmp_path):
    figure = plot_spatial_weights(
        model, blocks=[-1], tokens=[0, 4], path=tmp_path / "filters.png"
    )
    w = np.array(model.backbone.blocks[1].gating_unit.get_weights()[0])[0]
    for picture, token in zip(pictures(figure), (0, 4)):
        np.testing.assert_array_equal(picture, w[token].reshape(2, 3))
    # Token 4 is marked at row 1, column 1.
    marker = figure.axes[1].lines[0]
    assert (marker.get_xdata()[0], marker.get_ydata()[0]) == (1, 1)
    assert matplotlib.image.imread(tmp_path / "filters.png").std() > 0


def test_draws_resmlp_too(rng):
    model = randomize(resmlp_nano(image_shape=(4, 9, 3)), rng)
    figure = plot_spatial_weights(model, blocks=[1], tokens=[4])
    w = np.array(model.blocks[1].spatial_projection.get_weights()[0])[0]
    np.testing.assert_array_equal(pictures(figure)[0], w[4].reshape(2, 3))


def test_finds_the_grid_of_a_model_inside_another(model):
    wrapped = keras.Sequential([keras.layers.Rescaling(2.0), model])
    wrapped.build((None, 4, 9, 3))
    assert pictures(plot_spatial_weights(wrapped))[0].shape == (2, 3)


def test_all_blocks_and_all_tokens_of_a_small_model(model):
    assert len(pictures(plot_spatial_weights(model))) == 2 * 6


def test_scale_is_symmetric_and_one_for_a_block(model):
    figure = plot_spatial_weights(model, blocks=[0])
    w = np.array(model.backbone.blocks[0].gating_unit.get_weights()[0])[0]
    for axis in filters(figure):
        low, high = axis.images[0].get_clim()
        np.testing.assert_allclose([-low, high], np.percentile(abs(w), 99))


def test_fresh_model_can_be_drawn():
    plot_spatial_weights(GMLPImageClassifier(gmlp_nano(), num_classes=3))


@pytest.mark.parametrize(("n", "grid"), [(4, (2, 2)), (6, (1, 6))])
def test_a_block_alone_is_drawn_on_a_square_or_a_line(n, grid):
    block = GMLPBlock(12)
    block.build((None, n, 8))
    figure = plot_spatial_weights(block)
    assert pictures(figure)[0].shape == grid


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"blocks": [2]}, r"2 blocks. Received: blocks=\[2\]"),
        ({"tokens": [6]}, r"6 tokens. Received: tokens=\[6\]"),
        ({"tokens": []}, r"one index or more. Received: tokens=\[\]"),
        ({"blocks": 1}, "one index or more. Received: blocks=1"),
        ({"head": 1}, "1 heads. Received: head=1"),
        ({"grid_shape": (2, 2)}, "hold the 6 tokens"),
    ],
)
def test_wrong_choices(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        plot_spatial_weights(model, **arguments)


def test_blocks_of_different_lengths():
    inputs = keras.Input((4, 8)), keras.Input((6, 8))
    blocks = GMLPBlock(12, name="four"), GMLPBlock(12, name="six")
    model = keras.Model(inputs, [b(x) for b, x in zip(blocks, inputs)])
    with pytest.raises(ValueError, match="'four': 4, 'six': 6"):
        plot_spatial_weights(model)
    assert pictures(plot_spatial_weights(model, [1]))[0].shape == (1, 6)


def test_history_pairs_training_and_validation(tmp_path):
    history = {
        "loss": [3.0, 2.0, 1.0],
        "val_loss": [3.0, 2.5, 2.0],
        "accuracy": [0.1, 0.5, 0.9],
    }
    figure = plot_history(history, path=tmp_path / "curves.png")
    loss, accuracy = figure.axes
    assert loss.get_title() == "loss"
    np.testing.assert_array_equal(loss.lines[0].get_ydata(), history["loss"])
    np.testing.assert_array_equal(
        loss.lines[1].get_ydata(), history["val_loss"]
    )
    assert len(accuracy.lines) == 1
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_history_of_what_is_validated_only_and_of_perplexity():
    history = {
        "perplexity": [400.0, 50.0],
        "val_perplexity": [300.0, 60.0],
        "val_f1": [0.2, 0.4],
    }
    figure = plot_history(history, title="a run")
    perplexity, f1 = figure.axes
    assert perplexity.get_yscale() == "log"
    assert f1.get_yscale() == "linear"
    assert f1.get_title() == "f1"
    (line,) = f1.lines
    assert line.get_label() == "validation"
    # Validation has one colour everywhere.
    assert line.get_color() == perplexity.lines[1].get_color()
    np.testing.assert_array_equal(line.get_ydata(), history["val_f1"])
    assert figure._suptitle.get_text() == "a run"


def test_a_legend_stands_where_it_says_something():
    history = {
        "loss": [3.0, 2.0],
        "val_loss": [3.0, 2.0],
        "max_load": [1.4, 1.1],
        "val_f1": [0.2, 0.4],
    }
    figure = plot_history(history)
    named = [axis.get_legend() is not None for axis in figure.axes]
    assert named == [True, False, False]
    # Without another panel, a line has its name.
    figure = plot_history({"val_f1": [0.2, 0.4], "val_accuracy": [0.1, 0.2]})
    named = [axis.get_legend() is not None for axis in figure.axes]
    assert named == [True, False]


def labels(figure):
    """What is written beside the y axis of the first panel."""
    figure.canvas.draw()
    axis = figure.axes[0]
    low, high = axis.get_ylim()
    ticks = zip(axis.get_yticks(), axis.get_yticklabels())
    found = [label.get_text() for at, label in ticks if low <= at <= high]
    extra = axis.yaxis.get_minorticklabels()
    return [*found, *(label.get_text() for label in extra)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([147.0, 137.0], ["138", "140", "142", "144", "146"]),
        ([243.0, 199.0], ["200", "210", "220", "230", "240"]),
        ([900.0, 9.0], ["10", "20", "50", "100", "200", "500", "1000"]),
        ([90.0, 90.0], None),
    ],
)
def test_perplexities_are_plain_numbers(values, expected):
    found = labels(plot_history({"perplexity": values}))
    assert len(found) >= 2
    assert [f"{float(label):g}" for label in found] == found
    if expected is not None:
        assert found == expected


def test_nearly_equal_values_are_written_whole():
    assert "1.00100" in labels(plot_history({"loss": [1.0011, 1.0008]}))


def test_many_metrics_take_several_rows():
    figure = plot_history({f"metric_{i}": [1.0, 2.0] for i in range(9)})
    assert len(figure.axes) == 9
    width, height = figure.get_size_inches()
    assert width < 20
    assert height > 9


@pytest.mark.parametrize("history", [{}, {"loss": []}, {"val_f1": []}])
def test_empty_history(history):
    with pytest.raises(ValueError, match="no epoch to draw"):
        plot_history(history)


def matrices(figure, count):
    """The axes of the matrices and those of the curves; then colour bars."""
    return figure.axes[:count], figure.axes[count : 2 * count]


def test_matrices_are_drawn_whole_and_by_distance(rng, tmp_path):
    backbone = randomize(gmlp_text_nano(toeplitz=False), rng)
    path = tmp_path / "w.png"
    figure = plot_spatial_matrices(backbone, path=path)
    above, below = matrices(figure, 2)
    for block, image, curve in zip(backbone.blocks, above, below):
        w = keras.ops.convert_to_numpy(block.gating_unit.spatial_matrix())[0]
        np.testing.assert_array_equal(image.images[0].get_array(), w)
        low, high = image.images[0].get_clim()
        np.testing.assert_allclose([-low, high], np.percentile(abs(w), 99))
        distances, means = curve.lines[0].get_data()
        assert distances.tolist() == list(range(-5, 6))
        for distance, mean in zip(distances, means):
            entries = [
                w[i, i + distance] for i in range(6) if 0 <= i + distance < 6
            ]
            assert mean == pytest.approx(np.mean(entries), rel=1e-5, abs=1e-7)
    assert below[0].get_ylabel() == "mean weight"
    assert below[0].get_ylim() == below[1].get_ylim()
    assert above[0].get_xlabel() == "token j"
    assert above[0].get_ylabel() == "token i, which takes"
    assert len(above[0].get_xticks()) > 1
    assert matplotlib.image.imread(path).shape[0] > 300
    with pytest.raises(ValueError, match="head=1"):
        plot_spatial_matrices(backbone, head=1)
    with pytest.raises(ValueError, match="2 blocks"):
        plot_spatial_matrices(backbone, blocks=[2])


def test_one_toeplitz_matrix_with_its_title_and_colours(rng):
    backbone = randomize(gmlp_text_nano(num_layers=1), rng)
    figure = plot_spatial_matrices(backbone)
    (above,), (below,) = matrices(figure, 1)
    values = backbone.blocks[0].gating_unit.get_weights()[0]
    assert below.get_ylabel() == "weight"
    drawn = below.lines[0].get_ydata()
    assert sorted(drawn) == pytest.approx(sorted(np.ravel(values)), rel=1e-5)
    # Where the colours end is written at the colour bar.
    limit = above.images[0].get_clim()[1]
    labels = [label.get_text() for label in figure.axes[2].get_xticklabels()]
    assert labels == [f"{-limit:.2g}", f"{limit:.2g}", "0"]
    # The title is whole.
    figure.canvas.draw()
    box = figure._suptitle.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


def test_text_is_not_folded_into_a_square():
    model = GMLPMaskedLM(gmlp_text_nano(sequence_length=64))
    with pytest.raises(ValueError, match="Call `plot_spatial_matrices`"):
        plot_spatial_weights(model)
    with pytest.raises(ValueError, match="Call `plot_spatial_matrices`"):
        plot_spatial_weights(model.backbone)
    figure = plot_spatial_weights(model, grid_shape=(1, 64), tokens=[3])
    assert pictures(figure)[0].shape == (1, 64)
