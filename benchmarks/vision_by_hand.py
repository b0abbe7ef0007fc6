"""The gMLP image classifier and its training step in plain JAX.

What the Keras model costs on JAX is measured against this: the same maths
with nothing in between. Batch and tokens are one axis wherever a token is on
its own, which is the fastest way found.

Reference: [Pay Attention to MLPs](https://arxiv.org/abs/2105.08050), Sec. 2.
"""

import jax
import jax.numpy as jnp
import numpy as np

RATE, DECAY, CLIP = 1e-3, 0.05, 1.0
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-7


def sizes(config):
    """`(n, p·p·c, d, e)` of a preset."""
    height, width, channels = config["image_shape"]
    p = config["patch_size"]
    n = (height // p) * (width // p)
    d, e = config["hidden_dim"], config["intermediate_dim"]
    return n, p * p * channels, d, e


def initial_weights(config, classes):
    """Weights of the sizes of ours, `{name: array}`."""
    n, pixels, d, e = sizes(config)
    shapes = {"patches": (pixels, d)}
    for i in range(config["num_layers"]):
        shapes[f"{i}.in"] = (d, e)
        shapes[f"{i}.spatial"] = (n, n)
        shapes[f"{i}.out"] = (e // 2, d)
    shapes["head"] = (d, classes)
    rng = np.random.default_rng(0)
    weights = {}
    for name, shape in shapes.items():
        scale = 1e-6 if name.endswith("spatial") else shape[0] ** -0.5
        weights[name] = rng.normal(scale=scale, size=shape)
        width = shape[0] if name.endswith("spatial") else shape[1]
        start = np.ones if name.endswith("spatial") else np.zeros
        weights[name + "_bias"] = start(width)
    norms = {"norm": d}
    for i in range(config["num_layers"]):
        norms[f"{i}.norm"], norms[f"{i}.gate_norm"] = d, e // 2
    for name, width in norms.items():
        weights[name + "_gamma"] = np.ones(width)
        weights[name + "_beta"] = np.zeros(width)
    return {k: jnp.asarray(v, "float32") for k, v in weights.items()}


def norm(w, name, x, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt(variance + epsilon)
    return scaled * w[name + "_gamma"] + w[name + "_beta"]


def dense(w, name, x):
    return x @ w[name] + w[name + "_bias"]


def block(w, i, x, batch, n):
    """X + (Z₁ ⊙ (W · norm(Z₂) + b)) · V, on `(b·n, d)`."""
    z = dense(w, f"{i}.in", norm(w, f"{i}.norm", x, 1e-6))
    z1, z2 = jnp.split(jax.nn.gelu(z, approximate=False), 2, axis=-1)
    z2 = norm(w, f"{i}.gate_norm", z2, 1e-5).reshape(batch, n, -1)
    columns = z2.transpose(1, 0, 2).reshape(n, -1)  # (n, b·e/2)
    f = (w[f"{i}.spatial"] @ columns).reshape(n, batch, -1).transpose(1, 0, 2)
    f = f + w[f"{i}.spatial_bias"][:, None]
    return x + dense(w, f"{i}.out", z1 * f.reshape(z1.shape))


def logits(w, images, config):
    batch, height, width, c = images.shape
    p = config["patch_size"]
    n, pixels, _, _ = sizes(config)
    x = images.reshape(batch, height // p, p, width // p, p, c)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(batch * n, pixels)
    x = dense(w, "patches", x)
    for i in range(config["num_layers"]):
        x = block(w, i, x, batch, n)
    x = norm(w, "norm", x, 1e-6).reshape(batch, n, -1).mean(1)
    return dense(w, "head", x)


def initial_state(weights, adamw):
    """`(weights, first moments, second moments, step)`."""

    def zeros():
        return {k: jnp.zeros_like(w) for k, w in weights.items() if adamw}

    own = {k: jnp.array(w) for k, w in weights.items()}  # will be donated
    return own, zeros(), zeros(), jnp.zeros((), "int32")


def adamw_update(name, w, g, m, v, t):
    """The update of `keras.optimizers.AdamW`; biases are not decayed."""
    rate = RATE * jnp.sqrt(1 - BETA2**t) / (1 - BETA1**t)
    m = m + (g - m) * (1 - BETA1)
    v = v + (g * g - v) * (1 - BETA2)
    spared = name.endswith(("bias", "gamma", "beta"))
    w = w * (1 - (0 if spared else RATE * DECAY))
    return w - rate * m / (jnp.sqrt(v) + EPSILON), m, v


def compile_step(config, adamw):
    """Returns `(state, images, labels) -> (loss, state)`."""

    def loss_of(w, images, labels):
        log_p = jax.nn.log_softmax(logits(w, images, config))
        return -jnp.take_along_axis(log_p, labels[:, None], 1).mean()

    def step(state, images, labels):
        w, m, v, t = state
        loss, g = jax.value_and_grad(loss_of)(w, images, labels)
        t = t + 1
        if not adamw:
            w = {k: w[k] - RATE * g[k] for k in w}
            return loss, (w, m, v, t)
        length = jnp.sqrt(sum(jnp.vdot(x, x) for x in g.values()))
        scale = CLIP / jnp.maximum(length, CLIP)
        new = {k: adamw_update(k, w[k], g[k] * scale, m[k], v[k], t) for k in w}
        w, m, v = ({k: row[i] for k, row in new.items()} for i in range(3))
        return loss, (w, m, v, t)

    return jax.jit(step, donate_argnums=0)


def compile_predict(config):
    """Returns `(weights, images) -> logits`."""
    return jax.jit(lambda w, images: logits(w, images, config))
