"""The formulas of the papers in NumPy, written without looking at the layers.

Loops and einsums, no cleverness: this is the truth that tests compare with.
"""

import math

import numpy as np


def layer_norm(x, gamma=1.0, beta=0.0, epsilon=1e-5):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def gelu(x):
    erf = np.vectorize(math.erf)
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def spatial_product(w, v):
    """y[b, i, h·c] = Σ_j w[h, i, j] v[b, j, h·c], one element at a time."""
    heads, n, _ = w.shape
    y = np.zeros_like(v)
    per_head = v.shape[-1] // heads
    for c in range(v.shape[-1]):
        for i in range(n):
            y[:, i, c] = (w[c // per_head, i] * v[:, :, c]).sum(-1)
    return y


def spatial_gating_unit(
    z, w, b, gamma, beta, gate="split", gate_residual=0.0, epsilon=1e-5
):
    """s(Z) for `w` of shape (h, n, n) and `b` of shape (h, n)."""
    z1, z2 = np.split(z, 2, -1) if gate == "split" else (z, z)
    f = spatial_product(w, layer_norm(z2, gamma, beta, epsilon))
    per_head = z2.shape[-1] // len(w)
    for c in range(z2.shape[-1]):
        f[:, :, c] += b[c // per_head]
    f = f + gate_residual
    return {
        "linear": f,
        "additive": z1 + f,
        "multiplicative": z1 * f,
        "split": z1 * f,
    }[gate]


def tiny_attention(x, qkv_kernel, qkv_bias, out_kernel, out_bias, allowed=None):
    """One head; `allowed` is (n, m) or (b, n, m)."""
    q, k, v = np.split(x @ qkv_kernel + qkv_bias, 3, -1)
    scores = np.einsum("bnd,bmd->bnm", q, k) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    return np.einsum("bnm,bmd->bnd", softmax(scores), v) @ out_kernel + out_bias


def mlp(x, first_kernel, first_bias, second_kernel, second_bias):
    """Two linear maps of the last axis with a GELU between."""
    return gelu(x @ first_kernel + first_bias) @ second_kernel + second_bias


def mixer_block(x, token_norm, token_mlp, channel_norm, channel_mlp):
    """MLP-Mixer, eq. 1, one channel after the other.

    Norms are `(gamma, beta)`, MLPs the four arrays of `mlp`.
    """
    normed = layer_norm(x, *token_norm, epsilon=1e-6)
    u = np.array(x, "float64")
    for c in range(x.shape[-1]):
        u[:, :, c] += mlp(normed[:, :, c], *token_mlp)
    return u + mlp(layer_norm(u, *channel_norm, epsilon=1e-6), *channel_mlp)


def resmlp_block(
    x, token_norm, w, b, token_scale, channel_norm, channel_mlp, channel_scale
):
    """ResMLP, eq. 2-3, for `w` of shape (1, n, n) and `b` of shape (1, n).

    Norms are `(alpha, beta)`, scales a value per channel.
    """
    alpha, beta = token_norm
    mixed = spatial_product(w, x * alpha + beta) + b[0][:, None]
    z = x + token_scale * mixed
    alpha, beta = channel_norm
    return z + channel_scale * mlp(z * alpha + beta, *channel_mlp)
