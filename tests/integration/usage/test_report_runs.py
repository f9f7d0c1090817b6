from __future__ import annotations

import io
from datetime import timedelta
from unittest.mock import patch

import psycopg
import pytest
from django.core.management import CommandError, call_command

from tests.builders.lifetimes import at, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import UTC_ZONE, make, text_of
from usage.models import MonthReport, ReportRow, ReportRun
from usage.reports import making, runs
from usage.reports.downloads import Wanted, open_file, own_connection
from usage.reports.making import due_months, make_month
from usage.reports.runs import BUSY, do_run, request_run
from usage.time.windows import Month

pytestmark = pytest.mark.django_db(transaction=True)
_NOW = at("2026-11-21T12:00")


def _run(month: str = "", now=_NOW) -> ReportRun:
    run = request_run("demand", "ada", now, UTC_ZONE, month)
    do_run(run, UTC_ZONE, lambda: now)
    run.refresh_from_db()
    return run


def test_a_run_makes_this_and_last_month_and_closes_older_ones():
    store_pod("2026-08-20T00:00", "2026-09-02T00:00")
    run = _run()
    assert (run.state, run.done, run.message) == ("done", 4, "")
    assert dict(MonthReport.objects.values_list("month", "state")) == {
        "2026-08": "closed",
        "2026-09": "closed",
        "2026-10": "provisional",
        "2026-11": "open",
    }
    assert _run().months == ["2026-08", "2026-09", "2026-10", "2026-11"]  # closed: compared
    assert MonthReport.objects.count() == 4


def test_a_month_without_a_run_is_closed_by_the_next_one():
    make("2026-10", "2026-10-20T00:00")
    assert [str(month) for month in due_months(at("2027-01-05T00:00"), UTC_ZONE)] == [
        *("2026-10", "2026-11", "2026-12", "2027-01")
    ]


def test_a_second_run_at_the_same_time_says_so_and_makes_nothing():
    with own_connection() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [0x1B_0A_0A_01])
        run = _run()
    assert (run.state, run.message) == ("refused", BUSY)
    assert not MonthReport.objects.exists()
    assert _run().state == "done"


def test_a_run_whose_process_died_is_not_at_work_for_ever():
    lost = request_run("daily", "", _NOW, UTC_ZONE)
    ReportRun.objects.filter(pk=lost.pk).update(state=ReportRun.State.RUNNING)
    _run()
    lost.refresh_from_db()
    assert (lost.state, bool(lost.message)) == ("failed", True)


def test_a_run_without_room_on_disk_fails_and_names_each_month(monkeypatch, tmp_path):
    """Files of a report wait on disk, here in a folder that is missing."""
    store_pod("2026-09-20T00:00", "2026-10-02T00:00")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    run = _run()
    assert (run.state, run.done) == ("failed", 3)
    assert run.message.count("failed: [Errno 2] No such file or directory") == 3


def test_a_claimed_run_that_was_taken_for_lost_is_at_work_again():
    claimed = request_run("demand", "ada", _NOW, UTC_ZONE)
    claimed.state = ReportRun.State.RUNNING
    claimed.save()
    _run()  # of a worker that was quicker to the lock
    claimed.refresh_from_db()
    assert claimed.finished_at
    seen = []

    def look(month: Month, *_: object) -> None:
        seen.extend(ReportRun.objects.filter(pk=claimed.pk).values_list("state", "finished_at"))

    with patch.object(runs, "make_month", look):
        do_run(claimed, UTC_ZONE, lambda: _NOW)
    assert set(seen) == {("running", None)}
    assert claimed.state == "done"


def test_one_month_that_fails_does_not_stop_the_others():
    store_pod("2026-11-20T00:00")
    with patch.object(making, "insert_rows", side_effect=[ValueError("broken"), None]):
        run = _run()
    assert run.state == "failed"
    assert run.message == "2026-10 failed: broken"
    assert [report.month for report in MonthReport.objects.all()] == ["2026-11"]


def test_one_month_that_postgres_refuses_does_not_stop_the_others():
    store_rate("gpu", "999999999999.999999")
    for _ in range(2):  # together they cost more than a row can hold
        store_pod("2026-10-01T00:00", "2026-11-01T00:00", gpus=2**63 - 1)
    store_pod("2026-11-20T00:00")
    run = _run()
    assert run.state == "failed"
    assert run.message == "2026-10 failed: numeric field overflow"
    assert [report.month for report in MonthReport.objects.all()] == ["2026-11"]


def test_readers_see_the_old_or_the_new_report_and_never_neither():
    store_pod("2026-11-01T00:00", group="first")
    make("2026-11", "2026-11-02T00:00")
    seen = []
    finish = making.finish_report

    def look(report: MonthReport) -> None:
        seen.append(text_of("2026-11", "summary"))  # in the middle, over another connection
        finish(report)

    store_pod("2026-11-02T00:00", group="second")
    with patch.object(making, "finish_report", look):
        make_month(Month.parse("2026-11"), at("2026-11-03T00:00"), UTC_ZONE)
    assert "first" in seen[0]
    assert "second" not in seen[0]
    assert "second" in text_of("2026-11", "summary")


def test_a_download_that_began_before_the_swap_ends_as_it_began():
    store_pod("2026-11-01T00:00", uid="one")
    make("2026-11", "2026-11-02T00:00")
    files = {
        kind: iter(open_file(Wanted(Month.parse("2026-11"), kind)).body)
        for kind in ("summary", "details")
    }
    heads = [next(lines) for lines in files.values()]
    store_pod("2026-11-01T12:00", uid="two", group="late")
    make("2026-11", "2026-11-03T00:00")
    for lines in files.values():
        text = b"".join(lines).decode()
        rows = [line for line in text.splitlines() if not line.startswith("total,")]
        assert len(rows) == 1
        assert "late" not in text
    assert all(head.startswith(b"report_month,") for head in heads)


def test_a_reader_who_leaves_gives_his_connection_back():
    store_pod("2026-11-01T00:00")
    make("2026-11", "2026-11-02T00:00")
    body = open_file(Wanted(Month.parse("2026-11"), "details")).body
    lines = iter(body)
    next(lines)
    body.close()
    with pytest.raises((psycopg.OperationalError, StopIteration)):
        next(lines)


def test_the_command_says_what_it_made_and_what_it_refuses():
    store_pod("2026-01-01T00:00", "2026-01-01T01:00")
    out = io.StringIO()
    call_command("make_usage_reports", stdout=out)
    assert "2026-01, version 1 (closed): 1 lifetimes\n" in out.getvalue()
    call_command("make_usage_reports", month="2026-01", stdout=out)
    assert "2026-01 is closed, and no differences were found since." in out.getvalue()
    with pytest.raises(CommandError, match="is not a month. Use YYYY-MM"):
        call_command("make_usage_reports", month="January")
    assert ReportRow.objects.exists()


def test_a_run_takes_its_time_from_the_clock():
    run = request_run("demand", "ada", _NOW, UTC_ZONE)
    ticks = (_NOW + timedelta(seconds=n) for n in range(99))
    do_run(run, UTC_ZONE, lambda: next(ticks))
    assert run.started_at < run.finished_at
