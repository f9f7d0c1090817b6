"""Heartbeats in a real PostgreSQL: what they note, and that nobody's work depends on them."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from django.db import connection
from django.utils import timezone

from ipuhub.heartbeats import HEARTBEAT_SECONDS, Heart, beating
from ipuhub.models import Heartbeat
from ipuhub.recording.store import connection_arguments
from tests.fakes.freeport import free_port
from tests.fakes.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def database() -> dict[str, object]:
    return connection_arguments(connection.settings_dict)


def test_a_heartbeat_is_the_time_of_the_newest() -> None:
    old = timezone.now() - dt.timedelta(days=1)
    Heartbeat.objects.create(name="prober", at=old)
    Heart("prober", database).beat()
    Heart("monitor", database).beat()
    found = {each.name: each.at for each in Heartbeat.objects.filter(looked_at=None)}
    assert set(found) == {"prober", "monitor"}
    assert all(at > old for at in found.values())


def test_a_loop_that_turns_often_writes_once_in_30_seconds() -> None:
    now = 0.0
    heart = Heart("beat", database)

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
    heart = Heart("worker", lambda: arguments)
    heart.beat()
    assert not Heartbeat.objects.exists()
    arguments = database()
    heart.beat()
    assert Heartbeat.objects.get().name == "worker"


def test_an_event_loop_beats_at_once_while_it_works_and_then_no_more() -> None:
    async def work() -> int:
        async with beating("monitor", database()):
            await asyncio.to_thread(wait_until, lambda: _count() == 1)
            return len(asyncio.all_tasks())

    assert asyncio.run(work()) == 2


def _count() -> int:
    try:
        return Heartbeat.objects.count()
    finally:
        connection.close()
