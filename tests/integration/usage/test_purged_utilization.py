"""Utilization of a month stays the same after its rows are purged, and so do the months after
it."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from ipuhub.models import WatchCheckpoint, WatchGap
from partitions.models import CapacityChange, PartitionLifetime
from tests.builders.clients import api_client
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.usage.reading import make
from usage.models import UtilizationHour, UtilizationQuarter, UtilizationState
from usage.time import months
from usage.utilization.rollups import rebuild, refresh

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db
NOW = at("2026-11-21T12:00")
JOB: dict[str, Any] = {"job_uid": "j", "partition": "p", "controller": "v1"}


@pytest.fixture(autouse=True)
def _months(db: None, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.USAGE_RETENTION_MONTHS = 2
    settings.USAGE_RETENTION_GAPS_MONTHS = 1
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    monkeypatch.setattr(months, "CLOCKS_DIFFER", timedelta.max)  # of the machine and of NOW
    CapacityChange.objects.create(controller="v1", at=at("2026-08-01T00:00"), total=16, free=12)
    CapacityChange.objects.create(controller="v1", at=at("2026-08-31T22:00"), total=16, free=8)
    store_partition("2026-08-31T21:00", "2026-08-31T23:00", **JOB)
    store_partition("2026-08-05T00:00", "2026-08-05T01:00", **JOB)
    store_pod("2026-08-31T21:00", "2026-08-31T22:00", job_uid="j", partition="p", ipus=4)
    for day in ("2026-08-10", "2026-09-10"):
        fields = {"began_at": at(f"{day}T00:00"), "ended_at": at(f"{day}T06:00"), "cause": ""}
        WatchGap.objects.create(watch="capacity", **fields)
    WatchCheckpoint.objects.create(name="capacity", position_at=NOW)


def purge() -> None:
    for month in ("2026-08", "2026-09"):
        make(month, "2026-11-20T00:00")
    call_command("purge_usage", stdout=StringIO(), stderr=StringIO())


def get_capacity(django_user_model: Any, query: str, status: int = 200) -> Any:
    user, _ = django_user_model.objects.get_or_create(username="root", is_staff=True)
    answer = api_client(user).get(f"/api/v1/usage/capacity?{query}")
    assert answer.status_code == status, answer.content
    return answer.json()


@pytest.mark.parametrize("query", ["month=2026-08", "from=2026-08-01&to=2026-09-30&step=week"])
def test_a_purge_changes_no_sum_of_utilization(django_user_model: type, query: str) -> None:
    before = get_capacity(django_user_model, query)
    assert before["total"]["exact"]["unknown_ipu_seconds"] > 0
    purge()
    assert list(PartitionLifetime.objects.values_list("reserved_at")) == [
        (at("2026-08-31T21:00"),)  # held as the controller told its last change
    ]
    assert get_capacity(django_user_model, query) == before
    refresh(NOW)
    UtilizationHour.objects.all().delete()
    rebuild(NOW, lambda *_: None)
    assert get_capacity(django_user_model, query) == before


def test_what_sums_by_quarter_of_an_hour_do_not_tell_is_refused_in_words(
    django_user_model: type,
) -> None:
    purge()
    answer = get_capacity(django_user_model, "from=2026-08-05T00:07:00Z&to=2026-09-02", 400)
    assert "quarter of an hour since 2026-08-01 00:00 UTC" in str(answer)
    get_capacity(django_user_model, "from=2026-08-05T00:15:00Z&to=2026-09-02")


def test_a_month_purged_before_there_were_such_sums_is_refused(django_user_model: type) -> None:
    purge()
    UtilizationState.objects.all().delete()
    UtilizationQuarter.objects.all().delete()
    UtilizationHour.objects.all().delete()
    refresh(NOW)
    answer = get_capacity(django_user_model, "month=2026-08", 400)
    assert (
        "raw rows before 2026-09-01 00:00 UTC were purged, and with them the utilization."
        in str(answer)
    )
    assert (
        get_capacity(django_user_model, "month=2026-09")["total"]["exact"]["by_others_ipu_seconds"]
        > 0
    )
