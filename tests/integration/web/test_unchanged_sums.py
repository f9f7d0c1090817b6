"""Sums that a reader has are known without adding up, and no change of theirs is missed."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ipuhub.models import Heartbeat, RoleGrant, WatchCheckpoint, WatchGap
from partitions.models import CapacityChange
from tests.builders.clients import browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import make
from usage import unchanged
from usage.models import PodLifetime, PurgeState, RollupDirt, UtilizationDirt
from usage.reports.making import correct_month
from usage.sums import rollups
from usage.time.windows import Month
from usage.utilization import rollups as utilization

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db(transaction=True)
NOW = at("2026-12-05T12:00")
UTC = ZoneInfo("UTC")
SUMS = "/api/v1/usage/summary?month=2026-10&by=group"
BY_USER = "/api/v1/usage/summary?month=2026-10&by=user"
SERIES = "/api/v1/usage/series?month=2026-10&by=group&step=hour"
CHART = "/usage/chart.json?month=2026-10&by=user&measure=cost"
CAPACITY = "/api/v1/usage/capacity?month=2026-10&step=hour"
CAPACITY_CHART = "/utilization/chart.json?month=2026-10"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)


def ask(client: Client, address: str, tag: str = "") -> tuple[Any, int]:
    """The answer, and how many statements it took."""
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(address, headers={"If-None-Match": tag} if tag else {})
        return answer, len(queries.captured_queries)


def summed() -> None:
    rollups.refresh(NOW, UTC)
    utilization.refresh(NOW)


def after(client: Client, addresses: tuple[str, ...], change: Callable[[], object]) -> list[bool]:
    """Return for each of the addresses whether its answer and tag differ after the change."""
    tags = [ask(client, address)[0]["ETag"] for address in addresses]
    assert [ask(client, *each)[0].status_code for each in zip(addresses, tags, strict=True)] == [
        304 for _ in addresses
    ]
    change()
    found = []
    for address, tag in zip(addresses, tags, strict=True):
        answer, _ = ask(client, address, tag)
        assert answer.status_code != 304 or answer["ETag"] == tag
        found.append(answer.status_code != 304 and answer.headers.get("ETag") != tag)
        assert answer.status_code == 304 or ask(client, address)[0].content == answer.content
    return found


def test_sums_of_time_that_is_over_are_known_while_other_rows_change(staff: Client) -> None:
    store_pod("2026-10-10T00:00", "2026-10-10T02:00", ipus=4)
    store_partition("2026-10-10T00:00", "2026-10-10T02:00", controller="v1")
    CapacityChange.objects.create(controller="v1", at=at("2026-10-01T00:00"), total=16, free=16)
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)
    summed()
    for address in (SUMS, SERIES, CHART, CAPACITY, CAPACITY_CHART):
        first, read = ask(staff, address)
        assert first.status_code == 200, first.content
        WatchCheckpoint.objects.update(position_at=NOW + dt.timedelta(seconds=30))
        Heartbeat.objects.update_or_create(name="web", defaults={"at": NOW})
        again, fewer = ask(staff, address, first["ETag"])
        assert (again.status_code, again["ETag"]) == (304, first["ETag"])
        assert fewer < read, address


def test_no_change_of_sums_is_missed(staff: Client, settings: SettingsWrapper) -> None:
    pod = store_pod("2026-10-10T00:00", "2026-10-10T02:00", ipus=4)
    summed()
    addresses = (SUMS, SERIES, CHART)
    assert after(staff, addresses, lambda: store_rate("ipu", "1")) == [True, True, True]

    def change() -> None:
        PodLifetime.objects.filter(pk=pod.pk).update(finished_at=at("2026-10-10T03:00"))

    def change_and_sum() -> None:
        store_pod("2026-10-11T00:00", "2026-10-11T02:00", ipus=4)
        summed()
        assert not RollupDirt.objects.exists()

    assert after(staff, addresses, change) == [True, True, True]
    summed()
    assert after(staff, addresses, change_and_sum) == [True, True, True]

    def move() -> None:
        settings.REPORT_ZONE = ZoneInfo("Asia/Tokyo")

    assert after(staff, (SUMS, SERIES), move) == [True, True]
    settings.REPORT_ZONE = UTC

    assert after(staff, addresses, lambda: make("2026-10", "2026-12-01T00:00")) == [
        False,
        False,
        True,
    ]
    store_pod("2026-10-12T00:00", "2026-10-12T02:00", ipus=4)
    summed()
    corrected = after(staff, addresses, lambda: correct_month(Month(2026, 10), NOW))
    assert corrected == [True, False, True]

    def purge() -> None:
        PurgeState.objects.create(
            purged_before=dt.date(2026, 11, 1), zone="Asia/Tokyo", began_at=NOW
        )

    assert after(staff, (BY_USER,), purge) == [True]


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize(
    ("address", "place"),
    [(SUMS, "usage.api.sums"), (SERIES, "usage.api.sums"), (CHART, "usage.views")],
)
def test_a_price_that_comes_between_the_question_and_its_sums_is_not_missed(
    staff: Client, monkeypatch: pytest.MonkeyPatch, address: str, place: str, *, is_before: bool
) -> None:
    store_pod("2026-10-10T00:00", "2026-10-10T02:00", ipus=4)
    summed()
    free = ask(staff, address)[0].json()

    def priced(*given: Any) -> unchanged.Poll:
        poll = None if is_before else unchanged.sums_poll(*given)
        store_rate("ipu", "1")
        return poll or unchanged.sums_poll(*given)

    with monkeypatch.context() as patched:
        patched.setattr(f"{place}.sums_poll", priced)
        before = ask(staff, address)[0]
    answer = ask(staff, address, before["ETag"])[0]
    held = before if answer.status_code == 304 else answer
    assert held.json() == ask(staff, address)[0].json() != free


def test_no_price_is_read_for_sums_that_are_known(staff: Client) -> None:
    store_pod("2026-10-10T00:00", "2026-10-10T02:00", ipus=4)
    store_rate("ipu", "1")
    summed()
    for address in (SUMS, SERIES, CHART):
        tag = ask(staff, address)[0]["ETag"]
        with CaptureQueriesContext(connection) as queries:
            assert staff.get(address, headers={"If-None-Match": tag}).status_code == 304
        assert not [each for each in queries.captured_queries if "valid_from" in each["sql"]]


def test_no_change_of_utilization_is_missed(staff: Client) -> None:
    CapacityChange.objects.create(controller="v1", at=at("2026-10-01T00:00"), total=16, free=16)
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)
    summed()
    addresses = (CAPACITY, CAPACITY_CHART)

    def hold_and_sum() -> None:
        store_partition("2026-10-02T00:00", "2026-10-02T02:00", controller="v1")
        summed()
        assert not UtilizationDirt.objects.exists()

    def hold() -> None:
        store_partition("2026-10-01T00:00", "2026-10-01T02:00", controller="v1")

    def miss() -> None:
        began = at("2026-10-01T05:00")
        ended = began + dt.timedelta(minutes=9)
        WatchGap.objects.create(watch="capacity", began_at=began, ended_at=ended, cause="")

    def poll_no_more() -> None:
        WatchCheckpoint.objects.update(position_at=at("2026-10-01T07:00"))

    for change in (hold, hold_and_sum, miss, poll_no_more):
        summed()
        assert after(staff, addresses, change) == [True, True], change


def test_who_loses_a_namespace_loses_its_sums(alice: User) -> None:
    store_pod("2026-10-10T00:00", "2026-10-10T02:00", ipus=4)
    summed()
    client = browser(alice)
    assert after(client, (SUMS,), RoleGrant.objects.filter(user=alice).delete) == [True]


def test_sums_of_lifetimes_change_with_any_row(staff: Client, settings: SettingsWrapper) -> None:
    """Labels are in no tables of sums, so no trigger marks their change."""
    settings.USAGE_LABELS = ["team"]
    pod = store_pod("2026-10-10T00:00", "2026-10-10T02:00", ipus=4, labels={"team": "a"})
    summed()
    rows = PodLifetime.objects.filter(pk=pod.pk)
    addresses = ("/api/v1/usage/summary?month=2026-10&by=label:team",)
    assert after(staff, addresses, lambda: rows.update(labels={"team": "b"})) == [True]


def test_what_still_runs_is_added_up_each_second(
    staff: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_pod("2026-12-05T00:00", ipus=4000, job_uid="uid-1")
    summed()
    addresses = ("/usage/chart.json", "/api/v1/usage/summary?by=job")

    def wait() -> None:
        monkeypatch.setattr(timezone, "now", lambda: NOW + dt.timedelta(seconds=20))

    assert after(staff, addresses, wait) == [True, True]
    rename = PodLifetime.objects.filter(job_uid="uid-1")
    assert after(staff, addresses, lambda: rename.update(group="other")) == [True, False]
    assert after(staff, addresses, lambda: rename.update(job_uid="uid-2")) == [False, True]
