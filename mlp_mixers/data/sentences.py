"""Sentences of English and other text that marks them with full stops."""

import re

OPENING = "\"'“‘«([`"
CLOSING = "\"'”’»)]"
# What a line that is a whole sentence, or a heading with a colon, ends in.
LINE_END = re.compile(rf"[.!?…:;][{re.escape(CLOSING)} ]*$")
BLANK_LINES = re.compile(r"\n\s*\n")
# Full stops with their closing quotes, and the space behind them.
STOP = re.compile(rf"(?<![.!?…])[.!?…]++[{re.escape(CLOSING)}]*+\s(?=\S)")
# Words whose full stop is part of them and that stand before capital letters,
# in small letters.
ABBREVIATIONS = {
    *("mr", "mrs", "ms", "mx", "messrs", "dr", "prof", "rev", "hon", "st"),
    *("gen", "col", "maj", "capt", "cmdr", "lt", "sgt", "gov", "sen", "rep"),
    *("pres", "mt", "ft", "vs", "viz", "cf", "e.g", "i.e", "dept", "univ"),
}


def split_sentences(text):
    """Cuts a text into sentences.

    A sentence ends

    1. at a blank line;
    2. at a line break, if the text is written so: if at least half of the
       lines that another one follows directly end in one of `.!?…:;`, quotes
       and brackets aside. Text with one sentence or paragraph a line is like
       that, wrapped text is not;
    3. after `.`, `!`, `?` or `…` with closing quotes and brackets, before
       white space and a capital letter, perhaps in quotes or brackets; but
       not after a single letter (`J. Smith`, `the U.S. Army`) or one of
       `ABBREVIATIONS` (`Mr. Smith`).

    The rules err on the side of sentences that are too long. Characters stay
    as they are and in their order; white space, as `str.split` sees it,
    becomes one space within a sentence and nothing around it.

    Args:
        text: String.

    Returns:
        List of strings, none of them empty.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = [block.strip("\n") for block in BLANK_LINES.split(text)]
    if _is_line_by_line(blocks):
        blocks = [line for block in blocks for line in block.split("\n")]
    sentences = []
    for block in blocks:
        sentences.extend(_split_at_stops(block))
    return sentences


def _is_line_by_line(blocks):
    """Whether line breaks are ends of sentences rather than of the page."""
    lines = [line for block in blocks for line in block.split("\n")[:-1]]
    ends = sum(
        LINE_END.search(line.rstrip()[-20:]) is not None for line in lines
    )
    return 2 * ends >= len(lines)


def _split_at_stops(block):
    block = " ".join(block.split())
    sentences, start = [], 0
    for stop in STOP.finditer(block):
        following = block[stop.end() : stop.end() + 10].lstrip(OPENING + " ")
        if not following[:1].isupper():
            continue
        before = block[max(stop.start() - 20, 0) : stop.start()]
        if stop.group()[0] == "." and _is_abbreviation(before):
            continue
        sentences.append(block[start : stop.end()].rstrip())
        start = stop.end()
    if start < len(block):
        sentences.append(block[start:])
    return sentences


def _is_abbreviation(before):
    """Whether the last word of `before` is one with a full stop of its own."""
    word = before.rpartition(" ")[2].lstrip(OPENING)
    initial = len(word) == 1 or (len(word) > 1 and word[-2] == ".")
    return (initial and word[-1:].isalpha()) or word.lower() in ABBREVIATIONS
