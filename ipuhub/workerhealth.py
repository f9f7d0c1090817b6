"""glue: `/healthz` and `/readyz` of the Celery worker and of beat, served by a thread.

A worker that hangs no longer polls for tasks, and a beat that hangs no longer ticks: the age of the
last poll shows both. Processes that cannot reach these pages read heartbeats in the database.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from billiard import current_process  # type: ignore[import-untyped]
from celery import bootsteps, shared_task
from celery.signals import beat_init
from django.conf import settings
from django.utils import timezone

from ipuhub import taskqueue
from ipuhub.heartbeats import TASKS, WORKER, HeartbeatWriter
from ipuhub.process.health import Health, ListenError, build_runner, listening
from ipuhub.recording.store import connection_arguments
from ipuhub.schema import count_missing

if TYPE_CHECKING:
    from celery import Celery

TICK_SECONDS: Final = 30.0
SILENCE_SECONDS: Final = 120.0  # an unavailable server is tried at least every 30 s
_SETTING: Final = "IPUHUB_WORKER_HEALTH_PORT"


def install(app: Celery) -> None:
    """Let worker and beat of `app` serve the pages, if the settings name a port."""
    app.conf.beat_scheduler = "ipuhub.beat:BeatScheduler"
    app.conf.beat_max_loop_interval = TICK_SECONDS
    app.steps["worker"].add(HealthStep)
    app.steps["worker"].add(HeartbeatStep)
    beat_init.connect(_on_beat)


@shared_task(name="ipuhub.heartbeat")  # type: ignore[untyped-decorator]
def heartbeat() -> None:
    """Note the time: beat has queued the task, and a worker does it."""
    from ipuhub.models import Heartbeat  # the app is made before the models

    Heartbeat.objects.update_or_create(name=TASKS, defaults={"at": timezone.now()})


def heartbeat_of(name: str) -> HeartbeatWriter:
    """Return what notes the signs of life of `name`."""
    return HeartbeatWriter(name, lambda: connection_arguments(settings.DATABASES["default"]))


class HealthStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Serves the pages of a worker from before it reaches the broker."""

    requires = frozenset({"celery.worker.components:Pool"})  # forked without our thread

    def start(self, _worker: Any) -> None:
        """Begin; ends the process if the port is in use.

        From now on the worker takes tasks only with the complete schema: a task on a partial schema
        fails, and a daily task is then not done that day.
        """
        taskqueue.CONTACT.missing = _Awaited().missing
        serve("worker")


class _Awaited:
    """The migrations that a worker waits for; once they are applied, no query follows."""

    def __init__(self) -> None:
        self._is_current = False

    def missing(self) -> str:
        """Return why tasks cannot be done yet, or nothing."""
        number = 0 if self._is_current else count_missing()
        self._is_current = not number
        return f"waiting for migrations: {number} to apply" if number else ""


class HeartbeatStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Notes the worker's heartbeat in a thread: a long task holds up all else in a worker."""

    requires = frozenset({"celery.worker.components:Pool"})  # forked without our thread

    def start(self, _worker: Any) -> None:
        """Begin."""
        work = heartbeat_of(WORKER).keep_beating
        threading.Thread(target=work, name="heartbeat", daemon=True).start()


def serve(name: str) -> None:
    """Serve the pages of `name` from now on, if the settings name a port.

    Ends the process with a sentence where the port is taken.
    """
    if not settings.WORKER_HEALTH_PORT:
        return
    health = Health()
    contact = taskqueue.CONTACT
    contact.problem = contact.problem or "not asked yet"
    health.ask("PostgreSQL", lambda: contact.problem)
    health.beat(name, SILENCE_SECONDS)
    contact.look = lambda: health.beat(name)
    started: Future[None] = Future()
    work = _serving(health, started)
    threading.Thread(target=asyncio.run, args=(work,), name="health", daemon=True).start()
    try:
        started.result()
    except ListenError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from error


async def _serving(health: Health, started: Future[None]) -> None:
    address = (settings.HEALTH_HOST, settings.WORKER_HEALTH_PORT, _SETTING)
    try:
        async with listening(build_runner(health.app()), *address):
            started.set_result(None)
            await asyncio.Event().wait()
    except ListenError as error:
        started.set_exception(error)


def _on_beat(**_: Any) -> None:
    """Serve beat's pages, unless it runs inside a worker, which serves its own."""
    is_main = current_process().name == "MainProcess"
    if is_main and threading.current_thread() is threading.main_thread():
        serve("beat")
