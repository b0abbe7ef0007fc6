"""What all text tasks share: they take strings where they have a tokenizer."""

import numbers

from mlp_mixers.data.text_encoder import TextEncoder
from mlp_mixers.data.text_encoder import is_pair
from mlp_mixers.data.text_encoder import is_text
from mlp_mixers.data.tokenizer import Tokenizer
from mlp_mixers.models import preset_folder
from mlp_mixers.models.input_checks import are_arrays
from mlp_mixers.models.input_checks import as_array
from mlp_mixers.models.input_checks import check_range
from mlp_mixers.models.input_checks import shortened
from mlp_mixers.models.input_checks import to_numpy
from mlp_mixers.models.preset_lookup import folder_of
from mlp_mixers.models.task import Task


class TextTask(Task):
    """Base of the text tasks.

    `fit`, `evaluate` and `predict` take a list of strings, or a tuple of two
    such lists for pairs, in place of `token_ids` and `padding_mask`.
    """

    # What to say of anything else.
    reads = (
        "Give a list of strings, `[text, ...]`; pairs as a tuple of two such "
        "lists, `(first_texts, second_texts)`; or a dictionary of the arrays "
        "`token_ids` and `padding_mask`."
    )

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
        first, second = x if is_pair(x) else (x, None)
        return encoder(first, second, length)

    def as_inputs(self, x):
        """The arrays for texts; arrays after a look at their token ids.

        Raises:
            ValueError: If it is neither, or an id is not in the vocabulary.
        """
        x = self.encode(x)
        plain = isinstance(x, (list, tuple, bytes, numbers.Real, type(None)))
        if plain and not are_arrays(x):
            raise ValueError(f"{self.reads} Received: {shortened(x)}")
        if isinstance(x, dict):
            x = {name: as_array(values, name) for name, values in x.items()}
            self.check_arrays(x)
        return x

    def check_arrays(self, x):
        """Raises a ValueError for a dictionary of other arrays than inputs."""
        missing = [name for name in self.input if name not in x]
        if missing:
            raise ValueError(
                f"The model reads {', '.join(self.input)}. "
                f"Received: a dictionary of {', '.join(map(repr, x))}"
            )
        ids = to_numpy(x["token_ids"])
        longest = self.backbone.sequence_length
        if ids.ndim != 2 or ids.shape[1] > longest:
            raise ValueError(
                "`token_ids` must be of shape (texts, tokens), and no longer "
                f"than the {longest} tokens that the model reads. "
                f"Received: shape {ids.shape}"
            )
        if ids.dtype.kind not in "iuf":
            raise ValueError(
                "`token_ids` must be integers. "
                f"Received: an array of {ids.dtype}"
            )
        vocabulary = self.backbone.vocabulary_size
        check_range(ids, vocabulary, "`token_ids`", "id")

    def get_config(self):
        config = super().get_config()
        config["tokenizer"] = self.tokenizer and self.tokenizer.get_config()
        return config

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """As `Task.from_preset`; a folder's tokenizer comes along."""
        # Read from the folder, whichever task was saved there.
        if "tokenizer" not in kwargs:
            folder = folder_of(preset)
            tokenizer = folder and preset_folder.read_tokenizer(folder)
            kwargs = {**kwargs, "tokenizer": tokenizer}
        return super().from_preset(preset, load_weights, **kwargs)
