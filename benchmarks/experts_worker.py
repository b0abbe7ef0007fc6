"""The worker of `benchmarks.experts`: one side, a step when asked.

`KERAS_BACKEND` says on which backend.
"""

import argparse
import importlib.metadata
import os
import time

import numpy as np

from benchmarks.protocol import limit_threads
from benchmarks.protocol import peak_memory
from benchmarks.protocol import serve
from benchmarks.protocol import timed

# One sequence, and the sizes of a small layer.
TOKENS, WIDTH, INNER = 2048, 128, 256
# Balanced assignment: as many tokens, to so many experts.
ASSIGNED, EXPERTS = 1024, 8
# Generation: a model of some size, and the one for a laptop.
WRITER = {
    "vocabulary_size": 8_000,
    "sequence_length": 512,
    "hidden_dim": 512,
    "intermediate_dim": 2048,
    "num_experts": 4,
}
LENGTHS = 128, 256, 1024  # other n
NANO = {**WRITER, "sequence_length": 128, "hidden_dim": 128}
NANO["intermediate_dim"] = 512


def ready(outputs):
    """Waits for what a backend computes behind one's back."""
    from keras import ops

    return ops.convert_to_numpy(outputs)


def layer_of(kind, experts):
    """A layer with experts, built, and its input."""
    import keras

    x = np.random.default_rng(0).normal(size=(1, TOKENS, WIDTH))
    x = keras.ops.convert_to_tensor(x.astype("float32"))
    if kind == "mixtral":
        from keras_hub.src.models.mixtral.mixtral_decoder import (
            MixtralSparseMoeBlock,
        )

        # Two matrices in, one out: 2/3 of the width is as many weights.
        layer = MixtralSparseMoeBlock(
            hidden_dim=WIDTH,
            intermediate_dim=INNER * 2 // 3,
            num_experts=experts,
            top_k=1,
        )
        layer(x)
    else:
        from mlp_mixers.layers import SparseTokenExperts

        layer = SparseTokenExperts(experts, INNER, router=kind)
        layer.build(x.shape)
    return layer, x


def call_of(layer, training):
    """The layer as a function of its input, and nothing else."""

    def call(x):
        y = layer(x, training=training)
        return y[0] if isinstance(y, (tuple, list)) else y

    return call


def forward(kind, experts, training):
    from mlp_mixers.ops.compiled import compiled

    layer, x = layer_of(kind, experts)
    run = compiled(call_of(layer, training), layer.variables)
    return lambda: ready(run(x)[0, 0])


def backward(kind, experts):
    """Loss and gradients, without the update."""
    layer, x = layer_of(kind, experts)
    run = gradients(call_of(layer, True), layer)
    return lambda: ready(run(x))


def gradients(call, layer):
    """A compiled function that returns one number of all gradients."""
    backend = os.environ["KERAS_BACKEND"]
    if backend == "jax":
        import jax
        import keras

        others = layer.non_trainable_variables

        def loss(values, x):
            mapping = list(zip(layer.trainable_variables, values))
            mapping += [(v, v.value) for v in others]
            with keras.StatelessScope(state_mapping=mapping):
                return (call(x) ** 2).mean()

        step = jax.jit(jax.grad(loss))

        def run(x):
            values = [v.value for v in layer.trainable_variables]
            return jax.block_until_ready(step(values, x))[-1][:1]

        return run
    if backend == "tensorflow":
        import tensorflow as tf

        @tf.function
        def run(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(call(x) ** 2)
            found = tape.gradient(
                loss, [v.value for v in layer.trainable_variables]
            )
            # All of them, or TensorFlow would leave out what is not asked.
            return [tf.convert_to_tensor(g) for g in found]

        return lambda x: run(x)[-1][:1]

    def run(x):
        layer.zero_grad()
        (call(x) ** 2).mean().backward()
        return layer.trainable_variables[-1].value.grad[:1]

    return run


def update(experts):
    """What touches every weight: a step of AdamW, with gradients at hand."""
    from mlp_mixers.training import AdamW

    layer, _ = layer_of("switch", experts)
    optimizer = AdamW(1e-4, weight_decay=0.01)
    optimizer.build(layer.trainable_variables)
    values = [
        np.full(v.shape, 1e-3, "float32") for v in layer.trainable_variables
    ]
    backend = os.environ["KERAS_BACKEND"]
    if backend == "jax":
        import jax

        step = jax.jit(optimizer.stateless_apply)
        state = [v.value for v in optimizer.variables]
        weights = [v.value for v in layer.trainable_variables]
        return lambda: jax.block_until_ready(step(state, values, weights))
    import keras

    tensors = [keras.ops.convert_to_tensor(v) for v in values]
    if backend == "tensorflow":
        import tensorflow as tf

        apply = tf.function(lambda: optimizer.apply(tensors))
        return lambda: apply()
    return lambda: optimizer.apply(tensors)


def assignment():
    import keras

    from mlp_mixers.ops import balanced_assignment
    from mlp_mixers.ops.compiled import compiled

    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1, ASSIGNED, EXPERTS)).astype("float32")
    scores = keras.ops.convert_to_tensor(scores)
    run = compiled(balanced_assignment, [])
    return lambda: ready(run(scores))


def writer_of(sizes, blocks):
    from mlp_mixers.models import SMLPBackbone
    from mlp_mixers.models import SMLPCausalLM
    from mlp_mixers.models.generation import Writer

    sparse = blocks // 4
    backbone = SMLPBackbone(
        num_dense_blocks=blocks - sparse,
        num_sparse_blocks=sparse,
        router="switch",
        **sizes,
    )
    return Writer(SMLPCausalLM(backbone))


def step_of_writing(sizes, blocks, place=None):
    """One more token, near the end of the text unless told."""
    writer = writer_of(sizes, blocks)
    n = sizes["sequence_length"]
    place = n - 2 if place is None else place
    tokens = np.random.default_rng(0).integers(4, 8_000, (1, place))
    _, _, caches = writer.prefill(tokens.astype("int32"), np.array([place]))
    token, at = np.array([5], "int32"), np.array([place], "int32")
    return lambda: ready(writer.step(token, caches, at)[1])


def whole_forward(sizes, blocks):
    """All tokens again, and the logits of the last one."""
    writer = writer_of(sizes, blocks)
    n = sizes["sequence_length"]
    tokens = np.random.default_rng(0).integers(4, 8_000, (1, n))
    tokens = tokens.astype("int32")
    return lambda: ready(writer.prefill(tokens, np.array([n]))[1])


SIDES = {
    **{
        f"{kind}-{experts}-forward": (forward, kind, experts, True)
        for kind in ("switch", "mixtral")
        for experts in (4, 16, 64)
    },
    **{
        f"{kind}-{experts}-backward": (backward, kind, experts)
        for kind in ("switch", "mixtral")
        for experts in (4, 64)
    },
    **{
        f"switch-{experts}-inference": (forward, "switch", experts, False)
        for experts in (4, 16, 64)
    },
    **{f"update-{experts}": (update, experts) for experts in (4, 64)},
    "assignment": (assignment,),
    "step": (step_of_writing, WRITER, 12),
    "step-early": (step_of_writing, WRITER, 12, 64),
    **{
        f"step-{n}": (step_of_writing, {**WRITER, "sequence_length": n}, 12)
        for n in LENGTHS
    },
    "whole": (whole_forward, WRITER, 12),
    "nano-step": (step_of_writing, NANO, 4),
    "nano-whole": (whole_forward, NANO, 4),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    limit_threads(arguments.threads)
    start = time.perf_counter()
    make, *rest = SIDES[arguments.side]
    step = make(*rest)
    built = time.perf_counter() - start
    backend = os.environ["KERAS_BACKEND"]
    versions = {
        name: importlib.metadata.version(name)
        for name in ("keras", "keras-hub", backend)
    }
    serve(
        {
            "start": lambda: {"build": built, "versions": versions},
            "step": timed(step),
            "memory": peak_memory,
        }
    )


if __name__ == "__main__":
    main()
