"""The teardown of a job: pods, partition, finalizer, in this order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobs.operator.actions import (
    CreateChild,
    DeleteChild,
    DeleteJob,
    EndPod,
    EnsurePartition,
    ReleasePartition,
    SetFinalizers,
)
from jobs.operator.observed import Fault
from jobs.operator.plan import plan
from tests.builders.ipujobs import (
    NOW,
    at,
    children,
    ipujob,
    key_of,
    launcher,
    observed,
    partition,
    worker,
)
from tests.builders.plans import status_of, steps, with_partition


def test_pods_of_another_attempt_go_before_the_partition_is_touched() -> None:
    job = ipujob().with_status(
        launcherStatus="Restarting",
        instances=[{"index": 0, "attempt": 1, "state": "Pending"}],
    )
    old = worker(job.build()).running()
    planned = plan(with_partition(job, old), NOW)
    assert steps(planned)[0] == "end workers"
    assert not any(isinstance(a, EnsurePartition | CreateChild) for a in planned.actions)
    assert EnsurePartition(0, 1, 4) in plan(with_partition(job), NOW).actions


CLEAN_UP = [
    # cleanPodPolicy, worker, launcher -> want
    ("None", "running", [("EndPod", "sample-worker-0")]),
    ("Workers", "running", [("DeleteChild", "sample-worker-0")]),
    (
        "All",
        "running",
        [("DeleteChild", "sample-launcher"), ("DeleteChild", "sample-worker-0")],
    ),
    ("None", "ended", []),
    ("None", "unscheduled", [("DeleteChild", "sample-worker-0")]),
]


@pytest.mark.parametrize(("policy", "pod", "want"), CLEAN_UP)
@pytest.mark.parametrize("outcome", ["Completed", "Failed"])
def test_clean_up_of_a_finished_job(
    policy: str, pod: str, want: list[tuple[str, str]], outcome: str
) -> None:
    job = ipujob().clean(policy).finished(outcome)
    built = job.build()
    pods = {
        "running": worker(built).running(),
        "ended": worker(built).ended_by_operator(),
        "unscheduled": worker(built),
    }
    code = 0 if outcome == "Completed" else 1
    planned = plan(with_partition(job, pods[pod], launcher(built).exited(code)), NOW)
    found = [
        (type(a).__name__, a.name) for a in planned.actions if isinstance(a, EndPod | DeleteChild)
    ]
    assert found == want


def test_a_sleeping_pod_is_told_to_end_and_ended_by_a_deadline_if_it_does_not() -> None:
    built = ipujob().finished().build()
    seen = worker(built).running().annotated(**{"ipuhub.io/end": ""})
    seen = seen.with_status(startTime="2026-03-01T11:59:00Z")
    end_at = "2026-03-01T12:00:00Z"
    where = ("default", "sample-worker-0", seen.build()["metadata"]["uid"])

    def end(**spec: Any) -> Any:
        return plan(with_partition(ipujob().finished(), seen.with_spec(**spec)), NOW).actions[0]

    assert end() == EndPod(*where, 80, end_at)
    assert end(activeDeadlineSeconds=90) == EndPod(*where, 80, end_at)
    assert end(activeDeadlineSeconds=70) == EndPod(*where, None, end_at)
    annotated = seen.annotated(**{"ipuhub.io/end": end_at})
    assert not any(
        isinstance(a, EndPod)
        for a in plan(with_partition(ipujob().finished(), annotated), NOW).actions
    )


def test_17a_a_partition_is_released_only_when_every_pod_is_terminal() -> None:
    job = ipujob().finished()
    built = job.build()
    ending = worker(built).ended_by_operator(ended=False)
    held = plan(with_partition(job, ending, launcher(built).exited()), NOW)
    free = plan(
        with_partition(job, worker(built).ended_by_operator(), launcher(built).exited()), NOW
    )
    assert not any(isinstance(a, ReleasePartition) for a in held.actions)
    assert free.actions == (ReleasePartition(0),)


def test_17a_deletion_waits_for_pods_that_take_long_to_end() -> None:
    job = ipujob().running().deleted()
    slow = worker(job.build()).running().deleting()
    planned = plan(with_partition(job, slow), NOW)
    assert planned.actions == ()
    assert planned.requeue_after == 10


def test_a_kept_partition_stays_until_the_job_is_deleted() -> None:
    job = ipujob().finished().keep_partition()
    built = job.build()
    kept = plan(
        with_partition(job, worker(built).ended_by_operator(), launcher(built).exited()), at(9)
    )
    assert not any(isinstance(a, ReleasePartition) for a in kept.actions)
    job.deleted()
    assert ReleasePartition(0) in plan(with_partition(job), NOW).actions


def test_a_finished_job_releases_what_it_holds_and_asks_for_nothing_else() -> None:
    never_had_one = ipujob().running().with_status(launcherStatus="Failed")
    assert plan(observed(never_had_one.build()), at(9)).requeue_after is None
    assert "release" not in steps(plan(observed(never_had_one.build()), at(9)))
    job = ipujob().finished()
    assert ReleasePartition(0) in plan(observed(job.build()), at(9)).actions  # nobody said it is
    job.manifest["status"]["partitions"][0]["state"] = "released"
    assert "release" not in steps(plan(observed(job.build()), at(9)))


def test_a_finished_job_looks_after_its_release_and_its_time_to_live() -> None:
    job = (
        ipujob()
        .finished()
        .with_status(completionTime="2026-03-01T12:00:00Z", workersStatus={}, ipus=0)
    )
    job.manifest["status"]["partitions"][0]["state"] = "releasing"
    releasing = observed(
        job.build(), partitions=(partition(phase="releasing", asked_at=at(8), size=0),)
    )
    assert plan(replace(releasing), at(9)).requeue_after == 4
    job.with_spec(ttlSecondsAfterFinished=10)
    over = replace(releasing, job=job.build())
    assert plan(over, at(9)).requeue_after == 1
    assert DeleteJob() not in plan(over, at(9.5)).actions
    assert DeleteJob() in plan(over, at(10)).actions


def test_ended_sleepers_count_as_succeeded() -> None:
    job = ipujob().finished()
    built = job.build()
    seen = replace(
        with_partition(job, worker(built).ended_by_operator(), launcher(built).exited()),
        partitions={0: partition(phase="released")},
    )
    assert status_of(plan(seen, at(60)))["workersStatus"] == {"succeeded": 1}


def test_the_order_down_is_launcher_workers_partition_finalizer() -> None:
    job = ipujob().running().deleted()
    built = job.build()
    both = plan(with_partition(job, worker(built).running(), launcher(built).running()), NOW)
    assert [(s.name, s.needs_previous) for s in both.steps] == [
        ("end launcher", False),
        ("end workers", False),
    ]
    assert plan(with_partition(job), NOW).actions == (ReleasePartition(0),)
    released = replace(with_partition(job), partitions={0: partition(phase="released")})
    assert plan(released, NOW).actions == (SetFinalizers(()),)


def test_a_release_under_way_is_left_to_the_proxy_for_five_seconds() -> None:
    job = ipujob().running().deleted()
    releasing = partition(phase="releasing", asked_at=NOW, message="vipu:8090 is away")
    seen = replace(with_partition(job), partitions={0: releasing})
    assert plan(seen, at(1)).actions == ()
    assert plan(seen, at(1)).requeue_after == 4
    assert ReleasePartition(0) in plan(seen, at(5)).actions
    waiting_long = replace(seen, partitions={0: replace(releasing, asked_at=at(10))})
    assert "vipu:8090 is away" in status_of(plan(waiting_long, at(11)))["lastMessage"]


def test_the_finalizer_stays_until_the_pods_are_gone_and_not_only_ended() -> None:
    job = ipujob().running().deleted()
    ended = worker(job.build()).exited().deleting()
    seen = replace(with_partition(job, ended), partitions={0: partition(phase="released")})
    assert plan(seen, NOW).actions == ()


def test_17c_the_steps_down_do_not_depend_on_each_other() -> None:
    job = ipujob().running().deleted()
    built = job.build()
    left = children(built, has_owner=False)
    seen = observed(built, worker(built).exited(), partitions=(partition(),), children=left)
    planned = plan(seen, NOW)
    assert steps(planned) == ["end workers", "release", "orphans"]
    assert not any(step.needs_previous for step in planned.steps)


def test_the_proxys_word_is_needed_before_the_finalizer_goes() -> None:
    """A list without the partition may be older than the reservation."""
    job = ipujob().deleted()
    assert plan(observed(job.build()), NOW).actions == (ReleasePartition(0),)


def test_a_deletion_waits_for_a_proxy_out_of_reach_and_keeps_the_finalizer() -> None:
    job = ipujob().running().deleted()
    away = observed(job.build(), proxy_problem="connection refused")
    assert plan(away, NOW).actions == ()
    assert "connection refused" in status_of(plan(away, at(11)))["lastMessage"]


def test_a_deletion_that_takes_long_says_what_it_waits_for() -> None:
    job = ipujob().running().deleted()
    slow = worker(job.build()).running().deleting()
    assert "sample-worker-0" in status_of(plan(with_partition(job, slow), at(11)))["lastMessage"]
    fault = Fault("ProxyUnavailable", "connection refused")
    assert (
        "connection refused"
        in status_of(plan(with_partition(job, fault=fault), at(11)))["lastMessage"]
    )


def test_a_job_without_our_finalizer_that_is_deleted_gets_none_and_frees_what_it_holds() -> None:
    job = ipujob().without_finalizer().deleted()
    planned = plan(with_partition(job), NOW)
    assert planned.actions == (ReleasePartition(0),)


def test_nothing_outlives_a_job_whose_finalizer_was_taken_off() -> None:
    built = ipujob().build()
    with_pod = observed(None, worker(built).running(), partitions=(partition(),), key=key_of(built))
    without = observed(None, partitions=(partition(),), key=key_of(built))
    assert [type(a) for a in plan(with_pod, NOW).actions] == [DeleteChild]
    assert plan(without, NOW).actions == (ReleasePartition(0),)


def test_somebody_elses_finalizer_on_a_job_that_holds_nothing_needs_nothing() -> None:
    built = ipujob().deleted().build()
    built["metadata"]["finalizers"] = ["other"]
    assert plan(observed(built, partitions=(partition(phase="released"),)), NOW).actions == ()
    for ours in (["ipu.finalizers.graphcore.ai"], ["ipu.graphcore.ai/finalizer"]):
        built["metadata"]["finalizers"] = ["other", *ours]
        planned = plan(observed(built, partitions=(partition(phase="released"),)), NOW)
        assert planned.actions == (SetFinalizers(("other",)),)


def test_both_names_of_our_finalizer_go_together() -> None:
    built = ipujob().deleted().build()
    built["metadata"]["finalizers"] = ["ipu.finalizers.graphcore.ai", "ipu.graphcore.ai/finalizer"]
    planned = plan(observed(built, partitions=(partition(phase="released"),)), NOW)
    assert planned.actions == (SetFinalizers(()),)
