"""gMLP against ViT, Mixer and ResMLP on small colour images, and its parts.

Eight models of as many parameters, within 2%, are trained from scratch with
one recipe (`recipes.vision`, `--recipe cifar`), with three seeds each:

    gmlp            6 blocks of width 64, 4x4 patches: the paper's unit
    vit             attention: the same widths, 4 heads, learned positions
    mixer, resmlp   the paper's all-MLP baselines
    linear, additive, multiplicative
                    the other gates of the paper's ablation (Table 3), with a
                    narrower expansion, since they do not halve it
    large_w         the paper's unit with W from Glorot's distribution instead
                    of near zero

    export KERAS_BACKEND=torch OMP_WAIT_POLICY=PASSIVE
    python -m benchmarks.vision_study --data cifar10_test.npz --jobs 2
    python -m benchmarks.vision_study --data cifar10_test.npz --report

The data: an npz file of 32x32 colour images, cut by rows, 80% to train, 10% to
validate and 10% to test. `docs/results/vision.md` has the numbers.
"""

import dataclasses
import functools
import pathlib
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip
from keras import layers

from benchmarks import study
from mlp_mixers import data
from mlp_mixers import models
from mlp_mixers.layers import PatchEmbedding
from recipes import vision
from recipes import vision_data
from recipes.vision_settings import Config
from recipes.vision_settings import Training
from recipes.vision_settings import resolve

EPOCHS = 20
SEEDS = 3
SIZES = {
    "image_shape": (32, 32, 3),
    "patch_size": 4,
    "num_layers": 6,
    "hidden_dim": 64,
}
SPLIT_DIM, WHOLE_DIM = 384, 288  # of the gate that halves it, and of others


def gmlp(intermediate_dim=SPLIT_DIM, **changes):
    backbone = models.GMLPBackbone(
        **SIZES, intermediate_dim=intermediate_dim, **changes
    )
    return models.GMLPImageClassifier(backbone, num_classes=10)


def mixer():
    backbone = models.MixerBackbone(
        **SIZES, token_intermediate_dim=32, intermediate_dim=288
    )
    return models.MixerImageClassifier(backbone, num_classes=10)


def resmlp():
    backbone = models.ResMLPBackbone(**SIZES, intermediate_dim=288)
    return models.ResMLPImageClassifier(backbone, num_classes=10)


class Positions(layers.Layer):
    """Adds a learned vector to every token."""

    def build(self, shape):
        self.vectors = self.add_weight(
            shape=shape[1:],
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),
            name="vectors",
        )

    def call(self, x):
        return x + self.vectors


def vit(num_heads=4, intermediate_dim=190):
    """A plain pre-norm vision transformer, mean over tokens, as ours have."""
    width = SIZES["hidden_dim"]
    images = keras.Input(SIZES["image_shape"])
    x = Positions()(PatchEmbedding(width, SIZES["patch_size"])(images))
    for _ in range(SIZES["num_layers"]):
        normed = layers.LayerNormalization(epsilon=1e-6)(x)
        x += layers.MultiHeadAttention(num_heads, width // num_heads)(
            normed, normed
        )
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = layers.Dense(intermediate_dim, activation="gelu")(y)
        x += layers.Dense(width)(y)
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    return keras.Model(images, layers.Dense(10)(x))


VARIANTS = {
    "gmlp": gmlp,
    "vit": vit,
    "mixer": mixer,
    "resmlp": resmlp,
    "linear": functools.partial(gmlp, WHOLE_DIM, gate="linear"),
    "additive": functools.partial(gmlp, WHOLE_DIM, gate="additive"),
    "multiplicative": functools.partial(gmlp, WHOLE_DIM, gate="multiplicative"),
    "large_w": functools.partial(gmlp, kernel_initializer="glorot_uniform"),
}


def train(split, variant, seed):
    """Trains one model and returns what is recorded of it."""
    keras.utils.clear_session(free_memory=True)
    keras.utils.set_random_seed(seed)
    settings = resolve(Training(recipe="cifar", epochs=EPOCHS))
    model = VARIANTS[variant]()
    preprocessor = vision_data.preprocessor_for(
        split, SIZES["image_shape"], None, None
    )
    batches = vision_data.training_batches(
        split, preprocessor, settings, Config(seed=seed)
    )
    model.compile(
        vision.optimizer(settings, len(batches)),
        keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    validation, test = (
        vision_data.plain_batches(part, preprocessor, 100, 10)
        for part in (split.validation, split.test)
    )
    begin = time.perf_counter()
    history = model.fit(
        batches,
        epochs=EPOCHS,
        validation_data=validation,
        callbacks=[
            data.FollowEpochs(batches),
            keras.callbacks.TerminateOnNaN(),
        ],
        shuffle=False,
        verbose=2,
    ).history
    seconds = time.perf_counter() - begin
    scores = model.evaluate(test, verbose=0, return_dict=True)
    return {
        "parameters": model.count_params(),
        "test_accuracy": scores["accuracy"],
        "test_loss": scores["loss"],
        "seconds": seconds,
        "history": history,
    }


def table(finished):
    """The results as a Markdown table."""
    lines = [
        "| model | parameters | seeds | test accuracy, % | test loss "
        "| training accuracy, % | best validation, % | minutes |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for variant in VARIANTS:
        some = [run for run in finished if run["key"][0] == variant]
        if not some:
            continue
        percent = functools.partial(study.mean_and_std, form="{:.1f}")
        cells = [
            f"`{variant}`",
            f"{some[0]['parameters']:,}",
            len(some),
            percent(100 * r["test_accuracy"] for r in some),
            study.mean_and_std((r["test_loss"] for r in some), "{:.3f}"),
            percent(100 * r["history"]["accuracy"][-1] for r in some),
            percent(100 * max(r["history"]["val_accuracy"]) for r in some),
            percent(r["seconds"] / 60 for r in some),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    seconds = sum(run["seconds"] for run in finished)
    lines += ["", f"{len(finished)} runs, {seconds / 60:.0f} minutes of fit."]
    return "\n".join(lines)


def main():
    parser = study.command_line(__doc__)
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        required=True,
        help="npz file of images and labels",
    )
    given = parser.parse_args()
    split = data.load_npz(given.data, split="rows")
    study.main(
        study.Study(
            name="vision_study",
            settings={
                "training": dataclasses.asdict(
                    resolve(Training(recipe="cifar", epochs=EPOCHS))
                ),
                "sizes": SIZES,
                "backend": keras.backend.backend(),
                "images": [len(p[0]) for p in (split.train, split.test)],
            },
            # Seed by seed, so that an unfinished study is balanced.
            plan=[(v, seed) for seed in range(SEEDS) for v in VARIANTS],
            train=functools.partial(train, split),
            table=table,
        ),
        given,
    )


if __name__ == "__main__":
    main()
