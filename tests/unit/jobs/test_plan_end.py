"""The end of a job, losses before it, and the actions for an unchanged world."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.names import Kind
from jobs.operator.actions import DeleteChild, Plan
from jobs.operator.plan import plan
from tests.builders.ipujobs import (
    NOW,
    at,
    children,
    ipujob,
    launcher,
    observed,
    partition,
    worker,
)
from tests.builders.plans import (
    after_write,
    condition_of,
    created,
    status_of,
    steps,
    with_partition,
)

if TYPE_CHECKING:
    from ipuhub.partition import Partition
    from tests.builders.ipujobs import IPUJobBuilder

GATE_CLOSED = {
    "phase": "Failed",
    "initContainerStatuses": [{"name": "gate", "state": {"terminated": {"exitCode": 1}}}],
}


def test_an_unchanged_world_needs_nothing() -> None:
    job = ipujob().workers(2)
    built = job.build()
    world = after_write(
        job, worker(built, 0).running(), worker(built, 1).running(), launcher(built).running()
    )
    assert plan(world, at(1000)) == Plan()


def test_a_count_alone_waits_a_moment_and_comes_with_the_next_change() -> None:
    job = ipujob().workers(2)
    built = job.build()
    seen = after_write(job, worker(built, 0).running(), worker(built, 1), launcher(built).running())
    more = with_partition(
        job, worker(built, 0).running(), worker(built, 1).running(), launcher(built).running()
    )
    later = replace(more, job=seen.job)
    assert plan(later, at(0.5)) == Plan((), 1.5)
    assert status_of(plan(later, at(2)))["workersStatus"] == {"active": 2}


def test_the_end_is_written_alone_with_its_evidence() -> None:
    job = ipujob().running()
    built = job.build()
    planned = plan(with_partition(job, worker(built).running(), launcher(built).exited(3)), NOW)
    assert steps(planned) == ["decide"]
    assert condition_of(planned) == (
        "Failed",
        "IPUJobFailed",
        ("IPUJob default/sample has failed: Container main of sample-launcher exited with code 3."),
    )
    assert status_of(planned)["instances"] == [
        {
            "index": 0,
            "attempt": 0,
            "state": "Failed",
            "reason": "IPUJobFailed",
            "exitCode": 3,
            "message": "Container main of sample-launcher exited with code 3",
        }
    ]
    assert status_of(planned)["completionTime"] == "2026-03-01T12:00:00Z"


def test_success_says_what_the_published_operator_said() -> None:
    job = ipujob().running()
    built = job.build()
    planned = plan(with_partition(job, worker(built).running(), launcher(built).exited(0)), NOW)
    assert condition_of(planned)[:2] == ("Succeeded", "IPUJobSucceeded")
    assert status_of(planned)["launcherStatus"] == "Completed"
    assert status_of(planned)["lastMessage"] == "All instances done"
    assert status_of(planned)["currentReplicas"] == 0


def test_success_is_also_complete_the_usual_name_of_what_scripts_wait_for() -> None:
    job = ipujob().running()
    built = job.build()
    ends = {
        code: with_partition(job, worker(built).running(), launcher(built).exited(code))
        for code in (0, 3)
    }
    true = {
        code: [c["type"] for c in status_of(plan(seen, NOW))["conditions"] if c["status"] == "True"]
        for code, seen in ends.items()
    }
    assert true == {0: ["Succeeded", "Complete"], 3: ["Failed"]}


def test_without_a_launcher_the_exit_is_all_workers() -> None:
    job = ipujob().without_launcher().workers(2).running()
    built = job.build()
    going_on = plan(
        with_partition(job, worker(built, 0).exited(1), worker(built, 1).running()), NOW
    )
    ended = plan(with_partition(job, worker(built, 0).exited(1), worker(built, 1).exited(0)), NOW)
    assert status_of(going_on).get("launcherStatus") is None
    assert status_of(ended)["launcherStatus"] == "Failed"


@pytest.mark.parametrize(
    ("pods", "want_words"),
    [
        (lambda j: [launcher(j).running()], "sample-worker-0 is gone"),
        (lambda j: [worker(j).running()], "launcher pod is gone"),
        # Made by an operator that was late; the launcher that ran the command is gone.
        (
            lambda j: [worker(j).running(), launcher(j).with_status(**GATE_CLOSED)],
            "launcher pod is gone",
        ),
        (lambda j: [worker(j).running().deleting(), launcher(j).running()], "being deleted"),
        (lambda j: [worker(j).exited(137, "Evicted"), launcher(j).running()], "Evicted"),
        (lambda j: [worker(j).exited(137, "Evicted"), launcher(j).exited(1)], "Evicted"),
    ],
)
def test_a_pod_taken_from_a_running_job_is_worker_lost(pods: Any, want_words: str) -> None:
    job = ipujob().running()
    planned = plan(with_partition(job, *pods(job.build())), NOW)
    assert condition_of(planned)[:2] == ("Failed", "WorkerLost")
    assert want_words in condition_of(planned)[2]
    assert created(planned) == []


def test_a_launcher_that_succeeded_settles_it_whatever_else_is_lost() -> None:
    job = ipujob().running()
    planned = plan(with_partition(job, launcher(job.build()).exited(0)), NOW)
    assert status_of(planned)["launcherStatus"] == "Completed"


def test_a_partition_in_error_ends_the_attempt() -> None:
    job = ipujob().running()
    built = job.build()
    bad = partition(phase="error", message="IPU 3 is gone")
    seen = replace(
        with_partition(job, worker(built).running(), launcher(built).running()), partitions={0: bad}
    )
    assert condition_of(plan(seen, NOW))[:2] == ("Failed", "PartitionError")
    assert "IPU 3 is gone" in condition_of(plan(seen, NOW))[2]


def test_a_sleeping_worker_that_fails_ends_the_job_and_one_that_ends_well_does_not() -> None:
    job = ipujob().running()
    built = job.build()
    failed = plan(with_partition(job, worker(built).exited(1), launcher(built).running()), NOW)
    ended = plan(with_partition(job, worker(built).exited(0), launcher(built).running()), NOW)
    assert "sample-worker-0 ended before the launcher: Container main" in condition_of(failed)[2]
    assert status_of(ended).get("launcherStatus") is None


def test_a_worker_that_ends_before_the_launcher_starts_ends_the_job() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()
    planned = plan(with_partition(job, worker(built).exited(0), launcher(built)), NOW)
    assert status_of(planned)["launcherStatus"] == "Failed"


def test_before_the_start_a_missing_pod_is_simply_made_again() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    planned = plan(with_partition(job, launcher(job.build())), NOW)
    assert created(planned) == ["Pod sample-worker-0"]


def test_before_the_start_an_evicted_pod_is_deleted_to_be_made_again() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()
    planned = plan(with_partition(job, worker(built).exited(137, "Evicted"), launcher(built)), NOW)
    assert DeleteChild(Kind.POD, "default", "sample-worker-0", "uid-sample-worker-0") in (
        planned.actions
    )
    assert created(planned) == []


def test_before_the_start_an_evicted_launcher_is_deleted_to_be_made_again() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()
    evicted = launcher(built).with_status(phase="Failed", reason="Evicted")
    planned = plan(with_partition(job, worker(built).running(), evicted), NOW)
    assert DeleteChild(Kind.POD, "default", "sample-launcher", "uid-sample-launcher") in (
        planned.actions
    )
    assert status_of(planned).get("launcherStatus") is None


def test_a_worker_that_has_succeeded_may_be_deleted() -> None:
    job = ipujob().without_launcher().workers(2).running()
    built = job.build()
    pods = (worker(built, 0).exited(0).deleting(), worker(built, 1).running())
    assert status_of(plan(with_partition(job, *pods), NOW)).get("launcherStatus") is None


RELEASED = partition(phase="released", active_at=NOW)


@pytest.mark.parametrize(
    ("made", "parts", "more", "want"),
    [
        pytest.param(True, (), {}, True, id="its objects say that it has begun"),
        pytest.param(False, (RELEASED,), {}, True, id="a partition that was active says so"),
        pytest.param(True, (partition(phase="waiting"),), {}, True, id="it only waits for IPUs"),
        pytest.param(False, (), {}, False, id="a new job"),
        pytest.param(
            False, (partition(phase="released"),), {}, False, id="a partition that never came"
        ),
        pytest.param(True, (partition(),), {}, False, id="it holds a partition"),
        pytest.param(True, (), {"is_unwritten": False}, False, id="it has a status"),
        pytest.param(True, (), {"proxy_problem": "away"}, False, id="partitions are unknown"),
    ],
)
def test_a_job_without_a_status_that_has_held_ipus_is_not_run_again(
    made: bool, parts: tuple[Partition, ...], more: dict[str, Any], want: bool
) -> None:
    job = ipujob().build()
    fields = {"is_unwritten": True, "with_children": made} | more
    planned = plan(observed(job, partitions=parts, **fields), NOW)
    assert (steps(planned) == ["decide"]) is want
    if want:
        assert condition_of(planned)[:2] == ("Failed", "StatusLost")
        assert status_of(planned)["completionTime"]


def test_objects_of_another_job_say_nothing_of_this_one() -> None:
    job = ipujob().build()
    world = observed(job, children=children(job, job_uid="another"), is_unwritten=True)
    assert "decide" not in steps(plan(world, NOW))


@pytest.mark.parametrize(
    ("job", "want_before_it_began"),
    [
        pytest.param(ipujob().with_spec(suspend=True), "Suspended", id="suspended"),
        pytest.param(ipujob().ipus(6), "Pending", id="with an invalid spec"),
        pytest.param(ipujob().ipus(6).with_spec(suspend=True), "Pending", id="both"),
    ],
)
@pytest.mark.parametrize("has_pods", [False, True])
def test_a_job_that_would_not_run_now_has_lost_its_status_too(
    job: IPUJobBuilder, want_before_it_began: str, has_pods: bool
) -> None:
    built = job.build()
    pods = (worker(built).exited(0), launcher(built).exited(3)) if has_pods else ()
    planned = plan(observed(built, *pods, with_children=True, is_unwritten=True), NOW)
    assert steps(planned) == ["decide"]
    assert condition_of(planned)[:2] == ("Failed", "StatusLost")
    assert "was removed after it had held IPUs" in condition_of(planned)[2]
    new = plan(observed(built, is_unwritten=True), NOW)
    assert condition_of(new)[0] == want_before_it_began


def test_pods_that_still_run_are_left_alone_without_a_status() -> None:
    job = ipujob().build()
    pods = worker(job).running(), launcher(job).running()
    planned = plan(observed(job, *pods, with_children=True, is_unwritten=True), NOW)
    assert condition_of(planned)[0] == "Running"
