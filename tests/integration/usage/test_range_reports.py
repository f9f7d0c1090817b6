from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import UTC_ZONE, lines_of, make
from usage.models import MonthReport, ReportRun, RunChunk
from usage.reports.ranges import RangeFile, delete_expired, range_of, stored_blocks, write_blocks
from usage.reports.runs import do_range, request_range

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.django_db(transaction=True)
_NOW = at("2026-11-10T12:00")


def _write(target: Path, **options: str) -> list[dict[str, str]]:
    defaults = {"begin": "2026-10-02", "end": "2026-10-03"}
    call_command("make_usage_reports", output=str(target), **(defaults | options))
    return lines_of(target.read_text())


def test_a_range_is_clipped_to_its_days_and_nothing_is_stored(tmp_path: Path):
    store_rate("cpu", "1")
    store_pod("2026-10-01T00:00", "2026-10-10T00:00", cpu=1)
    (row,) = _write(tmp_path / "summary.csv")
    assert (row["usage_hours"], row["cost"]) == ("48.00000", "48.00")
    assert row["report_month"] == "2026-10-02T00:00:00Z/2026-10-04T00:00:00Z"
    (row,) = _write(tmp_path / "details.csv", kind="details", begin="2026-10-01T23:30:00-01:00")
    assert (row["start_time"], row["end_time"]) == ("2026-10-02T00:30:00Z", "2026-10-04T00:00:00Z")
    assert not MonthReport.objects.exists()


def test_a_folder_gets_a_file_with_a_name_and_the_old_one_is_replaced_whole(tmp_path: Path):
    store_pod("2026-10-02T00:00", "2026-10-02T01:00")
    for _ in range(2):
        call_command(
            "make_usage_reports", begin="2026-10-02", end="2026-10-03", output=str(tmp_path)
        )
    (made,) = tmp_path.iterdir()
    assert made.name == "ipuhub-usage-summary-20261002T000000Z-20261004T000000Z.csv"


def test_a_file_that_fails_on_the_way_leaves_the_old_one(tmp_path: Path):
    target = tmp_path / "a.csv"
    target.write_text("old")

    def blocks():
        yield b"new"
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_blocks(blocks(), target)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.csv", "old")]


def test_json_lines_have_names_as_they_were_and_numbers_digit_for_digit(tmp_path: Path):
    store_pod("2026-10-02T00:00", "2026-10-02T01:00", group='=a,"b"\n', cpu=0.1)
    store_partition("2026-10-02T00:00", "2026-10-02T01:00")
    target = tmp_path / "a.jsonl"
    call_command(
        "make_usage_reports",
        begin="2026-10-02",
        end="2026-10-02",
        kind="details",
        form="jsonl",
        output=str(target),
    )
    first, second = target.read_text().splitlines()
    line = json.loads(first)
    assert (line["group"], line["estimated"], line["running"]) == ('=a,"b"\n', False, False)
    assert '"cpu_core_hours": 0.10000' in first
    assert json.loads(second)["component"] == "partition"


def test_stdout_gets_the_file_and_nothing_else(capsysbinary):
    store_pod("2026-10-02T00:00", "2026-10-02T01:00")
    call_command("make_usage_reports", begin="2026-10-02", end="2026-10-02", output="-")
    out = capsysbinary.readouterr().out.decode()
    assert out.startswith("report_month,")
    assert out.count("\n") == 3


def test_a_month_is_written_too(tmp_path: Path):
    store_pod("2026-01-02T00:00", "2026-01-02T01:00")
    target = tmp_path / "m.csv"
    call_command("make_usage_reports", month="2026-01", profile="primehub", output=str(target))
    assert target.read_text().startswith("report_month,group,user,component,gpu_core_hours")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"begin": "2026-10-05", "end": "2026-10-01"}, "ends .* before or at its beginning"),
        ({"begin": "soon"}, "'soon' is not a date"),
        ({"end": "2026-10-01"}, "--to requires --from"),
        ({"begin": "2999-01-01", "end": "2999-02-01"}, "after now"),
        ({"begin": "2026-10-01", "month": "2026-10"}, "either --month, or"),
        ({"begin": "2026-10-01", "output": ""}, "specify --output"),
        ({"begin": "2026-10-01", "output": "/no/such/folder/a.csv"}, "Folder .* does not exist"),
        ({"month": "", "output": "-"}, "--output requires --month"),
    ],
)
def test_what_cannot_be_made_is_said_in_words(options: dict[str, str], sentence: str):
    with pytest.raises(CommandError, match=sentence) as refused:
        call_command("make_usage_reports", **({"output": "-"} | options))
    assert refused.value.returncode == 1


def _range_run() -> ReportRun:
    covers = range_of(at("2026-10-02T00:00"), at("2026-10-04T00:00"), _NOW, UTC_ZONE)
    return request_range(RangeFile(covers, "details"), "demand", "ada", timezone.now())


def test_a_worker_stores_the_file_of_a_range_until_its_time_is_over():
    store_pod("2026-10-01T00:00", "2026-10-10T00:00")
    run = do_range(_range_run(), UTC_ZONE, lambda: _NOW)
    assert (run.state, run.lines, run.done) == ("done", 1, 1)
    text = b"".join(stored_blocks(run)).decode()
    assert text.count("\n") == 3  # with the header and the total
    assert run.has_file
    delete_expired(timezone.now() + timedelta(hours=25))
    assert not RunChunk.objects.exists()


def test_a_run_of_months_takes_no_range_for_lost():
    from usage.reports.runs import do_run, request_run

    going = _range_run()
    ReportRun.objects.filter(pk=going.pk).update(state=ReportRun.State.RUNNING)
    do_run(request_run("daily", "", _NOW, UTC_ZONE), UTC_ZONE, lambda: _NOW)
    going.refresh_from_db()
    assert going.state == "running"


def test_a_range_that_fails_says_so_and_leaves_no_pieces():
    run = _range_run()
    run.begin, run.end = run.end, run.begin
    assert do_range(run, UTC_ZONE, lambda: _NOW).state == "failed"
    assert "before or at its beginning" in run.message
    assert not RunChunk.objects.exists()


def test_a_closed_month_is_said_to_be_closed(capsys):
    store_pod("2026-01-02T00:00", "2026-01-02T01:00")
    make("2026-01", "2026-05-01T00:00")
    call_command("make_usage_reports", month="2026-01")
    assert "2026-01 is closed, and no differences were found since." in capsys.readouterr().out
