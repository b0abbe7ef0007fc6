"""Which token is next, counted over many draws."""

import numpy as np
import pytest

from mlp_mixers.models.sampling import Sampling

P = np.array([0.05, 0.4, 0.25, 0.2, 0.1])


def frequencies(draws=20_000, p=P, **arguments):
    sampling = Sampling("sample", seed=0, **arguments)
    logits = np.log(np.broadcast_to(p, (draws, len(p))))
    return np.bincount(sampling(logits), minlength=len(p)) / draws


def test_greedy_takes_the_most_probable():
    logits = np.array([[0.0, 2.0, 1.0], [5.0, -np.inf, 4.0]])
    chosen = Sampling()(logits)
    np.testing.assert_array_equal(chosen, [1, 0])
    assert chosen.dtype == "int32"


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_draws_follow_the_softmax(temperature):
    expected = P ** (1 / temperature)
    np.testing.assert_allclose(
        frequencies(temperature=temperature),
        expected / expected.sum(),
        atol=0.012,
    )


@pytest.mark.parametrize("top_k", [1, 2, 4, 5, 99])
def test_top_k(top_k):
    kept = np.argsort(-P)[:top_k]
    expected = np.zeros(5)
    expected[kept] = P[kept] / P[kept].sum()
    np.testing.assert_allclose(frequencies(top_k=top_k), expected, atol=0.012)


@pytest.mark.parametrize(
    "top_p, kept",
    [
        (0.01, [1]),
        (0.39, [1]),
        (0.41, [1, 2]),
        (0.66, [1, 2, 3]),
        (0.9, [1, 2, 3, 4]),
        (1.0, [0, 1, 2, 3, 4]),
    ],
)
def test_top_p(top_p, kept):
    expected = np.zeros(5)
    expected[kept] = P[kept] / P[kept].sum()
    np.testing.assert_allclose(frequencies(top_p=top_p), expected, atol=0.012)


def test_what_is_forbidden_never_comes():
    found = frequencies(p=np.array([0.0, 0.5, 0.5, 0.0, 0.0]), top_p=0.99)
    assert found[[0, 3, 4]].sum() == 0


def test_a_seed_repeats_the_draws():
    logits = np.random.default_rng(0).normal(size=(50, 30))
    one, two = Sampling("sample", seed=3), Sampling("sample", seed=3)
    np.testing.assert_array_equal(one(logits), two(logits))
    assert (one(logits) != Sampling("sample", seed=4)(logits)).any()


@pytest.mark.parametrize(
    "arguments",
    [
        {"strategy": "beam"},
        {"temperature": 0},
        {"temperature": -1.0},
        {"top_k": 0},
        {"top_p": 0.0},
        {"top_p": 1.5},
    ],
)
def test_arguments(arguments):
    name = "sampler" if "strategy" in arguments else next(iter(arguments))
    with pytest.raises(ValueError, match=name):
        Sampling(**arguments)


@pytest.mark.parametrize("temperature", [1e-310, 1e-3, 1e300])
def test_extreme_temperatures(temperature):
    """The most probable one, or any of those that may come."""
    logits = np.array([[-np.inf, 3.0, 2.0, -np.inf]] * 200)
    chosen = Sampling("sample", temperature=temperature, seed=0)(logits)
    expected = {1} if temperature < 1 else {1, 2}
    assert set(chosen.tolist()) == expected


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"temperature": np.inf}, "finite"),
        ({"temperature": np.nan}, "finite"),
        ({"temperature": "1"}, "`temperature` must be a number.*='1'"),
        ({"temperature": None}, "`temperature` must be a number.*=None"),
        ({"temperature": True}, "`temperature` must be a number"),
        ({"top_p": "0.9"}, r"`top_p` must be a number in \(0, 1\].*'0.9'"),
        ({"top_p": True}, "`top_p` must be a number"),
        ({"top_k": "3"}, "`top_k` must be a positive integer.*'3'"),
        ({"top_k": 2.5}, "`top_k` must be a positive integer"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_bad_values(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sampling("sample", **arguments)
