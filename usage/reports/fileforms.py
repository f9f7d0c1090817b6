"""domain: other forms of a CSV file that is being streamed: for Excel, and as JSON lines."""

from __future__ import annotations

import codecs
import csv
import json
from typing import TYPE_CHECKING

from ipuhub.csvsafe import plain_text
from usage.reports.columns import NUMBERS, TOTAL, YES_OR_NO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FORMATS = ("csv", "jsonl")
_LONGEST_TOTAL = 4096


def for_excel(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the file with a byte-order mark and CRLF line ends, as Excel wants it.

    A line end inside of quotes belongs to a name and stays.
    """
    yield codecs.BOM_UTF8
    quoted = False
    for block in blocks:
        parts = block.split(b'"')
        for number, part in enumerate(parts):
            if number:
                quoted = not quoted
            if not quoted:
                parts[number] = part.replace(b"\n", b"\r\n")
        yield b'"'.join(parts)


def without_total(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a CSV file without its line of totals, where it ends with one."""
    held = b""
    for block in blocks:
        held += block
        if len(held) > _LONGEST_TOTAL:
            yield held[:-_LONGEST_TOTAL]
            held = held[-_LONGEST_TOTAL:]
    rest, end, last = held.removesuffix(b"\n").rpartition(b"\n")
    is_total = last.startswith(f"{TOTAL},".encode()) and b'"' not in last
    yield rest + end if is_total else held


def csv_form(*, excel: bool, total: bool) -> Callable[[Iterable[bytes]], Iterator[bytes]]:
    """Return what changes a file into that form of it."""

    def changed(blocks: Iterable[bytes]) -> Iterator[bytes]:
        kept = blocks if total else without_total(blocks)
        yield from for_excel(kept) if excel else kept

    return changed


def json_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each line as a JSON object: numbers digit for digit, Y and N as truth values.

    The line of totals is none: who reads objects adds them up.

    Names are as they were: without the apostrophe that keeps a spreadsheet from running them.
    """
    rows = csv.reader(_lines(blocks))
    names = next(rows, [])
    details = "seconds" in names
    fields = [(json.dumps(name) + ": ", _printer(name, details)) for name in names]
    held: list[str] = []
    for row in rows:
        if row[0] == TOTAL:
            continue
        cells = (name + shown(cell) for (name, shown), cell in zip(fields, row, strict=True))
        held.append("{" + ", ".join(cells) + "}\n")
        if len(held) == 500:
            yield "".join(held).encode()
            held.clear()
    yield "".join(held).encode()


def _printer(name: str, details: bool) -> Callable[[str], str]:
    if name in YES_OR_NO or (details and name == "estimated"):
        return lambda cell: "true" if cell == "Y" else "false"
    if name in NUMBERS:
        return lambda cell: cell or "null"
    return lambda cell: json.dumps(plain_text(cell), ensure_ascii=False)


def _lines(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield the text by lines, each with its end, wherever the blocks are cut."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line.decode() + "\n"
    if rest:
        yield rest.decode()
