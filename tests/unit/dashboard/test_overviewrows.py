"""The lines of the overview."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from dashboard.overview.rows import Active, fleet_numbers, live_jobs

NOW = datetime(2026, 11, 21, 11, 0, tzinfo=UTC)
STATS = {"a": {"used": 4, "available": 20}, "b": {"used": 8, "available": 20}}
TOTAL = {"total": {"used": 12, "available": 20}}


def job(name: str, namespace: str = "a", **status: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": name,
        "creationTimestamp": f"2026-11-21T10:00:0{len(name)}Z",
    }
    return {"metadata": meta, "spec": {"workers": {"replicas": 2}}, "status": status}


def test_active_jobs_are_the_unfinished_ones() -> None:
    held = [{"id": "p-1"}, {"id": ""}]
    jobs = [
        job("x", launcherStatus="Running", partitions=held),
        job("xx", launcherStatus="Completed", partitions=held),
        job("xxx", launcherStatus="Failed"),
        job("xxxx"),
        job("xxxxx", "b", launcherStatus="Running"),
    ]
    active = live_jobs(jobs, lambda namespace: namespace == "a", NOW)
    assert active == Active(count=2, running=1, pending=1, partitions=1)


def test_a_pending_job_that_is_just_made_is_starting() -> None:
    made = live_jobs([job("x")], lambda _: True, NOW - timedelta(seconds=3590))
    assert made.is_starting
    assert not live_jobs([job("x")], lambda _: True, NOW).is_starting


def test_a_job_just_made_has_no_status_and_breaks_nothing() -> None:
    bare = {"metadata": {"name": "x", "namespace": "a"}}
    assert live_jobs([bare], lambda _: True, NOW) == Active(count=1, pending=1)


def test_the_fleet_of_a_user_is_what_his_namespaces_hold_and_what_is_free() -> None:
    fleet = fleet_numbers(STATS | TOTAL, lambda name: name == "a", sees_all=False)
    assert (fleet.held, fleet.free) == (4, 20)


def test_the_fleet_of_an_admin_has_all() -> None:
    fleet = fleet_numbers(STATS | TOTAL, lambda _: True, sees_all=True)
    assert (fleet.held, fleet.total, fleet.share) == (12, 32, "37.5 %")


def test_the_fleet_has_at_least_the_ipus_that_are_drawn() -> None:
    drawn = [
        fleet_numbers(STATS | TOTAL, lambda _: True, sees_all=True, drawn=number).total
        for number in (0, 16, 40)
    ]
    assert drawn == [32, 32, 40]  # a controller may not say where its IPUs are


def test_without_statistics_the_fleet_is_unknown() -> None:
    assert fleet_numbers({}, lambda _: True, sees_all=True).free is None
