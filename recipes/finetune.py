"""Finetune a text model for a task, evaluate it and use it.

    python -m recipes.finetune --from runs/mlm --task glue:DIR/SST-2
    python -m recipes.finetune --from runs/mlm --task glue:DIR/RTE --seeds 5
    python -m recipes.finetune --from runs/mlm \\
        --task tsv:train.tsv,dev.tsv --text sentence --label topic
    python -m recipes.finetune --from runs/mlm --task squad:DIR
    python -m recipes.finetune --model gmlp --task glue:DIR/CoLA  # from scratch
    python -m recipes.finetune --resume runs/finetune
    python -m recipes.finetune --evaluate runs/finetune --task tsv:other.tsv
    python -m recipes.finetune --from runs/finetune --predict "A fine film."
    python -m recipes.finetune --from runs/finetune \\
        --predict "A dog barks." --predict-pair "There is a dog."
    python -m recipes.finetune --from runs/finetune --predict-file texts.tsv

Starts from what `recipes.mlm` has pretrained, or from random weights if a
--model is named. Trains with one seed or with several and reports the median
and the spread, never the best; the model that is saved is the one of the
median seed, or the lower of the two in the middle. A run leaves a folder with
the model, its tokenizer and the names of its classes, its predictions, its
history, the learning curves, the configuration and the results, and a folder
for each seed.
"""

import gc
import shutil
import time

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip

from mlp_mixers.training import TrainingCheckpoint
from recipes import command
from recipes import finetune_answers
from recipes import finetune_data
from recipes import finetune_models
from recipes import finetune_results
from recipes import finetune_use
from recipes import fitting
from recipes import runs
from recipes import text_models
from recipes.finetune_data import TaskBatches
from recipes.finetune_prepare import build
from recipes.finetune_prepare import origin_in_words
from recipes.finetune_prepare import prepare
from recipes.finetune_results import WEIGHTS_FILE
from recipes.finetune_results import report
from recipes.finetune_results import seed_folder
from recipes.finetune_settings import Config
from recipes.recipe import Recipe

SEED_KEYS = ("seed", "scores", "null_threshold", "epochs", "seconds")


def main(config):
    """Trains, goes on, evaluates or predicts, as a `Config` asks.

    Returns:
        Dictionary of results, as in `results.json`; for `evaluate`, one from
        parts of the task to their metrics; for `predict` and `predict_file`, a
        list with a dictionary for each text: class to probability,
        `{"number": ...}` or `{"answer": ..., "score": ...}`.

    Raises:
        As `Recipe.main`.
    """
    return RECIPE.main(config)


def run(folder, config, prepared):
    """Trains every seed, measures and records; all that `folder` is for."""
    introduce(config, prepared)
    try:
        with command.room_for(folder, "finetune"):
            records = run_seeds(folder, config, prepared)
            results = finetune_results.summarise(
                prepared, records, origin_in_words(config, prepared)
            )
            finetune_results.save(folder, prepared, results)
    except KeyboardInterrupt as error:
        how = f"Go on with: python -m recipes.finetune --resume {folder}"
        # A training that was interrupted says more.
        message = str(error) or f"Interrupted. {how}"
        message = message.replace(
            "Interrupted.", f"Interrupted.{done_in_words(folder, config)}", 1
        )
        raise KeyboardInterrupt(message) from None
    report(folder, results)
    return results


def done_in_words(folder, config):
    """Which seeds have finished, as a sentence, or nothing."""
    first = config.seed
    last = first
    while finished(folder, last) is not None:
        last += 1
    if last == first:
        return ""
    if last == first + 1:
        return f" Seed {first} has finished and is kept."
    return f" Seeds {first} to {last - 1} have finished and are kept."


def run_seeds(folder, config, prepared):
    """What every seed has come to, as a list of dictionaries."""
    records = []
    for seed in range(config.seed, config.seed + prepared.settings.seeds):
        record = finished(folder, seed)
        if record is None:
            record = run_seed(folder, config, prepared, seed)
            gc.collect()  # of one model at a time
        # Left behind if the run was killed just then.
        shutil.rmtree(checkpoint_folder(folder, seed), ignore_errors=True)
        found = (
            f"{name} {value:.4f}"
            for name, value in record["scores"]["validation"].items()
        )
        print(f"seed {seed}: validation {', '.join(found)}", flush=True)
        records.append(record)
    return records


def introduce(config, prepared):
    """Says what is trained, and on what."""
    task, train = prepared.task, prepared.parts["train"]
    name = finetune_models.task_class(prepared.origin, task.kind).__name__
    text_models.introduce(name, prepared.parameters, prepared.origin.tokenizer)
    classes = f" of {task.num_classes} classes" if task.num_classes else ""
    print(
        f"{task.name}: {finetune_data.in_words(task)}, "
        f"{runs.counted(len(train.examples), 'training example')}{classes}, "
        f"{runs.counted(train.token_ids.shape[1], 'token')}"
    )
    print(f"start: {origin_in_words(config, prepared)}")
    runs.show_notes(prepared.notes)


def checkpoint_folder(folder, seed):
    return folder / f"checkpoint-{seed}"


def finished(folder, seed):
    """What a seed has come to, or `None` if it has not finished."""
    path = seed_folder(folder, seed) / "results.json"
    return runs.read(path, SEED_KEYS) if path.is_file() else None


def run_seed(folder, config, prepared, seed):
    """Trains and measures one model; returns what is recorded of it."""
    keras.utils.set_random_seed(seed)
    model = build(prepared)
    total = prepared.epochs * prepared.steps
    model.compile(fitting.linear_adamw(prepared.settings, total))
    begin = time.perf_counter()
    checkpoint = train(folder, config, prepared, model, seed)
    seconds = time.perf_counter() - begin
    own = seed_folder(folder, seed)
    own.mkdir(exist_ok=True)
    record = {
        "seed": seed,
        **finetune_results.measure(own, prepared, model),
        "epochs": checkpoint.epochs_done,
        "best_epoch": checkpoint.best_epoch,
        "seconds": seconds,
    }
    model.compile()  # Keras would save the optimiser's state too
    model.save_weights(own / WEIGHTS_FILE)
    runs.record(own, "history.json", checkpoint.history)
    # Last: this file says that the seed has finished.
    runs.record(own, "results.json", record)
    return record


def train(folder, config, prepared, model, seed):
    """Fits a model, from where its checkpoint left it.

    Returns:
        The `TrainingCheckpoint`.
    """
    batch_size = prepared.settings.batch_size
    metric = prepared.task.metrics[0]
    checkpoint = TrainingCheckpoint(
        checkpoint_folder(folder, seed),
        monitor=f"val_{metric}",
        mode="max",
        identity={
            **RECIPE.settings_of_training(config),
            **prepared.identity,
            "seed": seed,
        },
    )
    pad_id = prepared.origin.tokenizer.pad_id
    validation = prepared.parts["validation"]
    scoring = []
    if metric != "accuracy":  # which Keras has
        scoring = [
            finetune_answers.ValidationScore(
                metric,
                validation,
                finetune_results.first_metric(prepared),
                batch_size,
            )
        ]
    fitting.fit(
        model,
        TaskBatches(
            prepared.parts["train"],
            batch_size,
            pad_id,
            seed,
            drop_remainder=True,
        ),
        TaskBatches(validation, batch_size, pad_id),
        prepared.epochs,
        checkpoint,
        "finetune",
        before=scoring,
        part=f"seed {seed}" if prepared.settings.seeds > 1 else "",
        keep=config.keep,
    )
    return checkpoint


RECIPE = Recipe(
    name="finetune",
    config_class=Config,
    prepare=prepare,
    run=run,
    report=report,
    result_keys=(
        *("metric", "parts", "saved_seed", "epochs", "seconds", "notes"),
    ),
    instead={
        "predict": finetune_use.predict,
        "predict_file": finetune_use.predict_file,
        "evaluate": finetune_use.evaluate,
    },
    apart=("predict_pair",),
)


def cli():
    """The command line."""
    command.run(main, Config, __doc__, "finetune")


if __name__ == "__main__":
    cli()
