# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Solutions: from attention to gating
#
# Try the exercises first. Each solution ends with its check. In the shapes, b
# is the batch, n the tokens, e the channels, h the heads.

# %%
import mlp_mixers  # before Keras, so that it can pick an installed backend

print(f"mlp_mixers {mlp_mixers.__version__}")

# %%
import keras
import numpy as np
from keras import ops

from mlp_mixers.layers import SpatialGatingUnit

rng = np.random.default_rng(0)


def random(*shape):
    values = rng.normal(size=shape)
    return ops.convert_to_tensor(values.astype("float32"))


def layer_norm(X, gamma, beta, epsilon=1e-5):
    mean = ops.mean(X, axis=-1, keepdims=True)  # (b, n, 1)
    variance = ops.var(X, axis=-1, keepdims=True)
    return (X - mean) / ops.sqrt(variance + epsilon) * gamma + beta


def stirred(unit, shape):
    """A built unit with random weights: at W ≈ 0 mistakes stay hidden."""
    unit.build(shape)
    for weight in unit.weights:
        weight.assign(random(*weight.shape))
    return unit


def assert_same(a, b):
    a, b = ops.convert_to_numpy(a), ops.convert_to_numpy(b)
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


# %% [markdown]
# ## 1. Causal
#
# Token $i$ takes $W_{ij}$ from token $j$, so every weight with $j > i$ has to
# go: $W$ becomes lower triangular. The diagonal stays.
#
# Nothing else mixes tokens. The normalisation takes mean and variance across
# the channels of *one* token, so it leaks nothing. A normalisation that took
# them across tokens would.


# %%
def causal_gating_unit(Z, W, b, gamma, beta):
    """s(Z) in which token i depends on tokens j <= i only."""
    Z1, Z2 = ops.split(Z, 2, axis=-1)  # (b, n, e/2) each
    f = ops.tril(W) @ layer_norm(Z2, gamma, beta) + b[:, None]
    return Z1 * f


Z = random(2, 6, 16)
unit = stirred(SpatialGatingUnit(causal=True), Z.shape)
W, b = unit.spatial_kernel[0], unit.spatial_bias[0]
gamma, beta = unit.norm.gamma, unit.norm.beta
weights = [ops.convert_to_tensor(w) for w in (W, b, gamma, beta)]
assert_same(causal_gating_unit(Z, *weights), unit(Z))

before = ops.convert_to_numpy(causal_gating_unit(Z, *weights))
for j in range(6):
    changed = ops.convert_to_numpy(Z).copy()
    changed[:, j:] = rng.normal(size=changed[:, j:].shape)  # all from j on
    after = causal_gating_unit(ops.convert_to_tensor(changed), *weights)
    assert_same(ops.convert_to_numpy(after)[:, :j], before[:, :j])

# %% [markdown]
# ## 2. Toeplitz
#
# Call the values $w_0, \dots, w_{2n-2}$ and let the middle one, $w_{n-1}$, be
# the weight of the token itself:
#
# $$W_{ij} = w_{(n-1) + (j-i)}.$$
#
# All rows are then the same kernel, moved along. The unit is a one-dimensional
# convolution (with zeros beyond the ends) whose kernel is long enough to reach
# every token from every other, and is shared by all channels. It has $2n - 1$
# weights instead of $n^2$, and when the tokens are moved, the gate moves with
# them; only $b$ still knows the place.


# %%
def toeplitz(values):
    """W (n, n) from its 2n-1 diagonals, the lowest-left one first."""
    n = (len(values) + 1) // 2
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    return ops.take(values, (n - 1) + (j - i), axis=0)


unit = stirred(SpatialGatingUnit(toeplitz=True), Z.shape)
values = ops.convert_to_tensor(unit.spatial_kernel)[0]  # (2n-1,)
assert_same(toeplitz(values), unit.spatial_matrix()[0])

# %% [markdown]
# ## 3. Heads
#
# Cut the channels into $h$ groups of $c$, give each group its own $W$ and $b$,
# and put the groups together again. `einsum` says which index goes where, and
# needs no loop.


# %%
def multi_head_gating_unit(Z, W, b, gamma, beta):
    """s(Z) with W (h, n, n) and b (h, n)."""
    h, n, _ = W.shape
    Z1, Z2 = ops.split(Z, 2, axis=-1)  # (b, n, h·c) each
    normed = ops.reshape(
        layer_norm(Z2, gamma, beta), (-1, n, h, Z2.shape[-1] // h)
    )
    f = ops.einsum("hij,bjhc->bihc", W, normed)
    f = f + ops.transpose(b)[:, :, None]  # (n, h, 1)
    return Z1 * ops.reshape(f, (-1, n, Z2.shape[-1]))


unit = stirred(SpatialGatingUnit(num_heads=2), Z.shape)
weights = [
    ops.convert_to_tensor(w)
    for w in (
        unit.spatial_kernel,
        unit.spatial_bias,
        unit.norm.gamma,
        unit.norm.beta,
    )
]
assert_same(multi_head_gating_unit(Z, *weights), unit(Z))
print(f"all solutions hold on {keras.backend.backend()}")
