"""Train causal language models, compare them, and ask them.

    python -m recipes.causal_lm
    python -m recipes.causal_lm --models gmlp smlp transformer switch
    python -m recipes.causal_lm --data text:books --num-experts 8 --out runs/x
    python -m recipes.causal_lm --resume runs/causal_lm
    python -m recipes.causal_lm --models smlp --router switch
    python -m recipes.causal_lm --evaluate runs/causal_lm --data text:other.txt
    python -m recipes.causal_lm --from runs/causal_lm --generate "A list is"
    python -m recipes.causal_lm --from runs/causal_lm \\
        --zero-shot copa.jsonl glue:DIR/RTE

Dense gMLP, sparse all-MLP with either routing, and Transformers with token
experts, on one text with one tokenizer, all as expensive as the gMLP (widths
are found by counting multiply-adds). A run leaves a folder with each model,
its history and how busy its experts are, and of several models, perplexity by
steps and by time in one picture. Several models lie in folders by their names:
--from runs/causal_lm/smlp. The default text is the manual inside every Python,
read 15 times (--epochs) in batches of 16 rows (--batch-size) of 128 tokens
(--sequence-length), with a learning rate of 0.002 at most (--learning-rate).
"""

import dataclasses
import shutil
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip
import numpy as np

from mlp_mixers import analysis
from mlp_mixers import data
from mlp_mixers.models import SMLPCausalLM
from mlp_mixers.training import RoutingMetrics
from mlp_mixers.training import TrainingCheckpoint
from recipes import causal_lm_models
from recipes import causal_lm_pictures
from recipes import causal_lm_use
from recipes import command
from recipes import fitting
from recipes import runs
from recipes import text_baseline
from recipes import text_corpus
from recipes import text_models
from recipes import text_pictures
from recipes.causal_lm_settings import Config
from recipes.causal_lm_settings import Training
from recipes.causal_lm_settings import check
from recipes.causal_lm_settings import resolve
from recipes.causal_lm_settings import sizes_of
from recipes.recipe import Recipe

# Settings that have come later: a run that began before them goes on as with
# `None`.
LATER_SETTINGS = ("router", "balance_loss_weight", "z_loss_weight")
SCORE_KEYS = ("perplexity", "accuracy", "epochs", "seconds")
# Batches of held-out text by which the load of experts is measured.
LOAD_BATCHES = 8
# Futures that are exchanged to see whether a model looks at them.
LEAK_TRIALS = 32


def main(config):
    """Trains, goes on, measures, writes or chooses, as a `Config` asks.

    Returns:
        Dictionary of results, as in `results.json`; for `evaluate`, of what
        was measured; for `generate`, a list of texts; for `zero_shot`, a
        dictionary from tasks to scores.

    Raises:
        As `Recipe.main`.
    """
    return RECIPE.main(config)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """All that a run needs, made before its folder.

    Attributes:
        settings: A `Training`.
        text: A `TextSplit`.
        tokenizer: A `Tokenizer`.
        sizes: Sizes of all backbones.
        built: Dictionary from models to the arguments of their backbones.
        stream: `TextStream` to train on.
        counts: How often every token stands in it.
        validation: `CausalLMBatches` of held-out text.
        later: The same, of which only the tokens of the window count; `None`
            where no window is asked for.
        epochs: Of a training.
        steps: In an epoch.
        identity: Dictionary of what must not change when a run goes on.
    """

    settings: Training
    text: data.TextSplit
    tokenizer: data.Tokenizer
    sizes: dict
    built: dict
    stream: data.TextStream
    counts: np.ndarray
    validation: data.CausalLMBatches
    later: data.CausalLMBatches | None
    epochs: int
    steps: int
    identity: dict


def prepare(config):
    """Text and sizes; whatever can be wrong is said here.

    Raises:
        ValueError: If a setting is out of range, or text cannot be had.
    """
    check(config)
    causal_lm_models.check_experts(config.model)
    settings = resolve(config.training)
    text = text_corpus.load(config.text, config.seed)
    tokenizer = text_models.tokenizer_for(config.text, text.train)
    sizes = {
        "vocabulary_size": tokenizer.vocabulary_size,
        **sizes_of(config.model),
    }
    length = config.model.sequence_length
    stream = data.stream_documents(text.train, tokenizer, length)
    text_corpus.check_rows(stream.rows, length, settings.batch_size)
    steps = stream.rows // settings.batch_size
    backbones = {  # once for all that can be wrong
        variant: build(config, variant, sizes)
        for variant in config.model.models
    }
    held_out = (
        data.stream_documents(text.validation, tokenizer, length),
        tokenizer.pad_id,
        settings.batch_size,
    )
    first = max(backbone.prefix_length for backbone in backbones.values())
    if config.window is not None and config.window < first:
        raise ValueError(
            f"The first {first} tokens choose the route of smlp-partial, which "
            "can be asked for later ones only: begin the window there. "
            f"Received: window={config.window}"
        )
    window = config.window or first
    return Prepared(
        settings=settings,
        text=text,
        tokenizer=tokenizer,
        sizes=sizes,
        built={name: b.get_config() for name, b in backbones.items()},
        stream=stream,
        counts=text_baseline.token_counts(
            stream.token_ids[:, 1:], tokenizer.vocabulary_size
        ),
        validation=data.CausalLMBatches(*held_out),
        # Output t predicts token t + 1.
        later=data.CausalLMBatches(*held_out, first_predicted=window - 1)
        if window
        else None,
        epochs=fitting.epochs_of(settings, steps),
        steps=steps,
        identity=text_corpus.identity(text, tokenizer),
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
    runs.show_notes(prepared.text.notes)
    scores = {}
    for variant in config.model.models:
        place = place_of(folder, variant, config)
        path = place / "scores.json"
        if path.is_file():
            scores[variant] = runs.read(path, SCORE_KEYS)
        else:
            scores[variant] = train(folder, place, config, prepared, variant)
        # After the scores, so that a run that is ended between goes on.
        shutil.rmtree(checkpoint_of(folder, variant), ignore_errors=True)
    with command.room_for(folder, "causal_lm"):
        results = {
            "models": scores,
            "unigram_perplexity": unigram_perplexity(prepared),
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
                histories,
                prepared.steps,
                folder / "comparison.png",
                [v for v, s in scores.items() if s["first_predicted"]],
            )
        np.save(folder / causal_lm_use.COUNTS_FILE, prepared.counts)
        runs.record(folder, "results.json", results)
    report(folder, results)
    return results


def unigram_perplexity(prepared, first=0):
    """What frequencies score on held-out text, from a place in a row on."""
    never = prepared.tokenizer.pad_id, prepared.tokenizer.mask_id
    return text_baseline.unigram_perplexity(
        prepared.validation, prepared.counts, never, first
    )


def place_of(folder, variant, config):
    """The folder of a model: the run's own if there is one only."""
    return folder if len(config.model.models) == 1 else folder / variant


def checkpoint_of(folder, variant):
    """The folder of what a training goes on from."""
    return folder / f"checkpoint-{variant}"


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
    checkpoint = TrainingCheckpoint(
        checkpoint_of(folder, variant),
        monitor="val_perplexity",
        mode="min",
        identity={
            **settings_of_training(config),
            **prepared.identity,
            "variant": variant,
        },
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
        keep=config.keep,
    )
    history = checkpoint.history
    measured = model.evaluate(prepared.validation, verbose=0, return_dict=True)
    scores = {
        "perplexity": measured["perplexity"],
        "accuracy": measured["accuracy"],
        "first_predicted": model.first_predicted,
        **later_scores(model, prepared),
        "leaks": leaks(model),
        "intermediate_dim": width,
        "parameters": model.count_params(),
        "macs": macs,
        "epochs": checkpoint.epochs_done,
        "best_epoch": checkpoint.best_epoch,
        "seconds": sum(history["seconds"]),
    }
    with command.room_for(folder, "causal_lm"):
        place.mkdir(exist_ok=True)
        scores["load"] = save(place, model, history, prepared)
        scores["drop_rate"] = drop_rates(history, scores["load"] or ())
        runs.record(place, "scores.json", scores)
    return scores


def settings_of_training(config):
    """What must stay as it is from epoch to epoch, by name."""
    settings = RECIPE.settings_of_training(config)
    return {
        name: value
        for name, value in settings.items()
        if name not in LATER_SETTINGS or value is not None
    }


def drop_rates(history, layers):
    """The share of choices without a place, in the last epoch, by layer."""
    return {
        layer: history[f"{layer}_drop_rate"][-1]
        for layer in layers
        if f"{layer}_drop_rate" in history
    }


def leaks(model):
    """Whether it sees the future in inference, with the weights it has."""
    if model.backbone.sequence_length - model.first_predicted < 2:
        return False  # nothing follows what counts
    return bool(analysis.leaks_future(model, trials=LEAK_TRIALS))


def later_scores(model, prepared):
    """Perplexity from the window's first token on, if there is a window."""
    if prepared.later is None:
        return {}
    measured = model.evaluate(prepared.later, verbose=0, return_dict=True)
    return {
        "window": prepared.later.first_predicted + 1,
        "window_perplexity": measured["perplexity"],
    }


def save(place, model, history, prepared):
    """Writes a model, its numbers and its pictures; returns its loads."""
    model.save_to_preset(place / text_models.PRESET_FOLDER)
    runs.record(place, "history.json", history)
    text_pictures.draw_history(
        {k: v for k, v in history.items() if k != "seconds"},
        place / "learning_curves.png",
        unigram=unigram_perplexity(prepared, model.first_predicted),
    )
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
    models = results["models"]
    windows = {s["window"] for s in models.values() if "window" in s}
    rows = []
    for variant, s in models.items():
        star = "*" if s["first_predicted"] else ""
        rows.append(
            [
                variant,
                f"{s['perplexity']:.2f}{star}",
                f"{s['accuracy']:.1%}{star}",
                f"{s['parameters']:,}",
                f"{s['macs'] / 1e6:.1f}",
                f"{s['seconds']:.0f}",
            ]
        )
    names = (
        *("model", "perplexity", "accuracy", "parameters"),
        *("MACs, M", "seconds"),
    )
    runs.show_table("Held-out text; MACs of a row, in millions", names, rows)
    for window in windows:
        runs.show_table(
            f"Held-out text from token {window} of a row on",
            ("model", "perplexity"),
            [(v, f"{s['window_perplexity']:.2f}") for v, s in models.items()],
        )
    report_experts(models)
    if "unigram_perplexity" in results:  # not of an older version
        print(
            "by the frequencies of tokens alone, the perplexity is "
            f"{results['unigram_perplexity']:.2f}"
        )
    if any(s["first_predicted"] for s in models.values()):
        print(
            "* of the later tokens of a row only: compare it with others there"
        )
    for variant, s in models.items():
        if s.get("leaks"):
            print(f"{variant} sees what it predicts: its scores mean nothing")
    print(f"everything lies in {folder}")


def report_experts(models):
    """Prints how busy experts are, of the models that have some."""
    rows = []
    for variant, s in models.items():
        if not s.get("load"):
            continue
        # How many times a fair share, over all layers with a route.
        loads = [len(load) * x for load in s["load"].values() for x in load]
        dropped = s.get("drop_rate", {}).values()  # an older version has none
        rows.append(
            [
                variant,
                f"{max(loads):.2f}",
                f"{min(loads):.2f}",
                f"{max(dropped):.1%}" if dropped else "unknown",
            ]
        )
    if rows:
        runs.show_table(
            "Experts: load over a fair share in inference; choices dropped in "
            "training",
            ("model", "busiest expert", "idlest expert", "dropped"),
            rows,
        )


RECIPE = Recipe(
    name="causal_lm",
    config_class=Config,
    prepare=prepare,
    run=run,
    report=report,
    result_keys=("models", "seconds"),
    instead={
        "evaluate": causal_lm_use.evaluate,
        "generate": causal_lm_use.generate,
        "zero_shot": causal_lm_use.zero_shot,
    },
    apart=("models",),  # each is trained by itself
)


def cli():
    """The command line."""
    command.run(main, Config, __doc__, "causal_lm")


if __name__ == "__main__":
    cli()
