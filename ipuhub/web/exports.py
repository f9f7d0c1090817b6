"""glue: streaming of a table as CSV, JSON and JSON lines, with all filtered rows."""

from __future__ import annotations

import csv
import datetime as dt
import json
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.http import StreamingHttpResponse

from ipuhub.text import safe_cell
from ipuhub.web.filters import BadFilter, Mistake
from ipuhub.web.totals import Totals, add_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ipuhub.web.columns import Column

FORMATS = ("csv", "json", "jsonl")
CHUNK_ROWS = 2000


def known_format(kind: str) -> str:
    """Return the value of `?format=`, empty for the page. Raise BadFilter if unknown."""
    if kind and kind not in FORMATS:
        sentence = f"{kind[:50]!r} is not one of {', '.join(FORMATS)}."
        raise BadFilter(Mistake("format", sentence))
    return kind


class _Line:
    """File whose `write` returns the text."""

    def write(self, text: str) -> str:
        return text


def export(
    kind: str,
    columns: Sequence[Column],
    rows: Iterable[Any],
    file_name: str,
    *,
    has_total: bool = True,
) -> StreamingHttpResponse:
    """Return the rows as CSV or JSON lines (downloads), or as a JSON array, by `kind`.

    `has_total`: the CSV of columns that add up ends with their line of totals.
    """
    if kind == "csv":
        lines = csv_lines(columns, rows, has_total=has_total)
        return _download(lines, "text/csv", f"{file_name}.csv")
    if kind == "jsonl":
        records = ({column.key: column.value(row) for column in columns} for row in rows)
        return lines_download(records, file_name)
    return StreamingHttpResponse(json_array(columns, rows), content_type="application/json")


def lines_download(
    records: Iterable[Mapping[str, object]], file_name: str
) -> StreamingHttpResponse:
    """Return records as a download of JSON lines."""
    return _download(json_lines(records), "application/x-ndjson", f"{file_name}.jsonl")


def _download(lines: Iterable[str], kind: str, file_name: str) -> StreamingHttpResponse:
    answer = StreamingHttpResponse(lines, content_type=kind)
    answer["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return answer


def in_chunks(rows: Iterable[Any], prepare: Callable[[Sequence[Any]], None]) -> Iterator[Any]:
    """Yield the rows of a file; `prepare` is called on each chunk first."""
    waiting = iter(rows)
    while chunk := list(islice(waiting, CHUNK_ROWS)):
        prepare(chunk)
        yield from chunk


def csv_lines(columns: Sequence[Column], rows: Iterable[Any], *, has_total: bool) -> Iterator[str]:
    """Yield the table as CSV; text that a spreadsheet would evaluate is escaped."""
    writer = csv.writer(_Line())
    totals = Totals(columns) if has_total and add_up(columns) else None
    yield writer.writerow([column.key for column in columns])
    for row in rows:
        cells = [column.value(row) for column in columns]
        if totals:
            totals.add(row, cells)
        yield writer.writerow(map(_csv_cell, cells))
    if totals and (line := totals.cells):
        yield writer.writerow(map(_csv_cell, line))


def json_lines(records: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield one JSON object a line."""
    for record in records:
        plain = {name: _plain(value) for name, value in record.items()}
        yield json.dumps(plain, ensure_ascii=False) + "\n"


def json_array(columns: Sequence[Column], rows: Iterable[Any]) -> Iterator[str]:
    """Yield the table as a JSON array with one object in each line."""
    before = "[\n"
    for row in rows:
        record = {column.key: _plain(column.value(row)) for column in columns}
        yield before + json.dumps(record, ensure_ascii=False)
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def _csv_cell(value: object) -> str:
    plain = _plain(value)
    if plain is None:
        return ""
    return safe_cell(plain) if isinstance(plain, str) else str(plain)


def _plain(value: object) -> object:
    """Return text, a number, a truth value or None; instants in UTC with a Z."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    return value
