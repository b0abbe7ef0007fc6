"""One progress bar for a whole training."""

import keras


class ProgressBar(keras.callbacks.Callback):
    """Shows epochs, time left and the latest metrics on one line.

    Keras draws a bar for every epoch, which is right for long epochs and a
    flood for short ones. Where the output is not a terminal, a line is
    printed about every tenth of the training instead. Use it with
    `fit(verbose=0)`.
    """

    def __init__(self):
        super().__init__()
        self._bar = None

    def on_train_begin(self, logs=None):
        # Here, so that importing the package does not import rich.
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("training"),
            progress.BarColumn(),
            progress.TextColumn("epoch {task.completed:g}/{task.total:g}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[metrics]}"),
        )
        self._is_terminal = self._bar.console.is_terminal
        self._epochs = self.params["epochs"]
        self._task = self._bar.add_task(
            "training", total=self._epochs, metrics="compiling"
        )
        if self._is_terminal:
            self._bar.start()

    def on_train_batch_end(self, batch, logs=None):
        if self._is_terminal and self.params["steps"]:
            self._bar.advance(self._task, 1 / self.params["steps"])

    def on_epoch_end(self, epoch, logs=None):
        metrics = "  ".join(f"{k} {v:.3f}" for k, v in (logs or {}).items())
        self._bar.update(self._task, completed=epoch + 1, metrics=metrics)
        tenth = max(1, self._epochs // 10)
        at_tenth = (epoch + 1) % tenth == 0 or epoch in (0, self._epochs - 1)
        if not self._is_terminal and at_tenth:
            print(f"epoch {epoch + 1}/{self._epochs}  {metrics}", flush=True)

    def on_train_end(self, logs=None):
        self.close()

    def close(self):
        """Leaves the terminal as it was, also after an interruption."""
        if self._bar is not None and self._is_terminal:
            self._bar.stop()
