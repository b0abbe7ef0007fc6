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
from recipes import command
from recipes import fitting
from recipes import mlm_models
from recipes import mlm_text
from recipes import mlm_use
from recipes import runs
from recipes import text_baseline
from recipes import text_corpus
from recipes import text_models
from recipes import text_pictures
from recipes.mlm_settings import Config
from recipes.mlm_settings import Training
from recipes.mlm_settings import check
from recipes.mlm_settings import resolve
from recipes.recipe import Recipe


def main(config):
    """Trains, goes on, evaluates or fills masks, as a `Config` asks.

    Returns:
        Dictionary of results, as in `results.json`; for `fill`, a list of
        what `MaskedLM.fill_mask` returns.

    Raises:
        As `Recipe.main`.
    """
    return RECIPE.main(config)


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

    @property
    def built(self):
        return self.model.backbone.get_config()


def prepare(config):
    """Text and a compiled model; whatever can be wrong is said here.

    Raises:
        ValueError: If a setting is out of range, text or model cannot be had.
    """
    check(config)
    settings, length = resolve(config)
    keras.utils.set_random_seed(config.seed)
    source = config.model.from_ and text_models.find(config.model.from_)
    text = text_corpus.load(config.text, config.seed)
    tokenizer = mlm_models.tokenizer_for(config.text, text.train, source)
    model = mlm_models.build(config, tokenizer, length, source)
    length = model.backbone.sequence_length
    packed = data.pack_documents(text.train, tokenizer, length)
    text_corpus.check_rows(packed.rows, length, settings.batch_size)
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
    epochs = fitting.epochs_of(settings, len(batches))
    model.compile(fitting.linear_adamw(settings, epochs * len(batches)))
    return Prepared(
        settings,
        epochs,
        text,
        model,
        packed,
        batches,
        held_out,
        text_corpus.data_digest(text, tokenizer),
        {
            **text_corpus.identity(text, tokenizer),
            "pretrained model": source and text_models.weights_digest(source),
        },
    )


def run(folder, config, prepared):
    """Trains, evaluates and records; all that `folder` is for."""
    model = prepared.model
    text_models.introduce(model.name, model.count_params(), model.tokenizer)
    print(f"text: {mlm_text.described(prepared.packed)}")
    runs.show_notes(prepared.text.notes)
    begin = time.perf_counter()
    checkpoint = train(folder, config, prepared)
    seconds = time.perf_counter() - begin
    with command.room_for(folder, "mlm"):
        results = {
            **measure(folder, prepared),
            "epochs": checkpoint.epochs_done,
            "best_epoch": checkpoint.best_epoch,
            "seconds": seconds,
            "seed": config.seed,
            "data_digest": prepared.data_digest,
            "tokenizer_digest": model.tokenizer.digest,
            "notes": prepared.text.notes,
            "versions": runs.versions(),
        }
        save(folder, model, checkpoint.history, results)
    report(folder, results)
    return results


def measure(folder, prepared):
    """What the model scores, and what frequencies alone would."""
    model, tokenizer = prepared.model, prepared.model.tokenizer
    scores = model.evaluate(prepared.validation, verbose=0, return_dict=True)
    size = tokenizer.vocabulary_size
    counts = text_baseline.token_counts(prepared.packed.token_ids, size)
    np.save(folder / mlm_use.COUNTS_FILE, counts)
    return {
        "perplexity": scores["perplexity"],
        "accuracy": scores["accuracy"],
        "unigram_perplexity": text_baseline.unigram_perplexity(
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
        The `TrainingCheckpoint`.
    """
    checkpoint = TrainingCheckpoint(
        folder / "checkpoint",
        monitor="val_perplexity",
        mode="min",
        identity={
            **RECIPE.settings_of_training(config),
            "data_digest": prepared.data_digest,
        },
    )
    fitting.fit(
        prepared.model,
        prepared.batches,
        prepared.validation,
        prepared.epochs,
        checkpoint,
        "mlm",
        keep=config.keep,
    )
    return checkpoint


def save(folder, model, history, results):
    """Writes the model, the numbers and the pictures of a run."""
    model.save(folder / "model.keras")
    model.save_to_preset(folder / text_models.PRESET_FOLDER)
    runs.record(folder, "history.json", history)
    text_pictures.draw_history(
        history,
        folder / "learning_curves.png",
        unigram=results["unigram_perplexity"],
    )
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


RECIPE = Recipe(
    name="mlm",
    config_class=Config,
    prepare=prepare,
    run=run,
    report=report,
    result_keys=("perplexity", "accuracy", "epochs", "seconds"),
    instead={"fill": mlm_use.fill, "evaluate": mlm_use.evaluate},
)


def cli():
    """The command line."""
    command.run(main, Config, __doc__, "mlm")


if __name__ == "__main__":
    cli()
