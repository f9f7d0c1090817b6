"""Hours by kind and group are read from sums whatever their day, equal to what lifetimes say."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from django.db.models import F

from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.usage.reading import make
from tests.integration.usage.test_usage_sums import ask, oracle, series, summary
from usage.models import (
    GroupAcceleratorHour,
    GroupHour,
    KindHour,
    PartitionHour,
    PartitionKindHour,
    PodLifetime,
    PurgeState,
    RollupState,
    UsageHour,
    UserHour,
)
from usage.retention import purging
from usage.retention.purging import PurgeRefused, Retention, make_plan, purge
from usage.sums.rollups import rebuild, refresh
from usage.time import months

if TYPE_CHECKING:
    from usage.sums.measures import Measures

pytestmark = pytest.mark.django_db
UTC, KOLKATA = ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata")
NOW = at("2026-11-21T12:00")
KEPT: tuple[Any, ...] = (GroupHour, KindHour)


@pytest.fixture(autouse=True)
def _history(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(months, "CLOCKS_DIFFER", timedelta.max)  # of the machine and of NOW
    common = {"group": "g", "user": "u", "gpus": 2, "accelerators": {"a": 2}}
    store_pod("2026-11-05T10:30", "2026-11-07T02:00", **common)
    store_pod("2026-11-06T12:00", "2026-11-06T12:20", **common)
    store_partition("2026-11-06T11:00", "2026-11-06T13:15", group="g", user="u", size=4)
    refresh(NOW, UTC)


def of_hours(by: str, begin: str = "2026-11-06T11:00", end: str = "2026-11-06T14:00") -> dict:
    question = ask(begin, end, by)
    found: dict[tuple[int, str], Measures]
    begins, found = series(question, "hour")
    return {begins[n].hour: each for (n, _), each in found.items()}


@pytest.mark.parametrize("by", ["group", "namespace", "instance_type", None])
def test_hours_of_a_past_day_are_read_from_sums(by: str | None) -> None:
    question = ask("2026-11-06T11:00", "2026-11-06T14:00", by)
    assert series(question, "hour")[1] == oracle(question, series(question, "hour")[0])
    KindHour.objects.update(seconds=F("seconds") + 10_000)
    GroupHour.objects.update(seconds=F("seconds") + 10_000)
    PartitionKindHour.objects.update(partition_ipu_seconds=10_000)
    found = series(question, "hour")[1].values()
    pods = [each for each in found if each.pods]
    assert sum(each.seconds for each in pods) == 3 * 10_000 + 3 * 3600 + 1200
    assert sum(each.partition_ipu_seconds for each in found) == 3 * 10_000


def test_hours_by_user_are_of_today_and_read_from_the_lifetimes_before() -> None:
    for model in (UsageHour, UserHour, PartitionHour):
        assert not model.objects.filter(hour__lt=at("2026-11-20T23:00")).exists()
    KEPT[0].objects.all().delete()
    assert {hour: each.seconds for hour, each in of_hours("user").items()} == {
        11: 3600,
        12: 3600 + 1200,
        13: 3600,
    }


def test_part_of_a_past_day_goes_on_from_the_hour_before_and_no_pod_is_looked_for() -> None:
    GroupHour.objects.filter(hour=at("2026-11-06T12:00")).update(going_pods=1001)
    question = ask("2026-11-06T11:00", "2026-11-06T13:30", "group", now=at("2026-11-06T13:30"))
    found = series(question, "month")[1]
    assert [each.seconds for each in found.values()] == [2 * 3600 + 1200 + 1001 * 1800]


def test_a_late_correction_corrects_the_hours_that_it_touches_and_no_others() -> None:
    store_pod("2026-11-06T12:10", "2026-11-06T12:40", group="g")
    for model in KEPT:
        model.objects.update(seconds=F("seconds") + 1)  # seen where they are read
    want = {11: 3601, 12: 3600 + 1200 + 1800, 13: 3601}
    assert {hour: each.seconds for hour, each in of_hours("group").items()} == want
    refresh(NOW, UTC)
    assert {hour: each.seconds for hour, each in of_hours("group").items()} == want
    PodLifetime.objects.filter(scheduled_at=at("2026-11-06T12:00")).update(
        finished_at=at("2026-11-06T13:10")
    )
    want |= {12: 3600 + 3600 + 1800, 13: 3600 + 600}
    for _ in range(2):
        assert {hour: each.seconds for hour, each in of_hours("group").items()} == want
        refresh(NOW, UTC)
    rebuild(NOW, UTC, lambda *_: None)
    want[11] = 3600
    assert {hour: each.seconds for hour, each in of_hours("group").items()} == want


def test_a_zone_of_half_hours_reads_the_same_hours() -> None:
    kept = set(GroupHour.objects.values_list("id", flat=True))
    refresh(NOW, KOLKATA)
    assert set(GroupHour.objects.values_list("id", flat=True)) == kept  # hours are those of UTC
    question = ask("2026-11-05T18:30", "2026-11-06T18:30", "group", zone=KOLKATA)
    begins, found = series(question, "hour")
    assert (len(begins), begins[1]) == (25, at("2026-11-05T19:00"))
    assert found == oracle(question, begins)
    GroupHour.objects.update(seconds=0)
    read = [n for (n, _), each in series(question, "hour")[1].items() if each.seconds]
    assert read == [0, 24]  # halves of hours, from the lifetimes


def test_where_an_older_release_summed_lifetimes_are_read_until_all_hours_are_summed() -> None:
    store_pod("2026-11-21T08:00", "2026-11-21T09:00", group="g", gpus=2, accelerators={"a": 2})
    refresh(NOW, UTC)
    before = of_hours("group")
    forget_hours()
    assert of_hours("group") == before
    refresh(NOW, UTC)
    assert of_hours("group") == before
    for model in (*KEPT, GroupAcceleratorHour):
        assert model.objects.count() == 41  # 10:00 on the 5th to 02:00 on the 7th, and today's
    assert PartitionKindHour.objects.count() == 3
    assert set(GroupAcceleratorHour.objects.values_list("going_gpus", flat=True)) == {2}
    assert RollupState.objects.get().kept_from == at("1970-01-01")


def forget_hours() -> None:
    """Leave what an older release leaves, which keeps no hours."""
    for model in (*KEPT, PartitionKindHour, GroupAcceleratorHour):
        model.objects.all().delete()
    RollupState.objects.update(kept_from=None)


def test_hours_of_the_past_are_added_in_pieces_which_an_end_does_not_lose() -> None:
    before = of_hours("group")
    forget_hours()
    progress: list[tuple[int, int]] = []

    def has_time() -> bool:
        if len(progress) == 5:
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        refresh(NOW, UTC, lambda *each: progress.append(each), has_time)
    total = 24 * 15 + 13  # from 10:00 on the 5th to 23:00 on the 20th
    assert progress == [(72 * n, total) for n in range(1, 6)]
    assert RollupState.objects.get().kept_from == at("2026-11-05T23:00")
    assert of_hours("group") == before
    GroupHour.objects.update(seconds=F("seconds") + 1)  # seen in what is not made again
    refresh(NOW, UTC, lambda *each: progress.append(each))
    assert progress[5:] == [(13, 13)]
    assert RollupState.objects.get().kept_from == at("1970-01-01")
    added = GroupHour.objects.filter(hour__lt=at("2026-11-05T23:00"))
    assert set(added.values_list("seconds", flat=True)) == {1800, 3600}
    assert {hour: each.seconds for hour, each in of_hours("group").items()} == {
        11: 3601,
        12: 3600 + 1200 + 1,
        13: 3601,
    }


def test_a_change_of_hours_that_are_still_to_be_added_is_in_them() -> None:
    forget_hours()
    refresh(NOW, UTC, has_time=lambda: False)
    assert RollupState.objects.get().kept_from == at("2026-11-20T23:00")
    store_pod("2026-11-06T12:10", "2026-11-06T12:40", group="g")
    want = {11: 3600, 12: 3600 + 1200 + 1800, 13: 3600}
    for _ in range(2):
        assert {hour: each.seconds for hour, each in of_hours("group").items()} == want
        refresh(NOW, UTC)


def test_nothing_is_purged_while_hours_are_still_to_be_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make("2026-11", "2027-02-10T00:00", UTC)
    now = at("2027-02-11T12:00")
    refresh(now, UTC)
    plan = make_plan(now, UTC, Retention(lifetimes=1))
    for is_left in (at("2026-11-06"), None):  # added in part; an older release summed
        RollupState.objects.update(kept_from=is_left)
        with monkeypatch.context() as patch:
            patch.setattr(purging, "refresh", lambda *_: None)  # another process is at it
            with pytest.raises(PurgeRefused, match="no totals yet"):
                purge(plan, now, UTC)
    assert PodLifetime.objects.count() == 2
    assert purge(plan, now, UTC) is not None


def purged(zone: ZoneInfo) -> None:
    make("2026-11", "2027-02-10T00:00", zone)
    now = at("2027-02-11T12:00")
    plan = make_plan(now, zone, Retention(lifetimes=1))
    assert purge(plan, now, zone) is not None
    assert not PodLifetime.objects.exists()


def test_hours_of_purged_days_stay() -> None:
    before = of_hours("group")
    purged(UTC)
    assert PurgeState.objects.get().purged_before == date(2026, 12, 1)
    for _ in range(2):
        assert of_hours("group") == before
        kinds = series(ask("2026-11-06T11:00", "2026-11-06T14:00", "component"), "hour")[1]
        assert sum(each.seconds for each in kinds.values()) == 3 * 3600 + 1200
        rebuild(at("2027-02-11T13:00"), UTC, lambda *_: None)
    RollupState.objects.update(kept_from=None)  # an older release has deleted the hours by kind
    refresh(at("2027-02-11T13:00"), UTC)
    assert not GroupHour.objects.filter(hour__lt=at("2026-12-01")).exists()
    with pytest.raises(Exception, match="or whole hours, by namespace, group, component"):
        of_hours("group")


def test_what_ended_with_the_last_purged_hour_is_not_counted_after_it() -> None:
    store_pod("2026-11-30T20:00", "2026-12-01T00:00", group="g")
    purged(UTC)
    store_pod("2026-12-01T00:10", "2026-12-01T00:20", group="g")  # the first hour left is changed
    assert GroupHour.objects.get(hour=at("2026-11-30T23:00")).going_pods == 1
    question = ask("2026-12-01", "2026-12-02", "group", now=at("2027-02-11T12:00"))
    (found,) = series(question, "month")[1].values()
    assert (found.pods, found.seconds) == (1, 600)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_hours_that_lost_rows_are_not_summed_without_them_in_another_zone(zone: str) -> None:
    store_pod("2026-11-30T16:00", "2026-11-30T17:00", group="g", user="u")
    store_pod("2026-11-30T23:00", "2026-12-02T20:00", group="g", user="v")  # stays
    make("2026-11", "2027-02-10T00:00", UTC)
    now = at("2027-02-11T12:00")
    assert purge(make_plan(now, UTC, Retention(lifetimes=1)), now, UTC) is not None
    PodLifetime.objects.update(estimated=True)  # all that is left changes, and is summed again
    other = ZoneInfo(zone)
    for _ in range(2):
        refresh(now, other)
        days = ("2026-11-30T15:00", "2026-12-01T15:00")  # of Tokyo; in Los Angeles hours
        begins, found = series(ask(*days, "group", now=now, zone=other), "hour")
        seconds = {begins[n]: each.seconds for (n, _), each in found.items()}
        assert seconds[at("2026-11-30T16:00")] == 3600
        assert sum(seconds.values()) == 3600 + 16 * 3600
        with pytest.raises(Exception, match="were purged"):
            summary(ask(*days, "user", now=now, zone=other))
        rest = ask("2026-12-01T00:00", "2026-12-01T15:00", "user", now=now, zone=other)
        assert {key: each.seconds for key, each in summary(rest).items()} == {"v": 15 * 3600}
        rebuild(now, other, lambda *_: None)


def test_the_hour_in_which_the_rows_that_are_left_begin_is_read_from_no_sum() -> None:
    purged(KOLKATA)
    assert PurgeState.objects.get().purged_before == date(2026, 12, 1)
    refresh(at("2027-02-11T13:00"), KOLKATA)
    assert RollupState.objects.get().kept_from == at("2026-11-30T19:00")
    with pytest.raises(Exception, match="were purged"):
        of_hours("group")
