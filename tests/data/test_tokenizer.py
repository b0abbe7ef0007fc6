import json
import os
import pickle
import subprocess
import sys

import pytest

from mlp_mixers.data.tokenizer import Tokenizer
from mlp_mixers.data.tokenizer import suggested_vocabulary_size

TEXTS = ["The cat sat on the mat.", "The dog sat on the cat."] * 3


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXTS, vocabulary_size=300)


def ids(tokenizer, text):
    return tokenizer.encode([text])[0].ids


# There and back.


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "the cat",
        "  two  spaces\tand a tab \n",
        "Windows\r\nold Mac\rline ends\n\n",
        "Größe, naïve, São Paulo, Ελληνικά, кириллица",
        "中文，日本語、한국어",
        "e\u0301 against \u00e9",
        "مرحبا שלום",
        "🙂 👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "\U0010ffff\ufffd\ufeff\u2028\u00a0",
        "<mask> <pad><cls></s> <sep>",
        "Ġ and Ċ stand for bytes elsewhere",
        "don't can't I'll 'tis",
        "x" * 100_000,
        "word " * 20_000,
        "".join(map(chr, range(256))),
    ],
)
def test_every_string_comes_back(tokenizer, text):
    assert tokenizer.decode(ids(tokenizer, text)) == text


def test_random_characters_come_back(tokenizer, rng):
    """Any code point but halves of surrogate pairs."""
    points = rng.integers(0, 0x110000 - 0x800, (50, 40))
    points += 0x800 * (points >= 0xD800)
    texts = ["".join(map(chr, row)) for row in points]
    decoded = [tokenizer.decode(e.ids) for e in tokenizer.encode(texts)]
    assert decoded == texts


def test_special_tokens_are_never_read_from_text(tokenizer):
    names = "<pad>", "<cls>", "<sep>", "<mask>"
    assert tokenizer.special_ids == [0, 1, 2, 3]
    by_name = (
        *(tokenizer.pad_id, tokenizer.cls_id),
        *(tokenizer.sep_id, tokenizer.mask_id),
    )
    assert by_name == (0, 1, 2, 3)
    assert tokenizer.tokens(by_name) == list(names)
    learned = Tokenizer.train([" ".join(names)] * 50, vocabulary_size=400)
    copy = Tokenizer.from_config(learned.get_config())
    for each in (tokenizer, learned, copy):
        found = ids(each, "".join(names) + " <mask>")
        assert min(found) > 3
        assert each.decode([1, *found, 2]) == "".join(names) + " <mask>"
    assert tokenizer.decode([1, 3, 0], skip_special_tokens=False) == (
        "<cls><mask><pad>"
    )


def test_offsets_count_characters(tokenizer):
    """Each token's offsets are where its bytes are in the text."""
    text = "The cät 🙂 sat"
    encoding = tokenizer.encode([text])[0]
    assert encoding.offsets[0][0] == 0
    for token, (begin, end) in zip(encoding.ids, encoding.offsets):
        if "\\x" not in tokenizer.token(token):
            assert text[begin:end] == tokenizer.token(token)
        else:
            assert end - begin == 1
            assert text[begin] in "ä🙂"
    assert encoding.offsets[-1][1] == len(text)


def test_words(tokenizer):
    text = "The catalogue, don't"
    encoding = tokenizer.encode([text])[0]
    words = {}
    for word, token in zip(encoding.word_ids, encoding.ids):
        words[word] = words.get(word, "") + tokenizer.token(token)
    assert list(words.values()) == ["The", " catalogue", ",", " don", "'t"]


def test_tokens_are_readable(tokenizer):
    assert tokenizer.tokens(ids(tokenizer, "sat on the")) == [
        *("sat", " on", " the")
    ]
    assert tokenizer.tokens(ids(tokenizer, "é\n")) == ["\\xc3", "\\xa9", "\n"]
    # A byte alone is no character.
    assert tokenizer.decode(ids(tokenizer, "é")[:1]) == "\ufffd"


# Training.


def slow_bpe(words, merges):
    """Byte pair encoding as the paper has it: counts anew for each merge."""
    words = [[*word] for word in words]
    learned = []
    for _ in range(merges):
        counts = {}
        for word in words:
            for pair in zip(word, word[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts.values())
        # One and no more: there is no tie.
        (pair,) = (p for p, count in counts.items() if count == best)
        learned.append("".join(pair))
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == pair:
                    word[i : i + 2] = ["".join(pair)]
                i += 1
    return learned


def test_merges_are_those_of_the_paper():
    """With counts that never tie."""
    counts = {"ab": 13, "abc": 7, "bcd": 5, "cde": 3, "dd": 2}
    words = [word for word, count in counts.items() for _ in range(count)]
    merges = 6
    tokenizer = Tokenizer.train(words, vocabulary_size=260 + merges)
    new = [tokenizer.token(i) for i in range(260, 260 + merges)]
    assert new == slow_bpe(words, merges)


def test_the_size_is_an_upper_bound(tokenizer):
    assert Tokenizer.train(TEXTS, 270).vocabulary_size == 270
    large = Tokenizer.train(TEXTS, 32000)
    # Nothing is left to merge: each word is a token.
    assert 270 < large.vocabulary_size < 300
    assert large.vocabulary_size == tokenizer.vocabulary_size
    assert len(ids(large, TEXTS[0])) == 7
    assert Tokenizer.train(["a b"], 260).vocabulary_size == 260
    assert Tokenizer.train(TEXTS, min_frequency=100).vocabulary_size == 260


@pytest.mark.parametrize(
    ("characters", "size"),
    [
        (1, 512),
        (204_800, 512),
        (464_970, 1160),
        (11_000_000, 27_496),
        (12_799_999, 31_992),
        (12_800_000, 32_000),
        (10**12, 32_000),
    ],
)
def test_suggested_sizes(characters, size):
    assert suggested_vocabulary_size(characters) == size


def test_training_is_the_same_in_another_process(tokenizer):
    code = (
        "from mlp_mixers.data.tokenizer import Tokenizer\n"
        f"print(Tokenizer.train({TEXTS!r}, vocabulary_size=300).digest)"
    )
    other = {"RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "7"}
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **other},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == tokenizer.digest, run.stderr
    assert Tokenizer.train(iter(TEXTS), 300) == tokenizer


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "no text.*Received: 0 texts"),
        (["", " \n\t"], {}, "no text.*2 texts, all of them blank"),
        ("one string", {}, r"not one string: \[text\].*'one string'"),
        (TEXTS, {"vocabulary_size": 259}, "at least 260.*=259"),
        (TEXTS, {"vocabulary_size": 300.5}, "vocabulary_size=300.5"),
        (TEXTS, {"min_frequency": 0}, "min_frequency=0"),
        (["a", None], {}, "text 1 is None"),
        (["fine", "half \ud83d of"], {}, "surrogate.*text 1, position 5"),
    ],
)
def test_training_says_what_is_wrong(texts, options, message):
    with pytest.raises(ValueError, match=message):
        Tokenizer.train(texts, **options)


@pytest.mark.parametrize("value", [0, -1, 2.5, None])
def test_suggestions_need_a_length(value):
    with pytest.raises(ValueError, match=f"num_characters={value!r}"):
        suggested_vocabulary_size(value)


# Use.


def test_encoding_says_what_is_wrong(tokenizer):
    assert tokenizer.encode([]) == []
    with pytest.raises(ValueError, match=r"encode\(\[text\]\).*'a text'"):
        tokenizer.encode("a text")
    with pytest.raises(ValueError, match="text 1 is 3"):
        tokenizer.encode(["a", 3])
    with pytest.raises(ValueError, match="text 0, position 2, around"):
        tokenizer.encode(["ab\udc00", "c"])
    with pytest.raises(ValueError, match="text 0 is"):
        tokenizer.encode([("a", "pair")])


@pytest.mark.parametrize("bad", [-1, 10**6])
def test_ids_that_are_not_there(tokenizer, bad):
    with pytest.raises(ValueError, match=f"Received: {bad}"):
        tokenizer.decode([5, bad])
    with pytest.raises(ValueError, match=f"Received: {bad}"):
        tokenizer.token(bad)


# Files.


def test_saving_and_loading(tokenizer, tmp_path):
    path = tmp_path / "größe.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(str(path))
    copies = (
        *(loaded, Tokenizer.from_config(tokenizer.get_config())),
        pickle.loads(pickle.dumps(tokenizer)),
    )
    for copy in copies:
        assert copy == tokenizer
        assert hash(copy) == hash(tokenizer)
        assert copy.digest == tokenizer.digest
        assert ids(copy, "a <mask> é") == ids(tokenizer, "a <mask> é")
    assert tokenizer != Tokenizer.train(TEXTS, 270)
    assert tokenizer.digest != Tokenizer.train(TEXTS, 270).digest
    assert tokenizer != "tokenizer"
    assert tokenizer.digest in repr(tokenizer)


def test_hugging_face_reads_the_file(tokenizer, tmp_path):
    import tokenizers

    tokenizer.save(tmp_path / "tokenizer.json")
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert other.encode("The cat 🙂").ids == ids(tokenizer, "The cat 🙂")
    assert other.encode("<mask>").ids == [3]


def changed(tokenizer, change):
    config = json.loads(tokenizer.get_config()["json"])
    change(config)
    return json.dumps(config)


def rename_mask(config):
    config["added_tokens"][3]["content"] = "[MASK]"
    vocabulary = config["model"]["vocab"]
    vocabulary["[MASK]"] = vocabulary.pop("<mask>")


def set_part(*keys, value):
    def change(config):
        part = config
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename_mask, r"ids 0, 1, 2, 3. Received: \[0, 1, 2, None\]"),
        (set_part("normalizer", value={"type": "Lowercase"}), "Lowercase"),
        (set_part("pre_tokenizer", "add_prefix_space", value=True), "prefix"),
        (set_part("pre_tokenizer", value={"type": "Whitespace"}), "Whitesp"),
        (set_part("model", "dropout", value=0.1), "dropout"),
        (
            set_part(
                "truncation",
                value={
                    "direction": "Right",
                    "max_length": 5,
                    "strategy": "LongestFirst",
                    "stride": 0,
                },
            ),
            "truncation",
        ),
    ],
)
def test_other_tokenizers_are_refused(tokenizer, tmp_path, change, message):
    path = tmp_path / "other.json"
    path.write_text(changed(tokenizer, change), encoding="utf-8")
    with pytest.raises(ValueError, match=f"(?s)other.json.*{message}"):
        Tokenizer.load(path)


def test_damaged_files_are_named(tokenizer, tmp_path):
    path = tmp_path / "damaged.json"
    tokenizer.save(path)
    whole = path.read_bytes()
    for data in (whole[:-9], b"", b"{}", b"[]", b"\xff\xfe\x00", b"text"):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="damaged.json.*it is damaged"):
            Tokenizer.load(path)
    with pytest.raises(FileNotFoundError, match="missing.json"):
        Tokenizer.load(tmp_path / "missing.json")
