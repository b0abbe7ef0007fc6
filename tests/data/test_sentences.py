import pytest

from mlp_mixers.data.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n\t\n ", []),
        ("One.", ["One."]),
        ("no full stop", ["no full stop"]),
        ("One. Two! Three? Four…  Five.", "One.|Two!|Three?|Four…|Five."),
        ("It was 3.50. It is 3. 50 came.", "It was 3.50.|It is 3. 50 came."),
        ("He left. then came back.", ["He left. then came back."]),
        ('"Go!" She went. "So."', '"Go!"|She went.|"So."'),
        ("“Go.” ‘Why?’ (He knew.) End.", "“Go.”|‘Why?’|(He knew.)|End."),
        ("So it ended. (Almost.)", "So it ended.|(Almost.)"),
        ("Mr. Smith met Dr. No. He ran.", "Mr. Smith met Dr. No.|He ran."),
        ("J. R. Tolkien did. C. S. Lewis?", "J. R. Tolkien did.|C. S. Lewis?"),
        ("The U.S. Army left. We stayed.", "The U.S. Army left.|We stayed."),
        ("I had 3. Élodie had 4.", "I had 3.|Élodie had 4."),
        ("Wait... What? ! Really?! Yes.", "Wait...|What? !|Really?!|Yes."),
        ("v1.2.3 is out. Get it.", "v1.2.3 is out.|Get it."),
        ("End.\u00a0Next.", "End.|Next."),
    ],
)
def test_full_stops(text, sentences):
    if isinstance(sentences, str):
        sentences = sentences.split("|")
    assert split_sentences(text) == sentences


def test_one_sentence_a_line():
    """As in the Brown corpus, headings and quotes included."""
    text = (
        "The jury said `` no evidence '' took place .\n"
        "Merger proposed\n"
        "Mayor Ivan Allen Jr. .\n"
        "`` Only a handful was received '' .\n"
        "What now ? ?\n"
    )
    assert split_sentences(text) == text.strip().split("\n")


def test_wrapped_text():
    text = (
        "Assert statements are a convenient way to insert\n"
        "debugging assertions into a program. They\n"
        "are statements. The rest\n"
        "follows.\n"
        "\n"
        "Heading\n"
        "   \n"
        "New paragraph"
    )
    assert split_sentences(text) == [
        "Assert statements are a convenient way to insert debugging "
        "assertions into a program.",
        "They are statements.",
        "The rest follows.",
        "Heading",
        "New paragraph",
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end):
    text = end.join(["One is.", "Two", "", "Three.", "Four.", ""])
    assert split_sentences(text) == ["One is.", "Two", "Three.", "Four."]


def test_nothing_but_white_space_is_lost(rng):
    """Random text of what the rules look at."""
    parts = [*"aB.!?…\"'“”()[] \n\r\t3,;:", " Mr.", ". A", "é", "\u2028", "🙂"]
    for _ in range(500):
        text = "".join(rng.choice(parts, rng.integers(0, 60)))
        sentences = split_sentences(text)
        assert "".join("".join(sentences).split()) == "".join(text.split())
        for sentence in sentences:
            assert sentence == " ".join(sentence.split())
            assert sentence


@pytest.mark.parametrize(
    "text",
    ["." * 10**5, "\n" * 10**5 + "x", '."' * 10**5, "A. " * 10**5, "x" * 10**6],
)
def test_strange_text_takes_no_quadratic_time(text):
    assert "".join(split_sentences(text)).replace(" ", "") == (
        "".join(text.split())
    )
