"""An interrupted training ends where an uninterrupted one does."""

import io
import itertools

import keras
import numpy as np
import pytest

from mlp_mixers.models import GMLPBackbone
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.training import TrainingCheckpoint
from mlp_mixers.training import warmup_cosine

EPOCHS = 4


class Batches(keras.utils.PyDataset):
    """Random images that are a function of the epoch."""

    def __init__(self, first_epoch=0):
        super().__init__()
        self.epoch = first_epoch

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rng = np.random.default_rng([self.epoch, index])
        images = rng.normal(size=(5, 4, 4, 1)).astype("float32")
        return images, rng.integers(0, 3, 5)

    def on_epoch_end(self):
        self.epoch += 1


class Interrupt(keras.callbacks.Callback):
    """Breaks an epoch off in its middle."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch_to_break = epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.now = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.now, batch) == (self.epoch_to_break, 1):
            raise KeyboardInterrupt


def nano(ema=False, **changes):
    """Everything random in it: dropout, stochastic depth, a user's layer."""
    keras.utils.set_random_seed(1)
    sizes = {"num_layers": 1, "hidden_dim": 6, "intermediate_dim": 8}
    backbone = GMLPBackbone((4, 4, 1), 2, drop_path_rate=0.3, **sizes)
    model = GMLPImageClassifier(
        backbone, num_classes=3, dropout_rate=0.3, **changes
    )
    model.compile(
        keras.optimizers.SGD(
            warmup_cosine(0.05, 3 * EPOCHS, 2),
            momentum=0.9,
            use_ema=ema,
            ema_momentum=0.8,
        )
    )
    return model


def fit(model, checkpoint, *callbacks, ema=False):
    first = checkpoint.restore(model)
    extra = [keras.callbacks.SwapEMAWeights()] if ema else []
    rng = np.random.default_rng(0)
    validation = (
        rng.normal(size=(6, 4, 4, 1)).astype("float32"),
        rng.integers(0, 3, 6),
    )
    return model.fit(
        Batches(first),
        epochs=EPOCHS,
        initial_epoch=first,
        validation_data=validation,
        shuffle=False,
        verbose=0,
        callbacks=[*extra, checkpoint, *callbacks],
    )


@pytest.mark.parametrize(
    "ema", [pytest.param(False, marks=pytest.mark.slow), True]
)
def test_the_same_end_bit_for_bit(ema, tmp_path):
    whole = nano(ema)
    straight = TrainingCheckpoint(tmp_path / "whole")
    history = fit(whole, straight, ema=ema).history

    with pytest.raises(KeyboardInterrupt):
        fit(
            nano(ema),
            TrainingCheckpoint(tmp_path / "parts"),
            Interrupt(2),
            ema=ema,
        )
    parts = nano(ema)
    keras.random.uniform((2,))  # whatever happens in between
    pieced = TrainingCheckpoint(tmp_path / "parts")
    fit(parts, pieced, ema=ema)

    for a, b in itertools.chain(
        zip(whole.variables, parts.variables),
        zip(whole.optimizer.variables, parts.optimizer.variables),
    ):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b)
        )
    assert pieced.history == straight.history
    assert pieced.history["loss"] == pytest.approx(history["loss"])
    assert (pieced.best, pieced.best_epoch) == (
        straight.best,
        straight.best_epoch,
    )


@pytest.mark.parametrize(
    "ema", [pytest.param(False, marks=pytest.mark.slow), True]
)
def test_the_best_weights_are_those_that_were_evaluated(ema, tmp_path):
    model = nano(ema)
    checkpoint = TrainingCheckpoint(tmp_path, "val_loss", "min")
    fit(model, checkpoint, ema=ema)
    values = checkpoint.history["val_loss"]
    epoch, value = checkpoint.load_best(model)
    assert value == min(values) == values[epoch - 1]
    rng = np.random.default_rng(0)
    images = rng.normal(size=(6, 4, 4, 1)).astype("float32")
    loss = model.evaluate(images, rng.integers(0, 3, 6), verbose=0)[0]
    assert loss == pytest.approx(value, rel=1e-5)


def test_a_loss_that_is_not_a_number_is_not_saved(tmp_path):
    model = nano()
    checkpoint = TrainingCheckpoint(tmp_path)
    checkpoint.set_model(model)
    model.optimizer.build(model.trainable_variables)
    checkpoint.on_epoch_end(0, {"loss": 1.0, "val_accuracy": 0.5})
    good = (tmp_path / "state.npz").read_bytes()
    checkpoint.on_epoch_end(1, {"loss": float("nan"), "val_accuracy": 0.9})
    model.head.bias.assign(np.full(3, np.nan))
    checkpoint.on_epoch_end(2, {"loss": 1.0, "val_accuracy": 0.9})
    assert (tmp_path / "state.npz").read_bytes() == good
    assert checkpoint.best == 0.5
    again = nano()
    assert TrainingCheckpoint(tmp_path).restore(again) == 1
    assert np.isfinite(keras.ops.convert_to_numpy(again.head.bias)).all()


def saved(folder, **arguments):
    model = nano()
    checkpoint = TrainingCheckpoint(folder, **arguments)
    checkpoint.set_model(model)
    model.optimizer.build(model.trainable_variables)
    checkpoint.on_epoch_end(0, {"loss": 1.0})


def test_another_model_or_setting(tmp_path):
    saved(tmp_path, identity={"batch_size": 5, "data": "digits"})
    same = {"data": "digits", "batch_size": 5}
    with pytest.raises(ValueError, match="batch_size: saved 5, now 6"):
        TrainingCheckpoint(
            tmp_path, identity={**same, "batch_size": 6}
        ).restore(nano())
    other = GMLPImageClassifier(
        GMLPBackbone((4, 4, 1), 2, 1, 6, 8), num_classes=3
    )
    other.compile()
    with pytest.raises(ValueError, match="by another model or optimizer"):
        TrainingCheckpoint(tmp_path, identity=same).restore(other)
    assert TrainingCheckpoint(tmp_path, identity=same).restore(nano()) == 1


def as_npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_nothing_saved_and_damaged(tmp_path):
    assert TrainingCheckpoint(tmp_path / "new").restore(nano()) == 0
    saved(tmp_path)
    path = tmp_path / "state.npz"
    whole = path.read_bytes()
    np.save(tmp_path / "array.npy", np.zeros(3))
    for damaged in (
        whole[:500],
        b"",
        (tmp_path / "array.npy").read_bytes(),
        as_npz(state=np.array("[1]")),
        as_npz(state=np.array("{}")),
        as_npz(other=np.zeros(3)),
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged"):
            TrainingCheckpoint(tmp_path).restore(nano())
    with pytest.raises(ValueError, match="mode='best'"):
        TrainingCheckpoint(tmp_path, mode="best")


def test_bfloat16_comes_back(tmp_path):
    keras.config.set_dtype_policy("bfloat16")
    saved(tmp_path)
    model = nano()
    before = [np.array(w) for w in model.get_weights()]
    model.head.bias.assign(np.ones(3))
    TrainingCheckpoint(tmp_path).restore(model)
    for a, b in zip(model.get_weights(), before):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
