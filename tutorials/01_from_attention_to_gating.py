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
# # From attention to gating
#
# A Transformer lets the words of a sentence, or the patches of an image, look
# at each other through *self-attention*. The gMLP of *Pay Attention to MLPs*
# (Liu, Dai, So and Le, 2021) has no attention. It has a *spatial gating unit*:
# one learned matrix, and one multiplication.
#
# In this tutorial you
#
# 1. write self-attention in a few lines, to have something to compare with;
# 2. write a spatial gating unit by hand, and check it against the layer;
# 3. put it into a block, and check that too;
# 4. see why the unit starts the way it does, and what happens if it does not;
# 5. add a little attention back: aMLP.
#
# You need some Python and an idea of what a dense layer is. Nothing is
# downloaded, and it takes about a minute on two CPU cores. Run it as a
# script, `python tutorials/01_from_attention_to_gating.py`, or open it as a
# notebook with jupytext.

# %%
import mlp_mixers  # before Keras, so that it can pick an installed backend

print(f"mlp_mixers {mlp_mixers.__version__}")

# %%
import pathlib
import sys

import keras
import numpy as np
from keras import ops
from matplotlib.figure import Figure

from mlp_mixers import data
from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers import PatchEmbedding
from mlp_mixers.layers import SpatialGatingUnit

PICTURES = pathlib.Path("runs/tutorials")
PICTURES.mkdir(parents=True, exist_ok=True)
print(f"Keras {keras.__version__} on {keras.backend.backend()}")


def to_numpy(x):
    return ops.convert_to_numpy(x)


def show(figure, name):
    """Saves a picture; a notebook displays it, a script says where it is."""
    path = PICTURES / name
    figure.savefig(path, dpi=120)
    if "ipykernel" in sys.modules:
        from IPython import display

        display.display(display.Image(path))
    else:
        print(f"picture: {path}")


# %% [markdown]
# ## Tokens
#
# The input is a batch of sequences. A sequence has $n$ *tokens*, and a token
# is a row of $d$ numbers, its *channels*. One sequence is a matrix
# $X \in \mathbb{R}^{n \times d}$. "Across channels" means along a row;
# "across tokens", or *spatial*, means along a column. In the shapes beside the
# code, b stands for the batch; in formulas, $b$ is a bias.

# %%
batch, n, d = 2, 6, 16
rng = np.random.default_rng(0)


def random(*shape, scale=1.0):
    values = scale * rng.normal(size=shape)
    return ops.convert_to_tensor(values.astype("float32"))


X = random(batch, n, d)

# %% [markdown]
# ## Self-attention in a few lines
#
# Every token computes a query $q$, a key $k$ and a value $v$, three linear
# maps of itself. Token $i$ compares its query with the key of every token $j$.
# The softmax turns the scores into weights, and the weights mix the values:
#
# $$A = \mathrm{softmax}\!\left(\frac{q\,k^\top}{\sqrt{a}}\right), \qquad
# Y = A\,v.$$

# %%
a = 8  # width of queries, keys and values
w_q, w_k, w_v = (random(d, a, scale=d**-0.5) for _ in range(3))


def attention(X):
    q, k, v = X @ w_q, X @ w_k, X @ w_v  # (b, n, a) each
    scores = q @ ops.transpose(k, (0, 2, 1)) / a**0.5  # (b, n, n)
    A = ops.softmax(scores, axis=-1)
    return A @ v, A  # (b, n, a), (b, n, n)


_, A = attention(X)
for example in range(batch):
    print(f"A of example {example}\n{to_numpy(A[example]).round(2)}")

# %% [markdown]
# **What to look at.** The two matrices differ. Attention *computes* its mixing
# weights from the input, anew for each example.
#
# It pays for that with many products. Take the softmax off, and entry $i$ of
# the output is a sum of terms $q_i\,k_j\,v_j$: three factors, each linear in
# the input. Attention is an interaction of *third order*.
#
# ## The idea of a spatial gating unit
#
# A spatial gating unit keeps the mixing and drops the computing. Its weights
# $W \in \mathbb{R}^{n \times n}$ are parameters: learned once, then the same
# for every input. Its input $Z \in \mathbb{R}^{n \times e}$ is cut into two
# halves across channels, $Z = [Z_1, Z_2]$. The second half is normalised,
# mixed across tokens, and multiplies the first:
#
# $$f_{W,b}(Z) = W\,\mathrm{norm}(Z) + b, \qquad
# s(Z) = Z_1 \odot f_{W,b}(Z_2).$$
#
# The $\odot$ multiplies entry by entry. $f(Z_2)$ is the *gate*: it says how
# much of each entry of $Z_1$ may pass. There is one number in $b$ for each
# token, which serves all channels. Two factors that depend on the input make
# an interaction of *second order*, $z_i z_j$.
#
# Gates are an old idea. In a gated linear unit, for one, a token computes its
# gate from its own channels. Here, the other tokens have a say in it.
# The paper also tried $f(Z)$, $Z + f(Z)$ and $Z \odot f(Z)$ without a split,
# and the product of two halves did best.
#
# You can measure the order. Normalisation and softmax keep sizes in hand and
# hide it, so leave them out, and $b$ too. Then double the input and see how
# the output grows.

# %%
W = random(n, n, scale=n**-0.5)


def bare_attention(X):
    q, k, v = X @ w_q, X @ w_k, X @ w_v
    return (q @ ops.transpose(k, (0, 2, 1))) @ v


def bare_gating(Z):
    Z1, Z2 = ops.split(Z, 2, axis=-1)
    return Z1 * (W @ Z2)


for bare in (bare_attention, bare_gating):
    growth = to_numpy(bare(2 * X)) / to_numpy(bare(X))
    print(f"{bare.__name__}: doubling X multiplies by {np.median(growth):.1f}")

# %% [markdown]
# **What to look at.** $8 = 2^3$ for attention and $4 = 2^2$ for gating: third
# and second order.
#
# There is another difference. Attention does not know where a token stands.
# Shuffle the tokens and its output is shuffled in the same way, so a
# Transformer needs position embeddings. In $W$ each pair of *places* has a
# weight of its own. A gMLP knows positions by itself and needs no embeddings;
# the price is that the largest $n$ is fixed when the model is built.

# %%
order = np.array([3, 0, 5, 1, 4, 2])


def follows_the_tokens(mix):
    shuffled_first = to_numpy(mix(ops.take(X, order, axis=1)))
    return np.allclose(shuffled_first, to_numpy(mix(X))[:, order], atol=1e-4)


print("attention:", follows_the_tokens(lambda X: attention(X)[0]))
print("gating:   ", follows_the_tokens(bare_gating))

# %% [markdown]
# ## A spatial gating unit by hand
#
# Now the whole unit, normalisation and all. The normalisation works across the
# channels of one token; $\gamma$ and $\beta$ are its learned scale and offset.
# The paper added it because large language models trained more steadily with
# it.

# %%
e = 6 * d  # channels of Z; the paper expands by 6, or by 4 in large models


def layer_norm(X, gamma, beta, epsilon):
    mean = ops.mean(X, axis=-1, keepdims=True)  # (b, n, 1)
    variance = ops.var(X, axis=-1, keepdims=True)
    return (X - mean) / ops.sqrt(variance + epsilon) * gamma + beta


def spatial_gate(Z2, W, b, gamma, beta):
    """f(Z2): the gate."""
    normed = layer_norm(Z2, gamma, beta, epsilon=1e-5)  # (b, n, e/2)
    return W @ normed + b[:, None]  # (n, n) @ (b, n, e/2) + (n, 1)


def spatial_gating_unit(Z, W, b, gamma, beta):
    """s(Z): what the gate lets through."""
    Z1, Z2 = ops.split(Z, 2, axis=-1)  # (b, n, e/2) each
    return Z1 * spatial_gate(Z2, W, b, gamma, beta)


# %% [markdown]
# Does it equal `mlp_mixers.layers.SpatialGatingUnit`? Build the layer, copy
# its weights, compare. The layer starts with $W \approx 0$, which would hide
# most mistakes, so stir its weights first.


# %%
def stir(layer):
    """Gives every weight of a built layer a random value."""
    for weight in layer.weights:
        weight.assign(random(*weight.shape, scale=0.3))


def value(weight):
    return ops.convert_to_tensor(weight)


def unit_weights(unit):
    """W (n, n), b (n,), γ and β (e/2,) of a gating unit with one head."""
    return (
        value(unit.spatial_kernel)[0],
        value(unit.spatial_bias)[0],
        value(unit.norm.gamma),
        value(unit.norm.beta),
    )


Z = random(batch, n, e)
unit = SpatialGatingUnit()
unit.build(Z.shape)
stir(unit)

by_hand = spatial_gating_unit(Z, *unit_weights(unit))
np.testing.assert_allclose(to_numpy(by_hand), to_numpy(unit(Z)), atol=1e-4)
print("the same, to rounding; weights:")
for weight in unit.weights:
    print(f"  {weight.path:40s} {tuple(weight.shape)}")

# %% [markdown]
# **What to look at.** The whole communication between tokens is in the $n^2$
# numbers of `spatial_kernel` and the $n$ of `spatial_bias`. Their leading 1 is
# the number of *heads*: the layer can have several matrices, each for a part
# of the channels. The paper uses one.
#
# Row $i$ of $W$ weighs what token $i$ takes from the others, in every channel
# and for every example alike. Think of a convolution along the tokens whose
# kernel spans all of them and differs from place to place. It costs
# $n^2 e / 2$ multiplications, against $2 n^2 d$ for the two products of
# full-width attention: with $e = 6d$ it is not less work, it is simpler work.
#
# ## The block
#
# A gMLP is a stack of one kind of block. Dense maps $U$ and $V$ work across
# channels, the unit in the middle across tokens, and $\sigma$ is the GELU:
#
# $$Z = \sigma(\mathrm{norm}(X)\,U), \qquad \tilde Z = s(Z), \qquad
# Y = X + \tilde Z\,V.$$
#
# ($U$ and $V$ have biases, which the formula leaves out.) A Transformer
# alternates attention and a feed-forward part. This is both in one: take the
# unit out, and a feed-forward part is left.


# %%
def gmlp_block(X, block):
    """The formula, with the weights of a `GMLPBlock`."""
    norm, U, V = block.norm, block.intermediate_dense, block.output_dense
    normed = layer_norm(X, value(norm.gamma), value(norm.beta), epsilon=1e-6)
    Z = ops.gelu(
        normed @ value(U.kernel) + value(U.bias), approximate=False
    )  # (b, n, e)
    Z = spatial_gating_unit(Z, *unit_weights(block.gating_unit))  # (b, n, e/2)
    return X + Z @ value(V.kernel) + value(V.bias)  # (b, n, d)


block = GMLPBlock(intermediate_dim=e)
block.build(X.shape)
stir(block)
np.testing.assert_allclose(
    to_numpy(gmlp_block(X, block)), to_numpy(block(X)), rtol=1e-4, atol=1e-4
)
print("the same, to rounding")

# %% [markdown]
# **What to look at.** Two places are easy to get wrong.
#
# - The addition takes the block's raw input $X$, not $\mathrm{norm}(X)$.
# - The *first* half of $Z$ passes, the *second* is normalised and becomes the
#   gate.
#
# And one detail of Keras: `ops.gelu` is an approximation unless you ask for
# the exact function; the two differ in the fourth digit.
#
# ## At the start, every token is alone
#
# The layer starts with $W$ near zero and $b = 1$. Then $f(Z_2) \approx 1$ and
# $s(Z) \approx Z_1$: the gate is open and brings nothing from elsewhere. To
# see it, replace one token of the input and watch which tokens of the output
# move.


# %%
def reach(layer, X):
    """[i, j]: how far output token i moves when input token j is replaced."""
    Y, columns = to_numpy(layer(X)), []
    for j in range(X.shape[1]):
        replaced = to_numpy(X).copy()
        # A new token. To add a constant would not do: the block's
        # normalisation takes it out again.
        replaced[:, j] = rng.normal(size=(len(replaced), X.shape[2]))
        moved = to_numpy(layer(ops.convert_to_tensor(replaced)))
        columns.append(abs(moved - Y).max(axis=(0, 2)))
    return np.stack(columns, axis=1)


def others(reached):
    """The largest movement of a token that was not replaced itself."""
    return (reached * (1 - np.eye(len(reached)))).max()


fresh = GMLPBlock(intermediate_dim=e)
reach_at_start = reach(fresh, X)
print(reach_at_start.round(2))
print(f"largest movement of another token: {others(reach_at_start):.1e}")

Z = fresh.intermediate_dense(fresh.norm(X))
without_unit = X + fresh.output_dense(Z[..., : e // 2])
np.testing.assert_allclose(
    to_numpy(without_unit), to_numpy(fresh(X)), atol=1e-4
)
print("a fresh block is x + V(first half of GELU(U(norm(x))))")

# %% [markdown]
# **What to look at.** Only the diagonal moves. What reaches other tokens is
# about a millionth, because $W$ starts with a standard deviation of $10^{-6}$.
# (The paper says "near zero" and gives no number.) A fresh gMLP is a stack of
# feed-forward blocks that treats each token by itself. Training then opens
# connections between tokens where they help.
#
# ## And if it starts otherwise?
#
# The paper calls this start critical for the stability of training. Let us
# look at three starts:
#
# - `paper`: $W \approx 0$, $b = 1$;
# - `dense`: what a `Dense` layer across tokens does by default, Glorot's
#   uniform $W$ and $b = 0$;
# - `large`: $W$ from the standard normal distribution, $b = 0$.
#
# First without training. Send random tokens through 30 fresh blocks and
# measure the size of the signal on the way.

# %%
STARTS = {
    "paper": {},
    "dense": {
        "kernel_initializer": "glorot_uniform",
        "bias_initializer": "zeros",
    },
    "large": {
        "kernel_initializer": {
            "class_name": "RandomNormal",
            "config": {"stddev": 1.0},
        },
        "bias_initializer": "zeros",
    },
}


def signal_sizes(start, tokens, depth=30):
    """Standard deviation after each block."""
    keras.utils.set_random_seed(0)
    X, sizes = random(4, tokens, 32), []
    for _ in range(depth):
        X = GMLPBlock(intermediate_dim=192, **start)(X)
        sizes.append(float(to_numpy(ops.std(X))))
    return sizes


print("standard deviation of the tokens after block 1, 10, 30")
for tokens in (16, 256):
    for name, start in STARTS.items():
        sizes = signal_sizes(start, tokens)
        chosen = "  ".join(f"{sizes[i]:5.2f}" for i in (0, 9, 29))
        print(f"{tokens:4d} tokens  {name:6s} {chosen}")

# %% [markdown]
# **What to look at.** With `paper`, the number of tokens makes no difference:
# the gate is 1. With `dense`, the gate of an entry is a random number of about
# size 1: the sizes are much the same, but half of the gates flip the sign of
# what they pass. With `large`, the gate is a sum over all tokens and its size
# is about $\sqrt{n}$: what looks tame with 16 tokens is four times as large
# with 256. Nothing explodes even then, because each block normalises what it
# reads; but the branch drowns the input that it should be added to.
#
# Now a short training, on real data: the 8x8 digits of scikit-learn in 2x2
# patches, 16 tokens each. Eight narrow blocks, Adam at a constant rate. No
# warm-up and no clipping of gradients, so the start has to look after itself.

# %%
split = data.load_digits()


def train(start, epochs=6):
    """Returns the history of a small classifier with this start."""
    keras.utils.set_random_seed(0)
    images = keras.Input((8, 8, 1))
    x = PatchEmbedding(hidden_dim=32, patch_size=2)(images)  # (b, 16, 32)
    for _ in range(8):
        x = GMLPBlock(intermediate_dim=192, **start)(x)
    x = keras.layers.LayerNormalization(epsilon=1e-6)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)  # (b, 32)
    model = keras.Model(images, keras.layers.Dense(10)(x))
    model.compile(
        keras.optimizers.Adam(2e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    batches = data.ImageBatches(*split.train, batch_size=64, max_shift=1)
    return model.fit(
        batches, epochs=epochs, validation_data=split.validation, verbose=0
    ).history


histories = {}
for name, start in STARTS.items():
    histories[name] = train(start)
    losses = "  ".join(f"{loss:.2f}" for loss in histories[name]["loss"])
    accuracy = histories[name]["val_accuracy"][-1]
    print(f"{name:6s} loss {losses}   validation accuracy {accuracy:.2f}")

# %%
figure = Figure(figsize=(5.5, 3.4), layout="constrained")
axis = figure.subplots()
for name, history in histories.items():
    axis.plot(range(1, 1 + len(history["loss"])), history["loss"], label=name)
axis.set(xlabel="epoch", ylabel="training loss", title="Three starts")
axis.grid(alpha=0.3)
axis.legend()
show(figure, "01_three_starts.png")

# %% [markdown]
# **What to look at.** All three learn. `paper` is *not* the fastest here: its
# first epochs go by before the tokens have begun to talk, and that is what
# this little task needs first. `dense` mixes from the first step and is ahead.
# The random gates of `large` are too large, and its loss stays above that of
# `dense`. (One seed each; single seeds differ.)
#
# So eight blocks on 8x8 images do not need the paper's start. They are no
# evidence against it either: the paper speaks of models with up to 144 blocks
# and a million steps. What the start *guarantees* is easier to say. A
# block begins as a plain feed-forward block, whatever the number of tokens.
# The library keeps it as the default. [docs/results.md](../docs/results.md) has
# a study with more seeds and more depth.
#
# ## A little attention: aMLP
#
# The weights in $W$ cannot depend on the input. For tasks that align two
# texts, such as entailment or question answering, the paper found this to be
# a weak point, and found a small cure: one attention head of width 64 (128 in
# the large model) in each block. It reads the normalised input of the block
# and is added to the gate:
#
# $$\tilde Z = Z_1 \odot \bigl(f_{W,b}(Z_2) +
# \mathrm{attention}(\mathrm{norm}(X))\bigr).$$
#
# The layer calls what is added the `gate_residual`. `GMLPBlock` makes it when
# it is told an `attention_dim`. By hand:


# %%
def tiny_attention(X, attention):
    """One head: three maps of width a, softmax, a map to the gate's width."""
    qkv = X @ value(attention.qkv_dense.kernel)
    qkv = qkv + value(attention.qkv_dense.bias)
    q, k, v = ops.split(qkv, 3, axis=-1)  # (b, n, a) each
    scores = q @ ops.transpose(k, (0, 2, 1)) / attention.attention_dim**0.5
    mixed = ops.softmax(scores, axis=-1) @ v  # (b, n, a)
    out = attention.output_dense
    return mixed @ value(out.kernel) + value(out.bias)  # (b, n, e/2)


def amlp_block(X, block):
    norm, U, V = block.norm, block.intermediate_dense, block.output_dense
    normed = layer_norm(X, value(norm.gamma), value(norm.beta), epsilon=1e-6)
    Z = ops.gelu(normed @ value(U.kernel) + value(U.bias), approximate=False)
    Z1, Z2 = ops.split(Z, 2, axis=-1)
    gate = spatial_gate(Z2, *unit_weights(block.gating_unit))
    gate = gate + tiny_attention(normed, block.attention)  # the gate_residual
    return X + (Z1 * gate) @ value(V.kernel) + value(V.bias)


amlp = GMLPBlock(intermediate_dim=e, attention_dim=8)
amlp.build(X.shape)
stir(amlp)
np.testing.assert_allclose(
    to_numpy(amlp_block(X, amlp)), to_numpy(amlp(X)), rtol=1e-4, atol=1e-4
)
print("the same, to rounding")

# %% [markdown]
# One more look at the start. The attention has no reason to begin near zero,
# so the gate of a fresh aMLP block is $1 + \mathrm{attention}$, and tokens
# meet from the first step on.

# %%
pictures = {
    "gMLP, fresh": reach_at_start,
    "gMLP, dense start": reach(
        GMLPBlock(intermediate_dim=e, **STARTS["dense"]), X
    ),
    "aMLP, fresh": reach(GMLPBlock(intermediate_dim=e, attention_dim=8), X),
}
figure = Figure(figsize=(9, 3.4), layout="constrained")
for axis, (title, reached) in zip(figure.subplots(1, 3), pictures.items()):
    print(f"{title:18s} largest movement of another: {others(reached):.1e}")
    axis.set(title=title, xlabel="replaced token j", ylabel="moved token i")
    image = axis.imshow(reached, cmap="viridis", vmin=0, vmax=1)
figure.colorbar(image, label="movement (1 and more: yellow)")
show(figure, "01_who_reaches_whom.png")

# %% [markdown]
# **What to look at.** The fresh gMLP block is the diagonal alone. The other
# two are not local: with the dense start because the gate begins with random
# connections, in aMLP because of the attention.
#
# ## Summary
#
# | | self-attention | spatial gating unit |
# |:--|:--|:--|
# | weights between tokens | computed from the input | learned, then fixed |
# | interaction | third order, $q_i k_j v_j$ | second order, $z_i z_j$ |
# | parameters for mixing | in $q$, $k$, $v$; any $n$ | $n^2 + n$; $n$ fixed |
# | position | needs embeddings | known by place |
# | at the start | mixes | each token alone |
#
# - $s(Z) = Z_1 \odot (W\,\mathrm{norm}(Z_2) + b)$ is the whole idea.
# - $W \approx 0$ and $b = 1$ make a fresh block a feed-forward block.
# - aMLP adds one small attention head to the gate.
# - `SpatialGatingUnit`, `TinyAttention` and `GMLPBlock` in
#   `mlp_mixers.layers` are what you have just written, with padding masks,
#   shorter inputs, heads, and the variants of the exercises.
#
# ## Exercises
#
# Solutions are in `tutorials/solutions/01_from_attention_to_gating.py`.
#
# 1. *Causal.* A language model must not look ahead: token $i$ may depend on
#    tokens $j \le i$ only. Change `spatial_gating_unit` so that it is causal,
#    and check it with `reach`. Does the normalisation leak anything? (The
#    paper's models are encoders; a causal gMLP is other people's idea.)
# 2. *Toeplitz.* The paper's language models let $W_{ij}$ depend on $j - i$
#    only. Write a function from $2n - 1$ values to $W$. What does it make of
#    the unit, in terms of convolutions? Compare with
#    `SpatialGatingUnit(toeplitz=True)`.
# 3. *Heads.* Write a unit with $h$ matrices, each for one of $h$ equal groups
#    of consecutive channels, without a loop over heads. Compare with
#    `SpatialGatingUnit(num_heads=2)`.
