"""RandAugment of KerasCV as an augmentation of one image."""

import importlib
import threading

import numpy as np

from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.augmentation import check_image
from mlp_mixers.data.augmentation import probability


class KerasCVRandAugment:
    """`keras_cv.layers.RandAugment`, drawn for each image from its own `rng`.

    It takes the place of `RandAugment` in `ImageBatches`, on any backend, if
    KerasCV and TensorFlow are installed. Its operations and ranges are
    KerasCV's: ten operations without rotation, posterising and sharpness.

    KerasCV draws from generators that keep their state from image to image and
    from seeds that TensorFlow fixes when it traces, so an epoch cannot be
    repeated. Here all its layers share one generator, set anew from `rng`
    before each image: the same (seed, epoch, sample) gives the same pixels,
    whatever came before. The layers are traced once and then run as one
    TensorFlow function on the CPU, one image at a time; threads wait for each
    other. TensorFlow reserves the memory of a GPU that it sees: where another
    backend trains on it, hide it with
    `tensorflow.config.set_visible_devices([], "GPU")`.

    Args:
        num_layers: Operations on an image, `augmentations_per_image` there.
        magnitude: Mean strength, in [0, 1].
        magnitude_std: Its standard deviation, in [0, 1].
        rate: Probability of each operation; 10/11 is the share that an
            identity among eleven operations would leave.
        geometric: Whether shear and translation are among them.

    Call arguments:
        image: uint8 array `(height, width, 3)`.
        rng: A `numpy.random.Generator`.

    Raises:
        ImportError: If KerasCV or TensorFlow is not installed.
        ValueError: If an argument or an image is of another kind.
    """

    def __init__(
        self,
        num_layers=2,
        magnitude=0.5,
        magnitude_std=0.15,
        rate=10 / 11,
        geometric=True,
    ):
        self.num_layers = positive_integer(num_layers, "num_layers")
        self.magnitude = probability(magnitude, "magnitude")
        self.magnitude_std = probability(magnitude_std, "magnitude_std")
        self.rate = probability(rate, "rate")
        self.geometric = geometric
        import_keras_cv()
        self._function = None
        self._lock = threading.Lock()

    def __call__(self, image, rng):
        check_image(image)
        if image.dtype != np.uint8 or image.shape[-1] != 3:
            raise ValueError(
                "KerasCV's RandAugment needs 8-bit RGB: use it before images "
                "are scaled. Received: "
                f"image.shape={image.shape}, image.dtype={image.dtype}"
            )
        # Counter 0 and a random key, as Philox has them.
        state = np.array([0, 0, rng.integers(2**63 - 1)], "int64")
        image = np.ascontiguousarray(image)
        with self._lock:
            if self._function is None:
                self._function = self._trace()
            return self._function(image, state).numpy()

    def __getstate__(self):
        # A traced function cannot go to another process; arguments can.
        return {**self.__dict__, "_function": None, "_lock": None}

    def __setstate__(self, state):
        self.__dict__.update(state, _lock=threading.Lock())

    def _trace(self):
        """The layers as a function (image, state of the generator)."""
        keras_cv, tf = import_keras_cv()
        # One image at a time: a GPU would mostly wait, and trains a model.
        with tf.device("CPU:0"):
            generator = tf.random.Generator.from_seed(0, alg="philox")
        layer = keras_cv.layers.RandAugment(
            value_range=(0, 255),
            augmentations_per_image=self.num_layers,
            magnitude=self.magnitude,
            magnitude_stddev=self.magnitude_std,
            rate=self.rate,
            geometric=self.geometric,
            seed=0,
        )
        for part in (layer, layer._random_choice, *layer.layers):
            share_generator(part, generator)

        @tf.function(
            input_signature=[
                tf.TensorSpec((None, None, 3), tf.uint8),
                tf.TensorSpec((3,), tf.int64),
            ]
        )
        def augment(image, state):
            with tf.device("CPU:0"):
                generator.reset(state)
                image = layer(tf.cast(image, tf.float32))
                image = tf.clip_by_value(tf.round(image), 0.0, 255.0)
                return tf.cast(image, tf.uint8)

        return augment


def share_generator(layer, generator):
    """Lets a layer of KerasCV draw from this generator and nothing else.

    Args:
        layer: A preprocessing layer.
        generator: A `tf.random.Generator`.
    """
    keras_cv, tf = import_keras_cv()
    core = keras_cv.core
    layer._random_generator = generator

    class Sampler(core.FactorSampler):
        """Draws what another sampler describes."""

        def __init__(self, source):
            self.source = source

        def __call__(self, shape=(), dtype="float32"):
            source = self.source
            if isinstance(source, core.UniformFactorSampler):
                return generator.uniform(
                    shape, source.lower, source.upper, dtype
                )
            return tf.clip_by_value(
                generator.normal(shape, source.mean, source.stddev, dtype),
                source.min_value,
                source.max_value,
            )

        def get_config(self):
            return self.source.get_config()

    for name, value in list(vars(layer).items()):
        if isinstance(
            value, (core.UniformFactorSampler, core.NormalFactorSampler)
        ):
            setattr(layer, name, Sampler(value))


def import_keras_cv():
    """The modules `(keras_cv, tensorflow)`.

    Raises:
        ImportError: If one of them is not installed.
    """
    try:
        # By name: KerasCV runs in TensorFlow whatever the backend is.
        tensorflow = importlib.import_module("tensorflow")
        keras_cv = importlib.import_module("keras_cv")
    except ImportError as error:
        raise ImportError(
            "KerasCV's RandAugment needs KerasCV and TensorFlow: "
            "pip install keras-cv tensorflow"
        ) from error
    return keras_cv, tensorflow
