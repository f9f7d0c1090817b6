"""glue: deletes rows older than the retention in batches, and records each purge."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection, transaction

from usage.models import MonthReport, PurgeState, ReportState
from usage.reading import read_coverage
from usage.retention.rules import (
    FAULTS,
    GAPS,
    LIFETIMES,
    count_sql,
    delete_sql,
    first_kept,
    first_unclosed,
)
from usage.sums.parts import hours_to_add
from usage.sums.rollups import refresh
from usage.time.windows import Month, day_begin
from usage.utilization import rollups as utilization

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from zoneinfo import ZoneInfo

    from usage.retention.rules import Kind

if TYPE_CHECKING:
    _Span = tuple[dt.datetime, dt.datetime]
BATCH_ROWS: Final = 5000
_LOCK: Final = 0x70757267  # only one purge at a time
_NEVER: Final = dt.date(1970, 1, 1)  # gaps and faults went, no lifetimes
_EARLIEST: Final = """
SELECT least((SELECT min(scheduled_at) FROM usage_podlifetime),
             (SELECT min(reserved_at) FROM partitions_holdings))"""


@dataclass(frozen=True, slots=True)
class Retention:
    """For how many months rows are kept; 0: without end."""

    lifetimes: int = 0
    gaps: int = 0
    faults: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows to delete: their kinds, and the instant before which they ended.

    `day`: lifetimes before it are deleted; None: they stay. `reasons`: messages about old rows that
    stay.
    """

    day: dt.date | None = None
    steps: tuple[tuple[Kind, dt.datetime], ...] = ()
    reasons: tuple[str, ...] = field(default=())


def make_plan(now: dt.datetime, zone: ZoneInfo, keep: Retention) -> Plan:
    """Return what `keep` allows to delete at `now`.

    Lifetimes are deleted month by month, in order, and only if the month's report is closed.
    """
    steps: list[tuple[Kind, dt.datetime]] = []
    reasons: list[str] = []
    day, wanted = None, first_kept(now, zone, keep.lifetimes)
    if wanted and (former := _kept_in_another(zone)):
        reasons.append(
            "Lifetimes were not purged: earlier purges kept daily totals in the time zone "
            f"{former}, but the report zone is {zone.key}, and the two cannot be combined. Set "
            f"IPUHUB_REPORT_ZONE back to {former}, or USAGE_RETENTION_MONTHS to 0."
        )
    elif wanted:
        allowed = _allowed(wanted, zone)
        if allowed < wanted:
            reasons.append(
                f"Lifetimes from {allowed} on were not purged: the report of {allowed} is not "
                "closed. Run make_usage_reports to close it."
            )
        day = dt.date(allowed.year, allowed.number, 1)
        steps += [(kind, allowed.first(zone)) for kind in LIFETIMES]
    for kind, months in ((GAPS, keep.gaps), (FAULTS, keep.faults)):
        if month := first_kept(now, zone, months):
            steps.append((kind, month.first(zone)))
    return Plan(day, tuple(steps), tuple(reasons))


def _kept_in_another(zone: ZoneInfo) -> str:
    """Return the zone of the sums of purged days if it is not `zone`, else nothing."""
    cover = read_coverage()
    if cover.frozen_before is None or cover.frozen_before <= _NEVER:
        return ""
    return "" if cover.frozen_zone == zone.key else cover.frozen_zone


def count(plan: Plan) -> dict[str, int]:
    """Return how many rows would go, by kind, without deleting any."""
    found = {}
    with connection.cursor() as cursor:
        for kind, before in plan.steps:
            cursor.execute(count_sql(kind), {"before": before})
            found[kind.name] = cursor.fetchone()[0]
    return found


def purge(
    plan: Plan,
    now: dt.datetime,
    zone: ZoneInfo,
    tell: Callable[[int, int], None] = lambda *_: None,
    batch_rows: int = BATCH_ROWS,
) -> PurgeState | None:
    """Delete the rows of the plan, batch by batch in transactions; return the record, or None.

    The days that lose their rows are summed first; their sums then stay. If another purge is
    running, this purge does nothing.
    """
    counts = count(plan)
    total = sum(counts.values())
    if not total or not _take_lock():
        return None
    try:
        state = _begin(plan, now, zone)
        done = dict.fromkeys(counts, 0)
        for kind, before in plan.steps:
            while deleted := _delete_batch(kind, before, batch_rows):
                done[kind.name] += deleted
                state.counts = done
                state.save(update_fields=["counts"])
                tell(sum(done.values()), max(total, sum(done.values())))
        state.finished_at = now
        state.save(update_fields=["finished_at"])
        return state
    finally:
        _release_lock()


def _begin(plan: Plan, now: dt.datetime, zone: ZoneInfo) -> PurgeState:
    if plan.day is not None:
        # From the moment that this row is seen the sums of those days are kept as they are: they
        # must be right then, whatever has just changed.
        for _ in range(3):
            refresh(now, zone)
            utilization.refresh(now)
            with transaction.atomic():
                if _is_summed(plan.day, zone) and not utilization.missing(
                    day_begin(plan.day, zone)
                ):
                    return PurgeState.objects.create(
                        purged_before=plan.day, zone=zone.key, began_at=now
                    )
        raise PurgeRefused(
            f"The days before {plan.day} have no totals yet: their lifetimes still change, "
            "or another process is computing the totals. Try again later."
        )
    # No lifetimes go: the days that were purged stay those of the zone that they were.
    cover = read_coverage()
    frozen, of = cover.frozen_before or _NEVER, cover.frozen_zone or zone.key
    return PurgeState.objects.create(purged_before=frozen, zone=of, began_at=now)


class PurgeRefused(Exception):  # noqa: N818  # it is an answer, with a sentence for people
    """Nothing was deleted; the message says why."""


def _is_summed(day: dt.date, zone: ZoneInfo) -> bool:
    cover = read_coverage()
    earliest = _earliest()
    if earliest is None:
        return True
    if cover.kept_from is None or hours_to_add(cover, earliest) is not None:
        return False
    first = Month.of(earliest, zone)
    each = max(dt.date(first.year, first.number, 1), cover.frozen_before or dt.date.min)
    while each < day:
        if not cover.has(each, zone):
            return False
        each += dt.timedelta(days=1)
    return True


def _allowed(wanted: Month, zone: ZoneInfo) -> Month:
    found = _earliest()
    earliest = None if found is None else Month.of(found, zone)
    if earliest is None or earliest >= wanted:
        return wanted
    rows = MonthReport.objects.filter(state=ReportState.CLOSED).values_list("month", "first", "end")
    # A month that was closed in another zone covers all of this month with the month beside it.
    spans = _joined((first, end) for _, first, end in rows)
    closed = {
        month
        for month in (Month.parse(text) for text, _, _ in rows)
        if any(a <= month.first(zone) and month.end(zone) <= b for a, b in spans)
    }
    return first_unclosed(earliest, wanted, closed)


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    """Return the ranges with those merged that meet or overlap."""
    found: list[_Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found


def _earliest() -> dt.datetime | None:
    with connection.cursor() as cursor:
        cursor.execute(_EARLIEST)
        earliest: dt.datetime | None = cursor.fetchone()[0]
    return earliest


def _delete_batch(kind: Kind, before: dt.datetime, rows: int) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(delete_sql(kind), {"before": before, "rows": rows})
        deleted: Any = cursor.rowcount
        return int(deleted)


def _take_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        return bool(cursor.fetchone()[0])


def _release_lock() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def retention() -> Retention:
    """Return for how many months rows are kept."""
    return Retention(
        settings.USAGE_RETENTION_MONTHS,
        settings.USAGE_RETENTION_GAPS_MONTHS,
        settings.USAGE_RETENTION_FAULTS_MONTHS,
    )
