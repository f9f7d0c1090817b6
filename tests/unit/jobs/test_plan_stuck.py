"""A pod on a lost node does not end: the job reports it, and its IPUs stay held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.operator.actions import EnsurePartition
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, at, ipujob, launcher, observed, partition, worker
from tests.builders.plans import condition_of, status_of, with_partition


def waiting_for_the_old_attempt(**condition: Any) -> Any:
    """A job that is to be started again, and whose worker of before is still being ended."""
    restarting = {"type": "Restarting", "status": "True", "reason": "WorkerLost", "message": "lost"}
    job = ipujob().with_spec(restartPolicy={"type": "OnFailure"})
    built = job.with_status(
        launcherStatus="Restarting",
        conditions=[restarting | condition],
        instances=[{"index": 0, "attempt": 1, "state": "Restarting"}],
        observedGeneration=1,
    ).build()
    return observed(built, worker(built).running().deleting(), partitions=(partition(),))


def test_a_pod_past_its_grace_period_is_the_reason_after_a_minute() -> None:
    seen = waiting_for_the_old_attempt()
    early = plan(seen, at(59))
    assert all(c["reason"] != "PodsStuck" for c in status_of(early).get("conditions", ()))
    late = plan(seen, at(60))
    assert condition_of(late)[:2] == ("Restarting", "PodsStuck")
    assert "pod sample-worker-0 on node node-0" in condition_of(late)[2]
    assert "force-delete the pod" in condition_of(late)[2]
    assert not any(isinstance(a, EnsurePartition) for a in late.actions)


def test_a_pod_that_was_never_on_a_node_is_said_without_one() -> None:
    seen = waiting_for_the_old_attempt()
    nowhere = replace(seen, pods=(replace(seen.pods[0], node=""),))
    assert condition_of(plan(nowhere, at(60)))[2].startswith(
        "Waiting for pod sample-worker-0 to terminate,"
    )


def test_a_pod_of_the_attempt_that_is_about_to_begin_may_be_the_one() -> None:
    job = ipujob()
    built = job.build()
    seen = with_partition(job, worker(built).scheduled().deleting(), launcher(built))
    assert condition_of(plan(seen, at(59)))[1] == "IPUJobPending"
    assert condition_of(plan(seen, at(60)))[1] == "PodsStuck"


def test_a_pod_that_is_stuck_is_told_before_any_other_cause() -> None:
    seen = replace(waiting_for_the_old_attempt(), proxy_problem="refused")
    assert condition_of(plan(seen, at(60)))[1] == "PodsStuck"


def test_a_pod_that_has_ended_and_still_goes_is_not_waited_for() -> None:
    seen = waiting_for_the_old_attempt()
    ended = replace(seen, pods=(replace(seen.pods[0], phase="Succeeded"),))
    assert plan(ended, NOW).requeue_after is None
    assert any(isinstance(a, EnsurePartition) for a in plan(ended, NOW).actions)


def test_who_is_stuck_is_not_looked_at_again_and_again() -> None:
    seen = waiting_for_the_old_attempt()
    stored = {**seen.job, "status": {**seen.status(), **status_of(plan(seen, at(61)))}}
    again = plan(replace(seen, job=stored), at(62))
    assert again.requeue_after is None or again.requeue_after >= 1


def test_it_is_looked_at_again_in_time() -> None:
    seen = waiting_for_the_old_attempt()
    stored = {**seen.job, "status": {**seen.status(), **status_of(plan(seen, NOW))}}
    assert plan(replace(seen, job=stored), at(20)).requeue_after == 40


def test_of_several_that_are_ending_the_first_to_be_stuck_is_looked_at() -> None:
    seen = waiting_for_the_old_attempt()
    (first,) = seen.pods
    later = replace(first, name="sample-worker-1", gone_by=at(30))
    stored = {**seen.job, "status": {**seen.status(), **status_of(plan(seen, NOW))}}
    for pods in ((first, later), (later, first)):
        assert plan(replace(seen, job=stored, pods=pods), at(20)).requeue_after == 40


@pytest.mark.parametrize("reason", ["WorkerLost", "PartitionError", "IPUJobRestarting"])
def test_why_it_is_started_again_stays_while_nothing_is_in_the_way(reason: str) -> None:
    seen = waiting_for_the_old_attempt(reason=reason, message="lost")
    assert "conditions" not in status_of(plan(seen, NOW))


def test_a_cause_that_has_passed_is_not_told_on_while_it_restarts() -> None:
    seen = waiting_for_the_old_attempt(reason="NoCapacity", message="4 needed, 0 free")
    assert condition_of(plan(seen, NOW))[1] == "IPUJobRestarting"
