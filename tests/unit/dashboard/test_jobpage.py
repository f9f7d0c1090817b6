"""The job page: progress, the card, and the events."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.job.diagnosis import diagnose
from dashboard.job.events import list_events
from dashboard.job.stepper import draw_stepper
from dashboard.job.tables import job_tables
from dashboard.job.timeline import timeline_rows
from dashboard.job.usage import Held, JobUsage
from ipuhub.text import spell_ipus
from jobs.ipujob.advice import ADVICE
from jobs.ipujob.conditions import SENTENCES, Reason
from jobs.models import JobAttempt, JobEvent, JobPast, JobRecord, JobTransition
from partitions.models import PartitionLifetime
from usage.models import PodLifetime

NINE = dt.datetime(2026, 11, 21, 9, tzinfo=dt.UTC)
NO_ACTION = {
    "IPUJobPending", "IPUJobRunning", "IPUJobRestarting", "IPUJobSucceeded", "PartitionActive",
    "PartitionReleased", "SpecOverridden", "ObjectRestored", "SessionEnding", "OtherCrd",
}  # fmt: skip


def at(seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else NINE + dt.timedelta(seconds=seconds)


@dataclass
class Lives:
    pods: list[PodLifetime] = field(default_factory=list)
    partitions: list[PartitionLifetime] = field(default_factory=list)


def job(**given: Any) -> JobRecord:
    past = JobPast(
        given.pop("attempts", ()),
        given.pop("transitions", ()),
        None,
        events=given.pop("events", ()),
    )
    values = {"namespace": "team-a", "name": "train", "ipus": 4, "created_at": NINE} | given
    made = JobRecord(**values)
    made.past = past
    return made


def pod(name: str = "train-worker-0", attempt: int = 0, **given: Any) -> PodLifetime:
    return PodLifetime(pod_name=name, role="worker", attempt=attempt, created_at=NINE, **given)


def partition(active: float | None, released: float | None = None) -> PartitionLifetime:
    return PartitionLifetime(
        partition="p-1", size=4, reserved_at=NINE, active_at=at(active), released_at=at(released)
    )


def looks(made: JobRecord, state: str, lives: Lives, now: float) -> list[tuple[str, str]]:
    steps = draw_stepper(made, state, lives, NINE + dt.timedelta(seconds=now)).steps
    return [(step.label, step.state) for step in steps]


def test_a_job_that_waits_for_ipus_stands_before_its_partition() -> None:
    assert looks(job(), "Pending", Lives(), 60) == [
        ("Submitted", "done"),
        ("Waiting for IPUs", "current"),
        ("Pods ready", "todo"),
        ("Running", "todo"),
        ("Ended", "todo"),
    ]


def test_the_way_of_a_job_is_drawn_to_scale() -> None:
    lives = Lives([pod(started_at=at(40))], [partition(20)])
    made = job(started_at=at(40), completed_at=at(100), status="Failed")
    drawn = draw_stepper(made, "Failed", lives, NINE + dt.timedelta(seconds=500))
    assert [step.took for step in drawn.steps] == ["", "20 s", "20 s", "0 s", "60 s"]
    assert [(part.kind, part.x, part.width) for part in drawn.parts] == [
        ("waiting", "0.00%", "20.00%"),
        ("starting", "20.00%", "20.00%"),
        ("worker", "40.00%", "60.00%"),
    ]
    assert drawn.steps[-1].state == "failed"


def test_a_step_took_what_the_instants_beside_it_say() -> None:
    """A pod starts within a second, and the page shows whole seconds: 09:00:01, 09:00:03."""
    lives = Lives([pod(started_at=at(1.9))], [partition(1)])
    made = job(started_at=at(1.9), completed_at=at(3), status="Failed")
    steps = draw_stepper(made, "Failed", lives, NINE + dt.timedelta(seconds=9)).steps
    assert [step.took for step in steps] == ["", "1 s", "0 s", "0 s", "2 s"]


def test_a_running_job_stands_on_running_and_says_how_often_it_restarted() -> None:
    lives = Lives([pod(started_at=at(40)), pod(attempt=1)], [partition(20)])
    made = job(started_at=at(40), restart_count=2)
    step = draw_stepper(made, "Running", lives, NINE + dt.timedelta(seconds=90)).steps[3]
    assert (step.label, step.state, step.note, step.since) == (
        "Running",
        "current",
        "2 restarts",
        at(40),
    )


def test_a_job_without_ipus_needs_no_partition() -> None:
    assert "Partition ready" not in dict(looks(job(ipus=0), "Pending", Lives(), 1))


def test_a_job_deleted_while_it_waited_never_ran() -> None:
    made = job(deleted_at=at(50))
    drawn = draw_stepper(made, "Deleted", Lives(), NINE + dt.timedelta(seconds=500))
    assert [step.state for step in drawn.steps] == ["done", "todo", "todo", "todo", "stopped"]
    assert [part.words for part in drawn.parts] == ["waited for IPUs for 50 s"]


_SECONDS = st.none() | st.floats(-5, 500)


@given(_SECONDS, _SECONDS, _SECONDS, _SECONDS, st.sampled_from(["Pending", "Running", "Completed"]))
def test_times_in_any_order_are_drawn_inside_the_bar(
    active: float | None,
    started: float | None,
    running: float | None,
    ended: float | None,
    state: str,
) -> None:
    lives = Lives([pod(started_at=at(started))], [partition(active)])
    made = job(started_at=at(running), completed_at=at(ended))
    drawn = draw_stepper(made, state, lives, NINE + dt.timedelta(seconds=100))
    ends = [float(part.x[:-1]) + float(part.width[:-1]) for part in drawn.parts]
    assert all(end <= 100.5 for end in ends)
    assert all(step.took == "" or not step.took.startswith("-") for step in drawn.steps)


def test_every_reason_that_needs_an_action_says_which() -> None:
    assert set(ADVICE) | NO_ACTION == {str(reason) for reason in SENTENCES}
    assert not set(ADVICE) & NO_ACTION
    assert all(text.endswith(".") for text in ADVICE.values())


@pytest.mark.parametrize("reason", sorted(ADVICE))
def test_a_job_in_trouble_has_a_card_with_the_advice_of_its_reason(reason: str) -> None:
    made = job(reason=reason, message="Something is wrong")
    card = diagnose(made, "Pending", Lives(), None, NINE)
    assert card is not None
    assert (card.title, card.advice) == ("Something is wrong.", ADVICE[reason])


def test_a_job_that_failed_for_good_is_not_said_to_restart() -> None:
    made = job(reason="PartitionError", message="ag0 has not answered for 5 s: did not answer wit…")
    card = diagnose(made, "Failed", Lives(), None, NINE)
    assert card is not None
    assert card.title.endswith("did not answer wit…")
    assert card.advice.startswith("Run the job again.")


def test_a_plain_message_gives_way_to_the_sentence_of_the_reason() -> None:
    made = job(reason="IPUJobSuspended", message="IPUJob team-a/train is suspended.")
    card = diagnose(made, "Suspended", Lives(), None, NINE)
    assert card is not None
    assert card.title == SENTENCES[Reason.SUSPENDED]


def test_a_restarting_job_shows_its_last_failure() -> None:
    attempts = [
        JobAttempt(
            instance=0, attempt=number, outcome="Failed", exit_code=number, ended_at=at(number),
            began_at=NINE, message=f"failure {number}", log="why", reason="OOMKilled",
        )
        for number in (0, 1)
    ]  # fmt: skip
    lives = Lives([
        pod("train-launcher", 1, phase="Failed", exit_code=1, node="n1", finished_at=at(1))
    ])  # fmt: skip
    made = job(attempts=attempts, reason="IPUJobRestarting", restart_count=2)
    card = diagnose(made, "Restarting", lives, None, NINE)
    assert card is not None
    assert {fact.label: fact.value for fact in card.facts} == {
        "Restarts so far": "2",
        "Last failure": "failure 1.",
        "Exit code": "1",
        "Attempt": "2",
        "Pod": "train-launcher",
        "Node": "n1",
    }
    assert (card.log, card.advice) == ("why", ADVICE["OOMKilled"])


@pytest.mark.parametrize(
    ("pods", "now", "idle"),
    [
        ([], 59, False),
        ([], 60, True),
        ([{"started_at": 5}], 500, False),
        ([{"started_at": 5, "finished_at": 450}], 500, False),
        ([{"started_at": 5, "finished_at": 450}], 510, True),
    ],
)
def test_idle_is_a_held_partition_without_a_pod_for_a_minute(
    pods: list[dict[str, float]], now: float, idle: bool
) -> None:
    made = [pod(**{name: at(value) for name, value in each.items()}) for each in pods]
    card = diagnose(
        job(reason="IPUJobRunning"),
        "Running",
        Lives(made, [partition(0)]),
        None,
        NINE + dt.timedelta(seconds=now),
    )
    assert (card is not None and card.kind == "idle") is idle


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        ("", ("Stopped", "stopped", "stopped")),
        ("PodDeadlineExceeded", ("Failed", "ended (DeadlineExceeded)", "failed")),
    ],
)
def test_a_pod_that_ran_into_its_own_deadline_failed_and_was_not_stopped(
    reason: str, want: tuple[str, str, str]
) -> None:
    """Kubernetes reports it like a pod that the operator ended; the attempt knows better."""
    ended = {"started_at": at(10), "scheduled_at": at(5), "finished_at": at(30)}
    one = pod(attempt=1, phase="Failed", reason="DeadlineExceeded", **ended)
    made = job(
        attempts=[
            # An earlier attempt says nothing about the pods of this attempt.
            JobAttempt(instance=0, attempt=0, reason="PodDeadlineExceeded", began_at=NINE),
            JobAttempt(instance=0, attempt=1, reason=reason, began_at=NINE),
        ]
    )
    (event,) = (each for each in list_events(made, Lives([one])) if each.at == at(30))
    (row,) = timeline_rows(Lives([one]), made.past.attempts)
    pods = job_tables(made, Held([one], [], 0, JobUsage(NINE, NINE, 1, 0, 0, 0, 0)))[0]
    (phase,) = (cell.value for cell in pods.cells[0] if cell.label == "State")
    assert (phase, event.what.partition(": ")[2], row.spans[-1].kind) == want


def test_the_story_says_nothing_twice_and_joins_pods_of_one_second() -> None:
    message = "Container main of train-launcher exited with code 1"
    made = job(
        user="alice",
        transitions=[
            JobTransition(at=at(30), state="Failed", reason="IPUJobFailed", message=message)
        ],
        attempts=[
            JobAttempt(
                instance=0, attempt=0, outcome="Failed", began_at=NINE, ended_at=at(30),
                message=message,
            )
        ],
    )  # fmt: skip
    lives = Lives(
        [
            pod(f"train-worker-{n}", started_at=at(10 + n / 10), finished_at=at(30))
            for n in range(5)
        ],
        [partition(4, 31)],
    )
    story = list_events(made, lives)
    assert [event.message for event in story].count(message) == 1
    assert [event.what for event in story if event.kind == "pod"][-1] == (
        "train-worker-0, train-worker-1 and 3 more: started"
    )
    assert [event.what for event in story[-3:]] == [
        "Partition p-1 is ready",
        "Partition p-1: 4 IPUs reserved",
        "Created by alice",
    ]


def cluster_event(seconds: float, reason: str, message: str, **given: Any) -> JobEvent:
    moments = {"first_at": at(given.pop("since", seconds)), "last_at": at(seconds)}
    return JobEvent(reason=reason, message=message, **moments, **given)


def test_what_kubernetes_says_is_told_where_nobody_else_says_it() -> None:
    message = "Waits for 4 IPUs."
    full = "0/2 nodes are available: 2 Insufficient cpu."
    worker = {"pod": "train-worker-0"}
    made = job(
        transitions=[JobTransition(at=at(5), state="Pending", reason="NoIpus", message=message)],
        events=[
            cluster_event(90, "NoIpus", message),
            cluster_event(6, "IPUJobPending", "IPUJob team-a/train is pending."),
            cluster_event(20, "Scheduled", "Assigned to node-1", **worker),
            cluster_event(22, "Pulled", "Image is there", **worker),
            cluster_event(22.5, "Pulled", "Image is there", pod="train-worker-1"),
            cluster_event(
                40, "FailedScheduling", full, type="Warning", count=3, since=10, **worker
            ),
            cluster_event(50, "FailedScheduling", full, type="Warning", **worker),
        ],
    )
    story = list_events(made, Lives([pod(scheduled_at=at(20))]))
    events = [event for event in story if event.kind == "event"]
    assert [
        (event.at, event.what, event.reason, event.state, event.message) for event in events
    ] == [
        (
            at(50),
            f"train-worker-0: {full}",
            "FailedScheduling",
            "Failed",
            "4 times since 2026-11-21 09:00:10 UTC",
        ),
        (at(22), "train-worker-0, train-worker-1: Image is there", "Pulled", "", ""),
    ]
    assert sum(message in (event.what, event.message) for event in story) == 1


def test_one_ipu_is_no_plural() -> None:
    assert [spell_ipus(number) for number in (0, 1, 2)] == ["0 IPUs", "1 IPU", "2 IPUs"]
