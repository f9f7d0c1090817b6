"""Sums of utilization, the rows themselves and the API agree, in whole numbers, whatever happens.

Random holdings, pods, states of controllers and gaps; changed, deleted and added to, with
refreshes and rebuilds in between, in any order.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ipuhub.models import WatchCheckpoint, WatchGap
from partitions.models import CapacityChange, PartitionLifetime
from tests.builders.clients import api_client
from tests.builders.lifetimes import at, store_partition, store_pod
from usage.models import (
    PodLifetime,
    UtilizationDirt,
    UtilizationHour,
    UtilizationQuarter,
    UtilizationState,
)
from usage.time.windows import Window, step_begins
from usage.utilization.amounts import NAMES, Utilization
from usage.utilization.answers import OUTPUTS, exact_name
from usage.utilization.rollups import missing, read_summed_time, rebuild, refresh
from usage.utilization.rows import read_polls, read_rows
from usage.utilization.selectors import read_capacity
from usage.utilization.weekhours import week_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime


pytestmark = pytest.mark.django_db
FIRST = at("2026-11-10T00:00")
NOW = at("2026-11-12T00:00")
ZONES = [ZoneInfo(name) for name in ("UTC", "Asia/Kathmandu", "America/St_Johns")]
_TABLES = (PodLifetime, PartitionLifetime, CapacityChange, WatchGap, WatchCheckpoint)
_SUMS = (UtilizationHour, UtilizationQuarter, UtilizationState, UtilizationDirt)

instants = st.integers(0, 2 * 86_400 * 10).map(
    lambda tenths: FIRST + timedelta(seconds=tenths / 10)
)
lengths = st.none() | st.integers(-5, 86_400) | st.integers(0, 3000)
controller = st.sampled_from(["v1", "v2"])
held_row = st.tuples(
    st.just("held"), instants, lengths, controller, st.sampled_from([1, 4]), st.integers(0, 1)
)
pod_row = st.tuples(
    st.just("pod"), instants, lengths, st.integers(0, 4), st.sampled_from(["p0", "p1", ""])
)
told_row = st.tuples(
    st.just("told"), instants, controller, st.integers(0, 16), st.integers(0, 8), st.booleans()
)
gap = st.tuples(st.just("gap"), instants, st.integers(1, 9000))
asked_row = st.tuples(st.just("asked"), instants)
ended = st.tuples(st.just("end"), st.integers(0, 86_400))
changed = st.sampled_from(
    [("move",), ("rename",), ("unheld",), ("untold",), ("retold",), ("ungap",), ("unpod",)]
)
made = st.tuples(st.just("refresh"), instants)
histories = st.lists(
    held_row | held_row | told_row | told_row | pod_row | gap | asked_row | ended | changed | made,
    min_size=2,
    max_size=16,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories, zone=st.sampled_from(ZONES), now=instants, begin=instants)
def test_sums_of_utilization_agree_with_the_rows(
    history: list[Any], zone: ZoneInfo, now: datetime, begin: datetime
) -> None:
    for model in (*_TABLES, *_SUMS):
        model.objects.all().delete()
    for event in history:
        _happen(event)
    now = now.replace(microsecond=0)
    for _ in range(2):
        for step in ("hour", "day"):
            begins = step_begins(Window.of(FIRST, NOW, now), step, zone)
            _agree([each for each in begins if each < now] or [FIRST - timedelta(1)], now)
        _agree([FIRST, begin.replace(microsecond=0)], NOW)
        refresh(now)
    assert missing(now) == []
    _the_api_agrees(now)
    rebuild(now, lambda *_: None)
    _agree([FIRST], now + timedelta(seconds=1))


def _agree(begins: Sequence[datetime], until: datetime) -> None:
    begins = sorted({each for each in begins if each < until})
    if begins:
        assert read_capacity(begins, until).steps == _plainly([*begins, until])


def _plainly(edges: Sequence[datetime]) -> dict[str, list[Utilization]]:
    with connection.cursor() as cursor:
        known = read_summed_time().known_now
        found = read_rows(cursor, edges, read_polls(cursor, edges[0], edges[-1], known).gaps)
    return {name: rows for name, rows in sorted(found.items()) if any(r.capacity for r in rows)}


def _the_api_agrees(now: datetime) -> None:
    if now <= FIRST:
        return
    want = sum(
        (sum(rows, Utilization()) for rows in _plainly([FIRST, now]).values()), Utilization()
    )
    user, _ = get_user_model().objects.get_or_create(username="root", is_staff=True)
    address = "/api/v1/usage/capacity?from=2026-11-10&to=2026-11-12&step=hour"
    with mock.patch.object(timezone, "now", return_value=now):
        answer = api_client(user).get(address)
    assert answer.status_code == 200, answer.content
    got = answer.json()["total"]["exact"]
    assert got == {exact_name(output): getattr(want, output.amount) for output in OUTPUTS}


def _happen(event: Any) -> None:
    match event:
        case ("held", began, length, name, size, number):
            fields = {"reserved_at": began, "released_at": _after(began, length)}
            job = {"job_uid": "j", "partition": f"p{number}", "controller": name}
            store_partition("2026-01-01T00:00", size=size, **job, **fields)
        case ("pod", began, length, ipus, partition):
            fields = {"scheduled_at": began, "finished_at": _after(began, length)}
            store_pod("2026-01-01T00:00", job_uid="j", partition=partition, ipus=ipus, **fields)
        case ("told", when, name, free, faulty, reachable):
            CapacityChange.objects.update_or_create(
                {"total": 32, "free": free, "faulty": faulty, "reachable": reachable},
                controller=name,
                at=when,
            )
        case ("gap", began, length):
            end = began + timedelta(seconds=length)
            WatchGap.objects.create(watch="capacity", began_at=began, ended_at=end, cause="")
        case ("asked", when):
            WatchCheckpoint.objects.update_or_create({"position_at": when}, name="capacity")
        case ("refresh", when):
            refresh(when)
        case ("end", seconds):
            _end(timedelta(seconds=seconds))
        case (what,):
            _change(what)


def _end(length: timedelta) -> None:
    for one in PodLifetime.objects.filter(finished_at=None)[:1]:
        one.finished_at = one.scheduled_at + length
        one.save()
    for two in PartitionLifetime.objects.filter(released_at=None)[:1]:
        two.released_at = two.reserved_at + length
        two.save()


def _change(what: str) -> None:
    firsts = {
        model: model.objects.filter(pk__in=list(model.objects.values_list("pk", flat=True)[:1]))
        for model in _TABLES
    }
    match what:
        case "move":
            firsts[PartitionLifetime].update(controller="v2", size=2)
            firsts[PodLifetime].update(micro_ipus=7)
        case "rename":
            firsts[PartitionLifetime].update(partition="p1")
            PodLifetime.objects.filter(partition="").update(partition="p0")
        case "unheld":
            firsts[PartitionLifetime].delete()
        case "untold":
            firsts[CapacityChange].delete()
        case "retold":
            later = FIRST + timedelta(hours=5)
            if not CapacityChange.objects.filter(at=later).exists():
                firsts[CapacityChange].update(at=later, total=40)
        case "ungap":
            firsts[WatchGap].delete()
        case "unpod":
            firsts[PodLifetime].delete()


def _after(began: datetime, length: int | None) -> datetime | None:
    return None if length is None else began + timedelta(seconds=length)


def test_what_is_summed_is_read_from_the_sums_and_not_from_rows() -> None:
    CapacityChange.objects.create(controller="v1", at=FIRST, total=16, free=16)
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)
    assert refresh(NOW) == 2 * 96
    assert refresh(NOW) == 0
    for sums in (UtilizationHour, UtilizationQuarter):
        sums.objects.update(**dict.fromkeys(NAMES, 0))
    assert read_capacity([FIRST], NOW).steps == {}
    UtilizationDirt.objects.create(first_hour=FIRST, last_hour=FIRST)
    assert read_capacity([FIRST], NOW).steps["v1"][0].idle == 16 * 3600


QUARTER = timedelta(minutes=15)


@pytest.mark.parametrize(
    ("begin", "until", "quarters"),
    [
        (FIRST, NOW, 0),
        (FIRST + QUARTER, NOW - QUARTER, 6),
        (FIRST + QUARTER, FIRST + 3 * QUARTER, 2),
        (FIRST + 3 * QUARTER, FIRST + 5 * QUARTER, 2),
    ],
)
def test_whole_hours_are_read_as_such(begin: datetime, until: datetime, quarters: int) -> None:
    """A year of quarters takes 100 ms: whole hours have sums of their own."""
    CapacityChange.objects.create(controller="v1", at=FIRST, total=16, free=16)
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)
    refresh(NOW)
    UtilizationQuarter.objects.update(idle=1)
    hours = ((until - begin) - quarters * QUARTER) // timedelta(hours=1)
    (sums,) = read_capacity([begin], until).steps["v1"]
    assert sums.idle == quarters + hours * 16 * 3600


def test_hours_follow_their_quarters_one_by_one() -> None:
    CapacityChange.objects.create(controller="v1", at=FIRST, total=16, free=16)
    known, _ = WatchCheckpoint.objects.get_or_create(name="capacity")
    for number in range(1, 9):
        until = FIRST + number * QUARTER
        WatchCheckpoint.objects.filter(pk=known.pk).update(position_at=until)
        refresh(until)
        hours = UtilizationHour.objects.order_by("begin").values_list("idle", flat=True)
        quarters = [min(4, number), number - 4]
        assert list(hours) == [16 * 900 * each for each in quarters if each > 0]


_OLDER_RELEASE = """
DELETE FROM usage_utilizationdirt;
DELETE FROM usage_utilizationquarter WHERE begin >= %(begin)s AND begin < %(until)s;
INSERT INTO usage_utilizationquarter (controller, begin, capacity, reserved, by_others, held_idle,
  idle, down, unknown, pod_micro)
SELECT 'v1', begin, 8, 0, 0, 0, 8, 0, 0, 0 FROM generate_series(%(begin)s,
  %(until)s - interval '15 minutes', interval '15 minutes') AS begin;
DELETE FROM usage_utilizationstate;
INSERT INTO usage_utilizationstate (begin, until, known_until)
VALUES (%(first)s, %(until)s, %(until)s)
"""
"""A refresh of a release without sums of hours, which finds 8 IPU-seconds in each quarter."""


@pytest.mark.parametrize("is_week", [False, True])
@pytest.mark.parametrize(
    ("begin", "idle"), [(FIRST, 50 * 32), (NOW, 48 * 57_600 + 2 * 32)], ids=["stale", "missing"]
)
def test_hours_are_not_read_after_an_older_release_summed_until_all_are_summed_again(
    begin: datetime, idle: int, is_week: bool
) -> None:
    until = NOW + timedelta(hours=2)
    CapacityChange.objects.create(controller="v1", at=FIRST, total=16, free=16)
    known = WatchCheckpoint.objects.create(name="capacity", position_at=NOW)
    refresh(NOW)
    WatchCheckpoint.objects.filter(pk=known.pk).update(position_at=until)
    with connection.cursor() as cursor:
        cursor.execute(_OLDER_RELEASE, {"first": FIRST, "begin": begin, "until": until})

    def read() -> tuple[int, int]:
        record = read_capacity([FIRST], until, week_of(FIRST, until, ZONES[0]) if is_week else None)
        week = sum(each.idle for each in record.week.values())
        return record.steps["v1"][0].idle, week

    want = (idle, idle if is_week else 0)
    assert read() == want
    assert refresh(until) == 0
    UtilizationQuarter.objects.update(idle=0)  # so nothing comes from quarters
    assert read() == want


def test_clocks_beside_whole_hours_read_quarters_for_the_hours_of_the_week() -> None:
    CapacityChange.objects.create(controller="v1", at=FIRST, total=16, free=16)
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)
    refresh(NOW)
    UtilizationHour.objects.all().delete()
    zone = ZoneInfo("Asia/Kathmandu")  # 5:45 ahead
    record = read_capacity([FIRST], NOW, week_of(FIRST, NOW, zone))
    assert record.steps["v1"][0].idle == 16 * 3600 * 48
    assert record.week[5 + 24].idle == 16 * 900  # Tuesday 05:45 to 06:00, where all begins
    assert sum(each.idle for each in record.week.values()) == 16 * 3600 * 48


def test_a_week_of_one_controller_and_the_sums_of_all_are_read_at_once() -> None:
    """A year of hours was read twice for them."""
    for name, total in (("v1", 16), ("v2", 8)):
        CapacityChange.objects.create(controller=name, at=FIRST, total=total, free=total)
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)
    refresh(NOW)
    with CaptureQueriesContext(connection) as queries:
        record = read_capacity([FIRST], NOW, week_of(FIRST, NOW, ZONES[0], "v2"))
    assert {name: step.idle for name, (step,) in record.steps.items()} == {
        "v1": 48 * 16 * 3600,
        "v2": 48 * 8 * 3600,
    }
    assert {slot: each.idle for slot, each in record.week.items()} == dict.fromkeys(
        range(24, 72), 8 * 3600
    )
    assert sum(each["sql"].count("FROM usage_utilizationhour") for each in queries) == 1


LATE_CHANGES: dict[str, Callable[[], object]] = {
    "a holding ends earlier": lambda: _first(PartitionLifetime).update(
        released_at=at("2026-11-10T00:20")
    ),
    "a holding is another controller's": lambda: _first(PartitionLifetime).update(controller="v2"),
    "a holding is gone": lambda: _first(PartitionLifetime).delete(),
    "a state is told late": lambda: CapacityChange.objects.create(
        controller="v1", at=at("2026-11-10T02:00"), total=64, free=64
    ),
    "a state is gone": lambda: _first(CapacityChange).delete(),
    "a gap is found": lambda: WatchGap.objects.create(
        watch="capacity", began_at=at("2026-11-10T06:00"), ended_at=at("2026-11-10T07:00"), cause=""
    ),
    "a gap is gone": lambda: WatchGap.objects.all().delete(),
    "controllers were asked after all": lambda: WatchCheckpoint.objects.update(position_at=NOW),
    "a pod ran on it": lambda: PodLifetime.objects.update(partition="p0"),
    "a pod was of the job": lambda: PodLifetime.objects.update(job_uid="j", partition=""),
}


@pytest.mark.parametrize("late", LATE_CHANGES)
def test_a_late_change_is_read_from_the_rows_until_it_is_summed(late: str) -> None:
    for hour, free in (("00:30", 20), ("05:00", 32)):
        reading = {"at": at(f"2026-11-10T{hour}"), "total": 32, "free": free}
        CapacityChange.objects.create(controller="v1", **reading)
    store_partition(
        "2026-11-10T00:00", "2026-11-10T00:40", controller="v1", job_uid="j", partition="p0"
    )
    store_pod("2026-11-10T00:00", "2026-11-10T00:35", job_uid="j", partition="other", ipus=4)
    PodLifetime.objects.update(job_uid="j" if late == "a pod ran on it" else "k")
    night = {"began_at": at("2026-11-10T09:00"), "ended_at": at("2026-11-10T10:00")}
    WatchGap.objects.create(watch="capacity", cause="", **night)
    WatchCheckpoint.objects.create(name="capacity", position_at=at("2026-11-10T12:00"))
    refresh(NOW)
    before = _plainly([FIRST, NOW])
    LATE_CHANGES[late]()
    assert _plainly([FIRST, NOW]) != before
    _agree(step_begins(Window.of(FIRST, NOW, NOW), "hour", ZONES[0]), NOW)
    refresh(NOW)
    _agree(step_begins(Window.of(FIRST, NOW, NOW), "hour", ZONES[0]), NOW)


def _first(model: Any) -> Any:
    return model.objects.filter(pk=model.objects.order_by("pk").values("pk")[:1])
