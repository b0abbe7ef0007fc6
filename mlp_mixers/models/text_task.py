"""What all text tasks share: they take strings where they have a tokenizer."""

import numpy as np

from mlp_mixers.data.text_encoder import TextEncoder
from mlp_mixers.data.text_encoder import is_text
from mlp_mixers.data.tokenizer import Tokenizer
from mlp_mixers.models import preset_folder
from mlp_mixers.models.task import Task


class TextTask(Task):
    """Base of the text tasks.

    `fit`, `evaluate` and `predict` take a list of strings, or a tuple of two
    such lists for pairs, in place of `token_ids` and `padding_mask`.
    """

    def keep_tokenizer(self, tokenizer, backbone):
        """Keeps a `Tokenizer`, its configuration, or `None`.

        Raises:
            ValueError: If it has more tokens than the backbone embeds.
        """
        if isinstance(tokenizer, dict):
            tokenizer = Tokenizer.from_config(tokenizer)
        if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
            raise ValueError(
                "`tokenizer` must be a `mlp_mixers.data.Tokenizer`. "
                f"Received: tokenizer={tokenizer!r}"
            )
        known = backbone.vocabulary_size
        if tokenizer is not None and tokenizer.vocabulary_size > known:
            raise ValueError(
                "The tokenizer has more tokens than the backbone: "
                f"{tokenizer.vocabulary_size} and vocabulary_size={known}. "
                "Take the tokenizer that it was trained with."
            )
        self.tokenizer = tokenizer

    def encode(self, x, length=None):
        """The arrays that strings stand for; anything else as it is.

        Args:
            x: List of strings, a tuple of two lists for pairs, or arrays.
            length: Number of tokens to pad to, see `TextEncoder`.

        Raises:
            ValueError: If it is text and there is no tokenizer.
        """
        if not is_text(x):
            return x
        encoder = TextEncoder(self.tokenizer, self.backbone.sequence_length)
        first, second = _pair(x)
        return encoder(first, second, length)

    def fit(self, x=None, y=None, *args, validation_data=None, **kwargs):
        if isinstance(validation_data, (tuple, list)):
            texts, *labels = validation_data
            validation_data = (self.encode(texts), *map(_as_labels, labels))
        return super().fit(
            self.encode(x),
            _as_labels(y),
            *args,
            validation_data=validation_data,
            **kwargs,
        )

    def evaluate(self, x=None, y=None, *args, **kwargs):
        return super().evaluate(self.encode(x), _as_labels(y), *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        return super().predict(self.encode(x), *args, **kwargs)

    def get_config(self):
        config = super().get_config()
        config["tokenizer"] = self.tokenizer and self.tokenizer.get_config()
        return config

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """As `Task.from_preset`; a folder's tokenizer comes along."""
        # Read from the folder, whichever task was saved there.
        if "tokenizer" not in kwargs:
            tokenizer = preset_folder.read_tokenizer(preset)
            kwargs = {**kwargs, "tokenizer": tokenizer}
        return super().from_preset(preset, load_weights, **kwargs)


def _pair(x):
    """`(first, second)`, the second `None` where there are no pairs."""
    if isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], str):
        return x
    return x, None


def _as_labels(y):
    """Lists of numbers as arrays: Keras takes arrays only."""
    return np.asarray(y) if isinstance(y, (list, tuple)) else y
