import keras
import numpy as np

from mlp_mixers.training import ProgressBar


def test_lines_where_the_output_is_no_terminal(capsys):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(), loss="mse")
    model.fit(
        np.zeros((4, 2)),
        np.zeros((4, 1)),
        epochs=20,
        callbacks=[ProgressBar()],
        verbose=0,
    )
    lines = capsys.readouterr().out.split("\n")
    lines = [line for line in lines if line.startswith("epoch")]
    assert lines[0].startswith("epoch 1/20  loss ")
    assert lines[-1].startswith("epoch 20/20  loss ")
    assert len(lines) == 11
