"""Which way of writing W·v is fastest, forward and backward?

The spatial projection of a gating unit multiplies every example `v` of shape
`(batch, n, channels)` by one `(n, n)` matrix from the left. `keras.ops` can
say that in several ways that differ in speed by backend, because each one
reaches another kernel and has another gradient. This script times them in
alternation and prints medians, and ratios to what `mlp_mixers.ops` uses.

    export KERAS_BACKEND=torch OMP_WAIT_POLICY=PASSIVE
    python -m benchmarks.spatial_product

The numbers that led to the choice are in `docs/spatial_product.md`.
"""

import argparse
import os
import statistics
import time

import keras
import numpy as np
from keras import ops

from mlp_mixers.ops import spatial_product

# (batch, n, channels): gMLP-Ti and gMLP-S at 224/16, gMLP-base in text, nano.
SHAPES = {
    "tiny_224": (16, 196, 384),
    "small_224": (8, 196, 768),
    "base_en": (4, 512, 1536),
    "nano": (64, 16, 96),
}


def through_dense(w, v):
    """Transpose, multiply as a Dense layer would, transpose back."""
    v = ops.transpose(v, (0, 2, 1))
    return ops.transpose(ops.matmul(v, ops.transpose(w[0])), (0, 2, 1))


def folded(w, v):
    """Lay the batch beside the channels: one (n, n) x (n, batch·channels)."""
    batch, n, channels = v.shape
    columns = ops.reshape(ops.transpose(v, (1, 0, 2)), (n, batch * channels))
    product = ops.reshape(ops.matmul(w[0], columns), (n, batch, channels))
    return ops.transpose(product, (1, 0, 2))


def pointwise_conv(w, v):
    """A 1x1 convolution in which tokens play the part of channels."""
    kernel = ops.transpose(w, (0, 2, 1))
    return ops.conv(v, kernel, data_format="channels_first")


def batched(w, v):
    """A batched product with W repeated for every example."""
    return ops.matmul(ops.broadcast_to(w, (v.shape[0], *w.shape[1:])), v)


def _split(w, v):
    batch, n, channels = v.shape
    return ops.reshape(v, (batch, n, len(w), channels // len(w)))


def folded_heads(w, v):
    """One (n, n) x (n, batch·channels) per head."""
    heads = ops.transpose(_split(w, v), (2, 1, 0, 3))
    product = ops.matmul(w, ops.reshape(heads, (*heads.shape[:2], -1)))
    product = ops.transpose(ops.reshape(product, heads.shape), (2, 1, 0, 3))
    return ops.reshape(product, v.shape)


def batched_heads(w, v):
    """One (n, n) x (n, channels) per example and head."""
    heads = ops.transpose(_split(w, v), (0, 2, 1, 3))
    product = ops.transpose(ops.matmul(w, heads), (0, 2, 1, 3))
    return ops.reshape(product, v.shape)


def einsum_heads(w, v):
    """The formula itself."""
    product = ops.einsum("hij,bjhc->bihc", w, _split(w, v))
    return ops.reshape(product, v.shape)


FORMS = {
    "ours": spatial_product,
    "matmul": lambda w, v: ops.matmul(w[0], v),
    "einsum mn,bnd": lambda w, v: ops.einsum("mn,bnd->bmd", w[0], v),
    "einsum bnd,mn": lambda w, v: ops.einsum("bnd,mn->bmd", v, w[0]),
    "through Dense": through_dense,
    "tensordot": lambda w, v: ops.transpose(
        ops.tensordot(w[0], v, axes=[[1], [1]]), (1, 0, 2)
    ),
    "folded": folded,
    "pointwise conv": pointwise_conv,
    "batched": batched,
}

# The same question for several heads, (h, n, n).
HEAD_FORMS = {
    "ours": spatial_product,
    "folded": folded_heads,
    "batched": batched_heads,
    "einsum": einsum_heads,
}


def compile_forward(form):
    """Returns `(w, v) -> product`, compiled as `predict` would compile it."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.jit(form)
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(form)
    import torch

    return torch.no_grad()(form)


def compile_gradients(form):
    """Returns `(w, v, g) -> (dw, dv)`, the whole work of a training step."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        @jax.jit
        def gradients(w, v, g):
            product, pull = jax.vjp(form, w, v)
            return product, pull(g)

    elif backend == "tensorflow":
        import tensorflow as tf

        @tf.function
        def gradients(w, v, g):
            with tf.GradientTape() as tape:
                tape.watch([w, v])
                product = form(w, v)
            return product, tape.gradient(product, [w, v], output_gradients=g)

    else:
        import torch

        def gradients(w, v, g):
            w, v = w.detach().requires_grad_(), v.detach().requires_grad_()
            product = form(w, v)
            return product, torch.autograd.grad(product, [w, v], g)

    return gradients


def wait(result):
    """Blocks until `result` is computed (JAX returns before it is)."""
    if keras.backend.backend() == "jax":
        import jax

        jax.block_until_ready(result)


def time_forms(shape, heads, repeats):
    """Times every form in alternation; returns `{name: (forward, both)}`.

    Returns:
        Medians in milliseconds.
    """
    forms = FORMS if heads == 1 else HEAD_FORMS
    batch, n, channels = shape
    rng = np.random.default_rng(0)
    arrays = [(heads, n, n), (batch, n, channels), (batch, n, channels)]
    w, v, g = (
        ops.convert_to_tensor(rng.normal(size=size).astype("float32"))
        for size in arrays
    )
    reference = ops.convert_to_numpy(einsum_heads(w, v))
    calls = {}
    for name, form in forms.items():
        forward, gradients = compile_forward(form), compile_gradients(form)
        error = abs(ops.convert_to_numpy(forward(w, v)) - reference).max()
        if error > 1e-3:
            raise AssertionError(f"{name} computes something else: {error}")
        wait(gradients(w, v, g))
        calls[name] = (forward, gradients)
    seconds = {name: ([], []) for name in forms}
    for _ in range(repeats):
        # In a new order each time: the first form finds colder caches.
        for name in rng.permutation(list(calls)):
            forward, gradients = calls[name]
            for into, call in (
                (0, lambda f=forward: f(w, v)),
                (1, lambda f=gradients: f(w, v, g)),
            ):
                start = time.perf_counter()
                wait(call())
                seconds[name][into].append(time.perf_counter() - start)
    return {
        name: tuple(1e3 * statistics.median(s) for s in pair)
        for name, pair in seconds.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--heads", type=int, default=1)
    arguments = parser.parse_args()
    print(
        f"keras {keras.__version__} on {keras.backend.backend()}, "
        f"heads={arguments.heads}, load {os.getloadavg()[0]:.1f}, "
        f"medians of {arguments.repeats}"
    )
    for label in arguments.shapes:
        times = time_forms(SHAPES[label], arguments.heads, arguments.repeats)
        base = times["ours"]
        print(f"\n{label} {SHAPES[label]}: ms forward | with gradients (ratio)")
        for name, (forward, both) in times.items():
            print(
                f"  {name:15s} {forward:8.2f} | {both:8.2f}   "
                f"({forward / base[0]:.2f} | {both / base[1]:.2f})"
            )


if __name__ == "__main__":
    main()
