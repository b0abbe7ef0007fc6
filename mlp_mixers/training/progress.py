"""One progress bar for a whole training."""

import keras

from mlp_mixers.training.routing_metrics import routing_records

# So wide are the lines of a log.
LOG_WIDTH = 100


class ProgressBar(keras.callbacks.Callback):
    """Shows epochs, time left and the latest metrics.

    Keras draws a bar for every epoch, which is right for long epochs and a
    flood for short ones. The bar has a line, the metrics another one: as many
    as fit, the loss first, then what else is measured in training, then the
    same of held-out data, and what layers keep last. What `RoutingMetrics`
    tells of experts has a line of its own, means over the layers, without the
    losses whose weight is 0. Where the output is not a terminal, the lines are
    printed about every tenth of the training instead. Use it with
    `fit(verbose=0)`.

    Args:
        console: The `rich.console.Console` to draw on; that of the process if
            `None`.
    """

    def __init__(self, console=None):
        super().__init__()
        self._console = console
        self._live = None

    def on_train_begin(self, logs=None):
        # Here, so that importing the package does not import rich.
        from rich import console
        from rich import live

        self._console = self._console or console.Console()
        self._epochs = self.params["epochs"]
        self._metrics = {}
        self._bar = None
        self._live = live.Live(
            get_renderable=self._picture, console=self._console
        )

    def on_epoch_begin(self, epoch, logs=None):
        # The first epoch is known here only, and with it what is left.
        if self._bar is None:
            self._of_layers = self._metrics_of_layers()
            self._of_experts = _metrics_of_experts(self.model)
            self._bar = _bar(self._console, self._epochs, epoch)
            if self._console.is_terminal:
                self._live.start()
        self._update(completed=epoch, epoch=epoch + 1)

    def on_train_batch_end(self, batch, logs=None):
        self._metrics.update(logs or {})
        self._update(state="")
        if self.params["steps"]:
            self._bar.advance(self._bar.task_ids[0], 1 / self.params["steps"])

    def on_epoch_end(self, epoch, logs=None):
        self._metrics.update(logs or {})
        self._update(completed=epoch + 1, state="")
        tenth = max(1, self._epochs // 10)
        at_tenth = (epoch + 1) % tenth == 0 or epoch in (0, self._epochs - 1)
        if not self._console.is_terminal and at_tenth:
            begin = f"epoch {epoch + 1}/{self._epochs}  "
            print(
                begin + _line(self._sorted(), LOG_WIDTH - len(begin), ""),
                *self._experts(LOG_WIDTH),
                sep="\n",
                flush=True,
            )

    def on_train_end(self, logs=None):
        self.close()

    def close(self):
        """Leaves the terminal as it was, also after an interruption."""
        if self._live is not None:
            self._live.stop()

    def _update(self, **fields):
        self._bar.update(self._bar.task_ids[0], **fields)

    def _picture(self):
        """What stands in the terminal now."""
        from rich.console import Group
        from rich.text import Text

        if self._bar is None:
            return Text()
        # The last column stays empty: some terminals break the line there.
        width = self._console.width - 1
        lines = [_line(self._sorted(), width), *self._experts(width)]
        return Group(
            self._bar,
            *(Text(line, no_wrap=True, overflow="crop") for line in lines),
        )

    def _metrics_of_layers(self):
        """The names of metrics that are not of the model itself.

        Asked for before the first step: within one, `self.model` makes Keras
        put the weights back into the model on JAX, and the thread that draws
        must never do that.
        """
        names = {
            metric.name
            for layer in self.model.layers
            for metric in layer.metrics
        }
        return names - {"loss"}

    def _sorted(self):
        """The metrics that are not of experts, what matters first."""

        def place(name):
            plain = name.removeprefix("val_")
            held_out = plain != name
            # Of held-out data, a loss says less than the metrics beside it.
            loss = held_out if plain == "loss" else not held_out
            return (
                plain in self._of_layers,
                held_out,
                loss,
                plain != "perplexity",
            )

        names = self._metrics.keys() - self._of_experts.keys()
        # By name first, so that equal places keep an order.
        names = sorted(sorted(names), key=place)
        return {name: self._metrics[name] for name in names}

    def _experts(self, width):
        """The line of the experts: none where there are none, or no epoch."""
        values = {}
        for name, short in self._of_experts.items():
            if short is not None and name in self._metrics:
                values.setdefault(short, []).append(self._metrics[name])
        means = {short: sum(v) / len(v) for short, v in values.items()}
        begin = "experts: "
        return [begin + _line(means, width - len(begin))] if means else []


def _metrics_of_experts(model):
    """`{name in the logs: name without the layer's}`; `None` for a loss that
    the training leaves out.

    Also asked for before the first step.
    """
    found = {}
    for layer, record in routing_records(model):
        router = getattr(layer, "router", None)
        for name in record.names:
            weight = 1.0
            if name in record.losses:
                weight = getattr(layer, f"{name}_weight", 1.0)
                weight = getattr(router, "loss_weights", {}).get(name, weight)
            found[f"{layer.name}_{name}"] = name if weight else None
    return found


def _bar(console, epochs, first):
    """A bar of as many columns as fit beside the rest of its line."""
    from rich import progress

    beside = len(f"training  epoch {epochs}/{epochs}  0:00:00  compiling ")
    bar = progress.Progress(
        progress.TextColumn("training"),
        progress.BarColumn(max(4, min(40, console.width - beside))),
        progress.TextColumn("epoch {task.fields[epoch]}/{task.total:.0f}"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[state]}"),
        console=console,
    )
    bar.add_task(
        "training",
        total=epochs,
        completed=first,
        epoch=first + 1,
        state="compiling",
    )
    return bar


def _line(metrics, width, left="  +{}"):
    """Names and values of as many metrics as fit.

    Args:
        metrics: Dictionary of numbers.
        width: Of the line.
        left: What says how many do not.
    """
    parts = [f"{name} {_short(value)}" for name, value in metrics.items()]
    for count in range(len(parts), -1, -1):
        line = "  ".join(parts[:count])
        if count < len(parts):
            line += left.format(len(parts) - count)
        if len(line) <= width:
            return line.lstrip()
    return ""


def _short(value):
    """Three digits behind the point; fewer of a large number, and what a
    small one has of them."""
    if value != 0 and abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
