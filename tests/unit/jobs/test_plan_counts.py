"""What the status counts, and what of it changes when."""

from __future__ import annotations

from jobs.actions import PatchStatus
from jobs.conditions import JobState, Verdict, with_verdict
from jobs.plan import plan
from jobs.status import live_fields
from tests.builders.ipujobs import NOW, at, ipujob, launcher, observed, partition, worker
from tests.builders.plans import status, up


def test_instances_partitions_and_ipus_are_counted_as_they_are() -> None:
    built = ipujob().without_launcher().instances(2).build()
    parts = (partition(0), partition(1, phase="creating", asked_at=NOW))
    found = status(plan(observed(built, worker(built).running(), partitions=parts), NOW))
    assert found["lastMessage"] == "1 of 2 instances are running"
    assert (found["currentReplicas"], found["desiredReplicas"]) == (1, 2)
    assert (found["ipus"], found["iPUPartitionCreated"]) == (4, False)
    assert [one["state"] for one in found["partitions"]] == ["active", "creating"]


def test_workers_of_the_current_attempt_are_counted() -> None:
    job = ipujob().with_status(
        launcherStatus="Restarting",
        instances=[{"index": 0, "attempt": 1, "state": "Restarting"}],
    )
    built = job.build()
    old, new = worker(built).exited(1), worker(built).attempt(1).running()
    assert live_fields(up(job, old), finished=False)["workersStatus"] == {}
    assert live_fields(up(job, new), finished=False)["workersStatus"] == {"active": 1}


def test_the_generation_that_was_judged_is_in_the_status() -> None:
    built = ipujob().build()
    built["metadata"]["generation"] = 7
    planned = plan(observed(built, partitions=(partition(),), with_children=True), NOW)
    assert status(planned)["observedGeneration"] == 7


def test_a_release_is_told_once() -> None:
    job = ipujob().finished()
    built = job.build()
    pods = (worker(built).ended_by_operator(), launcher(built).exited())
    released = (partition(phase="released"),)
    first = plan(observed(built, *pods, partitions=released), at(9))
    (told,) = [a for a in first.actions if isinstance(a, PatchStatus)]
    assert [event.reason for event in told.events] == ["PartitionReleased"]
    built["status"] |= told.status | {"workersStatus": {}}
    again = plan(observed(built, *pods, partitions=released), at(99))
    patches = [a for a in again.actions if isinstance(a, PatchStatus)]
    assert [event.reason for patch in patches for event in patch.events] == []


def test_a_condition_keeps_the_time_of_its_transition_and_a_bounded_message() -> None:
    first = with_verdict([], Verdict(JobState.PENDING, "NoCapacity", "x" * 2000), "a/b", "then")
    assert len(first[0]["message"]) == 1024
    (later,) = with_verdict(first, Verdict(JobState.PENDING, "Unschedulable", "y"), "a/b", "now")
    assert (later["lastTransitionTime"], later["lastUpdateTime"]) == ("then", "now")
