"""domain: the clock, and instants in the format of the Kubernetes API (RFC 3339).

All instants are aware and in UTC. Code that decides takes the time as an argument. Code that starts
a process passes `utc_now`, which a test replaces with its own clock.

`jobs.ipujob.names` reads and writes the times of IPUJobs, where an invalid time counts as none;
`ipuhub.partition` the times of partitions, which have milliseconds and must be valid.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

HEARTBEAT_STALE_SECONDS: Final = 120
"""Age at which a heartbeat counts as a silence: four of them did not come."""
_SECONDS: Final = "%Y-%m-%dT%H:%M:%SZ"
_MICROSECONDS: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_INSTANT: Final = re.compile(
    r"(?<!\w)(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))(?!\w)", re.ASCII
)


def utc_now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)


def format_time(moment: datetime) -> str:
    """Return the instant in whole seconds, as Kubernetes writes metav1.Time."""
    return moment.astimezone(UTC).strftime(_SECONDS)


def format_micro_time(moment: datetime) -> str:
    """Return the instant in microseconds, as Kubernetes writes metav1.MicroTime."""
    return moment.astimezone(UTC).strftime(_MICROSECONDS)


def read_time(text: str) -> datetime:
    """Return the instant that is written in either form, or in RFC 3339 with another offset.

    Without an offset it is in UTC. Raise ValueError.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def read_day_or_instant(text: str, zone: tzinfo, *, end: bool = False) -> datetime:
    """Return the instant of `2026-11-21T10:00:00Z` (RFC 3339) or of a day of `zone`.

    A day means its begin; with `end` its end, so that a range of days includes the last day. A time
    without an offset is in `zone`. Raise ValueError or OverflowError.
    """
    text = text.replace(" ", "+")  # a `+` that was not escaped in the URL
    if len(text) == len("2026-11-21"):
        day = date.fromisoformat(text) + timedelta(days=end)
        return datetime.combine(day, time(), zone).astimezone(UTC)
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def split_instants(sentence: str) -> Iterator[tuple[str, datetime | None]]:
    """Yield a sentence in parts: each instant in RFC 3339 with its value, the text between without.

    Other programs write instants so in what they say; pages show them as all other times.
    """
    for number, part in enumerate(_INSTANT.split(sentence)):
        if number % 2:
            try:
                yield part, read_time(part)
                continue
            except ValueError:
                pass
        if part:
            yield part, None


def spell_instants(sentence: str) -> str:
    """Return a sentence with its instants as `2026-11-24 09:05:00 UTC`."""
    return "".join(
        f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if instant else part
        for part, instant in split_instants(sentence)
    )
