"""Kubernetes Events that wait to be stored: nothing new is lost, and unknown jobs cost little."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from ipuhub.kube.errors import ServerError
from jobs.history import eventbacklog, events
from jobs.history.eventbacklog import Backlog
from jobs.history.eventrows import event_row_of
from jobs.history.events import EventFollower

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jobs.history.eventrows import EventRow

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def event(about: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "involvedObject": {"kind": "Pod", "name": about}}


def row(number: int, count: int = 1) -> EventRow:
    made = event_row_of(event("train-worker-0", uid=f"u-{number}"), NOW)
    assert made is not None
    return replace(made, count=count)


def test_an_update_of_a_waiting_event_finds_room_where_a_new_one_finds_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eventbacklog, "MOST", 2)
    backlog = Backlog()
    backlog.put(row(1))
    backlog.put(row(2))
    assert [backlog.has_room(f"u-{number}") for number in (1, 2, 3)] == [True, True, False]
    backlog.put(row(2, count=7))
    backlog.put(row(2, count=3))  # an older page of a list
    assert [each.count for each in backlog.due(NOW, 10)] == [1, 7]


def test_an_event_that_changes_while_it_is_stored_is_stored_again() -> None:
    backlog = Backlog()
    backlog.put(row(1))
    tried = backlog.due(NOW, 10)
    backlog.put(row(1, count=2))
    assert backlog.settle(tried, set(), NOW) == 0
    assert [each.count for each in backlog.due(NOW, 10)] == [2]
    # The same for one that waited for its job.
    backlog.settle(backlog.due(NOW, 10), {"u-1"}, NOW)
    later = NOW + timedelta(seconds=1)
    tried = backlog.due(later, 10)
    backlog.put(row(1, count=3))
    backlog.settle(tried, set(), later)
    (last,) = backlog.due(later, 10)
    assert last.count == 3
    backlog.settle([last], set(), later)
    assert not backlog


def test_the_record_of_a_job_is_looked_for_at_growing_pauses_for_a_minute() -> None:
    backlog = Backlog()
    backlog.put(row(1))
    tries = []
    for second in range(100):
        now = NOW + timedelta(seconds=second)
        tried = backlog.due(now, 10)
        tries += [second for _ in tried]
        assert backlog.settle(tried, {each.uid for each in tried}, now) == 0
    assert tries == [0, 1, 2, 4, 8, 16, 32, 60]
    assert not backlog


def test_of_too_many_that_wait_for_their_jobs_the_first_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eventbacklog, "MOST", 2)
    backlog = Backlog()
    for number in range(3):
        backlog.put(row(number))
        dropped = backlog.settle(backlog.due(NOW, 1), {f"u-{number}"}, NOW)
    assert dropped == 1
    later = NOW + timedelta(seconds=1)
    assert [each.uid for each in backlog.due(later, 10)] == ["u-1", "u-2"]


def test_the_name_decides_before_anything_else_of_an_event_is_read() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"f": deep}
    assert event_row_of(event("web-7f", uid="u", managedFields=deep), NOW) is None
    found = event_row_of(event("train-launcher", uid="u", managedFields=deep), NOW)
    assert found is not None
    assert (found.uid, found.namespace, found.reason) == ("u", "", "")


class Server:
    """Lists nothing, after some failures; its watches open, and have lost their version."""

    def __init__(self, failures: int = 0) -> None:
        self.lists, self.failures = 0, failures

    async def list_page(self, *_: object) -> bytes:
        await asyncio.sleep(0)  # as any request
        self.lists += 1
        if self.lists <= self.failures:
            raise ServerError(503, "Away", "not now")
        return orjson.dumps({"metadata": {"resourceVersion": "7"}, "items": []})

    @asynccontextmanager
    async def stream(self, *_: object) -> AsyncIterator[AsyncIterator[bytes]]:
        async def lines() -> AsyncIterator[bytes]:
            expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            yield orjson.dumps({"type": "ERROR", "object": expired}) + b"\n"

        yield lines()


class Pauses:
    """Notes after how many failures a pause was; from `last` on it never ends."""

    def __init__(self, last: int) -> None:
        self.attempts: list[int] = []
        self.last = last

    def delay_seconds(self, attempt: int, _spread: float) -> float:
        self.attempts.append(attempt)
        return 0.0 if len(self.attempts) < self.last else 3600.0


@pytest.mark.parametrize(
    ("failures", "pauses", "want"),
    [(0, 4, [0, 0, 0, 0]), (3, 5, [0, 1, 2, 0, 0])],
)
async def test_it_pauses_before_it_lists_again_and_a_good_start_ends_the_growth_of_pauses(
    monkeypatch: pytest.MonkeyPatch, failures: int, pauses: int, want: list[int]
) -> None:
    backoff = Pauses(pauses)
    monkeypatch.setattr(events, "_BACKOFF", backoff)
    monkeypatch.setattr(events, "KINDS", ("Pod",))
    server = Server(failures)
    follower = EventFollower(server, {}, lambda: NOW)  # type: ignore[arg-type]
    task = asyncio.create_task(follower.run())
    for _ in range(500):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert backoff.attempts == want
    assert server.lists == pauses
