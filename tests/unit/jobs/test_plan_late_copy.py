"""An operator with a stale copy of a job or its pods leaves objects of unknown attempts alone, and
verifies that an object is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.operator.actions import DeleteChild, EndPod, PatchStatus, ReleasePartition
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, at, ipujob, launcher, observed, partition, worker
from tests.builders.plans import status_of, with_partition

if TYPE_CHECKING:
    from jobs.operator.actions import Plan


def touched(planned: Plan) -> list[Any]:
    """The pods that are ended and the partitions that are released."""
    return [a for a in planned.actions if isinstance(a, DeleteChild | EndPod | ReleasePartition)]


def absent(planned: Plan) -> tuple[tuple[str, int], ...]:
    (patch,) = [a for a in planned.actions if isinstance(a, PatchStatus)]
    return patch.absent


def test_pods_of_a_later_attempt_are_left_to_who_knows_of_it() -> None:
    job = ipujob().with_status(launcherStatus="Pending")
    built = job.build()
    late = plan(with_partition(job, worker(built).attempt(1).running()), NOW)
    assert touched(late) == []
    job.with_status(instances=[{"index": 0, "attempt": 2, "state": "Pending"}])
    assert [a.name for a in touched(plan(with_partition(job, worker(built).attempt(1)), NOW))] == [
        "sample-worker-0"
    ]


def test_what_was_scaled_up_again_is_left_to_who_knows_of_it() -> None:
    job = ipujob().without_launcher().instances(1).running()
    job.with_status(
        instances=[
            {"index": 0, "attempt": 0, "state": "Running"},
            {"index": 1, "attempt": 1, "state": "Suspended"},
        ]
    )
    built = job.build()
    old, new = worker(built, 1, 1).running(), worker(built, 1, 1).attempt(2).running()
    parts = (partition(0), partition(1, attempt=2))
    gone = plan(observed(built, worker(built).running(), old, partitions=(partition(0),)), NOW)
    assert [a.name for a in touched(gone)] == ["sample-worker-1"]
    kept = plan(observed(built, worker(built).running(), new, partitions=parts), NOW)
    assert touched(kept) == []
    assert touched(plan(observed(built, worker(built).running(), partitions=parts), NOW)) == []


def test_a_partition_in_error_of_an_attempt_that_is_over_ends_nothing() -> None:
    job = ipujob().with_status(
        launcherStatus="Restarting",
        instances=[{"index": 0, "attempt": 1, "state": "Restarting", "restarts": 1}],
    )
    old = partition(phase="error", message="IPU 3 is gone", attempt=0)
    planned = plan(replace(with_partition(job), partitions={0: old}), NOW)
    assert "decide" not in [step.name for step in planned.steps]
    assert any(step.name == "partitions" for step in planned.steps)


def test_workers_that_another_operator_has_ended_do_not_end_the_job_again() -> None:
    job = ipujob().running()
    built = job.build()
    planned = plan(
        with_partition(job, worker(built).ended_by_operator(), launcher(built).running()), NOW
    )
    assert status_of(planned).get("launcherStatus") is None


@pytest.mark.parametrize(
    ("present", "want"),
    [
        ("worker", (("sample-launcher", 0),)),
        ("launcher", (("sample-worker-0", 0),)),
        ("none", (("sample-launcher", 0), ("sample-worker-0", 0))),
    ],
)
def test_an_end_by_absence_names_the_pods_to_ask_about(
    present: str, want: tuple[tuple[str, int], ...]
) -> None:
    job = ipujob().running()
    built = job.build()
    pods = {"worker": [worker(built).running()], "launcher": [launcher(built).running()]}
    planned = plan(with_partition(job, *pods.get(present, [])), NOW)
    assert status_of(planned)["launcherStatus"] == "Failed"
    assert absent(planned) == want


def test_an_end_by_what_is_there_asks_about_nothing() -> None:
    job = ipujob().running()
    built = job.build()
    assert (
        absent(plan(with_partition(job, worker(built).running(), launcher(built).exited(3)), at(1)))
        == ()
    )
