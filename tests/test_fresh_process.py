"""Files open in a process that has imported nothing but the package."""

import os
import subprocess
import sys

import keras
import numpy as np

from tests.cases import LAYER_CASES
from tests.cases import MODEL_CASES
from tests.cases import as_model
from tests.cases import random_inputs
from tests.cases import randomize
from tests.checks import call

RELOAD = """
import pathlib, sys
import mlp_mixers
import keras
import numpy as np

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    saved = np.load(path.with_suffix(".npz"))
    names = [name for name in saved.files if name != "output"]
    inputs = [saved[name] for name in names]
    if "token_ids" in names:
        inputs = [dict(zip(names, inputs))]
    model = keras.saving.load_model(path)
    outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    outputs = keras.ops.convert_to_numpy(outputs)
    np.testing.assert_allclose(outputs, saved["output"], rtol=1e-5, atol=1e-5)
    print("same", path.stem)
"""


def test_saved_models_open_in_a_fresh_process(tmp_path, rng):
    cases = [*LAYER_CASES, *MODEL_CASES]
    for case in cases:
        model = randomize(as_model(case), rng)
        inputs = random_inputs(case, 2, rng)
        model.save(tmp_path / f"{case.name}.keras")
        output = call(model, inputs)
        if not isinstance(inputs, dict):
            arrays = inputs if isinstance(inputs, list) else [inputs]
            inputs = {f"input_{i}": array for i, array in enumerate(arrays)}
        np.savez(tmp_path / f"{case.name}.npz", output=output, **inputs)
    run = subprocess.run(
        [sys.executable, "-c", RELOAD, str(tmp_path)],
        env={**os.environ, "KERAS_BACKEND": keras.backend.backend()},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("same") == len(cases)
