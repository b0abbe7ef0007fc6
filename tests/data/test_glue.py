import numpy as np
import pytest

from mlp_mixers.data.glue import TASKS
from mlp_mixers.data.glue import load_glue
from mlp_mixers.data.glue import task_named

MNLI_HEAD = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\t"
    "sentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
    "sentence1\tsentence2\t"
)
STSB_HEAD = (
    "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\t"
    "sentence1\tsentence2"
)


def mnli(index, label, votes=1):
    """A line of MNLI with that many annotators' labels before its own."""
    texts = f"Premise {index}\tHypothesis {index}\t"
    labels = "\t".join(["neutral"] * votes + [label])
    return f"{index}\t3\t3n\tslate\t( P )\t( H )\t(R P)\t(R H)\t{texts}{labels}"


# The files of each task as GLUE has them, a few lines of each.
FILES = {
    "CoLA": {
        # No names of columns, but in the test file.
        "train.tsv": [
            "gj04\t1\t\tThe sailors rode the breeze.",
            "gj04\t0\t*\tThey drank the pub.",
            'cj99\t1\t\t"Who is it?", he said.',
        ],
        "dev.tsv": ["gj04\t1\t\tShe left."],
        "test.tsv": ["index\tsentence", "0\tBill pushed it.", "1\tIt pushed."],
    },
    "SST-2": {
        "train.tsv": [
            "sentence\tlabel",
            "a fine film \t1",
            "contains no wit \t0",
        ],
        "dev.tsv": ["sentence\tlabel", "one to avoid \t0"],
        "test.tsv": ["index\tsentence", "0\tuneasy mishmash"],
    },
    "MRPC": {
        "train.tsv": [
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            '1\t70\t71\tHe said " no .\tHe declined .',
            "0\t72\t73\tShares rose .\tShares fell .",
        ],
        "dev.tsv": [
            "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            "1\t80\t81\tIt rained .\tRain fell .",
        ],
        "test.tsv": [
            "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String",
            "0\t90\t91\tOne .\tTwo .",
        ],
    },
    "STS-B": {
        "train.tsv": [
            f"{STSB_HEAD}\tscore",
            "0\tmain\tMSR\t2012\t1\tnone\tnone\tA plane.\tA jet.\t5.000",
            "1\tmain\tMSR\t2012\t4\tnone\tnone\tA man.\tA dog.\t0.25",
        ],
        "dev.tsv": [
            f"{STSB_HEAD}\tscore",
            "0\tmain\tMSR\t2012\t0\tnone\tnone\tA hat.\tA cap.\t3.8",
        ],
        "test.tsv": [
            STSB_HEAD,
            "0\tmain\tMSR\t2012\t0\tnone\tnone\tA girl.\tA boy.",
        ],
    },
    "QQP": {
        "train.tsv": [
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            "133273\t213221\t213222\tHow?\tWhy?\t0",
            # A question with a line end in it: two lines with too few fields.
            "402555\t536040\t536041\tHow do I",
            "live?\tHow to live?\t1",
            '360472\t364011\t490273\tWhat is "it"?\tWhat\'s it?\t1',
        ],
        "dev.tsv": [
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            "201359\t303345\t303346\tWhen?\tWhen is it?\t1",
        ],
        "test.tsv": ["id\tquestion1\tquestion2", "0\tWho?\tWhom?"],
    },
    "MNLI": {
        "train.tsv": [
            f"{MNLI_HEAD}label1\tgold_label",
            mnli(0, "neutral"),
            mnli(1, "entailment"),
            mnli(2, "contradiction"),
        ],
        "dev_matched.tsv": [
            f"{MNLI_HEAD}label1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
            mnli(0, "neutral", 5),
            mnli(1, "-", 5),
            mnli(2, "entailment", 5),
        ],
        "dev_mismatched.tsv": [
            f"{MNLI_HEAD}label1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
            mnli(7, "contradiction", 5),
        ],
        "test_matched.tsv": [
            MNLI_HEAD.rstrip("\t"),
            mnli(0, "", 0).rstrip("\t"),
        ],
        "test_mismatched.tsv": [
            MNLI_HEAD.rstrip("\t"),
            mnli(9, "", 0).rstrip("\t"),
        ],
    },
    "QNLI": {
        "train.tsv": [
            "index\tquestion\tsentence\tlabel",
            '0\tWhen did it start?\tIt began in "1837".\tentailment',
            "1\tWho won?\tNobody knew.\tnot_entailment",
        ],
        "dev.tsv": [
            "index\tquestion\tsentence\tlabel",
            "0\tWhat came?\tA law came.\tentailment",
        ],
        "test.tsv": ["index\tquestion\tsentence", "0\tWhat?\tThat."],
    },
    "RTE": {
        "train.tsv": [
            "index\tsentence1\tsentence2\tlabel",
            "0\tNo weapons were found.\tWeapons were found.\tnot_entailment",
            "1\tIt rained all day.\tIt rained.\tentailment",
        ],
        "dev.tsv": [
            "index\tsentence1\tsentence2\tlabel",
            "0\tShe died.\tShe lived.\tnot_entailment",
        ],
        "test.tsv": ["index\tsentence1\tsentence2", "0\tA b.\tB a."],
    },
    "WNLI": {
        "train.tsv": [
            "index\tsentence1\tsentence2\tlabel",
            "0\tI stuck a pin through it.\tIt had a hole.\t1",
            "1\tJohn saw Bill.\tBill saw.\t0",
        ],
        "dev.tsv": [
            "index\tsentence1\tsentence2\tlabel",
            "0\tThe drain is clogged.\tThe hair is.\t0",
        ],
        "test.tsv": ["index\tsentence1\tsentence2", "0\tMaude.\tDora."],
    },
}
# What comes of them: first, second, labels by name of the training file.
EXPECTED = {
    "CoLA": (
        [
            "The sailors rode the breeze.",
            "They drank the pub.",
            '"Who is it?", he said.',
        ],
        None,
        ["acceptable", "unacceptable", "acceptable"],
    ),
    "SST-2": (
        ["a fine film ", "contains no wit "],
        None,
        ["positive", "negative"],
    ),
    "MRPC": (
        ['He said " no .', "Shares rose ."],
        ["He declined .", "Shares fell ."],
        ["equivalent", "not_equivalent"],
    ),
    "STS-B": (["A plane.", "A man."], ["A jet.", "A dog."], [5.0, 0.25]),
    "QQP": (
        ["How?", 'What is "it"?'],
        ["Why?", "What's it?"],
        ["not_duplicate", "duplicate"],
    ),
    "MNLI": (
        ["Premise 0", "Premise 1", "Premise 2"],
        ["Hypothesis 0", "Hypothesis 1", "Hypothesis 2"],
        ["neutral", "entailment", "contradiction"],
    ),
    "QNLI": (
        ["When did it start?", "Who won?"],
        ['It began in "1837".', "Nobody knew."],
        ["entailment", "not_entailment"],
    ),
    "RTE": (
        ["No weapons were found.", "It rained all day."],
        ["Weapons were found.", "It rained."],
        ["not_entailment", "entailment"],
    ),
    "WNLI": (
        ["I stuck a pin through it.", "John saw Bill."],
        ["It had a hole.", "Bill saw."],
        ["entailment", "not_entailment"],
    ),
}
METRICS = {
    "CoLA": ("matthews",),
    "MRPC": ("f1", "accuracy"),
    "QQP": ("f1", "accuracy"),
    "STS-B": ("pearson", "spearman"),
}


def write(folder, files, change=lambda data: data):
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        data = ("\n".join(lines) + "\n").encode("utf-8")
        (folder / name).write_bytes(change(data))
    return folder


@pytest.fixture
def save(tmp_path):
    """Writes the folder of a task, some of its files as given."""

    def save(task, name=None, change=lambda data: data, **files):
        whole = {
            **FILES[task],
            **{f"{part}.tsv": lines for part, lines in files.items()},
        }
        whole = {k: lines for k, lines in whole.items() if lines is not None}
        return write(tmp_path / (name or task), whole, change)

    return save


def check(task, name):
    """Whether the training part is what the file says."""
    first, second, labels = EXPECTED[name]
    part = task.parts["train"]
    assert part.first == first
    assert part.second == second
    if task.class_names:
        assert [task.class_names[k] for k in part.labels] == labels
        assert part.labels.dtype == np.int32
    else:
        assert part.labels.tolist() == labels
        assert part.labels.dtype == np.float64


@pytest.mark.parametrize("name", FILES)
def test_every_task(save, name):
    task = load_glue(save(name))
    check(task, name)
    assert task.name == name
    assert task.metrics == METRICS.get(name, ("accuracy",))
    assert task.kind == ("regression" if name == "STS-B" else "classification")
    assert len(task.parts["validation"]) == (2 if name == "MNLI" else 1)
    assert task.parts["validation"].labels is not None
    assert task.parts["test"].labels is None
    assert task.parts["test"].ids[0] == "0"
    assert task.parts["test"].first[0]
    assert name in ("QQP", "MNLI") or task.notes == ()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.removesuffix(b"\n"),
        lambda data: b"\xef\xbb\xbf" + data.removeprefix(b"\xef\xbb\xbf"),
        lambda data: data.removeprefix(b"\xef\xbb\xbf"),
        lambda data: data + b"\n\n",
    ],
    ids=["crlf", "no last line end", "mark", "no mark", "empty lines"],
)
def test_every_task_in_other_clothes(save, name, change):
    check(load_glue(save(name, change=change)), name)


@pytest.mark.parametrize("name", [n for n in FILES if n != "CoLA"])
def test_tabs_at_the_end(save, name):
    lines = [
        f"{line}\t\t" if k else line
        for k, line in enumerate(FILES[name]["train.tsv"])
    ]
    if name != "QQP":
        check(load_glue(save(name, train=lines)), name)


def test_ids_are_those_in_the_files(save):
    assert load_glue(save("QQP")).parts["train"].ids == ["133273", "360472"]
    task = load_glue(save("MNLI"))
    assert task.parts["validation"].ids == ["0", "2"]
    assert task.parts["validation_mismatched"].ids == ["7"]
    assert task.parts["test_mismatched"].ids == ["9"]
    assert load_glue(save("CoLA")).parts["train"].ids == ["0", "1", "2"]


def test_broken_lines_of_qqp_are_counted(save):
    (note,) = load_glue(save("QQP")).notes
    assert "train.tsv: 2 lines without the 6 fields" in note
    assert "3, 4" in note


def test_mnli_without_agreement_is_counted(save):
    (note,) = load_glue(save("MNLI")).notes
    assert note.startswith("dev_matched.tsv: 1 without an agreed label")


def test_a_tab_in_a_sentence(save):
    # At the end of a line it can only belong to the sentence.
    lines = ["gj04\t1\t\tOne\ttwo."]
    assert load_glue(save("CoLA", dev=lines)).parts["validation"].first == [
        "One\ttwo."
    ]
    lines = [*FILES["SST-2"]["dev.tsv"], "one\ttwo\t1", "three\t1"]
    task = load_glue(save("SST-2", dev=lines))
    assert task.parts["validation"].first == ["one to avoid ", "three"]
    assert "1 line without the 2 fields of a line left out: 3" in task.notes[0]


def test_empty_sentences_stay_and_are_counted(save):
    lines = [*FILES["SST-2"]["dev.tsv"], "\t1", " \t0"]
    task = load_glue(save("SST-2", dev=lines))
    assert task.parts["validation"].first[1:] == ["", " "]
    assert "dev.tsv: 2 examples have an empty text" in task.notes[0]


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_labels_that_a_test_file_hides(save, hidden):
    lines = ["sentence\tlabel", f"one\t{hidden}", f"two\t{hidden}"]
    task = load_glue(save("SST-2", test=lines))
    assert task.parts["test"].labels is None
    assert task.parts["test"].first == ["one", "two"]


def test_a_test_file_whose_last_column_is_missing(save):
    lines = ["sentence\tlabel", "one", "two"]
    part = load_glue(save("SST-2", test=lines)).parts["test"]
    assert (part.first, part.labels) == (["one", "two"], None)


def test_a_test_file_with_labels(save):
    lines = ["sentence\tlabel", "one\t1", "two\t0"]
    part = load_glue(save("SST-2", test=lines)).parts["test"]
    assert part.labels.tolist() == [1, 0]


def test_a_folder_without_dev(save):
    lines = ["sentence\tlabel", *(f"text {i}\t{i % 2}" for i in range(40))]
    folder = save("SST-2", train=lines, dev=None)
    task = load_glue(folder, validation_fraction=0.25)
    assert len(task.parts["train"]) == 30
    assert len(task.parts["validation"]) == 10
    assert task.parts["validation"].labels.mean() == 0.5
    assert "10 of the 40 training examples serve" in task.notes[0]


def test_a_folder_without_train(save):
    task = load_glue(save("QNLI", train=None))
    assert list(task.parts) == ["validation", "test"]
    assert "nothing to train with" in task.notes[0]


def test_labels_that_occur_in_dev_only(save):
    task = load_glue(save("SST-2", train=FILES["SST-2"]["train.tsv"][:2]))
    assert task.class_names == ("negative", "positive")
    assert task.parts["validation"].labels.tolist() == [0]
    assert "class 'negative' has no examples to train" in task.notes[0]


@pytest.mark.parametrize(
    ("name", "part", "line", "message"),
    [
        ("SST-2", "dev", "x\tpositive", "line 3 of.*0, 1.*'positive'"),
        ("SST-2", "train", "x\t", "line 4 of.*one of 0, 1.*''"),
        ("RTE", "dev", "1\tx\ty\tneutral", "not_entailment.*'neutral'"),
        ("RTE", "dev", "1\tx\ty\t1", "line 3 of.*as RTE has them.*'1'"),
        ("CoLA", "dev", "x\t2\t\ty", "line 2 of.*'2'"),
    ],
)
def test_unknown_labels(save, name, part, line, message):
    lines = [*FILES[name][f"{part}.tsv"], line]
    with pytest.raises(ValueError, match=message) as error:
        load_glue(save(name, **{part: lines}))
    assert f"{part}.tsv" in str(error.value)


@pytest.mark.parametrize("score", ["5.1", "-0.5", "high", "nan", ""])
def test_scores_that_are_none(save, score):
    line = f"1\tmain\tMSR\t2012\t0\tnone\tnone\tA hat.\tA cap.\t{score}"
    lines = [*FILES["STS-B"]["dev.tsv"], line]
    with pytest.raises(ValueError, match=f"line 3 of .*dev.tsv.*{score!r}"):
        load_glue(save("STS-B", dev=lines))


def test_what_is_not_utf_8(save):
    data = "sentence\tlabel\ncafé\t1\n".encode("latin-1")
    folder = save("SST-2")
    (folder / "dev.tsv").write_bytes(data)
    where = data.index(b"\xe9")
    with pytest.raises(ValueError, match=rf"dev.tsv.*line 2, byte {where} "):
        load_glue(folder)


def test_files_of_another_task(save):
    with pytest.raises(ValueError, match="no column 'question1'.*'sentence1'"):
        load_glue(save("RTE"), task="QQP")
    lines = ["sentence\tlabel", *["x y z"] * 20, "x\t1"]
    with pytest.raises(ValueError, match="not look like a file of SST-2.*20"):
        load_glue(save("SST-2", train=lines))
    with pytest.raises(ValueError, match="no column 'sentence'"):
        load_glue(
            save("CoLA", train=["source\tlabel\tmark\ttext", "a\t1\t\tb"])
        )
    with pytest.raises(ValueError, match="no column 'label'"):
        load_glue(save("SST-2", dev=["sentence", "x"]))
    with pytest.raises(ValueError, match="no examples in"):
        load_glue(save("SST-2", dev=["sentence\tlabel"]))


MSR = [
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    *(f"{k % 2}\t{k}\t{k + 50}\tFirst {k} .\tSecond {k} ." for k in range(40)),
]


@pytest.mark.parametrize("crlf", [False, True])
def test_mrpc_as_microsoft_has_it(tmp_path, crlf):
    folder = write(
        tmp_path / "MRPC",
        {
            "msr_paraphrase_train.txt": MSR,
            "msr_paraphrase_test.txt": [MSR[0], *MSR[5:8]],
            "dev_ids.tsv": ["7\t57", "3\t53"],
        },
        lambda data: data.replace(b"\n", b"\r\n") if crlf else data,
    )
    task = load_glue(folder)
    assert task.parts["validation"].first == ["First 3 .", "First 7 ."]
    assert task.parts["validation"].second == ["Second 3 .", "Second 7 ."]
    assert len(task.parts["train"]) == 38
    assert task.parts["test"].labels.tolist() == [0, 1, 0]
    assert task.notes == ()
    (folder / "dev_ids.tsv").write_text("7\t57\n1\t2\n")
    assert "1 pairs are not there" in load_glue(folder).notes[0]
    (folder / "dev_ids.tsv").write_text("1\t2\n")
    with pytest.raises(ValueError, match="None of the pairs"):
        load_glue(folder)
    (folder / "dev_ids.tsv").unlink()
    assert "4 of the 40" in load_glue(folder).notes[0]


def test_mrpc_prefers_the_files_of_glue(save):
    folder = save("MRPC")
    write(folder, {"msr_paraphrase_train.txt": MSR, "dev_ids.tsv": ["7\t57"]})
    check(load_glue(folder), "MRPC")


def test_mnli_as_its_authors_have_it(tmp_path):
    head = "gold_label\tsentence1\tsentence2\tpairID\tlabel1"
    folder = write(
        tmp_path / "multinli_1.0",
        {
            "multinli_1.0_train.txt": [
                head,
                "neutral\tA.\tB.\t31193n\tneutral",
            ],
            "multinli_1.0_dev_matched.txt": [
                head,
                "-\tC.\tD.\t1\tx",
                "neutral\tE.\tF.\t2\tx",
            ],
            "multinli_1.0_dev_mismatched.txt": [
                head,
                "entailment\tG.\tH.\t3\tx",
            ],
        },
    )
    task = load_glue(folder)
    assert task.name == "MNLI"
    assert task.parts["train"].second == ["B."]
    assert task.parts["validation"].first == ["E."]
    assert task.parts["validation_mismatched"].labels.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *((name, name) for name in FILES),
        *((name.lower().replace("-", ""), name) for name in FILES),
        ("SST", "SST-2"),
        ("sts_b", "STS-B"),
        ("glue_SST-2", "SST-2"),
        ("QNLIv2", "QNLI"),
        ("QQP-clean", "QQP"),
        ("MNLI-mm", "MNLI"),
        ("MultiNLI", "MNLI"),
        ("my_rte_data", "RTE"),
    ],
)
def test_what_a_task_may_be_called(save, name, task):
    assert task_named(name) is TASKS[task.lower().replace("-", "")]
    assert load_glue(save(task, name=name)).name == task


@pytest.mark.parametrize("name", ["", "data", "reverted", "rte_and_qqp", "2"])
def test_names_that_mean_no_task(name):
    assert task_named(name) is None


def test_where_a_folder_may_lie(save, tmp_path):
    for name in ("SST-2", "RTE"):
        save(name)
    save("MNLI", name="MNLI/MNLI")
    (tmp_path / "README.txt").write_text("GLUE")
    assert load_glue(tmp_path, task="sst2").name == "SST-2"
    assert load_glue(tmp_path / "sst2").name == "SST-2"
    assert load_glue(tmp_path / "rte").name == "RTE"
    assert load_glue(tmp_path / "MNLI").name == "MNLI"
    assert load_glue(tmp_path, task="MNLI").name == "MNLI"
    with pytest.raises(ValueError, match="folder for each task.*RTE, SST-2"):
        load_glue(tmp_path)
    with pytest.raises(ValueError, match="no file of QQP.*README.txt"):
        load_glue(tmp_path, task="QQP")


def test_tasks_that_cannot_be_told(save, tmp_path):
    folder = save("SST-2", name="films")
    with pytest.raises(ValueError, match="with `task`.*films"):
        load_glue(folder)
    assert load_glue(folder, task="SST-2").name == "SST-2"
    with pytest.raises(ValueError, match="mean 'CoLA'.*task='colla'"):
        load_glue(folder, task="colla")
    with pytest.raises(ValueError, match="task=3"):
        load_glue(folder, task=3)
    with pytest.raises(FileNotFoundError, match="There is no such folder"):
        load_glue(tmp_path / "nothing")
    (tmp_path / "empty" / "RTE").mkdir(parents=True)
    with pytest.raises(ValueError, match="an empty folder"):
        load_glue(tmp_path / "empty" / "RTE")
    with pytest.raises(ValueError, match="validation_fraction=0"):
        load_glue(folder, validation_fraction=0)
