"""Two deviations of a widely copied gMLP block: do they matter on the digits?

The gMLP block of the keras.io example `vision/mlp_image_classification`
differs from the paper in two places. Its residual connection starts at the
*normalised* input of the block, and its spatial matrix W starts where a Keras
layer starts by default (Glorot uniform) and not near zero; only the spatial
bias is the paper's ones. This script trains four kinds of block, with each
deviation, both and none, by one and the same recipe:

    ours        Y = X + Z̃·V                  W ~ N(0, 1e-6), b = 1
    residual    Y = norm(X) + Z̃·V            W ~ N(0, 1e-6), b = 1
    large_w     Y = X + Z̃·V                  W ~ Glorot uniform, b = 1
    both        Y = norm(X) + Z̃·V            W ~ Glorot uniform, b = 1

Everything else of the example (its dropout, its width, its optimiser) is left
out: the question is what these two places do.

    KERAS_BACKEND=jax python -m benchmarks.keras_io_comparison
    python -m benchmarks.keras_io_comparison --report

Every finished run is written to the file of `--out` at once. A second call
does only what is missing, so an interrupted study goes on where it stopped.
`docs/results.md` has the numbers.
"""

import dataclasses
import functools
import math
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip
from benchmarks import study
from mlp_mixers import data
from mlp_mixers.layers import GMLPBlock
from mlp_mixers.layers import PatchEmbedding
from recipes import vision
from recipes.vision_settings import Training
from recipes.vision_settings import resolve

# Name: (residual from the normalised input, start of W).
VARIANTS = {
    "ours": (False, None),
    "residual": (True, None),
    "large_w": (False, "glorot_uniform"),
    "both": (True, "glorot_uniform"),
}


@dataclasses.dataclass(frozen=True)
class Size:
    """Number of blocks, their width, and how many seeds to train."""

    hidden_dim: int
    intermediate_dim: int
    seeds: int


SIZES = {4: Size(64, 384, 5), 16: Size(32, 192, 3)}  # by number of blocks


PATCH_SIZE = 2
# The recipe's own settings, with fewer epochs.
TRAINING = resolve(Training(epochs=25, warmup_fraction=0.12))


@keras.saving.register_keras_serializable(package="benchmarks")
class NormalisedResidualBlock(GMLPBlock):
    """`GMLPBlock` whose residual connection starts at the normalised input."""

    def call(self, x, mask=None, training=False):
        normed = self.norm(x)
        z = self.gating_unit(self.intermediate_dense(normed), mask=mask)
        return normed + self.output_dense(z)


def build(variant, depth, split):
    """Patches, `depth` blocks, a normalisation, the mean, a head."""
    normalised_residual, kernel_initializer = VARIANTS[variant]
    block_cls = NormalisedResidualBlock if normalised_residual else GMLPBlock
    size = SIZES[depth]
    images = keras.Input(split.train[0].shape[1:])
    x = PatchEmbedding(size.hidden_dim, PATCH_SIZE)(images)
    for _ in range(depth):
        x = block_cls(
            size.intermediate_dim, kernel_initializer=kernel_initializer
        )(x)
    x = keras.layers.LayerNormalization(epsilon=1e-6)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(images, keras.layers.Dense(len(split.class_names))(x))


def train(split, variant, depth, seed):
    """Trains one model and returns what is recorded of it."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    model = build(variant, depth, split)
    batches = data.ImageBatches(
        *split.train,
        batch_size=TRAINING.batch_size,
        max_shift=TRAINING.max_shift,
        seed=seed,
    )
    model.compile(
        vision.optimizer(TRAINING, len(batches)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    start = time.perf_counter()
    history = model.fit(
        batches,
        epochs=TRAINING.epochs,
        validation_data=split.validation,
        callbacks=[keras.callbacks.TerminateOnNaN()],
        verbose=0,
    ).history
    seconds = time.perf_counter() - start
    scores = model.evaluate(*split.test, verbose=0, return_dict=True)
    return {
        "parameters": model.count_params(),
        "test_accuracy": scores["accuracy"],
        "test_loss": scores["loss"],
        "seconds": seconds,
        "history": history,
    }


def plan():
    """All runs, seed by seed, so that an unfinished study is balanced."""
    most = max(size.seeds for size in SIZES.values())
    return [
        (variant, depth, seed)
        for seed in range(most)
        for depth, size in SIZES.items()
        for variant in VARIANTS
        if seed < size.seeds
    ]


def diverged(run):
    """Whether the loss is not a number, or ends no better than guessing."""
    last = run["history"]["loss"][-1]
    return not math.isfinite(last) or last > math.log(10)


def epochs_until(run, accuracy):
    """The first epoch with that validation accuracy; NaN if there is none."""
    for epoch, value in enumerate(run["history"]["val_accuracy"], 1):
        if value >= accuracy:
            return epoch
    return math.nan


def loss_of(run, epoch):
    """The training loss of an epoch, counted from 1; NaN if none was run."""
    losses = run["history"]["loss"]
    return losses[epoch - 1] if epoch <= len(losses) else math.nan


def table(finished):
    """The results as a Markdown table."""
    lines = [
        "| blocks | variant | seeds | test accuracy, % | test loss "
        "| training loss, epoch 1 | epoch 3 | epochs to 90% | diverged |",
        "|--:|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for depth in SIZES:
        for variant in VARIANTS:
            some = [
                run for run in finished if run["key"][:2] == [variant, depth]
            ]
            if not some:
                continue
            cells = [
                depth,
                f"`{variant}`",
                len(some),
                study.mean_and_std(
                    (100 * r["test_accuracy"] for r in some), "{:.2f}"
                ),
                study.mean_and_std((r["test_loss"] for r in some), "{:.3f}"),
                study.mean_and_std((loss_of(r, 1) for r in some), "{:.2f}"),
                study.mean_and_std((loss_of(r, 3) for r in some), "{:.2f}"),
                study.mean_and_std(
                    (epochs_until(r, 0.9) for r in some), "{:.1f}"
                ),
                sum(diverged(r) for r in some),
            ]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    seconds = sum(run["seconds"] for run in finished)
    lines += ["", f"{len(finished)} runs, {seconds / 60:.0f} minutes of fit."]
    return "\n".join(lines)


def main():
    study.main(
        study.Study(
            name="keras_io_comparison",
            settings={
                "training": dataclasses.asdict(TRAINING),
                "sizes": {
                    str(k): dataclasses.asdict(v) for k, v in SIZES.items()
                },
                "backend": keras.backend.backend(),
            },
            plan=plan(),
            train=functools.partial(train, data.load_digits()),
            table=table,
        ),
        study.command_line(__doc__).parse_args(),
    )


if __name__ == "__main__":
    main()
