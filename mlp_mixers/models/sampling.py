"""How the next token is chosen from logits.

In NumPy: the choice is the same on every backend, and a seed makes it again.
"""

import dataclasses
import math
import numbers

import numpy as np

from mlp_mixers.arguments import natural_number
from mlp_mixers.arguments import positive_integer

STRATEGIES = ("greedy", "sample")


@dataclasses.dataclass
class Sampling:
    """Which token of those that may follow.

    With `p = softmax(logits / temperature)`, of the `top_k` most probable
    tokens, those that are needed to make up a probability of `top_p`, one is
    drawn. `strategy="greedy"` takes the most probable one.

    Attributes:
        strategy: `"greedy"` or `"sample"`.
        temperature: Above 0; the smaller, the closer to greedy.
        top_k: How many tokens may be drawn at most; all if `None`.
        top_p: How much probability they have to have; all if `None`.
        seed: Of the draws; from the system if `None`.

    Raises:
        ValueError: If a value is out of range.

    Reference:
        top-k: Fan et al. (2018), [Hierarchical Neural Story Generation](
        https://arxiv.org/abs/1805.04833), Sec. 5.4; top-p: Holtzman et al.
        (2020), [The Curious Case of Neural Text Degeneration](
        https://arxiv.org/abs/1904.09751), Sec. 3.1.
    """

    strategy: str = "greedy"
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self):
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"A sampler by name is one of {STRATEGIES}; `top_k` and "
                "`top_p` say what may be drawn. "
                f"Received: sampler={self.strategy!r}"
            )
        known = _is_number(self.temperature)
        if not known or not 0 < self.temperature < math.inf:
            raise ValueError(
                "`temperature` must be a number above 0 and finite; for the "
                "most probable token, sampler='greedy'. "
                f"Received: temperature={self.temperature!r}"
            )
        positive_integer(self.top_k, "top_k", optional=True)
        some = self.top_p is not None
        if some and not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise ValueError(
                "`top_p` must be a number in (0, 1]. "
                f"Received: top_p={self.top_p!r}"
            )
        if self.seed is not None:
            natural_number(self.seed, "seed")
        self._rng = np.random.default_rng(self.seed)

    def __call__(self, logits):
        """Chooses for each row.

        Args:
            logits: Array of shape `(batch, V)`; -inf for what must not be.

        Returns:
            int32 `(batch,)`.
        """
        logits = np.asarray(logits, "float64")
        if self.strategy == "greedy":
            return logits.argmax(-1).astype("int32")
        p = _softmax(logits, self.temperature)
        p = np.stack([self._allowed(row) for row in p])
        draws = self._rng.random(len(p))[:, None]
        # The first token whose cumulated probability is above the draw.
        cumulated = np.cumsum(p, -1)
        chosen = (cumulated <= draws * cumulated[:, -1:]).sum(-1)
        return chosen.astype("int32")

    def _allowed(self, p):
        """Probabilities, 0 for what must not be drawn."""
        order = np.argsort(-p, kind="stable")
        if self.top_k is not None:
            order = order[: self.top_k]
        if self.top_p is not None:
            # All before the one with which the sum is reached, and that one.
            before = np.cumsum(p[order]) - p[order]
            order = order[before < self.top_p * p[order].sum()]
        allowed = np.zeros_like(p)
        allowed[order] = p[order]
        return allowed


def _is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _softmax(logits, temperature):
    # The largest is taken away first: nothing else survives a tiny divisor.
    with np.errstate(over="ignore"):
        exp = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    return exp / exp.sum(-1, keepdims=True)
