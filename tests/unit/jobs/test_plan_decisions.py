"""Decisions of a pass about several instances, with evidence and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, ipujob, launcher, observed, partition, worker
from tests.builders.plans import condition_of, status_of, steps

if TYPE_CHECKING:
    from jobs.operator.actions import Plan
    from tests.builders.ipujobs import IPUJobBuilder


def entry(index: int, state: str = "Running", attempt: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "attempt": attempt, "state": state} | more


def job_of(wanted: int, *entries: dict[str, Any], policy: str = "OnFailure") -> IPUJobBuilder:
    job = ipujob().without_launcher().instances(wanted)
    job.with_spec(restartPolicy={"type": policy, "backOffLimit": 3})
    return job.running().with_status(instances=[*entries]) if entries else job


def decided(planned: Plan) -> list[tuple[int, int, str]]:
    """Index, attempt and state of every instance, of a pass that decides and does nothing else."""
    assert steps(planned) == ["decide"]
    return [(one["index"], one["attempt"], one["state"]) for one in status_of(planned)["instances"]]


def test_the_job_has_not_ended_before_all_its_instances() -> None:
    for code, want in ((0, "Completed"), (5, "Failed")):
        built = job_of(2, entry(0), entry(1), policy="Never").build()
        pods = (worker(built, 0, 0).exited(code), worker(built, 1, 1).running())
        planned = plan(observed(built, *pods, partitions=(partition(0), partition(1))), NOW)
        assert decided(planned) == [(0, 0, want), (1, 0, "Running")]
        assert "launcherStatus" not in status_of(planned), "it is Running as before"


def test_a_job_whose_other_instances_have_ended_is_restarting() -> None:
    built = job_of(2, entry(0, "Completed"), entry(1)).build()
    pods = (worker(built, 0, 0).exited(0), worker(built, 1, 1).exited(9))
    planned = plan(observed(built, *pods, partitions=(partition(0), partition(1))), NOW)
    assert decided(planned) == [(0, 0, "Completed"), (1, 1, "Restarting")]
    assert condition_of(planned)[0] == "Restarting"


def test_a_partition_in_error_is_the_reason_of_its_restart() -> None:
    built = job_of(1, entry(0)).build()
    seen = observed(built, worker(built).running(), partitions=(partition(phase="error"),))
    assert condition_of(plan(seen, NOW))[:2] == ("Restarting", "PartitionError")


def test_of_a_restart_without_evidence_it_is_said_that_it_waits_for_its_pods() -> None:
    built = job_of(2, entry(0, "Restarting", attempt=1), entry(1)).build()
    pods = (worker(built, 0, 0).running(), worker(built, 1, 1).exited(9))
    planned = plan(observed(built, *pods, partitions=(partition(0), partition(1))), NOW)
    assert condition_of(planned)[1:] == (
        "IPUJobRestarting",
        "IPUJob default/sample is restarting: it ended; attempt 2 begins once its pods are gone.",
    )


def failed_message(restarts: int, limit: int, code: int = 3, **policy: Any) -> str:
    job = ipujob().with_spec(restartPolicy={"type": "OnFailure", "backOffLimit": limit} | policy)
    job.running().with_status(instances=[entry(0, attempt=restarts, restarts=restarts)])
    built = job.build()
    pods = (
        worker(built).attempt(restarts).running(),
        launcher(built).attempt(restarts).exited(code),
    )
    seen = observed(built, *pods, partitions=(partition(attempt=restarts),), with_children=True)
    return condition_of(plan(seen, NOW))[2]


def test_a_failure_at_the_limit_says_how_many_restarts_there_were_and_no_other_does() -> None:
    end = "Container main of sample-launcher exited with code 3"
    failed = f"IPUJob default/sample has failed: {end}"
    assert failed_message(1, 1) == f"{failed} after 1 restart."
    assert failed_message(2, 2) == f"{failed} after 2 restarts."
    assert failed_message(0, 0) == f"{failed}."
    assert failed_message(1, 3, type="ExitCode") == f"{failed}."  # not a code to restart at


def test_an_end_before_the_start_asks_about_no_pod() -> None:
    built = ipujob().build()
    planned = plan(observed(built, worker(built).exited(1), partitions=(partition(),)), NOW)
    ((patch,),) = (step.actions for step in planned.steps)
    assert decided(planned) == [(0, 0, "Failed")]
    assert patch.absent == ()  # type: ignore[union-attr]


def test_who_is_scaled_down_while_it_holds_nothing_begins_with_another_attempt_too() -> None:
    built = job_of(1, entry(0), entry(1, "Pending")).build()
    seen = observed(built, worker(built).running(), partitions=(partition(0),))
    assert decided(plan(seen, NOW)) == [(0, 0, "Running"), (1, 1, "Suspended")]


def test_a_pod_alone_tells_that_an_instance_began_that_is_not_wanted() -> None:
    for entries in ((), (entry(0, "Pending"), entry(1, "Suspended", attempt=0))):
        built = job_of(1, *entries).build()
        seen = observed(built, worker(built, 1, 1), partitions=(partition(0),))
        assert decided(plan(seen, NOW))[1:] == [(1, 1, "Suspended")]


def test_what_others_hold_says_nothing_of_an_instance_that_is_not_wanted() -> None:
    built = job_of(1, entry(0, attempt=3), entry(1, "Suspended", attempt=1)).build()
    seen = observed(built, worker(built).attempt(3).running(), partitions=(partition(attempt=3),))
    assert "decide" not in steps(plan(seen, NOW))


def test_what_is_released_tells_of_no_instance() -> None:
    built = job_of(1).build()
    seen = observed(built, partitions=(partition(0), partition(1, phase="released")))
    assert "decide" not in steps(plan(seen, NOW))


def test_a_job_scaled_down_before_it_runs_is_pending() -> None:
    job = job_of(1, entry(0, "Pending"), entry(1, "Pending"))
    job.with_status(launcherStatus="Pending", conditions=[])
    seen = observed(job.build(), partitions=(partition(0), partition(1)))
    planned = plan(seen, NOW)
    assert decided(planned) == [(0, 0, "Pending"), (1, 1, "Suspended")]
    assert condition_of(planned)[:2] == ("Pending", "IPUJobPending")
