import importlib.util
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from mlp_mixers.data import task_sources
from mlp_mixers.data.glue import TASKS
from mlp_mixers.data.glue import load_glue
from mlp_mixers.data.glue import plain
from mlp_mixers.data.task_sources import load_task
from mlp_mixers.data.task_sources import load_tfds_task
from tests.data.test_glue import FILES
from tests.data.test_glue import MSR
from tests.data.test_glue import write

FILMS = "sentence\tlabel\na fine film\t1\none to avoid\t0\n"
SQUAD = {
    "data": [
        {
            "title": "T",
            "paragraphs": [
                {
                    "context": f"Fact {k} holds.",
                    "qas": [
                        {
                            "id": f"q{k}",
                            "question": "What holds?",
                            "answers": [{"text": "Fact", "answer_start": 0}],
                        }
                    ],
                }
                for k in range(3)
            ],
        }
    ]
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with a task of each kind."""
    for name in ("SST-2/train.tsv", "SST-2/dev.tsv", "films.tsv", "a,b.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(FILMS)
    (tmp_path / "test.tsv").write_text("sentence\nodd\n")
    (tmp_path / "squad").mkdir()
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (tmp_path / "squad" / name).write_text(json.dumps(SQUAD))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("where", ["~/", "", "{home}/"])
def test_every_source(home, where):
    where = where.format(home=home)
    task = load_task(f"glue:{where}SST-2")
    assert (task.name, list(task.parts)) == ("SST-2", ["train", "validation"])
    films = f"{where}films.tsv"
    task = load_task(f"tsv:{films},{films}")
    assert task.parts["validation"].first == ["a fine film", "one to avoid"]
    task = load_task(f"tsv:{films},{films},{where}test.tsv")
    assert task.parts["test"].first == ["odd"]
    task = load_task(f"squad:{where}squad")
    assert (task.kind, len(task.parts["validation"])) == ("span", 3)
    file = f"{where}squad/train-v1.1.json"
    assert len(load_task(f"squad:{file}").parts["validation"]) == 1
    assert len(load_task(f"squad:{file}, {file}").parts["validation"]) == 3


def test_options_are_passed_on(home):
    task = load_task("glue:.", task="sst2")
    assert task.name == "SST-2"
    task = load_task(
        "tsv:films.tsv",
        validation="films.tsv",
        text="label",
        label="sentence",
        class_names=["one to avoid", "a fine film"],
    )
    assert task.parts["train"].first == ["1", "0"]
    assert task.parts["train"].labels.tolist() == [1, 0]


def test_a_comma_may_belong_to_a_name(home):
    task = load_task("tsv:a,b.tsv", validation="a,b.tsv")
    assert task.name == "a,b.tsv"


def test_tfds_gets_the_whole_name(monkeypatch):
    def load(name, data_dir=None):
        return name, data_dir

    monkeypatch.setitem(task_sources.SOURCES, "tfds", load)
    assert load_task("tfds:glue/sst2:2.0.0", data_dir="x") == (
        "glue/sst2:2.0.0",
        "x",
    )


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("sst2", "tfds:glue/sst2 or glue:DIR/SST-2"),
        ("STS-B", "tfds:glue/stsb or glue:DIR/STS-B"),
        ("glue/cola", "tfds:glue/cola or glue:DIR/CoLA"),
        ("squad/v2.0", "tfds:squad/v2.0"),
        ("films.tsv", "tsv:films.tsv"),
        ("missing.csv,other.csv", "tsv:missing.csv,other.csv"),
        ("squad/train-v1.1.json", "squad:squad/train-v1.1.json"),
        ("SST-2", "glue:SST-2"),
        ("~/squad", "squad:~/squad"),
        ("GLUE:SST-2", "glue:SST-2"),
        ("tvs:films.tsv", "tsv:films.tsv"),
        ("squadd:x", "squad:x"),
        ("glue:", "glue:..."),
        ("tsv", "tsv:..."),
        ("glu", "glue:..."),
    ],
)
def test_hints(home, spec, hint):
    with pytest.raises(ValueError, match="There is no such task") as error:
        load_task(spec)
    assert f"Did you mean {hint}?" in str(error.value)
    assert "tsv:TRAIN[,DEV[,TEST]]" in str(error.value)


@pytest.mark.parametrize("spec", ["", "xyzzy", "http://a.b/c.zip", None, 3])
def test_without_a_hint(home, spec):
    with pytest.raises(ValueError, match="tfds:NAME") as error:
        load_task(spec)
    assert "mean" not in str(error.value)
    assert repr(spec) in str(error.value)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("glue:SST-2", {"text": "x"}, "`glue` has.*task.*Received: text"),
        ("tsv:films.tsv", {"txt": "x"}, "mean `text`.*Received: txt"),
        ("tsv:films.tsv", {"train": "x"}, "Received: train"),
        ("tsv:films.tsv,x", {"validation": "y"}, "validation='y'"),
        ("tsv:a,b,c,d", {}, "At most three files"),
        ("tsv:,b", {}, "the first must be there"),
        ("tfds:x", {"channels": 1}, "`tfds` has.*Received: channels"),
    ],
)
def test_options_that_do_not_fit(home, spec, options, message):
    with pytest.raises(ValueError, match=message):
        load_task(spec, **options)


tfds = None
if importlib.util.find_spec("tensorflow_datasets") is not None:
    import tensorflow_datasets as tfds
needs_tfds = pytest.mark.skipif(
    tfds is None or importlib.util.find_spec("tensorflow") is None,
    reason="preparing data sets takes TensorFlow",
)
FORMATS = ("array_record", "tfrecord")
SIZES = {"train": 12, "validation": 6, "test": 3}
PAIR_SIZES = {
    **{"train": 6, "validation_matched": 4, "validation_mismatched": 2},
    **{"test_matched": 3, "test_mismatched": 1},
}
CONTEXT = "Rain fell on the café roof."


def builders():
    """Small data sets with the features of the real ones."""
    features = tfds.features

    class Base(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")
        KEYS = None

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self,
                features=features.FeaturesDict(self.FEATURES),
                supervised_keys=self.KEYS,
            )

        def _split_generators(self, dl_manager):
            return {
                name: self._generate_examples(name, size)
                for name, size in self.SIZES.items()
            }

        def _generate_examples(self, split, size):
            for k in range(size):
                yield k, self.example(split, k)

    class LocalReviews(Base):
        SIZES = {"train": 12, "test": 6}
        KEYS = ("text", "label")
        FEATURES = {
            "text": features.Text(),
            "title": features.Text(),
            "label": features.ClassLabel(names=["neg", "pos"]),
        }

        def example(self, split, k):
            return {
                "text": f"{split} café {k}",
                "title": f"title {k}",
                "label": k % 2,
            }

    class LocalScores(Base):
        SIZES = SIZES
        FEATURES = {
            "a": features.Text(),
            "b": features.Text(),
            "score": np.float32,
        }

        def example(self, split, k):
            score = -1 if split == "test" else k / 2
            return {"a": f"a{k}", "b": f"b{k}", "score": score}

    class LocalSquad(Base):
        SIZES = {"train": 4, "validation": 2}
        FEATURES = {
            "id": np.str_,
            "title": features.Text(),
            "context": features.Text(),
            "question": features.Text(),
            "answers": features.Sequence(
                {"text": features.Text(), "answer_start": np.int32}
            ),
            "is_impossible": np.bool_,
        }

        def example(self, split, k):
            answers = {"text": ["café", "the café"], "answer_start": [17, 13]}
            if k % 2:
                answers = {"text": [], "answer_start": []}
            return {
                "id": f"{split}{k}",
                "title": "Rain",
                "context": CONTEXT,
                "question": f"Where {k}?",
                "answers": answers,
                "is_impossible": bool(k % 2),
            }

    return {
        "local_reviews": LocalReviews,
        "local_scores": LocalScores,
        "local_squad": LocalSquad,
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Folders with the data sets in each file format, made when asked for."""
    made, folders = builders(), {}

    def prepare(name, file_format):
        key = (name, file_format)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp(f"{name}_{file_format}")
            made[name](
                data_dir=str(folders[key]), file_format=file_format
            ).download_and_prepare()
        return folders[key]

    return prepare


@needs_tfds
@pytest.mark.parametrize("file_format", FORMATS)
def test_tfds_classes(prepared, file_format):
    folder = prepared("local_reviews", file_format)
    task = load_task("tfds:local_reviews", data_dir=folder)
    assert (task.kind, task.class_names) == ("classification", ("neg", "pos"))
    assert task.metrics == ("accuracy",)
    assert {k: len(v) for k, v in task.parts.items()} == {
        "train": 10,
        "test": 6,
        "validation": 2,
    }
    assert "2 of the 12 training examples" in task.notes[0]
    part = task.parts["test"]
    assert sorted(part.first) == [f"test café {k}" for k in range(6)]
    for text, label in zip(part.first, part.labels):
        assert label == int(text[-1]) % 2
    options = {"data_dir": folder, "text": "title", "text_pair": "text"}
    part = load_tfds_task("local_reviews", **options).parts["test"]
    for first, second in zip(part.first, part.second):
        assert (first[:6], first[-1]) == ("title ", second[-1])


@needs_tfds
@pytest.mark.parametrize("file_format", FORMATS)
def test_tfds_numbers(prepared, file_format):
    options = {"data_dir": prepared("local_scores", file_format)}
    with pytest.raises(ValueError, match="with `text`, `text_pair`.*a: Text"):
        load_tfds_task("local_scores", **options)
    task = load_tfds_task("local_scores", text="a", text_pair="b", **options)
    assert (task.kind, task.class_names) == ("regression", ())
    assert task.metrics == ("pearson", "spearman")
    part = task.parts["train"]
    for first, second, label in zip(part.first, part.second, part.labels):
        assert first[1:] == second[1:] == str(int(2 * label))
    assert part.labels.dtype == np.float64
    # Labels of the test are secret.
    assert task.parts["test"].labels is None
    for names in ({"text": "a", "label": "a"}, {"text_pair": "b"}):
        with pytest.raises(ValueError, match="Received: features"):
            load_tfds_task("local_scores", **names, **options)


@needs_tfds
@pytest.mark.parametrize("file_format", FORMATS)
def test_tfds_spans(prepared, file_format):
    options = {"data_dir": prepared("local_squad", file_format)}
    task = load_tfds_task("local_squad", **options)
    assert task.kind == "span"
    assert task.has_unanswerable
    part = task.parts["validation"]
    assert sorted(part.ids) == ["validation0", "validation1"]
    label = part.labels[part.ids.index("validation0")]
    assert label == {
        "answers": ["café", "the café"],
        "answer_starts": [17, 13],
        "is_impossible": False,
    }
    assert part.second == [CONTEXT] * 2
    assert task.notes == ()


@needs_tfds
def test_tfds_without_tensorflow(prepared):
    backend = next(
        (b for b in ("jax", "torch") if importlib.util.find_spec(b)), None
    )
    if backend is None:
        pytest.skip("only TensorFlow is installed, which Keras imports itself")
    folders = [
        str(prepared(name, "array_record"))
        for name in ("local_reviews", "local_squad")
    ]
    code = f"""
        import sys
        from mlp_mixers.data.task_sources import load_task
        for name, folder in zip(("reviews", "squad"), {folders!r}):
            task = load_task("tfds:local_" + name, data_dir=folder)
            assert len(task.parts["train"]), task
            assert "tensorflow" not in sys.modules
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        # On TensorFlow, Keras imports it.
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


@needs_tfds
@pytest.mark.parametrize("key", TASKS)
def test_glue_is_the_same_to_tensorflow_datasets(key, tmp_path):
    """Features and classes of the real builders, which are not prepared."""
    builder = tfds.builder(f"glue/{key}", data_dir=tmp_path)
    texts, label = task_sources._keys(builder, None, None, None)
    assert tuple(texts) == TASKS[key].features
    feature = builder.info.features[label]
    if TASKS[key].classes:
        assert tuple(feature.names) == TASKS[key].classes
    else:
        assert np.dtype(feature.np_dtype) == np.float32


@needs_tfds
@pytest.mark.parametrize("name", FILES)
def test_glue_as_tensorflow_datasets_reads_it(name, tmp_path, monkeypatch):
    """Its own builders prepare the same files, and the same comes of them."""
    # They have no word for examples of MNLI without an agreed label.
    made = {
        file: [line for line in lines if not line.endswith("\t-")]
        for file, lines in FILES[name].items()
    }
    folder = write(tmp_path / "files" / name, made)
    msr = "msr_paraphrase_train.txt"
    write(folder, {msr: MSR, "test.txt": [MSR[0], *MSR[5:8]]})
    (folder / "dev_ids.tsv").write_text("7\t57\n3\t53\n")
    files = {"train": msr, "test": "test.txt", "dev_ids": "dev_ids.tsv"}
    manager = tfds.download.DownloadManager
    monkeypatch.setattr(
        manager, "download_and_extract", lambda self, url: tmp_path / "files"
    )
    monkeypatch.setattr(
        manager,
        "download",
        lambda self, urls: {k: folder / files[k] for k in urls},
    )
    key = plain(name)
    task = load_task(f"tfds:glue/{key}", data_dir=str(tmp_path / "tfds"))
    if name == "MRPC":
        (folder / "train.tsv").unlink()
        (folder / "dev.tsv").unlink()
    expected = load_glue(folder)
    assert task.name == f"glue/{key}"
    assert task.metrics == expected.metrics
    assert task.class_names == expected.class_names
    assert set(task.parts) == set(expected.parts)
    for part, examples in task.parts.items():
        if (name, part) == ("MRPC", "test"):
            continue  # theirs hides the labels of a file of another name
        assert rows(examples) == rows(expected.parts[part])


def rows(examples):
    """The examples in an order that does not depend on the files'."""
    count = len(examples)
    second = [None] * count if examples.second is None else examples.second
    labels = [None] * count if examples.labels is None else examples.labels
    return sorted(zip(examples.first, map(str, second), map(str, labels)))


@needs_tfds
def test_what_tensorflow_datasets_makes_up(prepared):
    folder = prepared("local_reviews", "array_record")
    with tfds.testing.mock_data(num_examples=20, data_dir=folder):
        task = load_task("tfds:local_reviews")
    assert len(task.parts["test"]) == 20
    assert all(isinstance(text, str) for text in task.parts["test"].first)


@needs_tfds
def test_tfds_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="xyzzy"):
        load_tfds_task("xyzzy", tmp_path)
    with pytest.raises(ValueError, match="(?s)not prepared.*array_record"):
        load_tfds_task("glue/sst2", tmp_path, download=False)
    with pytest.raises(ValueError, match="needs a feature with the text"):
        load_tfds_task("mnist", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options", [{"reader": "numpy"}, {"validation_fraction": 0}]
)
def test_wrong_arguments(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}="):
        load_tfds_task("glue/sst2", **options)
