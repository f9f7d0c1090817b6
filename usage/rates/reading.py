"""io: reads the prices of a range: the rates, and those of closed months."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection

from usage.rates.pricing import Closed, Price, Pricing, Tariff, pricing_of
from usage.time.windows import local_day

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

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
_DAYS: Final = 2
_RATE_COLUMNS: Final = _DAYS + 5


def tariff_of(first: date, last: date) -> Tariff:
    """Return the prices that hold on a day from `first` to `last`, both in the report zone."""
    return _tariff(_run(_RATES, {"first": first, "last": last}))


def pricing_at(begin: datetime, until: datetime, zone: ZoneInfo) -> Pricing:
    """Return what [begin, until) costs: closed months what they were closed with. One query."""
    if until <= begin:
        return Pricing()
    first, last = (local_day(each, zone) for each in (begin, until - timedelta(seconds=1)))
    rows = _run(_BOTH, {"first": first, "last": last, "begin": begin, "until": until})
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


def _run(statement: str, parameters: dict[str, Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[Any] = cursor.fetchall()
        return rows
