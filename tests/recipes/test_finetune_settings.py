import dataclasses
import json

import pytest

from recipes.finetune_settings import Config
from recipes.finetune_settings import Data
from recipes.finetune_settings import Model
from recipes.finetune_settings import Training
from recipes.finetune_settings import check
from recipes.finetune_settings import resolve
from recipes.records import from_record


def test_the_papers_recipes_are_the_papers():
    """Pay Attention to MLPs, Table 9; medians of five runs in Tables 5, 6."""
    glue = resolve(Training("glue"))
    assert glue.learning_rate in (1e-5, 2e-5, 3e-5)
    assert glue.batch_size in (16, 32)
    assert (glue.epochs, glue.steps) == (5, None)
    assert (glue.max_length, glue.warmup_fraction) == (128, 0.1)
    squad = resolve(Training("squad"))
    assert (squad.learning_rate, squad.batch_size) == (5e-5, 32)
    assert (squad.epochs, squad.steps) == (None, 8000)
    assert squad.warmup_fraction * squad.steps == 1000
    assert squad.max_length == 512
    for recipe in (glue, squad):
        assert (recipe.epsilon, recipe.weight_decay) == (1e-6, 0.01)
        assert recipe.dropout_rate == recipe.attention_dropout_rate == 0.1
        assert recipe.clip_norm == 0
        assert recipe.seeds == 5


def test_what_is_asked_for_wins():
    assert resolve(Training("squad", epochs=3)).steps is None
    assert resolve(Training("glue", steps=70)).epochs is None
    assert resolve(Training(dropout_rate=0.0)).dropout_rate == 0
    assert resolve(Training()).max_length is None  # what the model reads


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 1, "steps": 5}, "by --epochs or by --steps"),
        ({"epochs": 0}, "epochs=0"),
        ({"seeds": 0}, "seeds=0"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"warmup_fraction": 1.0}, "warmup_fraction=1.0"),
        ({"head_dropout_rate": 1.0}, "head_dropout_rate=1.0"),
        ({"max_length": 4}, "max_length=4"),
    ],
)
def test_settings_that_cannot_train(changes, message):
    with pytest.raises(ValueError, match=message):
        resolve(Training(**changes))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(), "starts from a pretrained model: --from runs/mlm"),
        (Config(Model(freeze=True, model="gmlp")), "name one with --from"),
        (Config(Model("a", preset="gmlp_nano_en")), "without --preset"),
        (Config(Model("a", num_layers=2)), "without --num-layers"),
        (Config(Model("a", vocabulary_size=9)), "without --vocabulary-size"),
        (
            Config(Model(model="gmlp", tokenizer="a", vocabulary_size=9)),
            "give --tokenizer without",
        ),
        (Config(Model("a"), predict_pair=("b",)), "without --predict"),
        (Config(Model("a"), Data(sample=0)), "sample=0"),
        (Config(Model("a"), Data(stride=-1)), "stride=-1"),
        (Config(Model("a"), seed=-1), "seed=-1"),
        (
            Config(Model("a"), training=Training(seeds=2), seed=2**32 - 1),
            "the last one of --seeds 2 too",
        ),
        (Config(Model(model="gmlp", vocabulary_size=0)), "vocabulary_size=0"),
        (Config(Model("a"), Data(max_answer_tokens=0)), "max_answer_tokens=0"),
    ],
)
def test_settings_that_contradict_each_other(config, message):
    with pytest.raises(ValueError, match=message):
        check(config)


def test_a_preset_alone_asks_for_random_weights():
    check(Config(Model(preset="amlp_nano_en")))


def test_from_its_record_a_configuration_comes_back(tmp_path):
    config = Config(
        Model(model="gmlp", tokenizer=tmp_path / "tokenizer.json"),
        Data("tsv:a", class_names=("no", "yes"), metrics=("f1",)),
        Training("glue", epochs=2),
        seed=3,
        keep="best",
        out=tmp_path,
    )
    text = json.dumps(dataclasses.asdict(config), default=str)
    assert from_record(Config, {**json.loads(text), "built": {}}) == config
    with pytest.raises(ValueError, match="not of this version"):
        from_record(Config, {"model": {"depth": 2}})
    for group, name, value in (
        *(("training", "epochs", "two"), ("data", "text", 3)),
        *(("model", "freeze", 1), ("data", "metrics", [1])),
    ):
        wrong = json.loads(text)
        wrong[group][name] = value
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            from_record(Config, wrong)
