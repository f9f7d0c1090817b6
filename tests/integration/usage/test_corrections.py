from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import UTC_ZONE, lines_of, make, rows_of, text_of
from usage.models import MonthReport, PurgeState, Rate
from usage.reports.downloads import NoReportError, Wanted, open_file
from usage.reports.making import Order, ReportRefused, correct_month, correctable_months, make_month
from usage.reports.ranges import range_of
from usage.reports.runs import do_run, request_run
from usage.time.windows import Month

pytestmark = pytest.mark.django_db(transaction=True)
_OCTOBER = Month(2026, 10)
_CLOSED = "2026-12-01T00:00"
_LATER = at("2026-12-02T00:00")


def _correct(now=_LATER):
    return correct_month(_OCTOBER, now, Order("daily"))


def _differences(number: int) -> list[dict[str, str]]:
    text = b"".join(open_file(Wanted(_OCTOBER, "correction", number=number)).body).decode()
    return lines_of(text)


def test_nothing_new_makes_no_correction():
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    make("2026-10", _CLOSED)
    assert _correct() is None
    assert MonthReport.objects.count() == 1


def test_a_late_pod_a_changed_end_and_a_deleted_pod_are_corrections():
    ended = store_pod("2026-10-10T00:00", "2026-10-10T02:00", group="a", estimated=True)
    gone = store_pod("2026-10-10T00:00", "2026-10-10T05:00", group="=b")
    make("2026-10", _CLOSED)
    before = [text_of("2026-10", kind) for kind in ("summary", "details")]
    ended.finished_at, ended.estimated = at("2026-10-10T03:00"), False
    ended.save()
    gone.delete()
    store_pod("2026-10-11T00:00", "2026-10-11T01:00", group="c")
    correction = _correct()
    assert (correction.number, correction.state, correction.version) == (1, "correction", 2)
    assert [
        (row["correction"], row["group"], row["usage_hours"], row["pods"], row["estimated"])
        for row in _differences(1)
    ] == [
        ("1", "'=b", "-5.00000", "-1", "0"),
        ("1", "a", "1.00000", "0", "-1"),
        ("1", "c", "1.00000", "1", "0"),
    ]
    assert [text_of("2026-10", kind) for kind in ("summary", "details")] == before


def test_corrections_are_numbered_and_each_is_the_difference_to_those_before():
    lifetime = store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    make("2026-10", _CLOSED)
    for number, hour, want in ((1, 5, "3.00000"), (2, 4, "-1.00000")):
        lifetime.finished_at = at(f"2026-10-10T0{hour}:00")
        lifetime.save()
        assert _correct().number == number
        assert [row["usage_hours"] for row in _differences(number)] == [want]
        assert _correct() is None
    assert MonthReport.objects.get(number=0).state == "closed"


def test_report_and_corrections_add_up_to_the_month_as_it_is():
    store_rate("cpu", "0.35")
    lifetime = store_pod("2026-10-10T00:00", "2026-10-10T02:11:13", cpu=3)
    store_partition("2026-10-10T00:00", "2026-10-10T03:00", job_uid=lifetime.job_uid)
    make("2026-10", _CLOSED)
    lifetime.finished_at = at("2026-10-10T07:07:07")
    lifetime.save()
    _correct()
    reports = MonthReport.objects.all()
    money = sum(report.cost for report in reports)
    seconds = sum(row.millicore_seconds for report in reports for row in report.rows.all())
    reports.delete()
    fresh = make("2026-10", _CLOSED)
    assert (fresh.cost, sum(row.millicore_seconds for row in fresh.rows.all())) == (money, seconds)


def test_a_correction_keeps_the_prices_that_the_month_was_closed_with():
    store_rate("cpu", "2", "2026-01-01")
    lifetime = store_pod("2026-10-10T00:00", "2026-10-10T02:00", cpu=1)
    make("2026-10", _CLOSED)
    Rate.objects.all().delete()
    store_rate("cpu", "9", "2026-01-01")
    assert _correct() is None
    lifetime.finished_at = at("2026-10-10T03:00")
    lifetime.save()
    assert _correct().cost == Decimal(2)


def test_only_a_closed_month_is_corrected():
    make("2026-10", "2026-11-01T00:00")
    with pytest.raises(ReportRefused, match="2026-10 is not closed"):
        _correct()


def test_the_daily_run_corrects_closed_months_and_says_so_in_their_rows(settings):
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    make("2026-10", _CLOSED)
    store_pod("2026-10-11T00:00", "2026-10-11T02:00")
    run = request_run("daily", "", _LATER, UTC_ZONE)
    do_run(run, UTC_ZONE, lambda: _LATER)
    correction = MonthReport.objects.get(number=1)
    assert (run.state, run.months[0], correction.cause) == ("done", "2026-10", "daily")
    assert correction.lifetimes == 1
    settings.CORRECTED_MONTHS = 0
    assert correctable_months(settings.CORRECTED_MONTHS) == []


def test_a_month_that_is_over_can_be_closed_at_once_and_an_open_one_not():
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    report = make_month(_OCTOBER, at("2026-11-02T00:00"), UTC_ZONE, Order("demand", "ada", True))
    assert (report.state, report.made_by) == ("closed", "ada")
    with pytest.raises(ReportRefused, match="2026-11 has not ended yet"):
        make_month(Month(2026, 11), at("2026-11-02T00:00"), UTC_ZONE, Order(close=True))
    with pytest.raises(ReportRefused, match="cannot be closed"):
        request_run("demand", "ada", at("2026-11-02T00:00"), UTC_ZONE, "2026-11", close=True)


def test_a_purged_month_is_refused_in_words_and_its_files_stay():
    lifetime = store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    make("2026-10", _CLOSED)
    before = [text_of("2026-10", kind) for kind in ("summary", "details")]
    lifetime.delete()
    PurgeState.objects.create(purged_before=date(2026, 11, 1))
    with pytest.raises(ReportRefused, match="records before 2026-11-01 were purged"):
        _correct()
    assert correctable_months(12) == []
    with pytest.raises(ReportRefused, match="records before 2026-11-01 were purged"):
        make("2026-09", _CLOSED)
    with pytest.raises(NoReportError, match="records before 2026-11-01 were purged"):
        text_of("2026-09", "summary")
    with pytest.raises(ReportRefused, match="records before 2026-11-01 were purged"):
        range_of(at("2026-10-30T00:00"), at("2026-11-02T00:00"), _LATER, UTC_ZONE)
    assert [text_of("2026-10", kind) for kind in ("summary", "details")] == before
    run = request_run("daily", "", _LATER, UTC_ZONE)
    do_run(run, UTC_ZONE, lambda: _LATER)
    assert (run.state, run.message) == ("done", "")


def test_a_month_without_usage_is_an_empty_file_and_one_without_a_report_is_not():
    assert text_of("2026-08", "summary", "primehub").count("\n") == 1
    assert rows_of("2026-08", "details") == []
    store_pod("2026-08-31T23:59:59", "2026-09-01T00:00:01")
    with pytest.raises(NoReportError, match="There is no report of 2026-08 yet"):
        text_of("2026-08", "summary")
