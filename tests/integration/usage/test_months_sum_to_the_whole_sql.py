"""The reports' own SQL on Postgres: consecutive months add up to the seconds of every lifetime."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitions.models import PartitionLifetime
from tests.builders.lifetimes import store_partition, store_pod
from tests.unit.usage.test_months_sum_to_the_whole import ZONES, lengths, zones
from usage.models import MonthReport, PodLifetime, ReportRow
from usage.reports.columns import PROFILES
from usage.reports.making import make_month
from usage.reports.monthly import Range, details_sql, rows_sql
from usage.time.windows import Month, whole_seconds

pytestmark = pytest.mark.django_db
_FIRST, _DAYS = datetime(2027, 10, 1, tzinfo=UTC), 220  # both clock changes and a leap day
_instants = st.integers(0, _DAYS * 86400 * 1000).map(lambda n: _FIRST + timedelta(milliseconds=n))
_lives = st.lists(st.tuples(_instants, st.none() | lengths), min_size=1, max_size=8)
_examples = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _store(lives, now: datetime) -> dict[str, int]:
    """Store pods and partitions of these lives; return the whole seconds of each until `now`."""
    PodLifetime.objects.all().delete()
    PartitionLifetime.objects.all().delete()
    want = {}
    for number, (began, length) in enumerate(lives):
        ended = None if length is None else began + length
        key = f"life-{number}"
        one = store_pod("2027-10-01T00:00", uid=key, ipus=2)
        PodLifetime.objects.filter(pk=one.pk).update(scheduled_at=began, finished_at=ended)
        two = store_partition("2027-10-01T00:00", key=key, size=4)
        PartitionLifetime.objects.filter(pk=two.pk).update(reserved_at=began, released_at=ended)
        if began < now:
            want[key] = whole_seconds(began, min(ended or now, now))
    return want


def _rows(query: str, covers: Range) -> list[dict]:
    with connection.cursor() as cursor:
        cursor.execute(query, covers.parameters)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _details(covers: Range) -> list[dict]:
    return _rows(details_sql(PROFILES["default"], covers), covers)


def _months(now: datetime, zone: ZoneInfo):
    for month in Month.of(_FIRST, zone).previous().until(Month.of(now, zone)):
        yield Range(str(month), zone.key, month.first(zone), month.end(zone), now)


@_examples
@given(_lives, _instants, zones)
def test_details_and_summaries_of_all_months_add_up_to_the_lifetimes(lives, now, zone):
    now = now.replace(microsecond=0)
    want = _store(lives, now)
    found = {"pod": dict.fromkeys(want, 0), "partition": dict.fromkeys(want, 0)}
    sums = dict.fromkeys(("seconds", "micro_ipu_seconds", "partition_ipu_seconds"), 0)
    for covers in _months(now, zone):
        for row in _details(covers):
            kind = "partition" if row["cell_component"] == "partition" else "pod"
            found[kind][row["cell_k8s_uid"]] += row["cell_seconds"]
        for row in _rows(rows_sql(covers), covers):
            for name in sums:
                sums[name] += row[name]
    assert found == {"pod": want, "partition": want}
    whole = sum(want.values())
    assert sums == {
        "seconds": whole,
        "micro_ipu_seconds": 2_000_000 * whole,
        "partition_ipu_seconds": 4 * whole,
    }


@_examples
@given(_lives, _instants, _instants, zones)
def test_a_later_report_says_at_least_what_an_earlier_one_did(lives, one, other, zone):
    early, late = sorted(instant.replace(microsecond=0) for instant in (one, other))
    _store(lives, late)
    before = {covers.label: _details(covers) for covers in _months(early, zone)}
    after = {covers.label: _details(covers) for covers in _months(late, zone)}
    for month, rows in before.items():
        known = {(r["cell_k8s_uid"], r["cell_component"]): r["cell_seconds"] for r in after[month]}
        for row in rows:
            assert known[row["cell_k8s_uid"], row["cell_component"]] >= row["cell_seconds"]


@pytest.mark.parametrize("name", ZONES[:5])
def test_stored_reports_of_consecutive_months_add_up_to_the_raw_seconds(name):
    zone = ZoneInfo(name)
    now = datetime(2028, 6, 20, 12, tzinfo=UTC)
    lives = [
        (datetime(2027, 10, 30, 23, 59, 59, tzinfo=UTC), timedelta(seconds=1)),
        (datetime(2027, 10, 31, 0, 30, tzinfo=UTC), timedelta(days=200)),
        (datetime(2028, 2, 29, 0, 0, tzinfo=UTC), timedelta(days=1)),
        (datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC), timedelta(seconds=2)),
        (datetime(2028, 3, 1, tzinfo=UTC), timedelta(0)),
        (datetime(2028, 3, 26, 0, 59, 30, tzinfo=UTC), timedelta(minutes=1)),
        (datetime(2028, 5, 31, 13, 0, tzinfo=UTC), None),
    ]
    whole = sum(_store(lives, now).values())
    for covers in _months(now, zone):
        make_month(Month.of(covers.first, zone), now, zone)
    rows = ReportRow.objects.all()
    assert sum(row.seconds for row in rows) == whole
    assert sum(row.partition_ipu_seconds for row in rows) == 4 * whole
    assert MonthReport.objects.filter(month="2028-02", end__isnull=False).count() == 1
