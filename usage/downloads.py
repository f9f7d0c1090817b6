"""glue: the files of a month's newest report, each over a connection of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connection
from psycopg.rows import dict_row

from usage.csvreport import IN_ORDER, CsvStream, copy_csv
from usage.monthly import PROFILES, Range, details_sql, header, summary_sql

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipuhub.months import Month

_NEWEST = """
SELECT id, month, version, state, zone, first, "end", generated_at, digests
FROM usage_monthreport WHERE month = %s ORDER BY version DESC LIMIT 1"""
_CHUNKS = """
SELECT data FROM usage_reportchunk WHERE report_id = %(report)s AND profile = %(profile)s
ORDER BY number"""


class NoReportError(LookupError):
    """There is no such report; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Download:
    """One file: its name, its blocks, and its SHA-256 where that is known before it is made."""

    file_name: str
    body: CsvStream
    digest: str


def open_download(month: Month, kind: str, profile_name: str) -> Download:
    """Begin the file `kind` (summary or details) of `month`. Raises NoReportError.

    Everything is read in one snapshot: a new version of the report changes nothing in it.
    """
    own = own_connection()
    try:
        report = _begin(own, month)
        blocks = (_summary if kind == "summary" else _details)(own, report, profile_name)
    except BaseException:
        own.close()
        raise
    profile = PROFILES[profile_name]
    stored = kind == "details" and report["state"] == "closed"
    head = "" if stored else header(profile.summary if kind == "summary" else profile.details)
    key = kind if profile_name == "default" else f"{kind}-{profile_name}"
    name = _file_name(month, kind, profile_name)
    return Download(name, CsvStream(own, head, blocks), report["digests"].get(key, ""))


def own_connection() -> psycopg.Connection[Any]:
    """Connect to Django's database anew."""
    parameters = dict(connection.get_connection_params())
    for name in ("cursor_factory", "context", "prepare_threshold"):
        parameters.pop(name, None)
    return psycopg.connect(**parameters)


def _begin(own: psycopg.Connection[Any], month: Month) -> dict[str, Any]:
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.read_only = True
    with own.cursor(row_factory=dict_row) as cursor:
        report = cursor.execute(_NEWEST, [str(month)]).fetchone()
    if report is None:
        raise NoReportError(f"There is no report of {month} yet. An administrator can make it.")
    return report


def _summary(
    own: psycopg.Connection[Any], report: dict[str, Any], profile_name: str
) -> Iterator[bytes]:
    parameters = {"month": report["month"].replace("-", ""), "report": report["id"]}
    return copy_csv(own, summary_sql(PROFILES[profile_name]), parameters)


def _details(
    own: psycopg.Connection[Any], report: dict[str, Any], profile_name: str
) -> Iterator[bytes]:
    if report["state"] == "closed":
        return _stored(own, report, profile_name)
    own.execute(IN_ORDER)
    covers = Range(*(report[name] for name in ("month", "zone", "first", "end", "generated_at")))
    return copy_csv(own, details_sql(PROFILES[profile_name]), covers.parameters)


def _stored(
    own: psycopg.Connection[Any], report: dict[str, Any], profile_name: str
) -> Iterator[bytes]:
    with own.cursor("chunks") as cursor:
        cursor.itersize = 1
        cursor.execute(_CHUNKS, {"report": report["id"], "profile": profile_name})
        for (data,) in cursor:
            yield data


def _file_name(month: Month, kind: str, profile_name: str) -> str:
    if profile_name == "primehub":
        return f"PrimeHub_Usage_{kind.title()}_{month.year}_{month.number:02}.csv"
    return f"ipuhub-usage-{kind}-{month}.csv"
