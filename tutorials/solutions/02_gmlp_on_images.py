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
# # Solutions: gMLP on images
#
# Four trainings, two to three minutes on two CPU cores:
# `python tutorials/solutions/02_gmlp_on_images.py`.

# %%
import mlp_mixers  # before Keras, so that it can pick an installed backend

print(f"mlp_mixers {mlp_mixers.__version__}")

# %%
import keras
import numpy as np

from mlp_mixers import data
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.training import AdamW
from mlp_mixers.training import warmup_cosine


def build(**changes):
    """The model of the tutorial, with other arguments for its backbone."""
    return GMLPImageClassifier.from_preset(
        "gmlp_digits_nano", num_classes=10, load_weights=False, **changes
    )


def train(model, split, epochs=20, max_shift=1):
    """The recipe of the tutorial, with fewer epochs."""
    batches = data.ImageBatches(
        *split.train, batch_size=32, max_shift=max_shift
    )
    steps = epochs * len(batches)
    model.compile(
        AdamW(
            warmup_cosine(2e-3, steps, warmup_steps=steps // 10),
            weight_decay=0.05,
            global_clipnorm=1.0,
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(batches, epochs=epochs, verbose=0)
    return model


def accuracy(model, images, labels):
    guesses = model.predict(images, verbose=0).argmax(axis=-1)
    return float((guesses == labels).mean())


# %% [markdown]
# ## 1. Without the product
#
# A fair comparison is not quite possible: the split gate hands only half of
# the channels to $V$, the linear gate all of them, so $V$ is twice as wide.
# That is `linear_surplus` parameters more, norms included. The linear gate
# also needs another start: with $W \approx 0$ nothing would get through, so
# the layer takes Glorot's for it.


# %%
def linear_surplus(num_layers, hidden_dim, intermediate_dim):
    """How many parameters `gate="linear"` has more than `gate="split"`."""
    half = intermediate_dim // 2
    v_kernel = half * hidden_dim  # V is (e, d) and not (e/2, d)
    norm = 2 * half  # γ and β for all channels, not for half of them
    return num_layers * (v_kernel + norm)


# %% [markdown]
# ## 2. Shifted digits
#
# Every place has weights of its own, in $W$ and in $b$. A moved digit falls on
# other places, hence on other weights. What a convolution has built in, a gMLP
# must learn from moved examples. (The map from patches to tokens is shared by
# all places. So a move by a whole patch, two pixels here, moves tokens without
# changing them; a move by one pixel changes the tokens, too.)


# %%
def accuracy_by_shift(model, images, labels, distances):
    """Accuracy when all images are moved right by each of `distances`.

    Returns:
        Dictionary from distance to accuracy.
    """
    results = {}
    for distance in distances:
        shifts = np.tile([0, distance], (len(images), 1))  # (down, right)
        moved = data.shift_images(images, shifts)
        results[distance] = accuracy(model, moved, labels)
    return results


# %% [markdown]
# ## 3. One pixel, one token
#
# With `patch_size=1` there are 64 tokens of one number each. $W$ grows from
# $16^2$ to $64^2$ weights a block, while $U$ and $V$ stay as they are: they
# work across channels and know nothing of $n$.


# %%
def spatial_parameters(num_layers, image_side, patch_size):
    """Parameters of all W and b together."""
    n = (image_side // patch_size) ** 2
    return num_layers * (n * n + n)


# %%
def main():
    split = data.load_digits()
    images, labels = split.test

    models = {}
    for name, changes, max_shift in (
        ("split gate", {}, 1),
        ("linear gate", {"gate": "linear"}, 1),
        ("never shifted", {}, 0),
        ("patch size 1", {"patch_size": 1}, 1),
    ):
        keras.utils.set_random_seed(0)
        models[name] = train(build(**changes), split, max_shift=max_shift)
        print(
            f"{name:14s} {models[name].count_params():8,} parameters  "
            f"test accuracy {accuracy(models[name], images, labels):.4f}",
            flush=True,
        )

    surplus = (
        models["linear gate"].count_params()
        - models["split gate"].count_params()
    )
    assert surplus == linear_surplus(4, hidden_dim=64, intermediate_dim=384)

    for name in ("split gate", "never shifted"):
        by_shift = accuracy_by_shift(models[name], images, labels, range(4))
        line = "  ".join(f"{k}: {v:.3f}" for k, v in by_shift.items())
        print(f"{name:14s} accuracy by pixels to the right  {line}")

    for patch_size in (2, 1):
        count = spatial_parameters(4, image_side=8, patch_size=patch_size)
        print(f"patch size {patch_size}: {count:,} parameters in W and b")


if __name__ == "__main__":
    main()
