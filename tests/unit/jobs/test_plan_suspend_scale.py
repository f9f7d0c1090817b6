"""Suspending, resuming and scaling a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobs.operator.actions import EnsurePartition, ReleasePartition
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
from tests.builders.plans import condition_of, status_of, steps

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder


def test_suspending_is_decided_first_and_bumps_the_attempt() -> None:
    built = ipujob().running().with_spec(suspend=True).build()
    seen = observed(
        built, worker(built).running(), launcher(built).running(), partitions=(partition(),)
    )
    planned = plan(seen, NOW)
    assert steps(planned) == ["decide"]
    assert condition_of(planned)[:2] == ("Suspended", "IPUJobSuspended")
    assert status_of(planned)["instances"] == [{"index": 0, "attempt": 1, "state": "Suspended"}]
    assert "restartCount" not in status_of(planned) or status_of(planned)["restartCount"] == 0


def suspended(*, spec: bool = True) -> IPUJobBuilder:
    return (
        ipujob()
        .running()
        .with_spec(suspend=spec)
        .with_status(
            launcherStatus="Suspended",
            startTime="2026-03-01T11:00:00Z",
            instances=[{"index": 0, "attempt": 1, "state": "Suspended"}],
            partitions=[{"instance": 0, "id": "p-0", "controller": "vipu:8090", "state": "active"}],
        )
    )


def test_a_suspended_job_ends_its_pods_and_then_releases_its_partition() -> None:
    built = suspended().build()
    pods = (worker(built).running(), launcher(built).running())
    planned = plan(observed(built, *pods, partitions=(partition(),)), NOW)
    assert steps(planned)[:2] == ["end launcher", "end workers"]
    assert "release" not in steps(planned)
    assert "release" in steps(plan(observed(built, partitions=(partition(),)), NOW))


def test_a_suspended_job_that_holds_nothing_needs_nothing() -> None:
    job = suspended()
    job.manifest["status"]["partitions"][0]["state"] = "released"
    settled = job.with_status(workersStatus={}, ipus=0).build()
    planned = plan(observed(settled, partitions=(partition(phase="released"),)), at(600))
    assert [s for s in steps(planned) if s != "status"] == []


def test_a_suspended_job_releases_what_the_status_alone_knows_of_and_nothing_else() -> None:
    job = suspended()
    assert ReleasePartition(0) in plan(observed(job.build()), NOW).actions
    job.manifest["status"]["partitions"][0]["state"] = "released"
    assert "release" not in steps(plan(observed(job.build()), NOW))
    job.with_status(partitions=[])
    assert "release" not in steps(plan(observed(job.build()), NOW))


def test_a_suspended_job_looks_after_its_release_and_says_when_it_is_done() -> None:
    job = suspended().with_status(workersStatus={}, ipus=0, iPUPartitionCreated=False)
    job.manifest["status"]["partitions"][0]["state"] = "releasing"
    going = partition(phase="releasing", asked_at=NOW)
    assert plan(observed(job.build(), partitions=(going,)), at(1)).requeue_after == 4
    done = plan(observed(job.build(), partitions=(partition(phase="released"),)), at(1))
    assert [one["state"] for one in status_of(done)["partitions"]] == ["released"]


def test_of_an_invalid_suspended_job_what_is_about_to_begin_is_left_to_who_knows_of_it() -> None:
    built = suspended().with_spec(ipusPerModelReplica="3").build()
    pods = (worker(built).attempt(1).running(),)
    seen = observed(built, *pods, partitions=(partition(attempt=1),))
    assert [s for s in steps(plan(seen, NOW)) if s != "status"] == []
    seen = observed(built, partitions=(partition(attempt=1),))
    assert [s for s in steps(plan(seen, NOW)) if s != "status"] == []
    seen = observed(built, partitions=(partition(),))
    assert "release" in steps(plan(seen, NOW))


def test_resuming_starts_the_next_attempt_and_the_clock_anew() -> None:
    built = suspended(spec=False).build()
    seen = observed(built, partitions=(partition(attempt=1),), with_children=True)
    planned = plan(seen, NOW)
    assert "pods" in steps(planned)
    assert status_of(planned)["startTime"] == "2026-03-01T12:00:00Z"
    assert status_of(planned)["launcherStatus"] == "Pending"
    assert [entry["state"] for entry in status_of(planned)["instances"]] == ["Pending"]


@pytest.mark.parametrize("phase", ["active", "error", "creating"])
def test_a_job_resumed_a_moment_after_its_start_asks_at_once_for_its_next_attempt(
    phase: str,
) -> None:
    held = partition(phase=phase, asked_at=NOW)
    planned = plan(observed(suspended(spec=False).build(), partitions=(held,)), at(1))
    assert EnsurePartition(0, 1, 4) in planned.actions


def test_a_job_made_suspended_gets_nothing() -> None:
    built = ipujob().with_spec(suspend=True).build()
    assert steps(plan(observed(built), NOW)) == ["decide"]


def scaled(instances: int) -> IPUJobBuilder:
    return (
        ipujob()
        .without_launcher()
        .instances(instances)
        .running()
        .with_status(
            instances=[
                {"index": 0, "attempt": 0, "state": "Running"},
                {"index": 1, "attempt": 0, "state": "Running"},
            ]
        )
    )


def test_scaling_down_is_decided_first() -> None:
    built = scaled(1).build()
    pods = (worker(built, 0, 0).running(), worker(built, 1, 1).running())
    planned = plan(observed(built, *pods, partitions=(partition(0), partition(1))), NOW)
    assert steps(planned) == ["decide"]
    assert [(e["attempt"], e["state"]) for e in status_of(planned)["instances"]] == [
        (0, "Running"),
        (1, "Suspended"),
    ]


def after_scaling_down(instances: int) -> IPUJobBuilder:
    return scaled(instances).with_status(
        instances=[
            {"index": 0, "attempt": 0, "state": "Running"},
            {"index": 1, "attempt": 1, "state": "Suspended"},
        ]
    )


def test_what_is_not_wanted_any_more_goes_pods_first() -> None:
    built = after_scaling_down(1).build()
    pods = (worker(built, 0, 0).running(), worker(built, 1, 1).running())
    planned = plan(observed(built, *pods, partitions=(partition(0), partition(1))), NOW)
    (gone,) = next(s for s in planned.steps if s.name == "end workers").actions
    assert gone.name == "sample-worker-1"
    assert "release surplus" not in steps(planned)
    planned = plan(observed(built, pods[0], partitions=(partition(0), partition(1))), NOW)
    (freed,) = next(s for s in planned.steps if s.name == "release surplus").actions
    assert freed.instance == 1


def test_scaling_up_again_starts_the_next_attempt_of_the_instance() -> None:
    built = after_scaling_down(2).build()
    pods = (worker(built, 0, 0).running(), worker(built, 1, 1).running().deleting())
    seen = observed(built, *pods, partitions=(partition(0), partition(1, attempt=1)))
    assert "pods" not in steps(plan(seen, NOW)), "the old pod has the name"
    seen = observed(built, pods[0], partitions=(partition(0), partition(1, attempt=1)))
    (made,) = next(s for s in plan(seen, NOW).steps if s.name == "pods").actions
    assert made.manifest["metadata"]["labels"]["graphcore.ai/attempt"] == "1"


def test_of_what_is_not_wanted_the_highest_instance_goes_first() -> None:
    rest = [{"index": n, "attempt": 1, "state": "Suspended"} for n in (1, 2)]
    job = ipujob().without_launcher().instances(1).running()
    job.with_status(instances=[{"index": 0, "attempt": 0, "state": "Running"}, *rest])
    built = job.build()
    parts = tuple(partition(n) for n in range(3))
    pods = [worker(built, n, n).running() for n in range(3)]
    ending = plan(observed(built, *pods, partitions=parts), NOW).steps[0]
    assert [a.name for a in ending.actions] == ["sample-worker-2", "sample-worker-1"]
    for present, want in ((pods[:1], [2, 1]), (pods[:2], [2])):
        planned = plan(observed(built, *present, partitions=parts), NOW)
        (freed,) = [s for s in planned.steps if s.name == "release surplus"]
        assert [a.instance for a in freed.actions] == want


def test_a_release_of_what_is_not_wanted_is_asked_for_again() -> None:
    built = after_scaling_down(1).build()
    parts = (partition(0), partition(1, phase="releasing", asked_at=NOW))
    seen = observed(built, worker(built, 0, 0).running(), partitions=parts)
    assert plan(seen, at(1)).requeue_after == 4
    assert "release surplus" in steps(plan(seen, at(5)))


def settled_beside(state: str) -> IPUJobBuilder:
    """Instance 0 has completed, instance 1 is in `state`."""
    return scaled(2).with_status(
        instances=[
            {"index": 0, "attempt": 0, "state": "Completed"},
            {"index": 1, "attempt": 0, "state": state},
        ]
    )


def test_suspending_leaves_an_instance_alone_that_has_ended() -> None:
    built = settled_beside("Running").with_spec(suspend=True).build()
    pods = (worker(built, 0, 0).exited(), worker(built, 1, 1).running())
    planned = plan(observed(built, *pods, partitions=(partition(0), partition(1))), NOW)
    assert [(e["attempt"], e["state"]) for e in status_of(planned)["instances"]] == [
        (0, "Completed"),
        (1, "Suspended"),
    ]
    job = settled_beside("Running").with_spec(suspend=True)
    job.with_status(launcherStatus="Suspended").manifest["status"]["instances"][1] = {
        "index": 1,
        "attempt": 1,
        "state": "Suspended",
    }
    planned = plan(observed(job.build(), *pods, partitions=(partition(0), partition(1))), NOW)
    gone = [a.name for step in planned.steps if "end" in step.name for a in step.actions]
    assert gone == ["sample-worker-1"], "the other worker's object and log stay"
    sleeping = (worker(built, 0, 0).running(), pods[1])
    planned = plan(observed(job.build(), *sleeping, partitions=(partition(0), partition(1))), NOW)
    gone = [a.name for step in planned.steps if "end" in step.name for a in step.actions]
    assert gone == ["sample-worker-0", "sample-worker-1"], "what still runs ends"


def test_an_evicted_pod_of_an_instance_that_has_ended_stays_for_its_log() -> None:
    built = settled_beside("Running").build()
    pods = (worker(built, 0, 0).exited(137, "Evicted"), worker(built, 1, 1).running())
    planned = plan(observed(built, *pods, partitions=(partition(0), partition(1))), NOW)
    assert [s for s in steps(planned) if s != "status"] == []


def test_what_is_suspended_in_the_breath_of_its_resuming_begins_with_another_attempt() -> None:
    built = suspended().build()
    held = (partition(attempt=1),)
    planned = plan(observed(built, worker(built).attempt(1).running(), partitions=held), NOW)
    assert steps(planned) == ["decide"]
    assert status_of(planned)["instances"] == [{"index": 0, "attempt": 2, "state": "Suspended"}]
    assert "startTime" not in status_of(planned)


def test_what_is_scaled_down_in_the_breath_of_its_scaling_up_begins_with_another_attempt() -> None:
    built = after_scaling_down(1).build()
    held = (partition(0), partition(1, attempt=1))
    planned = plan(observed(built, worker(built, 0, 0).running(), partitions=held), NOW)
    assert steps(planned) == ["decide"]
    assert [(e["attempt"], e["state"]) for e in status_of(planned)["instances"]] == [
        (0, "Running"),
        (2, "Suspended"),
    ]


def test_what_was_asked_for_before_the_first_status_is_given_back_when_it_is_not_wanted() -> None:
    built = ipujob().without_launcher().instances(1).build()
    parts = (partition(0), partition(1, phase="creating", asked_at=NOW))
    planned = plan(observed(built, partitions=parts), NOW)
    assert steps(planned) == ["decide"]
    assert status_of(planned)["instances"] == [
        {"index": 0, "attempt": 0, "state": "Pending"},
        {"index": 1, "attempt": 1, "state": "Suspended"},
    ]
    built["status"] = status_of(planned)
    assert "release surplus" in steps(plan(observed(built, partitions=parts), NOW))
