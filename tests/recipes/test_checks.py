"""Settings and command lines, before any model is there."""

import dataclasses
import errno
import pathlib

import pytest

from recipes import causal_lm_settings
from recipes import checks
from recipes import command
from recipes import runs
from recipes import vision_settings
from recipes.causal_lm_settings import Config as CausalConfig
from recipes.finetune_settings import Config
from recipes.finetune_settings import Data
from recipes.finetune_settings import Training
from recipes.mlm_settings import Config as MLMConfig
from recipes.recipe import check_identity


def test_what_is_asked_for_is_told_from_what_is_not():
    config = Config(data=Data(regression=False), training=Training(epochs=0))
    assert checks.given(config) == {"regression": False, "epochs": 0}
    assert checks.given(Config()) == {}
    assert checks.flat(config)["from_"] is None


def test_others_are_refused_by_name():
    config = Config(
        evaluate="run",
        seed=3,
        out=pathlib.Path("there"),
        data=Data("tsv:a", metrics=("f1", "accuracy")),
    )
    checks.refuse_others(config, "evaluate", ("seed", "out", "task", "metrics"))
    with pytest.raises(ValueError) as error:
        checks.refuse_others(config, "evaluate", ("task",))
    message = str(error.value)
    assert "Beside --evaluate, which trains nothing, --metrics, --seed" in (
        message
    )
    assert message.endswith("metrics=f1 accuracy, seed=3, out=there")


@pytest.mark.parametrize(
    "config_class",
    [Config, MLMConfig, causal_lm_settings.Config, vision_settings.Config],
)
def test_every_name_is_there_once(config_class):
    """So that settings can be told apart without their groups."""

    def names(kind):
        for field in dataclasses.fields(kind):
            if dataclasses.is_dataclass(field.default_factory):
                yield from names(field.default_factory)
            else:
                yield field.name

    found = list(names(config_class))
    assert len(found) == len(set(found)) == len(checks.flat(config_class()))


def test_seeds():
    checks.check_seeds(2**32 - 1)
    checks.check_seeds(2**32 - 2, 2)
    for seed, count in ((2**32 - 1, 2), (-1, 1), (2**32, 1)):
        with pytest.raises(ValueError, match=f"seed={seed}"):
            checks.check_seeds(seed, count)


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (["--toeplitz"], ["--toeplitz", "True"]),
        (
            ["--no-toeplitz", "--seed", "1"],
            ["--toeplitz", "False", "--seed", "1"],
        ),
        (["--whole-words", "--a"], ["--whole-words", "True", "--a"]),
        (["--whole_words"], ["--whole_words", "True"]),
        (["--toeplitz", "False"], ["--toeplitz", "False"]),
        (["--no-data", "x"], ["--no-data", "x"]),
        (["--fill", "no-toeplitz"], ["--fill", "no-toeplitz"]),
    ],
)
def test_flags_that_may_be_left_alone(typed, read):
    assert command.spelled_out(typed, MLMConfig) == read


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (["--models", "gmlp,smlp", "a"], ["--models", "gmlp", "smlp", "a"]),
        (["--models", "gmlp,", "hash"], ["--models", "gmlp", "hash"]),
        (["--models=gmlp,smlp"], ["--models", "gmlp", "smlp"]),
        (["--data", "text:a,b"], ["--data", "text:a,b"]),
        (
            ["--models", "gmlp", "--generate", "a, b"],
            ["--models", "gmlp", "--generate", "a, b"],
        ),
    ],
)
def test_commas_between_words(typed, read):
    assert command.apart(typed, CausalConfig) == read


def test_flags_reach_the_settings(monkeypatch):
    found = []
    arguments = ["mlm", "--no-toeplitz", "--whole-words", "--data", "topics"]
    monkeypatch.setattr("sys.argv", arguments)
    command.run(found.append, MLMConfig, "", "mlm")
    assert checks.given(found[0]) == {
        "toeplitz": False,
        "whole_words": True,
        "data": "topics",
    }


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError(
            "Can't decrement id ref count (file write failed: errno = 28, "
            "error message = 'No space left on device')"
        ),
    ],
)
def test_a_full_disk_says_how_to_go_on(error):
    def write(raised):
        with command.room_for(pathlib.Path("runs/a"), "mlm"):
            raise raised

    with pytest.raises(OSError, match="full") as found:
        write(error)
    message = str(found.value)
    assert "not all of runs/a" in message
    assert message.endswith("python -m recipes.mlm --resume runs/a")
    with pytest.raises(OSError, match="full") as again:
        write(found.value)
    assert again.value is found.value
    for other in (RuntimeError("another"), OSError(errno.ENOENT, "another")):
        with pytest.raises(type(other), match="another"):
            write(other)


def test_nothing_is_left_of_a_record_that_could_not_be_written(
    tmp_path, monkeypatch
):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        runs.record(tmp_path, "results.json", {})
    assert not list(tmp_path.iterdir())


def test_what_a_run_began_with():
    record = {"identity": {"text": "a", "tokenizer": "b"}}
    check_identity("run", record, {"text": "a", "tokenizer": "b"})
    check_identity("run", {}, {"text": "c"})  # of an older version
    with pytest.raises(ValueError, match="began with another text. Go on"):
        check_identity("run", record, {"text": "c", "tokenizer": "b"})


@pytest.mark.parametrize(
    ("record", "recipe"),
    [
        ({"text": {"data": "topics"}, "training": {}}, "mlm"),
        ({"text": {}, "training": {}, "generate": None}, "causal_lm"),
        ({"data": {"task": None}, "training": {}}, "finetune"),
        ({"data": {"data": None}, "training": {}}, "vision"),
        ({"class_name": "GMLPTextBackbone"}, None),
    ],
)
def test_whose_run_it_is(record, recipe):
    assert runs.recipe_of(record) == recipe


def test_a_path_is_shown_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    path = "".join(chr(0x4E00 + i) for i in range(90))  # each is there once
    runs.show("Results", {"model": path})
    printed = capsys.readouterr().out
    assert "".join(c for c in printed if c in path) == path
    assert runs.counted(1, "epoch") == "1 epoch"
    assert runs.counted(2000, "epoch") == "2,000 epochs"
