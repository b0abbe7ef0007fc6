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
# # Experts
#
# A model that knows more needs more weights, and commonly every token then
# pays for all of them. *Efficient Language Modeling with Sparse all-MLP* (Yu
# and others, 2022) has a gMLP write text with *experts*, of which each token
# uses only a few. In this tutorial you
#
# 1. count what experts cost, and what they do not;
# 2. write four routers with NumPy: who goes where, and who is turned away;
# 3. send channels to experts in place of tokens;
# 4. catch a model that cheats;
# 5. train a small sparse all-MLP on real text, and look at its experts;
# 6. let it write.
#
# You know the gating unit from tutorial 1, and tokens and perplexity from
# tutorial 4. Nothing is downloaded. It takes three to four minutes on two CPU
# cores. Run `python tutorials/05_experts.py`, or open it as a notebook with
# jupytext.

# %%
import mlp_mixers  # before Keras, so that it can pick an installed backend

print(f"mlp_mixers {mlp_mixers.__version__}")

# %%
import math
import pathlib
import sys
import time

import keras
import numpy as np
import scipy.optimize
from keras import ops
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.layers import BaseRouter
from mlp_mixers.layers import HashRouter
from mlp_mixers.layers import SparseFeatureExperts
from mlp_mixers.layers import SparseTokenExperts
from mlp_mixers.layers import SpatialGatingUnit
from mlp_mixers.layers import TopTwoRouter
from mlp_mixers.models import SMLPBackbone
from mlp_mixers.models import SMLPCausalLM
from mlp_mixers.training import AdamW
from mlp_mixers.training import ProgressBar
from mlp_mixers.training import WarmupLinear

PICTURES = pathlib.Path("runs/tutorials")
PICTURES.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
print(f"Keras {keras.__version__} on {keras.backend.backend()}")


def to_numpy(x):
    return ops.convert_to_numpy(x)


def random(*shape):
    return rng.normal(size=shape).astype("float32")


def stir(layer, scale=0.5):
    """Gives every trainable weight of a built layer a random value."""
    for weight in layer.trainable_weights:
        weight.assign(scale * random(*weight.shape))


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
# ## Why: weights without work
#
# The feed-forward part of a block takes each token through two dense maps,
# $d \to f \to d$. Its $2df$ weights are all used for every token: weights and
# multiplications grow together.
#
# *Conditional computation* parts them. Have $E$ such networks, the experts,
# and a small *router* that sends each token to $k$ of them, one mostly. There
# are $E$ times the weights, and the work of $k$ networks:


# %%
def cost(layer, d=64, n=64):
    """Weights, and multiply-adds for one row of n tokens."""
    x = keras.Input((n, d))
    model = keras.Model(x, layer(x))
    return model.count_params(), analysis.count_flops(model).macs


dense = keras.Sequential(
    [keras.layers.Dense(256, activation="gelu"), keras.layers.Dense(64)]
)
print(f"{'':22s}    weights   multiply-adds")
weights, macs = cost(dense)
print(f"{'one network':22s} {weights:10,} {macs:15,}")
for experts in (4, 16, 64):
    layer = SparseTokenExperts(experts, 256, router="switch")
    weights, macs = cost(layer)
    print(f"{experts:3d} experts, one a token {weights:9,} {macs:15,}")

# %% [markdown]
# **What to look at.** The second column grows by the router alone. The first
# one is the promise. The smaller of the paper's models have about 3.5 billion
# weights; a dense Transformer with the work that it states for them, counted
# as here, has about a tenth of that. It is a promise about *arithmetic*. The
# weights must lie in somebody's memory (large models keep each expert on a
# device of its own, and tokens travel), and tokens must be sorted. Neither is
# in this table.
#
# ## A router
#
# Here are 32 tokens with $d = 2$ channels, so that they are points in a plane:
# three crowds of 18, 9 and 5. There are $E = 4$ experts. A router has one
# vector for each, the columns of $W_r$, and asks which of them a token
# resembles most:
#
# $$p(x) = \mathrm{softmax}(x W_r), \qquad e = \arg\max_i p_i(x), \qquad
# y = p_e(x) \cdot E_e(x).$$
#
# That is *Switch*'s router. The factor $p_e$ is the *gate*. It is there for
# learning: the choice $e$ jumps and has no slope, and through $p_e$ the task's
# loss reaches $W_r$.

# %%
E, n = 4, 32
crowds = [(18, (1.0, 0.5)), (9, (-0.7, 0.9)), (5, (0.2, -1.0))]
x = np.concatenate(
    [centre + 0.4 * random(size, 2) for size, centre in crowds]
).astype("float32")
x = rng.permutation(x)  # (n, d)
angles = np.deg2rad([10, 100, 190, 280])
W_r = 2 * np.stack([np.cos(angles), np.sin(angles)]).astype("float32")  # (d, E)


def softmax(z):
    z = np.exp(z - z.max(axis=-1, keepdims=True))
    return z / z.sum(axis=-1, keepdims=True)


p = softmax(x @ W_r)  # (n, E)
switch_ids = p.argmax(axis=1)  # (n,)
gates = p.max(axis=1)
counts = np.bincount(switch_ids, minlength=E)
for t in range(3):
    print(f"token {t}: p {p[t].round(2)}, expert {switch_ids[t]}")
print("tokens of each expert:", counts)

# %% [markdown]
# **Load.** The share $f_i$ of the tokens that go to expert $i$ is its *load*.
# Two numbers say how even a load is: its *entropy* over that of equal shares,
# 1 if all are equally busy and 0 if one does everything; and the largest load
# over a fair share, which is how long all others wait for the busiest.

# %%
f = counts / n


def load_entropy(f):
    return -(f * np.log(np.maximum(f, 1e-9))).sum() / np.log(len(f))


print(f"entropy {load_entropy(f):.3f}, largest load {f.max() * E:.2f} times")

# %% [markdown]
# **Capacity.** Compiled programs want shapes that do not depend on data. So in
# training an expert gets a fixed number of *places*,
#
# $$C = \left\lceil c \cdot \frac{nk}{E} \right\rceil,$$
#
# where the *capacity factor* $c$, 1.25 say, leaves some room. Tokens queue in
# their order. Who finds no place is *dropped*: its output is zero, and in a
# block the residual connection carries it past the experts.


# %%
def queue(ids, capacity):
    """Which tokens find a place, in the order of tokens."""
    taken, kept = np.zeros(E, int), np.zeros(len(ids), bool)
    for t, e in enumerate(ids):
        kept[t] = taken[e] < capacity
        taken[e] += kept[t]
    return kept


C = math.ceil(1.25 * n / E)
switch_kept = queue(switch_ids, C)
drop_rate = 1 - switch_kept.mean()
print(f"C = {C} places each; {drop_rate:.0%} of the tokens are dropped")

# %% [markdown]
# **The balance loss.** Left alone, routers tend to run into a corner: an expert
# that gets more tokens learns more, and is liked better for it. So Switch adds
# to the task's loss, for each layer,
#
# $$L = E \sum_i f_i P_i, \qquad P_i = \text{mean of } p_i(x) \text{ over the
# tokens},$$
#
# with a weight of 0.01. It is 1 if all experts are equally liked and nears $E$
# if all tokens go to one. $f$ counts and has no slope, so the gradient comes
# through $P$: who has many tokens is to be liked less.

# %%
P = p.mean(axis=0)  # (E,)
balance_loss = E * (f * P).sum()
print(f"f {f.round(2)}, P {P.round(2)}, balance loss {balance_loss:.3f}")

# %% [markdown]
# Now the same from the library. `SparseTokenExperts` has $E$ networks in one
# set of weights, `(E, d, f)` and `(E, f, d)`. Give it random weights and our
# $W_r$, and do its work by hand, token by token.


# %%
def expert(layer, e, x):
    """Network e: two maps with a ReLU between."""
    W1, b1, W2, b2 = (
        to_numpy(w)[e]
        for w in (
            layer.intermediate_kernel,
            layer.intermediate_bias,
            layer.output_kernel,
            layer.output_bias,
        )
    )
    return np.maximum(x @ W1 + b1, 0) @ W2 + b2


def experts_with(router, **arguments):
    """A built layer with random experts, and W_r where there is one."""
    layer = SparseTokenExperts(
        E, 8, router=router, activation="relu", **arguments
    )
    layer.build((1, n, 2))
    stir(layer)
    if layer.router.trainable_weights:
        layer.router.kernel.assign(W_r)
    return layer


switch = experts_with("switch", capacity_factor=1.25)
by_hand = np.stack(
    [g * expert(switch, e, t) for t, e, g in zip(x, switch_ids, gates)]
)  # (n, d)
in_training = to_numpy(switch(x[None], training=True))[0]
in_inference = to_numpy(switch(x[None], training=False))[0]
np.testing.assert_allclose(
    in_training, by_hand * switch_kept[:, None], atol=1e-4
)
np.testing.assert_allclose(in_inference, by_hand, atol=1e-4)

recorded = switch.routing_record.means()
print({name: round(value, 3) for name, value in recorded.items()})
np.testing.assert_allclose(recorded["balance_loss"], balance_loss, rtol=1e-4)
np.testing.assert_allclose(recorded["load_entropy"], load_entropy(f), rtol=1e-4)
np.testing.assert_allclose(recorded["max_load"], f.max() * E, rtol=1e-4)
np.testing.assert_allclose(recorded["drop_rate"], drop_rate, rtol=1e-4)

# %% [markdown]
# **What to look at.** In training, dropped tokens come out as zero. In
# inference nobody is dropped. Otherwise what you get for your text would
# depend on who else is in the batch. `routing_record` keeps what happened in
# training; we shall see it again in the logs of `fit`.
#
# Does the loss do what it should? Leave everything else away and follow its
# gradient. From $L = E \sum_i f_i P_i$ with $f$ held, each token's logits get
# $\partial L / \partial z_i = \tfrac{E}{n}\, p_i \bigl(f_i - \sum_j f_j p_j
# \bigr)$.

# %%
W, steps = W_r.copy(), []
for _ in range(120):
    p_now = softmax(x @ W)  # (n, E)
    f_now = np.bincount(p_now.argmax(axis=1), minlength=E) / n
    dz = E / n * p_now * (f_now - (p_now @ f_now)[:, None])  # (n, E)
    steps.append((E * (f_now * p_now.mean(axis=0)).sum(), load_entropy(f_now)))
    W -= 0.5 * x.T @ dz
losses, entropies = np.transpose(steps)
print(f"balance loss {losses[0]:.3f} -> {losses[-1]:.3f}")
print(f"load entropy {entropies[0]:.3f} -> {entropies[-1]:.3f}")
print("tokens of each expert:", (f_now * n).astype(int))

figure = Figure(figsize=(8, 3), layout="constrained")
left, right = figure.subplots(1, 2)
left.plot(losses, label="balance loss")
left.plot(entropies, label="load entropy")
left.axhline(1, color="0.5", ls=":")
left.set(xlabel="step", title="following the balance loss alone")
left.grid(alpha=0.3)
left.legend(fontsize=8)
right.bar(np.arange(E) - 0.2, counts, 0.4, label="before")
right.bar(np.arange(E) + 0.2, f_now * n, 0.4, label="after")
right.axhline(n / E, color="0.5", ls=":", label="a fair share")
right.set(xlabel="expert", ylabel="tokens", xticks=range(E))
right.legend(fontsize=8)
show(figure, "05_balance_loss.png")

# %% [markdown]
# **What to look at.** The expert that nobody wanted has its share in the end.
# Two things the loss does *not* say. It knows nothing of the task, so a large
# weight makes routers even and stupid. And a loss of 1 is no proof: it can go
# a little below 1 while the load is uneven, if experts with many tokens are
# those that are not liked strongly.
#
# ## Three other routers
#
# **Two choices** (GShard). A token goes to its two likeliest experts, with
# gates that add up to one. All first choices queue before any second choice.
#
# **Balanced assignment** (BASE, which the paper takes for its token experts).
# Give each expert exactly its share of the tokens, and among all ways to do so
# take the one that pleases most:
#
# $$\max_a \sum_t x_t \cdot w_{a(t)} \quad \text{with every expert used } n/E
# \text{ times}, \qquad y = \sigma(x \cdot w_a)\, E_a(x).$$
#
# Nobody is dropped, and no loss is needed. It is an *assignment problem*:
# SciPy solves it exactly, on a table in which each expert stands $n/E$ times.
# The library has a solver of its own that runs compiled on all backends, and
# comes near.
#
# **A table** (Hash layers). The number of the token says where it goes, by a
# table that is drawn once. Nothing is learned, there is no gate, and equal
# words always meet the same expert.

# %%
# Two choices.
order = np.argsort(-p, axis=1)[:, :2]  # (n, 2), the likeliest first
two_gates = np.take_along_axis(p, order, axis=1)
two_gates /= two_gates.sum(axis=1, keepdims=True)
C_two = math.ceil(1.25 * n * 2 / E)
two_kept = queue(order.T.ravel(), C_two).reshape(2, n).T  # first ones first
by_hand = np.zeros((n, 2))
two = experts_with(TopTwoRouter(second_choice="all"), capacity_factor=1.25)
for t in range(n):
    for e, g, has_place in zip(order[t], two_gates[t], two_kept[t]):
        by_hand[t] += has_place * g * expert(two, e, x[t])
np.testing.assert_allclose(
    to_numpy(two(x[None], training=True))[0], by_hand, atol=1e-4
)
print(f"two choices: {1 - two_kept.mean():.0%} of the choices are dropped")

# Balanced assignment.
scores = x @ W_r  # (n, E)
_, places = scipy.optimize.linear_sum_assignment(
    np.repeat(scores, n // E, axis=1), maximize=True
)
optimal_ids = places // (n // E)  # (n,)
base = experts_with("base")
routing = base.router(x[None], training=True)
base_ids = to_numpy(routing.expert_ids)[0, :, 0]
assert (np.bincount(base_ids, minlength=E) == n // E).all()
everyone_happy = scores.max(axis=1).sum()
optimum, found = (
    np.take_along_axis(scores, ids[:, None], axis=1).sum()
    for ids in (optimal_ids, base_ids)
)
print(
    f"balanced: sum of scores {found:.2f}, SciPy's optimum {optimum:.2f}, "
    f"{everyone_happy:.2f} if all had their wish"
)
np.testing.assert_allclose(
    to_numpy(routing.gates)[0, :, 0],
    1 / (1 + np.exp(-np.take_along_axis(scores, base_ids[:, None], 1)[:, 0])),
    rtol=1e-4,
)
moved = (base_ids != switch_ids).mean()
print(f"{moved:.0%} of the tokens do not go where they would like to")

# A table. Real words are frequent and rare ones; so are these.
V = 12
frequency = 1 / np.arange(1, V + 1)
token_ids = rng.choice(V, n, p=frequency / frequency.sum()).astype("int32")
table = rng.permutation(np.arange(V) % E)  # (V,)
by_table = SparseTokenExperts(E, 8, router=HashRouter(vocabulary_size=V))
by_table.build((1, n, 2))
by_table.router.table.assign(table)
hash_ids = table[token_ids]
found = by_table.route(x[None], token_ids=token_ids[None])
np.testing.assert_array_equal(to_numpy(found)[0, :, 0], hash_ids)
print("a table: tokens of each expert", np.bincount(hash_ids, minlength=E))

# %%
COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44"]
REGIONS = ["#dbe4ee", "#fbe0e4", "#d3e7d6", "#f5f1da"]
edge = np.linspace(-2, 2, 200)
plane = np.stack(np.meshgrid(edge, edge), axis=-1)  # (200, 200, 2)
regions = (plane @ W_r).argmax(axis=-1)
nobody = np.zeros(n, bool)
panels = {
    "Switch": (switch_ids, switch_ids, ~switch_kept, C),
    "two choices": (*order.T, ~two_kept.all(axis=1), C_two),
    "balanced (BASE)": (base_ids, base_ids, nobody, n // E),
    "a table (Hash)": (hash_ids, hash_ids, nobody, None),
}
figure = Figure(figsize=(10, 4.6), layout="constrained")
axes = figure.subplots(2, 4, height_ratios=[2.4, 1])
for column, (name, (first, second, dropped, limit)) in zip(
    axes.T, panels.items()
):
    above, below = column
    above.imshow(
        regions,
        extent=(-2, 2, -2, 2),
        origin="lower",
        cmap=ListedColormap(REGIONS),
        vmin=0,
        vmax=3,
    )
    above.scatter(
        *x.T,
        s=26,
        c=[COLOURS[e] for e in first],
        edgecolors=[COLOURS[e] for e in second],
        linewidths=1.8,
    )
    above.plot(*x[dropped].T, "kx", ms=7)
    above.set(title=name, xticks=[], yticks=[])
    bars = np.bincount(first, minlength=E)
    if name == "two choices":
        bars = bars + np.bincount(second, minlength=E)
    below.bar(range(E), bars, color=COLOURS)
    if limit:
        below.axhline(limit, color="k", ls=":", lw=1)
    below.set(xticks=range(E), xlabel="expert", ylim=(0, 27))
axes[1, 0].set_ylabel("tokens")
show(figure, "05_routers.png")

# %% [markdown]
# **What to look at.** Background: the expert that a place likes best. Points:
# where tokens go; with two choices, the rim is the second. Crosses: tokens
# with a choice that found no place. Dotted: the places of an expert.
#
# - Switch follows the background, and those in the crowd who come late are
#   dropped.
# - BASE fills every expert to the line, and so half of these tokens are sent
#   to an expert that is not their first wish. In inference they are not: there
#   everyone goes where the background says. The layer is trained with one
#   routing and used with another.
# - The table pays no heed to where a token lies. It is as even as words are
#   frequent, which is not very.
#
# ## Who looks ahead?
#
# A model that writes from left to right must not know what comes. A router
# looks harmless: it sees one token. But *places* are shared. In BASE's
# assignment, and where all first choices go before second ones, a later token
# can take away an earlier token's expert. Measure it: replace the second half
# of a row by other tokens; does anything in the first half change?

# %%
rows, d = 400, 8
before = random(rows, n, d)
after = before.copy()
after[:, n // 2 :] = random(rows, n // 2, d)
ids = np.zeros((rows, n), "int32")
for name, router in {
    "switch": "switch",
    "two choices": TopTwoRouter(second_choice="all"),
    "base": BaseRouter(group="sequence"),
    "hash": HashRouter(vocabulary_size=V),
}.items():
    layer = SparseTokenExperts(E, 8, router=router, capacity_factor=1.0)
    layer.build((rows, n, d))
    stir(layer)
    shares = []
    for training in (True, False):
        one, other = (
            to_numpy(layer(z, token_ids=ids, training=training))
            for z in (before, after)
        )
        change = abs(one - other)[:, : n // 2].max(axis=(1, 2))  # (rows,)
        shares.append((change > 1e-4).mean())
    says = layer.router.causal_in_training, layer.router.causal_in_inference
    print(
        f"{name:12s} earlier outputs change in {shares[0]:4.0%} of the rows "
        f"in training, {shares[1]:4.0%} in inference; causal? {says}"
    )
    assert [share == 0 for share in shares] == list(says)

# %% [markdown]
# **What to look at.** What leaks is only where a token found a place, in
# training only, and it is hard to make use of; those who use BASE or GShard in
# language models live with it. In inference, where nobody is dropped and
# everyone has his wish, all four are causal. Every router of this library says
# of itself which it is.

# %% [markdown]
# ## Channels in place of tokens
#
# Experts for tokens can replace the feed-forward part of a block, where each
# token is by itself. They cannot replace the spatial gating unit: a single
# token has nothing to mix. So the paper cuts the other way. Of the matrix
# $Z_2$ with $n$ tokens and $c$ channels, a *column* is one channel of all
# tokens, and that is what is routed. The expert is a spatial matrix
# $W^e \in \mathbb{R}^{n \times n}$:
#
# $$f(v) = g \cdot (W^e v + b^e), \qquad v = \text{a column of norm}(Z_2).$$

# %%
cut = ListedColormap(COLOURS)
by_token = np.repeat(base_ids[:16, None], 8, axis=1)  # (16, 8)
by_channel = np.repeat(np.arange(8)[None] // 2, 16, axis=0)
figure = Figure(figsize=(5.6, 3.8), layout="constrained")
for axis, whose, name in zip(
    figure.subplots(1, 2),
    (by_token, by_channel),
    ("token experts", "feature experts"),
):
    axis.imshow(whose, cmap=cut, vmin=0, vmax=3, aspect="auto")
    axis.set_xticks(np.arange(9) - 0.5, minor=True)
    axis.set_yticks(np.arange(17) - 0.5, minor=True)
    axis.grid(which="minor", color="w")
    axis.tick_params(which="both", length=0, labelleft=False, labelbottom=False)
    axis.set(xlabel="channels", ylabel="tokens (time runs down)", title=name)
show(figure, "05_two_ways_to_cut.png")

# %% [markdown]
# ### By a rule
#
# Which column goes to which expert? The paper's better answer is a rule. Cut
# the channels into $E$ chunks; chunk $i$ goes to expert $i$, with $g = 1$. It
# calls that *deterministic* routing. A model that writes needs lower triangular
# $W^e$, so that token $i$ takes from tokens $j \le i$ only.

# %%
n, c = 20, 8  # from here on: n tokens, c channels in each half of Z


def layer_norm(z, gamma, beta):
    z = z - z.mean(axis=-1, keepdims=True)
    return (
        z / np.sqrt((z**2).mean(axis=-1, keepdims=True) + 1e-5) * gamma + beta
    )


def spatial_experts(Z, layer, ids, gates):
    """s(Z) = Z1 * f(Z2), column by column.

    `ids` and `gates` are (c,): the expert and the gate of each channel.
    """
    W, b = to_numpy(layer.spatial_kernel), to_numpy(layer.spatial_bias)
    Z1, v = Z[:, :c], normed(Z, layer)
    f = np.empty_like(v)
    for j, (e, g) in enumerate(zip(ids, gates)):
        f[:, j] = g * (np.tril(W[e]) @ v[:, j] + b[e])
    return Z1 * f


def normed(Z, layer):
    """The columns, norm(Z2): (n, c)."""
    return layer_norm(
        Z[:, c:], to_numpy(layer.norm.gamma), to_numpy(layer.norm.beta)
    )


def feature_experts(routing):
    layer = SparseFeatureExperts(E, routing=routing, sequence_length=n)
    layer.build((None, n, 2 * c))
    stir(layer)
    return layer


Z = random(1, n, 2 * c)
honest = feature_experts("deterministic")
by_hand = spatial_experts(Z[0], honest, np.arange(c) // (c // E), np.ones(c))
np.testing.assert_allclose(to_numpy(honest(Z))[0], by_hand, atol=1e-4)

unit = SpatialGatingUnit(num_heads=E, causal=True, sequence_length=n)
unit.build(Z.shape)
unit.set_weights(honest.get_weights())
np.testing.assert_array_equal(to_numpy(unit(Z)), to_numpy(honest(Z)))
print("deterministic feature experts are a gating unit with 4 heads")

# %% [markdown]
# **What to look at.** The last comparison is exact, to the bit. Feature experts
# by a rule *are* the heads of tutorial 1, exercise 3. Nothing is sparse about
# them either: every row of text uses all $E$ matrices. What is new is where
# they lie, each on a device of its own. In a figure of the paper, a gMLP with
# 16 heads is hardly better than one with a single head; whatever sparse
# all-MLP gains over gMLP, its token experts should have the larger part.
#
# ### By a router that reads the future
#
# The obvious thing is to *learn* the route, as for tokens. The item is now the
# column $v \in \mathbb{R}^n$:
#
# $$p(v) = \mathrm{softmax}(v^\top W_r), \qquad W_r \in \mathbb{R}^{n
# \times E}, \qquad e = \arg\max_i p_i(v), \quad g = p_e(v).$$
#
# Every $W^e$ is triangular, and yet this cheats: $v$ holds *all* tokens of the
# row, so $e$ and $g$ know what comes, and they act on the first token's output
# already. The library calls it `"leaky"`.
#
# ### By a router that reads the beginning
#
# *Partial prediction* lets only the first $P$ tokens of a column choose, a
# fifth of the row, $W_r \in \mathbb{R}^{P \times E}$. The model is then
# asked for the later tokens only.

# %%
leaky, partial = feature_experts("leaky"), feature_experts("partial")
for layer, rows in ((leaky, n), (partial, math.floor(0.2 * n))):
    v = normed(Z[0], layer)  # (n, c)
    p = softmax(v[:rows].T @ to_numpy(layer.router_kernel))  # (c, E)
    by_hand = spatial_experts(Z[0], layer, p.argmax(1), p.max(1))
    np.testing.assert_allclose(to_numpy(layer(Z))[0], by_hand, atol=1e-4)
    print(
        f"{layer.routing}: {rows} tokens choose {p.argmax(1)} for {c} columns"
    )

# %% [markdown]
# Who sees the future? Replace all tokens from a cut on, and see how far each
# earlier output moves. Honest outputs stay where they are until the cut.


# %%
def movement(layer, trials=16):
    """[i, cut]: how far output i moves when tokens from `cut` on change."""
    Z = random(trials, n, 2 * c)
    before, columns = to_numpy(layer(Z)), []
    for cut in range(1, n):
        other = Z.copy()
        other[:, cut:] = random(trials, n - cut, 2 * c)
        moved = abs(to_numpy(layer(other)) - before)  # (trials, n, c)
        columns.append(moved.max(axis=(0, 2)))
    return np.stack(columns, axis=1)  # (n, n - 1)


figure = Figure(figsize=(9.6, 3.5), layout="constrained")
for axis, layer in zip(figure.subplots(1, 3), (honest, partial, leaky)):
    moved = movement(layer)
    i, cut = np.arange(n)[:, None], np.arange(1, n)
    early = moved[i < cut]
    caught = np.where((i < cut) & (moved > 1e-4), moved, np.nan)
    axis.imshow(
        np.where(i < cut, np.nan, 0.3),
        extent=(0.5, n - 0.5, n - 0.5, -0.5),
        cmap="Greys",
        vmin=0,
        vmax=1,
    )
    axis.imshow(
        caught,
        extent=(0.5, n - 0.5, n - 0.5, -0.5),
        cmap="autumn_r",
        vmin=0,
        vmax=3,
    )
    axis.set(
        title=layer.routing,
        xlabel="tokens replaced from here on",
        ylabel="output",
        xticks=range(0, n, 4),
        yticks=range(0, n, 4),
    )
    print(
        f"{layer.routing:14s} outputs before the cut move by {early.max():.1e}"
    )
show(figure, "05_who_sees_the_future.png")

# %% [markdown]
# **What to look at.** Grey is the lawful part: an output may move when tokens
# at or before its place do. Red and yellow is knowledge of the future. With
# `partial` it is in one corner. The first $P = 4$ tokens choose together, so
# outputs 0 to 2 know tokens that come later, up to token 3. Output 3 does not:
# it stands at the last token that chooses. An output predicts the token behind
# it, so the first honest question is output $P - 1$, about token $P$.
# `SMLPCausalLM` counts loss and perplexity from there on.
#
# ## A cheat is caught
#
# Can a model make use of it? Take a text that cannot be predicted: each token
# is one of $K = 4$, independent and equally likely. The best that an honest
# model can do is to waver between all four, a perplexity of 4 and a loss of
# $\ln 4 = 1.386$. Train the three on it; never twice on the same text.

# %%
K, length = 4, 10


def build_toy(routing):
    keras.utils.set_random_seed(0)
    backbone = SMLPBackbone(
        vocabulary_size=K,
        sequence_length=length,
        num_dense_blocks=1,
        num_sparse_blocks=1,
        hidden_dim=32,
        intermediate_dim=64,
        num_experts=E,
        router="switch",
        routing=routing,
    )
    toy = SMLPCausalLM(backbone)
    toy.compile(AdamW(1e-2, global_clipnorm=1.0))
    return toy


toys, curves = {}, {}
for routing in ("deterministic", "partial", "leaky"):
    toy, curve = build_toy(routing), []
    for _ in range(8):  # times 40 steps
        rows = rng.integers(0, K, (40 * 32, length + 1)).astype("int32")
        inputs = {
            "token_ids": rows[:, :-1],
            "padding_mask": np.ones((len(rows), length), "int32"),
        }
        history = toy.fit(inputs, rows[:, 1:], batch_size=32, verbose=0).history
        curve.append(history["perplexity"][0])
    toys[routing], curves[routing] = toy, curve
    print(f"{routing:14s}", "  ".join(f"{value:.2f}" for value in curve))
assert min(curves["deterministic"] + curves["partial"]) > 3.9
assert curves["leaky"][-1] < 3

figure = Figure(figsize=(5.6, 3.2), layout="constrained")
axis = figure.subplots()
for routing, curve in curves.items():
    style = "--" if routing == "partial" else "-"
    axis.plot(40 * np.arange(1, 9), curve, style, marker="o", label=routing)
axis.axhline(K, color="0.3", ls=":")
axis.annotate(
    "nobody honest is below", (320, K), (0, -5), va="top", ha="right",
    textcoords="offset points", fontsize=8,
)  # fmt: skip
axis.set(xlabel="step", ylabel="perplexity on random tokens", ylim=(1, 4.4))
axis.grid(alpha=0.3)
axis.legend(fontsize=8)
show(figure, "05_floor.png")

# %% [markdown]
# **What to look at.** The leaky model predicts dice. A perplexity between 1 and
# 4 is not a good model, it is a proof. On real text there is no such floor, and
# a leak looks like progress. In a figure of the paper, the curve of sparse
# all-MLP with the naive route falls far below all others.
#
# `leaks_future` needs no training. It calls a model twice, with the same
# beginning and another end, many times. It knows nothing about how the model
# is made, so it works on yours, too. With `random_weights=True` it asks about
# models of this kind, and not about what this very one has learned.

# %%
reports = {
    routing: analysis.leaks_future(toy, random_weights=True)
    for routing, toy in toys.items()
}
for routing, report in reports.items():
    print(f"{routing:14s} {report}")
assert not reports["deterministic"]
assert not reports["partial"]
assert reports["leaky"]

# %% [markdown]
# It lets `partial` pass, since it looks where the model counts, from output
# $P - 1$ on (`first_predicted`). The outputs before it, 0 to $P - 2$, are not
# honest (here, with $P = 2$, output 0). Have it look at all of them:

# %%
toy = toys["partial"]
report = analysis.leaks_future(toy, random_weights=True, first_position=0)
print(f"partial, all outputs: {report}; at (output, cut) {report.where}")
assert report
assert report.where[0] < toy.first_predicted

# %% [markdown]
# ## A small sparse all-MLP
#
# Now real text: the pages of Python's manual from tutorial 4, end to end, in
# rows of $n = 64$ tokens. Each token is to predict the next.

# %%
text = data.load_text("topics")
tokenizer = data.Tokenizer.train(text.train, vocabulary_size=1024)
V, n = tokenizer.vocabulary_size, 64
stream = data.stream_documents(text.train, tokenizer, n)
batches = data.CausalLMBatches(
    stream,
    tokenizer.pad_id,
    batch_size=32,
    seed=0,
    drop_remainder=True,  # a smaller last batch would be compiled anew
)
held_out = data.stream_documents(text.validation, tokenizer, n)
validation = data.CausalLMBatches(
    held_out, tokenizer.pad_id, batch_size=32, drop_remainder=True
)
print("training:", stream)
print("held out:", held_out)

# %% [markdown]
# A sparse block has token experts first and feature experts then, each with a
# residual connection:
#
# $$U = X + \mathrm{tMoE}(\mathrm{norm}(X)), \qquad Y = U +
# \mathrm{sMoE}\bigl(\sigma(\mathrm{norm}(U)\, W_1)\bigr)\, W_2.$$
#
# The second half is a gMLP block with matrices for experts. With $d = n = 64$
# and 256 channels inside, the first half costs as much as another gMLP block:
# $2 \cdot 64 \cdot 256$ multiply-adds a token. So two dense blocks and a
# sparse one are as expensive as a gMLP of four. The paper assigns tokens by
# BASE. Here it is Switch's router, which has more to show, is causal in
# training too, and needs less time. The third model cheats: the same with
# leaky routing.

# %%
SPARSE = {
    "num_dense_blocks": 2,
    "num_sparse_blocks": 1,
    "num_experts": E,
    "router": "switch",
}
KINDS = {
    "gMLP": {"num_dense_blocks": 4, "num_sparse_blocks": 0},
    "sMLP": SPARSE,
    "leaky": {**SPARSE, "routing": "leaky"},
}
epochs = 5
total = epochs * len(batches)


def build(**kind):
    keras.utils.set_random_seed(0)
    backbone = SMLPBackbone(
        vocabulary_size=V,
        sequence_length=n,
        hidden_dim=64,
        intermediate_dim=256,
        **kind,
    )
    model = SMLPCausalLM(backbone, tokenizer=tokenizer)
    model.compile(
        AdamW(
            WarmupLinear(5e-3, total, warmup_steps=total // 10),
            weight_decay=0.01,
            epsilon=1e-6,
            global_clipnorm=1.0,
        )
    )
    return model


models = {name: build(**kind) for name, kind in KINDS.items()}
for name, model in models.items():
    macs = analysis.count_flops(model.backbone).macs
    print(
        f"{name:6s} {model.count_params():8,} parameters, "
        f"{macs / 1e6:.2f} million multiply-adds a row"
    )

# %% [markdown]
# The baseline from tutorial 4: who knows nothing but how frequent each token
# is.

# %%
frequency = np.bincount(stream.token_ids[:, 1:].ravel(), minlength=V) + 1.0
answers = held_out.token_ids[:, 1:]
answers = answers[answers != tokenizer.pad_id]
unigram = np.exp(-np.log(frequency / frequency.sum())[answers].mean())
print(f"no idea: {V}, unigram: {unigram:.0f}")

histories = {}
for name, model in models.items():
    start = time.perf_counter()
    histories[name] = model.fit(
        batches,
        epochs=epochs,
        validation_data=validation,
        callbacks=[data.FollowEpochs(batches), ProgressBar()],
        verbose=0,
    ).history
    print(
        f"{name}: {time.perf_counter() - start:.0f} s, held-out perplexity "
        f"{histories[name]['val_perplexity'][-1]:.1f}"
    )

# %%
EXPERTS = "block_1_token_experts"
figure = Figure(figsize=(9.6, 3.4), layout="constrained")
left, right = figure.subplots(1, 2)
ticks = range(1, epochs + 1)
for name, history in histories.items():
    style = ":" if name == "leaky" else "-"
    left.plot(ticks, history["val_perplexity"], style, marker="o", label=name)
left.axhline(unigram, color="0.5", ls="--", label="unigram")
left.set(
    xlabel="epoch", ylabel="held-out perplexity", yscale="log", xticks=ticks
)
left.yaxis.set_minor_formatter(NullFormatter())
left.set_yticks([30, 50, 100, 200, 400], ["30", "50", "100", "200", "400"])
left.legend(fontsize=8)
for metric, label in (
    ("load_entropy", "load entropy"),
    ("max_load", "largest load / fair share"),
    ("drop_rate", "dropped tokens"),
):
    right.plot(
        ticks, histories["sMLP"][f"{EXPERTS}_{metric}"], marker="o", label=label
    )
right.set(
    xlabel="epoch", title="sMLP, in training", xticks=ticks, ylim=(0, 1.6)
)
right.legend(fontsize=8, loc="center right", bbox_to_anchor=(1, 0.35))
for axis in (left, right):
    axis.grid(alpha=0.3)
show(figure, "05_perplexity.png")

# %% [markdown]
# **What to look at.** On the left, gMLP and sMLP end close together, and it is
# the gMLP that leads: 31 against 33 in a run on PyTorch (one seed each). With
# two thirds more weights and the same work, experts have brought nothing here.
# That is no surprise. They take the place of a fourth block, each of them
# learns from a quarter of the tokens, and more weights help where there is
# more text than the weights can hold.
#
# On the right, the load becomes even, as the balance loss wants. Still some
# tokens in a hundred find no place, though the largest load of a whole step is
# below the factor of 1.25. Places are counted in each row by itself, so that
# rows do not depend on each other, and 64 tokens are less even than 2,048.
#
# And the leaky model? It is the sMLP with another route, and is ahead of it: 29
# in that run, and 31 against 34 in one on TensorFlow. Nothing about it looks
# wrong. It learns like the others and is a little better, as a good idea would
# be. How much of that is real? Ask it as it would be used, when what follows is
# not there yet: hide the rest of the row, and look at the last token's output
# only.

# %%
PLACES = (16, 32, 48, 64)  # how many tokens are there when it is asked


def perplexities(model):
    """Of the same questions with the rest of the row in sight, and without."""
    losses = [], []
    for i in range(len(validation)):
        inputs, labels, weights = validation[i]
        in_sight = model.predict_on_batch(inputs)  # (b, n, V)
        for known in PLACES:
            real = np.arange(n) < known
            alone = model.predict_on_batch(
                {
                    "token_ids": np.where(real, inputs["token_ids"], 0),
                    "padding_mask": inputs["padding_mask"] & real,
                }
            )
            asked = np.flatnonzero(weights[:, known - 1])
            answers = labels[asked, known - 1]
            for loss, logits in zip(losses, (in_sight, alone)):
                p = softmax(logits[asked, known - 1])  # (asked, V)
                loss.extend(-np.log(p[np.arange(len(p)), answers]))
    return [float(np.exp(np.mean(loss))) for loss in losses]


asked = {name: perplexities(model) for name, model in models.items()}
for name, (in_sight, alone) in asked.items():
    print(
        f"{name:6s} perplexity with the rest of the row in sight "
        f"{in_sight:.2f}, without {alone:.2f}"
    )
for name in ("gMLP", "sMLP"):
    np.testing.assert_allclose(*asked[name], rtol=1e-3)
assert asked["leaky"][0] < 0.99 * asked["leaky"][1]

# %% [markdown]
# **What to look at.** To an honest model it makes no difference. The leaky one
# is worse by 1.4 to 1.8 when the future is hidden: half of its lead over the
# sMLP in the run on PyTorch, all of it in the one on TensorFlow. In a
# few hundred steps it has found a little of what it could know; on the dice, in
# as many steps, much more. (What it has left is honest: a route that is chosen
# by the tokens so far. But then each new token changes the route, and what was
# computed of the earlier ones with it.)
#
# ## Who is busy, and with what?
#
# `expert_load` counts choices, in inference: every layer with a route, over
# all held-out rows. Beside the token experts of both models, it finds the
# feature experts of the leaky one, which chooses for each channel of each row.
# (Routes by a rule have nothing to count.)

# %%
inputs_only = [validation[i][0] for i in range(len(validation))]
loads = {
    f"{name}: {layer}": load
    for name in ("sMLP", "leaky")
    for layer, load in analysis.expert_load(models[name], inputs_only).items()
}
show(analysis.plot_expert_load(loads), "05_expert_load.png")

# %% [markdown]
# And what does each expert do? Ask the router where each held-out token goes,
# and take for each token of the vocabulary the expert to which most of its
# occurrences go.

# %%
model = models["sMLP"]
block = model.backbone.blocks[1]
until_block = keras.Model(model.backbone.input, model.backbone.blocks[0].output)
chosen = []
for inputs in inputs_only:
    x = block.token_norm(until_block.predict_on_batch(inputs))  # (b, n, d)
    chosen.append(to_numpy(block.token_experts.route(x))[..., 0])  # (b, n)
chosen = np.concatenate(chosen).ravel()
ids = np.concatenate([inputs["token_ids"] for inputs in inputs_only]).ravel()
table = np.zeros((V, E), int)  # how often each token goes where
np.add.at(table, (ids, chosen), 1)
for e in range(E):
    mine = np.flatnonzero((table.argmax(axis=1) == e) & (table.sum(axis=1) > 9))
    mine = mine[np.argsort(-table[mine, e])][:10]
    print(f"expert {e}:", "  ".join(map(repr, tokenizer.tokens(mine))))
common = table[table.sum(axis=1) > 9]
faithful = common.max(axis=1).sum() / common.sum()
print(
    f"{faithful:.0%} go where most tokens of their kind go; "
    f"{common.sum(axis=0).max() / common.sum():.0%} would, if all kinds were "
    "treated alike"
)

# %% [markdown]
# **What to look at.** The token experts are about equally busy, although
# nothing makes them so in inference: it was learned. The leaky model's feature
# experts have a balance loss of the same weight, and with them it depends: in
# the run on PyTorch one had next to nothing to do.
#
# The experts have no subjects. What sends a token somewhere is largely *which*
# token it is, and hardly what the text is about: four of five, in other runs
# more, go where their kind goes. (After a single epoch it was nearly all.) That
# is close to what a table would do, which may be why Hash layers do so well.
# Names that people give to experts afterwards, "punctuation" or "verbs",
# deserve a count like this one beside them.
#
# ## Writing
#
# `generate` continues a text: at first by the most probable token each time,
# then by draws from the twenty most probable ones.

# %%
prompts = ["The function returns", "If the object is", "A class definition"]
for written in model.generate(prompts, max_length=32):
    print(repr(written))
for written in model.generate(prompts, max_length=32, top_k=20, seed=0):
    print(repr(written))
try:
    models["leaky"].generate(prompts, max_length=32)
except ValueError as error:
    # TensorFlow says in more lines where it was; the last one says what it is.
    print("\nthe leaky model:", str(error).strip().splitlines()[-1].strip())

# %% [markdown]
# **What to look at.** It has the manual's tone and layout, and no idea what it
# is saying. A perplexity of 30 is no better than that. The leaky model cannot
# write at all: it would have to know the text first.
#
# For each new token one could ask the model for the whole row, and throw away
# all outputs but the last. But in a causal model the earlier tokens do not
# change when one is added. Of each block it is enough to keep
# $\mathrm{norm}(Z_2)$ of the tokens so far, its *cache*, and the new token
# needs one row of each $W^e$:
#
# $$f_t = \sum_{j \le t} W^e_{tj}\, \mathrm{norm}(Z_2)_j + b^e_t.$$
#
# `make_cache`, `prefill` and `step` do so, for every layer that mixes tokens.

# %%
row = validation[0][0]["token_ids"][:1]  # (1, n)
whole = model.backbone.predict_on_batch(
    {"token_ids": row, "padding_mask": np.ones((1, n), "int32")}
)  # (1, n, d)
cache = model.backbone.make_cache(1, n)
for t in range(8):
    features, cache = model.backbone.step(
        row[:, t : t + 1], cache, np.array([t])
    )
    np.testing.assert_allclose(
        to_numpy(features)[:, 0], whole[:, t], rtol=1e-3, atol=1e-4
    )
print("token by token the same as the whole row")


def write_slowly(ids, end):
    """Greedy, with the whole row for each new token."""
    ids = list(ids)
    while len(ids) < end:
        padded = np.zeros((1, n), "int32")
        padded[0, : len(ids)] = ids
        mask = (np.arange(n) < len(ids)).astype("int32")[None]
        logits = model.predict_on_batch(
            {"token_ids": padded, "padding_mask": mask}
        )
        logits[:, :, tokenizer.special_ids] = -np.inf
        ids.append(int(logits[0, len(ids) - 1].argmax()))
    return ids


start_ids = row[0, :8].tolist()
seconds, written = [], []
for write in (
    write_slowly,
    lambda ids, end: model.generate([ids], max_length=end, stop_token_ids=None)[
        0
    ],
):
    write(start_ids, 10)  # once before, so that all is compiled
    start = time.perf_counter()
    written.append(write(start_ids, n))
    seconds.append(time.perf_counter() - start)
for name, s in zip(("whole rows", "with a cache"), seconds):
    print(f"{name:12s} {1000 * s / (n - 8):.1f} ms a token")

# %% [markdown]
# **What to look at.** The arithmetic of a row is saved: one token in place of
# 64. How much of that the clock shows depends on the backend, since in a model
# of this size most of the time goes into calling functions and not into
# multiplying. The longer the row and the wider the model, the more the cache
# gains.
#
# ## What the paper reports, and what cannot be seen here
#
# Perplexities on held-out text, of models of nominally equal work (the FLOPs of
# a forward pass), after equally many steps:
#
# | | 0.8T FLOPs, after 25,000 steps | 2.0T FLOPs, after 100,000 |
# |:--|--:|--:|
# | GShard | 19.26 | 14.5 |
# | Switch | 15.31 | 10.45 |
# | BASE | 18.16 | 20.36, diverged |
# | Hash | 13.57 | 16.69 |
# | sMLP, deterministic | **13.46** | **9.84** |
#
# A gMLP whose feature experts were *learned* naively got worse by experts: 15.7
# without, 17.2 with 32 of them, 20.5 with 64.
#
# Read it with some care. The paper's own figures do not agree with its tables
# about when a number was reached: one has sMLP at 13.5 after some 48,000 steps,
# not 25,000. Models of the right column have from 9.0 to 10.3 billion weights.
# How many blocks and experts sMLP has is not said, there is no public code, and
# what the paper leaves open this library had to decide
# ([docs/sparse.md](../docs/sparse.md)).
#
# And none of it can be checked on this page. Experts are made for text without
# end and for many devices, each with some of them. Here are 144,000 tokens,
# read five times, on one computer, where routing only takes time. That it works
# as its formulas say, that an honest model cannot cheat, and that a leak is
# found: these do not depend on size, and these are what you have seen.
#
# ## Summary
#
# - Experts part weights from work: $E$ networks, and each token pays for $k$.
# - A router is a small matrix. Its load is kept even by a loss (Switch,
#   GShard), by an assignment (BASE), or by a table (Hash). Places are limited
#   in training, and nobody is dropped in inference.
# - Feature experts are spatial matrices, and what is routed is a channel over
#   all tokens. By a rule they are heads; a learned route over the whole row
#   cheats; over the first $P$ tokens it is honest from output $P - 1$ on.
# - A perplexity below what is possible is a proof of a leak. On real text there
#   is no such line: use `analysis.leaks_future`.
# - Writing takes one row of each matrix a token.
# - `python -m recipes.causal_lm --models gmlp smlp transformer switch hash`
#   compares models of equal work on any text.
#
# ## Exercises
#
# Solutions are in `tutorials/solutions/05_experts.py`.
#
# 1. *A queue without a loop.* `queue` asks one token after the other. Find
#    every token's place among those of its expert by sorting. Why should
#    places be counted in whole numbers and not in `bfloat16`?
# 2. *A leak without a slope.* Take the gate out of the leaky unit, $g = 1$. In
#    how many of 500 rows does an earlier output move if the last token is
#    nudged by $10^{-4}$, if it is replaced, if half of the row is replaced?
#    What would a check by gradients say?
# 3. *The same window.* Train the sparse model with partial and with
#    deterministic routing. Which has the better perplexity as each counts it,
#    and which on the same outputs?
