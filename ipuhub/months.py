"""domain: calendar months and the instants at which they begin in a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

_WRITTEN = re.compile(r"([0-9]{4})-([0-9]{2})")
_YEARS = range(1970, 9999)


class MonthError(ValueError):
    """A text is not a month; the message shows the format."""


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """One calendar month; months compare by time."""

    year: int
    number: int

    def __post_init__(self) -> None:
        """Raise MonthError if no calendar has this month."""
        if self.year not in _YEARS or self.number not in range(1, 13):
            raise MonthError(
                f"{self.year}-{self.number} is not a month. Use YYYY-MM, for example 2026-11."
            )

    @classmethod
    def parse(cls, text: str) -> Month:
        """Return the month written as `2026-11`; raise MonthError for anything else."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise MonthError(f"{text!r} is not a month. Use YYYY-MM, for example 2026-11.")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of(cls, instant: datetime, zone: ZoneInfo) -> Month:
        """Return the month that a calendar in `zone` shows at `instant`."""
        local = instant.astimezone(zone)
        return cls(local.year, local.month)

    def first(self, zone: ZoneInfo) -> datetime:
        """Return the month's first instant in `zone`, in UTC.

        Where the clock is put forward at midnight that is the moment of the change, and where
        midnight comes twice the first one, so that months neither overlap nor leave a gap.
        """
        return datetime(self.year, self.number, 1, tzinfo=zone).astimezone(UTC)

    def end(self, zone: ZoneInfo) -> datetime:
        """Return the first instant of the next month in `zone`, in UTC."""
        return self.next().first(zone)

    def next(self) -> Month:
        """Return the month after this one."""
        return Month(self.year + self.number // 12, self.number % 12 + 1)

    def previous(self) -> Month:
        """Return the month before this one."""
        return Month(self.year - (self.number == 1), (self.number - 2) % 12 + 1)

    def until(self, last: Month) -> Iterator[Month]:
        """Yield this month and those after it, up to and with `last`."""
        month = self
        while month <= last:
            yield month
            month = month.next()

    def __str__(self) -> str:
        return f"{self.year:04}-{self.number:02}"
