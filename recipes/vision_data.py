"""From the settings of `recipes.vision` to images, batches and scores."""

import dataclasses
import hashlib
import pathlib
import time

import keras
import numpy as np

from mlp_mixers import data
from mlp_mixers.data.image_folder import EXTENSIONS
from mlp_mixers.models.presets import PRESETS

# Where neither data nor weights say it: the customary half.
MEAN, STD = 0.5, 0.5


def load(config, source=None):
    """The images that the settings name, as a `Split`."""
    settings = config.data
    spec = settings.data or "digits"
    kind = spec.partition(":")[0]
    options = {}
    if kind in ("npz", "folder", "tfds"):
        options["seed"] = config.seed
    if kind == "npz":
        options["split"] = settings.split
    if kind in ("folder", "tfds"):
        options["channels"] = settings.channels or channels_of(
            source, preset_for(config)
        )
    if kind == "folder":
        options["check"] = settings.check
    if kind == "tfds":
        options["data_dir"] = settings.data_dir
    _refuse("--split", settings.split != "stratified", kind, ("npz",))
    _refuse("--channels", settings.channels, kind, ("folder", "tfds"))
    _refuse("--check", settings.check != "full", kind, ("folder",))
    _refuse("--data-dir", settings.data_dir, kind, ("tfds",))
    return data.load_data(spec, **options)


def digest(split):
    """A short text that is another one when the data are others.

    Of an array it sees every pixel; of files their names and sizes.
    """
    found = hashlib.sha256(" ".join(split.class_names).encode())
    for images, labels in (split.train, split.validation, split.test):
        found.update(np.ascontiguousarray(labels).tobytes())
        if isinstance(images, np.ndarray):
            found.update(np.ascontiguousarray(images))
        for path in map(pathlib.Path, getattr(images, "paths", ())):
            size = path.stat().st_size
            found.update(f"{path.parent.name}/{path.name} {size}".encode())
    return found.hexdigest()[:16]


def _refuse(option, is_given, kind, kinds):
    if (
        is_given
        and kind in ("digits", "npz", "folder", "tfds")
        and (kind not in kinds)
    ):
        raise ValueError(
            f"{option} is for data of the kind {' and '.join(kinds)}. "
            f"Received: {option} with --data {kind}"
        )


def preset_for(config):
    """The preset that is asked for, or the one for the kind of data."""
    if config.model.preset is not None:
        return config.model.preset
    is_digits = config.data.data in (None, "digits")
    return "gmlp_digits_nano" if is_digits else "gmlp_cifar_nano"


def channels_of(source, preset):
    """Channels that the model takes, before it is built."""
    if source is not None and source.preprocessor is not None:
        return source.preprocessor.image_shape[2]
    if preset in PRESETS:
        return PRESETS[preset]["config"]["image_shape"][2]
    return 3


def image_shape(config, split, preset):
    """The shape of the images of a model that starts from nothing.

    The size that is asked for; or that of the data, if they are an array and
    so all alike; or that of the preset.
    """
    images = split.train[0]
    channels = images[0].shape[2]
    if config.model.image_size is not None:
        return (*config.model.image_size, channels)
    if isinstance(images, np.ndarray):
        return images.shape[1:]
    if preset in PRESETS:
        return (*PRESETS[preset]["config"]["image_shape"][:2], channels)
    return None


def preprocessor_for(split, shape, source, preset):
    """What makes an image the input of the model, as it was trained.

    Trained weights bring theirs along. Floats are left as they are; 8-bit
    images are scaled to [-1, 1].
    """
    names = split.class_names if split else None
    theirs = source and source.preprocessor
    if source and source.kind == "checkpoint":
        published = PRESETS.get(preset, {}).get("weights")
        if published:
            return data.ImagePreprocessor(
                shape, published["mean"], published["std"], class_names=names
            )
    if theirs is not None:
        return data.ImagePreprocessor(
            shape,
            theirs.mean if len_of(theirs.mean) in (1, shape[2]) else MEAN,
            theirs.std if len_of(theirs.std) in (1, shape[2]) else STD,
            theirs.interpolation,
            theirs.crop_fraction,
            theirs.resize,
            names or theirs.class_names,
        )
    is_float = split is not None and split.train[0][0].dtype != np.uint8
    mean, std = (0.0, 1.0) if is_float else (MEAN, STD)
    return data.ImagePreprocessor(shape, mean, std, class_names=names)


def len_of(value):
    return len(np.atleast_1d(value))


class FitTo:
    """An augmentation that is none: brings an image to the model's size."""

    def __init__(self, preprocessor):
        self.preprocessor = preprocessor

    def __call__(self, image, rng):
        return self.preprocessor.fit(image)


def augmentation(settings, preprocessor):
    """The augmentation that a `Training` asks for; `None` for none."""
    steps = []
    if settings.max_shift:
        steps.append(data.RandomShift(settings.max_shift))
    if settings.flip:
        steps.append(data.RandomFlip())
    policies = {
        "autoaugment": data.AutoAugment,
        "randaugment": data.RandAugment,
        "keras_cv": data.KerasCVRandAugment,
    }
    if settings.policy != "none":
        steps.append(policies[settings.policy]())
    if settings.erase:
        steps.append(data.RandomErasing(settings.erase))
    if settings.crop:
        size = preprocessor.image_shape[:2]
        steps.insert(0, data.RandomResizedCrop(size))
    elif steps:
        # What moves by pixels moves by the model's pixels.
        steps.insert(0, FitTo(preprocessor))
    return data.Compose(steps) if steps else None


class TrainingBatches(data.ImageBatches):
    """`ImageBatches` that know whether their targets are one-hot rows."""

    targets_are_soft = False
    # What went wrong with a batch.
    error = None

    def __getitem__(self, index):
        try:
            return super().__getitem__(index)
        except Exception as error:
            self.error = error
            raise

    @property
    def batch_size(self):
        return self._make.batch_size

    def make(self, index):
        """A batch made here and now, whatever workers have made ahead."""
        return self._make(self.epoch, index)


def training_batches(split, preprocessor, settings, config):
    """The training images as the settings ask for them, in batches."""
    images, labels = split.train
    mixing = None
    if settings.mixup or settings.cutmix:
        mixing = data.Mixing(
            settings.mixup, settings.cutmix, settings.cutmix_rate
        )
    soft = mixing is not None or settings.label_smoothing > 0
    # An array of floats of the right size needs no more than shifts, which
    # are faster for a whole batch.
    as_it_is = is_ready(images, preprocessor) and not (
        settings.flip
        or settings.crop
        or settings.erase
        or settings.policy != "none"
    )
    how = {"max_shift": settings.max_shift}
    if not as_it_is:
        how = {
            "augmentation": augmentation(settings, preprocessor),
            "preprocessor": preprocessor,
        }
    is_slow = settings.policy != "none" or not isinstance(images, np.ndarray)
    batches = TrainingBatches(
        images,
        labels,
        batch_size=settings.batch_size,
        seed=config.seed,
        mixing=mixing,
        num_classes=len(split.class_names) if soft else None,
        label_smoothing=settings.label_smoothing,
        workers=config.workers or (2 if is_slow else 1),
        **how,
    )
    batches.targets_are_soft = soft
    return batches


def check_batches(split, preprocessor, settings, config):
    """Makes a batch of two, so that what is wrong with it is said early."""
    few = dataclasses.replace(settings, batch_size=min(2, len(split.train[0])))
    training_batches(split, preprocessor, few, config).make(0)


def is_ready(images, preprocessor):
    """Whether the preprocessor would change nothing."""
    return (
        isinstance(images, np.ndarray)
        and images.dtype == np.float32
        and images.shape[1:] == preprocessor.image_shape
        and not np.any(preprocessor.mean)
        and np.all(np.equal(preprocessor.std, 1))
    )


def plain_batches(part, preprocessor, batch_size, num_classes=None):
    """Images in their order, prepared and nothing else."""
    images, labels = part
    ready = is_ready(images, preprocessor)
    return data.ImageBatches(
        images,
        labels,
        batch_size=batch_size,
        shuffle=False,
        preprocessor=None if ready else preprocessor,
        num_classes=num_classes,
        workers=1 if isinstance(images, np.ndarray) else 2,
    )


class InputWatch(keras.callbacks.Callback):
    """Tells whether the images keep up with the model."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches
        self.steps = 0
        self.seconds = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self._begin = None

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        # The first step of an epoch may compile.
        if self._begin is not None:
            self.seconds += now - self._begin
            self.steps += 1
        self._begin = now

    def report(self, least=3.0):
        """Prints a note where batches are made less than `least` times as
        fast as the model takes them."""
        if self.steps < 2:
            return
        step = self.seconds / self.steps
        begin = time.perf_counter()
        count = min(3, len(self.batches))
        for index in range(count):
            self.batches.make(index)
        made = (time.perf_counter() - begin) / count
        if step < least * made:
            size = self.batches.batch_size
            print(
                f"note: the model takes {size / step:,.0f} images/s, and one "
                f"worker makes {size / made:,.0f}/s of them: less than "
                f"{least:g} times as many, so the images may hold the training "
                "up. More --workers, where there are cores, or less "
                "augmentation would help."
            )


def labels_for_model(labels, class_names, known, num_classes):
    """Labels counted as the model counts them.

    Raises:
        ValueError: If the data have classes that the model does not know.
    """
    if known is None or len(known) != num_classes:
        if len(class_names) != num_classes:
            raise ValueError(
                f"The data have {len(class_names)} classes, and the model "
                f"knows {num_classes}, whose names are not known: which are "
                "which? (A run's folder has the names.)"
            )
        return labels
    unknown = [name for name in class_names if name not in known]
    if unknown:
        raise ValueError(
            "The data have classes that the model does not know: "
            f"{', '.join(unknown[:5])}. It knows {', '.join(known[:10])}"
            f"{' ...' if len(known) > 10 else ''}."
        )
    number = np.array([known.index(name) for name in class_names], "int32")
    return number[labels]


def softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    exponentials = np.exp(logits)
    return exponentials / exponentials.sum(-1, keepdims=True)


def scores(logits, labels, class_names):
    """Accuracy, loss and accuracy by class of predicted logits."""
    from sklearn.metrics import confusion_matrix
    from sklearn.metrics import log_loss

    classes = range(logits.shape[1])
    predicted = logits.argmax(-1)
    best_five = np.argsort(-logits, -1)[:, :5]
    in_best_five = (best_five == labels[:, None]).any(1)
    confusion = confusion_matrix(labels, predicted, labels=classes)
    present = confusion.sum(1) > 0
    return {
        "test_accuracy": float((predicted == labels).mean()),
        "test_top5_accuracy": float(in_best_five.mean()),
        "test_loss": float(
            log_loss(labels, softmax(logits.astype("float64")), labels=classes)
        ),
        "test_images": len(labels),
        "accuracy_by_class": {
            class_names[k] if k < len(class_names) else str(k): float(
                confusion[k, k] / confusion[k].sum()
            )
            for k in np.flatnonzero(present)
        },
        "confusion": confusion.tolist(),
    }


def score_rows(results, most=20):
    """Lines of the table that shows `scores`."""
    rows = {"accuracy": f"{results['test_accuracy']:.4f}"}
    if len(results["confusion"]) > 5:  # of fewer it is always 1
        best_five = results["test_top5_accuracy"]
        rows["accuracy, first five"] = f"{best_five:.4f}"
    rows["loss"] = f"{results['test_loss']:.4f}"
    by_class = results["accuracy_by_class"]
    rows["by class"] = "the worst first"
    for name in sorted(by_class, key=by_class.get)[:most]:
        rows[f"accuracy of {name}"] = f"{by_class[name]:.4f}"
    if len(by_class) > most:
        rows["..."] = f"{len(by_class) - most} classes more, all better"
    return rows


def image_paths(paths):
    """Lists files as they are, and of a folder all images in it."""
    found = []
    for path in paths:
        path = pathlib.Path(path).expanduser()
        if path.is_dir():
            found += sorted(
                p for p in path.rglob("*") if p.suffix.lower() in EXTENSIONS
            )
        else:
            found.append(path)
    return found
