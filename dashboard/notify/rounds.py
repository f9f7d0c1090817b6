"""glue: the rounds of the web process: records its heartbeat, observes components, queues
notifications.

Only the web process can ask Kubernetes what a user may see. The worker sends. While no worker sends
(it is down, makes a long report, or usage is off), the web process sends, too.
"""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from typing import TYPE_CHECKING, Final

import structlog
from django.db import DatabaseError, connection
from django.utils import timezone

from dashboard.machines.incidents import record_incidents
from dashboard.notify.events import collect
from dashboard.notify.outages import record_outages
from dashboard.notify.outbox import deliver
from dashboard.observing import observed, read_now, record
from ipuhub import __version__
from ipuhub.heartbeats import HEARTBEAT_SECONDS, TASKS, WEB
from ipuhub.models import Heartbeat
from ipuhub.schema import Emptied
from ipuhub.times import HEARTBEAT_STALE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

ROUND_SECONDS: Final = HEARTBEAT_SECONDS
_CLAIM: Final = dt.timedelta(seconds=0.8 * ROUND_SECONDS)
_LEAVE_SECONDS: Final = 5.0
_LOG = structlog.get_logger(__name__)


def claim(now: dt.datetime) -> bool:
    """Note the heartbeat, and return whether this process makes the round: of several replicas a
    single replica does."""
    due = Heartbeat.objects.filter(name=WEB, at__lte=now - _CLAIM)
    if due.update(at=now, version=__version__):
        return True
    values = {"at": now, "version": __version__}
    return Heartbeat.objects.get_or_create(name=WEB, defaults=values)[1]


def make_round(now: dt.datetime, clock: Callable[[], float] = time.monotonic) -> None:
    """Observe, and queue what is new; send it if no worker does."""
    sights = read_now(now)
    record(observed(sights, now), now)
    if not sights.fleet.problem:
        record_incidents(sights.fleet.value, now)
    record_outages(now)
    collect(now)
    alive_at = now - dt.timedelta(seconds=HEARTBEAT_STALE_SECONDS)
    if not Heartbeat.objects.filter(name=TASKS, at__gte=alive_at).exists():
        deliver(timezone.now, clock)


class Rounds:
    """A thread that makes rounds until it is stopped.

    `prepare` is called when the database has lost its tables.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._over = threading.Event()
        self._prepare, self._is_emptied = prepare, Emptied()
        # A daemon: a server that is silent must not keep the process from its end.
        self._thread = threading.Thread(target=self._run, name="rounds", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, and wait a moment for the round that is under way."""
        self._over.set()
        self._thread.join(_LEAVE_SECONDS)

    def _run(self) -> None:
        while True:
            try:
                if self._is_emptied():
                    self._prepare()
                now = timezone.now()
                if claim(now):
                    make_round(now, self._clock)
            except DatabaseError as error:
                _LOG.warning("no round", problem=" ".join(str(error).split()))
            except Exception:  # noqa: BLE001  # the outermost frame of a thread, which continues
                _LOG.exception("round failed")
            finally:
                connection.close()
            if self._over.wait(ROUND_SECONDS):
                return

    def _clock(self) -> float:
        return math.inf if self._over.is_set() else time.monotonic()
