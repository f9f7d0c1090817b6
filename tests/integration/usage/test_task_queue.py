"""Tasks wait in PostgreSQL: each is had by one worker, and by another worker if that worker
dies."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from kombu import Connection, Consumer, Queue

from ipuhub import taskqueue
from ipuhub.celery import app
from ipuhub.models import TaskMessage
from tests.integration.usage.reading import UTC_ZONE
from usage.models import ReportRun
from usage.reports.runs import request_run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db(transaction=True)
TASK = "usage.make_reports"


class Worker:
    """The receiving part of a worker, which acknowledges no message until the test lets it."""

    def __init__(self) -> None:
        self.had: list[Any] = []
        self._broker = Connection(taskqueue.URL, transport_options={"polling_interval": 0.01})
        self._consumer = Consumer(
            self._broker.channel(), [Queue("celery")], callbacks=[self._take], accept=["json"]
        )

    def _take(self, _body: Any, message: Any) -> None:
        self.had.append(message)

    def look(self) -> list[int]:
        """Take all messages; return the requested runs."""
        self._consumer.consume()
        try:
            while True:
                self._broker.drain_events(timeout=0.02)
        except socket.timeout:  # noqa: UP041  # kombu's word for nothing more
            return [json.loads(message.body)[0][0] for message in self.had]

    def end(self) -> None:
        """Return messages that were not started to the queue, as a stopped worker does."""
        self._broker.release()


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    made = [Worker() for _ in range(count)]
    try:
        yield made
    finally:
        for each in made:
            each.end()


def expire_claims() -> None:
    """Let the time pass for which a message is claimed."""
    TaskMessage.objects.update(claimed_until=timezone.now())


def test_a_message_is_had_by_one_worker_and_gone_once_its_task_starts() -> None:
    for number in (1, 2, 3):
        app.send_task(TASK, [number])
    with workers(2) as (first, second):
        assert first.look() == [1, 2, 3]
        assert second.look() == []
        for message in first.had:
            message.ack()
        assert not TaskMessage.objects.exists()
        expire_claims()
        assert second.look() == []


def test_what_a_dead_worker_had_not_begun_another_one_takes() -> None:
    app.send_task(TASK, [1])
    app.send_task(TASK, [2])
    with workers(2) as (dead, other):
        assert dead.look() == [1, 2]
        dead.had[0].ack()
        expire_claims()
        assert other.look() == [2]


def test_a_worker_that_ends_gives_back_what_it_has_not_begun() -> None:
    app.send_task(TASK, [1])
    with workers(2) as (first, second):
        assert first.look() == [1]
        first.end()
        assert second.look() == [1]
        second.had[0].requeue()
        assert TaskMessage.objects.get().claimed_until is None
        second.had.clear()
        assert second.look() == [1]
        second.had[0].reject()
        assert not TaskMessage.objects.exists()


def test_a_task_waits_exactly_if_what_asked_for_it_was_committed() -> None:
    class Undone(Exception):  # noqa: N818
        pass

    def ask() -> None:
        run = request_run("demand", "ada", timezone.now(), UTC_ZONE)
        app.send_task(TASK, [run.pk])

    with suppress(Undone), transaction.atomic():
        ask()
        raise Undone
    assert (TaskMessage.objects.count(), ReportRun.objects.count()) == (0, 0)
    with transaction.atomic():
        ask()
    assert (TaskMessage.objects.count(), ReportRun.objects.count()) == (1, 1)


def test_workers_of_many_threads_share_a_hundred_messages() -> None:
    for number in range(100):
        app.send_task(TASK, [number])
    had: list[int] = []

    def work() -> None:
        try:
            with workers(1) as (one,):
                had.extend(one.look())
                for message in one.had:
                    message.ack()
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(had) == list(range(100))
    assert not TaskMessage.objects.exists()


def test_what_has_expired_makes_room_for_the_next_of_its_kind() -> None:
    """While no worker runs, beat continues."""
    for _ in range(5):
        app.send_task("ipuhub.heartbeat", expires=-1)
        app.send_task(TASK, [1])
    app.send_task("ipuhub.heartbeat", expires=60)
    app.send_task("usage.sum_days", expires=60)
    waiting = [
        json.loads(body)["headers"] for body in TaskMessage.objects.values_list("body", flat=True)
    ]
    assert sorted(one["task"] for one in waiting) == [
        "ipuhub.heartbeat",
        *[TASK] * 5,
        "usage.sum_days",
    ]
    assert all(
        one["expires"] is None or one["expires"] > timezone.now().isoformat() for one in waiting
    )


def test_an_expired_task_that_a_worker_has_is_left_to_it() -> None:
    app.send_task(TASK, [1], expires=-1)
    with workers(1) as (worker,):
        assert worker.look() == [1]
        app.send_task("ipuhub.heartbeat", expires=60)
        assert TaskMessage.objects.count() == 2
