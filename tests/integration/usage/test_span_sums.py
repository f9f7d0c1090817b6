"""Thirds of months are read from one sum each, made together with the sums of their days."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from django.db.models import F

from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.usage.test_usage_sums import ask, summary
from usage.models import (
    KindDay,
    KindSpan,
    PartitionDay,
    PartitionSpan,
    PodLifetime,
    RollupState,
    UsageDay,
    UsageSpan,
    UserDay,
    UserSpan,
)
from usage.sums.rollups import rebuild, refresh

if TYPE_CHECKING:
    from django.db import models

pytestmark = pytest.mark.django_db
ZONE, NOW = ZoneInfo("UTC"), at("2026-11-21T12:00")
SPANS: tuple[type[models.Model], ...] = (UsageSpan, UserSpan, KindSpan, PartitionSpan)
DAYS: tuple[type[models.Model], ...] = (UsageDay, UserDay, KindDay, PartitionDay)
HOUR = 3600


@pytest.fixture(autouse=True)
def _history(db: None) -> None:
    store_pod("2026-10-30T00:00", "2026-11-12T00:00", ipus=4)
    store_pod("2026-11-05T00:00", "2026-11-05T01:00")
    store_partition("2026-10-30T00:00", "2026-11-12T00:00")
    refresh(NOW, ZONE)


@pytest.mark.parametrize("by", ["group", "user", "instance_type"])
def test_whole_spans_are_read_and_none_of_their_days(by: str) -> None:
    before = summary(ask("2026-11-01", "2026-11-15", by))
    for days in DAYS:
        days.objects.filter(day__lt="2026-11-11").delete()
    assert summary(ask("2026-11-01", "2026-11-15", by)) == before
    for spans in SPANS[:3]:
        spans.objects.update(seconds=F("seconds") + HOUR)
    after = summary(ask("2026-11-01", "2026-11-15", by))
    assert sum(each.seconds for each in after.values()) == HOUR + sum(
        each.seconds for each in before.values()
    )


def test_who_was_there_before_a_span_counts_in_it_only_where_a_step_begins_with_it() -> None:
    (found,) = UsageSpan.objects.filter(span="2026-11-01")
    assert (found.pods, found.begun) == (2, 1)
    (all_of,) = summary(ask("2026-10-21", "2026-11-21")).values()
    assert (all_of.pods, all_of.partitions) == (2, 1)
    (october,) = summary(ask("2026-10-21", "2026-11-01")).values()
    assert (october.pods, october.partitions) == (1, 1)


def test_a_span_with_a_change_is_read_by_day_until_it_is_summed_anew() -> None:
    for spans in SPANS:
        spans.objects.update(span=F("span"), begun=1000)
    PodLifetime.objects.filter(scheduled_at__gte=at("2026-11-05")).update(gpus=2)
    (found,) = summary(ask("2026-11-01", "2026-11-11")).values()
    assert found.gpu_seconds == 2 * HOUR
    refresh(NOW, ZONE)
    assert UsageSpan.objects.get(span="2026-11-01").gpu_seconds == 2 * HOUR


def test_a_span_is_summed_once_its_last_day_is() -> None:
    refresh(at("2026-11-10T12:00"), ZONE)
    refresh(at("2026-11-10T13:00"), ZONE)
    store_pod("2026-11-09T12:00", "2026-11-09T13:00")  # spoils what was summed of it
    refresh(at("2026-11-10T12:00"), ZONE)
    assert not UsageSpan.objects.filter(span="2026-11-01").exists()
    refresh(at("2026-11-11T00:10"), ZONE)
    assert UsageSpan.objects.get(span="2026-11-01").pods == 3


def test_a_rebuild_and_another_zone_make_them_anew() -> None:
    UsageSpan.objects.update(seconds=1)
    rebuild(NOW, ZONE, lambda *_: None)
    assert UsageSpan.objects.get(span="2026-11-01").seconds == 10 * 24 * HOUR + HOUR
    refresh(NOW, ZoneInfo("Asia/Kolkata"))
    assert UsageSpan.objects.get(span="2026-11-11").seconds == 24 * HOUR + 5.5 * HOUR


def test_what_an_older_release_summed_is_read_by_day() -> None:
    UsageSpan.objects.all().delete()
    KindSpan.objects.all().delete()
    RollupState.objects.update(accelerated_from=None)
    (found,) = summary(ask("2026-11-01", "2026-11-11")).values()
    assert found.seconds == 10 * 24 * HOUR + HOUR
    refresh(NOW, ZONE)
    assert UsageSpan.objects.filter(span=date(2026, 11, 1)).exists()
