"""Stop a training, go on later, and end as if nothing had happened.

Keras's own `BackupAndRestore` keeps weights and optimiser. It forgets the
states of the seed generators (dropout, stochastic depth), the best value so
far and the history, so a resumed run becomes another run.
"""

import json
import os
import pathlib
import sys
import zipfile

import keras
import numpy as np

STATE_FILE = "state.npz"
BEST_FILE = "best.npz"
# What the state file holds beside arrays.
STATE_KEYS = ("epochs_done", "history", "best", "best_epoch", "identity")


class TrainingCheckpoint(keras.callbacks.Callback):
    """Saves, after every epoch, all that training goes on from.

    Weights, the states of all seed generators, the optimiser with its moving
    averages, the number of epochs done, the history, and the best value of
    `monitor` with the weights that reached it. An epoch that was broken off
    is repeated. Files are replaced as a whole, so that a kill at any moment
    leaves a good one. An epoch whose loss or weights are not finite is never
    saved.

    Resumed on the same machine with as many threads, a training ends with the
    same weights, bit for bit, if its data are a function of the epoch
    (`mlp_mixers.data.ImageBatches` are; give them `first_epoch`).

    Args:
        folder: Path of the folder for `state.npz` and `best.npz`.
        monitor: Name in the logs whose best value is remembered; `None` for
            no best.
        mode: `"max"` or `"min"`: what is better.
        identity: Dictionary, as JSON, of what must not change between the
            parts of a training (settings, data). Compared by `restore`.

    Raises:
        ValueError: If `mode` is another word.

    Example:

    ```python
    checkpoint = TrainingCheckpoint("runs/vision/checkpoint")
    first_epoch = checkpoint.restore(model)  # 0 if there is nothing yet
    model.fit(
        batches, epochs=60, initial_epoch=first_epoch, callbacks=[checkpoint]
    )
    checkpoint.load_best(model)
    ```
    """

    def __init__(
        self, folder, monitor="val_accuracy", mode="max", identity=None
    ):
        super().__init__()
        if mode not in ("max", "min"):
            raise ValueError(
                f"`mode` must be 'max' or 'min'. Received: mode={mode!r}"
            )
        self.folder = pathlib.Path(folder)
        self.monitor = monitor
        self.mode = mode
        # As it will come back.
        self.identity = json.loads(json.dumps(identity, default=str))
        self.epochs_done = 0
        self.history = {}
        self.best = None
        self.best_epoch = None
        self._torch_state = {}

    def restore(self, model):
        """Puts a compiled model where the last saved epoch left it.

        Args:
            model: The model that is to go on; compiled.

        Returns:
            Number of epochs done, for `fit(initial_epoch=)`; 0 if nothing has
            been saved.

        Raises:
            ValueError: If what was saved belongs to another model, optimiser
                or `identity`, or the file is damaged.
        """
        path = self.folder / STATE_FILE
        if not path.exists():
            return 0
        state, arrays = _read(path, STATE_KEYS)
        if state["identity"] != self.identity:
            raise ValueError(
                f"{path} was saved by a training with other settings or "
                f"data: {_differences(state['identity'], self.identity)}. Go "
                "on with the same, or start in another folder."
            )
        model.optimizer.build(model.trainable_variables)
        variables = _variables(model)
        _check_fit(path, arrays, variables)
        for name, variable in variables.items():
            variable.assign(arrays[name])
        self._torch_state = _torch_part(arrays)
        self.epochs_done = state["epochs_done"]
        self.history = state["history"]
        self.best, self.best_epoch = state["best"], state["best_epoch"]
        return self.epochs_done

    def load_best(self, model):
        """Loads the weights of the best epoch.

        Returns:
            `(epoch, value)`, the epoch counted from 1; `None` if there is no
            best, and then the weights stay as they are.
        """
        path = self.folder / BEST_FILE
        if self.best_epoch is None or not path.exists():
            return None
        _, arrays = _read(path)
        weights = _weights(model)
        _check_fit(path, arrays, weights)
        for name, variable in weights.items():
            variable.assign(arrays[name])
        return self.best_epoch, self.best

    def on_train_batch_begin(self, batch, logs=None):
        # An epoch draws on from where the last one ended, whatever validation
        # and data loaders have drawn in between, so that it can be repeated.
        if batch == 0:
            _set_torch_state(self._torch_state)

    def on_epoch_end(self, epoch, logs=None):
        logs = {name: float(value) for name, value in (logs or {}).items()}
        if not np.isfinite(logs.get("loss", 0.0)):
            return
        arrays = _as_arrays(_variables(self.model))
        if not all(np.isfinite(array).all() for array in arrays.values()):
            return
        self._torch_state = _torch_state()
        arrays |= self._torch_state
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)
        self.epochs_done = epoch + 1
        if self._is_best(logs):
            self.best, self.best_epoch = logs[self.monitor], epoch + 1
            _write(
                self.folder / BEST_FILE,
                {"epoch": epoch + 1, "value": self.best},
                _as_arrays(_evaluated_weights(self.model)),
            )
        state = {
            "epochs_done": self.epochs_done,
            "history": self.history,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "identity": self.identity,
        }
        _write(self.folder / STATE_FILE, state, arrays)

    def _is_best(self, logs):
        if self.monitor is None or self.monitor not in logs:
            return False
        value = logs[self.monitor]
        if self.best is None:
            return bool(np.isfinite(value))
        return value > self.best if self.mode == "max" else value < self.best


def _variables(model):
    """All that a step changes: weights, seed states, optimiser, by name."""
    found = {f"model/{i}": v for i, v in enumerate(model.variables)}
    found |= {
        f"optimizer/{i}": v for i, v in enumerate(model.optimizer.variables)
    }
    # Random layers that were given no seed draw from this one.
    found["global_seed"] = _global_seed_generator().state
    return found


def _weights(model):
    return {f"weight/{i}": v for i, v in enumerate(model.weights)}


def _evaluated_weights(model):
    """The weights that validation has seen: averages, if there are any.

    `keras.callbacks.SwapEMAWeights` shows validation the moving averages, and
    has taken them back when the epoch ends.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    averages = {}
    if optimizer.use_ema:
        averages = {
            id(variable): average
            for variable, average in zip(
                model.trainable_variables,
                optimizer._model_variables_moving_average,
            )
        }
    return {
        name: averages.get(id(variable), variable)
        for name, variable in _weights(model).items()
    }


def _global_seed_generator():
    """Keras's generator for random functions without a seed.

    There is no public way to it.
    """
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator()


def _torch_state():
    """PyTorch's own random state, where PyTorch is loaded.

    Keras's dropout draws from it there when its layer was given no seed.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    states = {"torch/cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        for i, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"torch/cuda/{i}"] = state
    return {name: state.numpy() for name, state in states.items()}


def _torch_part(arrays):
    return {k: v for k, v in arrays.items() if k.startswith("torch/")}


def _set_torch_state(arrays):
    torch = sys.modules.get("torch")
    if torch is None or not arrays:
        return
    torch.set_rng_state(torch.from_numpy(arrays["torch/cpu"]))
    on_cuda = [name for name in arrays if name != "torch/cpu"]
    if len(on_cuda) == torch.cuda.device_count():
        for i, name in enumerate(on_cuda):
            torch.cuda.set_rng_state(torch.from_numpy(arrays[name]), i)


def _as_arrays(variables):
    return {
        name: keras.ops.convert_to_numpy(variable)
        for name, variable in variables.items()
    }


def _check_fit(path, arrays, variables):
    arrays = {k: v for k, v in arrays.items() if k not in _torch_part(arrays)}
    wrong = [
        f"{name} ({variable.path}) {tuple(variable.shape)}"
        for name, variable in variables.items()
        if name not in arrays or arrays[name].shape != tuple(variable.shape)
    ]
    if wrong or len(arrays) != len(variables):
        raise ValueError(
            f"{path} was saved by another model or optimizer: it holds "
            f"{len(arrays)} arrays, here are {len(variables)} variables"
            f"{', the first that differs is ' + wrong[0] if wrong else ''}."
        )


def _differences(saved, wanted):
    """What differs between two dictionaries, in words."""
    if not (isinstance(saved, dict) and isinstance(wanted, dict)):
        return f"saved {saved}, now {wanted}"
    keys = [k for k in {**saved, **wanted} if saved.get(k) != wanted.get(k)]
    return ", ".join(
        f"{key}: saved {saved.get(key)!r}, now {wanted.get(key)!r}"
        for key in keys
    )


def _write(path, state, arrays):
    """Writes a file beside, then moves it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    dtypes = {name: array.dtype.name for name, array in arrays.items()}
    text = json.dumps({**state, "dtypes": dtypes})
    # NumPy's files do not know bfloat16; its bits are 16-bit integers.
    plain = {
        name: array.view("uint16") if dtypes[name] == "bfloat16" else array
        for name, array in arrays.items()
    }
    # Its own name, should two processes go on with one training.
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    with open(unfinished, "wb") as file:
        np.savez(file, state=np.array(text), **plain)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def _read(path, keys=()):
    """Returns `(state, arrays)` as they were written."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        state = json.loads(str(arrays.pop("state")))
        dtypes = state.pop("dtypes")
        for name in keys:
            state[name]
        for name, array in arrays.items():
            if dtypes[name] == "bfloat16":
                import ml_dtypes

                arrays[name] = array.view(ml_dtypes.bfloat16)
    # A broken file fails wherever its first broken byte is read.
    except (
        *(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError),
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(
            f"{path} is damaged, or is no checkpoint of a training: "
            f"{type(error).__name__}: {error}"
        ) from error
    return state, arrays
