"""The conditions for another attempt, and its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.conditions import Reason
from jobs.ipujob.spec import RestartPolicy
from jobs.operator.instancerecord import End
from jobs.operator.plan import plan
from jobs.operator.restarts import Restart, Tally, restart_after
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

if TYPE_CHECKING:
    from jobs.operator.actions import Plan
    from tests.builders.ipujobs import IPUJobBuilder


def exited(code: int) -> End:
    return End(code == 0, Reason.SUCCEEDED if code == 0 else Reason.FAILED, "it ended", code)


LOST = End(False, Reason.WORKER_LOST, "Pod x is gone")
IN_ERROR = End(False, Reason.PARTITION_ERROR, "Partition p is in ERROR")
NO_CODE = End(False, Reason.FAILED, "x has failed")


@pytest.mark.parametrize(
    ("policy", "end", "want"),
    [
        (RestartPolicy("Never"), exited(1), False),
        (RestartPolicy("Never"), LOST, False),
        (RestartPolicy("Never"), IN_ERROR, False),
        (RestartPolicy("OnFailure"), exited(1), True),
        (RestartPolicy("OnFailure"), exited(0), False),
        (RestartPolicy("OnFailure"), NO_CODE, True),
        (RestartPolicy("OnFailure"), LOST, True),
        (RestartPolicy("Always"), exited(0), True),
        (RestartPolicy("Always"), exited(137), True),
        (RestartPolicy("Always"), IN_ERROR, True),
        (RestartPolicy("ExitCode"), exited(137), True),
        (RestartPolicy("ExitCode"), exited(255), True),
        (RestartPolicy("ExitCode"), exited(128), True),
        (RestartPolicy("ExitCode"), exited(127), False),
        (RestartPolicy("ExitCode"), exited(0), False),
        (RestartPolicy("ExitCode"), NO_CODE, False),
        (RestartPolicy("ExitCode"), LOST, True),
        (RestartPolicy("ExitCode", exit_codes=(range(1, 2), range(10, 128))), exited(10), True),
        (RestartPolicy("ExitCode", exit_codes=(range(1, 2), range(10, 128))), exited(5), False),
        (RestartPolicy("ExitCode", exit_codes=(range(1, 2), range(10, 128))), exited(137), False),
        (RestartPolicy("Always", back_off_limit=0), exited(1), False),
    ],
)
def test_each_policy_restarts_what_it_says(policy: RestartPolicy, end: End, want: bool) -> None:
    assert (restart_after(policy, end, Tally()) is not None) is want


def test_restarts_are_spaced_and_limited() -> None:
    policy = RestartPolicy("OnFailure", back_off_limit=6)
    pauses = [restart_after(policy, exited(1), Tally(used=n)) for n in range(6)]
    assert [one.pause_seconds for one in pauses if one] == [10, 20, 40, 80, 160, 300]
    assert restart_after(policy, exited(1), Tally(used=6)) is None


def test_what_was_taken_from_a_job_does_not_use_up_the_limit() -> None:
    policy = RestartPolicy("OnFailure", back_off_limit=1)
    assert restart_after(policy, LOST, Tally(1, losses=4)) == Restart(300, is_counted=False)


def restarting(**restart: Any) -> IPUJobBuilder:
    policy = {"type": "OnFailure", "backOffLimit": 3} | restart
    return ipujob().with_spec(restartPolicy=policy).running()


def test_a_restart_is_decided_alone_with_its_evidence() -> None:
    built = restarting().build()
    seen = observed(
        built,
        worker(built).running(),
        launcher(built).exited(3),
        partitions=(partition(),),
        with_children=True,
    )
    planned = plan(seen, NOW)
    assert steps(planned) == ["decide"]
    assert condition_of(planned) == (
        "Restarting",
        "IPUJobRestarting",
        (
            "IPUJob default/sample is restarting: "
            "Container main of sample-launcher exited with code 3; "
            "attempt 2 begins at 12:00:10 UTC."
        ),
    )
    assert status_of(planned)["launcherStatus"] == "Restarting"
    assert status_of(planned)["restartCount"] == 1
    assert status_of(planned)["instances"] == [
        {
            "index": 0,
            "attempt": 1,
            "state": "Restarting",
            "restarts": 1,
            "restartAt": "2026-03-01T12:00:10Z",
            "lastExit": {
                "attempt": 0,
                "at": "2026-03-01T12:00:00Z",
                "reason": "IPUJobFailed",
                "exitCode": 3,
                "message": "Container main of sample-launcher exited with code 3",
            },
        }
    ]


def work(planned: Plan) -> list[str]:
    """The steps that do something besides telling."""
    return [step for step in steps(planned) if step != "status"]


def in_second_attempt(rest: str = "2026-03-01T12:00:10Z") -> IPUJobBuilder:
    return restarting().with_status(
        launcherStatus="Restarting",
        restartCount=1,
        conditions=[
            {"type": "Pending", "status": "False", "reason": "IPUJobPending"},
            {"type": "Restarting", "status": "True", "reason": "IPUJobRestarting", "message": "x"},
        ],
        instances=[
            {"index": 0, "attempt": 1, "state": "Restarting", "restarts": 1, "restartAt": rest}
        ],
    )


def test_the_pods_of_the_attempt_go_before_the_partition_is_reset() -> None:
    built = in_second_attempt().build()
    old = (worker(built).running(), launcher(built).exited(3))
    seen = observed(built, *old, partitions=(partition(),), with_children=True)
    assert work(plan(seen, NOW)) == ["end launcher", "end workers"]
    going = (worker(built).running().deleting(),)
    seen = observed(built, *going, partitions=(partition(),), with_children=True)
    assert work(plan(seen, NOW)) == []
    seen = observed(built, partitions=(partition(),), with_children=True)
    assert work(plan(seen, NOW)) == [], "the partition is asked for when the pause is over"
    resets = next(s for s in plan(seen, at(10)).steps if s.name == "partitions").actions
    assert [(a.instance, a.attempt) for a in resets] == [(0, 1)]


def test_the_next_attempt_begins_when_its_pause_is_over() -> None:
    built = in_second_attempt().build()
    clean = (partition(attempt=1),)
    seen = observed(built, partitions=clean, with_children=True)
    early = plan(seen, at(4))
    assert "pods" not in steps(early)
    assert early.requeue_after == 6
    assert "pods" in steps(plan(seen, at(10)))
    made = next(s for s in plan(seen, at(10)).steps if s.name == "pods").actions
    assert made[0].manifest["metadata"]["labels"]["graphcore.ai/attempt"] == "1"


def test_it_stays_restarting_with_its_cause_until_it_runs() -> None:
    built = in_second_attempt().build()
    pods = (worker(built).attempt(1).scheduled(), launcher(built).attempt(1).scheduled())
    seen = observed(built, *pods, partitions=(partition(attempt=1),), with_children=True)
    written = status_of(plan(seen, at(30)))
    assert "launcherStatus" not in written
    assert "conditions" not in written
    assert "instances" not in written
    running = (worker(built).attempt(1).running(), launcher(built).attempt(1).running())
    seen = observed(built, *running, partitions=(partition(attempt=1),), with_children=True)
    planned = plan(seen, at(30))
    assert condition_of(planned)[0] == "Running"
    (entry,) = status_of(planned)["instances"]
    assert entry["state"] == "Running"
    assert entry["restarts"] == 1
    assert "restartAt" not in entry


def test_restarts_are_counted_over_all_attempts() -> None:
    job = restarting().with_status(restartCount=2)
    built = job.build()
    planned = plan(with_partition(job, worker(built).running(), launcher(built).exited(1)), NOW)
    assert status_of(planned)["restartCount"] == 3


def test_at_the_limit_the_last_code_decides() -> None:
    job = restarting(backOffLimit=1, type="Always").with_status(
        instances=[{"index": 0, "attempt": 1, "state": "Running", "restarts": 1}]
    )
    built = job.build()
    for code, want in ((4, "Failed"), (0, "Completed")):
        pods = (worker(built).attempt(1).running(), launcher(built).attempt(1).exited(code))
        seen = observed(built, *pods, partitions=(partition(attempt=1),), with_children=True)
        planned = plan(seen, NOW)
        assert status_of(planned)["launcherStatus"] == want
    assert (
        "after 1 restart"
        in condition_of(
            plan(
                observed(
                    built,
                    worker(built).attempt(1).running(),
                    launcher(built).attempt(1).exited(4),
                    partitions=(partition(attempt=1),),
                    with_children=True,
                ),
                NOW,
            )
        )[2]
    )


def test_a_lost_worker_restarts_with_its_reason_and_is_not_counted() -> None:
    built = restarting().build()
    seen = observed(built, launcher(built).running(), partitions=(partition(),), with_children=True)
    planned = plan(seen, NOW)
    assert condition_of(planned)[:2] == ("Restarting", "WorkerLost")
    assert status_of(planned)["restartCount"] == 1
    assert "restarts" not in status_of(planned)["instances"][0]


def test_each_instance_restarts_alone() -> None:
    job = (
        ipujob()
        .without_launcher()
        .instances(2)
        .with_spec(restartPolicy={"type": "OnFailure", "backOffLimit": 3})
        .running()
        .with_status(
            instances=[
                {"index": 0, "attempt": 0, "state": "Running"},
                {"index": 1, "attempt": 0, "state": "Running"},
            ]
        )
    )
    built = job.build()
    pods = (worker(built, 0, 0).running(), worker(built, 1, 1).exited(9))
    seen = observed(built, *pods, partitions=(partition(0), partition(1)))
    planned = plan(seen, NOW)
    entries = status_of(planned)["instances"]
    assert [(e["attempt"], e["state"]) for e in entries] == [(0, "Running"), (1, "Restarting")]
    assert "launcherStatus" not in status_of(planned), "the other instance runs on"
    assert status_of(planned)["currentReplicas"] == 1


def test_an_instance_that_has_ended_stays_ended_while_another_is_started_again() -> None:
    job = (
        ipujob()
        .without_launcher()
        .instances(2)
        .with_spec(restartPolicy={"type": "OnFailure", "backOffLimit": 3})
        .running()
        .with_status(
            instances=[
                {"index": 0, "attempt": 0, "state": "Completed", "reason": "IPUJobSucceeded"},
                {"index": 1, "attempt": 1, "state": "Restarting", "restarts": 1},
            ]
        )
    )
    built = job.build()
    seen = observed(built, partitions=(partition(0), partition(1, attempt=1)))
    made = next(s for s in plan(seen, NOW).steps if s.name == "pods").actions
    assert [a.manifest["metadata"]["name"] for a in made] == ["sample-worker-1"]


def lost_before(losses: int, *, at_text: str = "2026-03-01T11:59:00Z", **more: Any) -> Any:
    """A running attempt that followed so many lost attempts."""
    entry = {"index": 0, "attempt": 7, "state": "Running", "losses": losses} | more
    entry["lastExit"] = {"attempt": 6, "at": at_text, "reason": "PartitionError"}
    return restarting().with_status(instances=[entry])


def test_losses_in_a_row_have_a_bound_with_its_own_reason() -> None:
    built = lost_before(50).build()
    broken = (partition(phase="error", attempt=7, message="a cable is loose"),)
    planned = plan(observed(built, partitions=broken, with_children=True), NOW)
    assert condition_of(planned)[:2] == ("Failed", "LossLimitReached")
    assert "50 earlier attempts were lost, too" in condition_of(planned)[2]
    built = lost_before(49).build()
    planned = plan(observed(built, partitions=broken, with_children=True), NOW)
    assert condition_of(planned)[:2] == ("Restarting", "PartitionError")
    assert status_of(planned)["instances"][0]["losses"] == 50


def test_an_attempt_that_ran_for_long_begins_a_new_series() -> None:
    built = lost_before(50, at_text="2026-03-01T11:00:00Z").build()
    pods = (launcher(built).attempt(7).running(),)
    seen = observed(built, *pods, partitions=(partition(attempt=7),), with_children=True)
    (entry,) = status_of(plan(seen, NOW))["instances"]
    assert (entry["losses"], entry["restartAt"]) == (1, "2026-03-01T12:00:10Z")


def test_a_long_pause_gives_the_partition_back_and_a_short_one_keeps_it() -> None:
    for rest, want in (("2026-03-01T12:01:00Z", []), ("2026-03-01T12:01:20Z", ["give back"])):
        built = in_second_attempt(rest).build()
        seen = observed(built, partitions=(partition(),), with_children=True)
        assert work(plan(seen, NOW)) == want
        living = observed(
            built, worker(built).running().deleting(), partitions=(partition(),), with_children=True
        )
        assert work(plan(living, NOW)) == [], "not under a living pod"


def test_a_pause_goes_on_whatever_becomes_of_the_partition_of_the_attempt_before() -> None:
    built = in_second_attempt().build()
    for phase in ("error", "active", "released"):
        seen = observed(built, partitions=(partition(phase=phase),), with_children=True)
        assert work(plan(seen, NOW)) == [], phase


def test_a_partition_that_somebody_replaced_has_its_own_reason() -> None:
    built = restarting().build()
    gone = partition(phase="error", reason="PartitionLost", message="p has 8 IPUs, not 4")
    pods = (worker(built).running(), launcher(built).running())
    planned = plan(observed(built, *pods, partitions=(gone,), with_children=True), NOW)
    assert condition_of(planned)[:2] == ("Restarting", "PartitionLost")
    assert "p has 8 IPUs, not 4" in condition_of(planned)[2]
