"""Hash layers: the token's own number says which expert it goes to."""

import keras
import numpy as np
from keras import ops

from mlp_mixers.arguments import natural_number
from mlp_mixers.arguments import positive_integer
from mlp_mixers.layers.router import Router
from mlp_mixers.layers.router import Routing


@keras.saving.register_keras_serializable(package="mlp_mixers")
class HashRouter(Router):
    """Sends a token where a fixed table says.

        e = table[token id],   y = E_e(x)

    Nothing is learned, no loss is needed, and there is no gate. The table is
    drawn once: every expert gets equally many tokens of the vocabulary. Some
    tokens are frequent, so experts are not equally busy; `balance` makes a
    table by counts. It is saved with the weights.

    Args:
        num_experts: Number of experts, E.
        group: See `Router`.
        vocabulary_size: Number of tokens in the vocabulary, V.
        seed: Integer that the table follows from.
        **kwargs: See `Router`.

    Raises:
        ValueError: If `token_ids` are not given, or `vocabulary_size` is not.
            Ids beyond the vocabulary make the gate, and so the output, NaN:
            a compiled model cannot raise.

    Reference:
        [Hash Layers](https://arxiv.org/abs/2106.04426), Sec. 3; balanced
        tables in Sec. 3.1.
    """

    def __init__(
        self,
        num_experts=None,
        group="sequence",
        vocabulary_size=None,
        seed=0,
        **kwargs,
    ):
        super().__init__(num_experts, group, **kwargs)
        self.vocabulary_size = positive_integer(
            vocabulary_size, "vocabulary_size", optional=True
        )
        self.seed = natural_number(seed, "seed")

    def build(self, x_shape):
        if self.vocabulary_size is None:
            raise ValueError(
                "A HashRouter has an expert for each token: pass "
                "`vocabulary_size`. Received: vocabulary_size=None"
            )
        self.table = self.add_weight(
            name="table",
            shape=(self.vocabulary_size,),
            dtype="int32",
            initializer=self._first_table,
            trainable=False,
        )

    def _first_table(self, shape, dtype=None):
        experts = np.arange(shape[0]) % self.num_experts
        table = np.random.default_rng(self.seed).permutation(experts)
        return ops.convert_to_tensor(table.astype("int32"))

    def balance(self, counts):
        """Makes the table by which experts are equally busy.

        The most frequent tokens first, each goes to the expert that has least
        to do.

        Args:
            counts: How often each token occurs, `(V,)`.

        Raises:
            ValueError: If there is not one count for each token.
        """
        counts = np.asarray(counts)
        if counts.shape != (self.vocabulary_size,):
            raise ValueError(
                "`counts` must have one number for each token, of shape "
                f"({self.vocabulary_size},). "
                f"Received: counts.shape={counts.shape}"
            )
        if not (np.isfinite(counts) & (counts >= 0)).all():
            raise ValueError(
                "`counts` must be numbers that are finite and not negative. "
                f"Received: counts={counts}"
            )
        busy = np.zeros(self.num_experts)
        table = np.empty(len(counts), "int32")
        for token in np.argsort(-counts, kind="stable"):
            table[token] = np.argmin(busy)
            # Tokens that do not occur are spread too.
            busy[table[token]] += counts[token] + 1e-6
        self.table.assign(table)

    def call(self, x, token_ids=None, mask=None, training=False):
        if token_ids is None:
            raise ValueError(
                "A HashRouter routes by the numbers of the tokens: call its "
                "layer with `token_ids=`. Received: token_ids=None"
            )
        if len(token_ids.shape) != 2 or _differ(token_ids.shape[1], x.shape[1]):
            raise ValueError(
                "There must be one number for each token, of shape "
                "`(batch, n)`. Received: "
                f"token_ids.shape={tuple(token_ids.shape)}, "
                f"x.shape={tuple(x.shape)}"
            )
        token_ids = ops.cast(token_ids, "int32")
        known = (token_ids >= 0) & (token_ids < self.vocabulary_size)
        # Backends disagree about what a number out of range means.
        ids = ops.take(self.table, ops.where(known, token_ids, 0))
        gates = ops.where(known, 1.0, float("nan"))
        return Routing(
            ops.cast(ids, "int32")[..., None],
            ops.cast(gates, "float32")[..., None],
        )

    def get_config(self):
        config = super().get_config()
        config.update(
            {"vocabulary_size": self.vocabulary_size, "seed": self.seed}
        )
        return config


def _differ(one, other):
    """Whether two lengths that are known are not the same."""
    known = isinstance(one, int) and isinstance(other, int)
    return known and one != other
