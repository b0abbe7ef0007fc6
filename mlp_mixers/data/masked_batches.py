"""Batches for masked language modelling whose chance follows from the seed."""

import numpy as np

from mlp_mixers.arguments import boolean
from mlp_mixers.arguments import natural_number
from mlp_mixers.arguments import positive_integer
from mlp_mixers.data.epochs import EpochBatches
from mlp_mixers.data.epochs import EpochOrder
from mlp_mixers.data.epochs import number_of_batches
from mlp_mixers.data.masking import check_ids
from mlp_mixers.data.masking import check_places
from mlp_mixers.data.masking import mask_tokens
from mlp_mixers.data.masking import masked_per_row
from mlp_mixers.data.masking import numbers_per_row

# Of a seed, three streams of chance that have nothing in common.
ORDER, MASKS, FIXED_MASKS = 1, 2, 3


class MaskedLMBatches(EpochBatches):
    """Packed text in batches, masked afresh each epoch.

    A batch is `(inputs, labels, mask_weights)`: inputs are the dictionary of
    `token_ids`, int32 `(b, n)`; `padding_mask`, boolean `(b, n)`, false where
    there is padding; and `mask_positions`, int32 `(b, P)`. `labels` are int32
    `(b, P)`, `mask_weights` float32 `(b, P)`; see `mask_tokens`.

    The order of an epoch is a function of (seed, epoch), and what is masked in
    a row of (seed, epoch, row), whatever the batch size and the number of
    workers. So a training that was resumed goes on as if it had never
    stopped. As with `ImageBatches`, pass `shuffle=False` to `fit`, and
    `FollowEpochs(batches)` as a callback.

    Args:
        packed: A `PackedText`, or only its `token_ids`.
        tokenizer: The `Tokenizer` that it was packed with.
        batch_size: Rows in a batch; the last one may be smaller.
        seed: Integer, not negative.
        rate: Share of the tokens to mask.
        max_masked: P; `masked_per_row(n, rate)` if `None`.
        whole_words: Whether to mask whole words.
        mask_fraction: Share of these tokens that become `<mask>`.
        random_fraction: Share of them that become any other token.
        shuffle: Whether to shuffle anew each epoch. If `None`, unless `fixed`.
        fixed: Whether masks are drawn once and for all, and rows stay in
            their order: for held-out text, so that its perplexity is the same
            question each time.
        first_epoch: What `epoch` is at first.
        drop_remainder: Whether to leave out a last, smaller batch.
        workers: With two or more, batches are made ahead, by so many threads;
            with one, when they are asked for.
        max_queue_size: How many batches are made ahead.

    Raises:
        ValueError: If there are no rows, `whole_words` is asked for without a
            `PackedText`, or an argument is out of range.
    """

    def __init__(
        self,
        packed,
        tokenizer,
        batch_size=32,
        seed=0,
        *,
        rate=0.15,
        max_masked=None,
        whole_words=False,
        mask_fraction=0.8,
        random_fraction=0.1,
        shuffle=None,
        fixed=False,
        first_epoch=0,
        drop_remainder=False,
        workers=1,
        max_queue_size=10,
    ):
        make = MaskedBatchMaker(
            packed,
            tokenizer,
            batch_size,
            seed,
            rate,
            max_masked,
            whole_words,
            mask_fraction,
            random_fraction,
            shuffle,
            fixed,
            drop_remainder,
        )
        super().__init__(
            make, first_epoch, workers, max_queue_size=max_queue_size
        )

    @property
    def num_rows(self):
        """How many rows there are, those of a left out batch included."""
        return len(self._make.token_ids)

    @property
    def tokenizer(self):
        """The `Tokenizer` whose tokens these are."""
        return self._make.tokenizer

    @property
    def max_masked(self):
        """P, the number of places for masked tokens in a row."""
        return self._make.max_masked


class MaskedBatchMaker:
    """The batch as a function of (epoch, index); see `MaskedLMBatches`."""

    def __init__(
        self,
        packed,
        tokenizer,
        batch_size,
        seed,
        rate,
        max_masked,
        whole_words,
        mask_fraction,
        random_fraction,
        shuffle,
        fixed,
        drop_remainder,
    ):
        self.token_ids = check_ids(
            getattr(packed, "token_ids", packed), tokenizer.vocabulary_size
        )
        self.word_starts = getattr(packed, "word_starts", None)
        self.tokenizer = tokenizer
        self.batch_size = positive_integer(batch_size, "batch_size")
        self.seed = natural_number(seed, "seed")
        self.fixed = boolean(fixed, "fixed")
        self.shuffle = not fixed if shuffle is None else bool(shuffle)
        self.drop_remainder = boolean(drop_remainder, "drop_remainder")
        if 0 in self.token_ids.shape:
            raise ValueError(
                "There must be at least one row of token ids. "
                f"Received: token ids of shape {self.token_ids.shape}"
            )
        length = self.token_ids.shape[1]
        if max_masked is None:
            max_masked = masked_per_row(length, rate)
        self.max_masked = check_places(max_masked, length)
        self.how = {
            "rate": rate,
            "max_masked": self.max_masked,
            "whole_words": boolean(whole_words, "whole_words"),
            "mask_fraction": mask_fraction,
            "random_fraction": random_fraction,
        }
        self._check_together()
        # Checks the rest of the arguments.
        starts = None if self.word_starts is None else self.word_starts[:1]
        self._mask(self.token_ids[:1], starts, np.random.default_rng(0))
        order_seed = self.seed if self.shuffle else None
        self._order = EpochOrder(len(self.token_ids), order_seed, ORDER)

    def __len__(self):
        rows = len(self.token_ids)
        return number_of_batches(rows, self.batch_size, self.drop_remainder)

    def __call__(self, epoch, index):
        start = index * self.batch_size
        chosen = self._order(epoch)[start : start + self.batch_size]
        token_ids = self.token_ids[chosen]
        starts = None
        if self.how["whole_words"]:
            starts = self.word_starts[chosen]
        masked = self._mask(token_ids, starts, self._rng(epoch, start))
        inputs = {
            "token_ids": masked["token_ids"],
            "padding_mask": token_ids != self.tokenizer.pad_id,
            "mask_positions": masked["mask_positions"],
        }
        return inputs, masked["labels"], masked["mask_weights"]

    def _mask(self, token_ids, word_starts, rng):
        return mask_tokens(
            token_ids,
            rng,
            self.tokenizer.vocabulary_size,
            self.tokenizer.mask_id,
            self.tokenizer.special_ids,
            word_starts=word_starts,
            **self.how,
        )

    def _rng(self, epoch, start):
        """The epoch's generator, as if `start` rows had been masked by it."""
        stream = [epoch, MASKS] if not self.fixed else [0, FIXED_MASKS]
        bits = np.random.PCG64([self.seed, *stream])
        length = self.token_ids.shape[1]
        bits.advance(start * numbers_per_row(length, self.max_masked))
        return np.random.Generator(bits)

    def _check_together(self):
        """Raises a ValueError for arguments that do not go together."""
        if self.fixed and self.shuffle:
            raise ValueError(
                "With `fixed`, rows stay in their order, and so do their "
                "masks: leave `shuffle` alone. Received: shuffle=True"
            )
        if self.how["whole_words"] and self.word_starts is None:
            raise ValueError(
                "`whole_words` needs to know where words begin: give the "
                "`PackedText` of `pack_documents`. Received: token ids"
            )
        if len(self) == 0:
            raise ValueError(
                "Without the remainder there is no batch: lower `batch_size` "
                "or set `drop_remainder=False`. Received: "
                f"batch_size={self.batch_size}, {len(self.token_ids)} rows"
            )
