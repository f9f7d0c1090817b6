"""Lines of a log: independent of the size of pieces, with every control byte escaped."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.job.loglines import (
    LONGEST_LINE,
    AsText,
    KeptLines,
    Line,
    after,
    hits_of,
    is_mark,
    make_safe,
    newest,
    read_lines,
)

STAMP = "2026-11-23T10:00:0{}.123456789Z"


def lines(*texts: str) -> list[Line]:
    return [Line(STAMP.format(number), text) for number, text in enumerate(texts)]


@given(
    data=st.binary(max_size=200).map(lambda raw: raw.replace(b"\x01", b"\n")),
    cuts=st.lists(st.integers(0, 200), max_size=5),
)
def test_lines_do_not_depend_on_how_they_come(data: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    assert list(read_lines(pieces)) == list(read_lines([data]))


@pytest.mark.parametrize("size", [1, 1000, LONGEST_LINE, 10 * LONGEST_LINE])
def test_a_long_line_comes_in_pieces_that_make_it_again(size: int) -> None:
    text = "ab" * (2 * LONGEST_LINE)
    raw = f"{STAMP.format(1)} {text}\n{STAMP.format(2)} next\n".encode()
    found = list(read_lines(raw[at : at + size] for at in range(0, len(raw), size)))
    assert max(len(line.text) for line in found) <= LONGEST_LINE
    assert "".join(line.text for line in found[:-1]) == text
    assert {line.at for line in found[:-1]} == {STAMP.format(1)}
    assert [line.ends for line in found] == [*[False] * (len(found) - 2), True, True]
    assert found[-1] == Line(STAMP.format(2), "next")


@given(st.text())
def test_no_character_that_does_something_is_left(text: str) -> None:
    safe = make_safe(text.replace("\n", ""))
    assert [c for c in safe if c != "\t" and not c.isprintable() and ord(c) < 0xA0] == []
    assert (
        set(safe) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
        == set()
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10 %\r50 %\r100 %\r", "100 %"),
        ("a\x00b\x7f", "a\u2400b\u2421"),
        ("a\u202eb\u2028c\x85d", "a<U+202E>b<U+2028>c<U+0085>d"),
        ("tab\tstays, so do é and 漢字", "tab\tstays, so do é and 漢字"),
        ("half an escape \x1b", "half an escape \u241b"),
    ],
)
def test_colours_go_and_the_rest_is_seen(text: str, want: str) -> None:
    assert make_safe(text) == want


def test_the_newest_lines_fit_into_the_room() -> None:
    assert newest(lines("a", "b", "c"), 2, 100) == (lines("a", "b", "c")[1:], False)
    kept, is_cut = newest(lines("aaaa", "bb", "cc"), 10, 5)
    assert ([line.text for line in kept], is_cut) == (["bb", "cc"], True)


def test_what_follows_a_mark_follows_it_wherever_it_is() -> None:
    a, b, c = lines("same", "same", "c")
    assert after([a, b, c], b.mark) == ([c], True)
    assert after([a, b, c], c.mark) == ([], True)
    twice = [a, a, c]
    assert after(twice, a.mark) == ([c], True)
    rotated = Line(STAMP.format(0), "gone")
    assert after([a, b, c], rotated.mark) == ([b, c], False)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (Line(STAMP.format(1), "x").mark, True),
        ("0" * 16 + "~2026-11-23T10:00:00Z", True),
        ("0" * 16 + "~2026-11-23T10:00:00", False),
        ("0" * 16 + "~2026-13-23T10:00:00Z", False),
        ("x~2026-11-23T10:00:00Z", False),
        ("", False),
    ],
)
def test_a_mark_is_known_by_its_form(text: str, want: bool) -> None:
    assert is_mark(text) is want


def test_hits_are_found_in_any_case_and_as_they_are_written() -> None:
    found = list(hits_of(lines("Loss 1.0", "nothing", "a loss, a LOSS"), "loss"))
    assert [parts for _, parts in found] == [
        [("", False), ("Loss", True), (" 1.0", False)],
        [("a ", False), ("loss", True), (", a ", False), ("LOSS", True), ("", False)],
    ]
    assert list(hits_of(lines("axb"), "a.b")) == []
    (_, many) = next(hits_of(lines("a" * 1000), "a"))
    assert sum(is_hit for _, is_hit in many) == 20
    assert "".join(text for text, _ in many) == "a" * 1000


def test_what_was_kept_is_a_log_too() -> None:
    assert b"".join(AsText(KeptLines("one\ntwo"))) == b"one\ntwo\n"


@pytest.mark.parametrize("size", [1000, 10 * LONGEST_LINE])
@pytest.mark.parametrize("character", ["\u00e4", "\u20ac", "\U0001f600"])
def test_a_long_line_is_not_cut_within_a_character(size: int, character: str) -> None:
    for before in range(4):
        text = "x" * before + character * LONGEST_LINE
        raw = text.encode()
        found = [*read_lines(raw[at : at + size] for at in range(0, len(raw), size))]
        assert "".join(line.text for line in found) == text
        assert max(len(line.text.encode()) for line in found) <= LONGEST_LINE
