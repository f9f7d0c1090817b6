"""domain: lines of a log: read in bounded pieces, escaped, searched and followed.

The content of a log is untrusted: escape sequences, control characters and direction overrides are
escaped before a line leaves this module.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST_LINE: Final = 16 * 1024  # bytes; longer lines come in pieces
_BLOCK: Final = 64 * 1024
_MOST_HITS: Final = 20  # of a line that are marked
_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))(?: |$)")
_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^_`-~])"
)
_TURNS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_BREAKS: Final = "\x85\u2028\u2029\ufeff"
_SHOWN: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) != "\t"},
    0x7F: "\u2421",
    **{code: f"<U+{code:04X}>" for code in range(0x80, 0xA0)},
    **{ord(each): f"<U+{ord(each):04X}>" for each in _TURNS + _BREAKS},
}
_FIELDS: Final = re.compile(r"[0-9a-f]{16}~[0-9TZ:.+-]{20,40}")


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or a piece of a long line. `at` is as the kubelet wrote it, empty if it wrote
    none."""

    at: str
    text: str
    begins: bool = True
    ends: bool = True

    @property
    def mark(self) -> str:
        """Return the mark by which a later reading finds the line: a digest of its text, and its
        time."""
        return f"{hashlib.sha256(self.text.encode()).hexdigest()[:16]}~{self.at}"


def read_lines(chunks: Iterable[bytes]) -> Iterator[Line]:
    """Yield the lines of a log with timestamps; no piece is longer than LONGEST_LINE bytes."""
    rest, at, begins = b"", "", True
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        for raw in complete:
            yield from _pieces(raw, at, begins=begins, ends=True)
            at, begins = "", True
        while len(rest) > LONGEST_LINE:
            end = _end_of_piece(rest)
            piece, rest = rest[:end], rest[end:]
            line = _line(piece, at, begins=begins, ends=False)
            yield line
            at, begins = line.at, False
    if rest or not begins:
        yield from _pieces(rest, at, begins=begins, ends=True)


def _pieces(raw: bytes, at: str, *, begins: bool, ends: bool) -> Iterator[Line]:
    while len(raw) > LONGEST_LINE:
        end = _end_of_piece(raw)
        line = _line(raw[:end], at, begins=begins, ends=False)
        yield line
        raw, at, begins = raw[end:], line.at, False
    yield _line(raw, at, begins=begins, ends=ends)


def _end_of_piece(raw: bytes) -> int:
    """Return where a line that is too long is cut: not within a character of UTF-8."""
    ends = range(LONGEST_LINE, LONGEST_LINE - 4, -1)
    return next((end for end in ends if raw[end] & 0xC0 != 0x80), LONGEST_LINE)


def _line(raw: bytes, at: str, *, begins: bool, ends: bool) -> Line:
    if begins and (found := _STAMP.match(raw)):
        at, raw = found[1].decode(), raw[found.end() :]
    return Line(at, make_safe(raw.decode(errors="replace")), begins, ends)


def make_safe(text: str) -> str:
    """Return one line without colours; of a line that was written again and again (a progress bar)
    the last state; other control characters and what turns text around as visible signs."""
    visible = text.rstrip("\r").rpartition("\r")[2]
    if visible.isascii() and visible.isprintable():
        return visible
    return _ESCAPES.sub("", visible).translate(_SHOWN)


def newest(lines: Iterable[Line], most: int, most_bytes: int) -> tuple[list[Line], bool]:
    """Return the last `most` lines in at most `most_bytes`, long lines cut, and whether the bytes
    were too few for older lines."""
    lines_kept: deque[Line] = deque()
    size, dropped = 0, False
    for line in lines:
        if not line.begins:
            continue
        lines_kept.append(line)
        size += len(line.text)
        while len(lines_kept) > most or size > most_bytes:
            dropped = dropped or len(lines_kept) <= most
            size -= len(lines_kept.popleft().text)
    return list(lines_kept), dropped


def after(lines: list[Line], mark: str) -> tuple[list[Line], bool]:
    """Return the lines behind the last line with this mark, and whether it was there; if it is
    gone, the younger lines."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].mark == mark:
            return lines[index + 1 :], True
    since = instant_of(mark)
    younger = [line for line in lines if since is None or (_instant(line.at) or since) > since]
    return younger, False


def is_mark(text: str) -> bool:
    """Return whether `text` may be a line's mark."""
    return _FIELDS.fullmatch(text) is not None and instant_of(text) is not None


def instant_of(mark: str) -> datetime | None:
    """Return when the line with this mark was written."""
    return _instant(mark.partition("~")[2])


def _instant(at: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def hits_of(lines: Iterable[Line], words: str) -> Iterator[tuple[Line, list[tuple[str, bool]]]]:
    """Yield the lines that contain `words` (upper or lower case), in parts: text, and whether it
    is a hit. Without words, all lines."""
    wanted = re.compile(re.escape(words), re.IGNORECASE) if words else None
    for line in lines:
        if wanted is None:
            yield line, [(line.text, False)]
            continue
        parts, place = [], 0
        for found in islice(wanted.finditer(line.text), _MOST_HITS):
            parts += [(line.text[place : found.start()], False), (found[0], True)]
            place = found.end()
        if parts:
            yield line, [*parts, (line.text[place:], False)]


class Closing(Protocol):
    """Lines from something that is to be closed."""

    def __iter__(self) -> Iterator[Line]: ...

    def close(self) -> None: ...


class AsText:
    """Lines as they are written to a file, in blocks; `stamped`: each with its time before it."""

    def __init__(self, lines: Closing, *, stamped: bool = False) -> None:
        self._lines, self._stamped = lines, stamped

    def __iter__(self) -> Iterator[bytes]:
        block = bytearray()
        for line in self._lines:
            stamp = f"{line.at} " if self._stamped and line.begins else ""
            end = "\n" if line.ends else ""
            block += f"{stamp}{line.text}{end}".encode()
            if len(block) >= _BLOCK:
                yield bytes(block)
                block.clear()
        yield bytes(block)

    def close(self) -> None:
        """Close the source of the lines."""
        self._lines.close()


class AsJson(AsText):
    """Lines as JSON objects, one each; a long line is in pieces that say so."""

    def __iter__(self) -> Iterator[bytes]:
        block = bytearray()
        for line in self._lines:
            found: dict[str, object] = {"time": line.at or None, "text": line.text}
            if not line.ends:
                found["continues"] = True
            block += f"{json.dumps(found, ensure_ascii=False)}\n".encode()
            if len(block) >= _BLOCK:
                yield bytes(block)
                block.clear()
        yield bytes(block)


class KeptLines:
    """Lines that were kept without their times."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __iter__(self) -> Iterator[Line]:
        return (Line("", make_safe(line)) for line in self._text.split("\n"))

    def close(self) -> None:
        """Nothing is open."""
