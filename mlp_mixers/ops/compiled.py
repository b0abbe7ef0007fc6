"""Functions of a model's variables, compiled as the backend compiles."""

import keras


def compiled(function, variables, jit_compile=False):
    """A function that runs compiled, and changes nothing.

    Keras compiles what `fit`, `evaluate` and `predict` do, and offers no way
    to compile anything else; so this is where the backends part.

    - TensorFlow: a `tf.function`.
    - JAX: `jax.jit`, which needs the variables as an argument, or it would
      keep the values they have at first.
    - PyTorch: the function itself, without gradients.

    Args:
        function: Of nested structures of tensors, whose shapes decide when it
            is compiled anew.
        variables: All variables that it reads.
        jit_compile: On TensorFlow, whether to compile by XLA.

    Returns:
        Function of the same arguments.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=jit_compile)
    if backend == "jax":
        import jax

        @jax.jit
        def with_values(values, *arguments):
            mapping = list(zip(variables, values))
            with keras.StatelessScope(state_mapping=mapping):
                return function(*arguments)

        def run(*arguments):
            return with_values([v.value for v in variables], *arguments)

        return run
    if backend == "torch":
        import torch

        return torch.no_grad()(function)
    return function
