"""Every public layer and model meets the contract of `tests.checks`."""

import pytest

from mlp_mixers import layers
from mlp_mixers import models
from tests.cases import ABSTRACT
from tests.cases import LAYER_CASES
from tests.cases import MODEL_CASES
from tests.cases import ROUTERS
from tests.checks import check_layer
from tests.checks import check_model


@pytest.mark.parametrize("case", LAYER_CASES, ids=lambda case: case.name)
def test_layer(case, tmp_path, rng):
    check_layer(case, tmp_path, rng)


@pytest.mark.parametrize("case", MODEL_CASES, ids=lambda case: case.name)
def test_model(case, tmp_path, rng):
    check_model(case, tmp_path, rng)


def test_every_public_layer_has_a_case():
    covered = {case.layer.__name__ for case in LAYER_CASES}
    public = set(layers.__all__) - ROUTERS
    assert public == covered, "add a LayerCase to tests/cases.py"


def test_every_public_model_has_a_case():
    covered = {type(case.make()).__name__ for case in MODEL_CASES}
    public = set(models.__all__) - ABSTRACT
    assert public == covered, "add a ModelCase to tests/cases.py"
