"""Raw text from one line that names it: `topics`, `text:...`, `tfds:...`."""

import collections
import dataclasses
import difflib
import glob
import gzip
import inspect
import numbers
import os
import pathlib
import platform
import re
import zlib

import numpy as np

from mlp_mixers.arguments import natural_number
from mlp_mixers.data.sentences import split_sentences
from mlp_mixers.data.split import shorten
from mlp_mixers.data.tfds import GIB
from mlp_mixers.data.tfds import READERS
from mlp_mixers.data.tfds import choose_reader
from mlp_mixers.data.tfds import import_tfds
from mlp_mixers.data.tfds import not_found
from mlp_mixers.data.tfds import prepared
from mlp_mixers.data.tfds import splits_of

FORMS = """
    topics        the pages of Python's own manual, inside every Python
    text:PATH     a text file (.gz too), a folder of them, a pattern like
                  books/*.txt, or several of these with commas between
    tfds:NAME     a data set of tensorflow_datasets with a text in it"""
# Files that are read in folders, in small letters.
SUFFIXES = (".txt", ".txt.gz", ".md", ".md.gz")
# The byte order marks of other encodings. Those of UTF-32 come first: one of
# them begins as one of UTF-16 does.
BYTE_ORDERS = (
    ("UTF-32", (b"\xff\xfe\0\0", b"\0\0\xfe\xff")),
    ("UTF-16", (b"\xff\xfe", b"\xfe\xff")),
)
SEPARATORS = ("blank_line", "line", "file")
BLANK_LINES = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
# Names that people type when they mean tensorflow_datasets.
TFDS_NAMES = (
    *("wikipedia", "wiki40b", "c4", "lm1b", "pg19", "tiny_shakespeare"),
    *("imdb_reviews", "ag_news_subset", "cnn_dailymail", "scientific_papers"),
    *("multi_news", "gigaword", "yelp_polarity_reviews", "newsroom"),
)
# Of several texts in a record, the one that is meant.
FEATURES = ("text", "content", "article", "document")


@dataclasses.dataclass(frozen=True)
class TextSplit:
    """Documents for training and held-out ones.

    `train` and `validation` are lists of strings with `\\n` at line ends.
    `notes` are sentences about what was read, left out or cut on the way, for
    whoever prints them.
    """

    train: list
    validation: list
    notes: tuple = ()


def load_text(spec="topics", *, validation_fraction=0.1, seed=0, **options):
    """Loads the text that one line names, and holds some of it out.

    - `topics`: each topic of CPython's `pydoc_data.topics` is a document.
    - `text:PATH`: PATH is a file, a folder, a pattern with `*`, or several of
      these with commas between. A `~` at its beginning is the home folder. Of
      a folder, all files in it and in its folders are read that end in .txt,
      .md, .txt.gz or .md.gz, in the order of their paths; hidden ones are
      not. Text is UTF-8, with a byte order mark or without; line ends of
      Windows and old Macs become `\\n`. Documents are separated by blank
      lines, and by the end of a file.
    - `tfds:NAME`: each record is a document.

    What is held out is cut by document, so that no sentence of a held-out
    document is trained on: in an order drawn by `seed`, each document is taken
    if the held-out text then stays within its share of the characters; if
    none is so short, the shortest is. Equal documents stay together. If there
    is one document only, a stretch of its sentences is held out.

    Args:
        spec: `topics`, `text:PATH` or `tfds:NAME`.
        validation_fraction: Share of the characters to hold out, where a data
            set has no validation part of its own.
        seed: Integer, not negative; the cut is a function of it and of the
            text.
        **options: For `text`: `separator`, which is `"blank_line"`, `"line"`
            if each line is a document, or `"file"` if each file is. For
            `tfds`: `feature`, the name of the text in a record, where there
            are several; `data_dir`, `reader`, `download` and
            `memory_limit_gib` as in `load_tfds`.

    Returns:
        A `TextSplit`.

    Raises:
        ImportError: If tensorflow_datasets is needed and not installed.
        ValueError: If there is no such source, or it has no such option; if a
            file or folder is missing, damaged, binary or not UTF-8; if there
            is no text in it, or one sentence only; or an argument is out of
            range.
    """
    source, name = _parse(spec)
    natural_number(seed, "seed")
    if not (
        isinstance(validation_fraction, numbers.Real)
        and 0 < validation_fraction < 1
    ):
        raise ValueError(
            "`validation_fraction` must be above 0 and below 1. Received: "
            f"validation_fraction={validation_fraction!r}"
        )
    read = SOURCES[source]
    allowed = [*inspect.signature(read).parameters]
    if name is not None:
        allowed = allowed[1:]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ValueError(
            f"The source `{source}` has the options "
            f"{', '.join(allowed) or '(none)'}. "
            f"Received: {', '.join(unknown)}"
        )
    names = () if name is None else (name,)
    train, validation, notes = read(*names, **options)
    train, validation = _without_blank(train), _without_blank(validation)
    if not train:
        raise ValueError(
            f"There is no text in {spec!r}. "
            f"Received: {'; '.join(notes) or 'white space only'}"
        )
    if validation:
        notes = [*notes, *_repeats(train, validation)]
    else:
        train, validation, more = _cut(train, validation_fraction, seed)
        notes = [*notes, *more]
    size = sum(map(len, validation))
    notes.append(
        f"{len(train):,} documents for training, "
        f"{len(validation):,} held out, "
        f"{size / (size + sum(map(len, train))):.1%} of the characters"
    )
    return TextSplit(train, validation, tuple(notes))


# The sources: each returns (documents, held-out documents, notes).


def read_topics():
    """The topics of Python's `help()`."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ValueError(
            "This Python was installed without its own manual, "
            "`pydoc_data.topics` (on Debian: apt install libpython3-stdlib). "
            "Name other text: `text:FILE`"
        ) from error
    version = platform.python_version()
    note = f"the {len(topics)} topics are those of Python {version}"
    return list(topics.values()), [], [note]


def read_text(path, separator="blank_line"):
    """The documents in files and folders; see `load_text`."""
    if separator not in SEPARATORS:
        raise ValueError(
            f"`separator` must be one of {SEPARATORS}. "
            f"Received: separator={separator!r}"
        )
    files, notes = _find_files(path)
    documents, empty = [], []
    for file in files:
        text = read_text_file(file)
        found = _without_blank(_documents(text, separator))
        documents.extend(found)
        if not found:
            empty.append(str(file))
    if empty:
        notes.append(f"files without text: {len(empty):,} ({shorten(empty)})")
    return documents, [], notes


def read_tfds(
    name,
    feature=None,
    data_dir=None,
    reader="auto",
    download=True,
    memory_limit_gib=4.0,
):
    """The texts of a data set of tensorflow_datasets; see `load_text`.

    As with `load_tfds`, TensorFlow is not needed for one in the format
    `array_record`. All text is kept in memory.
    """
    if reader not in READERS:
        raise ValueError(
            f"`reader` must be one of {READERS}. Received: reader={reader!r}"
        )
    data_dir = None if data_dir is None else os.path.expanduser(data_dir)
    try:
        builder = import_tfds().builder(name, data_dir=data_dir)
    # An AssertionError is what the package raises for a missing version.
    except (AssertionError, ValueError) as error:
        raise ValueError(not_found(name, data_dir, error)) from error
    # Before anything is downloaded.
    feature = _feature(builder, feature)
    if not builder.is_prepared():
        builder = prepared(builder, name, data_dir, reader, download)
    splits = splits_of(builder)
    splits = {k: v for k, v in splits.items() if k != "test"}
    size = sum(builder.info.splits[k].num_bytes for k in splits.values())
    if size > memory_limit_gib * GIB:
        raise ValueError(
            f"{builder.info.full_name} takes {size / GIB:.3g} GiB, and all "
            f"text is kept in memory, where the limit is {memory_limit_gib} "
            "GiB. Take a smaller configuration of it, or raise "
            f"`memory_limit_gib`. Received: {memory_limit_gib!r}"
        )
    way = choose_reader(builder, reader)
    texts = {
        part: list(_records(builder, split, feature, way))
        for part, split in splits.items()
    }
    unused = sorted(set(builder.info.splits) - set(splits.values()))
    notes = [f"not used: the split {split}" for split in unused]
    return texts["train"], texts.get("validation", []), notes


SOURCES = {"topics": read_topics, "text": read_text, "tfds": read_tfds}


# The line.


def _parse(spec):
    """`(source, what follows the colon or None)`."""
    if not isinstance(spec, str):
        raise ValueError(f"Text is named by a line:{FORMS}\nReceived: {spec!r}")
    source, colon, name = spec.partition(":")
    if source == "topics" and not colon:
        return source, None
    if source in SOURCES and source != "topics" and name:
        return source, name
    hint = _hint(spec)
    raise ValueError(
        f"There is no such text: {spec!r}."
        + (f" Did you mean {hint}?" if hint else "")
        + f" Text is named by one of{FORMS}"
    )


def _hint(spec):
    """What `spec` may have been meant to be, or `None`."""
    source, colon, name = spec.partition(":")
    if source == "topics":
        return "topics"
    path = pathlib.Path(spec).expanduser()
    if spec and path.exists():
        return f"text:{spec}"
    known = {"text": "text", "file": "text", "folder": "text", "tfds": "tfds"}
    close = difflib.get_close_matches(source.lower(), known, 1)
    if name and close:
        return f"{known[close[0]]}:{name}"
    if source in SOURCES:
        return f"{source}:..."
    if path.name.lower().endswith(SUFFIXES):
        return f"text:{spec}"
    if colon:
        return None
    plain = source.replace("-", "_").lower()
    close = difflib.get_close_matches(plain, ("topics", *TFDS_NAMES), 1)
    if close:
        return "topics" if close[0] == "topics" else f"tfds:{close[0]}"
    return None


# Files.


def _find_files(line):
    """`(files, notes)` of a path, a pattern, or several with commas."""
    whole = pathlib.Path(line).expanduser()
    if whole.exists() or "," not in line:
        parts = [line]
    else:
        parts = [part.strip() for part in line.split(",") if part.strip()]
    files, notes = [], []
    for part in parts:
        found, more = _find(part)
        files.extend(found)
        notes.extend(more)
    # A file that is named twice is read once.
    unique = list({os.path.realpath(file): file for file in files}.values())
    if len(unique) < len(files):
        notes.append(
            f"files named more than once: {len(files) - len(unique):,}"
        )
    return unique, notes


def _find(name):
    path = pathlib.Path(name).expanduser()
    if path.is_dir():
        return _walk(path)
    if path.exists():
        return [path], []
    if glob.has_magic(name):
        found = sorted(map(pathlib.Path, glob.glob(str(path), recursive=True)))
        found = [match for match in found if match.is_file()]
        if found:
            return found, []
        raise ValueError(
            f"No text file matches the pattern. Received: {name!r}"
        )
    raise ValueError(_missing(path, name))


def _walk(folder):
    """`(files, notes)` of a folder: what ends in one of `SUFFIXES`."""
    files, others = [], {}
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = pathlib.Path(where, name)
            if name.lower().endswith(SUFFIXES):
                files.append(path)
            else:
                ending = path.suffix.lower() or "no ending"
                others[ending] = others.get(ending, 0) + 1
    listed = shorten([f"{n:,} with {e}" for e, n in sorted(others.items())])
    if not files:
        raise ValueError(
            f"There is no text in the folder {str(folder)!r}: files in it "
            f"must end in one of {', '.join(SUFFIXES)}; a file that is named "
            "itself may end in anything. "
            f"Received: {listed or 'no files at all'}"
        )
    files.sort(key=lambda file: file.relative_to(folder).parts)
    notes = [f"other files in {folder}: {listed}"] if others else []
    return files, notes


def _missing(path, name):
    """What to say of a path that is not there."""
    parent = path.parent
    if path.is_symlink():
        return (
            f"The link {str(path)!r} leads to no file. Remove or mend it. "
            f"Received: {name!r}"
        )
    if not parent.is_dir():
        return f"There is no folder {str(parent)!r}. Received: {name!r}"
    there = [p.name for p in parent.iterdir()]
    close = difflib.get_close_matches(path.name, there, 1)
    hint = f" Did you mean {str(parent / close[0])!r}?" if close else ""
    return f"There is no such file or folder.{hint} Received: {name!r}"


def read_text_file(path):
    """The text of a file in UTF-8, plain or compressed by gzip.

    Args:
        path: Path of the file.

    Returns:
        String without byte order mark, with `\\n` at line ends.

    Raises:
        ValueError: If the file cannot be read, is damaged, binary, or not
            UTF-8; with its name and the place.
    """
    path = pathlib.Path(path).expanduser()
    try:
        data = path.read_bytes()
    # Links that lead nowhere or in a circle, folders, missing rights.
    except OSError as error:
        raise ValueError(
            f"The file {str(path)!r} cannot be read. Mend it, or leave it "
            f"out. Received: {error.strerror}"
        ) from error
    packed = data.startswith(b"\x1f\x8b")
    if packed or (data and path.name.lower().endswith(".gz")):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(
                f"The file {str(path)!r} is damaged, or was not compressed "
                f"by gzip: {error}"
            ) from error
    inside = " of what it unpacks to" if packed else ""
    wide = next((n for n, marks in BYTE_ORDERS if data.startswith(marks)), None)
    if wide:
        raise ValueError(
            f"Text must be UTF-8, and the file {str(path)!r} looks like "
            f"{wide}. Convert it: iconv -f {wide} -t UTF-8. "
            f"Received: byte 0x{data[0]:02x} at 0{inside}"
        )
    text = _decode(data, f"the file {str(path)!r}", inside)
    if "\0" in text:
        raise ValueError(
            f"The file {str(path)!r} is binary, not text. Leave it out. "
            f"Received: byte 0x00 at {data.index(0):,}{inside}"
        )
    return text


def _decode(data, where, inside=""):
    """Bytes as text with `\n` at line ends and without byte order mark."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Text must be UTF-8, and {where} is not. Convert it (iconv -f "
            "LATIN1 -t UTF-8, if it is Latin-1), or leave it out. Received: "
            f"byte 0x{data[error.start]:02x} at {error.start:,}{inside}, "
            f"{error.reason}"
        ) from error
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _documents(text, separator):
    if separator == "file":
        return [text]
    if separator == "line":
        return text.split("\n")
    return BLANK_LINES.split(text)


def _without_blank(documents):
    """Documents that hold text, without blank lines around them."""
    stripped = (document.strip() for document in documents)
    return [document for document in stripped if document]


# Records.


def _feature(builder, wanted):
    """Name of the feature with the text."""
    tfds = import_tfds()
    features = builder.info.features
    named = dict(features.items()) if hasattr(features, "items") else {}
    texts = [k for k, f in named.items() if type(f) is tfds.features.Text]
    if wanted in texts:
        return wanted
    if wanted is None:
        if len(texts) == 1:
            return texts[0]
        for name in FEATURES:
            if name in texts:
                return name
    described = ", ".join(f"{k}: {f!r}" for k, f in named.items())
    raise ValueError(
        (
            f"{builder.info.full_name} has several texts: say which one, "
            f"`feature={texts[0]!r}` for example. "
            if texts
            else f"{builder.info.full_name} has no text. "
        )
        + f"Received: feature={wanted!r}; features {described or features!r}"
    )


def _records(builder, split, feature, way):
    """The texts of a split, in order."""
    tfds = import_tfds()
    if way == "data_source":
        source = builder.as_data_source(split)
        records = (source[i] for i in range(len(source)))
    else:
        # TensorFlow would take all memory of a GPU that another backend needs.
        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        dataset = builder.as_dataset(
            split=split,
            shuffle_files=False,
            # One file after the other; otherwise records are interleaved.
            read_config=tfds.ReadConfig(
                interleave_cycle_length=1, try_autocache=False
            ),
        )
        records = dataset.as_numpy_iterator()
    where = f"of {builder.info.full_name}, split {split}"
    for number, record in enumerate(records):
        yield _decode(record[feature], f"record {number:,} {where}")


# The cut.


def _cut(documents, fraction, seed):
    """`(train, validation, notes)`; see `load_text`."""
    copies = collections.Counter(documents)  # in the order of the documents
    notes = []
    if len(copies) < len(documents):
        notes.append(
            f"repeated documents: {len(documents) - len(copies):,}; all "
            "copies of one are on the same side"
        )
    if len(copies) == 1:
        return _cut_one(documents[0], fraction, seed, notes)
    distinct = list(copies)
    sizes = [len(d) * count for d, count in copies.items()]
    budget = fraction * sum(sizes)
    held_out, size = set(), 0
    for i in np.random.default_rng(seed).permutation(len(distinct)):
        if size + sizes[i] <= budget:
            held_out.add(distinct[i])
            size += sizes[i]
    if not held_out:
        held_out.add(min(distinct, key=len))
    train = [d for d in documents if d not in held_out]
    validation = [d for d in documents if d in held_out]
    return train, validation, notes


def _cut_one(document, fraction, seed, notes):
    """Holds out a stretch of the only document there is."""
    sentences = split_sentences(document)
    if len(sentences) < 2:
        raise ValueError(
            "There is one sentence only, and some text must be held out. "
            "Give more text, with full stops or line breaks between "
            f"sentences. Received: {document[:60]!r}"
        )
    sizes = np.array([len(sentence) for sentence in sentences])
    ends = np.cumsum(sizes)
    wanted = fraction * ends[-1]
    # Sentences after which enough is left, and not everything.
    begins = np.flatnonzero(ends[-1] - (ends - sizes) >= wanted)
    begin = int(np.random.default_rng(seed).choice(begins))
    end = begin + 1 + int(np.searchsorted(np.cumsum(sizes[begin:]), wanted))
    if end - begin >= len(sentences):
        begin, end = 1, len(sentences)
    pieces = [sentences[:begin], sentences[begin:end], sentences[end:]]
    before, held_out, after = ("\n".join(piece) for piece in pieces)
    notes = [
        *notes,
        "there is one document only, so that a stretch of its sentences, "
        f"{begin + 1:,} to {end:,} of {len(sentences):,}, is held out; "
        "separate documents by blank lines to hold out whole ones",
    ]
    return _without_blank([before, after]), [held_out], notes


def _repeats(train, validation):
    """Notes about held-out documents that are trained on too."""
    known = set(train)
    repeats = sum(document in known for document in validation)
    if not repeats:
        return []
    return [f"held-out documents that are in the training text: {repeats:,}"]
