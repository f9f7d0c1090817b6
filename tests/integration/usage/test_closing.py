"""Checks before a month is closed, the user who closed it, and reports older than the rates."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.utils import timezone

from ipuhub.models import WatchCheckpoint, WatchGap
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import UTC_ZONE, make
from usage.models import MonthReport, Rate, ReportRun
from usage.rates.pages import end_rate
from usage.reports.making import correct_month
from usage.reports.ranges import RangeFile, range_of
from usage.reports.runs import do_range, request_range
from usage.time.windows import Month

pytestmark = pytest.mark.django_db(transaction=True)
_LAST = Month.of(timezone.now(), UTC_ZONE).previous()
_NOW = f"{timezone.now():%FT%T}"


@pytest.fixture
def admin() -> Any:
    return get_user_model().objects.create_user("dora", is_staff=True)


def _newest(admin: Any) -> dict[str, Any]:
    return dict(api_client(admin).get("/api/v1/usage/reports").json()["results"][0])


def test_a_report_older_than_the_rates_says_so_and_offers_to_be_made_again(admin: Any) -> None:
    old = store_rate("cpu", "1", "2026-01-01")
    store_pod(f"{_LAST}-03T00:00", f"{_LAST}-03T02:00")
    make(str(_LAST), _NOW)
    assert _newest(admin)["outdated"] == []
    assert "Generate again" not in browser(admin).get("/usage/reports/").content.decode()
    store_rate("gpu", "1", "2199-01-01")  # of no day of it
    assert _newest(admin)["outdated"] == []

    end_rate(old, old.valid_from, "ada", timezone.now())
    store_rate("cpu", "2", "2026-01-01")
    (notice,) = _newest(admin)["outdated"]
    assert (notice["reason"], notice["again"]) == ("rates", True)
    page = browser(admin).get("/usage/reports/").content.decode()
    assert notice["message"] in page
    assert "Generate again" in page
    make(str(_LAST), _NOW)
    assert _newest(admin)["outdated"] == []
    assert _newest(admin)["cost"] == "4.00"


def test_a_closed_month_says_that_rates_changed_and_what_was_found_and_is_not_made_again(
    admin: Any,
) -> None:
    lifetime = store_pod("2026-08-03T00:00", "2026-08-03T02:00")
    make("2026-08", "2026-10-01T00:00")
    assert _newest(admin)["cost"] is None
    store_rate("cpu", "2", "2026-01-01")
    lifetime.finished_at = at("2026-08-03T01:00")
    lifetime.save()
    correct_month(Month(2026, 8), at("2026-10-02T00:00"))
    correction, closed = api_client(admin).get("/api/v1/usage/reports").json()["results"]
    assert [(each["reason"], each["again"]) for each in closed["outdated"]] == [
        ("rates", False),
        ("corrections", False),
    ]
    assert correction["outdated"] == []
    page = browser(admin).get("/usage/reports/").content.decode()
    assert "A correction was found after the month was closed" in page
    assert "Generate again" not in page


def test_the_file_of_a_range_says_what_it_is_older_than(admin: Any) -> None:
    store_rate("cpu", "1", "2026-01-01", "2026-08-10")
    lifetime = store_pod("2026-08-03T00:00", "2026-08-03T02:00")
    make("2026-08", "2026-10-01T00:00")
    now = timezone.now()
    covers = range_of(at("2026-08-01T00:00"), at("2026-08-20T00:00"), now, UTC_ZONE)
    run = do_range(request_range(RangeFile(covers, "summary"), "demand", "carol", now), UTC_ZONE)
    address = f"/api/v1/usage/reports/runs/{run.pk}"
    assert api_client(admin).get(address).json()["outdated"] == []
    assert (run.lines, run.done) == (1, 1)
    plain = b"".join(api_client(admin).get(f"{address}/file.csv?total=no"))
    assert plain.count(b"\n") == 2
    lifetime.finished_at = at("2026-08-03T01:00")
    lifetime.save()
    correct_month(Month(2026, 8), timezone.now() + timedelta(seconds=2))
    late = store_rate("cpu", "1", "2026-08-15")
    Rate.objects.filter(pk=late.pk).update(created_at=timezone.now())
    notices = api_client(admin).get(address).json()["outdated"]
    assert [each["reason"] for each in notices] == ["rates", "corrections"]
    page = browser(admin).get("/usage/reports/").content.decode()
    assert "Rates changed after this report" in page
    assert page.count("Generate again") == 1


def _doubtful() -> None:
    first = at(f"{_LAST}-01T00:00")
    store_rate("cpu", "1", f"{_LAST}-03")
    store_pod(f"{_LAST}-01T00:00", f"{_LAST}-05T00:00", estimated=True)
    WatchGap.objects.create(
        watch="pods", began_at=first, ended_at=first + timedelta(hours=1), cause="away"
    )
    make(str(_LAST), _NOW)


def test_closing_begins_with_totals_gaps_estimates_and_what_had_no_price(admin: Any) -> None:
    _doubtful()
    review = api_client(admin).get(f"/api/v1/usage/reports/{_LAST}/review").json()
    assert (review["cost"], review["pods"], review["estimated"]) == ("48.00", 1, 1)
    assert review["totals"]["cpu_core_hours"] == "96.00000"
    assert [each["cause"] for each in review["gaps"]] == ["away"]
    assert [each["end"] for each in review["unpriced"]] == [f"{_LAST}-03T00:00:00Z"]
    page = browser(admin).get(f"/usage/reports/{_LAST}/close/").content.decode()
    for sentence in (
        "48.00 EUR",
        "Gap in the record",
        "1 lifetime has an estimated end",
        "No rates apply",
    ):
        assert sentence in page
    assert MonthReport.objects.get().state == "provisional"
    listed = browser(admin).get("/usage/reports/").content.decode()
    assert f"/usage/reports/{_LAST}/close/" in listed


def test_the_review_looks_at_the_records_of_jobs_and_partitions_too(admin: Any) -> None:
    store_pod(f"{_LAST}-01T00:00", f"{_LAST}-05T00:00")
    first = at(f"{_LAST}-01T00:00")
    for watch, shows_loss in (("tracker", True), ("ipujobs", False), ("capacity", True)):
        WatchGap.objects.create(
            watch=watch,
            began_at=first,
            ended_at=first + timedelta(hours=1),
            cause=f"{watch} was away",
            shows_loss=shows_loss,
        )
    month_end = at(f"{_LAST.next()}-01T00:00")
    for watch, until in (("ipujobs", first + timedelta(days=2)), ("tracker", month_end)):
        WatchCheckpoint.objects.create(name=watch, position_at=until)
    make(str(_LAST), _NOW)
    address = f"/api/v1/usage/reports/{_LAST}/review"
    review = api_client(admin).get(address).json()
    assert [(each["record"], each["cause"]) for each in review["gaps"]] == [
        ("partitions", "tracker was away")
    ]
    assert review["late"] == [{"record": "jobs", "complete_until": f"{_LAST}-03T00:00:00Z"}]
    assert f"The record of jobs is complete only until {_LAST}-03 00:00 UTC." in review["concerns"]
    page = browser(admin).get(f"/usage/reports/{_LAST}/close/").content.decode()
    assert "Gap in the record of partitions" in page
    WatchGap.objects.bulk_create(
        WatchGap(watch="pods", began_at=first, ended_at=month_end, cause=str(number))
        for number in range(100)
    )
    review = api_client(admin).get(address).json()
    assert len(review["gaps"]) == 101
    assert "And 1 more gap in the record." in review["concerns"]


def test_hours_of_a_resource_without_a_rate_are_named_with_their_time(admin: Any) -> None:
    store_rate("cpu", "1")
    store_rate("memory", "0")
    store_rate("accelerator", "2", name="mk2")
    store_rate("instance", "3", name="large")
    store_rate("partition-ipu", "1", f"{_LAST}-05")
    began, ended = f"{_LAST}-03T00:00", f"{_LAST}-07T00:00"
    store_pod(began, ended, ipus=4)  # the IPUs of a job's pod are those of its partition
    store_pod(began, ended, ipus=1, instance_type="large", gpus=5)  # has the price of its type
    store_partition(began, ended, size=4)
    store_pod(began, ended, instance_type="", gpus=3, accelerators={"mk2": 2, "other": 1})
    store_pod(f"{_LAST}-06T00:00", ended, ipus=1, component="jupyter", instance_type="")
    make(str(_LAST), _NOW)
    review = api_client(admin).get(f"/api/v1/usage/reports/{_LAST}/review").json()
    end = f"{_LAST.next()}-01T00:00:00Z"
    assert [tuple(each.values()) for each in review["unpriced_hours"]] == [
        ("gpu", "96.00000", f"{_LAST}-01T00:00:00Z", end),
        ("ipu", "216.00000", f"{_LAST}-01T00:00:00Z", end),
        ("partition-ipu", "192.00000", f"{_LAST}-01T00:00:00Z", f"{_LAST}-05T00:00:00Z"),
    ]
    page = browser(admin).get(f"/usage/reports/{_LAST}/close/").content.decode()
    assert "192.00 partition IPU-hours have no rate" in page
    assert "96.00 GPU-hours have no rate" in page
    assert '<th scope="row">Partition IPU-hours</th>' in page
    assert "everything has a price" not in page


def test_a_month_is_closed_on_the_page_by_typing_its_name(admin: Any) -> None:
    _doubtful()
    client = browser(admin)
    assert 'name="typed"' in client.get(f"/usage/reports/{_LAST}/close/").content.decode()
    form = {"month": f"{_LAST}", "close": "yes"}
    for typed in ({}, {"typed": ""}, {"typed": "2026"}, {"typed": f"{_LAST.previous()}"}):
        answer = client.post("/usage/reports/make/", form | typed, follow=True)
        assert "Nothing was closed" in answer.content.decode()
    assert not ReportRun.objects.exists()
    client.post("/usage/reports/make/", form | {"typed": f" {_LAST} "})
    assert ReportRun.objects.get().close


@pytest.mark.parametrize("month", ["2026-08", f"{Month.of(timezone.now(), UTC_ZONE)}", "2026-13"])
def test_what_cannot_be_closed_has_no_review(admin: Any, month: str) -> None:
    store_pod("2026-08-03T00:00", "2026-08-03T02:00")
    make("2026-08", "2026-10-01T00:00")
    assert api_client(admin).get(f"/api/v1/usage/reports/{month}/review").status_code in {400, 404}
    assert browser(admin).get(f"/usage/reports/{month}/close/").status_code in {302, 404}


def test_a_stranger_reviews_nothing() -> None:
    alice = get_user_model().objects.create_user("alice")
    _doubtful()
    for client, address in (
        (api_client(alice), f"/api/v1/usage/reports/{_LAST}/review"),
        (browser(alice), f"/usage/reports/{_LAST}/close/"),
    ):
        assert client.get(address).status_code == 403


def test_the_command_says_the_same_and_who_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    _doubtful()
    out = StringIO()
    call_command("make_usage_reports", month=str(_LAST), review=True, stdout=out)
    assert "Gap in the record" in out.getvalue()
    assert "48.00 EUR" in out.getvalue()
    assert not ReportRun.objects.filter(close=True).exists()
    monkeypatch.setenv("LOGNAME", "erin")
    call_command("make_usage_reports", month=str(_LAST), close=True, stdout=StringIO())
    closed = MonthReport.objects.get()
    assert (closed.state, closed.made_by, closed.cause) == ("closed", "erin", "command")
    with pytest.raises(CommandError, match="is closed"):
        call_command("make_usage_reports", month=str(_LAST), review=True, stdout=out)


def test_the_name_of_who_closes_can_be_given() -> None:
    _doubtful()
    options = {"month": str(_LAST), "close": True, "by": "carol", "stdout": StringIO()}
    call_command("make_usage_reports", **options)
    assert MonthReport.objects.get().made_by == "carol"
