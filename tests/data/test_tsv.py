import csv

import numpy as np
import pytest

from mlp_mixers.data.tsv import Table
from mlp_mixers.data.tsv import load_texts
from mlp_mixers.data.tsv import load_tsv
from mlp_mixers.data.tsv import read_text

LINES = ["sentence\tlabel", "a fine film\tgood", "one to avoid\tbad"]


@pytest.fixture
def save(tmp_path):
    def save(content, name="train.tsv"):
        if isinstance(content, list):
            content = "\n".join(content) + "\n"
        if isinstance(content, str):
            content = content.encode("utf-8")
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return save


def load(path, **options):
    """Validates on the same file, unless told otherwise."""
    return load_tsv(path, **{"validation": path, **options})


def test_columns_are_found_by_name(save):
    path = save(["id\tlabel\tnote\tsentence", "q1\tb\t\tone", "q2\ta\t-\ttwo"])
    task = load(path, identifier="id")
    part = task.parts["train"]
    assert (part.first, part.second, part.ids) == (
        ["one", "two"],
        None,
        ["q1", "q2"],
    )
    assert task.class_names == ("a", "b")
    assert part.labels.tolist() == [1, 0]
    assert part.labels.dtype == np.int32
    assert (task.name, task.kind) == ("train.tsv", "classification")
    assert task.metrics == ("accuracy",)
    assert task.notes == ()


def test_pairs(save):
    path = save(["q\tlabel\ta", "why\t1\tbecause", "who\t0\tme"])
    task = load(path, text="q", text_pair="a")
    assert task.is_pair
    assert task.parts["train"].second == ["because", "me"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.rstrip(b"\n"),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text + b"\n\r\n",
        lambda text: text.replace(b"good", b"good\t\t"),
    ],
    ids=["crlf", "no last line end", "mark", "empty lines", "tabs at the end"],
)
def test_the_same_file_in_other_clothes(save, change):
    text = ("\n".join(LINES) + "\n").encode()
    task = load(save(change(text)))
    assert task.parts["train"].first == ["a fine film", "one to avoid"]
    assert task.class_names == ("bad", "good")


def test_characters_that_only_look_like_line_ends(save):
    odd = 'one\u2028two\x85three\x0bfour\x1cfive "six" \r seven'
    task = load(save([*LINES, f"{odd}\tbad"]))
    assert task.parts["train"].first[2] == odd


def test_quotes_mean_nothing_between_tabs(save):
    texts = ['"quoted"', '"open', 'in "the" middle', '""', "'"]
    task = load(save([*LINES, *(f"{text}\tbad" for text in texts)]))
    assert task.parts["train"].first[2:] == texts


def test_csv_is_as_the_csv_module_writes_it(tmp_path):
    texts = ["a, b", 'say "hi"', "two\nlines", "", "x" * 200_000]
    path = tmp_path / "films.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence", "label"])
        writer.writerows([text, k % 2] for k, text in enumerate(texts))
    limit = csv.field_size_limit()
    task = load(path)
    assert csv.field_size_limit() == limit
    assert task.parts["train"].first == texts
    assert task.name == "films.csv"
    assert "1 example has an empty text" in task.notes[0]


def test_broken_quotes(save):
    path = save('sentence,label\n"one,good\ntwo,bad\n', "x.csv")
    with pytest.raises(ValueError, match="quotes in line 2 of.*quotes=False"):
        load(path)
    options = {"quotes": False, "delimiter": ","}
    assert load(path, **options).parts["train"].first == ['"one', "two"]


def test_lines_of_csv_are_counted_in_the_file(save):
    path = save('sentence,label\n"two\nlines",good\nx,bad,y\n', "x.csv")
    with pytest.raises(ValueError, match="Line 4 of.*3 fields"):
        load(path)


def test_missing_columns_are_listed(save):
    path = save(LINES)
    with pytest.raises(ValueError, match="no column 'sentense'.*mean 'sent"):
        load(path, text="sentense")
    with pytest.raises(ValueError, match="are: 'sentence', 'label'"):
        load(path, label="class")
    with pytest.raises(ValueError, match="'class'.*called with `label`"):
        load(path, label="class")
    with pytest.raises(ValueError, match="no column 'other'"):
        load(path, text_pair="other")
    path = save("sentence,label\nx,y\n")
    with pytest.raises(ValueError, match="Is a comma between"):
        load(path)
    with pytest.raises(ValueError, match="Is a tab between"):
        load(save(LINES, "x.csv"))


def test_lines_with_too_few_or_many_fields(save):
    path = save([*LINES, "short", "x\tbad\textra", "fine\tgood", ""])
    with pytest.raises(ValueError, match="Line 4 of.*1 field,.*sentence, lab"):
        load(path)
    task = load(path, bad_lines="skip")
    assert task.parts["train"].first[2:] == ["fine"]
    assert task.parts["train"].ids == ["0", "1", "2"]
    assert "2 lines without the 2 fields" in task.notes[0]
    assert "4, 5" in task.notes[0]


def test_validation_is_cut_from_the_training_examples(save):
    lines = [f"text {i}\t{'ab'[i % 2]}" for i in range(40)]
    path = save(["sentence\tlabel", *lines])
    task = load_tsv(path, validation_fraction=0.25, seed=3)
    assert {k: len(v) for k, v in task.parts.items()} == {
        "train": 30,
        "validation": 10,
    }
    assert task.parts["validation"].labels.mean() == 0.5
    assert "10 of the 40" in task.notes[0]
    again = load_tsv(path, validation_fraction=0.25, seed=3)
    assert again.parts["validation"].ids == task.parts["validation"].ids


@pytest.mark.parametrize(
    "lines",
    [
        ["sentence", "one", "two"],
        ["sentence\tlabel", "one\t", "two\t"],
        ["sentence\tlabel", "one", "two"],
    ],
    ids=["no column", "empty column", "last column missing"],
)
def test_a_test_file_without_labels(save, lines):
    test = save(lines, "test.tsv")
    part = load(save(LINES), test=test).parts["test"]
    assert (part.first, part.labels) == (["one", "two"], None)


def test_a_test_file_with_labels(save):
    test = save(["label\tsentence", "bad\tone"], "test.tsv")
    part = load(save(LINES), test=test).parts["test"]
    assert part.labels.tolist() == [0]
    test = save(["sentence\tlabel", "one\tbad", "two"], "test.tsv")
    with pytest.raises(ValueError, match="Line 3 of.*no label"):
        load(save(LINES), test=test)


@pytest.mark.parametrize("part", ["validation", "test"])
def test_labels_that_are_not_trained(save, part):
    path = save(LINES)
    other = save([*LINES, "x\tugly", "y\tugly", "z\tnice"], "other.tsv")
    with pytest.raises(ValueError) as error:
        load(path, **{part: other})
    message = str(error.value)
    assert "other.tsv has labels" in message
    assert "'bad', 'good'" in message
    assert "'ugly' (line 4), 'nice' (line 6)" in message


def test_classes_in_the_order_wanted(save):
    path = save(LINES)
    task = load(path, class_names=["good", "bad", "ugly"])
    assert task.class_names == ("good", "bad", "ugly")
    assert task.parts["train"].labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"Received: 'bad' \(line 3\)"):
        load(path, class_names=["good", "ugly"])
    with pytest.raises(ValueError, match="every class once"):
        load(path, class_names=["good", "good"])


def test_integers_are_in_the_order_of_numbers(save):
    path = save(["sentence\tlabel", "x\t10", "y\t9", "z\t-1"])
    assert load(path).class_names == ("-1", "9", "10")


def test_numbers_to_predict(save):
    path = save(["sentence\tlabel", "x\t1.5", "y\t-2e3", "z\t 7"])
    task = load(path, regression=True)
    assert task.parts["train"].labels.tolist() == [1.5, -2000, 7]
    assert task.parts["train"].labels.dtype == np.float64
    assert (task.kind, task.class_names) == ("regression", ())
    assert task.metrics == ("pearson", "spearman")


def test_numbers_keep_their_digits(save):
    """float32 has one number for every eight of these."""
    wanted = [100_000_000 + i for i in range(64)]
    lines = [f"text {n}\t{n}" for n in wanted] + ["large\t1e39"]
    labels = load(save(["sentence\tlabel", *lines]), regression=True)
    found = labels.parts["train"].labels
    assert found.tolist() == [*map(float, wanted), 1e39]


def test_white_space_around_a_label_is_no_part_of_it(save):
    path = save([*LINES, "x\t good", "y\tbad ", "z\tgood\u00a0"])
    task = load(path)
    assert task.class_names == ("bad", "good")
    assert task.parts["train"].labels.tolist() == [1, 0, 1, 0, 1]
    with pytest.raises(ValueError, match="Line 4 of.*no label"):
        load(save([*LINES, "x\t  "]))


def test_lines_of_old_macs(save):
    text = "\r".join(LINES) + "\r"
    for name in ("a.tsv", "a.csv"):
        content = text if name == "a.tsv" else text.replace("\t", ",")
        part = load(save(content, name)).parts["train"]
        assert part.first == ["a fine film", "one to avoid"]


def test_columns_without_a_name(save):
    """The first as pandas writes its index, the last by a tab too many."""
    path = save(["\tsentence\t\tlabel\t", "0\tx\t-\tgood", "1\ty\t-\tbad"])
    task = load(path)
    assert task.parts["train"].first == ["x", "y"]
    with pytest.raises(ValueError, match=r"columns are: '', 'sentence', ''"):
        load(path, label="class")
    path = save(["\tsentence\tlabel", "0\tx"])
    with pytest.raises(ValueError, match=r"columns are \(no name\), sentence"):
        load(path)


def test_semicolons_in_a_csv(save):
    path = save("sentence;label\nx;good\ny;bad\n", "x.csv")
    with pytest.raises(ValueError, match="Is a semicolon.*`delimiter=';'`"):
        load(path)
    assert load(path, delimiter=";").class_names == ("bad", "good")


def test_texts_without_labels(save):
    path = save(["id\tone\ttwo", "a\tx\ty", "b\tz\t"])
    examples, notes = load_texts(path, "one", "two", identifier="id")
    assert (examples.first, examples.second) == (["x", "z"], ["y", ""])
    assert (examples.labels, examples.ids, notes) == (None, ["a", "b"], [])
    # A column of labels makes no difference.
    other = save(LINES, "other.tsv")
    assert load_texts(other)[0].first == ["a fine film", "one to avoid"]
    with pytest.raises(ValueError, match="called with `text`"):
        load_texts(path)


def test_a_task_is_called_by_its_files(save):
    train, dev = save(LINES), save(LINES, "dev.tsv")
    assert load(train, validation=dev).name == "train.tsv, dev.tsv"
    assert load(train).name == "train.tsv"


@pytest.mark.parametrize("label", ["", "much", "nan", "inf", "1e400"])
def test_labels_that_are_no_numbers(save, label):
    path = save(["sentence\tlabel", "x\t1", f"y\t{label}"])
    with pytest.raises(ValueError, match=f"line 3 of.*number.*{label!r}"):
        load(path, regression=True)


def test_training_needs_labels(save):
    path = save([*LINES, "x\t"])
    with pytest.raises(ValueError, match="Line 4 of.*no label"):
        load(path)
    path = save(["sentence\tlabel", "x\tgood"])
    with pytest.raises(ValueError, match="with `class_names`.*only 'good'"):
        load(path)
    assert load(path, class_names=("bad", "good")).num_classes == 2
    path = save(["sentence\tlabel", "x\t"])
    with pytest.raises(ValueError, match="two classes.*no label"):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file is empty"),
        (b"sentence\tlabel\n", "no examples in"),
        (b"label\tlabel\nx\ty\n", "every column once"),
        (b"\xff\xfes\x00", "UTF-16"),
    ],
)
def test_files_with_nothing_to_read(save, content, message):
    with pytest.raises(ValueError, match=message):
        load(save(content))


@pytest.mark.parametrize("name", ["bad.tsv", "bad.csv"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_what_is_not_utf_8(save, name, mark):
    before = mark + "sentence,label\nschön,x\ncaf".encode()
    content = before + b"\xe9 noir,y\n"
    with pytest.raises(ValueError) as error:
        load(save(content, name), delimiter=",")
    message = str(error.value)
    assert name in message
    assert f"line 3, byte {len(before)} of" in message
    assert "0xe9" in message
    with pytest.raises(ValueError, match=f"byte {len(before)} "):
        read_text(save(content, name))


def test_paths(save, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="nothing.tsv"):
        load(tmp_path / "nothing.tsv")
    with pytest.raises(ValueError, match="a folder, not a file"):
        load(tmp_path)
    save(LINES)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert load("~/train.tsv").parts


def test_options_that_are_none(save):
    path = save(LINES)
    with pytest.raises(ValueError, match="metrics=.*'pearson'"):
        load(path, metrics=("pearson",))
    assert load(path, metrics="f1").metrics == ("f1",)
    with pytest.raises(ValueError, match="bad_lines='ignore'"):
        load(path, bad_lines="ignore")
    with pytest.raises(ValueError, match="delimiter="):
        load(path, delimiter="ab")
    with pytest.raises(ValueError, match="validation_fraction=2"):
        load(path, validation_fraction=2)


def test_tabs_may_belong_to_the_last_field(save):
    table = Table(save("a\tb\n1\t2\t3\n"), join_last=True)
    assert list(table) == [(2, ["1", "2\t3"])]
