"""Effects of time on a job: deadline, time to live, the end of a session."""

from __future__ import annotations

from jobs.operator.actions import DeleteJob, PatchStatus
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, at, ipujob, launcher, observed, partition, worker
from tests.builders.plans import (
    after_write,
    condition_of,
    created,
    status_of,
    steps,
    with_partition,
)


def test_a_deadline_ends_the_job_whatever_its_policy() -> None:
    job = (
        ipujob()
        .running()
        .with_spec(activeDeadlineSeconds=60, restartPolicy={"type": "Always", "backOffLimit": 3})
    )
    built = job.with_status(startTime="2026-03-01T12:00:00Z").build()
    pods = (worker(built).running(), launcher(built).running())
    seen = observed(built, *pods, partitions=(partition(),), with_children=True)
    assert plan(seen, at(59)).requeue_after == 1
    planned = plan(seen, at(60))
    assert steps(planned) == ["decide"]
    assert condition_of(planned)[:2] == ("Failed", "DeadlineExceeded")
    assert status_of(planned)["launcherStatus"] == "Failed"


def test_a_deadline_counts_from_the_first_status() -> None:
    planned = plan(with_partition(ipujob().with_spec(activeDeadlineSeconds=60)), at(3600))
    assert "decide" not in steps(planned)
    assert created(planned)


def test_a_suspended_job_has_no_deadline() -> None:
    job = ipujob().running().with_spec(activeDeadlineSeconds=60, suspend=True)
    built = job.with_status(
        launcherStatus="Suspended",
        startTime="2026-03-01T12:00:00Z",
        instances=[{"index": 0, "attempt": 1, "state": "Suspended"}],
    ).build()
    assert "decide" not in steps(plan(observed(built), at(3600)))


def test_a_finished_job_is_deleted_when_its_time_to_live_is_over() -> None:
    job = ipujob().finished().with_spec(ttlSecondsAfterFinished=30)
    built = job.with_status(completionTime="2026-03-01T12:00:00Z").build()
    early = plan(observed(built, partitions=(partition(phase="released"),)), at(20))
    assert DeleteJob() not in early.actions
    assert early.requeue_after is not None
    assert early.requeue_after <= 10
    assert plan(observed(built), at(30)).actions == (DeleteJob(),)


def test_a_time_to_live_of_zero_deletes_at_once() -> None:
    job = ipujob().finished("Failed").with_spec(ttlSecondsAfterFinished="0")
    built = job.with_status(completionTime="2026-03-01T12:00:00Z").build()
    assert plan(observed(built), NOW).actions == (DeleteJob(),)


def test_a_time_to_live_that_is_none_deletes_nothing() -> None:
    for nonsense in (-1, "-1", "soon"):
        job = ipujob().finished().with_spec(ttlSecondsAfterFinished=nonsense)
        built = job.with_status(completionTime="2026-03-01T12:00:00Z").build()
        assert DeleteJob() not in plan(observed(built), at(3600)).actions


def test_a_session_ends_with_success_when_its_time_is_over() -> None:
    job = ipujob().interactive(ttl=3600).running()
    built = job.with_spec(restartPolicy={"type": "Always", "backOffLimit": 3}).build()
    pods = (worker(built).running(), launcher(built).running())  # since 12:00:01
    seen = observed(built, *pods, partitions=(partition(),), with_children=True)
    assert "decide" not in steps(plan(seen, at(3600)))
    planned = plan(seen, at(3601))
    assert steps(planned) == ["decide"]
    assert status_of(planned)["launcherStatus"] == "Completed"
    assert status_of(planned)["instances"][0]["exitCode"] == 0


def test_a_session_longer_than_any_calendar_goes_on() -> None:
    built = ipujob().interactive(ttl=2**63 - 1).running().build()
    pods = (worker(built).running(), launcher(built).running())
    seen = observed(built, *pods, partitions=(partition(),), with_children=True)
    planned = plan(seen, at(10**9))
    assert "decide" not in steps(planned)
    assert (planned.requeue_after or 0) > 10**9


def test_five_minutes_before_its_end_a_session_is_warned_once() -> None:
    job = ipujob().interactive(ttl=3600).running()
    built = job.build()
    pods = (worker(built).running(), launcher(built).running())
    seen = observed(built, *pods, partitions=(partition(),), with_children=True)
    assert plan(seen, at(3000)).requeue_after == 301
    planned = plan(seen, at(3301))
    (patch,) = [a for a in planned.actions if isinstance(a, PatchStatus)]
    assert [(e.reason, e.message) for e in patch.events if e.reason == "SessionEnding"] == [
        ("SessionEnding", "The session ends at 13:00:01 UTC: save your work")
    ]
    assert status_of(planned)["lastMessage"].startswith("The session ends at 13:00:01 UTC")
    assert planned.requeue_after == 300
    warned = job.with_status(lastMessage="The session ends at 13:00:01 UTC: save your work").build()
    seen = observed(warned, *pods, partitions=(partition(),), with_children=True)
    patches = [a for a in plan(seen, at(3320)).actions if isinstance(a, PatchStatus)]
    assert not [e for p in patches for e in p.events if e.reason == "SessionEnding"]


def test_a_session_is_warned_at_once_whatever_was_written_a_moment_ago() -> None:
    job = ipujob().interactive(ttl=3600)
    built = job.build()
    seen = after_write(job, worker(built).running(), launcher(built).running())
    (seen.job or {})["status"]["lastReconcileTime"] = "2026-03-01T12:55:00Z"
    (patch,) = plan(seen, at(3301)).actions
    assert isinstance(patch, PatchStatus)
    assert [event.reason for event in patch.events] == ["SessionEnding"]
