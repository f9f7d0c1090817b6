"""Heartbeats in a real PostgreSQL: what they note, and that no work depends on them."""

from __future__ import annotations

import asyncio
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from ipuhub import __version__
from ipuhub.heartbeats import HEARTBEAT_SECONDS, HeartbeatWriter, writing_heartbeats
from ipuhub.models import Heartbeat
from ipuhub.recording.store import connection_arguments
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def database() -> dict[str, object]:
    return connection_arguments(connection.settings_dict)


def test_a_heartbeat_is_the_time_of_the_newest() -> None:
    old = timezone.now() - dt.timedelta(days=1)
    Heartbeat.objects.create(name="prober", at=old)
    HeartbeatWriter("prober", database).beat()
    HeartbeatWriter("monitor", database).beat()
    found = {each.name: each.at for each in Heartbeat.objects.filter(looked_at=None)}
    assert set(found) == {"prober", "monitor"}
    assert all(at > old for at in found.values())
    assert {each.version for each in Heartbeat.objects.all()} == {__version__}


def test_a_loop_that_turns_often_writes_once_in_30_seconds() -> None:
    now = 0.0
    heart = HeartbeatWriter("beat", database)

    def beats_at(seconds: float) -> bool:
        nonlocal now
        now = seconds
        Heartbeat.objects.all().delete()
        heart.beat_if_due(lambda: now)
        return Heartbeat.objects.exists()

    found = [beats_at(at) for at in (0, 1, HEARTBEAT_SECONDS - 1, HEARTBEAT_SECONDS, 31, 61)]
    assert found == [True, False, False, True, False, True]


def test_without_postgres_a_process_works_on_and_its_heart_goes_on_later() -> None:
    arguments = database() | {"port": free_port(), "connect_timeout": 2}
    heart = HeartbeatWriter("worker", lambda: arguments)
    heart.beat()
    HeartbeatWriter("worker", lambda: {"a": database()}["b"]).beat()
    assert not Heartbeat.objects.exists()
    arguments = database()
    heart.beat()
    assert Heartbeat.objects.get().name == "worker"


def test_an_event_loop_beats_at_once_while_it_works_and_then_no_more() -> None:
    async def work() -> int:
        async with writing_heartbeats("monitor", database()):
            await asyncio.to_thread(wait_until, lambda: _count() == 1)
            return len(asyncio.all_tasks())

    assert asyncio.run(work()) == 2


def test_a_beat_for_which_no_thread_starts_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heart that stops makes pages call a working process dead."""
    monkeypatch.setattr("ipuhub.heartbeats.HEARTBEAT_SECONDS", 0.01)
    faults = [RuntimeError("can't start new thread")]

    class Executor(ThreadPoolExecutor):
        def submit(self, *given: Any, **more: Any) -> Any:
            if faults:
                raise faults.pop()
            return super().submit(*given, **more)

    async def seen() -> bool:
        return not faults and await asyncio.to_thread(_count) == 1

    async def work() -> None:
        asyncio.get_running_loop().set_default_executor(Executor())
        async with writing_heartbeats("monitor", database()):
            await eventually(seen)

    asyncio.run(work())


def test_the_end_of_a_process_is_not_the_end_of_its_heart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def work() -> None:
        async with writing_heartbeats("monitor", database()):
            await asyncio.sleep(0)

    monkeypatch.setattr(HeartbeatWriter, "beat", broken)
    asyncio.run(work())


def _count() -> int:
    try:
        return Heartbeat.objects.count()
    finally:
        connection.close()
