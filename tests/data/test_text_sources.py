import gzip
import importlib.util
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from mlp_mixers.data.text_sources import load_text
from mlp_mixers.data.text_sources import read_text_file


def article(number, sentences=4):
    return " ".join(
        f"Sentence {i} of article {number} is here." for i in range(sentences)
    )


ARTICLES = [article(i) for i in range(40)]


def write(path, text, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(text, str):
        text = text.encode("utf-8")
    if path.name.endswith(".gz"):
        text = gzip.compress(text)
    path.write_bytes(text)
    return path


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder, in which we are, with text in it."""
    write(tmp_path / "news.txt", "\n\n".join(ARTICLES) + "\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def documents(spec, **options):
    """All documents, in the order of their numbers."""
    split = load_text(spec, **options)
    return sorted(split.train + split.validation)


# What is read.


def test_topics():
    from pydoc_data.topics import topics

    split = load_text()
    assert documents("topics") == sorted(t.strip() for t in topics.values())
    assert f"the {len(topics)} topics are those of Python" in split.notes[0]
    held_out = sum(map(len, split.validation))
    total = held_out + sum(map(len, split.train))
    assert 0.08 < held_out / total <= 0.1


@pytest.mark.parametrize("where", ["", "~/", "{home}/"])
@pytest.mark.parametrize("name", ["news.txt", "folder", "news"])
def test_files_and_folders(home, where, name):
    text = (home / "news.txt").read_bytes()
    write(home / "folder" / "news.txt", text)
    write(home / "news", text)  # a file may end in anything
    spec = f"text:{where.format(home=home)}{name}"
    assert documents(spec) == sorted(ARTICLES)


@pytest.mark.parametrize("separator", ["\n\n", "\n \t\n", "\n\n\n \n\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n "])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_ways_to_write_the_same(tmp_path, separator, end, last, mark, name):
    parts = ["  One.\nStill one.", "Größe 🙂 two.", "Three."]
    text = mark + separator.join(parts).replace("\n", end) + last
    path = write(tmp_path / name, text)
    found = documents(f"text:{path}")
    assert found == sorted(["One.\nStill one.", *parts[1:]])


def test_what_counts_as_a_document(tmp_path):
    write(tmp_path / "a.txt", "One.\nTwo.\n\nThree.\n")
    write(tmp_path / "b.txt", "Four.")
    spec = f"text:{tmp_path}"
    assert documents(spec) == ["Four.", "One.\nTwo.", "Three."]
    lines = documents(spec, separator="line")
    assert lines == ["Four.", "One.", "Three.", "Two."]
    files = documents(spec, separator="file")
    assert files == ["Four.", "One.\nTwo.\n\nThree."]


def test_folders_are_read_in_order(tmp_path):
    names = ["b.txt", "a/z.TXT", "a/b/x.md", "c.txt.gz", "a.txt", "d.md.gz"]
    for number, name in enumerate(names):
        write(tmp_path / name, f"Text {number}.")
    for name in (".hidden.txt", ".git/x.txt", "p.pdf", "q.pdf", "none"):
        write(tmp_path / name, b"\xff")
    split = load_text(f"text:{tmp_path}", validation_fraction=0.01)
    # By the parts of their paths: a/b/x, a/z, a.txt, b, c, d.
    order = [2, 1, 4, 0, 3, 5]
    held_out = split.validation[0]
    expected = [f"Text {number}." for number in order]
    assert len(split.validation) == 1
    assert split.train == [text for text in expected if text != held_out]
    assert (
        f"other files in {tmp_path}: 2 with .pdf, 1 with no ending"
        in (split.notes[0])
    )


def test_several_paths(home):
    for name in ("one", "two", "three"):
        write(home / "books" / f"{name}.txt", f"This is {name}.")
    write(home / "books" / "with, comma.txt", "A comma. And another.")
    a, b = "text:books/one.txt,books/two.txt", "text:books/one.txt, books/"
    assert documents(a) == ["This is one.", "This is two."]
    split = load_text(b)
    assert len(split.train + split.validation) == 4
    assert "files named more than once: 1" in split.notes
    assert len(documents("text:books/t*.txt")) == 2
    assert len(documents("text:**/*.txt")) == 44
    split = load_text("text:books/with, comma.txt")
    assert split.train + split.validation
    with pytest.raises(ValueError, match="matches the pattern.*'books/x"):
        load_text("text:books/x*.txt")


def test_empty_files_are_counted(home):
    write(home / "texts" / "a.txt", "One.\n\nTwo.")
    write(home / "texts" / "b.txt", "")
    write(home / "texts" / "c.txt", " \n\n\t\n\ufeff"[:-1])
    write(home / "texts" / "d.txt.gz", "")
    (home / "texts" / "e.txt.gz").write_bytes(b"")
    split = load_text("text:texts")
    assert sorted(split.train + split.validation) == ["One.", "Two."]
    assert split.notes[0].startswith("files without text: 4 (texts")
    with pytest.raises(ValueError, match="no text in 'text:.*without text: 1"):
        load_text("text:texts/b.txt")


# What is wrong with files.


@pytest.mark.parametrize("name", ["loop.txt", "lost.txt"])
def test_links_that_lead_nowhere(tmp_path, name):
    write(tmp_path / "good.txt", "One. Two.")
    target = {"loop.txt": tmp_path / "loop.txt", "lost.txt": tmp_path / "no"}
    (tmp_path / name).symlink_to(target[name])
    with pytest.raises(ValueError, match=f"{name}' cannot be read"):
        load_text(f"text:{tmp_path}")
    with pytest.raises(ValueError, match=f"link .*{name}' leads to no file"):
        load_text(f"text:{tmp_path / name}")


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"caf\xe9 is Latin-1", "0xe9 at 3[^0-9].*invalid continuation"),
        (b"\xef\xbb\xbf12\xff", "0xff at 5[^0-9]"),
        (b"cut off \xf0\x9f\x99", "0xf0 at 8[^0-9].*unexpected end"),
        (b"a\xed\xa0\x80", "0xed at 1[^0-9]"),
        ("hello".encode("utf-16"), "UTF-16. .*-f UTF-16 -t.*0xff at 0"),
        (b"\xfe\xff" + "a".encode("utf-16-be"), "-f UTF-16 .*0xfe at 0"),
        ("hello".encode("utf-32"), "UTF-32. .*-f UTF-32 -t.*0xff at 0"),
        (b"\0\0\xfe\xff" + "a".encode("utf-32-be"), "-f UTF-32 .*0x00 at"),
        (b"PNG\r\n\x00\x00", "is binary.*0x00 at 5"),
        (b"x" * 5000 + b"\x80", "0x80 at 5,000"),
    ],
)
def test_files_that_are_no_text(tmp_path, name, data, message):
    path = write(tmp_path / name, data)
    with pytest.raises(ValueError, match=f"{name}'.*{message}") as error:
        load_text(f"text:{path}")
    assert ("of what it unpacks to" in str(error.value)) == ("gz" in name)
    with pytest.raises(ValueError, match=f"{name}'.*{message}"):
        load_text(f"text:{tmp_path}")


def test_damaged_archives(tmp_path):
    whole = gzip.compress(b"some text\n" * 100)
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    for data in (whole[:-12], whole[:5], bytes(broken), b"plain text"):
        path = tmp_path / "x.txt.gz"
        path.write_bytes(data)
        with pytest.raises(ValueError, match="x.txt.gz' is damaged, or was"):
            read_text_file(path)
    # Whatever it is called.
    (tmp_path / "x").write_bytes(whole)
    assert read_text_file(tmp_path / "x") == "some text\n" * 100


def test_paths_that_are_not_there(home):
    write(home / "empty" / "table.csv", "a,b")
    (home / "nothing").mkdir()
    for spec, message in (
        ("text:new.txt", "no such file or folder. Did you mean 'news.txt'"),
        ("text:xyzzy", "no such file or folder. Received: 'xyzzy'"),
        ("text:no/such/a.txt", r"no folder 'no[/\\]+such'"),
        ("text:news.txt,other", "Received: 'other'"),
        ("text:empty", "(?s)no text in the folder.*txt.*1 with .csv"),
        ("text:nothing", "no files at all"),
    ):
        with pytest.raises(ValueError, match=message):
            load_text(spec)


# The cut.


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.5])
def test_documents_are_held_out(home, fraction):
    split = load_text("text:news.txt", validation_fraction=fraction)
    assert sorted(split.train + split.validation) == sorted(ARTICLES)
    held_out = sum(map(len, split.validation))
    total = sum(map(len, ARTICLES))
    longest = max(map(len, ARTICLES))
    assert fraction * total - longest < held_out <= fraction * total
    # Both sides are in the order of the file.
    assert split.train == [a for a in ARTICLES if a in split.train]
    assert split.validation == [a for a in ARTICLES if a in split.validation]
    assert f"{len(split.validation)} held out" in split.notes[-1]


def test_the_cut_follows_from_the_seed(home):
    first, again, other = (
        load_text("text:news.txt", seed=seed) for seed in (3, 3, 4)
    )
    assert first == again
    assert first.validation != other.validation
    # Each document is held out sometimes.
    seen = {
        document
        for seed in range(80)
        for document in load_text("text:news.txt", seed=seed).validation
    }
    assert len(seen) == len(ARTICLES)


def test_the_cut_is_the_same_in_another_process(home):
    code = (
        "from mlp_mixers.data.text_sources import load_text\n"
        "print('|'.join(load_text('text:news.txt', seed=3).validation))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "9"},
        capture_output=True,
        text=True,
    )
    expected = "|".join(load_text("text:news.txt", seed=3).validation)
    assert run.stdout.strip() == expected, run.stderr


@pytest.mark.parametrize("seed", range(5))
def test_copies_are_not_torn_apart(tmp_path, seed):
    texts = [article(i % 20) for i in range(50)]
    path = write(tmp_path / "a.txt", "\n\n".join(texts))
    split = load_text(f"text:{path}", seed=seed, validation_fraction=0.3)
    assert not set(split.train) & set(split.validation)
    assert sorted(split.train + split.validation) == sorted(texts)
    assert split.notes[0].startswith("repeated documents: 30;")


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.99])
def test_both_sides_get_something(tmp_path, fraction):
    path = write(tmp_path / "a.txt", "A long one is here.\n\nShort.")
    split = load_text(f"text:{path}", validation_fraction=fraction)
    assert len(split.train) == len(split.validation) == 1
    if fraction < 0.9:
        assert split.validation == ["Short."]


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("joint", [" ", "\n"])
def test_one_document_is_cut_at_sentences(tmp_path, fraction, seed, joint):
    sentences = [f"Sentence {i} is here." for i in range(30)]
    path = write(tmp_path / "a.txt", joint.join(sentences))
    split = load_text(f"text:{path}", validation_fraction=fraction, seed=seed)
    assert "one document only" in split.notes[0]
    held_out = split.validation[0].split("\n")
    begin = sentences.index(held_out[0])
    end = begin + len(held_out)
    assert held_out == sentences[begin:end]
    rest = ["\n".join(sentences[:begin]), "\n".join(sentences[end:])]
    assert split.train == [text for text in rest if text]
    assert abs(len(held_out) / 30 - fraction) < 0.05
    assert f"{begin + 1:,} to {end:,} of 30" in split.notes[0]


@pytest.mark.parametrize("fraction", [0.001, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("seed", range(4))
def test_two_sentences(tmp_path, fraction, seed):
    path = write(tmp_path / "a.txt", "A long sentence is here. Short.")
    split = load_text(f"text:{path}", validation_fraction=fraction, seed=seed)
    assert len(split.train) == len(split.validation) == 1


def test_one_sentence_is_too_little(tmp_path):
    for text in ("Only one.", "Only one.\n\nOnly one."):
        path = write(tmp_path / "a.txt", text)
        with pytest.raises(ValueError, match="one sentence only.*'Only one.'"):
            load_text(f"text:{path}")


# The line.


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("topic", "topics"),
        ("Topics", "topics"),
        ("topics:10", "topics"),
        ("news.txt", "text:news.txt"),
        ("~/news.txt", "text:~/news.txt"),
        ("missing.txt.gz", "text:missing.txt.gz"),
        ("Text:news.txt", "text:news.txt"),
        ("texts:news.txt", "text:news.txt"),
        ("folder:books", "text:books"),
        ("file:news.txt", "text:news.txt"),
        ("tdfs:lm1b", "tfds:lm1b"),
        ("lm1b", "tfds:lm1b"),
        ("imdb-reviews", "tfds:imdb_reviews"),
        ("Wiki40b", "tfds:wiki40b"),
        ("text:", "text:..."),
        ("tfds", "tfds:..."),
    ],
)
def test_hints(home, spec, hint):
    with pytest.raises(ValueError, match="There is no such text") as error:
        load_text(spec)
    assert f"Did you mean {hint}?" in str(error.value)
    assert "text:PATH" in str(error.value)


@pytest.mark.parametrize("spec", ["", "xyzzy", "http://a.b/c", None, 3])
def test_without_a_hint(home, spec):
    with pytest.raises(ValueError, match="tfds:NAME") as error:
        load_text(spec)
    assert "mean" not in str(error.value)
    assert repr(spec) in str(error.value)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("topics", {"separator": "file"}, r"options \(none\).*: separator"),
        ("text:news.txt", {"feature": "x"}, "options separator. Rec.*feature"),
        ("text:news.txt", {"separator": "page"}, "separator='page'"),
        ("tfds:lm1b", {"separator": "line"}, "options feature.*: separator"),
        ("tfds:lm1b", {"reader": "fast"}, "reader='fast'"),
        ("topics", {"seed": -1}, "seed=-1"),
        ("topics", {"validation_fraction": 0}, "validation_fraction=0"),
        ("topics", {"validation_fraction": 1.0}, "validation_fraction=1.0"),
        ("topics", {"validation_fraction": "a"}, "validation_fraction='a'"),
    ],
)
def test_options_that_make_no_sense(home, spec, options, message):
    with pytest.raises(ValueError, match=message):
        load_text(spec, **options)


# tensorflow_datasets.


if importlib.util.find_spec("tensorflow_datasets") is None:
    tfds = None
    Builder = object
else:
    import tensorflow_datasets as tfds

    Builder = tfds.core.GeneratorBasedBuilder

needs_tfds = pytest.mark.skipif(
    tfds is None or importlib.util.find_spec("tensorflow") is None,
    reason="preparing data sets takes tensorflow_datasets and TensorFlow",
)
FORMATS = ["array_record", "tfrecord"]


if tfds is not None:

    class Base(Builder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        SPLITS = {"train": ARTICLES[:30], "test": ARTICLES[35:]}
        FEATURES = {"text": "Text", "label": "Scalar"}

        def _info(self):
            kinds = {
                "Text": tfds.features.Text(),
                "Scalar": tfds.features.Scalar(np.int32),
            }
            return tfds.core.DatasetInfo(
                builder=self,
                features=tfds.features.FeaturesDict(
                    {k: kinds[v] for k, v in self.FEATURES.items()}
                ),
            )

        def _split_generators(self, dl_manager):
            return {
                name: self._generate_examples(texts)
                for name, texts in self.SPLITS.items()
            }

        def _generate_examples(self, texts):
            for i, text in enumerate(texts):
                example = {
                    key: text if kind == "Text" else i
                    for key, kind in self.FEATURES.items()
                }
                yield i, example

    class LocalArticles(Base):
        """The plain case."""

    class LocalTextParts(Base):
        """With text that is held out already, a part of it known."""

        SPLITS = {
            "train": ["A café 🙂.\r\nIt is.", *ARTICLES[:5], " "],
            "validation": [ARTICLES[0], *ARTICLES[30:35]],
            "extra": ["Not used."],
        }
        FEATURES = {"title": "Text", "content": "Text"}

    class LocalPairs(Base):
        """Two texts, neither of which is the one."""

        FEATURES = {"premise": "Text", "hypothesis": "Text"}

    class LocalNumbers(Base):
        """No text at all."""

        FEATURES = {"label": "Scalar"}

    class LocalBytes(Base):
        """Text in Latin-1."""

        SPLITS = {"train": ["Fine.", b"caf\xe9"]}

    BUILDERS = {
        "local_articles": LocalArticles,
        "local_text_parts": LocalTextParts,
        "local_pairs": LocalPairs,
        "local_numbers": LocalNumbers,
        "local_bytes": LocalBytes,
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Folders with the data sets in each file format, made when asked for."""
    folders = {}

    def prepare(name, file_format):
        key = (name, file_format)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp(f"{name}_{file_format}")
            BUILDERS[name](
                data_dir=str(folders[key]), file_format=file_format
            ).download_and_prepare()
        return folders[key]

    return prepare


@needs_tfds
@pytest.mark.parametrize("file_format", FORMATS)
def test_records_are_documents(prepared, file_format):
    folder = prepared("local_articles", file_format)
    split = load_text("tfds:local_articles", data_dir=folder)
    assert sorted(split.train + split.validation) == sorted(ARTICLES[:30])
    assert len(split.validation) in (2, 3)
    assert split.notes[0] == "not used: the split test"


@needs_tfds
@pytest.mark.parametrize("file_format", FORMATS)
def test_held_out_records_are_used(prepared, file_format):
    folder = prepared("local_text_parts", file_format)
    split = load_text("tfds:local_text_parts", data_dir=folder)
    expected = ["A café 🙂.\nIt is.", *ARTICLES[:5]]
    assert sorted(split.train) == sorted(expected)
    assert sorted(split.validation) == sorted([ARTICLES[0], *ARTICLES[30:35]])
    assert split.notes[:2] == (
        "not used: the split extra",
        "held-out documents that are in the training text: 1",
    )


@needs_tfds
def test_both_formats_give_the_same(prepared):
    one, other = (
        load_text(
            "tfds:local_articles", data_dir=prepared("local_articles", form)
        )
        for form in FORMATS
    )
    assert one == other


@needs_tfds
def test_records_without_the_text(prepared):
    folder = prepared("local_pairs", "array_record")
    spec = "tfds:local_pairs"
    assert load_text(spec, data_dir=folder, feature="premise").train
    with pytest.raises(ValueError, match="several texts.*`feature='.*None"):
        load_text(spec, data_dir=folder)
    with pytest.raises(ValueError, match="Received: feature='text'; feat"):
        load_text(spec, data_dir=folder, feature="text")
    folder = prepared("local_numbers", "array_record")
    with pytest.raises(ValueError, match="has no text.*label"):
        load_text("tfds:local_numbers", data_dir=folder)
    folder = prepared("local_bytes", "array_record")
    with pytest.raises(
        ValueError, match="record [01] of local_bytes/1.0.0.*0xe9 at 3"
    ):
        load_text("tfds:local_bytes", data_dir=folder)


@needs_tfds
def test_data_sets_that_cannot_be_read(prepared, tmp_path):
    folder = prepared("local_articles", "tfrecord")
    spec = "tfds:local_articles"
    with pytest.raises(ValueError, match="(?s)tfrecord, which the reader"):
        load_text(spec, data_dir=folder, reader="data_source")
    with pytest.raises(ValueError, match="kept in memory.*Received: 1e-09"):
        load_text(spec, data_dir=folder, memory_limit_gib=1e-9)
    with pytest.raises(ValueError, match="no data set 'imdb_review'.*imdb_re"):
        load_text("tfds:imdb_review", data_dir=tmp_path)
    with pytest.raises(ValueError, match="(?s)not prepared.*Prepare it"):
        load_text("tfds:lm1b", data_dir=tmp_path, download=False)
    with pytest.raises(ValueError, match="mnist.*has no text"):
        load_text("tfds:mnist", data_dir=tmp_path)
    assert not list(tmp_path.iterdir())


@needs_tfds
def test_array_records_need_no_tensorflow(prepared):
    others = [b for b in ("jax", "torch") if importlib.util.find_spec(b)]
    if not others:
        pytest.skip("only TensorFlow is installed, which Keras imports itself")
    folder = prepared("local_articles", "array_record")
    code = f"""
        import sys
        from mlp_mixers.data.text_sources import load_text
        split = load_text("tfds:local_articles", data_dir={str(folder)!r})
        assert split.train[0].startswith("Sentence")
        assert "tensorflow" not in sys.modules
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        # On TensorFlow, Keras imports it.
        env={**os.environ, "KERAS_BACKEND": others[0]},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


def test_tensorflow_datasets_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match="pip install"):
        load_text("tfds:lm1b")


def test_the_manual_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(ValueError, match="without its own manual.*text:FILE"):
        load_text("topics")
