"""A subword vocabulary that gives every string back exactly."""

import hashlib
import json
import pathlib

import tokenizers

from mlp_mixers.arguments import positive_integer

# In the order of their ids: 0, 1, 2, 3.
SPECIAL_TOKENS = ("<pad>", "<cls>", "<sep>", "<mask>")
BYTES = 256
SMALLEST_VOCABULARY = len(SPECIAL_TOKENS) + BYTES
# Vocabularies of BERT and gMLP have about 32,000 tokens.
USUAL_VOCABULARY = 32000
# At about 4 characters a token, every token is then seen 100 times on average.
CHARACTERS_PER_ENTRY = 400


def suggested_vocabulary_size(num_characters):
    """How many tokens a text of this length can teach something about.

    One for every 400 characters, a multiple of 8, but no fewer than 512 and
    no more than 32,000, which 12.8 million characters and more get. A rare
    token is seen too seldom for its embedding to be learned.

    Args:
        num_characters: Length of the training text.

    Returns:
        An integer for `Tokenizer.train`.

    Raises:
        ValueError: If `num_characters` is not a positive integer.
    """
    characters = positive_integer(num_characters, "num_characters")
    size = characters // CHARACTERS_PER_ENTRY // 8 * 8
    return min(max(size, 512), USUAL_VOCABULARY)


class Tokenizer:
    """Byte-level BPE: from strings to token ids and back, without loss.

    Text is cut into words (a word takes the space before it along), numbers
    and runs of other characters, each of these into bytes, and pairs of
    neighbours are merged as they were learned, the most frequent pair first.
    As all 256 bytes are tokens there is no unknown token, and case, accents,
    emoji, white space and control characters come back as they were.

    Four special tokens have fixed ids: `<pad>` 0, `<cls>` 1, `<sep>` 2 and
    `<mask>` 3. They are set by whoever builds a sequence and never read from
    text: there, the six characters `<mask>` are six characters.

    Args:
        json_text: What `save` wrote.

    Raises:
        ValueError: If `json_text` does not describe such a tokenizer.

    Reference:
        Sennrich, Haddow, Birch (2016), "Neural Machine Translation of Rare
        Words with Subword Units", section 3.2; on bytes: Radford et al.
        (2019), "Language Models are Unsupervised Multitask Learners",
        section 2.2.
    """

    def __init__(self, json_text):
        try:
            tokenizer = tokenizers.Tokenizer.from_str(json_text)
        # The package raises nothing more special.
        except Exception as error:
            raise ValueError(
                f"This is not the JSON text of a tokenizer: {error}"
            ) from error
        _check_parts(tokenizer)
        # Not kept in the JSON text.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._json = tokenizer.to_str()

    @classmethod
    def train(
        cls,
        texts,
        vocabulary_size=USUAL_VOCABULARY,
        min_frequency=2,
        progress=False,
    ):
        """Learns a vocabulary; the same one from the same texts.

        Args:
            texts: Iterable of strings.
            vocabulary_size: Largest number of tokens, the special ones
                included. There are fewer if the text has not so many pairs to
                merge; see `vocabulary_size` of the result, and
                `suggested_vocabulary_size`.
            min_frequency: How often a pair must occur to be merged.
            progress: Whether to show a bar.

        Returns:
            A `Tokenizer`.

        Raises:
            ValueError: If the texts hold nothing but white space, are not
                strings of characters, or an argument is out of range.
        """
        size = positive_integer(vocabulary_size, "vocabulary_size")
        if size < SMALLEST_VOCABULARY:
            raise ValueError(
                f"A vocabulary has at least {SMALLEST_VOCABULARY} tokens: "
                f"{BYTES} bytes and {len(SPECIAL_TOKENS)} special tokens. "
                f"Received: vocabulary_size={vocabulary_size!r}"
            )
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=positive_integer(min_frequency, "min_frequency"),
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=list(_byte_characters()),
            show_progress=bool(progress),
        )
        tokenizer = _empty_tokenizer()
        counted = _CheckedTexts(texts)
        tokenizer.train_from_iterator(counted, trainer)
        if not counted.any_text:
            raise ValueError(
                "There is no text to learn a vocabulary from: give strings "
                "that hold more than white space. "
                f"Received: {counted.count} texts, all of them blank"
            )
        return cls(tokenizer.to_str())

    @classmethod
    def load(cls, path):
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged, or holds another kind of
                tokenizer or other special tokens.
        """
        path = pathlib.Path(path).expanduser()
        try:
            return cls(path.read_bytes().decode("utf-8"))
        except ValueError as error:
            raise ValueError(
                f"The tokenizer {str(path)!r} cannot be used: it is damaged, "
                "or was not written by `Tokenizer.save`. Copy it again, or "
                f"train one with `Tokenizer.train`. {error}"
            ) from error

    def save(self, path):
        """Writes the `tokenizer.json` of Hugging Face's tokenizers."""
        path = pathlib.Path(path).expanduser()
        path.write_bytes(self._json.encode("utf-8"))

    @property
    def vocabulary_size(self):
        return self._tokenizer.get_vocab_size()

    @property
    def pad_id(self):
        return SPECIAL_TOKENS.index("<pad>")

    @property
    def cls_id(self):
        return SPECIAL_TOKENS.index("<cls>")

    @property
    def sep_id(self):
        return SPECIAL_TOKENS.index("<sep>")

    @property
    def mask_id(self):
        return SPECIAL_TOKENS.index("<mask>")

    @property
    def special_ids(self):
        return list(range(len(SPECIAL_TOKENS)))

    @property
    def digest(self):
        """Twelve characters that differ where tokenizers differ."""
        return hashlib.sha256(self._json.encode("utf-8")).hexdigest()[:12]

    def encode(self, texts):
        """Cuts texts into tokens.

        Args:
            texts: List of strings.

        Returns:
            List of `tokenizers.Encoding`, one for each text. Of its
            attributes, `ids` are the tokens, `offsets` the pairs (begin, end)
            of characters they stand for (tokens that are parts of one
            character share it), and `word_ids` the numbers of the words they
            belong to. No special tokens are added.

        Raises:
            ValueError: If `texts` is one string, or one of them is none, or
                holds half of a surrogate pair, which no encoding can write.
        """
        if isinstance(texts, str):
            raise ValueError(
                "`texts` must be a list of strings: encode([text])[0] is one "
                f"text's encoding. Received: texts={_shorten(texts)}"
            )
        texts = list(texts)
        try:
            # The package would take a tuple for a pair of texts.
            if not all(isinstance(text, str) for text in texts):
                raise TypeError
            return self._tokenizer.encode_batch(texts, add_special_tokens=False)
        # Which is all that the package says about what is no text.
        except TypeError:
            for number, text in enumerate(texts):
                _check_text(text, number)
            raise

    def decode(self, ids, skip_special_tokens=True):
        """The text of token ids.

        Bytes that are no character, as when a sequence ends within one, come
        out as U+FFFD.

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        ids = [self._check_id(i) for i in ids]
        return self._tokenizer.decode(
            ids, skip_special_tokens=skip_special_tokens
        )

    def token(self, id):
        r"""A token to read: with its space, and bytes of a character as \xNN.

        Raises:
            ValueError: If the id is not in the vocabulary.
        """
        id = self._check_id(id)
        token = self._tokenizer.id_to_token(id)
        if id in self.special_ids:
            return token
        values = _byte_characters()
        raw = bytes(values[character] for character in token)
        return raw.decode("utf-8", errors="backslashreplace")

    def tokens(self, ids):
        """The tokens of these ids, each as `token` gives it."""
        return [self.token(i) for i in ids]

    def get_config(self):
        return {"json": self._json}

    @classmethod
    def from_config(cls, config):
        return cls(config["json"])

    def __eq__(self, other):
        if not isinstance(other, Tokenizer):
            return NotImplemented
        return self._json == other._json

    def __hash__(self):
        return hash(self._json)

    def __reduce__(self):
        return Tokenizer, (self._json,)

    def __repr__(self):
        return f"<Tokenizer of {self.vocabulary_size:,} tokens, {self.digest}>"

    def _check_id(self, id):
        if not 0 <= id < self.vocabulary_size:
            raise ValueError(
                f"Token ids are 0 to {self.vocabulary_size - 1} in this "
                f"vocabulary. Received: {id!r}"
            )
        return int(id)


class _CheckedTexts:
    """Passes texts on, and remembers whether there was anything in them."""

    def __init__(self, texts):
        if isinstance(texts, str):
            raise ValueError(
                "`texts` must be an iterable of strings, not one string: "
                f"[text]. Received: texts={_shorten(texts)}"
            )
        self.texts = texts
        self.count = 0
        self.any_text = False

    def __iter__(self):
        for text in self.texts:
            _check_text(text, self.count)
            self.count += 1
            self.any_text = self.any_text or not (not text or text.isspace())
            yield text


def _check_text(text, number):
    """Raises a ValueError for what cannot be written as UTF-8."""
    if not isinstance(text, str):
        raise ValueError(
            f"Texts must be strings. Received: text {number} is {text!r}"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        around = text[max(error.start - 10, 0) : error.start + 10]
        raise ValueError(
            "A text holds half of a surrogate pair, which is no character; "
            "such strings come from damaged JSON or from file names. Leave it "
            "out: text.encode('utf-8', 'ignore').decode('utf-8'). Received: "
            f"text {number}, position {error.start}, around {around!r}"
        ) from error


def _empty_tokenizer():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _check_parts(tokenizer):
    """Raises a ValueError for tokenizers that would not do what ours does."""
    named = [tokenizer.token_to_id(name) for name in SPECIAL_TOKENS]
    if named != list(range(len(SPECIAL_TOKENS))):
        raise ValueError(
            f"The special tokens {', '.join(SPECIAL_TOKENS)} must have the "
            f"ids 0, 1, 2, 3. Received: {named}"
        )
    parts = json.loads(tokenizer.to_str())
    kinds = {
        key: (parts[key] or {}).get("type")
        for key in ("model", "pre_tokenizer", "decoder", "normalizer")
    }
    wanted = {
        "model": "BPE",
        "pre_tokenizer": "ByteLevel",
        "decoder": "ByteLevel",
        "normalizer": None,
    }
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    lossless = (
        kinds == wanted
        and not parts["pre_tokenizer"]["add_prefix_space"]
        and not parts["model"]["dropout"]
        and parts["truncation"] is None
        and parts["padding"] is None
        and all(c in vocabulary for c in _byte_characters())
    )
    if not lossless:
        raise ValueError(
            "It must be a byte-level BPE that gives every string back "
            "exactly: with all 256 bytes, and without normaliser, prefix "
            "space, dropout, truncation and padding. "
            f"Received: {kinds}, {len(vocabulary)} tokens"
        )


def _byte_characters():
    """How byte-level BPE writes bytes: `{character: byte}`.

    Bytes that are visible characters of Latin-1 stand for themselves, the
    others, in their order, for U+0100 and so on.
    """
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(BYTES) if byte not in visible]
    table = {chr(byte): byte for byte in sorted(visible)}
    table.update({chr(BYTES + i): byte for i, byte in enumerate(others)})
    return table


def _shorten(text, length=40):
    return repr(text if len(text) <= length else text[:length] + "...")
