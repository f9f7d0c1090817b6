"""Reading the files of reports in tests."""

from __future__ import annotations

import csv
import io
from zoneinfo import ZoneInfo

from ipuhub.months import Month
from tests.builders.lifetimes import at
from usage.reports.downloads import open_download
from usage.reports.making import make_month

UTC_ZONE = ZoneInfo("UTC")


def make(month: str, now: str, zone: ZoneInfo = UTC_ZONE):
    """Make the report of `month` as at `now`."""
    return make_month(Month.parse(month), at(now), zone)


def text_of(month: str, kind: str, profile: str = "default") -> str:
    """One whole file."""
    return b"".join(open_download(Month.parse(month), kind, profile).body).decode()


def rows_of(month: str, kind: str, profile: str = "default") -> list[dict[str, str]]:
    """One file's lines by column name."""
    return list(csv.DictReader(io.StringIO(text_of(month, kind, profile), newline="")))
