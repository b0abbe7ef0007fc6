"""What docs/language.md says can be done in Python runs as it stands."""

import pathlib
import re

import numpy as np
import pytest

import mlp_mixers
from mlp_mixers.models import GMLPMaskedLM
from mlp_mixers.models import GMLPTextBackbone

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "language.md"
BOOKS = [
    "The cat sat on the mat. The dog ate the bone.",
    "The capital of France is on the river. She sees the cat.",
] * 4


def blocks():
    """The code of the section, one block after the other."""
    section = PAGE.read_text().split("\n## In Python\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def run_folder(tmp_path, monkeypatch):
    """The books and the pretrained model that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "all.txt").write_text("\n\n".join(BOOKS))
    tokenizer = mlp_mixers.data.Tokenizer.train(BOOKS, 300)
    backbone = GMLPTextBackbone(300, 48, 1, 8, 16)
    model = GMLPMaskedLM(backbone, tokenizer=tokenizer)
    model.save_to_preset("runs/mlm/preset")


@pytest.mark.usefixtures("run_folder")
def test_the_section_runs(capsys):
    found = blocks()
    assert len(found) == 3
    names = {}
    for number, code in enumerate(found):
        exec(compile(code, f"block {number + 1}", "exec"), names)
    shown = capsys.readouterr().out
    assert "Candidate(token=" in shown
    assert re.search(r"^(good|bad) 0\.\d", shown, re.MULTILINE)
    assert names["logits"].shape == (1, 2)
    # The windows mark the answers that the page names.
    windows = names["windows"]
    marked = [
        windows.text(k, windows.starts[k], windows.ends[k]) for k in range(2)
    ]
    assert marked == ["Ada", "1843"]
    for weight in names["model"].get_weights():
        assert np.isfinite(weight).all()
