"""Settings that come back from a file, or are refused by name."""

import dataclasses
import json
import pathlib
import re

import pytest

from recipes import causal_lm_settings
from recipes import finetune_settings
from recipes import mlm_settings
from recipes import vision_settings
from recipes.records import from_record
from recipes.text_settings import Text

CONFIGS = [
    vision_settings.Config(
        model=vision_settings.Model(image_size=(12, 16), from_="a"),
        data=vision_settings.Data("folder:a", channels=3),
        training=vision_settings.Training("cifar", flip=False, ema=0.9),
        workers=3,
    ),
    mlm_settings.Config(
        text=Text(tokenizer=pathlib.Path("a/tokenizer.json")),
        training=mlm_settings.Training("main", epsilon=1, whole_words=True),
        out=pathlib.Path("there"),
    ),
    finetune_settings.Config(
        data=finetune_settings.Data("tsv:a", metrics=("f1", "accuracy")),
        seed=3,
    ),
    causal_lm_settings.Config(
        model=causal_lm_settings.Model(models=("gmlp", "hash")),
        temperature=0.5,
    ),
]


def written(config):
    return json.loads(json.dumps(dataclasses.asdict(config), default=str))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: type(c).__module__)
def test_what_was_written_comes_back(config):
    record = written(config)
    assert from_record(type(config), record) == config
    # What is beside the settings, and what has come later or gone.
    record |= {"built": {"depth": 3}, "identity": {}}
    del record["resume"]
    assert from_record(type(config), record) == config


@pytest.mark.parametrize(
    ("group", "name", "value", "expected"),
    [
        ("model", "image_size", [12], "a list of 2, each an integer, or null"),
        ("model", "image_size", [1.5, 2], "a list of 2, each an integer,"),
        ("model", "freeze", "yes", "true or false"),
        ("model", "gate", 3, "'linear' or 'additive' or 'multiplicative' or"),
        ("data", "channels", 2, "1 or 3 or null"),
        ("training", "ema", "0.9", "a number or null"),
        (None, "workers", 1.5, "an integer or null"),
        (None, "out", None, "a path"),
        (None, "predict", "a.png", "a list, each a path, or null"),
        (None, "data", "digits", "a group of settings"),
    ],
)
def test_a_value_of_another_type_is_named(group, name, value, expected):
    record = written(CONFIGS[0])
    (record[group] if group else record)[name] = value
    message = re.escape(f"`{name}` must be {expected}")
    received = re.escape(f"Received: {name}={value!r}")
    with pytest.raises(ValueError, match=f"{message}.*{received}$"):
        from_record(vision_settings.Config, record)


def test_settings_that_are_missing_or_unknown():
    record = written(CONFIGS[0])
    del record["seed"]
    with pytest.raises(ValueError, match="not of this version.*no 'seed'"):
        from_record(vision_settings.Config, record)
    record = written(CONFIGS[0])
    record["training"]["momentum"] = 0.9
    with pytest.raises(ValueError, match="no setting 'momentum' in 'training'"):
        from_record(vision_settings.Config, record)
