"""Reading the files of reports in tests."""

from __future__ import annotations

import csv
import io
from zoneinfo import ZoneInfo

from tests.builders.lifetimes import at
from usage.reports.downloads import Wanted, open_file
from usage.reports.making import make_month
from usage.time.windows import Month

UTC_ZONE = ZoneInfo("UTC")


def make(month: str, now: str, zone: ZoneInfo = UTC_ZONE):
    """Make the report of `month` as at `now`."""
    return make_month(Month.parse(month), at(now), zone)


def text_of(month: str, kind: str, profile: str = "default") -> str:
    """One whole file."""
    return b"".join(open_file(Wanted(Month.parse(month), kind, profile)).body).decode()


def rows_of(month: str, kind: str, profile: str = "default") -> list[dict[str, str]]:
    """Return one file's lines by column name, without the line of totals."""
    return lines_of(text_of(month, kind, profile))


def lines_of(text: str) -> list[dict[str, str]]:
    """Return the lines of a file by column name, without the line of totals."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    return [row for row in rows if row["report_month"] != "total"]


def total_of(text: str) -> dict[str, str]:
    """The line of totals, by column name."""
    *_, last = csv.DictReader(io.StringIO(text, newline=""))
    assert last["report_month"] == "total"
    return last
