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
# # Solutions: one model, three backends
#
# Three short trainings, about a minute on two CPU cores:
# `python tutorials/solutions/03_one_model_three_backends.py`.

# %%
import mlp_mixers  # before Keras, so that it can pick an installed backend

print(f"mlp_mixers {mlp_mixers.__version__}")

# %%
import logging
import math
import tempfile

import keras
import numpy as np

from mlp_mixers import data
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.training import AdamW
from mlp_mixers.training import warmup_cosine
from mlp_mixers.weights import resize_spatial_weights

# %% [markdown]
# ## 1. One start for all
#
# A `Dense` kernel starts from Glorot's uniform distribution, between
# $\pm\sqrt{6 / (\text{rows} + \text{columns})}$. $W$ starts from a normal
# distribution of standard deviation $10^{-6}$. The bias of the patches is
# uniform in $\pm 1/\sqrt{\text{pixels}}$. No draw is needed for what starts
# as a constant: the other biases at zero, $\gamma$ at one, $\beta$ at zero, $b$
# at one. These are the same on every backend already.
#
# Ask the weights for their names, and in the order of the model, so that each
# gets the same piece of the same stream.


# %%
def numpy_start(model, seed):
    """Draws the initial weights of a gMLP by NumPy; returns the model."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        shape = tuple(weight.shape)
        if weight.path.endswith("spatial_kernel"):
            weight.assign(rng.normal(0, 1e-6, shape).astype("float32"))
        elif weight.path.endswith("patch_embedding/dense/bias"):
            backbone = getattr(model, "backbone", model)
            embedding = backbone.get_layer("patch_embedding")
            limit = embedding.dense.kernel.shape[0] ** -0.5
            weight.assign(rng.uniform(-limit, limit, shape).astype("float32"))
        elif weight.path.endswith("kernel"):
            limit = math.sqrt(6 / sum(shape))
            weight.assign(rng.uniform(-limit, limit, shape).astype("float32"))
    return model


# %% [markdown]
# ## 2. A Mixer
#
# Follow the tokens. $W_1$ and $b_1$ make hidden units *from* a sum over tokens:
# the hidden units stay, the sum gets $n_\text{new}/n_\text{old}$ times as many
# terms. So the token axis of $W_1$ is interpolated *with* the factor, and $b_1$
# stays as it is. The GELU then sees what it saw before, which matters, since it
# is not linear. $W_2$ and $b_2$ make a field of tokens *from* hidden units:
# their token axes are interpolated, without the factor.
#
# The arrays are those of `Dense` layers over the transposed tokens: $W_1$ is
# $(n, h)$ and $W_2$ is $(h, n)$.


# %%
def resize_token_mlp(w1, b1, w2, b2, old_grid, new_grid):
    """W1 (n, h), b1 (h,), W2 (h, n), b2 (n,) for another grid of patches."""
    w1 = resize_spatial_weights(
        w1, old_grid, new_grid, output_axis=None, input_axis=0
    )
    w2 = resize_spatial_weights(
        w2, old_grid, new_grid, output_axis=1, input_axis=None
    )
    b2 = resize_spatial_weights(
        b2, old_grid, new_grid, output_axis=0, input_axis=None
    )
    return w1, b1, w2, b2


# %% [markdown]
# ## 3. Train on
#
# `fresh_spatial_weights` undoes what `from_preset` has carried over, and
# nothing else; `train` starts with a new optimiser, since the moving averages
# of the old one belong to another grid.


# %%
def fresh_spatial_weights(model, seed=0):
    """Sets W ≈ 0 and b = 1 in every gating unit; returns the model."""
    rng = np.random.default_rng(seed)
    for block in model.backbone.blocks:
        unit = block.gating_unit
        for weight, mean, spread in (
            (unit.spatial_kernel, 0.0, 1e-6),
            (unit.spatial_bias, 1.0, 0.0),
        ):
            value = rng.normal(mean, spread, tuple(weight.shape))
            weight.assign(value.astype("float32"))
    return model


def resized(images, side):
    """The 8x8 images at another size, antialiased where they shrink."""
    fit = data.ImagePreprocessor(
        (side, side, 1), interpolation="bilinear", resize="squash"
    )
    return fit.batch(images)


def train(model, images, labels, epochs, peak, max_shift):
    """The recipe of the tutorial."""
    batches = data.ImageBatches(
        images, labels, batch_size=64, max_shift=max_shift
    )
    steps = epochs * len(batches)
    model.compile(
        AdamW(
            warmup_cosine(peak, steps, warmup_steps=steps // 10),
            weight_decay=0.05,
            global_clipnorm=1.0,
        )
    )
    model.fit(batches, epochs=epochs, shuffle=False, verbose=0)
    return model


def accuracy(model, images, labels):
    guesses = model.predict(images, batch_size=120, verbose=0).argmax(axis=-1)
    return float((guesses == labels).mean())


# %% [markdown]
# ## 4. Where W takes over
#
# $U$ and $V$ cost $n d e$ and $n d e / 2$ multiply-adds, $W$ costs $n^2 e / 2$.
# $W$ is more than both when $n^2/2 > \tfrac32 n d$, that is $n > 3d$, whatever
# $e$ is. With $d = 64$ and 2x2 patches, $n = (s/2)^2 > 192$ from $s = 28$ on
# ($n = 196$). With $d = 256$ and 16x16 patches $n > 768$, from $s = 448$ on
# ($n = 784$); at 224 pixels $n = 196$, and $W$ has a fifth.


# %%
def share_of_w(n, d):
    """How much of the multiply-adds of U, W and V are those of W."""
    return n / (3 * d + n)


def side_from_which_w_leads(d, patch_size):
    """Smallest image side at which W costs more than U and V together."""
    side = patch_size
    while (side // patch_size) ** 2 <= 3 * d:
        side += patch_size
    return side


# %%
def main():
    logging.getLogger("mlp_mixers").setLevel(logging.ERROR)
    keras.utils.set_random_seed(0)
    split = data.load_digits()
    labels = split.train[1]
    model = GMLPImageClassifier.from_preset(
        "gmlp_digits_nano",
        num_classes=10,
        load_weights=False,
        intermediate_dim=192,
        image_shape=(16, 16, 1),
    )
    train(model, resized(split.train[0], 16), labels, 10, 4e-3, max_shift=2)
    trained = accuracy(model, resized(split.test[0], 16), split.test[1])
    print(f"trained at 16x16: test accuracy {trained:.4f}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        model.save_to_preset(folder)
        for name in ("resized", "fresh"):
            moved = GMLPImageClassifier.from_preset(
                folder, image_shape=(8, 8, 1)
            )
            if name == "fresh":
                fresh_spatial_weights(moved)
            before = accuracy(moved, *split.test)
            train(moved, split.train[0], labels, 3, 2e-3, max_shift=1)
            after = accuracy(moved, *split.test)
            print(
                f"moved to 8x8, {name:7s} spatial weights: test accuracy "
                f"{before:.4f}, after three epochs {after:.4f}",
                flush=True,
            )

    for d, patch_size in ((64, 2), (256, 16)):
        side = side_from_which_w_leads(d, patch_size)
        n = (side // patch_size) ** 2
        print(
            f"d = {d}, patches of {patch_size}x{patch_size}: W leads from "
            f"{side}x{side} pixels on, with {share_of_w(n, d):.1%}"
        )


if __name__ == "__main__":
    main()
