"""Sparse all-MLP, gMLP and Transformers with experts, at equal FLOPs.

Causal language models as `recipes.causal_lm` builds them: whatever the kind,
a forward pass has as many multiply-adds as the gMLP's, within 2%. Perplexity on
held-out articles, three seeds each:

1. Which experts? `gmlp` and `transformer` have none; `smlp` has token and
   feature experts, `smlp-partial` lets the first fifth of the tokens choose;
   `switch`, `gshard`, `base` and `hash` are Transformers with token experts.
   All are measured from the first token on, and also on the later tokens only,
   which is all that `smlp-partial` can be asked for. `smlp-leaky` cheats.
2. How much are heads worth? `gmlp` and `transformer` with 1 and with 16.

    export KERAS_BACKEND=torch OMP_WAIT_POLICY=PASSIVE
    python -m benchmarks.sparse_study --text DIR --jobs 2
    python -m benchmarks.sparse_study --text DIR --report
    python -m benchmarks.sparse_study --text DIR --pilot --jobs 2

What a training writes is kept under `runs/sparse_study`, and one that was
interrupted goes on. `--pilot` tries learning rates for one epoch, with a seed
of their own. `docs/results/sparse.md` has the numbers.
"""

import dataclasses
import functools
import pathlib

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip

from benchmarks import study
from benchmarks import study_text
from recipes import causal_lm
from recipes import causal_lm_settings as settings

FOLDER = pathlib.Path("runs/sparse_study")
TOKENIZER = FOLDER / "tokenizer.json"
SEEDS = 3
EPOCHS = 3
VOCABULARY = 4_000
LEARNING_RATE = 4e-3
SIZES = {
    "sequence_length": 128,
    "num_layers": 4,
    "num_sparse_blocks": 2,
    "num_experts": 8,
    "hidden_dim": 64,
    "intermediate_dim": 384,
}
# The recipe's models, and what of the sizes is another. Without more said,
# a matrix W and an attention of this width have one head.
VARIANTS = {
    "gmlp": {},
    "smlp": {},
    "smlp-partial": {},
    "smlp-leaky": {},
    "transformer": {},
    "switch": {},
    "gshard": {},
    "base": {},
    "hash": {},
    "gmlp, 16 heads": {"spatial_heads": 16},
    "transformer, 16 heads": {"num_heads": 16},
}
# Learning rates that the pilot tries, with which models and which seed.
PILOT_RATES = (1e-3, 2e-3, 4e-3, 8e-3)
PILOT_MODELS = ("gmlp", "smlp", "transformer", "switch")
PILOT_SEED = 100


def configuration(text, variant, seed, rate=LEARNING_RATE, epochs=EPOCHS):
    """Settings of `recipes.causal_lm`."""
    sizes = {**SIZES, **VARIANTS[variant]}
    name = variant.replace(", ", "-").replace(" ", "-")
    return settings.Config(
        model=settings.Model(models=(variant.split(",")[0],), **sizes),
        text=settings.Text(f"text:{text}", tokenizer=TOKENIZER),
        training=settings.Training(
            epochs=epochs, batch_size=32, learning_rate=rate
        ),
        window=prefix_length(),
        seed=seed,
        out=FOLDER / f"{name}-{seed}-{rate:g}",
    )


def prefix_length():
    """P, how many tokens choose where the routing is partial."""
    return int(settings.Model().prefix_fraction * SIZES["sequence_length"])


def train(text, variant, seed, rate=LEARNING_RATE, epochs=EPOCHS):
    """Trains for one key, or goes on, and returns what is recorded."""
    keras.utils.clear_session(free_memory=True)
    config = configuration(text, variant, seed, rate, epochs)
    if (config.out / "config.json").exists():
        results = causal_lm.main(settings.Config(resume=config.out))
    else:
        results = causal_lm.main(config)
    return results["models"][config.model.models[0]]


def train_pilot(text, variant, rate):
    """One epoch with one learning rate."""
    return train(text, variant, PILOT_SEED, rate, epochs=1)


def table(finished):
    """The results as Markdown."""
    lines = [
        "| model | parameters | million multiply-adds a row | seeds "
        f"| perplexity | from token {prefix_length()} on "
        "| tokens found, % | minutes |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for variant in VARIANTS:
        some = [run for run in finished if run["key"][0] == variant]
        if not some:
            continue
        whole = not some[0]["first_predicted"]
        cells = [
            f"`{variant}`",
            f"{some[0]['parameters']:,}",
            f"{some[0]['macs'] / 1e6:.1f}",
            len(some),
            _spread(some, "perplexity", "{:.2f}") if whole else "",
            _spread(some, "window_perplexity", "{:.2f}"),
            _spread(some, "accuracy", "{:.1f}", 100) if whole else "",
            _spread(some, "seconds", "{:.1f}", 1 / 60),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, "", _total(finished)])


def pilot_table(finished):
    """Perplexity after one epoch, by model and rate."""
    lines = [
        "| model | " + " | ".join(f"{rate:g}" for rate in PILOT_RATES) + " |",
        "|:--|" + "--:|" * len(PILOT_RATES),
    ]
    found = {tuple(run["key"]): run["perplexity"] for run in finished}
    for variant in PILOT_MODELS:
        cells = [found.get((variant, rate)) for rate in PILOT_RATES]
        shown = ["" if cell is None else f"{cell:.1f}" for cell in cells]
        lines.append(f"| `{variant}` | " + " | ".join(shown) + " |")
    return "\n".join([*lines, "", _total(finished)])


def _spread(some, name, form, factor=1):
    return study.mean_and_std((factor * run[name] for run in some), form)


def _total(finished):
    seconds = sum(run["seconds"] for run in finished)
    return f"{len(finished)} runs, {seconds / 60:.0f} minutes of fit."


def main():
    parser = study.command_line(__doc__)
    parser.add_argument(
        "--text",
        type=pathlib.Path,
        required=True,
        help="file or folder of plain text",
    )
    parser.add_argument(
        "--pilot",
        action="store_true",
        help="try learning rates for one epoch instead",
    )
    given = parser.parse_args()
    study_text.prepare_tokenizer(given.text, TOKENIZER, VOCABULARY)
    shared = configuration(given.text, "gmlp", 0)
    about = {
        "training": dataclasses.asdict(settings.resolve(shared.training)),
        "sizes": SIZES,
        "variants": VARIANTS,
        "vocabulary": VOCABULARY,
        "backend": keras.backend.backend(),
    }
    if given.pilot:
        del about["training"]["learning_rate"]
        asked = study.Study(
            name="sparse_pilot",
            settings=about,
            plan=[(v, rate) for v in PILOT_MODELS for rate in PILOT_RATES],
            train=functools.partial(train_pilot, given.text),
            table=pilot_table,
            shown="perplexity",
        )
    else:
        asked = study.Study(
            name="sparse_study",
            settings=about,
            plan=[(v, seed) for seed in range(SEEDS) for v in VARIANTS],
            train=functools.partial(train, given.text),
            table=table,
            shown="perplexity",
        )
    study.main(asked, given)


if __name__ == "__main__":
    main()
