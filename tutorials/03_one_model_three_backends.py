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
# # One model, three backends
#
# A model of this library runs on TensorFlow, JAX and PyTorch, and its weights
# go where you want them. In this tutorial you
#
# 1. choose the backend, and see when the choice is made;
# 2. train a small gMLP, and hand it to every backend that is installed and
#    back: what is the same, and what is not;
# 3. move the trained model to larger and smaller images, and measure what that
#    costs;
# 4. see where the time goes;
# 5. give the weights to another library, and take them back.
#
# Nothing is downloaded. One backend is enough; with several you see more. It
# takes two to three minutes on two CPU cores. Run
# `python tutorials/03_one_model_three_backends.py`, or open it as a notebook
# with jupytext.

# %%
import os

# All on the CPU, here and in the processes that are started below: many GPUs
# round the factors of a product to fewer digits unless told otherwise, and
# then backends agree to two or three digits only.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["KERAS_TORCH_DEVICE"] = "cpu"

# %%
import mlp_mixers  # before Keras, so that it can pick an installed backend

print(f"mlp_mixers {mlp_mixers.__version__}")

# %%
import importlib.util
import itertools
import json
import logging
import pathlib
import subprocess
import sys
import time

import keras
import numpy as np
from keras import ops
from matplotlib.figure import Figure

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.training import AdamW
from mlp_mixers.training import ProgressBar
from mlp_mixers.training import warmup_cosine
from mlp_mixers.weights import export_checkpoint
from mlp_mixers.weights import load_checkpoint
from mlp_mixers.weights import resize_spatial_weights

PICTURES = pathlib.Path("runs/tutorials")
FILES = PICTURES / "03_files"
FILES.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)
print(f"Keras {keras.__version__} on {keras.backend.backend()}")


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
# ## Who chooses the backend?
#
# Keras does, once, when it is imported. It takes the first that it finds:
#
# 1. the environment variable `KERAS_BACKEND`: `tensorflow`, `jax` or `torch`;
# 2. `"backend"` in the file `keras.json`, in the folder `KERAS_HOME` or else
#    `~/.keras`;
# 3. TensorFlow.
#
# If what comes out is not installed, Keras alone fails. Imported first,
# `mlp_mixers` steps in: where nobody set `KERAS_BACKEND`, it takes what is
# there, JAX before TensorFlow before PyTorch, and says so. Where somebody did,
# it fails and says what to install.
#
# After the import the variable has no say any more.

# %%
ours = keras.backend.backend()
named = os.environ.pop("KERAS_BACKEND", None)
assert keras.backend.backend() == ours
print(f"KERAS_BACKEND was {named}; without it, Keras stays with {ours}")

# %% [markdown]
# So one process has one backend, and another backend needs another process.
# They may all live in one environment: `pip install 'mlp_mixers[all]'`. Which
# are here?

# %%
installed = [
    name
    for name in ("tensorflow", "jax", "torch")
    if importlib.util.find_spec(name)
]
print("installed:", ", ".join(installed))
if len(installed) == 1:
    print(
        f"Only {ours} is installed, so there is nothing to compare it with. "
        "Everything below runs, with a second process on the same backend. "
        "To see more: pip install 'mlp_mixers[all]'"
    )


def run_python(*arguments, **environment):
    """Runs another Python, and returns what it printed."""
    finished = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


# `KERAS_BACKEND` was taken out of the environment above: the file decides.
(FILES / "keras.json").write_text(json.dumps({"backend": ours}))
chosen = run_python(
    "-c",
    "import mlp_mixers, keras; print(keras.backend.backend())",
    KERAS_HOME=str(FILES),
)
print(f"a process with keras.json and no KERAS_BACKEND runs on {chosen}")
assert chosen.strip() == ours

# %% [markdown]
# ## A model to carry around
#
# The digits of tutorial 2, but enlarged from 8x8 to 16x16 pixels, so that there
# is room in both directions later. `ImagePreprocessor` resizes; when it
# shrinks, it averages over all pixels that become one. (Enlarged images hold
# no more than the small ones did.) Patches have 2x2 pixels, so the grid has
# 8x8 patches and $n = 64$ tokens. Blocks are half as wide inside as those of
# tutorial 2, to save time.

# %%
split = data.load_digits()
labels = split.test[1]
side = 16


def resized(images, side):
    """The 8x8 images at another size, antialiased where they shrink."""
    fit = data.ImagePreprocessor(
        (side, side, 1), interpolation="bilinear", resize="squash"
    )
    return fit.batch(images)


SIZES_OF_MODEL = {"intermediate_dim": 192, "image_shape": (side, side, 1)}
model = GMLPImageClassifier.from_preset(
    "gmlp_digits_nano", num_classes=10, load_weights=False, **SIZES_OF_MODEL
)
batches = data.ImageBatches(
    resized(split.train[0], side),
    split.train[1],
    batch_size=64,
    max_shift=2,
    drop_remainder=True,  # a smaller last batch would be compiled anew
)
steps = 10 * len(batches)
model.compile(
    AdamW(
        warmup_cosine(4e-3, steps, warmup_steps=steps // 10),
        weight_decay=0.05,
        global_clipnorm=1.0,
    )
)
start = time.perf_counter()
model.fit(
    batches, epochs=10, shuffle=False, callbacks=[ProgressBar()], verbose=0
)
print(f"{time.perf_counter() - start:.0f} s")


def accuracy(model, images):
    guesses = model.predict(images, batch_size=120, verbose=0).argmax(axis=-1)
    return float((guesses == labels).mean())


images = resized(split.test[0], side)
trained_accuracy = accuracy(model, images)
print(f"test accuracy {trained_accuracy:.4f}")
assert trained_accuracy > 0.8

# %% [markdown]
# Ten epochs are few, and the model is not as good as that of tutorial 2. It
# will do: it has learned something that a wrong weight would spoil.
#
# ## To the other backends, and back
#
# Save the model, and start a process on each installed backend. Each gets the
# same file and the same images and does the same: predict; take ten steps of
# SGD; save. Beside that it notes what it makes of the seed 0, and how long
# things take. This is its program.

# %%
WORKER = """
import time

begin = time.perf_counter()
import mlp_mixers
import keras

import_seconds = time.perf_counter() - begin

import pathlib
import sys

import numpy as np
from keras import ops

folder = pathlib.Path(sys.argv[1])
backend = keras.backend.backend()
arrays = np.load(folder / "images.npz")

# What it makes of a seed.
keras.utils.set_random_seed(0)
fresh = mlp_mixers.models.GMLPImageClassifier.from_preset(
    "gmlp_digits_nano", num_classes=10, load_weights=False
)
start = fresh.backbone.blocks[0].intermediate_dense.kernel
kept = keras.layers.Dropout(0.5, seed=0)(np.ones((1, 64)), training=True)
batches = mlp_mixers.data.ImageBatches(
    arrays["train"], arrays["train_labels"], batch_size=64, max_shift=2, seed=0
)

# What it makes of a model.
model = keras.saving.load_model(folder / "model.keras", compile=False)
before = model.predict(arrays["test"], verbose=0)
model.compile(keras.optimizers.SGD(0.01))
seconds = []
for i in range(10):
    begin = time.perf_counter()
    model.train_on_batch(*batches[i])
    seconds.append(time.perf_counter() - begin)
after = model.predict(arrays["test"], verbose=0)
model.save(folder / f"from_{backend}.keras")

# The largest memory that the process has had, as Linux keeps it.
status = pathlib.Path("/proc/self/status")
lines = status.read_text().splitlines() if status.exists() else []
peak = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]

np.savez(
    folder / f"{backend}.npz",
    start=ops.convert_to_numpy(start),
    kept=ops.convert_to_numpy(kept),
    batch=batches[0][0],
    before=before,
    after=after,
    seconds=[import_seconds, seconds[0], np.median(seconds[1:])],
    megabytes=peak[0] / 2**10 if peak else np.nan,
)
"""
(FILES / "worker.py").write_text(WORKER)
model.save(FILES / "model.keras")
np.savez(
    FILES / "images.npz",
    train=resized(split.train[0], side),
    train_labels=split.train[1],
    test=images,
)

found = {}
for backend in installed:
    run_python(FILES / "worker.py", FILES, KERAS_BACKEND=backend)
    found[backend] = np.load(FILES / f"{backend}.npz")
    print(f"{backend} has answered")

# %% [markdown]
# **The same weights give the same outputs.** Logits are compared, before the
# ten steps and after them, and relative to the largest: sums are added up in
# another order on every backend, and 32-bit numbers have seven digits.


# %%
def difference(a, b):
    """The largest difference, relative to the largest value."""
    return float(abs(a - b).max() / abs(b).max())


before = model.predict(images, verbose=0)
for backend, answer in found.items():
    print(
        f"{ours} and a new process on {backend:10s} "
        f"outputs differ by {difference(answer['before'], before):.0e}"
    )
    assert difference(answer["before"], before) < 1e-5

pairs = list(itertools.combinations(found, 2))
for a, b in pairs:
    gap = difference(found[a]["after"], found[b]["after"])
    print(f"{a:10s} and {b:5s} after ten steps of SGD: {gap:.0e}")
    assert gap < 1e-3
moved = difference(found[ours]["after"], before)
print(f"what the ten steps changed: {moved:.0e}")
assert moved > 1e-2

# %% [markdown]
# **The way back.** Each process saved the model after its steps, weights and
# optimiser. Whatever backend wrote the file, this one reads it.
#
# What should *not* travel is whether steps are compiled: that belongs to the
# backend. Keras decides it at `compile` and saves what it decided, so that a
# plain Keras model from JAX makes PyTorch call its compiler, which takes half a
# minute. Our models save the question ("auto") and not the answer; with others,
# `model.compile(model.optimizer, ...)` after loading decides anew.

# %%
for backend, answer in found.items():
    again = keras.saving.load_model(FILES / f"from_{backend}.keras")
    outputs = again.predict(images, verbose=0)
    assert difference(outputs, answer["after"]) < 1e-5
    assert int(again.optimizer.iterations) == 10
    print(
        f"from_{backend}.keras on {ours}: as there, to "
        f"{difference(outputs, answer['after']):.0e} "
        f"(compiled with XLA: {again.jit_compile})"
    )

# %% [markdown]
# **The same seed does not give the same numbers.** Each backend has a random
# generator of its own. Weights start from the same *distribution*, and dropout
# leaves out the same *share*, but the draws differ. What NumPy draws, order
# and shifts of `data.ImageBatches`, is the same everywhere.

# %%
for backend, answer in found.items():
    numbers = " ".join(f"{x:6.3f}" for x in answer["start"].ravel()[:3])
    drawn = "".join("x" if value else "." for value in answer["kept"][0, :24])
    print(
        f"{backend:10s} a kernel: {numbers} ... ± {answer['start'].std():.4f}"
        f"   dropout: {drawn}"
    )
for a, b in pairs:
    assert abs(found[a]["start"] - found[b]["start"]).max() > 0.01
    assert abs(found[a]["start"].std() / found[b]["start"].std() - 1) < 0.05
    assert (found[a]["kept"] != found[b]["kept"]).any()
    np.testing.assert_array_equal(found[a]["batch"], found[b]["batch"])

# %% [markdown]
# **Time and memory are not the same at all.** Look at your own numbers:

# %%
print("            import  first step  later steps  peak memory")
for backend, answer in found.items():
    importing, first, later = answer["seconds"]
    print(
        f"{backend:10s} {importing:5.1f} s {first:9.1f} s "
        f"{1000 * later:9.0f} ms {float(answer['megabytes']):9.0f} MB"
    )

# %% [markdown]
# **What to look at.** On the two busy cores where this was written, with all
# three installed, the first step took 2 to 9 seconds on TensorFlow and JAX,
# which translate it first, and 0.2 to 0.5 on PyTorch, which does not. Later
# steps took 0.1 to 0.3 seconds on each, in an order that changed from run to
# run: these are one process each, and no ranking. Nor are import (2 to 6
# seconds at quiet moments) and memory (about a gigabyte), since Keras imports
# more than its own backend where more is installed: JAX beside PyTorch,
# TensorFlow to save.
#
# What you can count on, then:
#
# | the same on every backend | another on each |
# |:--|:--|
# | outputs from the same weights, to rounding | initial weights from a seed |
# | steps of SGD, while rounding has not grown | dropout, stochastic depth |
# | files: `.keras`, presets, checkpoints | time to import and to compile |
# | NumPy's draws: order of data, augmentation | time of a step, memory |
#
# So two backends that train from the same *seed* are two experiments, as if
# the seeds differed. And from the same *weights*, a long training drifts apart
# too: each step adds rounding, and training magnifies it.
#
# ## Another image size
#
# A gMLP has no position embeddings: each pair of *places* has its weight in
# $W$. That ties it to one grid of patches. For images of another size, $W$
# must become another matrix, $n_\text{new} \times n_\text{new}$. `from_preset`
# does it, and says so.

# %%
model.save_to_preset(FILES / "preset")
larger = GMLPImageClassifier.from_preset(
    FILES / "preset", image_shape=(32, 32, 1)
)
print(f"grid {model.backbone.grid_shape} -> {larger.backbone.grid_shape}")

# Said once is enough.
logging.getLogger("mlp_mixers").setLevel(logging.ERROR)

# %% [markdown]
# ### Why times n_old / n_new
#
# Take a *field* $v$, one number for each token. Larger images bring it on a
# finer grid, interpolated: $Uv$. We want $W'$ to do there what $W$ did:
# $W'(Uv) \approx U(Wv)$.
#
# 1. A row of $W$ is a picture over the grid, too. Interpolated, it is a row of
#    $WU^\top$, and sums over the fine grid: $(WU^\top)(Uv) = W(U^\top U)v$.
# 2. A row of $U$ sums to 1, a column to $n_\text{new}/n_\text{old}$: each old
#    token gives to so many new ones. For smooth $v$ then
#    $U^\top U v \approx (n_\text{new}/n_\text{old})\,v$.
# 3. Take that factor out, interpolate what comes out by $U$, and
#    $$W' = \frac{n_\text{old}}{n_\text{new}}\,U W U^\top, \qquad
#    W'(Uv) \approx U(Wv), \qquad W'\mathbf 1 = U(W\mathbf 1).$$
#
# The last is exact where columns of $U$ have equal sums, as when the grid
# doubles. Elsewhere `resize_spatial_weights` divides each column of $U$ by its
# own sum, and it holds again. A bias is not summed over: it becomes $Ub$.
# Check all that on the matrices that the model has learned.

# %%
coarse, fine = (8, 8), (16, 16)
# Interpolating the unit vectors gives the matrix that interpolates.
U = resize_spatial_weights(
    np.eye(64), coarse, fine, output_axis=0, input_axis=None
)  # (256, 64)
np.testing.assert_allclose(U.sum(1), 1)
print("column sums of U:", np.unique(U.sum(0).round(6)))

rng = np.random.default_rng(0)
digit = resized(split.test[0][:1], 8).reshape(64)  # a field that is a picture
noise = rng.normal(size=64)
errors = {"a constant": [], "a digit": [], "noise": []}
for name, w in analysis.spatial_weights(model).items():
    W = w[0].astype("float64")  # (64, 64)
    W_fine = resize_spatial_weights(W, coarse, fine)  # (256, 256)
    np.testing.assert_allclose(W_fine, 64 / 256 * U @ W @ U.T, atol=1e-12)
    np.testing.assert_allclose(W_fine.sum(1), U @ W.sum(1), atol=1e-9)
    np.testing.assert_allclose(
        ops.convert_to_numpy(
            larger.backbone.get_layer(name).gating_unit.spatial_kernel
        )[0],
        W_fine,
        atol=1e-5,
    )
    for field, v in zip(errors, (np.ones(64), digit, noise)):
        wanted = U @ W @ v
        missed = np.linalg.norm(W_fine @ U @ v - wanted)
        errors[field].append(missed / np.linalg.norm(wanted))

for field, values in errors.items():
    blocks = "  ".join(f"{value:.2f}" for value in values)
    print(f"{field:10s} W'(Uv) is off by {blocks}   (one number a block)")
assert max(errors["a constant"]) < 1e-5
assert np.mean(errors["a digit"]) < np.mean(errors["noise"])

# %% [markdown]
# **What to look at.** Exact for a constant, off by a tenth or two for a digit,
# mostly, and by more for noise: what changes from token to token is no smooth
# field, and then "$\approx$" is too kind a sign. What reaches $W$ in a trained
# model is somewhere in between. And there is a second approximation that no
# matrix can mend: a patch still has 2x2 pixels, so in a larger image it shows a
# smaller piece of the digit. How good the moved model is, only data can tell.
#
# ### Measure it
#
# The test images at five sizes, and three models at each: the resized one; one
# with the factor left out; and one whose resized weights were shuffled, which
# keeps their sizes and forgets their places. A fourth does not touch the model
# but the images: it resizes them to 16x16, where the model was trained.


# %%
def spatial_kernels(model):
    return [block.gating_unit.spatial_kernel for block in model.backbone.blocks]


def set_kernels(model, values):
    for kernel, value in zip(spatial_kernels(model), values):
        kernel.assign(value)


SIZES = (8, 12, 16, 24, 32)
moved_models = {}
results = {name: [] for name in ("resized", "no factor", "shuffled", "images")}
for new_side in SIZES:
    there = resized(split.test[0], new_side)
    moved_model = GMLPImageClassifier.from_preset(
        FILES / "preset", image_shape=(new_side, new_side, 1)
    )
    moved_models[new_side] = moved_model
    right = [ops.convert_to_numpy(k) for k in spatial_kernels(moved_model)]
    factor = (side / new_side) ** 2  # n_old / n_new
    results["resized"].append(accuracy(moved_model, there))
    set_kernels(moved_model, [w / factor for w in right])
    results["no factor"].append(accuracy(moved_model, there))
    set_kernels(
        moved_model,
        [rng.permutation(w.ravel()).reshape(w.shape) for w in right],
    )
    results["shuffled"].append(accuracy(moved_model, there))
    set_kernels(moved_model, right)
    back = data.ImagePreprocessor(
        (side, side, 1), interpolation="bilinear", resize="squash"
    ).batch(there)
    results["images"].append(accuracy(model, back))

print("image side " + "".join(f"{size:8d}" for size in SIZES))
for name, accuracies in results.items():
    print(f"{name:10s} " + "".join(f"{value:8.3f}" for value in accuracies))

# %%
figure = Figure(figsize=(5.8, 3.6), layout="constrained")
axis = figure.subplots()
NAMES = {
    "images": "model as it was, images resized to 16x16",
    "resized": "W resized, times n_old/n_new",
    "no factor": "W resized, without the factor",
    "shuffled": "W resized and shuffled",
}
for name, label in NAMES.items():
    axis.plot(SIZES, results[name], marker="o", label=label)
axis.axvline(side, color="grey", linewidth=0.8, linestyle=":")
axis.set(
    xlabel="side of the test images in pixels (trained at 16)",
    ylabel="test accuracy",
    ylim=(0, 1),
    xticks=SIZES,
    title="A trained model on other grids",
)
axis.grid(alpha=0.3)
axis.legend(fontsize=7)
show(figure, "03_other_sizes.png")

# %% [markdown]
# The same row of $W$ on three grids, below the digit as the model gets it. A
# square marks the token. The range of colours is scaled with the weights: a
# finer grid has more and smaller ones.

# %%
figure = Figure(figsize=(6.6, 4.4), layout="constrained")
axes = figure.subplots(2, 3)
for (above, below), new_side in zip(axes.T, (8, 16, 32)):
    grid = new_side // 2
    row, column = 3 * grid // 8, 5 * grid // 8
    w = analysis.spatial_weights(moved_models[new_side])["block_0"][0]
    picture = w[row * grid + column].reshape(grid, grid)
    limit = abs(picture).max()
    above.imshow(
        resized(split.test[0][:1], new_side)[0, ..., 0],
        cmap="gray_r",
        vmin=0,
        vmax=1,
    )
    above.set_title(f"{new_side}x{new_side} pixels", fontsize=9)
    below.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
    below.plot(column, row, "s", ms=6, mfc="none", mec="k")
    below.set_title(f"{grid}x{grid} patches, ±{limit:.2g}", fontsize=9)
    for axis in (above, below):
        axis.set(xticks=[], yticks=[])
show(figure, "03_one_row_of_w.png")

# %%
at = {
    name: dict(zip(SIZES, accuracies)) for name, accuracies in results.items()
}
assert at["resized"][side] == at["no factor"][side] == trained_accuracy
others = [size for size in SIZES if size != side]
mean = {name: np.mean([at[name][size] for size in others]) for name in at}
assert mean["resized"] > mean["no factor"] + 0.05
assert mean["no factor"] > mean["shuffled"]
assert at["resized"][32] > trained_accuracy - 0.25
assert at["images"][8] > at["resized"][8] + 0.1

# %% [markdown]
# **What to look at.**
#
# - On finer grids, the resized model loses some points of accuracy: at 32x32 it
#   went from 94.2 to 91.1 in a run on PyTorch and from 95.8 to 85.6 in one on
#   TensorFlow. Without the factor, 78.1 and 80.0 were left: there, each gate is
#   four times as far from its bias as it should be.
# - On the coarsest grid it loses much more: 68.9 and 50.8 were left, and some
#   20 without the factor. A 2x2 patch holds four times as much of the digit
#   now, which the map from patches to tokens has never seen; no $W'$ can put
#   that right.
# - Shuffled weights guess. The places are what was learned, not the sizes.
# - Best of all is to leave the model alone and resize the images. So if you
#   only want predictions, do that. (It costs nothing here because the digits
#   hold no more than 8x8 pixels; where larger images do show more, a larger
#   grid can see it, after some training.)
# - The resized weights are a *start* for that training. Exercise 3 trains on at
#   8x8: three epochs gave 82% from resized weights and 58% from fresh ones.
#
# One seed, one small model, 360 test images: the gaps above are far beyond that
# noise, the last digits are not. Another backend starts from other weights and
# gives other digits, as you know now.
#
# ## Where the time goes
#
# First on paper. `count_flops` has a formula for every layer and runs nothing.

# %%
report = analysis.count_flops(model)
print(report)

# %% [markdown]
# Nearly all is in the blocks. Inside a block, by the part it plays, and for
# three image sizes:


# %%
def products(model):
    """Multiply-adds of U, W and V in one block."""
    rows = {
        row.name.split("/")[-1]: row.macs
        for row in analysis.count_flops(model).rows
        if "block_0" in row.name and row.depth == 1
    }
    return [
        rows[name]
        for name in ("intermediate_dense", "gating_unit", "output_dense")
    ]


for new_side in (8, 16, 32):
    u, w, v = products(moved_models[new_side])
    n, d, e = (new_side // 2) ** 2, 64, 192
    assert (u, w, v) == (n * d * e, n * n * e // 2, n * d * e // 2)
    assert abs(w / (u + w + v) - n / (3 * d + n)) < 1e-12
    print(
        f"{new_side:2d}x{new_side:2d} pixels, n = {n:3d}: U {u:10,}  "
        f"W {w:10,}  V {v:10,}   W has {w / (u + w + v):4.0%}"
    )

# %% [markdown]
# **What to look at.** $U$ and $V$ grow with $n$, $W$ with $n^2$. Its share is
# $n / (3d + n)$: small for small images, and most of the work when $n > 3d$.
#
# Now with a clock: the forward pass, and a training step with SGD and one with
# AdamW, on the same 64 images; then on 32 of them. A clock on a busy machine is
# a bad witness. So take turns, several times, and look at medians; and keep the
# first time apart.

# %%
some = batches[0]
runs = {}
for name, optimizer in (
    ("SGD", keras.optimizers.SGD(1e-3)),
    ("AdamW", AdamW(1e-3, weight_decay=0.05)),
):
    copy = GMLPImageClassifier.from_preset(FILES / "preset")
    copy.compile(optimizer)
    if not runs:
        runs["forward"] = lambda copy=copy: copy.predict_on_batch(some[0])
    runs[name] = lambda copy=copy: copy.train_on_batch(*some)

runs["AdamW, 32"] = lambda: copy.train_on_batch(some[0][:32], some[1][:32])

seconds = {name: [] for name in runs}
for _ in range(10):
    for name, run in runs.items():
        begin = time.perf_counter()
        run()
        seconds[name].append(time.perf_counter() - begin)

print(f"on {ours}       first time     later (median, and quartiles)")
medians = {}
for name, (first, *later) in seconds.items():
    low, medians[name], high = np.percentile(later, (25, 50, 75))
    print(
        f"{name:10s} {1000 * first:12,.0f} ms {1000 * medians[name]:9.1f} ms"
        f"  ({1000 * low:.1f} to {1000 * high:.1f})"
    )
if ours != "torch":  # compiled when it is first needed
    for name in ("forward", "SGD", "AdamW"):
        assert seconds[name][0] > 2 * medians[name]
flops = report.flops * len(some[0])
print(
    f"forward: {flops / 1e9:.2f} GFLOPs, so "
    f"{flops / medians['forward'] / 1e9:.0f} GFLOPs a second"
)

# %% [markdown]
# **What to look at.**
#
# - *A training step is some three forward passes.* On paper: each product in
#   the forward pass needs two more in the backward pass. Our clocks said 2.5 on
#   PyTorch, 3 on TensorFlow and 4 on JAX.
# - *The optimiser is the rest.* AdamW keeps two averages of each of the 93,770
#   weights, so it reads and writes several times what SGD does, whatever the
#   batch. We saw it add a seventh to the step on PyTorch and next to nothing on
#   JAX. But JAX and TensorFlow took 4 seconds to compile the step with it and 2
#   without. The larger the batch, the less the optimiser shows.
# - *The first time.* On JAX, Keras hands a whole step, with gradients and
#   optimiser, to the XLA compiler. On TensorFlow it makes a graph of it, and
#   compiles it with XLA only where there is a GPU. What comes out is a program
#   for these shapes. Another batch size can be another program: see the last
#   row. So keep the last, smaller batch of an epoch out
#   (`ImageBatches(drop_remainder=True)`) if it costs you a compilation.
#   PyTorch runs operation by operation and compiles nothing unless
#   `compile(jit_compile=True)` asks for it.
# - Whoever times a step must leave out the first one, and take turns.
#
#
# ## Other people's weights
#
# Many public weights carry the names of `timm`, a PyTorch library. There the
# gMLP is the same up to names and the order of axes. `export_checkpoint` gives
# our weights these names, `load_checkpoint` takes them. Files may be
# `.safetensors` or `.npz`; PyTorch's `.pth` can be read, and nothing in it is
# executed.

# %%
arrays = export_checkpoint(model, "timm", FILES / "for_timm.npz")
for name in list(arrays)[:6]:
    print(f"{name:34s} {arrays[name].shape}")
kernel = model.backbone.blocks[0].intermediate_dense.kernel
np.testing.assert_array_equal(  # theirs is (to, from), ours (from, to)
    arrays["blocks.0.mlp_channels.fc1.weight"], ops.convert_to_numpy(kernel).T
)

new = GMLPImageClassifier.from_preset(
    "gmlp_digits_nano", num_classes=10, load_weights=False, **SIZES_OF_MODEL
)
print(load_checkpoint(new, FILES / "for_timm.npz"))
assert difference(new.predict(images, verbose=0), before) < 1e-6

# %% [markdown]
# All of a checkpoint is loaded, or nothing. What you leave out you name, such
# as the head when the classes are others; a missing or surplus name is an
# error, and weights for another grid are resized as above.

# %%
other = GMLPImageClassifier.from_preset(
    "gmlp_digits_nano",
    num_classes=3,
    load_weights=False,
    intermediate_dim=192,
    image_shape=(24, 24, 1),
)
try:
    load_checkpoint(other, {**arrays, "blocks.0.surplus": np.zeros(3)})
except ValueError as error:
    print(str(error)[:300], "...\n")
else:
    raise AssertionError("a surplus name went unnoticed")

loaded = load_checkpoint(other, arrays, skip=["head"])
print(loaded)
assert loaded.grids == ((8, 8), (12, 12))
assert len(loaded.resized) == 8  # W and b of four blocks

# %% [markdown]
# ## Summary
#
# - `KERAS_BACKEND` is read once, when Keras is imported. One process, one
#   backend; they live side by side in one environment.
# - Weights and files go from backend to backend, and outputs agree to rounding.
#   A seed does not: initial weights and dropout are drawn anew.
# - `from_preset(folder, image_shape=...)` carries spatial weights to another
#   grid: interpolated over both grids, times $n_\text{old}/n_\text{new}$.
#   That is a start for training on, not a promise. For predictions alone,
#   resizing the images is safer.
# - The first step compiles, on JAX and TensorFlow. Later steps are spent in $U$
#   and $V$, and in $W$ once $n$ is large against $3d$.
# - `load_checkpoint` and `export_checkpoint` speak timm's names.
#
# ## Exercises
#
# Solutions are in `tutorials/solutions/03_one_model_three_backends.py`.
#
# 1. *One start for all.* Write a function that gives a fresh model initial
#    weights that are the same on every backend: kernels drawn by NumPy, from
#    the distribution that Keras would use. Which weights need no draw?
# 2. *A Mixer.* A Mixer block mixes tokens with two matrices, a GELU between:
#    $W_2\,\mathrm{GELU}(W_1 v + b_1) + b_2$, where $W_1$ goes from $n$ tokens
#    to $h$ hidden units. For another grid, which of the four changes, and which
#    takes the factor $n_\text{old}/n_\text{new}$? Compare with what
#    `load_checkpoint` does to a `MixerBackbone`.
# 3. *Train on.* Move the model to 8x8 images and train it there for three
#    epochs, once with the resized weights and once with fresh spatial weights
#    ($W \approx 0$, $b = 1$). What are the resized ones worth?
# 4. *Where W takes over.* With $d = 64$ and 2x2 patches, from which image side
#    on does $W$ cost more than $U$ and $V$ together? For the paper's small
#    model with 16x16 patches and $d = 256$? Check with `count_flops`.
