"""The lines of the overview."""

from __future__ import annotations

from typing import Any

from dashboard.overview import active_rows, count_states, fleet_numbers

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


def test_active_jobs_are_the_unfinished_ones_newest_first() -> None:
    jobs = [
        job("x", launcherStatus="Running", workersStatus={"active": 1}),
        job("xx", launcherStatus="Completed"),
        job("xxx", launcherStatus="Failed"),
        job("xxxx"),
        job("xxxxx", "b", launcherStatus="Running"),
    ]
    rows = active_rows(jobs, lambda namespace: namespace == "a")
    assert [(row.name, row.status, row.workers) for row in rows] == [
        ("xxxx", "Pending", "0/2"),
        ("x", "Running", "1/2"),
    ]
    assert count_states(rows) == (1, 1)


def test_the_workers_of_all_instances_are_wanted() -> None:
    one = job("x", launcherStatus="Running", workersStatus={"active": 3})
    one["spec"] |= {"ipusPerJobInstance": 4, "jobInstances": 2}
    (row,) = active_rows([one], lambda _: True)
    assert row.workers == "3/4"


def test_a_job_just_made_has_no_status_and_breaks_nothing() -> None:
    bare = {"metadata": {"name": "x", "namespace": "a"}}
    (row,) = active_rows([bare], lambda _: True)
    assert (row.status, row.created, row.ipus, row.partitions) == ("Pending", None, 0, ())


def test_the_fleet_of_a_user_is_what_his_namespaces_hold_and_what_is_free() -> None:
    fleet = fleet_numbers(STATS | TOTAL, lambda name: name == "a", sees_all=False)
    assert (fleet.held, fleet.free, fleet.namespaces) == (4, 20, (("a", 4),))


def test_the_fleet_of_an_admin_has_all() -> None:
    fleet = fleet_numbers(STATS | TOTAL, lambda _: True, sees_all=True)
    assert (fleet.held, fleet.total) == (12, 32)


def test_without_statistics_the_fleet_is_unknown() -> None:
    assert fleet_numbers({}, lambda _: True, sees_all=True).free is None


def test_a_line_that_names_its_job_does_not_say_the_name_again() -> None:
    said = [
        ("IPUJob a/x is running.", "Is running."),
        ("IPUJob a/xy has failed: exit code 1.", "IPUJob a/xy has failed: exit code 1."),
        ("64 IPUs are needed, 6 of 32 are free", "64 IPUs are needed, 6 of 32 are free"),
        ("", ""),
    ]
    for message, want in said:
        (row,) = active_rows([job("x", lastMessage=message)], lambda _: True)
        assert row.message == want
