"""Small tasks, and a model to start from, for tests of `recipes.finetune`."""

import csv
import json

import keras
import numpy as np

from mlp_mixers import data
from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPTextBackbone
from recipes.finetune_settings import Config
from recipes.finetune_settings import Data
from recipes.finetune_settings import Model
from recipes.finetune_settings import Training

GOOD, BAD = ("fine", "lovely", "great"), ("dull", "awful", "poor")
NAMES, THINGS = ("Ada", "Bob", "Cleo", "Dan"), ("cat", "dog", "fox", "owl")
SIZES = {"num_layers": 1, "hidden_dim": 16, "intermediate_dim": 32}


def sentence(rng, words):
    return f"a {rng.choice(words)} film with {rng.choice(THINGS)}s"


def write_table(path, rows):
    lines = ["\t".join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def write_films(path, count, labels=("bad", "good"), seed=0):
    """Sentences of two classes that one word tells apart."""
    rng = np.random.default_rng(seed)
    rows = [("sentence", "label")]
    for i in range(count):
        words = (BAD, GOOD)[i % 2]
        rows.append((sentence(rng, words), labels[i % 2]))
    return write_table(path, rows)


def write_questions(path, count, seed=0, impossible=True):
    """SQuAD's JSON: one question with an answer and one without."""
    rng = np.random.default_rng(seed)
    articles = []
    for i in range(count):
        name, other = rng.permutation(NAMES)[:2]
        thing = rng.choice(THINGS)
        context = f"{name} has a {thing}."
        qas = [
            {
                "id": f"{i}a",
                "question": f"What does {name} have?",
                "is_impossible": False,
                "answers": [
                    {
                        "text": str(thing),
                        "answer_start": context.index(f" {thing}") + 1,
                    }
                ],
            },
            {
                "id": f"{i}b",
                "question": f"What does {other} have?",
                "is_impossible": True,
                "answers": [],
            },
        ]
        qas = qas if impossible else qas[:1]
        paragraph = {"context": context, "qas": qas}
        articles.append({"title": str(i), "paragraphs": [paragraph]})
    path.write_text(json.dumps({"data": articles}))
    return path


def films_in(folder):
    train = write_films(folder / "train.tsv", 48)
    dev = write_films(folder / "dev.tsv", 20, seed=1)
    return f"tsv:{train},{dev}"


def pretrained_in(folder):
    """A masked language model as `recipes.mlm` leaves it."""
    keras.utils.set_random_seed(0)
    texts = [f"a {w} film with {t}s" for w in GOOD + BAD for t in THINGS]
    texts += [
        f"What does {n} have? {n} has a {t}." for n in NAMES for t in THINGS
    ]
    tokenizer = data.Tokenizer.train(texts, 330)
    backbone = GMLPTextBackbone(
        tokenizer.vocabulary_size, 24, attention_dim=4, **SIZES
    )
    model = GMLPMaskedLM(backbone, tokenizer=tokenizer)
    model.save_to_preset(folder / "mlm" / "preset")
    return str(folder / "mlm")


def settings(task, pretrained, out, **training):
    training = {
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 0.02,
        **training,
    }
    task = task if isinstance(task, Data) else Data(task)
    return Config(Model(pretrained), task, Training(**training), out=out)


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(
            csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        )
