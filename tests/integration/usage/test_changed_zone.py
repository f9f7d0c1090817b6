"""After a change of the report time zone each second is still in exactly one month."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.utils import timezone

from dashboard.overview.month import _KEPT, read_month
from ipuhub.web.access import Scope
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.usage.reading import UTC_ZONE, make, rows_of
from usage.models import MonthReport
from usage.reports.making import correct_month, make_month
from usage.sums.compare import month_to_date
from usage.time import months
from usage.time.months import bad_seams, bounds_of, month_bounds
from usage.time.windows import Month

if TYPE_CHECKING:
    from datetime import datetime

    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db(transaction=True)
TOKYO, ANGELES = ZoneInfo("Asia/Tokyo"), ZoneInfo("America/Los_Angeles")
NOW = at("2026-11-20T00:00")
SPAN = (at("2026-07-31T00:00"), at("2026-11-05T00:00"))
ZONES = pytest.mark.parametrize("zone", [TOKYO, ANGELES, ZoneInfo("Pacific/Kiritimati")])


def _seconds(*months: str) -> float:
    return sum(3600 * float(row["usage_hours"]) for m in months for row in rows_of(m, "summary"))


def _length(first: datetime, end: datetime) -> float:
    return (end - first).total_seconds()


@pytest.fixture
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that was always there and one about the end of August, which is closed in UTC."""
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    monkeypatch.setattr(months, "CLOCKS_DIFFER", timedelta.max)  # of the machine and of NOW
    store_pod("2026-07-31T00:00", "2026-11-05T00:00", cpu=1)
    store_pod("2026-08-31T00:00", "2026-09-01T12:00", cpu=1)
    make("2026-08", "2026-11-19T00:00")


@pytest.mark.usefixtures("_always")
@ZONES
def test_a_month_begins_where_the_closed_one_before_it_ended(zone: ZoneInfo) -> None:
    for month in ("2026-07", "2026-09", "2026-10", "2026-11"):
        make(month, "2026-11-20T00:00", zone)
    reports = list(MonthReport.objects.order_by("month"))
    for before, after in pairwise(reports):
        assert before.end == after.first
    assert _seconds(*(report.month for report in reports)) == _length(*SPAN) + 36 * 3600
    notes = {report.month: bool(bounds_of(report).note) for report in reports}
    assert notes == {"2026-07": True, "2026-08": False, "2026-09": True} | dict.fromkeys(
        ("2026-10", "2026-11"), False
    )


@pytest.mark.usefixtures("_always")
@ZONES
def test_pages_and_api_mean_the_same_month_as_its_report(
    zone: ZoneInfo, settings: SettingsWrapper, django_user_model: Any
) -> None:
    settings.REPORT_ZONE = zone
    user = django_user_model.objects.create_user("root", is_staff=True)
    for month in ("2026-08", "2026-09", "2026-10"):
        if month != "2026-08":
            make(month, "2026-11-20T00:00", zone)
        report = MonthReport.objects.get(month=month)
        summary = api_client(user).get(f"/api/v1/usage/summary?month={month}").json()
        ends = {"2026-08": 24 * 3600, "2026-09": 12 * 3600}
        lasts = _length(report.first, report.end) + ends.get(month, 0)
        assert summary["total"]["exact"]["seconds"] == _seconds(month) == lasts
        html = browser(user).get(f"/usage/?month={month}").content.decode()
        assert f"{lasts / 3600:,.1f}" in html.replace("\u202f", ",")


@pytest.mark.usefixtures("_always")
def test_this_and_last_month_by_name_are_those_of_the_reports(
    settings: SettingsWrapper, django_user_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REPORT_ZONE = TOKYO
    now = at("2026-09-03T00:00")
    monkeypatch.setattr(timezone, "now", lambda: now)
    user = django_user_model.objects.create_user("root", is_staff=True)
    for name, seconds in (("month", 60 * 3600), ("lastmonth", 32 * 86_400)):
        summary = api_client(user).get(f"/api/v1/usage/summary?window={name}").json()
        assert summary["total"]["exact"]["seconds"] == seconds
    assert month_to_date(Scope(None), now, TOKYO).seconds == 60 * 3600
    for costed in (True, False):  # the overview's
        _KEPT._slots.clear()
        assert read_month(Scope(None), now, TOKYO, costed=costed).first == at("2026-09-01T00:00")
    _KEPT._slots.clear()


@pytest.mark.usefixtures("_always")
def test_a_month_before_a_closed_one_ends_where_that_begins() -> None:
    july = month_bounds(Month(2026, 7), ANGELES)
    assert (july.first, july.end) == (at("2026-07-01T07:00"), at("2026-08-01T00:00"))
    assert month_bounds(Month(1970, 1), UTC_ZONE).first == at("1970-01-01T00:00")


@pytest.mark.usefixtures("_always")
def test_a_closed_month_keeps_its_bounds_in_its_corrections() -> None:
    make_month(Month(2026, 9), at("2026-11-20T00:00"), TOKYO)
    assert correct_month(Month(2026, 9), NOW) is None
    store_partition(
        "2026-08-31T20:00", "2026-08-31T21:00"
    )  # September in Tokyo, but August is billed to here
    assert correct_month(Month(2026, 9), NOW) is None
    found = correct_month(Month(2026, 8), NOW)
    assert found is not None
    assert found.lifetimes == 1


@pytest.mark.usefixtures("_always")
def test_it_is_said_by_the_command_on_the_page_in_the_api_and_in_headers(
    settings: SettingsWrapper, django_user_model: Any
) -> None:
    settings.REPORT_ZONE = TOKYO
    out = StringIO()
    call_command("make_usage_reports", stdout=out)
    sentence = "2026-09 is 2026-09-01 00:00 to 2026-09-30 15:00 UTC; the calendar of Asia/Tokyo has"
    assert out.getvalue().count(sentence) == 1
    user = django_user_model.objects.create_user("root", is_staff=True)
    assert browser(user).get("/usage/reports/").content.decode().count(sentence) == 1
    assert sentence in browser(user).get("/usage/?month=2026-09").content.decode()
    assert "keep their bounds" not in browser(user).get("/usage/?month=2026-10").content.decode()
    listed = api_client(user).get("/api/v1/usage/reports").json()["results"]
    notes = {each["month"]: each["note"] for each in listed}
    assert sentence in notes["2026-09"]
    assert notes["2026-08"] == notes["2026-10"] == ""
    answer = api_client(user).get("/api/v1/usage/reports/2026-09/summary.csv")
    answer.close()
    assert answer["X-IPUHub-Begin"] == "2026-09-01T00:00:00Z"
    assert answer["X-IPUHub-End"] == "2026-09-30T15:00:00Z"


@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize(
    ("hours", "sentence"),
    [
        (-9, "2026-09 from 2026-08-31 15:00 UTC on: what lies between is in both."),
        (7, "2026-09 from 2026-09-01 07:00 UTC on: what lies between is in neither."),
    ],
)
def test_months_that_were_closed_with_a_bad_seam_are_told(
    django_user_model: Any, hours: int, sentence: str
) -> None:
    make("2026-09", "2026-11-20T00:00")
    september = MonthReport.objects.get(month="2026-09")
    assert bad_seams(MonthReport.objects.all()) == []
    september.first += timedelta(hours=hours)
    september.save()
    out = StringIO()
    call_command("make_usage_reports", month="2026-10", stdout=out)
    assert out.getvalue().count(sentence) == 1
    user = django_user_model.objects.create_user("root", is_staff=True)
    assert browser(user).get("/usage/reports/").content.decode().count(sentence) == 1
