"""What tests of the language recipes start from."""

import contextlib
import io

import pytest

from recipes import finetune
from recipes.finetune_settings import Training
from tests.recipes.tasks import films_in
from tests.recipes.tasks import pretrained_in
from tests.recipes.tasks import settings


@pytest.fixture
def films(tmp_path):
    return films_in(tmp_path)


@pytest.fixture
def pretrained(tmp_path):
    return pretrained_in(tmp_path)


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    """A run with two seeds: its folder, its task, its results, its output."""
    folder = tmp_path_factory.mktemp("classifier")
    task = films_in(folder)
    config = settings(task, pretrained_in(folder), folder / "run")
    config.training = Training(
        epochs=8, seeds=2, batch_size=4, learning_rate=0.02
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        results = finetune.main(config)
    return folder, task, results, printed.getvalue()
