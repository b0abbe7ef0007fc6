"""The worker of `benchmarks.language`: one side, a step when asked.

`KERAS_BACKEND` says on which backend.
"""

import argparse
import importlib.metadata
import os
import time

import numpy as np

from benchmarks.protocol import limit_threads
from benchmarks.protocol import peak_memory
from benchmarks.protocol import serve
from benchmarks.protocol import timed

# The paper's base models, and its masked positions (Table 5, Sec. 4).
VOCABULARY, LENGTH, BATCH, MASKED = 32_000, 512, 8, 80
AMLP = {"hidden_dim": 512, "intermediate_dim": 3072, "attention_dim": 64}
# Three blocks of aMLP-base stand for one layer of BERT-base, 36 for 12.
AMLP_LAYERS, BERT_LAYERS, BERT_DIM, BERT_HEADS = 6, 2, 768, 12


def text_inputs(**sizes):
    rng = np.random.default_rng(0)
    token_ids = rng.integers(4, VOCABULARY, (BATCH, LENGTH), "int32")
    return {
        "token_ids": token_ids,
        "padding_mask": np.ones((BATCH, LENGTH), "int32"),
        **{
            name: np.sort(rng.integers(0, LENGTH, (BATCH, size), "int32"))
            for name, size in sizes.items()
        },
    }


def masked_labels(count):
    rng = np.random.default_rng(1)
    return rng.integers(4, VOCABULARY, (BATCH, count), "int32")


def amlp_backbone(num_layers):
    from mlp_mixers.models import GMLPTextBackbone

    return GMLPTextBackbone(VOCABULARY, LENGTH, num_layers=num_layers, **AMLP)


def adamw():
    from mlp_mixers.training import AdamW

    return AdamW(1e-4, weight_decay=0.01)


def head(masked):
    """A shallow model with its output at the masked tokens, or at all."""
    import keras

    from mlp_mixers.models import GMLPMaskedLM

    backbone = amlp_backbone(2)
    if masked:
        model = GMLPMaskedLM(backbone)
        model.compile(adamw(), weighted_metrics=[])
        x, labels = text_inputs(mask_positions=MASKED), masked_labels(MASKED)
    else:
        model = keras.Model(
            backbone.input,
            backbone.token_embedding(backbone.output, reverse=True),
        )
        model.compile(
            adamw(),
            keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            ),
        )
        x, labels = text_inputs(), masked_labels(LENGTH)
    weights = np.ones(labels.shape, "float32")
    return model, lambda: model.train_on_batch(x, labels, weights)


def matrix(toeplitz):
    """W and nothing else: made of 2n - 1 values, or kept as it is."""
    import keras
    from keras import ops

    from mlp_mixers.ops import toeplitz_matrix

    class Matrix(keras.layers.Layer):
        def build(self, shape):
            size = (1, 2 * LENGTH - 1) if toeplitz else (1, LENGTH, LENGTH)
            self.values = self.add_weight(shape=size)

        def call(self, x):
            values = ops.convert_to_tensor(self.values)
            w = toeplitz_matrix(values) if toeplitz else values
            return x * w

    x = np.random.default_rng(0).normal(size=(1, LENGTH, LENGTH))
    return step_of(Matrix(), x.astype("float32"))


def block(kind):
    """One aMLP block at the paper's base size; `fft` convolves for W·v."""
    from mlp_mixers.layers import GMLPBlock

    layer = GMLPBlock(
        AMLP["intermediate_dim"],
        AMLP["attention_dim"],
        toeplitz=kind != "dense",
    )
    if kind == "fft":
        by_convolution(layer.gating_unit)
    x = np.random.default_rng(0).normal(size=(BATCH, LENGTH, 512))
    return step_of(layer, x.astype("float32"))


def by_convolution(unit):
    """Makes a gating unit multiply by its Toeplitz W with three FFTs.

    W·v is a convolution of v with the 2n - 1 values, by channel: products of
    transforms of length 2n.
    """
    from keras import ops

    def project(z, mask, training):
        z = ops.transpose(unit.norm(z), (0, 2, 1))  # (b, c, n)
        n = z.shape[-1]
        values = ops.convert_to_tensor(unit.spatial_kernel)  # (1, 2n - 1)
        # y[i] = Σ_j values[n - 1 + j - i] · z[j]: values from the other end.
        taps = ops.pad(ops.flip(values, -1), [[0, 0], [0, 1]])
        a, b = ops.rfft(ops.pad(z, [[0, 0], [0, 0], [0, n]]))
        c, d = ops.rfft(taps)
        y = ops.irfft((a * c - b * d, a * d + b * c))[..., n - 1 : 2 * n - 1]
        bias = ops.transpose(unit.spatial_bias)  # (n, 1)
        return ops.transpose(y, (0, 2, 1)) + bias

    unit._project = project


def step_of(layer, x):
    """A training step of one layer, by plain gradient descent."""
    import keras

    inputs = keras.Input(x.shape[1:])
    model = keras.Model(inputs, layer(inputs))
    model.compile(keras.optimizers.SGD(1e-6), "mse")
    y = np.zeros(model(x[:1]).shape, "float32")
    y = np.broadcast_to(y, (len(x), *y.shape[1:])).copy()
    return model, lambda: model.train_on_batch(x, y)


def language_model(kind):
    """A masked language model of aMLP-base blocks, or KerasHub's BERT."""
    from mlp_mixers.models import GMLPMaskedLM

    amlp = amlp_backbone(AMLP_LAYERS)
    if kind == "amlp":
        model = GMLPMaskedLM(amlp)
    else:
        from recipes import bert_baseline

        parameters = amlp.count_params()
        # The embeddings of a wider model are larger; blocks are compared.
        parameters += (BERT_DIM - AMLP["hidden_dim"]) * VOCABULARY
        sizes = {
            "vocabulary_size": VOCABULARY,
            "sequence_length": LENGTH,
            "num_layers": BERT_LAYERS,
            "hidden_dim": BERT_DIM,
        }
        width = bert_baseline.equal_intermediate_dim(parameters, **sizes)
        count_transformers()
        model = bert_baseline.BertMaskedLM(
            bert_baseline.BertTextBackbone(
                **sizes, intermediate_dim=width, num_heads=BERT_HEADS
            )
        )
    model.compile(adamw(), weighted_metrics=[])
    x, labels = text_inputs(mask_positions=MASKED), masked_labels(MASKED)
    weights = np.ones(labels.shape, "float32")
    return model, lambda: model.train_on_batch(x, labels, weights)


def count_transformers():
    """Tells `count_flops` what KerasHub's layers multiply."""
    import keras_hub

    from mlp_mixers.analysis import Cost
    from mlp_mixers.analysis import register_flops

    @register_flops(keras_hub.layers.TransformerEncoder)
    def _(layer, x, **masks):
        n, d = x
        # Four projections, scores and their sum, the feed-forward part.
        macs = (
            4 * n * d * d + 2 * n * n * d + 2 * n * d * layer.intermediate_dim
        )
        return Cost(macs=macs, whole=True)

    @register_flops(keras_hub.layers.PositionEmbedding)
    def _(layer, x):
        return Cost()


def masking():
    """Batches of rows, masked one after the other; no model."""
    from mlp_mixers.data.masked_batches import MaskedLMBatches
    from mlp_mixers.data.tokenizer import Tokenizer

    rng = np.random.default_rng(0)
    rows = rng.integers(4, 250, (64 * BATCH, LENGTH), "int32")
    rows[:, 0], rows[:, -1] = 1, 2
    batches = MaskedLMBatches(
        rows, Tokenizer.train(["a"], 260), batch_size=BATCH, max_masked=MASKED
    )

    def run():
        for i in range(len(batches)):
            batches[i]

    return batches, run


SIDES = {
    "masked-head": lambda: head(masked=True),
    "full-head": lambda: head(masked=False),
    "toeplitz-matrix": lambda: matrix(toeplitz=True),
    "kept-matrix": lambda: matrix(toeplitz=False),
    "toeplitz-block": lambda: block("toeplitz"),
    "dense-block": lambda: block("dense"),
    "fft-block": lambda: block("fft"),
    "amlp": lambda: language_model("amlp"),
    "bert": lambda: language_model("bert"),
    "masking": masking,
}


def facts(model):
    """What does not depend on the clock."""
    from mlp_mixers.analysis import count_flops

    backend = os.environ["KERAS_BACKEND"]
    found = {
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("keras", "keras-hub", backend)
        }
    }
    if hasattr(model, "count_params"):
        found["parameters"] = model.count_params()
    if hasattr(model, "backbone"):
        embedding = model.backbone.token_embedding
        found["without_embedding"] = (
            model.count_params() - embedding.count_params()
        )
        shapes = {
            k: v.shape[1:]
            for k, v in text_inputs(mask_positions=MASKED).items()
        }
        found["macs"] = count_flops(model, shapes).macs
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    limit_threads(arguments.threads)
    start = time.perf_counter()
    model, step = SIDES[arguments.side]()
    built = time.perf_counter() - start
    serve(
        {
            "start": lambda: {"build": built, **facts(model)},
            "step": timed(step),
            "memory": peak_memory,
        }
    )


if __name__ == "__main__":
    main()
