"""gMLP's gates as language models; gMLP, aMLP and BERT, and what they learn.

Two questions, with models of as many parameters, within 1%, three seeds each:

1. Which gate? The four of the paper's ablation (Table 3), and a W with all n²
   weights beside the Toeplitz one. Masked perplexity on held-out articles.

       split              the paper's unit
       linear, additive, multiplicative
                          the other gates, with a narrower expansion, since
                          they do not halve it
       dense              the paper's unit with an unconstrained W (98,000
                          parameters more: n² against 2n - 1 a block)

2. Does a tiny attention help, and where? gMLP (`split` above), aMLP and
   KerasHub's BERT: perplexity, and then finetuned on a task of single
   sentences (SST-2, a sample of it) and two of pairs (MRPC, RTE).

    export KERAS_BACKEND=torch OMP_WAIT_POLICY=PASSIVE
    python -m benchmarks.language_study --text DIR --glue DIR --jobs 2
    python -m benchmarks.language_study --text DIR --glue DIR --report

Pretraining and finetuning are `recipes.mlm` and `recipes.finetune`, run as
they are; what they write is kept under `runs/language_study`, and a run that
was interrupted goes on. `docs/results/language.md` has the numbers.
"""

import dataclasses
import functools
import pathlib

import mlp_mixers  # noqa: F401 - first, so that it can choose a backend

import keras  # isort: skip

from benchmarks import study
from benchmarks import study_text
from recipes import finetune
from recipes import finetune_settings
from recipes import mlm
from recipes import mlm_settings

FOLDER = pathlib.Path("runs/language_study")
TOKENIZER = FOLDER / "tokenizer.json"
SEEDS = 3
EPOCHS = 3
VOCABULARY = 4_000
# Of 1, 2, 4 and 8 times 1e-3, the best one for BERT after one epoch with a
# seed of its own; better than 2e-3 for gMLP too.
LEARNING_RATE = 4e-3
SIZES = {"sequence_length": 128, "num_layers": 6, "hidden_dim": 64}
# With these all have 485,000 parameters, within 1%.
SPLIT_DIM, WHOLE_DIM, AMLP_DIM, BERT_DIM = 384, 288, 324, 154
VARIANTS = {
    "split": {"intermediate_dim": SPLIT_DIM},
    "amlp": {
        "model": "amlp",
        "intermediate_dim": AMLP_DIM,
        "attention_dim": 16,
    },
    "bert": {"model": "bert", "num_heads": 4, "intermediate_dim": BERT_DIM},
    "linear": {"gate": "linear", "intermediate_dim": WHOLE_DIM},
    "additive": {"gate": "additive", "intermediate_dim": WHOLE_DIM},
    "multiplicative": {
        "gate": "multiplicative",
        "intermediate_dim": WHOLE_DIM,
    },
    "dense": {"toeplitz": False, "intermediate_dim": SPLIT_DIM},
}
MODELS = ("split", "amlp", "bert")
# Sentences of SST-2 to train on, and passes over the training examples.
SAMPLE = 8_000
TASKS = {"SST-2": 4, "MRPC": 8, "RTE": 10}


def pretraining(text, variant, seed):
    """Settings of `recipes.mlm`."""
    return mlm_settings.Config(
        model=mlm_settings.Model(**SIZES, **VARIANTS[variant]),
        text=mlm_settings.Text(f"text:{text}", tokenizer=TOKENIZER),
        training=mlm_settings.Training(
            epochs=EPOCHS, batch_size=32, learning_rate=LEARNING_RATE
        ),
        seed=seed,
        out=FOLDER / f"{variant}-{seed}",
    )


def finetuning(glue, variant, task, seed):
    """Settings of `recipes.finetune`, from what was pretrained."""
    return finetune_settings.Config(
        model=finetune_settings.Model(from_=str(FOLDER / f"{variant}-{seed}")),
        data=finetune_settings.Data(
            f"glue:{glue}/{task}", sample=SAMPLE if task == "SST-2" else None
        ),
        training=finetune_settings.Training(epochs=TASKS[task], max_length=128),
        seed=seed,
        out=FOLDER / f"{variant}-{seed}-{task}",
    )


def train(text, glue, kind, *key):
    """Trains for one key, or goes on, and returns what is recorded."""
    keras.utils.clear_session(free_memory=True)
    if kind == "pretrain":
        config, recipe = pretraining(text, *key), mlm
        settings = mlm_settings
    else:
        config, recipe = finetuning(glue, *key), finetune
        settings = finetune_settings
    if (config.out / "config.json").exists():
        results = recipe.main(settings.Config(resume=config.out))
    else:
        results = recipe.main(config)
    score = results["perplexity"] if kind == "pretrain" else headline(results)
    return {"score": score, **results}


def headline(results):
    """Accuracy on the validation part; of one seed, the median is it."""
    return results["parts"]["validation"]["accuracy"]["median"]


def table(finished):
    """The results as Markdown tables."""
    lines = [
        "| model | parameters | seeds | held-out perplexity "
        "| masked tokens found, % | minutes |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for variant in VARIANTS:
        some = _with_key(finished, "pretrain", variant)
        if not some:
            continue
        cells = [
            f"`{variant}`",
            f"{some[0]['parameters']:,}",
            len(some),
            study.mean_and_std((r["perplexity"] for r in some), "{:.1f}"),
            study.mean_and_std((100 * r["accuracy"] for r in some), "{:.1f}"),
            study.mean_and_std((r["seconds"] / 60 for r in some), "{:.1f}"),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "| model | " + " | ".join(TASKS) + " |"]
    lines.append("|:--|" + "--:|" * len(TASKS))
    for variant in MODELS:
        cells = [f"`{variant}`"]
        for task in TASKS:
            some = _with_key(finished, "finetune", variant, task)
            cells.append(
                study.mean_and_std((100 * r["score"] for r in some), "{:.1f}")
                if some
                else ""
            )
        lines.append("| " + " | ".join(cells) + " |")
    seconds = sum(run["seconds"] for run in finished)
    lines += ["", f"{len(finished)} runs, {seconds / 60:.0f} minutes of fit."]
    return "\n".join(lines)


def _with_key(finished, *begin):
    return [r for r in finished if tuple(r["key"][: len(begin)]) == begin]


def main():
    parser = study.command_line(__doc__)
    parser.add_argument(
        "--text",
        type=pathlib.Path,
        required=True,
        help="file or folder of plain text",
    )
    parser.add_argument(
        "--glue",
        type=pathlib.Path,
        required=True,
        help="folder with SST-2, MRPC and RTE",
    )
    given = parser.parse_args()
    study_text.prepare_tokenizer(given.text, TOKENIZER, VOCABULARY)
    plan = [("pretrain", v, seed) for seed in range(SEEDS) for v in VARIANTS]
    plan += [
        ("finetune", model, task, seed)
        for seed in range(SEEDS)
        for task in TASKS
        for model in MODELS
    ]
    shared = pretraining(given.text, "split", 0)
    study.main(
        study.Study(
            name="language_study",
            settings={
                "training": dataclasses.asdict(mlm_settings.resolve(shared)[0]),
                "sizes": SIZES,
                "variants": VARIANTS,
                "tasks": TASKS,
                "sample": SAMPLE,
                "vocabulary": VOCABULARY,
                "backend": keras.backend.backend(),
            },
            plan=plan,
            train=functools.partial(train, given.text, given.glue),
            table=table,
            shown="score",
        ),
        given,
    )


if __name__ == "__main__":
    main()
