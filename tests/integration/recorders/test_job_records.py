"""Records of jobs in PostgreSQL when changes arrive twice, late or never."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from ipuhub.recording.recorder import VanishedObjects
from ipuhub.text import AuthorTrust
from jobs.history.recorder import JobRecorder, close_vanished, store
from jobs.history.rows import row_of
from jobs.ipujob.conditions import JobState, Verdict, plain_verdict, with_verdict
from jobs.ipujob.names import format_time
from jobs.models import JobAttempt, JobRecord, JobTransition
from tests.builders.ipujobs import at, ipujob

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.history.rows import JobRow

pytestmark = pytest.mark.django_db
CLUSTER = "cluster-1"
PATH = "default/sample"


class Life:
    """A job whose states follow each other as the operator writes them."""

    def __init__(self) -> None:
        self.builder = ipujob()
        self.conditions: list[dict[str, Any]] = []

    def enters(self, state: JobState, seconds: float, **fields: Any) -> JobRow:
        return self.is_told(plain_verdict(state, PATH), seconds, **fields)

    def is_told(self, verdict: Verdict, seconds: float, **fields: Any) -> JobRow:
        moment = format_time(at(seconds))
        self.conditions = with_verdict(self.conditions, verdict, PATH, moment)
        self.builder.with_status(
            launcherStatus=verdict.state.value, conditions=self.conditions, **fields
        )
        (self.builder.manifest["status"]).setdefault("startTime", moment)
        return self.row(seconds)

    def row(self, seconds: float, *, is_deleted: bool = False, group: str = "default") -> JobRow:
        return row_of(self.builder.build(), group, at(seconds), is_deleted=is_deleted)


def write(*rows: JobRow, when: float = 0) -> None:
    connection.ensure_connection()
    with connection.connection.cursor() as cursor:
        store(cursor, rows, CLUSTER, at(when))


def vanish(*present: str, until: float, now: float, cluster: str = CLUSTER) -> int:
    with connection.connection.cursor() as cursor:
        return close_vanished(cursor, VanishedObjects(present, cluster, at(until), at(now)))


def story() -> list[tuple[datetime, str, str]]:
    rows = JobTransition.objects.order_by("at", "id")
    return [(one.at, one.state, one.reason) for one in rows]


def instance(attempt: int, state: str, **more: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "attempt": attempt, "state": state} | more]


def test_a_whole_life_stays_after_the_job_is_gone() -> None:
    life = Life()
    waits = Verdict(JobState.PENDING, "NoCapacity", "4 IPUs in one block are needed, 0 are free")
    write(life.row(0))
    write(life.enters(JobState.PENDING, 1, instances=instance(0, "Pending")))
    write(life.is_told(waits, 3))
    write(life.enters(JobState.PENDING, 8))
    write(life.enters(JobState.RUNNING, 10, instances=instance(0, "Running")))
    write(
        life.enters(
            JobState.FAILED,
            70,
            instances=instance(
                0, "Failed", reason="IPUJobFailed", exitCode=3, message="it exited", log="Oops"
            ),
            completionTime=format_time(at(70)),
        )
    )
    life.builder.deleted(90)
    write(life.row(90))
    assert JobRecord.objects.get().deleted_at is None
    write(life.row(95, is_deleted=True))
    job = JobRecord.objects.get()
    assert (job.status, job.reason, job.ipus, job.cluster_uid) == (
        "Failed",
        "IPUJobFailed",
        4,
        CLUSTER,
    )
    assert (job.started_at, job.completed_at, job.deleted_at) == (at(10), at(70), at(90))
    assert not job.estimated
    assert job.spec["modelReplicas"] == "4"
    assert story() == [
        (at(1), "Pending", "NoCapacity"),
        (at(10), "Running", "IPUJobRunning"),
        (at(70), "Failed", "IPUJobFailed"),
    ]
    attempt = JobAttempt.objects.get()
    assert (attempt.outcome, attempt.exit_code) == ("Failed", 3)
    assert (attempt.message, attempt.log) == ("it exited", "Oops")
    assert (attempt.began_at, attempt.ended_at) == (at(1), at(70))


def test_the_same_batch_twice_changes_nothing() -> None:
    life = Life()
    rows = [
        life.row(0),
        life.enters(JobState.PENDING, 1, instances=instance(0, "Pending")),
        life.enters(JobState.RUNNING, 10, instances=instance(0, "Running")),
        life.row(20, is_deleted=True),
    ]

    def everything() -> list[list[tuple[Any, ...]]]:
        models = (JobRecord, JobAttempt, JobTransition)
        return [list(model.objects.order_by("id").values_list()) for model in models]

    write(*rows)
    before = everything()
    write(*rows)
    assert everything() == before


def test_an_end_alone_tells_the_story_and_adds_nothing_to_what_was_seen() -> None:
    life = Life()
    life.enters(JobState.PENDING, 1)
    seen = life.enters(JobState.RUNNING, 10)
    end = life.enters(JobState.COMPLETED, 70)
    write(end)
    want = [(at(1), "Pending"), (at(10), "Running"), (at(70), "Completed")]
    assert [one[:2] for one in story()] == want
    assert JobRecord.objects.get().started_at == at(10)
    write(seen, end)
    assert [one[:2] for one in story()] == want


def test_each_attempt_ends_where_the_next_begins() -> None:
    life = Life()
    write(life.enters(JobState.PENDING, 1, instances=instance(0, "Pending")))
    write(life.enters(JobState.RUNNING, 10, instances=instance(0, "Running")))
    write(life.enters(JobState.RESTARTING, 40, instances=instance(1, "Pending"), restartCount=1))
    write(life.enters(JobState.RUNNING, 55, instances=instance(1, "Running")))
    write(life.row(60, is_deleted=True))
    first, second = JobAttempt.objects.order_by("attempt")
    assert (first.began_at, first.ended_at, first.outcome) == (at(1), at(40), "Running")
    assert (second.began_at, second.ended_at, second.outcome) == (at(40), at(60), "Running")
    assert JobRecord.objects.get().restart_count == 1
    assert [(one[0], one[1]) for one in story()] == [
        (at(1), "Pending"),
        (at(10), "Running"),
        (at(40), "Restarting"),
        (at(55), "Running"),
    ]


def test_what_comes_late_takes_back_neither_start_nor_end_nor_restarts() -> None:
    life = Life()
    first = life.enters(JobState.RUNNING, 10)
    life.enters(JobState.RESTARTING, 40, restartCount=1)
    second = life.enters(JobState.RUNNING, 55)
    end = life.enters(JobState.COMPLETED, 70, completionTime=format_time(at(70)))
    for rows in ((first, second, end), (end, second, first)):
        write(*rows)
        job = JobRecord.objects.get()
        assert (job.started_at, job.completed_at, job.restart_count) == (at(10), at(70), 1)


def test_a_deletion_ends_an_attempt_that_its_last_sight_no_longer_shows() -> None:
    life = Life()
    write(life.enters(JobState.RUNNING, 10, instances=instance(0, "Running")))
    life.builder.with_status(instances=[])
    write(life.row(60, is_deleted=True))
    assert JobAttempt.objects.get().ended_at == at(60)


def test_a_user_is_verified_where_the_webhooks_are_trusted() -> None:
    job = ipujob().annotated(**{"ipuhub.io/created-by": "ada"}).build()
    for authors, want in ((None, False), (AuthorTrust(is_on=True), True)):
        row = JobRecorder(lambda _: "team", authors).read("ADDED", job, [], at(1))
        assert (row.user, row.group, row.user_verified) == ("ada", "team", want)


def test_a_job_that_a_list_no_longer_shows_ends_at_its_last_sighting() -> None:
    life = Life()
    write(life.enters(JobState.RUNNING, 10, instances=instance(0, "Running")))
    assert vanish("another", until=50, now=500, cluster="cluster-2") == 0
    assert vanish("uid-sample", until=50, now=500) == 0
    assert vanish("another", until=50, now=500) == 1
    job = JobRecord.objects.get()
    assert (job.deleted_at, job.estimated, job.status) == (at(50), True, "Running")
    assert JobAttempt.objects.get().ended_at == at(50)
    assert vanish("another", until=600, now=700) == 0
    assert JobRecord.objects.get().deleted_at == at(50)


def test_an_estimated_end_is_taken_back_and_an_exact_one_is_not() -> None:
    life = Life()
    write(life.enters(JobState.RUNNING, 10, instances=instance(0, "Running")))
    vanish(until=50, now=60)
    write(life.row(70))
    job = JobRecord.objects.get()
    assert (job.deleted_at, job.estimated) == (None, False)
    assert JobAttempt.objects.get().ended_at is None
    write(life.row(80, is_deleted=True))
    write(life.row(90))
    assert JobRecord.objects.get().deleted_at == at(80)


def test_group_and_user_once_known_stay() -> None:
    life = Life()
    life.builder.annotated(**{"ipuhub.io/created-by": "ada"})
    write(life.row(1, group="team-a"))
    life.builder.annotated()
    write(life.row(2))  # the namespace's label is gone
    job = JobRecord.objects.get()
    assert (job.group, job.user, job.user_verified) == ("team-a", "ada", False)


def test_a_verified_user_is_kept_with_the_name() -> None:
    life = Life()
    life.builder.annotated(**{"ipuhub.io/created-by": "ada"})
    write(life.row(1))
    write(replace(life.row(2), user_verified=True))  # the webhooks are there now
    assert JobRecord.objects.get().user_verified
    life.builder.annotated()
    write(life.row(3))
    job = JobRecord.objects.get()
    assert (job.user, job.user_verified) == ("ada", True)


def test_what_postgres_cannot_store_does_not_stop_the_others() -> None:
    life = Life()
    life.builder.with_spec(odd="a\x00b", more="\ud800")
    life.builder.spec["workers"]["template"]["spec"]["x"] = 10**30
    write(life.row(1), row_of(ipujob("other").build(), "default", at(1)))
    assert JobRecord.objects.count() == 2
    assert JobRecord.objects.get(name="sample").spec["odd"] == "a\ufffdb"
