"""The text that language models read: found, cut in two, told apart."""

import dataclasses
import hashlib

from mlp_mixers import data
from mlp_mixers.data.sentences import split_sentences
from mlp_mixers.data.text_sources import SOURCES
from recipes.checks import dashed
from recipes.runs import counted
from recipes.text_settings import TEXT

# Options of sources, and which have them.
OPTIONS = {
    "separator": ("text",),
    "feature": ("tfds",),
    "data_dir": ("tfds",),
}
# Shorter sentences are the same by chance: "See also:".
LONG = 40
# Of a share of the characters, how far whole documents may lead from it.
NEAR = 0.01


def filled(text):
    """A `Text` in which what is left alone has a value."""
    changes = {k: v for k, v in TEXT.items() if getattr(text, k) is None}
    return dataclasses.replace(text, **changes)


def options_of(text, whose=""):
    """The options of its source, as a dictionary.

    Args:
        text: A `Text` with `data`.
        whose: What to say behind it in a message.

    Raises:
        ValueError: If an option is for another kind of source.
    """
    kind = text.data.partition(":")[0]
    options = {}
    for name, kinds in OPTIONS.items():
        value = getattr(text, name)
        if value in (None, TEXT.get(name)):
            continue
        if kind not in kinds and kind in SOURCES:
            raise ValueError(
                f"--{dashed(name)} is for data of the kind "
                f"{' and '.join(kinds)}. Received: --data {text.data}{whose}"
            )
        options[name] = value
    return options


def load(text, seed, whose=""):
    """The text that the settings name, cut into two: a `TextSplit`."""
    text = filled(text)
    split = data.load_text(
        text.data,
        validation_fraction=text.validation_fraction,
        seed=seed,
        **options_of(text, whose),
    )
    held_out = sum(map(len, split.validation))
    share = held_out / (held_out + sum(map(len, split.train)))
    if abs(share - text.validation_fraction) <= NEAR:
        return split
    note = (
        f"{share:.1%} are held out, not {text.validation_fraction:.1%}: "
        "documents are held out whole, or a data set has its own cut"
    )
    return dataclasses.replace(split, notes=(*split.notes, note))


def load_whole(text):
    """All documents of a text, and notes.

    Of a data set that has a held-out part of its own, that part.

    Returns:
        `(documents, notes)`.
    """
    text = filled(text)
    kind, _, name = text.data.partition(":")
    options = options_of(text)
    if kind not in SOURCES or bool(name) == (kind == "topics"):
        data.load_text(text.data)  # says what is wrong with it
    train, held_out, notes = SOURCES[kind](*[name] * bool(name), **options)
    documents = [d.strip() for d in held_out or train]
    documents = [d for d in documents if d]
    if not documents:
        raise ValueError(f"There is no text. Received: --data {text.data}")
    what = "its held-out part" if held_out else "all of it"
    count = counted(len(documents), "document")
    return documents, [*notes, f"{text.data}: {what} is measured, {count}"]


def digest(documents):
    """A short text that is another one when a document is another."""
    found = hashlib.sha256()
    for document in documents:
        found.update(document.encode("utf-8", "surrogatepass") + b"\0")
    return found.hexdigest()[:16]


def data_digest(split, tokenizer):
    """The same of both parts of a text and of its tokens."""
    found = hashlib.sha256(tokenizer.digest.encode())
    for part in (split.train, split.validation):
        for document in part:
            found.update(document.encode("utf-8", "surrogatepass") + b"\0")
        found.update(b"\1")
    return found.hexdigest()[:16]


def identity(split, tokenizer):
    """What must not change when a run goes on, as `Recipe` wants it."""
    return {
        "text": digest([*split.train, "", *split.validation]),
        "tokenizer": tokenizer.digest,
    }


def check_rows(rows, length, batch_size):
    """Raises a ValueError if a text has fewer rows than a batch."""
    if rows < batch_size:
        raise ValueError(
            f"The text fills {counted(rows, 'row')} of {length} tokens, fewer "
            "than a batch: take more text, shorter rows or a smaller batch. "
            f"Received: batch_size={batch_size}"
        )


def share_seen(documents, trained):
    """The share of long sentences of some documents that others hold too.

    Args:
        documents: List of strings.
        trained: List of strings.
    """
    known = {hash(s) for s in _sentences(trained)}
    seen = [hash(s) in known for s in _sentences(documents)]
    return sum(seen) / max(len(seen), 1)


def _sentences(documents):
    for document in documents:
        for sentence in split_sentences(document):
            if len(sentence) >= LONG:
                yield sentence
