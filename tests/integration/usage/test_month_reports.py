from __future__ import annotations

import hashlib
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from ipuhub.models import WatchCheckpoint, WatchGap
from ipuhub.text import plain_text
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.integration.usage.reading import make, rows_of, text_of
from usage.models import MonthReport, ReportRow
from usage.reports.downloads import NoReportError
from usage.reports.making import ReportRefused

pytestmark = pytest.mark.django_db(transaction=True)
_GOLDEN = Path(__file__).parents[2] / "golden" / "usage"


def _a_small_month() -> None:
    store_pod(
        "2026-09-30T23:00",
        "2026-10-01T00:08:06",
        uid="00000000-0000-4000-8000-000000000001",
        pod_name="job-worker-0",
        ipus=4,
        cpu=4,
        memory_gib=8,
        user="ada",
        job_uid="j-1",
        partition="p-job",
        node="node-1",
    )
    store_pod(
        "2026-10-02T00:00",
        "2026-10-02T01:30",
        uid="00000000-0000-4000-8000-000000000002",
        pod_name="notebook",
        component="notebook",
        component_name='a "quoted", name',
        claim="annotation",
        group="=1+1",
        user="-x\ny",
        instance_type="cpu",
        cpu=0.5,
        gpus=2,
        estimated=True,
        uncertainty_seconds=30,
    )
    store_pod(
        "2026-10-30T00:00",
        uid="00000000-0000-4000-8000-000000000003",
        pod_name="job-worker-1",
        ipus=4,
        node="node-2",
    )
    store_partition(
        "2026-10-01T00:00", "2026-10-01T01:00", key="j-1/0/1", job_uid="j-1", partition="p-job"
    )


@pytest.mark.parametrize("profile", ["default", "primehub"])
@pytest.mark.parametrize("kind", ["summary", "details"])
def test_files_are_as_the_golden_ones(profile: str, kind: str):
    _a_small_month()
    make("2026-10", "2026-10-31T12:00")
    path = _GOLDEN / f"{kind}-{profile}.csv"
    assert text_of("2026-10", kind, profile) == path.read_bytes().decode()


def test_sums_are_of_resource_times_time():
    store_pod("2026-10-01T00:00", "2026-10-01T10:00", cpu=1)
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", cpu=4)
    make("2026-10", "2026-11-03T00:00")
    (row,) = rows_of("2026-10", "summary", "primehub")
    assert (row["cpu_core_hours"], row["usage_hours"]) == ("14.00000", "11.00000")


def test_a_running_pod_counts_until_the_report_is_made():
    store_pod("2026-10-10T20:00", cpu=1)
    make("2026-10", "2026-10-10T21:00")
    (row,) = rows_of("2026-10", "details")
    assert (row["usage_hours"], row["running"]) == ("1.00000", "Y")
    assert row["end_time"] == "2026-10-10T21:00:00Z"


def test_a_month_that_is_over_has_no_running_pods():
    store_pod("2026-10-31T20:00")
    make("2026-10", "2026-11-10T21:00")
    (row,) = rows_of("2026-10", "details", "primehub")
    assert (row["usage_hours"], row["running"]) == ("4.00000", "N")
    assert row["end_time"] == "2026-11-01 00:00:00"


def test_a_pod_that_was_never_scheduled_is_not_counted():
    store_pod(None, "2026-10-10T20:00")
    assert make("2026-10", "2026-11-10T21:00").lifetimes == 0


def test_an_end_before_the_beginning_counts_nothing():
    store_pod("2026-10-10T20:00", "2026-10-10T18:00")
    make("2026-10", "2026-11-10T21:00")
    (row,) = rows_of("2026-10", "details")
    assert (row["usage_hours"], row["cpu_core_hours"]) == ("0.00000", "0.00000")


def test_an_absurd_request_does_not_stop_the_month():
    big = 2**63 - 1
    store_pod(
        "2026-10-01T00:00", "2026-10-30T00:00", memory_gib=8 * 2**30 - 1, gpus=big, uid="absurd"
    )
    store_pod("2026-10-01T00:00", "2026-10-01T01:00", uid="sound", group="b")
    report = make("2026-10", "2026-11-03T00:00")
    assert report.lifetimes == 2
    sound, absurd = rows_of("2026-10", "summary")
    assert absurd["gpu_core_hours"] == f"{big * 24 * 29}.00000"
    assert sound["cpu_core_hours"] == "1.00000"
    assert len(rows_of("2026-10", "details")) == 2


def test_partition_hours_stand_apart_from_pod_hours():
    store_pod("2026-10-01T00:00", "2026-10-01T02:00", ipus=4)
    store_partition("2026-10-01T00:00", "2026-10-01T03:00", size=4)
    make("2026-10", "2026-11-03T00:00")
    for kind in ("summary", "details"):
        rows = rows_of("2026-10", kind)
        assert [
            (row["component"], row["ipu_hours"], row["partition_ipu_hours"], row["usage_hours"])
            for row in sorted(rows, key=lambda row: row["component"])
        ] == [
            ("ipujob", "8.00000", "0.00000", "2.00000"),
            ("partition", "0.00000", "12.00000", "0.00000"),
        ]
        assert [row["component"] for row in rows_of("2026-10", kind, "primehub")] == ["ipujob"]


def test_months_add_up_to_the_whole_in_a_zone_with_summer_time():
    berlin = ZoneInfo("Europe/Berlin")
    store_pod("2026-02-10T00:00", "2026-04-20T00:00:07", cpu=3, ipus=2)
    store_partition("2026-02-10T00:00", "2026-04-20T00:00:07", size=4)
    for month in ("2026-02", "2026-03", "2026-04"):
        make(month, "2026-06-01T12:00", berlin)
    whole = int((at("2026-04-20T00:00:07") - at("2026-02-10T00:00")).total_seconds())
    rows = ReportRow.objects.all()
    assert sum(row.seconds for row in rows) == whole
    assert sum(row.millicore_seconds for row in rows) == 3000 * whole
    assert sum(row.micro_ipu_seconds for row in rows) == 2_000_000 * whole
    assert sum(row.partition_ipu_seconds for row in rows) == 4 * whole
    (march,) = MonthReport.objects.filter(month="2026-03")
    assert (march.first, march.end) == (at("2026-02-28T23:00"), at("2026-03-31T22:00"))
    (row,) = rows_of("2026-03", "details", "primehub")
    assert (row["start_time"], row["end_time"]) == ("2026-03-01 00:00:00", "2026-04-01 00:00:00")


@pytest.mark.parametrize(
    "name", ["a,b", 'say "x"', "=1+1", "two\nlines", "\ttab", "\rcr", "'x", "-1"]
)
def test_names_come_back_as_they_went_in(name: str):
    store_pod("2026-10-01T00:00", "2026-10-01T02:00", group=name, user=name, component_name=name)
    make("2026-10", "2026-11-03T00:00")
    for profile in ("default", "primehub"):
        (row,) = rows_of("2026-10", "details", profile)
        (total,) = rows_of("2026-10", "summary", profile)
        for cell in (row["group"], row["user"], row["component_name"], total["group"]):
            assert cell[:1] not in set("=+-@\t\r")
            assert plain_text(cell) == name


def test_details_are_in_order_of_start_group_user_and_uid():
    for uid, began, group, user in (
        ("3", "2026-09-02T00:00", "b", "a"),
        ("2", "2026-09-03T00:00", "a", "b"),
        ("1", "2026-10-01T00:00", "a", "B"),
        ("5", "2026-10-02T00:00", "a", "a"),
        ("4", "2026-10-02T00:00", "a", "a"),
        ("6", "2026-10-03T00:00", "A", "a"),
    ):
        store_pod(began, "2026-10-05T00:00", uid=uid, group=group, user=user)
    store_partition("2026-10-02T12:00", "2026-10-04T00:00", key="held")
    make("2026-10", "2026-11-03T00:00")
    assert [plain_text(row["k8s_uid"]) for row in rows_of("2026-10", "details")] == [
        *("1", "2", "3", "4", "5"),
        "held",
        "6",
    ]


def test_digests_are_those_of_the_files():
    _a_small_month()
    report = make("2026-10", "2026-12-03T00:00")
    assert report.state == "closed"
    assert report.digests == {
        kind if profile == "default" else f"{kind}-{profile}": hashlib.sha256(
            text_of("2026-10", kind, profile).encode()
        ).hexdigest()
        for kind in ("summary", "details")
        for profile in ("default", "primehub")
    }


def test_details_agree_with_the_summary_after_the_world_went_on():
    running = store_pod("2026-10-10T00:00")
    make("2026-10", "2026-10-10T02:00")
    running.finished_at = at("2026-10-10T05:00")
    running.save()
    store_pod("2026-10-10T03:00")
    (row,) = rows_of("2026-10", "details")
    (total,) = rows_of("2026-10", "summary")
    assert (row["usage_hours"], row["running"]) == ("2.00000", "Y")
    assert total["usage_hours"] == row["usage_hours"]


def test_a_closed_month_never_changes():
    lifetime = store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    make("2026-10", "2026-12-01T00:00")
    before = [text_of("2026-10", kind) for kind in ("summary", "details")]
    with pytest.raises(ReportRefused, match="2026-10 is closed. Its report is final."):
        make("2026-10", "2026-12-02T00:00")
    lifetime.delete()
    assert [text_of("2026-10", kind) for kind in ("summary", "details")] == before


def test_an_open_month_keeps_its_newest_version_only():
    store_pod("2026-10-10T00:00", "2026-10-10T02:00")
    for day, want in (("20", "open"), ("21", "open")):
        assert make("2026-10", f"2026-10-{day}T00:00").state == want
    assert make("2026-10", "2026-11-21T00:00").state == "provisional"
    assert [report.version for report in MonthReport.objects.all()] == [3]
    assert ReportRow.objects.count() == 1


def test_a_month_to_come_is_refused_and_one_without_a_report_not_found():
    store_pod("2026-09-10T00:00", "2026-09-10T02:00")
    with pytest.raises(ReportRefused, match="2026-11 has not begun yet"):
        make("2026-11", "2026-10-31T00:00")
    with pytest.raises(NoReportError, match="no report of 2026-09 yet"):
        text_of("2026-09", "summary")


def test_complete_until_is_the_watch_or_the_first_gap():
    make("2026-10", "2026-10-31T12:00")
    assert MonthReport.objects.get().complete_until is None
    WatchCheckpoint.objects.create(name="pods", position_at=at("2026-10-31T11:59"))
    make("2026-10", "2026-10-31T12:00")
    assert MonthReport.objects.get().complete_until == at("2026-10-31T11:59")
    gap = {"watch": "pods", "cause": "history too short", "ended_at": at("2026-10-05T13:00")}
    WatchGap.objects.create(began_at=at("2026-10-05T12:00"), **gap)
    make("2026-10", "2026-10-31T12:00")
    assert MonthReport.objects.get().complete_until == at("2026-10-05T12:00")
