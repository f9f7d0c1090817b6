"""Kubernetes Events of jobs and their pods come to Postgres, bounded, and stay."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from django.db import ProgrammingError, connection

from ipuhub.backoff import Backoff
from ipuhub.kube.resources import EVENTS
from ipuhub.recording.metrics import RECORDINGS
from ipuhub.recording.store import connection_arguments
from jobs.history import eventbacklog, events, eventstore
from jobs.history.eventrows import event_row_of
from jobs.history.events import EventFollower
from jobs.history.eventstore import store_events
from jobs.ipujob.names import IPUJOBS
from jobs.models import JobEvent
from tests.builders import jobhistory
from tests.builders.ipujobs import at, ipujob
from tests.fakes.counted import metric_value
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from jobs.history.eventrows import EventRow
    from jobs.models import JobRecord
    from tests.integration.recorders.conftest import Site

NOW = at(0)


def event(name: str, kind: str, about: str, uid: str = "", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": kind, "name": about, "namespace": "default", "uid": uid},
        "type": "Normal",
        "reason": "Tried",
        "message": f"{name} was tried.",
        "lastTimestamp": "2026-11-20T10:00:00Z",
        **more,
    }


def row(number: int, **given: Any) -> EventRow:
    made = event_row_of(event(f"e-{number}", "Pod", "train-worker-0"), NOW)
    assert made is not None
    moment = NOW + timedelta(seconds=number)
    given = {"uid": f"u-{number}", "namespace": "team-a", "first_at": moment, **given}
    return replace(made, **{"last_at": given["first_at"], **given})


def store(*rows: EventRow) -> set[str]:
    connection.ensure_connection()
    with connection.connection.cursor() as cursor:
        return store_events(cursor, rows)


@pytest.mark.parametrize(
    ("kind", "name", "want"),
    [
        ("IPUJob", "train", ("train", "uid", "")),
        ("Pod", "train-launcher", ("train", "", "train-launcher")),
        ("Pod", "a-worker-0-worker-12", ("a-worker-0", "", "a-worker-0-worker-12")),
        ("Pod", "train-worker-x", None),
        ("Pod", "web-7f", None),
        ("Node", "train-launcher", None),
    ],
)
def test_an_event_is_of_a_job_or_of_a_pod_with_the_name_of_one(
    kind: str, name: str, want: tuple[str, str, str] | None
) -> None:
    found = event_row_of(event("e", kind, name, "uid"), NOW)
    assert (found and (found.job, found.job_uid, found.pod)) == want


@pytest.mark.parametrize("broken", [{"involvedObject": 3}, {"series": [], "count": "x"}, {}])
def test_an_event_with_odd_fields_is_read_or_left_out(broken: dict[str, Any]) -> None:
    found = event_row_of(event("e", "IPUJob", "train") | broken | {"message": "a\0" * 2000}, NOW)
    assert found is None or (found.count == 1 and len(found.message) == 1024)


@pytest.mark.django_db
def test_the_same_event_is_counted_up_and_one_of_no_recorded_job_waits() -> None:
    job = jobhistory.job(created_at=NOW)
    late = row(3, count=5, first_at=NOW)
    assert store(row(1), late, row(3, count=2), row(9, job="stranger")) == {"u-9"}
    kept = dict(JobEvent.objects.filter(job=job).values_list("uid", "count"))
    assert kept == {"u-1": 1, "u-3": 5}
    newer = jobhistory.job(uid="again", created_at=NOW + timedelta(hours=1))
    store(row(7200), row(10))
    assert list(newer.events.values_list("uid", flat=True)) == ["u-7200"]


@pytest.mark.django_db
def test_a_pods_event_is_of_the_job_of_that_name_that_was_there_then() -> None:
    minutes = [NOW + timedelta(minutes=number) for number in range(60)]
    old = jobhistory.job(uid="old", created_at=minutes[0], deleted_at=minutes[10])
    store(row(60 * 5))  # while it was there
    store(row(60 * 10 + 20))  # its pods outlive it
    # Years later a StatefulSet `train-worker` has such pods.
    assert store(row(60 * 30)) == {"u-1800"}
    # A job that was made anew at once: what its pods say first is told with its own time.
    first = jobhistory.job(uid="first", created_at=minutes[40], deleted_at=minutes[45])
    second = jobhistory.job(uid="second", created_at=minutes[45] + timedelta(seconds=30))
    store(row(60 * 44 + 59), row(60 * 45 + 10), row(60 * 45 + 31))
    store(row(1, first_at=minutes[44], last_at=minutes[45] + timedelta(seconds=31)))
    kept = {each.uid: set(each.events.values_list("uid", flat=True)) for each in (old, first)}
    assert kept == {"old": {"u-300", "u-620"}, "first": {"u-2699", "u-2710"}}
    assert set(second.events.values_list("uid", flat=True)) == {"u-2731", "u-1"}


@pytest.mark.django_db
def test_an_event_that_names_the_uid_of_a_job_in_another_namespace_is_not_of_that_job() -> None:
    """The API server checks the namespace of what an Event is about, and not its UID."""
    job = jobhistory.job(created_at=NOW)
    planted = row(1, namespace="team-b", pod="", job_uid=job.uid)
    assert store(planted) == {"u-1"}
    assert store(replace(planted, namespace=job.namespace)) == set()
    assert job.events.count() == 1


@pytest.mark.django_db
def test_an_event_that_postgres_refuses_is_counted_and_keeps_no_other_from_its_place() -> None:
    job = jobhistory.job(created_at=NOW)
    name = "ipuhub_recording_job_events_dropped_total"
    before = metric_value(RECORDINGS, name, cause="refused")
    connection.ensure_connection()
    rows = [row(1), row(2, message="a\0"), row(3), row(4, job="stranger")]
    assert events.store_all(connection.connection, rows) == {"u-4"}
    assert set(job.events.values_list("uid", flat=True)) == {"u-1", "u-3"}
    assert metric_value(RECORDINGS, name, cause="refused") == before + 1


@pytest.mark.django_db
def test_of_too_many_the_oldest_go_and_warnings_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventstore, "MOST", 3)
    job = jobhistory.job(created_at=NOW)
    other = jobhistory.job("other", created_at=NOW)
    store(row(100, job="other"))
    store(row(0, type="Warning"), *(row(number) for number in range(1, 6)))
    assert set(job.events.values_list("uid", flat=True)) == {"u-0", "u-4", "u-5"}
    assert other.events.count() == 1


async def test_events_are_kept_after_the_cluster_and_the_job_are_done_with_them(
    site: Site,
) -> None:
    client = site.lab.client
    await client.create(EVENTS, event("early", "Pod", "sample-worker-0", reason="Pulled"))
    async with site.probing() as prober:
        made = await site.make(ipujob().build())
        uid = made["metadata"]["uid"]
        await client.create(EVENTS, event("own", "IPUJob", "sample", uid, type="Warning"))
        await client.create(EVENTS, event("else", "Pod", "somebody-worker-0"))
        await eventually(lambda: JobEvent.objects.count() == 2)
        await client.patch(
            EVENTS, "own", {"count": 7, "lastTimestamp": "2026-11-20T11:00:00Z"}, "default"
        )
        await eventually(lambda: JobEvent.objects.filter(count=7).exists())
        await client.delete(EVENTS, "own", "default")
        await client.delete(IPUJOBS, "sample", "default")
        await client.patch(IPUJOBS, "sample", {"metadata": {"finalizers": None}}, "default")
        await eventually(lambda: JobEvent.objects.filter(job__deleted_at__isnull=False).exists())
        assert prober.parts.events.problem == ""
    found = JobEvent.objects.order_by("pod").values_list("pod", "reason", "type", "count")
    assert list(found) == [
        ("", "Tried", "Warning", 7),
        ("sample-worker-0", "Pulled", "Normal", 1),
    ]


class Clock:
    """A clock that stands, and counts how often it was read."""

    def __init__(self) -> None:
        self.now, self.reads = NOW, 0

    def __call__(self) -> datetime:
        self.reads += 1
        return self.now


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_BACKOFF", Backoff(0.01, 0.02))
    monkeypatch.setattr(events, "_PAUSE_SECONDS", 0.01)


@asynccontextmanager
async def following(site: Site, clock: Clock) -> AsyncIterator[EventFollower]:
    follower = EventFollower(site.lab.client, connection_arguments(connection.settings_dict), clock)
    task = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def make_events(site: Site, *numbers: int) -> None:
    for number in numbers:
        one = event(f"e-{number}", "Pod", f"train-worker-{number}")
        await site.lab.client.create(EVENTS, one, "default")


def rename(table: str, name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {name}")


def recorded_job() -> JobRecord:
    return jobhistory.job(namespace="default", created_at=NOW - timedelta(hours=1))


@pytest.mark.usefixtures("_quick")
async def test_events_outlast_a_database_that_is_away_for_minutes(site: Site) -> None:
    clock = Clock()
    recorded_job()
    rename("jobs_jobevent", "away")
    try:
        with structlog.testing.capture_logs() as logged:
            async with following(site, clock) as follower:
                await make_events(site, 1, 2)
                await eventually(lambda: follower.problem)
                for _ in range(3):  # each time it is tried again
                    clock.now += timedelta(minutes=2)
                    reads = clock.reads
                    await eventually(lambda: clock.reads > reads + 2)  # noqa: B023
                assert "run `manage.py migrate`" in follower.problem
                rename("away", "jobs_jobevent")
                await eventually(lambda: JobEvent.objects.count() == 2)
                await eventually(lambda: not follower.problem)
        assert [each["event"] for each in logged if each["log_level"] == "warning"] == [
            "events of jobs are not kept"
        ]
    finally:
        with contextlib.suppress(ProgrammingError):
            rename("away", "jobs_jobevent")


@pytest.mark.usefixtures("_quick")
async def test_more_events_than_there_is_room_for_come_one_after_the_other(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventbacklog, "MOST", 3)
    monkeypatch.setattr(events, "_LIST_LIMIT", 4)
    recorded_job()
    await make_events(site, *range(10))
    async with following(site, Clock()):
        await eventually(lambda: JobEvent.objects.count() == 10)
        await make_events(site, *range(10, 20))
        await eventually(lambda: JobEvent.objects.count() == 20)


@pytest.mark.usefixtures("_quick")
async def test_events_that_were_dropped_while_their_job_was_unknown_are_listed_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventbacklog, "MOST", 2)
    name = "ipuhub_recording_job_events_dropped_total"
    before = metric_value(RECORDINGS, name, cause="backlog")
    await make_events(site, *range(7))
    async with following(site, Clock()):
        await eventually(lambda: metric_value(RECORDINGS, name, cause="backlog") >= before + 5)
        assert not JobEvent.objects.exists()
        recorded_job()
        await eventually(lambda: JobEvent.objects.count() >= 5)
