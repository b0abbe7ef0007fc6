"""Every tutorial runs, as a script and as a notebook, and leaves pictures."""

import os
import pathlib
import re
import subprocess
import sys

import jupytext
import keras
import nbclient
import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
TUTORIALS = REPOSITORY / "tutorials"
PICTURES = {
    "01_from_attention_to_gating": [
        "01_three_starts.png",
        "01_who_reaches_whom.png",
    ],
    "02_gmlp_on_images": [
        "02_patches.png",
        "02_learning_curves.png",
        "02_errors.png",
        "02_spatial_filters.png",
    ],
    "03_one_model_three_backends": [
        "03_other_sizes.png",
        "03_one_row_of_w.png",
    ],
    "04_reading_with_mlps": [
        "04_masking.png",
        "04_perplexity.png",
        "04_toeplitz.png",
        "04_attention.png",
    ],
    "05_experts": [
        "05_balance_loss.png",
        "05_routers.png",
        "05_two_ways_to_cut.png",
        "05_who_sees_the_future.png",
        "05_floor.png",
        "05_perplexity.png",
        "05_expert_load.png",
    ],
}
# Far more than they take, for a machine that has other work.
TIMEOUT = 900

pytestmark = pytest.mark.slow


@pytest.fixture
def environment():
    path = [str(REPOSITORY), os.environ.get("PYTHONPATH")]
    return {
        **os.environ,
        "KERAS_BACKEND": keras.backend.backend(),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        # PyTorch's idle threads would spin and slow each other down.
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def test_no_tutorial_is_forgotten():
    assert {path.stem for path in TUTORIALS.glob("*.py")} == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_tutorial_is_a_script(name, environment, tmp_path):
    run(TUTORIALS / f"{name}.py", environment, tmp_path)
    check_pictures(name, tmp_path)


def test_solutions_of_the_second_tutorial_train(environment, tmp_path):
    solutions = TUTORIALS / "solutions" / "02_gmlp_on_images.py"
    output = run(solutions, environment, tmp_path)
    assert "patch size 1" in output


def test_solutions_of_the_third_tutorial_train(environment, tmp_path):
    solutions = TUTORIALS / "solutions" / "03_one_model_three_backends.py"
    output = run(solutions, environment, tmp_path)
    after = {
        line.split()[3]: float(line.split()[-1])
        for line in output.splitlines()
        if line.startswith("moved to 8x8")
    }
    assert after["resized"] > after["fresh"] + 0.05


def test_solutions_of_the_fourth_tutorial_train(environment, tmp_path):
    solutions = TUTORIALS / "solutions" / "04_reading_with_mlps.py"
    output = run(solutions, environment, tmp_path)
    assert "asked for whole words: 0% have a hint" in output
    perplexities = [
        float(line.split()[-1])
        for line in output.splitlines()
        if line.startswith("trained on")
    ]
    assert len(perplexities) == 4
    assert max(perplexities) < 300


def test_solutions_of_the_fifth_tutorial_train(environment, tmp_path):
    solutions = TUTORIALS / "solutions" / "05_experts.py"
    output = run(solutions, environment, tmp_path)
    assert "nudge caught in 0% of the rows" in output
    deterministic, partial = (
        [float(number) for number in re.findall(r"\d+\.\d", line)]
        for line in output.splitlines()
        if line.startswith("trained")
    )
    # Partial routing counts the window and nothing else.
    assert deterministic[0] != deterministic[1]
    assert partial[0] == partial[1]
    assert max(*deterministic, *partial) < 200


@pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="once, not for each backend"
)
@pytest.mark.parametrize("name", PICTURES)
def test_tutorial_is_a_notebook(name, environment, monkeypatch, tmp_path):
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    notebook = jupytext.read(TUTORIALS / f"{name}.py")
    nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()

    check_pictures(name, tmp_path)
    shown = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(shown) == len(PICTURES[name])


def run(script, environment, folder):
    """Runs a script in `folder` and returns what it printed."""
    finished = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def check_pictures(name, folder):
    written = folder / "runs" / "tutorials"
    assert {path.name for path in written.glob("*.png")} == set(PICTURES[name])
    for picture in written.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG"), picture
