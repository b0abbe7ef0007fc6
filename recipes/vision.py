"""Train, finetune, evaluate and use image classifiers.

    python -m recipes.vision
    python -m recipes.vision --preset amlp_digits_nano --epochs 30
    python -m recipes.vision --data folder:~/pictures --recipe cifar
    python -m recipes.vision --data folder:~/pictures --from gmlp_small_224
    python -m recipes.vision --resume runs/vision
    python -m recipes.vision --evaluate runs/vision
    python -m recipes.vision --from runs/vision --predict a.jpg b.png
    KERAS_BACKEND=torch python -m recipes.vision --num-layers 8

A run leaves a folder with the model, its history, the learning curves, the
spatial filters, the configuration and the results. On the digits, the default
run takes a minute or two on two CPU cores; `docs/results.md` has its accuracy.
"""

import dataclasses
import shutil
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip
import numpy as np

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.models import ImageClassifier
from mlp_mixers.models import MixerBackbone
from mlp_mixers.training import AdamW
from mlp_mixers.training import TrainingCheckpoint
from mlp_mixers.training import warmup_cosine
from recipes import command
from recipes import fitting
from recipes import runs
from recipes import vision_data
from recipes import vision_models
from recipes.recipe import Recipe
from recipes.records import from_record
from recipes.vision_settings import Config
from recipes.vision_settings import Training
from recipes.vision_settings import resolve


def main(config):
    """Trains, goes on, evaluates or predicts, as a `Config` asks.

    Returns:
        Dictionary of results, as in `results.json`; for `predict`, a list of
        `(file, [(class, probability), ...])`.

    Raises:
        As `Recipe.main`.
    """
    return RECIPE.main(config)


@dataclasses.dataclass
class Prepared:
    """All that a run needs, made before its folder."""

    settings: Training
    split: data.Split
    model: ImageClassifier
    preprocessor: data.ImagePreprocessor
    batches: vision_data.TrainingBatches
    data_digest: str

    @property
    def built(self):
        return self.model.backbone.get_config()

    @property
    def identity(self):
        return {"set of images": self.data_digest}


def prepare(config):
    """Data and a compiled model; whatever can be wrong is said here.

    Raises:
        ValueError: If a setting is out of range, data or model cannot be had.
    """
    settings = resolve(config.training)
    if config.model.freeze and config.model.from_ is None:
        raise ValueError(
            "--freeze trains the head alone, which needs a trained model "
            "below it: name one with --from."
        )
    keras.utils.set_random_seed(config.seed)
    source = source_of(config.model)
    split = vision_data.load(config, source)
    model, preprocessor = build(config, split, source)
    batches = vision_data.training_batches(
        split, preprocessor, settings, config
    )
    vision_data.check_batches(split, preprocessor, settings, config)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(
        optimizer(settings, len(batches)),
        loss=loss if batches.targets_are_soft else "auto",
    )
    digest = vision_data.digest(split)
    return Prepared(settings, split, model, preprocessor, batches, digest)


def run(folder, config, prepared):
    """Trains, evaluates and records; all that `folder` is for."""
    split, model = prepared.split, prepared.model
    preprocessor = prepared.preprocessor
    print(
        f"{model.name}: {model.count_params():,} parameters, "
        f"{len(split.train[0]):,} training images of {len(split.class_names)} "
        f"classes at {'x'.join(map(str, preprocessor.image_shape))}, "
        f"Keras {keras.__version__} on {keras.backend.backend()}"
    )
    runs.show_notes([*split.notes, *few_steps(prepared)])
    begin = time.perf_counter()
    checkpoint = train(folder, config, prepared)
    seconds = time.perf_counter() - begin

    # As people will go on with it: integer labels.
    model.compile(model.optimizer)
    batches = vision_data.plain_batches(
        split.test, preprocessor, prepared.settings.batch_size
    )
    scores = model.evaluate(batches, verbose=0, return_dict=True)
    results = {
        "test_accuracy": scores["accuracy"],
        "test_loss": scores["loss"],
        "test_images": len(split.test[0]),
        "parameters": model.count_params(),
        "epochs": checkpoint.epochs_done,
        "best_epoch": checkpoint.best_epoch,
        "seconds": seconds,
        "seed": config.seed,
        "data_digest": prepared.data_digest,
        "notes": split.notes,
        "versions": runs.versions(),
    }
    save(folder, model, preprocessor, checkpoint.history, results)
    report(folder, results)
    return results


def few_steps(prepared):
    """Says so where an epoch is over before a model can learn from it."""
    steps = len(prepared.batches)
    if steps >= 4:
        return []
    return [
        f"an epoch has {steps} step{'s' if steps > 1 else ''} of "
        f"{prepared.settings.batch_size} images: a smaller --batch-size, or "
        "more --epochs, would teach more"
    ]


def build(config, split, source=None):
    """The classifier that settings and data ask for.

    Returns:
        `(model, preprocessor)`.
    """
    num_classes = len(split.class_names)
    preset = vision_data.preset_for(config)
    if source is None:
        shape = vision_data.image_shape(config, split, preset)
        model = ImageClassifier.from_preset(
            preset,
            num_classes=num_classes,
            image_shape=shape,
            load_weights=False,
            **changed_sizes(config.model),
        )
    else:
        model = open_trained(config, source, num_classes)
    if config.model.freeze:
        model.backbone.trainable = False
    preprocessor = vision_data.preprocessor_for(
        split, model.backbone.image_shape, source, preset
    )
    return model, preprocessor


def source_of(model):
    """The trained weights that the settings name, or `None`."""
    if model.from_ is None:
        return None
    return vision_models.find(model.from_, model.preset)


def changed_sizes(model):
    """What the settings change in a model: arguments of its classes."""
    others = ("preset", "from_", "freeze", "image_size")
    return {
        name: value
        for name, value in dataclasses.asdict(model).items()
        if value is not None and name not in others
    }


def open_trained(config, source, num_classes=None):
    """The trained model, with the sizes that are asked for."""
    changes = changed_sizes(config.model)
    if config.model.image_size is not None:
        preset = vision_data.preset_for(config)
        channels = vision_data.channels_of(source, preset)
        changes["image_shape"] = (*config.model.image_size, channels)
    return vision_models.open_trained(
        source, config.model.preset, num_classes, **changes
    )


def optimizer(settings, steps_per_epoch):
    """AdamW with the rate, decay, clipping and average of a `Training`."""
    total = steps_per_epoch * settings.epochs
    rate = warmup_cosine(
        settings.learning_rate,
        total_steps=total,
        warmup_steps=int(total * settings.warmup_fraction),
    )
    return AdamW(
        rate,
        weight_decay=settings.weight_decay,
        epsilon=settings.epsilon,
        global_clipnorm=settings.clip_norm or None,
        use_ema=bool(settings.ema),
        ema_momentum=settings.ema or 0.99,
    )


def train(folder, config, prepared):
    """Fits the model, from where the folder's checkpoint left it.

    Returns:
        The `TrainingCheckpoint`.
    """
    settings, split, model = prepared.settings, prepared.split, prepared.model
    batches = prepared.batches
    validation = vision_data.plain_batches(
        split.validation,
        prepared.preprocessor,
        settings.batch_size,
        len(split.class_names) if batches.targets_are_soft else None,
    )
    checkpoint = TrainingCheckpoint(
        folder / "checkpoint",
        identity={
            **RECIPE.settings_of_training(config),
            "data_digest": prepared.data_digest,
        },
    )
    averages = [keras.callbacks.SwapEMAWeights()] if settings.ema else []
    watch = vision_data.InputWatch(batches)
    fitting.fit(
        model,
        batches,
        validation,
        settings.epochs,
        checkpoint,
        "vision",
        before=averages,
        after=[watch],
    )
    watch.report()
    if settings.ema:
        use_averages(model)
    if config.keep == "best":
        checkpoint.load_best(model)
    return checkpoint


def use_averages(model):
    """Gives the model the moving averages of its weights.

    `fit` does so at its end, but there may have been nothing left to fit. And
    on JAX, `fit` leaves weight and average in one buffer, which the next call
    that donates it takes from both.
    """
    model.optimizer.finalize_variable_values(model.trainable_variables)
    for variable in model.trainable_variables:
        variable.assign(np.array(keras.ops.convert_to_numpy(variable)))


def save(folder, model, preprocessor, history, results):
    """Writes the model, the numbers and the pictures of a run."""
    model.save(folder / "model.keras")
    preprocessor.save(folder)
    model.save_to_preset(folder / vision_models.PRESET_FOLDER)
    preprocessor.save(folder / vision_models.PRESET_FOLDER)
    runs.record(folder, "history.json", history)
    analysis.plot_history(history, path=folder / "learning_curves.png")
    # A Mixer's two matrices with a GELU between them are no filters.
    if not isinstance(model.backbone, MixerBackbone):
        analysis.plot_spatial_weights(
            model, path=folder / "spatial_filters.png"
        )
    # Last: this file says that the run is whole.
    runs.record(folder, "results.json", results)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def report(folder, results):
    """Prints what came out, and where it lies."""
    rows = {
        "test accuracy": f"{results['test_accuracy']:.4f}",
        "test loss": f"{results['test_loss']:.4f}",
        "training": f"{results['epochs']} epochs, {results['seconds']:.0f} s",
        "model": folder / "model.keras",
        "learning curves": folder / "learning_curves.png",
    }
    if (folder / "spatial_filters.png").exists():
        rows["spatial filters"] = folder / "spatial_filters.png"
    runs.show("Results", rows)


def evaluate(config):
    """Measures a trained model on the test images of its data or of others."""
    if config.model.from_ is not None:
        raise ValueError(
            "--evaluate names the model already: give it without --from."
        )
    source = vision_models.find(config.evaluate, config.model.preset)
    record = vision_models.saved_run(config.evaluate)
    own = record and config.data.data in (None, record["data"]["data"])
    if own:
        # Cut as then, so that no image that was trained on is tested.
        saved = from_record(Config, record)
        config = dataclasses.replace(config, data=saved.data, seed=saved.seed)
    split = vision_data.load(config, source)
    digest = record and record.get("data_digest")
    if own and digest not in (None, vision_data.digest(split)):
        print(
            "note: the data are not what they were when the model was "
            "trained: it may have seen some of the test images"
        )
    preset = vision_data.preset_for(config)
    model = open_trained(config, source)
    preprocessor = vision_data.preprocessor_for(
        split, model.backbone.image_shape, source, preset
    )
    known = source.preprocessor and source.preprocessor.class_names
    labels = vision_data.labels_for_model(
        split.test[1], split.class_names, known, model.num_classes
    )
    runs.show_notes(split.notes)
    model.compile()
    size = resolve(config.training).batch_size
    batches = vision_data.plain_batches(
        (split.test[0], labels), preprocessor, size
    )
    logits = model.predict(batches, verbose=0)
    results = vision_data.scores(logits, labels, known or split.class_names)
    runs.show(
        f"{config.evaluate} on {len(labels):,} test images",
        vision_data.score_rows(results),
    )
    return results


def predict(config):
    """Says what image files show; unreadable ones are named and left out."""
    if config.model.from_ is None:
        raise ValueError(
            "Say which model shall look at the images: --from runs/vision"
        )
    source = source_of(config.model)
    preset = vision_data.preset_for(config)
    model = open_trained(config, source)
    preprocessor = vision_data.preprocessor_for(
        None, model.backbone.image_shape, source, preset
    )
    images, names, broken = [], [], []
    paths = vision_data.image_paths(config.predict)
    if not paths:
        raise ValueError(
            "There are no images to look at. "
            f"Received: --predict {' '.join(map(str, config.predict))}"
        )
    for path in paths:
        try:
            images.append(preprocessor.read(path))
            names.append(path)
        except (ValueError, OSError) as error:
            broken.append(str(error))
    found = []
    if images:
        logits = model.predict(np.stack(images), verbose=0)
        for path, row in zip(names, vision_data.softmax(logits)):
            found.append((path, preprocessor.top_classes(row, 5)))
        show_predictions(found)
    if broken:
        raise ValueError(
            f"{len(broken)} of {len(broken) + len(names)} images could not be "
            "read:\n  " + "\n  ".join(broken)
        )
    return found


def show_predictions(found, most=3):
    """A table for each image, or a line for each if there are many."""
    if len(found) > most:
        lines = {
            str(path): f"{best[0][0]}  {best[0][1]:.1%}" for path, best in found
        }
        runs.show(f"{len(found)} images", lines)
        return
    for path, best in found:
        runs.show(str(path), {name: f"{value:.1%}" for name, value in best})


RECIPE = Recipe(
    name="vision",
    config_class=Config,
    prepare=prepare,
    run=run,
    report=report,
    result_keys=("test_accuracy", "test_loss", "epochs", "seconds"),
    instead={"predict": predict, "evaluate": evaluate},
)


def cli():
    """The command line."""
    command.run(main, Config, __doc__, "vision")


if __name__ == "__main__":
    cli()
