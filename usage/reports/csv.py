"""io: CSV files streamed out of PostgreSQL by COPY in constant memory, and their other forms.

The other forms, for Excel and as JSON lines, are made while the file is streamed.
"""

from __future__ import annotations

import codecs
import csv
import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.waiting import Wait

from ipuhub.text import plain_text
from usage.reports.columns import NUMBERS, YES_OR_NO
from usage.sums.measures import TOTAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn

BLOCK_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024
"""Size of a stored piece of a file."""
IN_ORDER = (
    "SET LOCAL enable_seqscan = off;"
    " SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off;"
    " SET LOCAL max_parallel_workers_per_gather = 0"
)
"""Makes the planner take the lines from the indexes in their order, so that the first one leaves
at once; sorting the month first would be as fast in all, but silent for seconds.

What is off is only dearer to the planner, and each part of the details has an index in its order:
no plan takes one of these ways (test_report_plans.py), which would count as very dear and so
distort every other choice. It ends with the transaction of the download."""


def copy_csv(
    connection: psycopg.Connection[Any], query: str, parameters: Mapping[str, Any]
) -> Iterator[bytes]:
    """Yield the rows of `query` as CSV, in blocks of about 64 KiB.

    Reads libpq directly: psycopg's own iterator costs more for a line than the server needs to
    make it. The waits are the connection's own, with its limit on silence. Raises psycopg.Error,
    which leaves the connection in a failed transaction as any error does; otherwise it is of no use
    until the last block was taken.
    """
    text = psycopg.ClientCursor(connection).mogrify(
        f"COPY ({query}) TO STDOUT (FORMAT csv)", parameters
    )
    libpq = connection.pgconn
    libpq.send_query(text.encode())
    _expect(libpq, connection.wait(generators.execute(libpq))[-1], ExecStatus.COPY_OUT)
    try:
        yield from _blocks(connection)
        for result in connection.wait(generators.fetch_many(libpq)):
            _expect(libpq, result, ExecStatus.COMMAND_OK)
    except psycopg.Error:
        if libpq.status == ConnStatus.OK:  # else the rollback would find the connection busy
            connection.wait(generators.fetch_many(libpq))
        raise


def copy_all(
    connection: psycopg.Connection[Any], queries: Iterable[str], parameters: Mapping[str, Any]
) -> Iterator[bytes]:
    """Yield the rows of one query after the other, as `copy_csv` does. Raises psycopg.Error."""
    for query in queries:
        yield from copy_csv(connection, query, parameters)


def _blocks(connection: psycopg.Connection[Any]) -> Iterator[bytes]:
    libpq = connection.pgconn
    # The first lines are sent alone, because the client waits for them.
    lines: list[memoryview] = []
    size, limit = 0, 1
    while True:
        length, line = libpq.get_copy_data(1)
        if length > 0:
            lines.append(line)
            size += length
            if size >= limit:
                yield b"".join(lines)
                lines, size, limit = [], 0, BLOCK_BYTES
        elif length == 0:
            connection.wait(_more())
            libpq.consume_input()
        else:
            break
    if lines:
        yield b"".join(lines)


def _more() -> PQGen[None]:
    """Wait for the next bytes."""
    while not (yield Wait.R):
        pass  # woken up to look for signals


def _expect(libpq: PGconn, result: Any, status: ExecStatus) -> None:
    if result.status != status:
        raise psycopg.OperationalError(libpq.error_message.decode(errors="replace").strip())


class CsvStream:
    """A file as an iterable of blocks, over its own connection; `form` converts the blocks.

    `close` ends connection and query at any time; the web server calls it when the client
    disconnects.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        head: str,
        blocks: Iterator[bytes],
        form: Callable[[Iterator[bytes]], Iterator[bytes]] | None = None,
    ) -> None:
        self._connection = connection
        content = chain([head.encode()] if head else [], blocks)
        self._blocks = form(content) if form else content

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._blocks
        finally:
            self.close()

    def close(self) -> None:
        """Give the connection up; the server ends the query with it."""
        self._connection.close()


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
    """Yield a CSV file without its line of totals, if any."""
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
    """Return the function that converts a file into that form."""

    def changed(blocks: Iterable[bytes]) -> Iterator[bytes]:
        rows = blocks if total else without_total(blocks)
        yield from for_excel(rows) if excel else rows

    return changed


def json_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each line as a JSON object: numbers digit for digit, Y and N as booleans.

    The line of totals is left out: programs add up the objects. Names are unchanged, without the
    apostrophe that keeps a spreadsheet from executing them.
    """
    rows = csv.reader(_lines(blocks))
    names = next(rows, [])
    details = "seconds" in names
    fields = [(json.dumps(name) + ": ", _printer(name, details)) for name in names]
    held: list[str] = []
    for row in rows:
        if row[0] == TOTAL:
            continue
        cells = (name + encode(cell) for (name, encode), cell in zip(fields, row, strict=True))
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
    """Yield the text by lines, each with its end, regardless of block boundaries."""
    rest = b""
    for block in blocks:
        *complete, rest = (rest + block).split(b"\n")
        for line in complete:
            yield line.decode() + "\n"
    if rest:
        yield rest.decode()
