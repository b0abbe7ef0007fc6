"""One backend's part in the exchange: writes its files, reads the others'.

KERAS_BACKEND=jax python -m tests.across_backends.worker write FOLDER
KERAS_BACKEND=jax python -m tests.across_backends.worker read FOLDER
"""

import pathlib
import sys

import mlp_mixers  # noqa: F401 - registers the classes

import keras  # isort: skip
import numpy as np
from keras import ops

from mlp_mixers.layers import TopTwoRouter
from mlp_mixers.models import GMLPImageClassifier
from mlp_mixers.models import GMLPTextClassifier
from mlp_mixers.models import MixerImageClassifier
from mlp_mixers.models import ResMLPImageClassifier
from mlp_mixers.models import SMLPCausalLM
from mlp_mixers.models.text_task import TextTask
from tests.cases import TEXT_VOCABULARY
from tests.cases import gmlp_nano
from tests.cases import gmlp_text_nano
from tests.cases import mixer_nano
from tests.cases import randomize
from tests.cases import resmlp_nano
from tests.cases import smlp_nano


def gmlp(**options):
    return GMLPImageClassifier(gmlp_nano(**options), num_classes=3)


def smlp(**options):
    return SMLPCausalLM(smlp_nano(**options))


MODELS = {
    "gmlp": gmlp,
    "amlp": lambda: gmlp(attention_dim=4, toeplitz=True),
    "heads": lambda: gmlp(num_heads=3, gate="additive"),
    "mixer": lambda: MixerImageClassifier(mixer_nano(), num_classes=3),
    "resmlp": lambda: ResMLPImageClassifier(resmlp_nano(), num_classes=3),
    "text": lambda: GMLPTextClassifier(
        gmlp_text_nano(attention_dim=4), num_classes=3
    ),
    "base": lambda: smlp(routing="partial", prefix_fraction=0.4),
    "switch": lambda: smlp(router="switch"),
    # The other ways to choose a second expert draw it, each backend its own.
    "top_two": lambda: smlp(
        router=TopTwoRouter(second_choice="all"), mixing="attention"
    ),
    "hash": lambda: smlp(router="hash", mixing="attention"),
}
STEPS = 10


def batches(model):
    """The same ten batches in every process."""
    rng = np.random.default_rng(7)
    for _ in range(STEPS):
        if isinstance(model, TextTask):
            inputs = {
                "token_ids": rng.integers(0, TEXT_VOCABULARY, (8, 6), "int32"),
                "padding_mask": np.tile(np.arange(6) < 5, (8, 1)),
            }
        else:
            inputs = rng.normal(size=(8, 4, 6, 3)).astype("float32")
        if isinstance(model, SMLPCausalLM):
            labels = rng.integers(0, TEXT_VOCABULARY, (8, 6))
        else:
            labels = rng.integers(0, 3, 8)
        yield inputs, labels


def measure(path, outputs):
    """Runs a model file forward, then ten steps of SGD, then forward."""
    model = keras.saving.load_model(path)
    model.compile(keras.optimizers.SGD(0.05))
    inputs, _ = next(batches(model))
    forward = ops.convert_to_numpy(model(inputs, training=False))
    for batch in batches(model):
        model.train_on_batch(*batch)
    trained = ops.convert_to_numpy(model(inputs, training=False))
    np.savez(outputs, forward=forward, trained=trained)


def write(folder, backend):
    # The same files in every run: among random weights are some from which
    # ten steps of SGD blow a rounding up to more than the test allows.
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(list(backend.encode()))
    for name, make in MODELS.items():
        path = folder / f"{name}_{backend}.keras"
        randomize(make(), rng).save(path)
        measure(path, folder / f"{name}_{backend}_by_{backend}.npz")


def read(folder, backend):
    for path in sorted(folder.glob("*.keras")):
        if not path.stem.endswith(backend):
            measure(path, folder / f"{path.stem}_by_{backend}.npz")


if __name__ == "__main__":
    part = {"write": write, "read": read}[sys.argv[1]]
    part(pathlib.Path(sys.argv[2]), keras.backend.backend())
