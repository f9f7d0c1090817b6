"""io: reads usage: from one database snapshot, within a time limit, using valid totals, with
current rates and the prices of closed months."""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import psycopg
from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from ipuhub.web.filters import BadFilter, Mistake
from usage.rates.pricing import Closed, Price, Pricing, Tariff, pricing_of
from usage.sums.engine import PURGED
from usage.sums.measures import DIMENSIONS
from usage.sums.parts import Coverage
from usage.sums.pieces import HOURLY_NAMES
from usage.time.windows import local_day

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import date, datetime

_COVERAGE: Final = (
    """
SELECT s.zone, s.until, s.hours_from, s.hours_until, s.accelerated_from, s.kept_from,
  p.purged_before, p.zone, d.first_hour, d.last_hour
FROM (SELECT 1) AS one LEFT JOIN usage_rollupstate s ON true
LEFT JOIN (SELECT DISTINCT first_hour, last_hour FROM usage_rollupdirt) d ON true"""  # noqa: S608
    + PURGED  # text of this module
)
_RATES: Final = """
SELECT resource, name, price, valid_from, valid_until FROM usage_rate
WHERE valid_from <= %(last)s
  AND (valid_until IS NULL OR valid_until > %(first)s AND valid_until > valid_from)
ORDER BY resource, name, valid_from
"""
_CLOSED: Final = """
SELECT first, "end", zone, tariff, month FROM usage_monthreport
WHERE state = 'closed' AND first < %(until)s AND "end" > %(begin)s
"""
_BOTH: Final = f"""
SELECT (SELECT max(purged_before) FROM usage_purgestate),
  (SELECT accelerated_from FROM usage_rollupstate), rates.*, closed.*
FROM ({_RATES}) AS rates FULL JOIN ({_CLOSED}) AS closed ON false
"""  # noqa: S608  # text of this module
_CHUNK_ROWS: Final = 2000
_NUMBERS: Final = itertools.count()
_DAYS: Final = 2
_RATE_COLUMNS: Final = _DAYS + 5


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


def stream_of(statement: str, parameters: Mapping[str, Any], *, bounded: bool) -> Iterator[Any]:
    """Yield the rows of one SELECT, likewise `bounded`, which runs before this returns.

    The server keeps them and sends chunks, so no process holds all rows in memory. The cursor
    outlives the transaction, which stays short. It closes even if reading stops.
    """
    with patience(bounded=bounded):
        # The first rows in the transaction: no timeout holds for what its end makes of a cursor.
        name = f"sums_{next(_NUMBERS)}"
        cursor = connection.connection.cursor(name, scrollable=False, withhold=True)
        try:
            cursor.execute(statement, parameters)
            first = cursor.fetchmany(_CHUNK_ROWS)
        except psycopg.DatabaseError:
            cursor.close()
            raise
    rows = _fetched(cursor, first)
    next(rows)
    return rows


def _fetched(cursor: Any, first: list[Any]) -> Iterator[Any]:
    """Yield None once, then the rows. Once started, it closes the cursor even if reading stops."""
    with cursor:
        yield None
        yield from first
        while rows := cursor.fetchmany(_CHUNK_ROWS):
            yield from rows


def _limit(seconds: int) -> str:
    return f"SET LOCAL statement_timeout = {1000 * seconds}"


@contextmanager
def _remedy(seconds: int) -> Iterator[None]:
    try:
        yield
    except (OperationalError, QueryCanceled) as error:  # of Django's cursor, of psycopg's
        if isinstance(error, QueryCanceled) or isinstance(error.__cause__, QueryCanceled):
            raise BadFilter(Mistake("", _sentence(seconds))) from error
        raise


def _sentence(seconds: int) -> str:
    known = ", ".join(name for name, each in DIMENSIONS.items() if each.rolled)
    hourly = ", ".join(HOURLY_NAMES)
    return (
        f"The query was stopped after {seconds} s of adding up individual pods. Request a "
        "shorter range, or a range that daily totals cover: whole days of the report zone, in "
        f"steps of a day or longer, by {known}; or whole hours, by {hourly}. If such queries are "
        "slow, too, run `sum_usage_days`. An administrator can raise USAGE_QUERY_SECONDS."
    )


def read_coverage() -> Coverage:
    """Return which sums stand now."""
    with connection.cursor() as cursor:
        cursor.execute(_COVERAGE)
        return coverage_of(cursor.fetchall())


def read_coverage_with(columns: str) -> tuple[Coverage, str]:
    """Return which sums stand now, and the text of a row of `columns`, in one query."""
    rows = fetch(_COVERAGE.replace("s.zone", f"ROW({columns})::text, s.zone", 1), {})
    return coverage_of([row[1:] for row in rows]), rows[0][0]


def coverage_of(rows: Sequence[tuple[Any, ...]]) -> Coverage:
    zone, until, hours_from, hours_until, accelerated, kept, frozen, frozen_zone = rows[0][:8]
    if zone is None:
        return Coverage(frozen_before=frozen, frozen_zone=frozen_zone or "")
    dirt = tuple((first, last) for *_, first, last in rows if first is not None)
    hours = None if hours_from is None else (hours_from, hours_until)
    return Coverage(zone, until, dirt, hours, frozen, frozen_zone or "", accelerated, kept)


def tariff_of(first: date, last: date) -> Tariff:
    """Return the prices that hold on a day from `first` to `last`, both in the report zone."""
    return _tariff(fetch(_RATES, {"first": first, "last": last}))


def pricing_at(begin: datetime, until: datetime, zone: ZoneInfo) -> Pricing:
    """Return what [begin, until) costs: closed months what they were closed with. One query."""
    if until <= begin:
        return Pricing()
    first, last = (local_day(each, zone) for each in (begin, until - timedelta(seconds=1)))
    rows = fetch(_BOTH, {"first": first, "last": last, "begin": begin, "until": until})
    rates = [row[_DAYS:_RATE_COLUMNS] for row in rows if row[_DAYS] is not None]
    closed = [_closed(*row[_RATE_COLUMNS:]) for row in rows if row[_DAYS] is None]
    found = pricing_of(begin, until, zone, _tariff(rates), closed)
    purged, accelerated = rows[0][:_DAYS] if rows else (None, None)
    return replace(found, unnamed_before=purged and min(purged, accelerated or purged))


def _tariff(rates: Sequence[tuple[Any, ...]]) -> Tariff:
    prices = tuple(Price(*row) for row in rates)
    return Tariff(settings.REPORT_CURRENCY, settings.REPORT_COST_DECIMALS, prices)


def _closed(first: datetime, end: datetime, zone: str, tariff: str, month: str) -> Closed:
    return Closed(first, end, ZoneInfo(zone), Tariff.from_record(json.loads(tariff)), month)


def fetch(statement: str, parameters: Mapping[str, Any]) -> list[Any]:
    """Return the rows of one SELECT."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[Any] = cursor.fetchall()
        return rows
