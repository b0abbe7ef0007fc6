"""What a language model scores that knows nothing but frequencies."""

import numpy as np


def token_counts(token_ids, vocabulary_size):
    """How often every token stands in an array: int64 `(V,)`."""
    return np.bincount(token_ids.reshape(-1), minlength=vocabulary_size)


def unigram_perplexity(batches, counts, never, first=0):
    """The perplexity of a model that knows nothing but frequencies.

    p(t) = (c_t + 1) / Σ_u (c_u + 1) over the tokens that may be asked for, and
    e to the mean of -log p over the tokens that are.

    Args:
        batches: `MaskedLMBatches` that are fixed, or `CausalLMBatches`.
        counts: `c`, how often every token stands in the training text, `(V,)`.
        never: Tokens that are never asked for.
        first: Place of the first label in a row that counts.
    """
    counts = counts.astype("float64") + 1
    counts[list(never)] = 0
    with np.errstate(divide="ignore"):
        log_p = np.log(counts / counts.sum())
    total = weight = 0.0
    for i in range(len(batches)):
        _, labels, weights = batches[i]
        asked = labels[:, first:][weights[:, first:] > 0]
        total -= log_p[asked].sum()
        weight += len(asked)
    return float(np.exp(total / weight))
