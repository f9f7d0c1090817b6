"""glue: streaming of a table as CSV, JSON and JSON lines, with all filtered rows.

Slots that limit how many files the web process streams at the same time.

A streamed response occupies a thread, CPU time and often a database connection while it is
generated; the server buffers the part that its reader has not taken yet. Without a limit, a few
dozen large files would occupy every thread, and one user could occupy all slots.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import time
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
from django.conf import settings
from django.http import StreamingHttpResponse

from ipuhub.text import safe_cell
from ipuhub.web.filters import BadFilter
from ipuhub.web.problems import busy
from ipuhub.web.requests import client_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

FORMATS = ("csv", "json", "jsonl")


def known_format(kind: str) -> str:
    """Return the value of `?format=`, empty for the page. Raise BadFilter if unknown."""
    if kind and kind not in FORMATS:
        raise BadFilter([f"format: {kind[:50]!r} is not one of {', '.join(FORMATS)}."])
    return kind


class ExportColumn(Protocol):
    """Interface of a column for exports."""

    @property
    def key(self) -> str:
        """The CSV heading and JSON key."""
        ...

    @property
    def value(self) -> Callable[[Any], object]:
        """Take the plain value from a row."""
        ...


class _Line:
    """File whose `write` returns the text."""

    def write(self, text: str) -> str:
        return text


def export(
    kind: str, columns: Sequence[ExportColumn], rows: Iterable[Any], file_name: str
) -> StreamingHttpResponse:
    """Return the rows as CSV or JSON lines (downloads), or as a JSON array, by `kind`."""
    if kind == "csv":
        answer = StreamingHttpResponse(csv_lines(columns, rows), content_type="text/csv")
        answer["Content-Disposition"] = f'attachment; filename="{file_name}.csv"'
        return answer
    if kind == "jsonl":
        records = ({column.key: column.value(row) for column in columns} for row in rows)
        return lines_download(records, file_name)
    return StreamingHttpResponse(json_array(columns, rows), content_type="application/json")


def lines_download(
    records: Iterable[Mapping[str, object]], file_name: str
) -> StreamingHttpResponse:
    """Return records as a download of JSON lines."""
    answer = StreamingHttpResponse(json_lines(records), content_type="application/x-ndjson")
    answer["Content-Disposition"] = f'attachment; filename="{file_name}.jsonl"'
    return answer


def csv_lines(columns: Sequence[ExportColumn], rows: Iterable[Any]) -> Iterator[str]:
    """Yield the table as CSV; text that a spreadsheet would evaluate is escaped."""
    writer = csv.writer(_Line())
    yield writer.writerow([column.key for column in columns])
    for row in rows:
        yield writer.writerow([_csv_cell(column.value(row)) for column in columns])


def json_lines(records: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """Yield one JSON object a line."""
    for record in records:
        plain = {name: _plain(value) for name, value in record.items()}
        yield json.dumps(plain, ensure_ascii=False) + "\n"


def json_array(columns: Sequence[ExportColumn], rows: Iterable[Any]) -> Iterator[str]:
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


log = structlog.get_logger(__name__)
RETRY_SECONDS: Final = 5
_FULL: Final = f"The server is busy with other downloads. Try again in {RETRY_SECONDS} seconds."
_YOURS: Final = (
    f"You have reached the limit of simultaneous downloads. Wait for a download to finish, or try "
    f"again in {RETRY_SECONDS} seconds."
)


def slots(downloads: int, threads: int) -> int:
    """Return how many of `threads` may stream; one thread always stays free for pages and
    probes."""
    return max(1, min(downloads, threads - 1))


class Slots:
    """`count` slots; if there are several, one owner gets at most all but one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._each = max(1, count - 1)
        self._taken: Counter[str] = Counter()
        self._lock = Lock()

    def take(self, owner: str) -> str:
        """Take a slot; return the reason if there is none."""
        with self._lock:
            if self._taken.total() >= self.count:
                return _FULL
            if self._taken[owner] >= self._each:
                return _YOURS
            self._taken[owner] += 1
            return ""

    def give(self, owner: str) -> None:
        with self._lock:
            self._taken[owner] -= 1
            self._taken += Counter()  # forgets who has none


class DownloadSlots:
    """Middleware: reject a streamed response with 503 and `Retry-After` while all slots are taken,
    or the user has all but one.

    A slot is released when its response is finished or closed, including by a client that
    disconnects. A response that is not finished after WEB_DOWNLOAD_SECONDS is aborted.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response
        self._slots = Slots(slots(settings.WEB_DOWNLOADS, settings.WEB_THREADS))
        self._is_full = False  # said once each time, not for each of a crowd

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self._get_response(request)
        if not answer.streaming:
            return answer
        streamed: StreamingHttpResponse = answer  # type: ignore[assignment]  # that is what it says
        owner = _owner(request)
        if why := self._slots.take(owner):
            streamed.close()
            return self._refuse(request, why)
        blocks: Iterator[bytes] = iter(streamed)
        deadline = time.monotonic() + settings.WEB_DOWNLOAD_SECONDS
        streamed.streaming_content = _Held(blocks, lambda: self._release(owner), deadline)
        return streamed

    def _refuse(self, request: HttpRequest, why: str) -> HttpResponseBase:
        if why == _FULL and not self._is_full:
            self._is_full = True
            log.warning("downloads are rejected until a slot is free", downloads=self._slots.count)
        refusal = busy(request, why)
        refusal["Retry-After"] = str(RETRY_SECONDS)
        refusal._has_been_logged = True  # type: ignore[attr-defined]  # noqa: SLF001  # else Django logs an error for each
        return refusal

    def _release(self, owner: str) -> None:
        self._is_full = False
        self._slots.give(owner)


def _owner(request: HttpRequest) -> str:
    """Return the owner of the download: the user, or else the address."""
    user = getattr(request, "user", None)
    if user is not None and user.is_authenticated:
        return f"user {user.pk}"
    return f"address {client_address(request, settings.TRUSTED_PROXIES)}"


class DownloadTooSlow(Exception):  # noqa: N818  # the reader's doing
    """The reader is too slow, and the server aborts the connection."""


class _Held:
    """The blocks of a response; closing it releases the slot, once."""

    def __init__(
        self, blocks: Iterator[bytes], release: Callable[[], None], deadline: float
    ) -> None:
        self._blocks, self._release, self._deadline = blocks, release, deadline
        self._is_held = True

    def __iter__(self) -> Iterator[bytes]:
        for block in self._blocks:
            if time.monotonic() > self._deadline:
                raise DownloadTooSlow("a download took longer than IPUHUB_WEB_DOWNLOAD_SECONDS")
            yield block

    def close(self) -> None:
        if self._is_held:
            self._is_held = False
            self._release()
