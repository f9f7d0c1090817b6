"""Old rows go, closed months only, in batches; sums by day and reports stay and are said to."""

from __future__ import annotations

from datetime import date, timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from ipuhub.celery import app
from ipuhub.models import RecordFault, WatchGap
from ipuhub.recording.store import connection_arguments
from partitions.models import CapacityChange, PartitionLifetime
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import make
from usage.models import (
    MonthReport,
    PodLifetime,
    PurgeState,
    ReportChunk,
    ReportRun,
    RollupState,
    UsageDay,
)
from usage.retention.purged import PurgedError, purged_before, refuse_purged
from usage.retention.purging import PurgeRefused, Retention, make_plan, purge
from usage.sums.rollups import rebuild, refresh
from usage.tasks import make_daily_reports, purge_old_rows
from usage.time import months
from usage.time.windows import Month

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db
UTC, KOLKATA = ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata")
NOW = at("2026-11-21T12:00")
KEEP = Retention(lifetimes=2)


@pytest.fixture(autouse=True)
def _month_by_month(db: None, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.USAGE_RETENTION_MONTHS = 2
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    monkeypatch.setattr(months, "CLOCKS_DIFFER", timedelta.max)  # of the machine and of NOW
    for month in (7, 8, 9, 10):
        store_pod(
            f"2026-{month:02}-05T00:00", f"2026-{month:02}-05T01:00", pod_name=f"m{month}", ipus=4
        )
        store_partition(f"2026-{month:02}-05T00:00", f"2026-{month:02}-05T01:00")
    store_pod("2026-08-31T23:00", "2026-09-01T01:00", pod_name="into-september")
    store_pod("2026-07-01T00:00", None, pod_name="runs-on")


def close(*months: str) -> None:
    for month in months:
        make(month, "2026-11-20T00:00")


def left() -> set[str]:
    return set(PodLifetime.objects.values_list("pod_name", flat=True))


def stored_details() -> list[bytes]:
    chunks = ReportChunk.objects.filter(report__month="2026-08").order_by("profile", "number")
    return [bytes(chunk.data) for chunk in chunks]


def say(*arguments: str) -> str:
    output = StringIO()
    call_command("purge_usage", *arguments, stdout=output, stderr=StringIO())
    return output.getvalue()


def test_months_that_are_old_and_closed_go_and_what_reaches_further_stays() -> None:
    close("2026-07", "2026-08")
    state = purge(make_plan(NOW, UTC, KEEP), NOW, UTC, batch_rows=1)
    assert state is not None
    assert left() == {"m9", "m10", "into-september", "runs-on"}
    assert PartitionLifetime.objects.count() == 2
    assert (str(state.purged_before), state.finished_at) == ("2026-09-01", NOW)
    assert state.counts["pods"] == state.counts["partitions"] == 2
    assert purge(make_plan(NOW, UTC, KEEP), NOW, UTC) is None


def test_nothing_of_a_month_goes_whose_report_is_not_closed() -> None:
    close("2026-07")
    assert "the report of 2026-08 is not closed" in say()
    assert left() == {"m8", "m9", "m10", "into-september", "runs-on"}


def test_a_month_that_was_closed_in_another_zone_is_not_closed_for_this_one() -> None:
    close("2026-07", "2026-08")
    plan = make_plan(NOW, KOLKATA, KEEP)
    assert plan.day == date(2026, 7, 1)
    assert "the report of 2026-07 is not closed" in " ".join(plan.reasons)


def test_a_month_closed_in_a_zone_to_the_east_goes_when_that_after_it_is_closed_too() -> None:
    make("2026-07", "2026-11-20T00:00", KOLKATA)  # ends 5:30 h too early for this zone
    assert make_plan(NOW, UTC, KEEP).day == date(2026, 7, 1)
    make("2026-08", "2026-11-20T00:00", KOLKATA)
    assert make_plan(NOW, UTC, KEEP).day == date(2026, 8, 1)


def test_what_ended_as_the_first_month_kept_began_goes_scheduled_or_not() -> None:
    for name, ended in (("in-time", "2026-09-01T00:00"), ("later", "2026-09-01T00:00:01")):
        store_pod("2026-08-31T20:00", ended, pod_name=name)
        store_pod(None, ended, pod_name=f"unscheduled-{name}")
        store_partition("2026-08-31T20:00", ended, partition=name)
    store_pod(None, None, pod_name="waits")
    close("2026-07", "2026-08")
    state = purge(make_plan(NOW, UTC, KEEP), NOW, UTC)
    assert state is not None
    assert state.counts["pods never scheduled"] == 1
    stay = {"m9", "m10", "into-september", "runs-on", "later", "unscheduled-later", "waits"}
    assert left() == stay
    partitions = set(PartitionLifetime.objects.values_list("partition", flat=True))
    assert partitions & {"in-time", "later"} == {"later"}


def test_no_report_is_made_of_a_month_whose_first_hours_were_purged_in_another_zone() -> None:
    close("2026-07", "2026-08")
    purge(make_plan(NOW, UTC, KEEP), NOW, UTC)
    refuse_purged(at("2026-09-01T00:00"), UTC)
    with pytest.raises(PurgedError, match="before 2026-09-01 were purged"):
        refuse_purged(Month(2026, 9).first(KOLKATA), KOLKATA)


def test_nothing_goes_while_another_process_sums_the_days() -> None:
    with psycopg.connect(**connection_arguments(connection.settings_dict)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [0x75736167])
        close("2026-07", "2026-08")
        with pytest.raises(PurgeRefused, match="have no totals yet"):
            purge(make_plan(NOW, UTC, KEEP), NOW, UTC)
        free = other.execute("SELECT pg_try_advisory_lock(%s)", [0x70757267]).fetchone()
    assert free == (True,)  # what was refused keeps no lock
    assert len(left()) == 6
    assert not PurgeState.objects.exists()
    assert purge(make_plan(NOW, UTC, KEEP), NOW, UTC) is not None


def test_a_second_purge_at_the_same_time_leaves_it_to_the_first() -> None:
    close("2026-07", "2026-08")
    with psycopg.connect(**connection_arguments(connection.settings_dict)) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [0x70757267])
        assert purge(make_plan(NOW, UTC, KEEP), NOW, UTC) is None
    assert len(left()) == 6


def test_without_a_closed_month_everything_stays() -> None:
    for month, made in (("2026-07", "2026-08-20T00:00"), ("2026-08", "2026-09-20T00:00")):
        assert make(month, made).state == "provisional"
    assert "the report of 2026-07 is not closed" in say()
    assert len(left()) == 6


def test_a_dry_run_prints_what_goes_and_deletes_nothing() -> None:
    close("2026-07", "2026-08")
    output = say("--dry-run")
    assert "2 pods that ended before 2026-09-01 00:00 UTC" in output
    assert "2 partitions that ended" in output
    assert len(left()) == 6
    assert not PurgeState.objects.exists()
    assert "2 pods that ended" in say()


def test_by_default_everything_is_kept_for_ever(settings: SettingsWrapper) -> None:
    close("2026-07", "2026-08")
    settings.USAGE_RETENTION_MONTHS = 0
    assert "kept forever" in say()
    assert len(left()) == 6


def test_sums_by_day_and_reports_stay_even_when_all_is_summed_anew(
    django_user_model: type,
) -> None:
    user = django_user_model.objects.create_user("root", is_staff=True)
    close("2026-07", "2026-08")
    address = "/api/v1/usage/summary?month=2026-08&by=group"
    before, details = api_client(user).get(address).json(), stored_details()
    say()
    assert api_client(user).get(address).json() == before
    refresh(NOW, UTC)
    rebuild(NOW, UTC, lambda *_: None)
    assert api_client(user).get(address).json() == before
    assert before["total"]["exact"]["partition_ipu_seconds"] == 4 * 3600
    assert stored_details() == details


def test_a_month_keeps_the_cost_of_accelerators_by_name_without_its_pods(
    django_user_model: type,
) -> None:
    user = django_user_model.objects.create_user("root", is_staff=True)
    store_rate("accelerator", "3", name="g")
    PodLifetime.objects.filter(pod_name="m8").update(gpus=2, accelerators={"g": 2})
    close("2026-07", "2026-08")
    address = "/api/v1/usage/summary?month=2026-08&by=group"
    before = api_client(user).get(address).json()
    assert before["total"]["cost"] == "6.00"
    say()
    assert api_client(user).get(address).json() == before
    rebuild(NOW, UTC, lambda *_: None)
    assert api_client(user).get(address).json() == before


def test_a_month_purged_before_there_were_sums_by_name_has_no_cost_that_needs_them(
    django_user_model: type,
) -> None:
    user = django_user_model.objects.create_user("root", is_staff=True)
    store_rate("accelerator", "1", name="nvidia.com/gpu")
    close("2026-07", "2026-08")
    address = "/api/v1/usage/summary?month=2026-08&by=group"
    before = api_client(user).get(address).json()
    say()
    RollupState.objects.update(accelerated_from=None)  # an older release summed it all
    assert (before["total"]["cost"], before["pricing"]["lost_before"]) == ("0.00", None)
    for _ in range(2):
        found = api_client(user).get(address).json()
        assert (found["total"]["cost"], found["pricing"]["lost_before"]) == (None, "2026-09-01")
        assert found["total"]["exact"] == before["total"]["exact"]
        refresh(NOW, UTC)
    page = browser(user).get("/usage/?month=2026-08").content.decode()
    assert "No cost: accelerators are priced by name" in page
    assert (
        api_client(user).get("/api/v1/usage/summary?month=2026-10").json()["total"]["cost"]
        == "0.00"
    )


def test_sums_of_days_of_another_zone_stay_and_are_not_taken_for_this_one_s(
    django_user_model: type, settings: SettingsWrapper
) -> None:
    user = django_user_model.objects.create_user("root", is_staff=True)
    close("2026-07", "2026-08")
    say()
    settings.REPORT_ZONE = ZoneInfo("Asia/Kolkata")
    refresh(NOW, settings.REPORT_ZONE)
    assert UsageDay.objects.filter(day__lt="2026-09-01").exists()
    answer = api_client(user).get("/api/v1/usage/summary?month=2026-08&by=user")
    assert answer.status_code == 400
    assert "were purged" in answer.content.decode()
    # The month was closed by other clocks, with whole hours of UTC, whose sums by group are kept.
    answer = api_client(user).get("/api/v1/usage/summary?month=2026-08&by=group")
    assert answer.json()["total"]["exact"]["partition_ipu_seconds"] == 4 * 3600


@pytest.mark.parametrize("months", [0, 2, 1])
def test_a_purge_in_another_zone_does_not_take_the_sums_of_the_old_one_for_its_own(
    django_user_model: type, settings: SettingsWrapper, months: int
) -> None:
    user = django_user_model.objects.create_user("root", is_staff=True)
    close("2026-07", "2026-08", "2026-09")
    say()
    rows = left()
    for when in ("2026-01-01T00:00", "2026-01-02T00:00"):
        WatchGap.objects.create(watch="pods", began_at=at(when), ended_at=at(when), cause="")
    settings.REPORT_ZONE = ZoneInfo("Asia/Kolkata")
    settings.USAGE_RETENTION_MONTHS, settings.USAGE_RETENTION_GAPS_MONTHS = months, 1
    output = say()
    assert ("Set IPUHUB_REPORT_ZONE back to UTC" in output) == bool(months)
    assert (left(), WatchGap.objects.count()) == (rows, 0)
    answer = api_client(user).get("/api/v1/usage/summary?month=2026-08&by=group")
    assert answer.status_code == 400
    settings.REPORT_ZONE = UTC
    answer = api_client(user).get("/api/v1/usage/summary?month=2026-08&by=group")
    assert answer.json()["total"]["exact"]["partition_ipu_seconds"] == 4 * 3600


@pytest.mark.parametrize("query", ["", "&format=csv"])
def test_lists_of_what_is_left_say_what_is_gone(django_user_model: type, query: str) -> None:
    user = django_user_model.objects.create_user("root", is_staff=True)
    for want in (None, "2026-09-01"):
        paths = ["usage/lifetimes?namespace=team-a", "usage/partitions?month=2026-09"]
        for path in [*paths, *([] if query else ["partitions"])]:
            answer: Any = api_client(user).get(f"/api/v1/{path}{query}")
            assert answer.getvalue() if answer.streaming else answer.content
            assert (answer.status_code, answer.headers.get("Purged-Before")) == (200, want)
        for place in ("/usage/pods/", "/partitions/"):
            page = browser(user).get(place).content.decode()
            assert ("ended before 2026-09-01 were purged" in page) == bool(want)
        if not want:
            close("2026-07", "2026-08")
            say()


def test_the_system_page_shows_what_was_purged(django_user_model: type) -> None:
    client = browser(django_user_model.objects.create_user("root", is_staff=True))
    assert "No purge has run" in client.get("/system/").content.decode()
    close("2026-07", "2026-08")
    say()
    html = client.get("/system/").content.decode()
    assert "2 partitions, 2 pods deleted; lifetimes before 2026-09-01 are deleted" in " ".join(
        html.split()
    ).replace("0 changes of capacity, ", "").replace(", 0 pods never scheduled", "")


def test_what_needs_rows_that_are_gone_says_so(django_user_model: type) -> None:
    user = django_user_model.objects.create_user("root", is_staff=True)
    close("2026-07", "2026-08")
    say()
    for query in (
        "summary?month=2026-08&by=job",
        "series?from=2026-08-05&to=2026-08-06&step=hour&by=user",
        "summary?from=2026-08-05T00:30:00Z&to=2026-09-02",
        "capacity?from=2026-08-05T00:07:00Z&to=2026-09-02",
    ):
        answer = api_client(user).get(f"/api/v1/usage/{query}")
        assert answer.status_code == 400, query
        html = answer.content.decode().replace(" 00:00 UTC", "")
        assert "aw rows before 2026-09-01 were purged" in html
    assert api_client(user).get("/api/v1/usage/summary?month=2026-09&by=job").status_code == 200
    page = browser(user).get("/usage/?month=2026-08")
    assert "Individual rows before 2026-09-01 were purged. Daily totals and reports remain." in (
        page.content.decode()
    )
    assert browser(user).get("/usage/?month=2026-08&by=job").status_code == 400
    assert "were purged" not in browser(user).get("/usage/?month=2026-09").content.decode()


def test_the_capacity_that_still_holds_stays() -> None:
    for when in ("2026-07-01", "2026-08-01", "2026-09-10"):
        CapacityChange.objects.create(controller="v1", at=at(when), total=4, free=4)
    for when in ("2026-08-10", "2026-09-01"):
        CapacityChange.objects.create(controller="v2", at=at(when), total=4, free=4)
    close("2026-07", "2026-08")
    say()
    assert [(row.controller, row.at) for row in CapacityChange.objects.order_by("at")] == [
        ("v1", at("2026-08-01")),
        ("v2", at("2026-09-01")),
        ("v1", at("2026-09-10")),
    ]


def test_gaps_and_faults_have_their_own_times(settings: SettingsWrapper) -> None:
    settings.USAGE_RETENTION_MONTHS = 0
    settings.USAGE_RETENTION_GAPS_MONTHS = 1
    for when in ("2026-09-30T23:00", "2026-10-01T00:00"):
        end = at(when) + timedelta(minutes=30)
        WatchGap.objects.create(watch="pods", began_at=at(when), ended_at=end, cause="")
        RecordFault.objects.create(watch="pods", code="x", uid=when, first_at=end, last_at=end)
    assert "1 gaps" in say()
    assert (WatchGap.objects.count(), RecordFault.objects.count(), len(left())) == (1, 2, 6)
    assert purged_before() is None  # of lifetimes none went
    settings.USAGE_RETENTION_FAULTS_MONTHS = 1
    assert "1 faults" in say()
    assert RecordFault.objects.count() == 1


def test_the_worker_purges_each_day() -> None:
    assert purge_old_rows.name in {entry["task"] for entry in app.conf.beat_schedule.values()}
    close("2026-07", "2026-08")
    purge_old_rows()
    assert "m8" not in left()


def test_a_clock_that_is_ahead_closes_no_month_and_purges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither can be undone. PostgreSQL's clock is the second witness."""
    close("2026-07", "2026-08")
    monkeypatch.undo()  # the clocks of the machine
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        there = cursor.fetchone()[0]
    monkeypatch.setattr(timezone, "now", lambda: there + timedelta(days=90))
    before, ahead = left(), "2,160 h ahead of the clock of PostgreSQL"
    purge_old_rows()
    make_daily_reports()
    for command in ("purge_usage", "make_usage_reports"):
        with pytest.raises(CommandError, match=ahead):
            call_command(command, stdout=StringIO())
    assert left() == before
    assert not MonthReport.objects.exclude(month__in=["2026-07", "2026-08"]).exists()
    run = ReportRun.objects.get()
    assert (run.state, ahead in run.message) == ("refused", True)
