"""Pretrain, evaluate and ask masked language models.

    python -m recipes.mlm
    python -m recipes.mlm --model amlp --data text:books --out runs/amlp
    python -m recipes.mlm --model bert --data text:books   # the baseline
    python -m recipes.mlm --resume runs/mlm
    python -m recipes.mlm --evaluate runs/mlm --data text:other.txt
    python -m recipes.mlm --from runs/mlm --fill "Functions <mask> a value."
    KERAS_BACKEND=torch python -m recipes.mlm --recipe small --epochs 10

From raw text to a saved model: trains a vocabulary, packs whole sentences
into rows, masks 15% of the tokens anew in every epoch, and measures the
perplexity of masked tokens in documents that were held out. A run leaves a
folder with the model, its tokenizer, its history, the learning curves, the
spatial weights, the configuration and the results; `recipes.finetune` starts
from it. The default text is the manual inside every Python.
"""

import dataclasses
import shutil
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip
import numpy as np

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.models import GMLPTextBackbone
from mlp_mixers.models import MaskedLM
from mlp_mixers.training import TrainingCheckpoint
from recipes import checks
from recipes import command
from recipes import fitting
from recipes import mlm_models
from recipes import mlm_text
from recipes import mlm_use
from recipes import runs
from recipes import text_models
from recipes.mlm_settings import Config
from recipes.mlm_settings import Training
from recipes.mlm_settings import check
from recipes.mlm_settings import from_record
from recipes.mlm_settings import resolve

RESULT_KEYS = ("perplexity", "accuracy", "epochs", "seconds")


def main(config):
    """Does what the settings ask for: train, go on, evaluate or fill masks.

    Args:
        config: A `Config`.

    Returns:
        Dictionary of results, as in `results.json`; for `fill`, a list of
        what `MaskedLM.fill_mask` returns.

    Raises:
        ValueError: If a setting is out of range, text or model cannot be had.
        FloatingPointError: If the loss becomes NaN or infinite.
        KeyboardInterrupt: If it is interrupted, with how to go on.
    """
    if config.fill is not None:
        return mlm_use.fill(config)
    if config.evaluate is not None:
        return mlm_use.evaluate(config)
    if config.resume is not None:
        return resume(config)
    return start(config)


def start(config):
    """A new run in a new folder."""
    prepared = prepare(config)
    folder = runs.new_folder(config.out)
    # What was asked for, every size that came of it, and what must not change.
    runs.record(
        folder,
        "config.json",
        {
            **dataclasses.asdict(config),
            "built": prepared.model.backbone.get_config(),
            "identity": prepared.identity,
        },
    )
    return run(folder, config, prepared)


def resume(config):
    """The rest of an interrupted run, in its folder, with its settings."""
    folder, record, results = command.run_to_resume(
        config,
        dataclasses.replace(config, resume=None) == Config(),
        RESULT_KEYS,
        "mlm",
    )
    if results is not None:
        report(folder, results)
        return results
    config = from_record(record)
    prepared = prepare(config)
    command.check_identity(folder, record, prepared.identity)
    return run(folder, config, prepared)


@dataclasses.dataclass
class Prepared:
    """All that a run needs, made before its folder."""

    settings: Training
    epochs: int
    text: data.TextSplit
    model: MaskedLM
    packed: data.PackedText
    batches: data.MaskedLMBatches
    validation: data.MaskedLMBatches
    data_digest: str
    identity: dict


def prepare(config):
    """Text and a compiled model; whatever can be wrong is said here.

    Raises:
        ValueError: If a setting is out of range, text or model cannot be had.
    """
    check(config)
    settings, length = resolve(config)
    keras.utils.set_random_seed(config.seed)
    source = config.model.from_ and text_models.find(config.model.from_)
    text = mlm_text.load(config.text, config.seed)
    tokenizer = mlm_models.tokenizer_for(config, text.train, source)
    model = mlm_models.build(config, tokenizer, length, source)
    length = model.backbone.sequence_length
    packed = data.pack_documents(text.train, tokenizer, length)
    if packed.rows < settings.batch_size:
        raise ValueError(
            f"The text fills {runs.counted(packed.rows, 'row')} of {length} "
            "tokens, fewer than a batch: take more text, shorter rows or a "
            f"smaller batch. Received: batch_size={settings.batch_size}"
        )
    batches = data.MaskedLMBatches(
        packed,
        tokenizer,
        settings.batch_size,
        config.seed,
        rate=settings.mask_rate,
        whole_words=settings.whole_words,
        # One shape for all steps, so that they are compiled once.
        drop_remainder=True,
        workers=config.workers,
    )
    held_out = mlm_text.held_out_batches(
        text.validation, tokenizer, length, settings
    )
    epochs = settings.epochs or -(-settings.steps // len(batches))
    model.compile(fitting.linear_adamw(settings, epochs * len(batches)))
    return Prepared(
        settings,
        epochs,
        text,
        model,
        packed,
        batches,
        held_out,
        mlm_text.data_digest(text, tokenizer),
        {
            "text": mlm_text.digest([*text.train, "", *text.validation]),
            "tokenizer": tokenizer.digest,
            "pretrained model": source and text_models.weights_digest(source),
        },
    )


def run(folder, config, prepared):
    """Trains, evaluates and records; all that `folder` is for."""
    model = prepared.model
    print(
        f"{model.name}: {model.count_params():,} parameters, "
        f"{model.tokenizer.vocabulary_size:,} tokens in the vocabulary, "
        f"Keras {keras.__version__} on {keras.backend.backend()}"
    )
    print(f"text: {mlm_text.described(prepared.packed)}")
    for note in prepared.text.notes:
        print(f"note: {note}")
    begin = time.perf_counter()
    history, best = train(folder, config, prepared)
    seconds = time.perf_counter() - begin
    with command.room_for(folder, "mlm"):
        results = {
            **measure(folder, prepared),
            "epochs": len(history["loss"]),
            "best_epoch": best and best[0],
            "seconds": seconds,
            "seed": config.seed,
            "data_digest": prepared.data_digest,
            "tokenizer_digest": model.tokenizer.digest,
            "notes": prepared.text.notes,
            "versions": runs.versions(),
        }
        save(folder, model, history, results)
    report(folder, results)
    return results


def measure(folder, prepared):
    """What the model scores, and what frequencies alone would."""
    model, tokenizer = prepared.model, prepared.model.tokenizer
    scores = model.evaluate(prepared.validation, verbose=0, return_dict=True)
    size = tokenizer.vocabulary_size
    counts = mlm_text.token_counts(prepared.packed, size)
    np.save(folder / mlm_use.COUNTS_FILE, counts)
    return {
        "perplexity": scores["perplexity"],
        "accuracy": scores["accuracy"],
        "unigram_perplexity": mlm_text.unigram_perplexity(
            prepared.validation, counts, tokenizer.special_ids
        ),
        "mask_rate": prepared.settings.mask_rate,
        "parameters": model.count_params(),
        "vocabulary_size": size,
        "rows": prepared.packed.rows,
        "held_out_rows": prepared.validation.num_rows,
    }


def train(folder, config, prepared):
    """Fits the model, from where the folder's checkpoint left it.

    Returns:
        The history, metric name to list of values, and `(epoch, value)` of
        the lowest held-out perplexity.
    """
    # Flat, so that a difference is named by itself.
    settings = checks.flat(config)
    for name in ("out", "resume", "workers", "evaluate", "fill"):
        del settings[name]
    checkpoint = TrainingCheckpoint(
        folder / "checkpoint",
        monitor="val_perplexity",
        mode="min",
        identity={**settings, "data_digest": prepared.data_digest},
    )
    fitting.fit(
        prepared.model,
        prepared.batches,
        prepared.validation,
        prepared.epochs,
        checkpoint,
        "mlm",
    )
    if config.keep == "best":
        checkpoint.load_best(prepared.model)
    return checkpoint.history, fitting.best_of(checkpoint)


def save(folder, model, history, results):
    """Writes the model, the numbers and the pictures of a run."""
    model.save(folder / "model.keras")
    model.save_to_preset(folder / text_models.PRESET_FOLDER)
    runs.record(folder, "history.json", history)
    analysis.plot_history(history, path=folder / "learning_curves.png")
    if isinstance(model.backbone, GMLPTextBackbone):
        analysis.plot_spatial_matrices(
            model, path=folder / "spatial_matrices.png"
        )
    # Last: this file says that the run is whole.
    runs.record(folder, "results.json", results)
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)


def report(folder, results):
    """Prints what came out, and where it lies."""
    epochs = runs.counted(results["epochs"], "epoch")
    rows = {
        **mlm_use.score_rows(results, "held-out perplexity of masked tokens"),
        "training": f"{epochs}, {results['seconds']:.0f} s",
        "model": folder / "model.keras",
        "for recipes.finetune": folder / text_models.PRESET_FOLDER,
        "learning curves": folder / "learning_curves.png",
    }
    if (folder / "spatial_matrices.png").exists():
        rows["spatial weights"] = folder / "spatial_matrices.png"
    runs.show("Results", rows)


def cli():
    """The command line."""
    command.run(main, Config, __doc__, "mlm")


if __name__ == "__main__":
    cli()
