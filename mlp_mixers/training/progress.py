"""One progress bar for a whole training."""

import keras

# So many metrics stand in a line of a log.
AT_MOST = 12


class ProgressBar(keras.callbacks.Callback):
    """Shows epochs, time left and the latest metrics.

    Keras draws a bar for every epoch, which is right for long epochs and a
    flood for short ones. The bar has a line, the metrics another one: as many
    as fit, those of the held-out data first, and those that layers keep (such
    as the load of experts) last. Where the output is not a terminal, a line is
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
            metrics = _line(self._sorted(), None, AT_MOST)
            print(f"epoch {epoch + 1}/{self._epochs}  {metrics}", flush=True)

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
        metrics = _line(self._sorted(), self._console.width - 1)
        return Group(self._bar, Text(metrics, no_wrap=True, overflow="crop"))

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
        """The metrics, what matters first."""

        def place(name):
            plain = name.removeprefix("val_")
            # A loss says less than the metrics beside it.
            of_layer = plain in self._of_layers
            return of_layer, plain == name, plain == "loss"

        return {k: self._metrics[k] for k in sorted(self._metrics, key=place)}


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


def _line(metrics, width, at_most=None):
    """Names and values of as many metrics as fit, and how many are left.

    Args:
        metrics: Dictionary of numbers.
        width: Of the line; `None` for any.
        at_most: How many metrics; `None` for any number.
    """
    parts = [f"{name} {_short(value)}" for name, value in metrics.items()]
    for count in range(len(parts), -1, -1):
        if at_most is not None and count > at_most:
            continue
        left = len(parts) - count
        line = "  ".join([*parts[:count], *[f"+{left}"] * bool(left)])
        if width is None or len(line) <= width:
            return line
    return ""


def _short(value):
    """Three digits behind the point, or what a small number has of them."""
    return (
        f"{value:.3f}" if value == 0 or abs(value) >= 0.01 else f"{value:.2g}"
    )
