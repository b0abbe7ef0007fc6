"""Train causal language models, compare them, and ask them.

    python -m recipes.causal_lm
    python -m recipes.causal_lm --models gmlp smlp transformer switch
    python -m recipes.causal_lm --data text:books --num-experts 8 --out runs/x
    python -m recipes.causal_lm --resume runs/causal_lm
    python -m recipes.causal_lm --from runs/causal_lm --generate "A list is"
    python -m recipes.causal_lm --from runs/causal_lm \\
        --zero-shot copa.jsonl glue:DIR/RTE

Dense gMLP, sparse all-MLP with either routing, and Transformers with token
experts, on one text with one tokenizer, all as expensive as the gMLP (widths
are found by counting multiply-adds). A run leaves a folder with each model,
its history and how busy its experts are, and of several models, perplexity by
steps and by time in one picture. Several models lie in folders by their names:
--from runs/causal_lm/smlp. The default text is the manual inside every Python.
"""

import dataclasses
import shutil
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.models import SMLPCausalLM
from mlp_mixers.training import RoutingMetrics
from mlp_mixers.training import TrainingCheckpoint
from recipes import causal_lm_models
from recipes import causal_lm_pictures
from recipes import causal_lm_use
from recipes import checks
from recipes import command
from recipes import fitting
from recipes import mlm_models
from recipes import mlm_text
from recipes import runs
from recipes import text_models
from recipes.causal_lm_settings import Config
from recipes.causal_lm_settings import Training
from recipes.causal_lm_settings import check
from recipes.causal_lm_settings import from_record
from recipes.causal_lm_settings import resolve
from recipes.causal_lm_settings import sizes_of

RESULT_KEYS = ("models", "seconds")
SCORE_KEYS = ("perplexity", "accuracy", "epochs", "seconds")
# Batches of held-out text by which the load of experts is measured.
LOAD_BATCHES = 8


def main(config):
    """Does what the settings ask for: train, go on, write or choose.

    Args:
        config: A `Config`.

    Returns:
        Dictionary of results, as in `results.json`; for `generate`, a list of
        texts; for `zero_shot`, a dictionary from tasks to scores.

    Raises:
        ValueError: If a setting is out of range, text or model cannot be had.
        FloatingPointError: If the loss becomes NaN or infinite.
        KeyboardInterrupt: If it is interrupted, with how to go on.
    """
    if config.generate is not None:
        return causal_lm_use.generate(config)
    if config.zero_shot is not None:
        return causal_lm_use.zero_shot(config)
    if config.resume is not None:
        return resume(config)
    return start(config)


def start(config):
    """A new run in a new folder."""
    prepared = prepare(config)
    folder = runs.new_folder(config.out)
    runs.record(
        folder,
        "config.json",
        {**dataclasses.asdict(config), "identity": prepared.identity},
    )
    return run(folder, config, prepared)


def resume(config):
    """The rest of an interrupted run, in its folder, with its settings."""
    folder, record, results = command.run_to_resume(
        config,
        dataclasses.replace(config, resume=None) == Config(),
        RESULT_KEYS,
        "causal_lm",
    )
    if results is not None:
        report(folder, results)
        return results
    config = from_record(record)
    prepared = prepare(config)
    command.check_identity(folder, record, prepared.identity)
    return run(folder, config, prepared)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """All that a run needs, made before its folder.

    Attributes:
        settings: A `Training`.
        text: A `TextSplit`.
        tokenizer: A `Tokenizer`.
        sizes: Sizes of all backbones.
        stream: `TextStream` to train on.
        validation: `CausalLMBatches` of held-out text.
        epochs: Of a training.
        steps: In an epoch.
        identity: Dictionary of what must not change when a run goes on.
    """

    settings: Training
    text: data.TextSplit
    tokenizer: data.Tokenizer
    sizes: dict
    stream: data.TextStream
    validation: data.CausalLMBatches
    epochs: int
    steps: int
    identity: dict


def prepare(config):
    """Text and sizes; whatever can be wrong is said here.

    Raises:
        ValueError: If a setting is out of range, or text cannot be had.
    """
    check(config)
    settings = resolve(config.training)
    text = mlm_text.load(config.text, config.seed)
    tokenizer = mlm_models.tokenizer_for(config, text.train, None)
    sizes = {
        "vocabulary_size": tokenizer.vocabulary_size,
        **sizes_of(config.model),
    }
    length = config.model.sequence_length
    stream = data.stream_documents(text.train, tokenizer, length)
    if stream.rows < settings.batch_size:
        raise ValueError(
            f"The text fills {runs.counted(stream.rows, 'row')} of {length} "
            "tokens, fewer than a batch: take more text, shorter rows or a "
            f"smaller batch. Received: batch_size={settings.batch_size}"
        )
    steps = stream.rows // settings.batch_size
    for variant in config.model.models:
        build(config, variant, sizes)  # once for all that can be wrong
    return Prepared(
        settings=settings,
        text=text,
        tokenizer=tokenizer,
        sizes=sizes,
        stream=stream,
        validation=data.CausalLMBatches(
            data.stream_documents(text.validation, tokenizer, length),
            tokenizer.pad_id,
            settings.batch_size,
        ),
        epochs=settings.epochs or -(-settings.steps // steps),
        steps=steps,
        identity={
            "text": mlm_text.digest([*text.train, "", *text.validation]),
            "tokenizer": tokenizer.digest,
        },
    )


def build(config, variant, sizes):
    """The backbone of a variant, by the random state that there is."""
    equal = "gmlp" if config.model.equal == "flops" else None
    return causal_lm_models.build(
        variant, sizes, config.model.intermediate_dim, equal
    )


def run(folder, config, prepared):
    """Trains every model, compares and records; all that `folder` is for."""
    print(
        f"text: {prepared.stream}, Keras {keras.__version__} on "
        f"{keras.backend.backend()}"
    )
    for note in prepared.text.notes:
        print(f"note: {note}")
    scores = {}
    for variant in config.model.models:
        place = place_of(folder, variant, config)
        path = place / "scores.json"
        if path.is_file():
            scores[variant] = runs.read(path, SCORE_KEYS)
        else:
            scores[variant] = train(folder, place, config, prepared, variant)
    with command.room_for(folder, "causal_lm"):
        results = {
            "models": scores,
            "seconds": sum(s["seconds"] for s in scores.values()),
            "seed": config.seed,
            "vocabulary_size": prepared.tokenizer.vocabulary_size,
            "rows": prepared.stream.rows,
            "held_out_rows": prepared.validation.num_rows,
            "tokenizer_digest": prepared.tokenizer.digest,
            "notes": prepared.text.notes,
            "versions": runs.versions(),
        }
        if len(scores) > 1:
            histories = {
                variant: runs.read(
                    place_of(folder, variant, config) / "history.json"
                )
                for variant in scores
            }
            causal_lm_pictures.plot_comparison(
                histories, prepared.steps, folder / "comparison.png"
            )
        runs.record(folder, "results.json", results)
    report(folder, results)
    return results


def place_of(folder, variant, config):
    """The folder of a model: the run's own if there is one only."""
    return folder if len(config.model.models) == 1 else folder / variant


def train(folder, place, config, prepared, variant):
    """Trains one model, from where its checkpoint left it, and records it.

    Returns:
        Its scores.
    """
    keras.utils.clear_session(free_memory=True)
    keras.utils.set_random_seed(config.seed)
    model = SMLPCausalLM(
        build(config, variant, prepared.sizes), tokenizer=prepared.tokenizer
    )
    total = prepared.epochs * prepared.steps
    model.compile(fitting.linear_adamw(prepared.settings, total))
    macs = analysis.count_flops(model.backbone).macs
    width = model.backbone.intermediate_dim
    print(
        f"{variant}: width {width}, {model.count_params():,} parameters, "
        f"{macs / 1e6:.1f} million multiply-adds a row"
    )
    settings = checks.flat(config)
    for name in ("out", "resume", "generate", "zero_shot", "models"):
        del settings[name]
    checkpoint = TrainingCheckpoint(
        folder / f"checkpoint-{variant}",
        monitor="val_perplexity",
        mode="min",
        identity={**settings, **prepared.identity, "variant": variant},
    )
    fitting.fit(
        model,
        data.CausalLMBatches(
            prepared.stream,
            prepared.tokenizer.pad_id,
            prepared.settings.batch_size,
            config.seed,
            drop_remainder=True,
        ),
        prepared.validation,
        prepared.epochs,
        checkpoint,
        "causal_lm",
        before=[RoutingMetrics(), EpochSeconds()],
        part=variant,
    )
    if config.keep == "best":
        checkpoint.load_best(model)
    history, best = checkpoint.history, fitting.best_of(checkpoint)
    scores = model.evaluate(prepared.validation, verbose=0, return_dict=True)
    scores = {
        "perplexity": scores["perplexity"],
        "accuracy": scores["accuracy"],
        "first_predicted": model.first_predicted,
        "intermediate_dim": width,
        "parameters": model.count_params(),
        "macs": macs,
        "epochs": len(history["loss"]),
        "best_epoch": best and best[0],
        "seconds": sum(history["seconds"]),
    }
    with command.room_for(folder, "causal_lm"):
        place.mkdir(exist_ok=True)
        scores["load"] = save(place, model, history, prepared)
        runs.record(place, "scores.json", scores)
    shutil.rmtree(checkpoint.folder, ignore_errors=True)
    return scores


def save(place, model, history, prepared):
    """Writes a model, its numbers and its pictures; returns its loads."""
    model.save_to_preset(place / text_models.PRESET_FOLDER)
    runs.record(place, "history.json", history)
    shown = {k: v for k, v in history.items() if k != "seconds"}
    analysis.plot_history(shown, path=place / "learning_curves.png")
    if not model.backbone.num_sparse_blocks:
        return None
    count = min(LOAD_BATCHES, len(prepared.validation))
    loads = analysis.expert_load(
        model, [prepared.validation[i][0] for i in range(count)]
    )
    analysis.plot_expert_load(loads, path=place / "expert_load.png")
    return {name: load.tolist() for name, load in loads.items()}


class EpochSeconds(keras.callbacks.Callback):
    """Adds to the logs how long an epoch took, without its validation."""

    def on_epoch_begin(self, epoch, logs=None):
        self.begin, self.last = time.perf_counter(), None

    def on_train_batch_end(self, batch, logs=None):
        self.last = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = (self.last or time.perf_counter()) - self.begin


def report(folder, results):
    """Prints what came out, and where it lies."""
    rows = []
    for variant, s in results["models"].items():
        window = s["first_predicted"]
        rows.append(
            [
                variant,
                f"{s['perplexity']:.2f}" + ("*" if window else ""),
                f"{s['accuracy']:.1%}",
                f"{s['parameters']:,}",
                f"{s['macs'] / 1e6:.1f}",
                f"{s['seconds']:.0f}",
            ]
        )
    runs.show_table(
        "Held-out text",
        (
            *("model", "perplexity", "tokens found", "parameters"),
            *("million multiply-adds a row", "seconds"),
        ),
        rows,
    )
    if any(s["first_predicted"] for s in results["models"].values()):
        print(
            "* of the later tokens of a row only, which are easier: compare "
            "it with nothing that counts all of them"
        )
    if "smlp-leaky" in results["models"]:
        print("smlp-leaky sees what it predicts: its perplexity means nothing")
    print(f"everything lies in {folder}")


def cli():
    """The command line."""
    command.run(main, Config, __doc__, "causal_lm")


if __name__ == "__main__":
    cli()
