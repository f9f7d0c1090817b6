"""Invalid specs, statuses and Events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.ipujob.conditions import SENTENCES, Reason
from jobs.operator.actions import (
    EnsurePartition,
    PatchStatus,
    Plan,
    ReleasePartition,
    SetFinalizers,
)
from jobs.operator.plan import plan
from tests.builders.ipujobs import (
    NOW,
    at,
    ipujob,
    launcher,
    observed,
    partition,
    worker,
)
from tests.builders.plans import condition_of, status_of, steps, with_partition


def test_an_invalid_spec_is_pending_and_says_what_to_write() -> None:
    planned = plan(observed(ipujob().ipus(6).build()), NOW)
    kind, reason, message = condition_of(planned)
    assert (kind, reason) == ("Pending", "InvalidSpec")
    assert "use 4 or 8" in message
    assert steps(planned) == ["status"]
    status = status_of(planned)
    conditions, last_message = status.pop("conditions"), status.pop("lastMessage")
    assert last_message == message == conditions[0]["message"]
    assert status == {
        "launcherStatus": "Pending",
        "restartCount": 0,
        "iPUPartitionCreated": False,
        "currentReplicas": 0,
        "desiredReplicas": 0,
        "startTime": "2026-03-01T12:00:00Z",
        "observedGeneration": 1,
        "lastReconcileTime": "2026-03-01T12:00:00Z",
    }


def test_counts_wait_on_the_way_up_and_that_it_runs_is_written_in_the_same_second() -> None:
    job = ipujob()
    made = (worker(job.build()), launcher(job.build()))
    stored = status_of(plan(with_partition(job, *made), NOW))
    assert stored["launcherStatus"] == "Pending"
    job = job.with_status(**stored)
    first = worker(job.build()).running()
    counted = plan(with_partition(job, first, launcher(job.build())), NOW)
    assert (counted.actions, counted.requeue_after) == ((), 30)
    runs = plan(with_partition(job, first, launcher(job.build()).running()), NOW)
    assert status_of(runs)["launcherStatus"] == "Running"
    assert status_of(runs)["workersStatus"] == {"active": 1}


def test_an_invalid_edit_leaves_in_the_status_what_was_counted() -> None:
    counted = {
        "restartCount": 2,
        "iPUPartitionCreated": True,
        "currentReplicas": 1,
        "desiredReplicas": 1,
        "startTime": "2026-03-01T11:00:00Z",
    }
    job = ipujob().ipus(6).with_status(launcherStatus="Restarting", **counted)
    assert not counted.keys() & status_of(plan(observed(job.build()), NOW)).keys()


def test_an_invalid_job_without_pods_is_pending_at_once() -> None:
    invalid = {"type": "Running", "status": "True", "reason": "InvalidSpec"}
    job = ipujob().ipus(6).with_status(launcherStatus="Running", conditions=[invalid])
    job.with_status(observedGeneration=1, lastReconcileTime="2026-03-01T12:00:00Z")
    assert status_of(plan(observed(job.build()), NOW))["launcherStatus"] == "Pending"


def test_an_invalid_spec_is_judged_again_once_it_is_changed() -> None:
    bad = observed(ipujob().ipus(6).build())
    stored = status_of(plan(bad, NOW))
    same = replace(bad, job={**(bad.job or {}), "status": stored})
    assert plan(same, at(100)) == Plan()
    fixed = ipujob().ipus(8).with_status(**stored).build()
    assert EnsurePartition(0, 0, 8) in plan(observed(fixed), at(100)).actions


@pytest.mark.parametrize("spec", [None, {}, {"workers": 3}, {"jobInstances": "x"}])
def test_a_job_that_cannot_be_understood_still_deletes(spec: Any) -> None:
    built = ipujob().deleted().build()
    built["spec"] = spec
    assert plan(observed(built), NOW).actions == (ReleasePartition(0),)
    gone = observed(built, partitions=(partition(phase="released"),))
    assert plan(gone, NOW).actions == (SetFinalizers(()),)


@pytest.mark.parametrize(
    ("instances", "want"),
    [(1, "Partition p-0 is active."), (2, "Partitions p-0, p-1 are active.")],
)
def test_an_event_names_the_partitions_in_a_sentence(instances: int, want: str) -> None:
    held = tuple(partition(n, id=f"p-{n}") for n in range(instances))
    job = ipujob().ipus(4).instances(instances).without_launcher().build()
    (patch,) = [
        one
        for one in plan(observed(job, partitions=held), NOW).actions
        if isinstance(one, PatchStatus)
    ]
    assert [e.message for e in patch.events if str(e.reason) == "PartitionActive"] == [want]


def test_every_transition_is_an_event() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()

    def event_reasons(planned: Plan) -> list[tuple[str, bool]]:
        (patch,) = [a for a in planned.actions if isinstance(a, PatchStatus)]
        return [(str(e.reason), e.is_warning) for e in patch.events]

    first = plan(observed(ipujob().build(), partitions=(partition(),)), NOW)
    assert event_reasons(first) == [("IPUJobPending", False), ("PartitionActive", False)]
    assert ("IPUJobRunning", False) in event_reasons(
        plan(with_partition(job, worker(built).running(), launcher(built).running()), NOW)
    )
    ended = ipujob().running()
    for policy, want in (
        ("Never", [("IPUJobFailed", True)]),
        ("OnFailure", [("IPUJobRestarting", False)]),
    ):
        ended.with_spec(restartPolicy={"type": policy})
        pods = (worker(built).running(), launcher(built).exited(1))
        assert event_reasons(plan(with_partition(ended, *pods), NOW)) == want
    done = plan(with_partition(ended, worker(built).running(), launcher(built).exited()), NOW)
    assert event_reasons(done) == [("IPUJobSucceeded", False)]
    pods = (worker(built).running(), launcher(built).running())
    held_back = plan(with_partition(ended.with_spec(suspend=True), *pods), NOW)
    assert event_reasons(held_back) == [("IPUJobSuspended", False)]


def test_a_release_that_takes_time_is_an_event_once() -> None:
    stored: dict[str, Any] = {"iPUPartitionCreated": True}
    reasons = []
    for seconds, phase in enumerate(("active", "releasing", "released", "released")):
        job = ipujob().finished()
        built = job.build()
        built["status"] |= stored
        pods = (worker(built).ended_by_operator(), launcher(built).exited())
        parts = (partition(phase=phase, asked_at=at(seconds * 10)),)
        for action in plan(observed(built, *pods, partitions=parts), at(seconds * 10)).actions:
            if isinstance(action, PatchStatus):
                stored |= action.status
                reasons += [str(event.reason) for event in action.events]
    assert reasons == ["PartitionReleased"]


def test_a_partition_that_the_proxy_knows_nothing_of_is_released_in_the_status_too() -> None:
    held = [{"instance": 0, "id": "p-0", "controller": "vipu:8090", "state": "active"}]
    job = ipujob().finished().with_status(partitions=held, iPUPartitionCreated=True, ipus=4)
    built = job.build()
    pods = (worker(built).ended_by_operator(), launcher(built).exited())
    gone = partition(phase="released", id="", controller="", size=0)
    planned = plan(observed(built, *pods, partitions=(gone,)), at(60))
    assert status_of(planned)["partitions"] == [{**held[0], "state": "released"}]
    assert status_of(planned)["iPUPartitionCreated"] is False
    assert status_of(planned)["ipus"] == 0


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


def test_a_gone_cause_is_not_shown_for_ever() -> None:
    waits = partition(phase="waiting", id="", reason="NoCapacity", message="full", asked_at=NOW)
    stored = status_of(plan(observed(ipujob().build(), partitions=(waits,)), NOW))
    job = ipujob().with_status(**stored)
    built = job.build()
    planned = plan(with_partition(job, worker(built).running(), launcher(built).running()), at(5))
    pending, running = status_of(planned)["conditions"]
    assert pending == {
        "type": "Pending",
        "status": "False",
        "reason": "IPUJobPending",
        "message": "IPUJob default/sample is waiting for resources to be ready.",
        "lastTransitionTime": "2026-03-01T12:00:05Z",
        "lastUpdateTime": "2026-03-01T12:00:05Z",
    }
    assert running["status"] == "True"
