"""The counts in the status, and when they change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.conditions import JobState, Verdict, with_verdict
from jobs.ipujob.spec import parse_spec
from jobs.operator.actions import PatchStatus, Plan
from jobs.operator.observed import instances_of
from jobs.operator.plan import plan
from jobs.operator.status import live_fields, next_status
from tests.builders.ipujobs import NOW, at, ipujob, launcher, observed, partition, worker
from tests.builders.plans import after_write, status_of, with_partition

if TYPE_CHECKING:
    from jobs.operator.observed import Observed
    from tests.builders.ipujobs import PodBuilder


def test_instances_partitions_and_ipus_are_counted_as_they_are() -> None:
    built = ipujob().without_launcher().instances(2).build()
    parts = (partition(0), partition(1, phase="creating", asked_at=NOW))
    found = status_of(plan(observed(built, worker(built).running(), partitions=parts), NOW))
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
    assert live_fields(with_partition(job, old))["workersStatus"] == {}
    assert live_fields(with_partition(job, new))["workersStatus"] == {"active": 1}


def test_pods_are_counted_by_how_they_are_and_ended_sleepers_succeed_at_the_end() -> None:
    job = ipujob().without_launcher().workers(5).running()
    built = job.build()
    pods = (
        worker(built, 0).exited(),
        worker(built, 1).exited(3),
        worker(built, 2).ended_by_operator(),
        worker(built, 3).running(),
        worker(built, 4),
    )
    running = live_fields(with_partition(job, *pods))["workersStatus"]
    assert running == {"active": 1, "succeeded": 1, "failed": 2}
    ended = live_fields(with_partition(job.with_status(launcherStatus="Failed"), *pods))[
        "workersStatus"
    ]
    assert ended == {"active": 1, "succeeded": 2, "failed": 1}


def test_of_the_instances_those_run_that_have_not_ended() -> None:
    job = ipujob().without_launcher().instances(3)
    states = ("Running", "Completed", "Pending")
    entries = [{"index": n, "attempt": 0, "state": state} for n, state in enumerate(states)]
    built = job.with_status(launcherStatus="Running", instances=entries).build()
    pods = (worker(built, 0, 0).running(), worker(built, 1, 1).exited(), worker(built, 2, 2))
    parts = (partition(0), partition(1, phase="released", asked_at=NOW), partition(2))
    found = status_of(plan(observed(built, *pods, partitions=parts, with_children=True), NOW))
    assert (found["currentReplicas"], found["desiredReplicas"]) == (1, 3)
    assert found["lastMessage"] == "1 of 3 instances are running"


def one_runs_and_one_waits(cause: str) -> Observed:
    built = ipujob().without_launcher().instances(2).build()
    full = partition(1, phase="waiting", id="", reason="NoCapacity", message=cause, asked_at=NOW)
    parts = (partition(0), full)
    return observed(built, worker(built, 0, 0).running(), partitions=parts, with_children=True)


def test_a_running_job_says_why_its_other_instances_wait() -> None:
    found = status_of(plan(one_runs_and_one_waits("4 needed, 0 free"), NOW))
    words = "1 of 2 instances are running. Others are pending: 4 needed, 0 free"
    assert found["lastMessage"] == words
    assert {c["type"]: c["status"] for c in found["conditions"]}["Running"] == "True"


def test_other_words_about_the_others_are_written_once_a_minute() -> None:
    before = one_runs_and_one_waits("4 needed, 0 free")
    later = reported_at_noon(one_runs_and_one_waits("4 needed, 2 free"), before)
    assert plan(later, at(59.5)) == Plan((), 0.5)
    assert status_of(plan(later, at(60)))["lastMessage"].endswith("4 needed, 2 free")


def test_an_instance_that_begins_to_run_is_told_at_once() -> None:
    job = ipujob().without_launcher().instances(2)
    built = job.build()
    parts = (partition(0), partition(1))

    def seen(*pods: PodBuilder) -> Observed:
        return observed(built, *pods, partitions=parts, with_children=True)

    one = seen(worker(built, 0, 0).running(), worker(built, 1, 1))
    both = seen(worker(built, 0, 0).running(), worker(built, 1, 1).running())
    states = [
        entry["state"] for entry in status_of(plan(reported_at_noon(both, one), NOW))["instances"]
    ]
    assert states == ["Running", "Running"]


def test_instances_are_told_in_their_order_and_another_cause_before_their_count() -> None:
    job = ipujob().without_launcher().instances(3)
    entries = [{"index": n, "attempt": 1, "state": "Suspended"} for n in (0, 2, 5)]
    built = job.with_status(launcherStatus="Running", instances=entries).build()
    seen = observed(built, worker(built, 0).attempt(1).running())
    instances = instances_of(seen, parse_spec(job.spec), NOW)
    changed = Verdict(JobState.RUNNING, "SpecChanged", "the image waits")
    found = next_status(seen, changed, instances, {}, NOW)
    assert [entry["index"] for entry in found["instances"]] == [0, 1, 2, 5]  # 5 may come back
    assert found["lastMessage"] == "the image waits"


def test_partitions_are_told_as_they_are_now_in_the_order_of_their_instances() -> None:
    held = {"id": "p-1", "controller": "vipu:8090", "state": "creating"}
    stored = [{"instance": 0, "id": "p-0", "controller": "vipu:8090", "state": "active"}]
    job = ipujob().without_launcher().instances(2)
    job.with_status(partitions=[*stored, {"instance": 1, **held}])
    found = live_fields(observed(job.build(), partitions=(partition(1),)))
    assert found["partitions"] == [*stored, {"instance": 1, **held, "state": "active"}]


@pytest.mark.parametrize("stored", [[], [{"instance": 0, "id": "p-0", "state": "active"}]])
def test_what_the_proxy_has_not_told_again_stays_as_it_was(stored: list[Any]) -> None:
    job = ipujob().running().with_status(ipus=4, partitions=stored)
    built = job.build()
    pods = (worker(built).running(), launcher(built).running())
    asking = observed(built, *pods, with_children=True, proxy_problem="refused")
    stays = {"ipus", "partitions", "iPUPartitionCreated"}
    assert not stays & status_of(plan(asking, NOW)).keys()


def test_a_count_that_is_zero_again_is_taken_out() -> None:
    job = ipujob().running().with_status(workersStatus={"active": 1})
    built = job.build()
    found = status_of(
        plan(with_partition(job, worker(built).exited(), launcher(built).running()), NOW)
    )
    assert found["workersStatus"] == {"active": None, "succeeded": 1}


def test_a_status_that_lost_its_counts_gets_them_back() -> None:
    job = ipujob().running().with_status(workersStatus=None, observedGeneration=1)
    built = job.build()
    found = status_of(
        plan(with_partition(job, worker(built).running(), launcher(built).running()), NOW)
    )
    assert found["workersStatus"] == {"active": 1}


def test_the_generation_that_was_judged_is_in_the_status() -> None:
    built = ipujob().build()
    built["metadata"]["generation"] = 7
    planned = plan(observed(built, partitions=(partition(),), with_children=True), NOW)
    assert status_of(planned)["observedGeneration"] == 7


def test_that_an_edit_has_been_judged_is_told_at_once() -> None:
    job = ipujob()
    built = job.build()
    seen = after_write(job, worker(built).running(), launcher(built).running())
    edited = {**(seen.job or {}), "metadata": {**built["metadata"], "generation": 2}}
    assert status_of(plan(replace(seen, job=edited), at(0.5)))["observedGeneration"] == 2


@pytest.mark.parametrize("known", [True, False])
def test_a_release_is_told_once(known: bool) -> None:
    job = ipujob().finished()
    built = job.build()
    if not known:  # it was given back before any status told of it
        del built["status"]["partitions"]
    pods = (worker(built).ended_by_operator(), launcher(built).exited())
    released = (partition(phase="released"),)
    first = plan(observed(built, *pods, partitions=released), at(9))
    (patch_status,) = [a for a in first.actions if isinstance(a, PatchStatus)]
    assert [event.reason for event in patch_status.events] == ["PartitionReleased"]
    built["status"] |= patch_status.status | {"workersStatus": {}}
    again = plan(observed(built, *pods, partitions=released), at(99))
    patches = [a for a in again.actions if isinstance(a, PatchStatus)]
    assert [event.reason for patch in patches for event in patch.events] == []


def test_no_release_is_told_while_one_partition_is_held() -> None:
    built = ipujob().without_launcher().instances(2).running().build()
    pods = (worker(built, 0, 0).running(), worker(built, 1, 1).running())
    parts = (partition(0), partition(1, phase="released", asked_at=NOW))
    planned = plan(observed(built, *pods, partitions=parts, with_children=True), NOW)
    (patch,) = [action for action in planned.actions if isinstance(action, PatchStatus)]
    assert "PartitionReleased" not in [event.reason for event in patch.events]


def test_a_condition_keeps_the_time_of_its_transition_and_a_bounded_message() -> None:
    first = with_verdict([], Verdict(JobState.PENDING, "NoCapacity", "x" * 2000), "a/b", "then")
    assert len(first[0]["message"]) == 1024
    (later,) = with_verdict(first, Verdict(JobState.PENDING, "Unschedulable", "y"), "a/b", "now")
    assert (later["lastTransitionTime"], later["lastUpdateTime"]) == ("then", "now")


def waits_for_ipus(words: str, reason: str = "NoCapacity") -> Observed:
    waits = partition(phase="waiting", id="", reason=reason, message=words, asked_at=NOW)
    return observed(ipujob().build(), partitions=(waits,))


def waits_for_a_node(words: str) -> Observed:
    job = ipujob()
    return with_partition(job, worker(job.build()).unschedulable(words), launcher(job.build()))


def reported_at_noon(seen: Observed, before: Observed) -> Observed:
    """Return the observation of a job whose status reported the earlier observation at noon."""
    stored = {**(before.job or {}), "status": {**before.status(), **status_of(plan(before, NOW))}}
    return replace(seen, job=stored)


@pytest.mark.parametrize("seen", [waits_for_ipus, waits_for_a_node])
def test_how_much_room_there_is_is_told_anew_once_a_minute(seen: Any) -> None:
    later = reported_at_noon(seen("4 needed, 2 free"), seen("4 needed, 0 free"))
    assert plan(later, at(59.5)) == Plan((), 0.5)
    written = status_of(plan(later, at(60)))
    assert written["lastMessage"].endswith("4 needed, 2 free")
    assert written["lastReconcileTime"] == "2026-03-01T12:01:00Z"
    assert plan(reported_at_noon(seen("full"), seen("full")), at(590)).steps == ()


def test_another_reason_is_told_at_once_and_other_words_of_it_after_a_moment() -> None:
    full = waits_for_ipus("4 needed, 0 free")
    other = waits_for_ipus("vipu:8090 is away", "ControllerUnavailable")
    assert status_of(plan(reported_at_noon(other, full), NOW))["lastMessage"] == "vipu:8090 is away"
    both = waits_for_ipus("no controller answers", "ControllerUnavailable")
    assert plan(reported_at_noon(both, other), at(1.5)) == Plan((), 0.5)
    assert (
        status_of(plan(reported_at_noon(both, other), at(2)))["lastMessage"]
        == "no controller answers"
    )


def test_how_much_room_there_is_comes_with_the_next_count() -> None:
    job = ipujob().workers(2)
    built = job.build()
    rest = (worker(built, 1).unschedulable("0/5 nodes"), launcher(built))
    first = with_partition(
        job, worker(built, 0), worker(built, 1).unschedulable("0/4 nodes"), launcher(built)
    )
    later = reported_at_noon(with_partition(job, worker(built, 0).running(), *rest), first)
    assert plan(later, at(1)) == Plan((), 1.0)
    written = status_of(plan(later, at(2)))
    assert written["workersStatus"] == {"active": 1}
    assert "0/5 nodes" in written["lastMessage"]


def test_a_slow_start_takes_two_writes_and_one_that_gets_stuck_tells_what_it_has() -> None:
    job = ipujob()
    built = job.build()
    creating = partition(phase="creating", asked_at=NOW)
    first = observed(built, partitions=(creating,))
    assert status_of(plan(first, NOW))["launcherStatus"] == "Pending"
    has_place = reported_at_noon(observed(built, partitions=(partition(),)), first)
    assert not any(isinstance(a, PatchStatus) for a in plan(has_place, at(28)).actions)
    comes_up = reported_at_noon(
        with_partition(job, worker(built).running(), launcher(built)), first
    )
    assert plan(comes_up, at(28)) == Plan((), 2.0)
    runs = reported_at_noon(
        with_partition(job, worker(built).running(), launcher(built).running()), first
    )
    assert status_of(plan(runs, at(28)))["iPUPartitionCreated"] is True
    assert status_of(plan(comes_up, at(30)))["workersStatus"] == {"active": 1}


@pytest.mark.parametrize("reason", ["SpecChanged", "InvalidSpec"])
def test_an_edit_that_waits_stays_the_reason_while_an_instance_ends(reason: str) -> None:
    job = ipujob().without_launcher().instances(2)
    entries = [{"index": n, "attempt": 0, "state": "Running"} for n in range(2)]
    waits = Verdict(JobState.RUNNING, reason, "the image waits")
    conditions = with_verdict([], waits, "default/sample", "2026-03-01T12:00:00Z")
    job.with_status(launcherStatus="Running", instances=entries, conditions=conditions)
    pods = (worker(job.build(), 0, 0).exited(), worker(job.build(), 1, 1).running())
    parts = (partition(0), partition(1))
    found = status_of(plan(observed(job.build(), *pods, partitions=parts, with_children=True), NOW))
    assert [entry["state"] for entry in found["instances"]] == ["Completed", "Running"]
    assert found.get("conditions", conditions) == conditions
