"""io: how sums are read: on one snapshot of the rows, within a limit of time, and from the totals
that stand."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from ipuhub.web.filters import BadFilter
from usage.sums.engine import PURGED
from usage.sums.measures import DIMENSIONS
from usage.sums.parts import Coverage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_COVERAGE: Final = (
    """
SELECT s.zone, s.until, s.hours_from, s.hours_until, s.accelerated_from,
  p.purged_before, p.zone, d.first_hour, d.last_hour
FROM (SELECT 1) AS one LEFT JOIN usage_rollupstate s ON true
LEFT JOIN (SELECT DISTINCT first_hour, last_hour FROM usage_rollupdirt) d ON true"""  # noqa: S608
    + PURGED  # text of this module
)


@contextmanager
def one_snapshot(*, read_only: bool = False) -> Iterator[None]:
    """Run all statements of the block, or of the decorated function, on one snapshot of the rows.

    Within another transaction (as in tests) they see what that transaction sees.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    connection.ensure_connection()
    own: psycopg.Connection[Any] = connection.connection
    # Said in the BEGIN itself: SET TRANSACTION would be one more message of each page.
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.read_only = read_only or None
    try:
        with transaction.atomic():
            yield
    finally:
        if not own.closed:
            own.isolation_level = own.read_only = None


@contextmanager
def patience(*, bounded: bool) -> Iterator[None]:
    """Let PostgreSQL work on each statement of the transaction around this for USAGE_QUERY_SECONDS
    where it is `bounded`; the limit ends with the transaction.

    Raises BadFilter with the remedy when a statement in here takes longer.
    """
    seconds = settings.USAGE_QUERY_SECONDS
    if not bounded:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(_limit(seconds))
    with _remedy(seconds):
        yield


def rows_of(statement: str, parameters: Mapping[str, Any], *, bounded: bool) -> list[Any]:
    """Return the rows of one SELECT, likewise `bounded`, in one message to PostgreSQL."""
    seconds = settings.USAGE_QUERY_SECONDS
    limit = f"{_limit(seconds)}; " if bounded else ""
    with _remedy(seconds), connection.cursor() as cursor:
        cursor.execute(limit + statement, parameters)
        if limit:
            cursor.nextset()
        rows: list[Any] = cursor.fetchall()
        return rows


def _limit(seconds: int) -> str:
    return f"SET LOCAL statement_timeout = {1000 * seconds}"


@contextmanager
def _remedy(seconds: int) -> Iterator[None]:
    try:
        yield
    except (OperationalError, QueryCanceled) as error:  # of Django's cursor, of psycopg's
        if isinstance(error, QueryCanceled) or isinstance(error.__cause__, QueryCanceled):
            raise BadFilter([_sentence(seconds)]) from error
        raise


def _sentence(seconds: int) -> str:
    known = ", ".join(name for name, each in DIMENSIONS.items() if each.rolled)
    return (
        f"The query was stopped after {seconds} s of adding up individual pods. Request a "
        "shorter range, or one that daily totals cover: whole days of the report zone, in steps "
        f"of a day or longer, by {known}. If such queries are slow, too, run `sum_usage_days`. "
        "An administrator can raise USAGE_QUERY_SECONDS."
    )


def read_coverage() -> Coverage:
    """Return which sums stand now."""
    with connection.cursor() as cursor:
        cursor.execute(_COVERAGE)
        return coverage_of(cursor.fetchall())


def coverage_of(rows: Sequence[tuple[Any, ...]]) -> Coverage:
    zone, until, hours_from, hours_until, accelerated, frozen, frozen_zone = rows[0][:7]
    if zone is None:
        return Coverage(frozen_before=frozen, frozen_zone=frozen_zone or "")
    dirt = tuple((first, last) for *_, first, last in rows if first is not None)
    hours = None if hours_from is None else (hours_from, hours_until)
    return Coverage(zone, until, dirt, hours, frozen, frozen_zone or "", accelerated)
