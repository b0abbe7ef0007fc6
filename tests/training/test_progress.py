import io

import keras
import numpy as np
import pytest
from rich.console import Console

from mlp_mixers.layers import SparseFeatureExperts
from mlp_mixers.layers import SparseTokenExperts
from mlp_mixers.layers import SwitchRouter
from mlp_mixers.training import ProgressBar
from mlp_mixers.training import RoutingMetrics
from mlp_mixers.training import progress

WIDTHS = (80, 100, 200)


class Expert(keras.layers.Layer):
    """A layer with a metric of its own, under a long name."""

    def __init__(self, number):
        super().__init__()
        name = f"block_{number}_token_experts_drop_rate"
        self.drop_rate = keras.metrics.Mean(name=name)

    def call(self, x):
        return x


class Screens(keras.callbacks.Callback):
    """Keeps what the bar after it in the list shows, line by line."""

    def __init__(self, bar, width):
        super().__init__()
        self.bar, self.width, self.seen = bar, width, {}

    def keep(self, when):
        console = Console(file=io.StringIO(), width=self.width)
        console.print(self.bar._picture())
        self.seen[when] = console.file.getvalue().split("\n")

    def on_epoch_begin(self, epoch, logs=None):
        self.keep(("begin", epoch))

    def on_train_batch_end(self, batch, logs=None):
        self.keep(("batch", batch))

    def on_epoch_end(self, epoch, logs=None):
        self.keep(("end", epoch))


def fit(epochs, callbacks, experts=0, **arguments):
    x = inputs = keras.Input((2,))
    for number in range(experts):
        x = Expert(number)(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    perplexity = keras.metrics.MeanSquaredError(name="perplexity")
    model.compile(
        keras.optimizers.SGD(), loss="mse", metrics=[perplexity, "mae"]
    )
    x, y = np.zeros((8, 2)), np.ones((8, 1))
    return model.fit(
        x,
        y,
        batch_size=4,
        epochs=epochs,
        validation_data=(x, y),
        callbacks=callbacks,
        verbose=0,
        **arguments,
    ).history


def screens(width, epochs=2, **arguments):
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    bar = ProgressBar(console)
    spy = Screens(bar, width)
    history = fit(epochs, [bar, spy], **arguments)
    return spy.seen, history, console.file.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_bar_stays_and_the_metrics_have_a_line(width):
    seen, history, drawn = screens(width, experts=6)
    for (when, number), (bar, metrics, *rest) in seen.items():
        assert rest == [""]
        assert len(bar) <= width
        assert len(metrics) < width
        assert "training " in bar
        epoch = {"begin": number + 1, "end": number + 1, "batch": 2}[when]
        assert f" epoch {epoch}/2 " in bar
        assert ("compiling" in bar) == ((when, number) == ("begin", 0))
    # The loss first, the layers' last, and how many are not shown.
    loss, value = history["loss"][-1], history["perplexity"][-1]
    bar, metrics, _ = seen["end", 1]
    assert "━" * 40 in bar
    assert "0:00:0" in bar
    begin = f"loss {loss:.3f}  perplexity {value:.3f}  mae "
    assert metrics.startswith(begin)
    assert "  val_perplexity " in metrics
    shown = len(metrics.split("  ")) - 1
    assert metrics.endswith(f"  +{2 * (3 + 6) - shown}")
    assert "training" in drawn  # on the console itself


def test_a_wide_terminal_has_all():
    seen, _, _ = screens(200)
    metrics = seen["end", 1][1].split("  ")
    assert [part.split()[0] for part in metrics] == [
        *("loss", "perplexity", "mae"),
        *("val_perplexity", "val_mae", "val_loss"),
    ]


def test_what_is_left_counts_from_the_epoch_that_goes_on():
    seen, _, _ = screens(80, epochs=4, initial_epoch=3)
    bar = seen["begin", 3][0]
    assert "━" * 30 in bar
    assert "━" * 31 not in bar
    assert "epoch 4/4" in bar


def test_lines_where_the_output_is_no_terminal(capsys):
    fit(20, [ProgressBar()])
    lines = capsys.readouterr().out.split("\n")
    lines = [line for line in lines if line.startswith("epoch")]
    assert lines[0].startswith("epoch 1/20  loss ")
    assert lines[-1].startswith("epoch 20/20  loss ")
    assert len(lines) == 11


def test_lines_of_a_log_do_not_grow_with_the_layers(capsys):
    fit(1, [ProgressBar()], experts=9)
    (line,) = capsys.readouterr().out.strip().split("\n")
    assert len(line) <= 100
    assert line.startswith("epoch 1/1  loss ")
    assert "  val_perplexity " in line
    assert "drop_rate" not in line


class Logs(keras.callbacks.Callback):
    """Keeps what the callbacks before it have put into the logs."""

    def on_epoch_end(self, epoch, logs=None):
        self.kept = dict(logs)


def fit_experts(callbacks):
    """Two layers with token experts, one with feature experts."""
    x = inputs = keras.Input((6, 4))
    for number in range(2):
        # The loss on logits has the weight 0.
        router = SwitchRouter(balance_loss_weight=0.01)
        layer = SparseTokenExperts(
            2, 8, router=router, name=f"block_{number}_token_experts"
        )
        x = layer(x)
    feature = SparseFeatureExperts(
        2,
        routing="leaky",
        balance_loss_weight=0.0,
        name="block_1_feature_experts",
    )
    x = feature(x)
    model = keras.Model(inputs, keras.layers.Dense(4)(x))
    model.compile("sgd", "mse")
    x, y = np.ones((4, 6, 4)), np.ones((4, 6, 4))
    model.fit(x, y, epochs=1, callbacks=callbacks, verbose=0)


def test_experts_have_a_line_of_means_without_losses_that_do_not_count(capsys):
    console = Console(file=io.StringIO(), force_terminal=False, width=80)
    bar, logs = ProgressBar(console), Logs()
    fit_experts([RoutingMetrics(), bar, logs])
    metrics, experts = capsys.readouterr().out.strip().split("\n")
    assert "experts" not in metrics
    found = dict(part.split() for part in experts[9:].split("  "))
    assert list(found) == [
        *("load_entropy", "max_load", "drop_rate", "balance_loss")
    ]
    for name, value in found.items():
        of_layers = [
            v for k, v in logs.kept.items() if k.endswith(f"experts_{name}")
        ]
        if name == "balance_loss":  # that of the feature experts counts not
            of_layers = of_layers[:2]
        assert float(value) == pytest.approx(np.mean(of_layers), abs=6e-4)
    screen = Console(file=io.StringIO(), width=80)
    screen.print(bar._picture())
    shown = screen.file.getvalue().split("\n")
    assert [line[:5] for line in shown] == ["train", "loss ", "exper", ""]
    assert max(map(len, shown)) < 80


def test_the_line_of_a_language_model_fits_into_a_log():
    metrics = {
        "loss": 4.9981,
        "perplexity": 148.13,
        "accuracy": 0.2114,
        "val_perplexity": 2140.31,
        "val_accuracy": 0.2304,
        "val_loss": 4.9443,
    }
    bar = ProgressBar()
    bar._metrics = dict(reversed(metrics.items()))
    bar._of_layers, bar._of_experts = set(), {}
    line = progress._line(bar._sorted(), 100 - len("epoch 15/15  "), "")
    assert line == (
        "loss 4.998  perplexity 148.1  accuracy 0.211  val_perplexity 2140.3  "
        "val_accuracy 0.230"
    )


def test_small_numbers_keep_their_digits(capsys):
    class Rate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["rate"] = 0.00012

    fit(1, [Rate(), ProgressBar()])
    assert "rate 0.00012" in capsys.readouterr().out
