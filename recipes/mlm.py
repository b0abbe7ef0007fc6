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
import hashlib
import shutil
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPTextBackbone
from mlp_mixers.models import MaskedLM
from mlp_mixers.training import TrainingCheckpoint
from recipes import command
from recipes import fitting
from recipes import runs
from recipes import text_models
from recipes.mlm_settings import Config
from recipes.mlm_settings import Text
from recipes.mlm_settings import Training
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
        return fill(config)
    if config.evaluate is not None:
        return evaluate(config)
    if config.resume is not None:
        return resume(config)
    return start(config)


def start(config):
    """A new run in a new folder."""
    prepared = prepare(config)
    folder = runs.new_folder(config.out)
    # What was asked for, and every size that came of it.
    built = prepared.model.backbone.get_config()
    asked = dataclasses.asdict(config)
    runs.record(folder, "config.json", {**asked, "built": built})
    return run(folder, config, prepared)


def resume(config):
    """The rest of an interrupted run, in its folder, with its settings."""
    folder, record, results = command.run_to_resume(
        config,
        dataclasses.replace(config, resume=None) == Config(),
        RESULT_KEYS,
    )
    if results is not None:
        report(folder, results)
        return results
    config = from_record(record)
    return run(folder, config, prepare(config))


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


def prepare(config):
    """Text and a compiled model; whatever can be wrong is said here.

    Raises:
        ValueError: If a setting is out of range, text or model cannot be had.
    """
    settings, length = resolve(config)
    keras.utils.set_random_seed(config.seed)
    source = config.model.from_ and text_models.find(config.model.from_)
    text = load_text(config)
    tokenizer = tokenizer_for(config, text, source)
    model = build(config, tokenizer, length, source)
    length = model.backbone.sequence_length
    packed = data.pack_documents(text.train, tokenizer, length)
    if packed.rows < settings.batch_size:
        raise ValueError(
            f"The text fills {packed.rows} rows of {length} tokens, fewer than "
            "a batch: take more text, shorter rows or a smaller batch. "
            f"Received: batch_size={settings.batch_size}"
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
    held_out = held_out_batches(text, tokenizer, length, settings)
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
        digest(text, tokenizer),
    )


def load_text(config):
    """The text that the settings name, cut into two."""
    given, default = config.text, Text()
    kind = given.data.partition(":")[0]
    options = {}
    for name, kinds in (
        ("separator", ("text",)),
        ("feature", ("tfds",)),
        ("data_dir", ("tfds",)),
    ):
        value = getattr(given, name)
        if value == getattr(default, name):
            continue
        if kind not in kinds and kind in ("topics", "text", "tfds"):
            raise ValueError(
                f"--{name.replace('_', '-')} is for data of the kind "
                f"{' and '.join(kinds)}. Received: --data {given.data}"
            )
        options[name] = value
    return data.load_text(
        given.data,
        validation_fraction=given.validation_fraction,
        seed=config.seed,
        **options,
    )


def tokenizer_for(config, text, source):
    """The tokenizer of the model that is gone on with, of a file, or new."""
    settings = config.text
    if source is not None:
        for name in ("tokenizer", "vocabulary_size"):
            if getattr(settings, name) is not None:
                raise ValueError(
                    "A trained model has its tokenizer: give --from without "
                    f"--{name.replace('_', '-')}."
                )
        return text_models.tokenizer_in(source)
    if settings.tokenizer is not None:
        if settings.vocabulary_size is not None:
            raise ValueError(
                "A tokenizer has its vocabulary: give --tokenizer without "
                "--vocabulary-size."
            )
        return text_models.load_tokenizer(settings.tokenizer)
    size = settings.vocabulary_size or data.suggested_vocabulary_size(
        sum(map(len, text.train))
    )
    return data.Tokenizer.train(text.train, size)


def changed_sizes(config):
    """What the settings change in a model: arguments of its backbone."""
    others = ("model", "preset", "from_", "sequence_length")
    return {
        name: value
        for name, value in dataclasses.asdict(config.model).items()
        if value is not None and name not in others
    }


def build(config, tokenizer, length, source):
    """The masked language model that the settings ask for."""
    changes = changed_sizes(config)
    if source is not None:
        if config.model.preset is not None:
            raise ValueError(
                f"{config.model.from_} says itself which model it is: give "
                "--from without --preset."
            )
        if config.model.sequence_length is not None:
            changes["sequence_length"] = length
        return MaskedLM.from_preset(source, **changes)
    changes["vocabulary_size"] = tokenizer.vocabulary_size
    if length is not None:
        changes["sequence_length"] = length
    kind = config.model.model
    preset = config.model.preset
    preset = preset or ("amlp_nano_en" if kind == "amlp" else "gmlp_nano_en")
    if kind == "bert":
        return build_bert(preset, tokenizer, changes)
    backbone = GMLPTextBackbone.from_preset(
        preset, load_weights=False, **changes
    )
    if kind == "amlp" and backbone.attention_dim is None:
        raise ValueError(
            "An aMLP has attention: give an aMLP's --preset, or "
            f"--attention-dim. Received: --model amlp --preset {preset}"
        )
    return GMLPMaskedLM(backbone, tokenizer=tokenizer)


def build_bert(preset, tokenizer, changes):
    """KerasHub's BERT, of the size of a gMLP preset unless it is given."""
    from recipes import bert_baseline

    unknown = {"gate", "toeplitz", "mask_padding", "attention_dim"} & {*changes}
    if unknown:
        raise ValueError(
            "BERT has no such part. "
            f"Received: --model bert with {', '.join(sorted(unknown))}"
        )
    named = ("vocabulary_size", "sequence_length", "num_layers", "hidden_dim")
    shared = {name: changes[name] for name in named if name in changes}
    if preset not in GMLPTextBackbone.presets:
        raise ValueError(
            "BERT takes its size from a gMLP for text: one of "
            f"{', '.join(GMLPTextBackbone.presets)}. Received: {preset}"
        )
    config = {**GMLPTextBackbone.presets[preset]["config"], **shared}
    sizes = {name: config[name] for name in named}
    if "intermediate_dim" not in changes:
        equal = GMLPTextBackbone(**config).count_params()
        changes["intermediate_dim"] = bert_baseline.equal_intermediate_dim(
            equal, **sizes
        )
    heads = max(1, sizes["hidden_dim"] // 64)
    backbone = bert_baseline.BertTextBackbone(
        **{"num_heads": heads, **sizes, **changes}
    )
    return bert_baseline.BertMaskedLM(backbone, tokenizer=tokenizer)


def held_out_batches(text, tokenizer, length, settings):
    """Held-out text, masked once and for all."""
    return data.MaskedLMBatches(
        data.pack_documents(text.validation, tokenizer, length),
        tokenizer,
        settings.batch_size,
        rate=settings.mask_rate,
        whole_words=settings.whole_words,
        fixed=True,
    )


def digest(text, tokenizer):
    """A short text that is another one when text or tokens are others."""
    found = hashlib.sha256(tokenizer.digest.encode())
    for part in (text.train, text.validation):
        for document in part:
            found.update(document.encode("utf-8", "surrogatepass") + b"\0")
        found.update(b"\1")
    return found.hexdigest()[:16]


def run(folder, config, prepared):
    """Trains, evaluates and records; all that `folder` is for."""
    model, packed = prepared.model, prepared.packed
    print(
        f"{model.name}: {model.count_params():,} parameters, "
        f"{model.tokenizer.vocabulary_size:,} tokens in the vocabulary, "
        f"Keras {keras.__version__} on {keras.backend.backend()}"
    )
    print(f"text: {packed}")
    for note in prepared.text.notes:
        print(f"note: {note}")
    begin = time.perf_counter()
    history, best = train(folder, config, prepared)
    seconds = time.perf_counter() - begin
    scores = model.evaluate(prepared.validation, verbose=0, return_dict=True)
    results = {
        "perplexity": scores["perplexity"],
        "accuracy": scores["accuracy"],
        "parameters": model.count_params(),
        "vocabulary_size": model.tokenizer.vocabulary_size,
        "rows": packed.rows,
        "held_out_rows": prepared.validation.num_rows,
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


def train(folder, config, prepared):
    """Fits the model, from where the folder's checkpoint left it.

    Returns:
        The history, metric name to list of values, and `(epoch, value)` of
        the lowest held-out perplexity.
    """
    settings = dataclasses.asdict(config)
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
    rows = {
        "held-out perplexity of masked tokens": f"{results['perplexity']:.2f}",
        "masked tokens found": f"{results['accuracy']:.1%}",
        "training": f"{results['epochs']} epochs, {results['seconds']:.0f} s",
        "model": folder / "model.keras",
        "for recipes.finetune": folder / text_models.PRESET_FOLDER,
        "learning curves": folder / "learning_curves.png",
    }
    if (folder / "spatial_matrices.png").exists():
        rows["spatial weights"] = folder / "spatial_matrices.png"
    runs.show("Results", rows)


def evaluate(config):
    """Measures a trained model on its held-out text, or on other text."""
    if config.model.from_ is not None:
        raise ValueError(
            "--evaluate names the model already: give it without --from."
        )
    source = text_models.find(config.evaluate)
    record = text_models.saved_run(config.evaluate)
    own = record and config.text == Text()
    if own:
        # Cut as then, so that no text that was trained on is measured.
        saved = from_record(record)
        config = dataclasses.replace(
            config,
            text=saved.text,
            training=saved.training,
            seed=saved.seed,
        )
    settings, _ = resolve(config)
    model = MaskedLM.from_preset(source)
    text = load_text(config)
    if own and record["results"].get("data_digest") != digest(
        text, model.tokenizer
    ):
        print(
            "note: the text is not what it was when the model was trained: it "
            "may have seen some of what is measured"
        )
    for note in text.notes:
        print(f"note: {note}")
    batches = held_out_batches(
        text, model.tokenizer, model.backbone.sequence_length, settings
    )
    model.compile()
    scores = model.evaluate(batches, verbose=0, return_dict=True)
    results = {
        "perplexity": scores["perplexity"],
        "accuracy": scores["accuracy"],
        "held_out_rows": batches.num_rows,
    }
    runs.show(
        f"{config.evaluate} on {results['held_out_rows']:,} held-out rows",
        {
            "perplexity of masked tokens": f"{results['perplexity']:.2f}",
            "masked tokens found": f"{results['accuracy']:.1%}",
        },
    )
    return results


def fill(config):
    """Says which tokens the masks in texts may stand for."""
    if config.model.from_ is None:
        raise ValueError("Say which model shall fill it in: --from runs/mlm")
    model = MaskedLM.from_preset(text_models.find(config.model.from_))
    answers = []
    for text in config.fill:
        found = model.fill_mask(text)
        answers.append(found)
        masks = found if isinstance(found[0], list) else [found]
        for i, candidates in enumerate(masks, 1):
            title = text if len(masks) == 1 else f"{text} (mask {i})"
            runs.show(
                title, {c.token: f"{c.probability:.1%}" for c in candidates}
            )
    return answers


def cli():
    """The command line."""
    command.run(main, Config, __doc__, "mlm")


if __name__ == "__main__":
    cli()
