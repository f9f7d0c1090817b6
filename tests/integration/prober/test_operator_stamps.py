"""Stamps of the operator are believed by the record of their job, whichever is written first."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
import pytest
from psycopg.rows import dict_row

from ipuhub.text import AuthorTrust
from jobs.history.recorder import JobRecorder
from tests.builders.ipujobs import ipujob
from tests.fakes.podstream import expected_row, pod_of, uid_of
from tests.fakes.waiting import eventually
from tests.integration.monitor.interleaving import run_in_order
from tests.integration.prober.test_pod_recording import JOB, on_ipus
from usage.pods.recorder import PodRecorder
from usage.pods.resources import Pod
from usage.prober import prove_stamps, recorded_jobs

if TYPE_CHECKING:
    from tests.integration.prober.conftest import Lab

NOW = datetime(2026, 11, 5, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
BELIEVED = ("operator", "vision", "ada", True, "job-1", 64_000_000)
CLAIMED = ("annotation", "victim", "boss", False, "", 4_000_000)


def stamped(number: int = 3, step: str = "RUNNING") -> dict[str, Any]:
    """A pod of namespace team-0 that claims 64 IPUs for another user."""
    pod = on_ipus(number, ipus=64_000_000, user="boss", group="victim", partition="p-1")
    pod["status"] = pod_of(number, step)["status"]
    pod["metadata"]["ownerReferences"] = [JOB]
    return pod


def write_pods(tables: dict[str, Any], *pods: dict[str, Any], at: datetime = NOW) -> None:
    recorder = PodRecorder(recorded=recorded_jobs)
    parsed = [msgspec.json.decode(msgspec.json.encode(pod), type=Pod) for pod in pods]
    rows = [row for pod in parsed if (row := recorder.read("ADDED", pod, [], at)) is not None]
    with psycopg.connect(**tables) as connection, connection.cursor() as cursor:
        recorder.write(cursor, rows, "cluster", at)


def write_job(tables: dict[str, Any], uid: str = "job-1", namespace: str = "team-0") -> None:
    job = ipujob().annotated(**{"ipuhub.io/created-by": "ada"}).build()
    job["metadata"] |= {"uid": uid, "namespace": namespace}
    recorder = JobRecorder(lambda _: "vision", AuthorTrust(is_on=True), prove_stamps)
    row = recorder.read("ADDED", job, [], NOW)
    with psycopg.connect(**tables) as connection, connection.cursor() as cursor:
        recorder.write(cursor, [row], "cluster", LATER)


def rows(tables: dict[str, Any], sql: str) -> list[dict[str, Any]]:
    with psycopg.connect(**tables, row_factory=dict_row) as connection:
        return connection.execute(sql).fetchall()


def pod_row(tables: dict[str, Any], number: int = 3) -> dict[str, Any]:
    (row,) = rows(tables, f"SELECT * FROM usage_podlifetime WHERE uid = '{uid_of(number)}'")
    return row


def whose(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("claim", "group", "user", "user_verified", "job_uid", "micro_ipus")
    return tuple(row[name] for name in names)


def claiming(component: str, number: int = 3, *, owned: bool = True) -> dict[str, Any]:
    """A pod with the annotation of a component of the product's own."""
    pod = stamped(number)
    usage = msgspec.json.decode(pod["metadata"]["annotations"]["ipuhub.io/usage"])
    text = msgspec.json.encode(usage | {"component": component}).decode()
    pod["metadata"]["annotations"]["ipuhub.io/usage"] = text
    pod["metadata"]["ownerReferences"] = [JOB] if owned else []
    return pod


@pytest.mark.parametrize("component", ["ipujob", "partition", " Partition", "IPUJob"])
def test_a_component_of_our_own_is_none_of_a_pod_that_claims_it(
    tables: dict[str, Any], component: str
) -> None:
    recorder, faults = PodRecorder(recorded=recorded_jobs), []
    write_job(tables)
    pod = claiming(component, owned=False)
    write_pods(tables, pod)
    row = pod_row(tables)
    assert (row["component"], row["claimed_component"], row["claim"]) == (
        "",
        component,
        "annotation",
    )
    parsed = msgspec.json.decode(msgspec.json.encode(pod), type=Pod)
    recorder.read("ADDED", parsed, faults, NOW)
    assert [fault.code for fault in faults] == ["reserved-component"]


def test_the_operators_component_waits_with_its_stamp(tables: dict[str, Any]) -> None:
    write_pods(tables, claiming("ipujob"), claiming("partition", 6))
    assert (pod_row(tables)["component"], pod_row(tables)["claimed_component"]) == ("", "ipujob")
    write_job(tables)
    assert (pod_row(tables)["component"], pod_row(tables)["claimed_component"]) == ("ipujob", "")
    other = pod_row(tables, 6)  # no operator stamps that
    assert (other["claim"], other["component"], other["claimed_component"]) == (
        "operator",
        "",
        "partition",
    )
    write_pods(tables, claiming("ipujob", 9))
    assert (pod_row(tables, 9)["component"], pod_row(tables, 9)["stamp"]) == ("ipujob", None)


async def test_a_stamp_of_a_job_that_nobody_recorded_is_a_claim(lab: Lab) -> None:
    lab.server.put("ADDED", stamped())
    lab.start(PodRecorder(recorded=recorded_jobs))
    await eventually(lambda: lab.is_at(lab.server.revision))
    (row,) = lab.rows().values()
    assert whose(row) == CLAIMED
    assert (row["role"], row["instance"], row["partition"]) == ("", None, "")
    assert row["stamp"]["job_uid"] == "job-1"


def test_a_job_of_another_namespace_proves_nothing(tables: dict[str, Any]) -> None:
    write_job(tables, namespace="team-1")
    write_pods(tables, stamped())
    assert whose(pod_row(tables)) == CLAIMED
    write_job(tables, namespace="team-1")
    assert whose(pod_row(tables)) == CLAIMED


def test_whose_the_pod_of_a_recorded_job_is_its_record_says(tables: dict[str, Any]) -> None:
    write_job(tables)
    write_pods(tables, stamped())
    row = pod_row(tables)
    assert whose(row) == BELIEVED
    assert (row["partition"], row["stamp"]) == ("p-1", None)


@pytest.mark.parametrize("step", ["RUNNING", "ENDED"])
def test_a_job_that_is_recorded_after_its_pods_proves_them(
    tables: dict[str, Any], step: str
) -> None:
    write_pods(tables, stamped(), stamped(6))
    write_pods(tables, stamped(step=step), at=LATER)
    before = pod_row(tables)
    assert whose(before) == CLAIMED
    with psycopg.connect(**tables) as connection:
        connection.execute("DELETE FROM usage_rollupdirt")
    write_job(tables, uid="another")
    assert whose(pod_row(tables)) == CLAIMED
    write_job(tables)
    row = pod_row(tables)
    assert whose(row) == whose(pod_row(tables, 6)) == BELIEVED
    assert (row["partition"], row["stamp"]) == ("p-1", None)
    # What says when the pod was seen is untouched, and the sums hear of it.
    same = ("scheduled_at", "finished_at", "updated_at", "seen_at", "cpu_millicores")
    assert [row[name] for name in same] == [before[name] for name in same]
    began = expected_row(3).scheduled_at.replace(minute=0, second=0)
    assert began in [one["first_hour"] for one in rows(tables, "SELECT * FROM usage_rollupdirt")]


def test_what_was_believed_or_is_no_stamp_stays(tables: dict[str, Any]) -> None:
    write_job(tables)
    write_pods(tables, stamped())
    with psycopg.connect(**tables) as connection:
        connection.execute("DELETE FROM jobs_jobrecord")
    plain = stamped(6)
    plain["metadata"]["ownerReferences"] = []
    write_pods(tables, stamped(step="ENDED"), plain)
    write_job(tables)
    assert whose(pod_row(tables)) == BELIEVED
    assert pod_row(tables)["finished_at"] == expected_row(3).finished_at
    assert whose(pod_row(tables, 6)) == CLAIMED


def test_pod_and_job_at_the_same_moment_always_meet(tables: dict[str, Any]) -> None:
    """Each order of their statements; without the lock some lose the stamp forever."""
    orders = sorted(set(itertools.permutations((0,) * 3 + (1,) * 3)))
    for order in orders:
        with psycopg.connect(**tables) as connection:
            connection.execute("DELETE FROM usage_podlifetime; DELETE FROM jobs_jobattempt")
            connection.execute("DELETE FROM jobs_jobtransition; DELETE FROM jobs_jobrecord")
        works = (lambda given: write_pods(given, stamped()), write_job)
        results = run_in_order(tables, works, order)
        assert results == [None, None], order
        assert whose(pod_row(tables)) == BELIEVED, order
