"""What every public layer and every public model must do.

`check_layer` and `check_model` take one declaration from `tests.cases` and
run it through the whole contract on the backend at hand. The reload in a
fresh process is in `test_fresh_process.py`, one process for all of them.
"""

import dataclasses
import inspect
import json

import keras
import numpy as np
from keras import ops

from tests.cases import as_model
from tests.cases import random_inputs
from tests.cases import randomize

# bfloat16 has 8 bits of mantissa; layers chain about ten roundings.
HALF_PRECISION = {"rtol": 0.1, "atol": 0.1}


def check_layer(case, folder, rng):
    """Puts a layer through the contract.

    Args:
        case: A `LayerCase`.
        folder: Path for files.
        rng: NumPy generator.
    """
    check_config(case.make())
    check_symbolic_call(case)
    if case.any_length:
        check_lengths(case, rng)
    model = randomize(as_model(case), rng)
    check_parameters(model, case)
    check_half_precision(case, model, rng)
    check_training_step(model, case, rng)
    check_reload(model, case, folder, rng)


def check_model(case, folder, rng):
    """Puts a model through the contract; arguments as `check_layer`."""
    model = randomize(case.make(), rng)
    check_config(model)
    assert model.output_shape == case.declared_shape
    check_parameters(model, case)
    check_half_precision(case, model, rng)
    check_training_step(model, case, rng)
    check_reload(model, case, folder, rng)
    check_preset(model, case, folder, rng)
    check_half_precision_training(case, rng)
    check_export(model, case, folder, rng)


def check_config(obj):
    """The configuration holds every argument, is JSON, and rebuilds."""
    config = obj.get_config()
    parameters = inspect.signature(type(obj).__init__).parameters
    expected = {
        name
        for name, parameter in parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    } - {"self", "data_format"}
    assert expected <= set(config), "an argument is missing in get_config"
    assert {"name", "trainable", "dtype"} <= set(config)
    restored = json.loads(json.dumps(config))
    again = type(obj).from_config(restored).get_config()
    assert json.loads(json.dumps(again)) == restored


def check_symbolic_call(case):
    """Batch unknown, length unknown where the layer allows it."""
    shapes = [case.input_shape]
    if case.any_length:
        shapes.append((None, *case.input_shape[1:]))
    for shape in shapes:
        layer = case.make()
        others = {
            name: keras.KerasTensor(
                (None, *s), "int32" if name in case.positions else "float32"
            )
            for name, s in case.extra_inputs.items()
        }
        if case.takes_mask:
            others["mask"] = keras.KerasTensor((None, shape[0]), dtype="bool")
        outputs = layer(keras.KerasTensor((None, *shape)), **others)
        expected = case.output_shape
        if shape[0] is None:
            expected = (None, *expected[1:])
        assert outputs.shape == (None, *expected)


def check_lengths(case, rng):
    """Compiled for unknown length, it computes what it computes for known.

    Only here does a graph meet lengths that are tensors and not numbers.
    """
    inputs = keras.Input((None, *case.input_shape[1:]))
    layer = case.make()
    model = keras.Model(inputs, layer(inputs))
    randomize(model, rng)
    x = random_inputs(dataclasses.replace(case, extra_inputs={}), 2, rng)
    for length in (case.input_shape[0], case.input_shape[0] - 2):
        np.testing.assert_allclose(
            model.predict(x[:, :length], verbose=0),
            ops.convert_to_numpy(layer(x[:, :length])),
            rtol=1e-5,
            atol=1e-5,
        )


def check_parameters(model, case):
    """As many parameters as counted by hand."""
    trainable = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    assert trainable == case.parameters


def check_half_precision(case, model, rng):
    """Both mixed policies: float32 weights, half outputs, similar values."""
    inputs = random_inputs(case, 3, rng)
    expected = call(model, inputs)
    for policy, dtype in (
        ("mixed_bfloat16", "bfloat16"),
        ("mixed_float16", "float16"),
    ):
        half = as_model(case, dtype=policy)
        half.set_weights(model.get_weights())
        assert {w.dtype for w in half.trainable_weights} <= {"float32"}
        outputs = half(inputs)
        dtype = getattr(case, "output_dtype", None) or dtype
        assert keras.backend.standardize_dtype(outputs.dtype) == dtype
        outputs = ops.convert_to_numpy(ops.cast(outputs, "float32"))
        if case.idle:  # some tokens may go to other experts
            assert np.isfinite(outputs).all()
            continue
        np.testing.assert_allclose(outputs, expected, **HALF_PRECISION)


def check_training_step(model, case, rng):
    """One epoch of `fit` with a ragged last batch moves every weight.

    Those that the case names as without effect it must leave where they are.
    """
    inputs = random_inputs(case, 5, rng)
    targets = rng.normal(size=(5, *case.output_shape)).astype("float32")
    before = [np.array(w) for w in model.get_weights()]
    without_effect = getattr(case, "without_effect", ())
    keras.Model.compile(model, optimizer=keras.optimizers.SGD(0.1), loss="mse")
    history = model.fit(inputs, targets, batch_size=3, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    for weight, old in zip(model.weights, before):
        if weight.trainable:
            moved = abs(ops.convert_to_numpy(weight) - old).max()
            if weight.path.endswith(without_effect):
                assert moved < 1e-5, f"{weight.path} does have an effect"
            else:
                assert moved > 0, f"{weight.path} got no gradient"


def check_reload(model, case, folder, rng):
    """A `.keras` file gives back the same function and the same names."""
    path = folder / f"{case.name}.keras"
    model.save(path)
    again = keras.saving.load_model(path)
    inputs = random_inputs(case, 3, rng)
    np.testing.assert_allclose(
        call(again, inputs), call(model, inputs), rtol=1e-6, atol=1e-6
    )
    assert [layer.name for layer in again.layers] == [
        layer.name for layer in model.layers
    ]


def check_preset(model, case, folder, rng):
    """`from_preset(save_to_preset)` gives back the same function."""
    preset = folder / f"{case.name}_preset"
    model.save_to_preset(preset)
    again = type(model).from_preset(preset)
    inputs = random_inputs(case, 3, rng)
    np.testing.assert_allclose(
        call(again, inputs), call(model, inputs), rtol=1e-6, atol=1e-6
    )
    fresh = type(model).from_preset(preset, load_weights=False)
    assert abs(call(fresh, inputs) - call(model, inputs)).max() > 1e-3


def check_half_precision_training(case, rng):
    """A training step under mixed_bfloat16 stays finite."""
    model = randomize(as_model(case, dtype="mixed_bfloat16"), rng)
    targets = rng.normal(size=(4, *case.output_shape)).astype("float32")
    keras.Model.compile(model, optimizer=keras.optimizers.SGD(0.01), loss="mse")
    model.fit(random_inputs(case, 4, rng), targets, verbose=0)
    for weight in model.get_weights():
        assert np.isfinite(weight).all()


def check_export(model, case, folder, rng):
    """The exported model, in its own runtime, computes the same.

    A SavedModel from TensorFlow and JAX, a `torch.export` program from
    PyTorch; in both the batch size stays free. The length of a text is fixed.
    """
    inputs = random_inputs(case, 3, rng)
    expected = call(model, inputs)
    if keras.backend.backend() == "torch":
        import torch

        path = folder / f"{case.name}.pt2"
        batch = {0: torch.export.Dim("batch", min=1, max=64)}
        tensors = keras.tree.map_structure(torch.tensor, inputs)
        model.export(
            path,
            format="torch",
            input_signature=export_signature(inputs),
            dynamic_shapes=(keras.tree.map_structure(lambda _: batch, inputs),),
            verbose=False,
        )
        program = torch.export.load(path).module()
        outputs = program(tensors).detach().numpy()
    else:
        path = folder / f"{case.name}_saved_model"
        model.export(
            path,
            format="tf_saved_model",
            input_signature=export_signature(inputs),
            verbose=False,
        )
        import tensorflow as tf

        loaded = tf.saved_model.load(path)  # owns the variables
        outputs = loaded.serve(inputs).numpy()
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


def export_signature(inputs):
    """`None` where the model says it all; a fixed length for texts."""
    if not isinstance(inputs, dict):
        return None
    return [
        {
            name: keras.InputSpec(
                shape=(None, *array.shape[1:]), dtype=array.dtype, name=name
            )
            for name, array in inputs.items()
        }
    ]


def call(model, inputs):
    """The output in inference as an array."""
    return ops.convert_to_numpy(model(inputs, training=False))
