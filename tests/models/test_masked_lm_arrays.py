"""How large the arrays of a training step are, by watching the backend."""

import keras
import numpy as np

from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPTextBackbone

# Sizes of which no other product comes near batch · n · V.
BATCH, LENGTH, MASKED, VOCABULARY = 3, 32, 4, 97
EVERYWHERE = BATCH * LENGTH * VOCABULARY


def model_and_batch(rng):
    backbone = GMLPTextBackbone(
        VOCABULARY,
        LENGTH,
        num_layers=1,
        hidden_dim=8,
        intermediate_dim=16,
        attention_dim=4,
    )
    inputs = {
        "token_ids": rng.integers(0, VOCABULARY, (BATCH, LENGTH), "int32"),
        "padding_mask": np.ones((BATCH, LENGTH), "int32"),
        "mask_positions": rng.integers(0, LENGTH, (BATCH, MASKED), "int32"),
    }
    labels = rng.integers(0, VOCABULARY, (BATCH, MASKED), "int32")
    return GMLPMaskedLM(backbone), inputs, labels


def sizes_of_a_step(model, inputs, labels):
    """Numbers of elements of all arrays of a forward and backward pass."""
    loss = model.default_loss()
    backend = keras.backend.backend()
    if backend == "torch":
        return sizes_in_torch(lambda: loss(labels, model(inputs)).backward())
    if backend == "jax":
        return sizes_in_jax(model, loss, inputs, labels)
    return sizes_in_tensorflow(model, loss, inputs, labels)


def sizes_in_torch(run):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    sizes = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(tensor, torch.Tensor):
                    sizes.append(tensor.numel())
            return out

    with Watch():
        run()
    return sizes


def sizes_in_jax(model, loss, inputs, labels):
    import jax

    def step(weights, others):
        y, _ = model.stateless_call(weights, others, inputs)
        return loss(labels, y)

    program = jax.make_jaxpr(jax.grad(step))(
        [v.value for v in model.trainable_variables],
        [v.value for v in model.non_trainable_variables],
    )

    def equations(jaxpr):
        for equation in jaxpr.eqns:
            yield equation
            for parameter in equation.params.values():
                if hasattr(parameter, "jaxpr"):
                    yield from equations(parameter.jaxpr)

    return [
        int(np.prod(v.aval.shape))
        for equation in equations(program.jaxpr)
        for v in equation.outvars
    ]


def sizes_in_tensorflow(model, loss, inputs, labels):
    import tensorflow as tf

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = loss(labels, model(inputs))
        return tape.gradient(
            value, [v.value for v in model.trainable_variables]
        )

    return [
        tensor.shape.num_elements() or 0
        for operation in step.get_concrete_function().graph.get_operations()
        for tensor in operation.outputs
        if tensor.shape.rank is not None
    ]


def test_no_array_holds_logits_of_all_tokens(rng):
    sizes = sizes_of_a_step(*model_and_batch(rng))
    assert BATCH * MASKED * VOCABULARY in sizes  # the masked ones are seen
    assert max(sizes) < EVERYWHERE


def test_a_head_everywhere_would_be_found(rng):
    """That the watch sees what it is there for."""
    model, inputs, labels = model_and_batch(rng)
    inputs["mask_positions"] = np.tile(np.arange(LENGTH, dtype="int32"), (3, 1))
    labels = np.tile(labels, (1, LENGTH // MASKED))
    assert max(sizes_of_a_step(model, inputs, labels)) >= EVERYWHERE


def test_no_matrix_is_kept_for_a_toeplitz_w(rng):
    """Neither among the parameters nor in the optimiser."""
    model, inputs, labels = model_and_batch(rng)
    model.compile()
    model.train_on_batch(inputs, labels, np.ones(labels.shape, "float32"))
    kept = [*model.variables, *model.optimizer.variables]
    sizes = [int(np.prod(variable.shape)) for variable in kept]
    assert 2 * LENGTH - 1 in sizes
    assert LENGTH * LENGTH not in sizes
