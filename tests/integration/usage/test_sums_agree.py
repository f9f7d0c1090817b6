"""Day and hour sums, month report, API and a plain loop agree, in whole numbers, whatever happens.

Random lifetimes in random zones, changed, deleted and added to, with refreshes, rebuilds and
reports in between, in any order.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth import get_user_model
from django.db.models import Sum
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitions.models import PartitionLifetime
from tests.builders.clients import api_client
from tests.builders.lifetimes import at, store_partition, store_pod
from usage.models import (
    GroupHour,
    KindHour,
    MonthReport,
    PartitionKindHour,
    PodLifetime,
    RollupDirt,
    RollupState,
)
from usage.reports.making import make_month
from usage.sums.rollups import rebuild, refresh
from usage.time.windows import Month, clip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from django.db import models
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db
MONTH, HOUR = Month(2026, 11), timedelta(hours=1)
FIRST = at("2026-10-30T00:00")
ZONES = [ZoneInfo(name) for name in ("UTC", "Asia/Kolkata", "America/St_Johns", "Europe/Berlin")]
SUMS = (
    "seconds",
    "millicore_seconds",
    "byte_seconds",
    "gpu_seconds",
    "micro_ipu_seconds",
    "partition_ipu_seconds",
)
instants = st.integers(0, 34 * 86_400 * 10).map(
    lambda tenths: FIRST + timedelta(seconds=tenths / 10)
)
lengths = st.none() | st.integers(0, 4 * 86_400) | st.integers(0, 7200)
group = st.sampled_from(["a", "b"])
new = st.tuples(st.just("pod"), instants, lengths, group, st.integers(0, 16 * 10**6))
holding = st.tuples(st.just("held"), instants, lengths, group, st.sampled_from([1, 4, 64]))
ending = st.tuples(st.just("end"), st.integers(0, 86_400))
other = st.sampled_from([("move",), ("delete",), ("refresh",), ("rebuild",), ("report",)])
histories = st.lists(new | new | holding | ending | other, min_size=1, max_size=14)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories, zone=st.sampled_from(ZONES), now=instants)
def test_sums_agree_wherever_they_come_from(
    history: list[Any], zone: ZoneInfo, now: datetime, settings: SettingsWrapper
) -> None:
    for model in (PodLifetime, PartitionLifetime, MonthReport, RollupState, RollupDirt):
        model.objects.all().delete()
    settings.REPORT_ZONE = zone
    now = max(now.replace(microsecond=0), MONTH.first(zone) + timedelta(seconds=1))
    for event in history:
        _happen(event, zone, now)
    want = _by_hand(zone, now)
    assert _of_the_report(zone, now) == want
    for _ in range(2):
        assert _of_the_api(now) == want
        assert _of_the_api(now, "hour") == want
        refresh(now, zone)
    rebuild(now, zone, lambda *_: None)
    assert _of_the_api(now) == want
    assert_hours_are_those_of_the_lifetimes(now)


def assert_hours_are_those_of_the_lifetimes(now: datetime) -> None:
    """By a loop, for each hour that is over: sums by group, by kind, and of partitions."""
    pods: Counter[tuple[Any, ...]] = Counter()
    partitions: Counter[tuple[Any, ...]] = Counter()
    until = now.replace(minute=0, second=0)
    for row in PodLifetime.objects.all():
        for hour, seconds in _hours_of(row.scheduled_at, row.finished_at, until):
            group = (hour, row.namespace, row.group)
            for key in (group, (*group, row.component, row.instance_type)):
                pods[(*key, "pods")] += 1
                pods[(*key, "begun")] += hour <= row.scheduled_at
                pods[(*key, "seconds")] += seconds
                pods[(*key, "micro_ipu_seconds")] += seconds * row.micro_ipus
                pods[(*key, "gpu_seconds")] += seconds * row.gpus
                goes_on = row.finished_at is None or row.finished_at >= hour + HOUR
                pods[(*key, "going_micro_ipus")] += goes_on * row.micro_ipus
    for one in PartitionLifetime.objects.all():
        for hour, seconds in _hours_of(one.reserved_at, one.released_at, until):
            key = (hour, one.namespace, one.group, one.size)
            partitions[(*key, "partitions")] += 1
            partitions[(*key, "begun")] += hour <= one.reserved_at
            partitions[(*key, "partition_ipu_seconds")] += seconds * one.size
    by_kind = _stored(KindHour, ("namespace", "group", "component", "instance_type"))
    assert _stored(GroupHour, ("namespace", "group")) | by_kind == +pods
    assert _stored(PartitionKindHour, ("namespace", "group", "size")) == +partitions


def _hours_of(
    began: Any, ended: datetime | None, until: datetime
) -> Iterator[tuple[datetime, int]]:
    hour = began.replace(minute=0, second=0, microsecond=0)
    while hour < until:
        if piece := clip(began, ended, hour, hour + HOUR):
            yield hour, piece.seconds
        elif hour > began:
            return
        hour += HOUR


def _stored(model: type[models.Model], key: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    names = {
        "pods",
        "begun",
        "seconds",
        "micro_ipu_seconds",
        "gpu_seconds",
        "going_micro_ipus",
        "partitions",
        "partition_ipu_seconds",
    } & {field.name for field in model._meta.get_fields()}
    found: Counter[tuple[Any, ...]] = Counter()
    for row in model.objects.all():
        for name in names:
            found[(row.hour, *(getattr(row, each) for each in key), name)] += getattr(row, name)
    return +found


def _happen(event: Any, zone: ZoneInfo, now: datetime) -> None:
    match event:
        case ("pod", began, length, name, micro):
            end = None if length is None else began + timedelta(seconds=length)
            common = {"group": name, "scheduled_at": began, "finished_at": end}
            store_pod("2026-01-01T00:00", micro_ipus=micro, gpus=micro % 3, **common)
        case ("held", began, length, name, size):
            end = None if length is None else began + timedelta(seconds=length)
            common = {"group": name, "reserved_at": began, "released_at": end}
            store_partition("2026-01-01T00:00", size=size, **common)
        case ("end", seconds):
            for one in PodLifetime.objects.filter(finished_at=None)[:1]:
                one.finished_at = one.scheduled_at + timedelta(seconds=seconds)
                one.save()
            for two in PartitionLifetime.objects.filter(released_at=None)[:1]:
                two.released_at = two.reserved_at + timedelta(seconds=seconds)
                two.save()
        case ("move",):
            PodLifetime.objects.filter(group="a").update(group="b", gpus=5)
            PartitionLifetime.objects.filter(group="b").update(group="a", size=2)
        case ("delete",):
            PodLifetime.objects.filter(pk=PodLifetime.objects.values("pk")[:1]).delete()
        case ("refresh",):
            refresh(now, zone)
        case ("rebuild",):
            rebuild(now, zone, lambda *_: None)
        case ("report",):
            _of_the_report(zone, now)


def _by_hand(zone: ZoneInfo, now: datetime) -> dict[str, int]:
    found = dict.fromkeys(SUMS, 0)
    first, until = MONTH.first(zone), min(MONTH.end(zone), now)
    for row in PodLifetime.objects.all():
        if piece := clip(row.scheduled_at, row.finished_at, first, until):
            found["seconds"] += piece.seconds
            found["millicore_seconds"] += piece.seconds * row.cpu_millicores
            found["byte_seconds"] += piece.seconds * row.memory_bytes
            found["gpu_seconds"] += piece.seconds * row.gpus
            found["micro_ipu_seconds"] += piece.seconds * row.micro_ipus
    for partition in PartitionLifetime.objects.all():
        if piece := clip(partition.reserved_at, partition.released_at, first, until):
            found["partition_ipu_seconds"] += piece.seconds * partition.size
    return found


def _of_the_report(zone: ZoneInfo, now: datetime) -> dict[str, int]:
    report = make_month(MONTH, now, zone)
    sums = report.rows.aggregate(**{name: Sum(name) for name in SUMS})
    return {name: int(sums[name] or 0) for name in SUMS}


def _of_the_api(now: datetime, step: str = "") -> dict[str, int]:
    user, _ = get_user_model().objects.get_or_create(username="root", is_staff=True)
    # A month of hours by group is more than a page.
    place = f"series?month={MONTH}&step={step}" if step else f"summary?month={MONTH}&by=group"
    with mock.patch.object(timezone, "now", return_value=now):
        answer = api_client(user).get(f"/api/v1/usage/{place}&page_size=1000")
    assert answer.status_code == 200, answer.content
    sums = [row["exact"] for row in answer.json()["results"]]
    return {name: sum(row[name] for row in sums) for name in SUMS}
