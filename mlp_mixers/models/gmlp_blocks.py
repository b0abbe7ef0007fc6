"""What image and text backbones of gMLP share: how they make their blocks."""

import keras

from mlp_mixers.layers import GMLPBlock


def block_maker(kernel_initializer, bias_initializer, **arguments):
    """A function `(drop_path_rate, name)` that returns a `GMLPBlock`.

    Args:
        kernel_initializer: Of the spatial matrices, each with its own draws.
        bias_initializer: The same of the spatial biases.
        **arguments: The rest of `GMLPBlock`'s.
    """

    def make_block(rate, name):
        return GMLPBlock(
            drop_path_rate=rate,
            kernel_initializer=_clone(kernel_initializer),
            bias_initializer=_clone(bias_initializer),
            name=name,
            **arguments,
        )

    return make_block


def block_config(block):
    """The arguments of a backbone that its blocks know, for `get_config`."""
    config = block.get_config()
    shared = (
        *("intermediate_dim", "attention_dim", "gate", "num_heads"),
        *("toeplitz", "activation", "epsilon", "gate_epsilon"),
        *("kernel_initializer", "bias_initializer"),
    )
    return {name: config[name] for name in shared}


def _clone(initializer):
    """A fresh initializer for each block: a shared one repeats its draws."""
    initializer = keras.initializers.get(initializer)
    return initializer and initializer.clone()
