"""glue: report files, each streamed over its own connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings
from django.db import connection
from psycopg.rows import dict_row

from ipuhub.patientpostgres.connection import PatientConnection
from usage.rates.pricing import Tariff
from usage.reports.columns import CORRECTION, PROFILES, header
from usage.reports.csv import IN_ORDER, CsvStream, copy_all, copy_csv, csv_form, json_lines
from usage.reports.making import file_key, state_of
from usage.reports.monthly import Range, details_queries, summary_sql
from usage.retention.purged import PurgedError, refuse_purged
from usage.time.months import month_bounds
from usage.time.windows import PARTITION_PIECES, POD_PIECES, bounds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from usage.time.windows import Month


def anything_recorded(first: datetime, until: datetime) -> bool:
    """Return whether a pod or a partition was there at any moment of [first, until)."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT EXISTS (SELECT FROM ({POD_PIECES}) AS pods)"  # noqa: S608
            f" OR EXISTS (SELECT FROM ({PARTITION_PIECES}) AS held)",
            bounds(first, until),
        )
        return bool(cursor.fetchone()[0])


_COLUMNS = (
    'id, month, version, number, state, zone, first, "end", generated_at, complete_until,'
    " digests, lines, tariff"
)
_NEWEST = f"""
SELECT {_COLUMNS},
  (SELECT count(*) FROM usage_monthreport WHERE month = %(month)s AND number > 0) AS corrections
FROM usage_monthreport WHERE month = %(month)s AND number = %(number)s
ORDER BY version DESC LIMIT 1"""  # noqa: S608
_SILENT_SECONDS: Final = 300
"""Timeout of a web process for the next line of a file, the first of which may have to be
sorted for; not longer than the whole download may take."""
_CHUNKS = """
SELECT data FROM usage_reportchunk WHERE report_id = %(report)s AND profile = %(place)s
ORDER BY number"""


class NoReportError(LookupError):
    """There is no such report; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file: `kind` is summary, details or correction (of that `number`).

    `total`: with the line of totals, if any.
    """

    month: Month
    kind: str
    profile: str = "default"
    number: int = 0
    form: str = "csv"
    excel: bool = False
    total: bool = True

    @property
    def is_as_stored(self) -> bool:
        """Return whether its content matches the stored digest."""
        return self.form == "csv" and self.total and not self.excel

    @property
    def key(self) -> str:
        """Its name in a report's `digests` and `lines`."""
        if self.number:
            return "summary-correction"
        return file_key(self.kind, PROFILES[self.profile])

    @property
    def file_name(self) -> str:
        """Return the file name for the client."""
        if self.profile == "primehub":
            name = f"PrimeHub_Usage_{self.kind.title()}_{self.month.year}_{self.month.number:02}"
        elif self.number:
            name = f"ipuhub-usage-{self.month}-correction-{self.number}"
        else:
            name = f"ipuhub-usage-{self.kind}-{self.month}"
        return f"{name}.{self.form}"


@dataclass(frozen=True, slots=True)
class Download:
    """A file: its name, its blocks, and facts from its report.

    `is_fixed`: its bytes stay the same until the report has another version; details made from the
    rows also contain what is found later. `digest`: SHA-256 of the CSV file if it is known
    beforehand; `lines`: number of data lines, as the report counted them.
    """

    file_name: str
    body: CsvStream
    is_fixed: bool
    digest: str
    version: int
    state: str
    first: datetime
    end: datetime
    lines: int
    corrections: int
    complete_until: datetime | None
    generated_at: datetime | None
    currency: str


def open_file(wanted: Wanted) -> Download:
    """Open a file. Raises NoReportError.

    Everything is read in one snapshot: a new version of the report changes nothing in it. A month
    without recorded usage has an empty file, whether or not its report was made.
    """
    own = own_connection()
    try:
        report = _begin(own, wanted)
        is_stored = _is_stored(own, report, wanted)
        head, blocks = _blocks(own, report, wanted, is_stored=is_stored)
    except BaseException:
        own.close()
        raise
    return Download(
        wanted.file_name,
        CsvStream(own, head, blocks, _form(wanted)),
        is_stored or wanted.kind != "details" or report["id"] is None,
        report["digests"].get(wanted.key, ""),
        report["version"],
        report["state"],
        report["first"],
        report["end"],
        report["lines"].get(wanted.key, 0),
        report["corrections"],
        report["complete_until"],
        report["generated_at"],
        report["tariff"].get("currency", settings.REPORT_CURRENCY),
    )


def own_connection() -> psycopg.Connection[Any]:
    """Open another connection to Django's database, for a statement that lasts as long as a
    download."""
    parameters = dict(connection.get_connection_params())
    for name in ("cursor_factory", "context", "prepare_threshold"):
        parameters.pop(name, None)
    own = PatientConnection.connect(**parameters)
    if connection.settings_dict.get("SILENCE_SECONDS") is not None:
        own.silence_seconds = min(_SILENT_SECONDS, settings.WEB_DOWNLOAD_SECONDS)
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):  # slow readers
            own.execute(f"SET {limit} = {1000 * settings.WEB_DOWNLOAD_SECONDS}")
        own.commit()
    return own


def _form(wanted: Wanted) -> Any:
    if wanted.form == "jsonl":
        return json_lines
    return csv_form(excel=wanted.excel, total=wanted.total)


def _begin(own: psycopg.Connection[Any], wanted: Wanted) -> dict[str, Any]:
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.read_only = True
    with own.cursor(row_factory=dict_row) as cursor:
        parameters = {"month": str(wanted.month), "number": wanted.number}
        report = cursor.execute(_NEWEST, parameters).fetchone()
    return report or _nothing(wanted)


def _nothing(wanted: Wanted) -> dict[str, Any]:
    """Return an empty report of a month without usage. Raises NoReportError for any other."""
    from django.utils import timezone

    zone = settings.REPORT_ZONE
    month = wanted.month
    span = month_bounds(month, zone)
    first, end = span.first, span.end
    if wanted.number:
        raise NoReportError(f"{month} has no correction with number {wanted.number}.")
    try:
        refuse_purged(first, zone)
    except PurgedError as error:
        raise NoReportError(str(error)) from error
    if anything_recorded(first, end):
        raise NoReportError(f"There is no report of {month} yet. An administrator can generate it.")
    state = state_of(month, timezone.now(), zone)
    empty = {"digests": {}, "lines": {}, "tariff": {}, "version": 0, "corrections": 0, "id": None}
    empty |= {"state": str(state), "complete_until": None, "generated_at": None}
    return empty | {"first": first, "end": end}


def _blocks(
    own: psycopg.Connection[Any], report: dict[str, Any], wanted: Wanted, *, is_stored: bool
) -> tuple[str, Iterator[bytes]]:
    """Return the header, where it is not in the blocks, and the blocks."""
    profile = CORRECTION if wanted.number else PROFILES[wanted.profile]
    kind = "details" if wanted.kind == "details" else "summary"
    head = header(getattr(profile, kind))
    if report["id"] is None:
        return head, iter(())
    if is_stored:
        return "", _stored(own, report, _place(wanted))
    if kind == "summary":
        tariff = Tariff.from_record(report["tariff"])
        parameters = {
            "month": report["month"].replace("-", ""),
            "report": report["id"],
            "currency": tariff.currency or settings.REPORT_CURRENCY,
            "decimals": tariff.decimals,
            "number": report["number"],
        }
        return head, copy_csv(own, summary_sql(profile), parameters)
    own.execute(IN_ORDER)
    covers = _covers(report)
    return head, copy_all(own, details_queries(profile, covers), covers.parameters)


def _covers(report: dict[str, Any]) -> Range:
    return Range(
        report["month"].replace("-", ""),
        report["zone"],
        report["first"],
        report["end"],
        report["generated_at"],
        Tariff.from_record(report["tariff"]),
    )


def _place(wanted: Wanted) -> str:
    return wanted.profile if wanted.kind == "details" else wanted.key


def _is_stored(own: psycopg.Connection[Any], report: dict[str, Any], wanted: Wanted) -> bool:
    """Return whether the stored file is unchanged since the month was closed."""
    if report["id"] is None or report["state"] != "closed":
        return False
    parameters = {"report": report["id"], "place": _place(wanted)}
    return own.execute(f"SELECT EXISTS ({_CHUNKS})", parameters).fetchone() == (True,)


def _stored(own: psycopg.Connection[Any], report: dict[str, Any], place: str) -> Iterator[bytes]:
    with own.cursor("chunks") as cursor:
        cursor.itersize = 1
        cursor.execute(_CHUNKS, {"report": report["id"], "place": place})
        for (data,) in cursor:
            yield data
