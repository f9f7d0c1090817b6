"""io: log options of a request, and the time of each line of a process's log.

A file beside the log of a run stores the offset and time of each piece of output.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Final

from devcluster.requests import read_number
from devcluster.status import bad_request
from ipuhub.times import read_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_ENTRY: Final = struct.Struct("<Qd")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a request for a log. `since`: only lines of that instant or later."""

    follow: bool
    previous: bool
    timestamps: bool
    tail: int | None
    limit: int | None
    since: datetime | None

    @classmethod
    def of(cls, query: dict[str, str], now: datetime) -> LogOptions:
        """Read the query. StatusError 400."""
        since, seconds = None, read_number(query, "sinceSeconds")
        if query.get("sinceTime"):
            if seconds is not None:
                raise bad_request("at most one of `sinceTime` or `sinceSeconds` may be specified")
            try:
                since = read_time(query["sinceTime"])
            except ValueError as error:
                raise bad_request(f"sinceTime: {error}") from error
        elif seconds is not None:
            since = now - timedelta(seconds=seconds)
        return cls(
            follow=query.get("follow") == "true",
            previous=query.get("previous") == "true",
            timestamps=query.get("timestamps") == "true",
            tail=read_number(query, "tailLines"),
            limit=read_number(query, "limitBytes"),
            since=since,
        )


def stamp(at: datetime) -> str:
    """Return the time that stands before a line, as a kubelet writes it."""
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z "


class LogClock:
    """Notes when output came that begins at a place in the log."""

    def __init__(self, log: Path, now: Callable[[], datetime]) -> None:
        self._path, self._now = times_of(log), now

    def note(self, place: int) -> None:
        """Remember that what stands from `place` on was written now."""
        with self._path.open("ab") as file:
            file.write(_ENTRY.pack(place, self._now().timestamp()))


def times_of(log: Path) -> Path:
    """Return the path of a log's times."""
    return log.with_suffix(".times")


class Stamps:
    """The lines of a log with their times before them, if requested."""

    def __init__(self, log: Path, options: LogOptions) -> None:
        self._options = options
        self._in_line = False
        path = times_of(log)
        noted = list(_ENTRY.iter_unpack(_whole(path.read_bytes()))) if path.exists() else []
        self._places = [place for place, _ in noted]
        self._times = [datetime.fromtimestamp(at, UTC) for _, at in noted]

    def chosen(self, data: bytes) -> list[bytes]:
        """The lines that are young enough."""
        found, place = [], 0
        self._in_line = bool(data) and not data.endswith(b"\n")
        for line in BytesIO(data).readlines():
            at = self._time_at(place)
            place += len(line)
            if self._options.since is None or at >= self._options.since:
                found.append(stamp(at).encode() + line if self._options.timestamps else line)
        return found

    def now(self, data: bytes) -> bytes:
        """Output that comes now."""
        if not self._options.timestamps:
            return data
        before = stamp(datetime.now(UTC)).encode()
        lines = BytesIO(data).readlines()
        text = before.join(lines) if self._in_line else b"".join(before + line for line in lines)
        self._in_line = not data.endswith(b"\n")
        return text

    def _time_at(self, place: int) -> datetime:
        index = bisect_right(self._places, place) - 1
        return self._times[index] if index >= 0 else datetime.fromtimestamp(0, UTC)


def _whole(data: bytes) -> bytes:
    return data[: len(data) - len(data) % _ENTRY.size]
