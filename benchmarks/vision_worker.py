"""The worker of `benchmarks.vision` for our models, and for the input.

`KERAS_BACKEND` says on which backend. `--side input` makes batches only.
"""

import argparse
import importlib.metadata
import os
import pathlib
import tempfile
import time

import numpy as np

from benchmarks.protocol import limit_threads
from benchmarks.protocol import peak_memory
from benchmarks.protocol import serve
from benchmarks.protocol import timed
from benchmarks.protocol import use_cores

GEMM = 2048


def build(arguments):
    """The compiled classifier."""
    import keras

    from mlp_mixers.models import ImageClassifier
    from mlp_mixers.training import AdamW

    model = ImageClassifier.from_preset(
        arguments.preset,
        load_weights=False,
        num_classes=arguments.classes,
        drop_path_rate=0.0,
    )
    if arguments.optimizer == "sgd":
        optimizer = keras.optimizers.SGD(1e-3)
    else:
        optimizer = AdamW(1e-3, weight_decay=0.05, global_clipnorm=1.0)
    jit = {"auto": "auto", "on": True, "off": False}[arguments.jit]
    model.compile(optimizer, jit_compile=jit)
    return model


def batch_of(arguments, image_shape):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(arguments.batch, *image_shape))
    labels = rng.integers(arguments.classes, size=arguments.batch)
    return images.astype("float32"), labels


def serve_model(arguments):
    """Training step, inference and matrix product on a Keras backend."""
    start = time.perf_counter()
    limit_threads(arguments.threads)
    import keras

    import mlp_mixers  # noqa: F401
    from mlp_mixers.analysis import count_flops

    imported = time.perf_counter() - start
    start = time.perf_counter()
    model = build(arguments)
    built = time.perf_counter() - start
    images, labels = batch_of(arguments, model.backbone.image_shape)
    square = np.random.default_rng(1).normal(size=(GEMM, GEMM))
    a = keras.ops.convert_to_tensor(square.astype("float32"))

    def gemm():
        product = keras.ops.matmul(a, a)
        if keras.backend.backend() == "jax":
            product.block_until_ready()
        elif keras.backend.backend() == "tensorflow":
            product.numpy()

    def train():
        if not model.optimizer.built and arguments.optimizer == "adamw-built":
            model.optimizer.build(model.trainable_variables)
        model.train_on_batch(images, labels)

    serve(
        {
            "start": lambda: {
                "import": imported,
                "build": built,
                "parameters": model.count_params(),
                "flops": 2 * count_flops(model).macs,
                "versions": versions("keras", os.environ["KERAS_BACKEND"]),
            },
            "infer": timed(lambda: model.predict_on_batch(images)),
            "train": timed(train),
            "gemm": timed(gemm),
            "memory": peak_memory,
        }
    )


def serve_by_hand(arguments):
    """The same model and step in plain JAX."""
    start = time.perf_counter()
    use_cores(arguments.threads)
    import jax

    from benchmarks import vision_by_hand

    imported = time.perf_counter() - start
    from mlp_mixers.models.presets import PRESETS

    config = PRESETS[arguments.preset]["config"]
    start = time.perf_counter()
    weights = vision_by_hand.initial_weights(config, arguments.classes)
    built = time.perf_counter() - start
    adamw = arguments.optimizer != "sgd"
    state = [vision_by_hand.initial_state(weights, adamw)]
    step = vision_by_hand.compile_step(config, adamw)
    predict = vision_by_hand.compile_predict(config)
    images, labels = batch_of(arguments, config["image_shape"])

    def train():
        loss, state[0] = step(state[0], images, labels)
        float(loss)
        jax.block_until_ready(state[0])

    serve(
        {
            "start": lambda: {
                "import": imported,
                "build": built,
                "parameters": sum(w.size for w in weights.values()),
                "versions": versions("jax"),
            },
            "infer": timed(lambda: np.asarray(predict(state[0][0], images))),
            "train": timed(train),
            "memory": peak_memory,
        }
    )


def serve_input(arguments):
    """Batches from JPEG files with all of the augmentation, as images/s."""
    use_cores(arguments.threads)
    from mlp_mixers.models.presets import PRESETS

    size = PRESETS[arguments.preset]["config"]["image_shape"][:2]
    with tempfile.TemporaryDirectory() as folder:
        paths = write_photographs(pathlib.Path(folder), 24 * arguments.batch)
        serve(
            {
                "start": lambda: {"versions": versions("pillow", "numpy")},
                "1 worker": lambda: images_per_second(
                    paths, size, arguments, workers=1
                ),
                "2 workers": lambda: images_per_second(
                    paths, size, arguments, workers=2
                ),
                "memory": peak_memory,
            }
        )


def write_photographs(folder, count):
    """JPEG files of ImageNet's usual 500x375, smooth with some noise."""
    from PIL import Image

    rng = np.random.default_rng(0)
    paths = []
    for i in range(count):
        coarse = rng.integers(0, 256, size=(12, 16, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((500, 375), Image.BICUBIC)
        noisy = np.asarray(smooth) + rng.normal(scale=8, size=(375, 500, 3))
        path = folder / f"{i}.jpg"
        pixels = np.clip(noisy, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=90)
        paths.append(path)
    return paths


def images_per_second(paths, size, arguments, workers):
    """One pass over the files, after a batch that is not counted."""
    from mlp_mixers import data

    augmentation = data.Compose(
        [data.RandomResizedCrop(size), data.RandomFlip(), data.AutoAugment()]
    )
    batches = data.ImageBatches(
        data.ImageFiles(paths),
        np.arange(len(paths)) % arguments.classes,
        batch_size=arguments.batch,
        augmentation=augmentation,
        preprocessor=data.ImagePreprocessor((*size, 3), 0.5, 0.5),
        mixing=data.Mixing(),
        num_classes=arguments.classes,
        label_smoothing=0.1,
        workers=workers,
        max_queue_size=2,
    )
    try:
        batches[0]
        start = time.perf_counter()
        for i in range(1, len(batches)):
            batches[i]
        seconds = time.perf_counter() - start
    finally:
        batches.close()
    return (len(paths) - arguments.batch) / seconds


def versions(*names):
    return {name: importlib.metadata.version(name) for name in names}


def main():
    parser = argparse.ArgumentParser()
    sides = {
        "model": serve_model,
        "by-hand": serve_by_hand,
        "input": serve_input,
    }
    parser.add_argument("--side", choices=list(sides), required=True)
    parser.add_argument("--preset", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--classes", type=int, required=True)
    parser.add_argument(
        "--optimizer", choices=("sgd", "adamw", "adamw-built"), required=True
    )
    parser.add_argument("--jit", choices=("auto", "on", "off"), default="auto")
    arguments = parser.parse_args()
    sides[arguments.side](arguments)


if __name__ == "__main__":
    main()
