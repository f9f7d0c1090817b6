"""glue: the inputs of sums, by which unchanged sums are known without adding up again.

Sums of past time come from tables that only a refresh writes. The refresh also replaces the row of
the summed time, and each change of a summed row adds a row of dirt. So the versions of those rows,
and of prices, reports, purges and gaps, show whether such sums may have changed. Sums that are
added up from lifetimes are unchanged only while no row at all changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connection

from ipuhub.recording.shapes import GAP_TABLE
from ipuhub.web.pollcache import Basis, known_unchanged, note_basis
from usage.utilization.rows import CAPACITY_WATCH, KNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from usage.sums.queries import Question
    from usage.time.windows import Window


def _versions(table: str, rows: str = "true") -> str:
    """Return the SQL of the versions of the rows of a small table: a new version of a
    row has another transaction, or another place."""
    return (
        f"(SELECT md5(string_agg(xmin::text || ctid::text, ' ' ORDER BY ctid))"  # noqa: S608
        f" FROM {table} WHERE {rows})"
    )


def _number(table: str) -> str:
    """Return the SQL of the amount of dirt: rows are only added, until all are deleted."""
    return f"(SELECT ROW(count(*), max(id))::text FROM {table})"  # noqa: S608


_SNAPSHOT: Final = "pg_current_snapshot()::text"
SUMS_VERSIONS: Final = ", ".join(
    (
        *map(
            _versions,
            ("usage_rollupstate", "usage_purgestate", "usage_rate", "usage_monthreport"),
        ),
        _number("usage_rollupdirt"),
    )
)
"""SQL of the versions of all that sums of past time are read from."""
_KNOWN_THEN: Final = f"""
(SELECT ROW(known IS NULL, least(known, %(until)s))::text FROM (SELECT {KNOWN} AS known) AS polls)
"""  # noqa: S608  # text of this module
"""A later poll tells nothing of the time that is asked for; none at all is something else."""
_CAPACITY: Final = ", ".join(
    (
        _SNAPSHOT,
        *map(_versions, ("usage_utilizationstate", "usage_purgestate")),
        _versions(GAP_TABLE, "watch = %(watch)s"),
        _number("usage_utilizationdirt"),
        _KNOWN_THEN,
    )
)


@dataclass(frozen=True, slots=True)
class Poll:
    """A request for sums, with the basis of an answer from any `rows`, and of an answer from `sums`
    of past time. None: within a transaction, which has changes of its own."""

    request: HttpRequest
    rows: Basis | None = None
    sums: Basis | None = None

    def known(self) -> HttpResponseBase | None:
        """Return a 304 if the reader has the answer, else None."""
        bases = [basis for basis in (self.rows, self.sums) if basis is not None]
        return known_unchanged(self.request, *bases)

    def keep(self, *, are_summed: bool) -> None:
        """Keep the ETag of the answer for the next poll; `are_summed`: it comes from sums alone."""
        note_basis(self.request, self.sums if are_summed else self.rows)


def sums_poll(request: HttpRequest, question: Question, now: datetime) -> Poll:
    """Return the poll of the sums of a question, before they and its prices are read. One query.

    Prices are read later, so that a poll that is answered with 304 does not read them. Their rows
    are among the versions: what changes in between is in the answer, and the next poll differs.
    """
    inputs = (question.scope, question.window, question.zone.key)
    return _poll(request, now, inputs, f"{_SNAPSHOT}, {SUMS_VERSIONS}", {})


def capacity_poll(request: HttpRequest, window: Window, now: datetime) -> Poll:
    """Return the poll of utilization, before it is read. One query."""
    return _poll(
        request, now, (window,), _CAPACITY, {"watch": CAPACITY_WATCH, "until": window.until}
    )


def _poll(
    request: HttpRequest,
    now: datetime,
    inputs: tuple[object, ...],
    columns: str,
    parameters: Mapping[str, Any],
) -> Poll:
    if connection.in_atomic_block:
        return Poll(request)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns}", parameters)  # text of this module
        snapshot, *versions = cursor.fetchone()
    rows = Basis(("rows", *inputs, snapshot), now)
    return Poll(request, rows, Basis(("sums", *inputs, *versions), now))
