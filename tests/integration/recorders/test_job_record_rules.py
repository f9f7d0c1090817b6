"""The authoritative version of a job in PostgreSQL, and isolation between rows of jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jobs.history.rows import row_of
from jobs.ipujob.conditions import JobState, Reason, Verdict, plain_verdict, with_verdict
from jobs.ipujob.names import LAST_APPLIED, format_time
from jobs.models import JobAttempt, JobRecord, JobTransition
from tests.builders.ipujobs import at, ipujob
from tests.integration.recorders.test_job_records import Life, instance, vanish, write

if TYPE_CHECKING:
    from jobs.history.rows import JobRow

pytestmark = pytest.mark.django_db


def row(name: str, seconds: float, *entries: dict[str, Any], **more: Any) -> JobRow:
    """A running job with these instances, as it was seen then."""
    running = plain_verdict(JobState.RUNNING, f"default/{name}")
    conditions = with_verdict([], running, f"default/{name}", format_time(at(seconds)))
    status = {"launcherStatus": "Running", "conditions": conditions, "instances": [*entries]}
    job = ipujob(name).with_status(**status, startTime=format_time(at(seconds)))
    return row_of(job.build(), "default", at(seconds), **more)


def ends() -> dict[tuple[str, int], Any]:
    """Return the end of each attempt, by job and number."""
    found = JobAttempt.objects.values_list("job__name", "attempt", "ended_at")
    return {(name, attempt): ended for name, attempt, ended in found}


def test_a_new_job_is_not_estimated() -> None:
    write(row("one", 1))
    assert not JobRecord.objects.get().estimated


def test_the_last_word_on_a_job_counts() -> None:
    life = Life()
    life.builder.annotated(**{"ipuhub.io/created-by": "ada"})
    write(life.enters(JobState.PENDING, 1))
    life.builder.annotated(**{"ipuhub.io/created-by": "ben"}).without_launcher().instances(2)
    life.builder.manifest["metadata"]["labels"] = {"team": "vision"}
    life.builder.with_spec(ipusPerJobInstance="8", workersPerJobInstance=3)
    held = [{"instance": 0, "id": "p-0", "controller": "v", "state": "active"}]
    last = life.enters(JobState.RUNNING, 9, partitions=held)
    write(last)
    job = JobRecord.objects.get()
    assert (job.user, job.ipus, job.instances, job.workers) == ("ben", 16, 2, 6)
    assert (job.partitions, job.labels) == (held, {"team": "vision"})
    assert (job.spec, job.conditions) == (last.spec, last.conditions)
    assert job.message == last.message != ""
    write(life.row(10, group="team-b"), life.row(11, group="team-c"))
    assert JobRecord.objects.get().group == "team-c"


@pytest.mark.parametrize("outcome", ["Completed", "Failed"])
def test_how_an_attempt_ended_is_final(outcome: str) -> None:
    life = Life()
    running = life.enters(JobState.RUNNING, 10, instances=instance(0, "Running"))
    over = instance(0, outcome, reason="OOMKilled", exitCode=137)
    end = life.enters(JobState(outcome), 70, instances=over, completionTime=format_time(at(70)))
    for late in (running, end, running):
        write(late)
    attempt = JobAttempt.objects.get()
    assert (attempt.outcome, attempt.reason, attempt.exit_code) == (outcome, "OOMKilled", 137)
    assert attempt.ended_at == at(70)


def test_what_is_told_late_of_a_deleted_job_opens_no_attempt() -> None:
    early = row("one", 10, *instance(0, "Running"))
    write(row("one", 60, is_deleted=True))
    write(early)
    assert ends() == {("one", 0): at(60)}


def test_a_line_of_the_history_keeps_its_own_words() -> None:
    life = Life()
    for second, words in ((1, "8 of 16 nodes fit"), (2, "9 of 16 nodes fit")):
        verdict = Verdict(JobState.PENDING, "Unschedulable", words)
        write(life.is_told(verdict, second))
    assert JobRecord.objects.get().message == "9 of 16 nodes fit"
    assert JobTransition.objects.get().message == "8 of 16 nodes fit"


def test_the_attempts_and_transitions_of_other_jobs_stay_as_they_are() -> None:
    write(row("other", 5, *instance(0, "Running")))
    write(row("one", 10, *instance(1, "Running")))
    assert ends() == {("other", 0): None, ("one", 1): None}
    write(row("one", 60, *instance(1, "Running"), is_deleted=True))
    assert ends() == {("other", 0): None, ("one", 1): at(60)}
    write(row("third", 61, *instance(0, "Running")))
    assert vanish("uid-other", until=70, now=80) == 1
    assert ends() == {("other", 0): None, ("one", 1): at(60), ("third", 0): at(70)}


def test_what_is_concluded_of_a_job_is_written_of_it_alone() -> None:
    waiting = Life()
    waiting.builder = ipujob("other")
    write(waiting.enters(JobState.PENDING, 10))
    life = Life()
    life.enters(JobState.PENDING, 1)
    life.enters(JobState.RUNNING, 10)
    write(life.enters(JobState.COMPLETED, 70))  # what was before nobody saw
    found = JobTransition.objects.order_by("job__name", "at").values_list("job__name", "state")
    assert [*found] == [
        ("other", "Pending"),
        ("sample", "Pending"),
        ("sample", "Running"),
        ("sample", "Completed"),
    ]


def test_an_attempt_that_had_ended_keeps_its_end_when_the_job_vanishes() -> None:
    write(row("one", 10, *instance(0, "Running")))
    write(row("one", 40, *instance(1, "Running")))
    assert vanish(until=90, now=99) == 1
    assert ends() == {("one", 0): at(40), ("one", 1): at(90)}


def test_no_attempt_ends_before_it_began() -> None:
    write(row("one", 10, *instance(0, "Running")))
    assert vanish(until=5, now=60) == 1
    assert ends() == {("one", 0): at(10)}
    write(row("two", 30, *instance(0, "Running")))
    gone = ipujob("two").deleted(20).build()
    write(row_of(gone, "default", at(31), is_deleted=True))
    assert ends()["two", 0] == at(30)


def test_what_was_applied_is_what_a_tool_says_else_the_spec_as_first_seen() -> None:
    life = Life()
    first = life.enters(JobState.PENDING, 1)
    life.builder.with_spec(jobInstances=3)
    write(first, life.row(2))
    job = JobRecord.objects.get()
    assert (job.applied["spec"], job.applied_by) == (first.spec, "")
    given = {"kind": "IPUJob", "spec": {"jobInstances": 3}}
    life.builder.annotated(**{LAST_APPLIED: json.dumps(given)})
    write(life.row(3))
    job.refresh_from_db()
    assert (job.applied, job.applied_by) == (given, "kubectl apply")


@pytest.mark.parametrize(
    "value", ['"\\u0000"', "NaN", "Infinity", "1e999", '"\\ud800"', "9" * 4000]
)
def test_no_text_of_an_annotation_keeps_a_job_from_its_record(value: str) -> None:
    life = Life()
    life.builder.annotated(**{LAST_APPLIED: f'{{"spec": {{"a": {value}}}}}'})
    write(life.enters(JobState.RUNNING, 1), row("other", 1))
    write(life.row(2, is_deleted=True))
    job = JobRecord.objects.get(name="sample")
    assert (job.status, job.deleted_at) == ("Running", at(2))


def test_what_runs_stays_as_it_was_until_an_edit_is_in_effect() -> None:
    life = Life()
    life.builder.manifest["metadata"]["generation"] = 1
    write(life.enters(JobState.RUNNING, 1, observedGeneration=1))
    begun = JobRecord.objects.get().running
    assert begun["restartPolicy"]  # with the operator's defaults

    life.builder.with_spec(workersPerJobInstance=7, activeDeadlineSeconds=60)
    life.builder.manifest["metadata"]["generation"] = 2
    write(life.row(2))  # the operator has not looked at it
    assert JobRecord.objects.get().running == begun

    changed = Verdict(JobState.RUNNING, Reason.SPEC_CHANGED, "Changed while the job runs: workers")
    write(life.is_told(changed, 3, observedGeneration=2))
    assert JobRecord.objects.get().running == begun | {"activeDeadlineSeconds": 60}

    invalid = Verdict(JobState.RUNNING, Reason.INVALID_SPEC, "spec.workersPerJobInstance: is -7")
    write(life.is_told(invalid, 4, observedGeneration=2))
    assert JobRecord.objects.get().running == begun | {"activeDeadlineSeconds": 60}

    write(life.enters(JobState.SUSPENDED, 4, observedGeneration=2))
    assert JobRecord.objects.get().running["workersPerJobInstance"] == 7
    write(life.enters(JobState.COMPLETED, 5, observedGeneration=2))
    life.builder.with_spec(workersPerJobInstance=9)
    write(life.row(6))
    assert JobRecord.objects.get().running["workersPerJobInstance"] == 7
