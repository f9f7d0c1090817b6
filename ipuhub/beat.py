"""glue: Celery's beat, which queues the periodic tasks whatever clock, disk and PostgreSQL do."""

from __future__ import annotations

import datetime as dt
import dbm
from typing import Any, Final

import structlog
from celery.beat import PersistentScheduler

from ipuhub import taskqueue
from ipuhub.heartbeats import BEAT
from ipuhub.workerhealth import heartbeat_of

LOOK_AGAIN_SECONDS: Final = 2.0  # while PostgreSQL or its tables are missing
_CORRECTION: Final = dt.timedelta(minutes=1)  # a clock set back further was wrong
_DISK: Final = (OSError, *dbm.error)
_LOG = structlog.get_logger(__name__)


class _Memory(dict[str, Any]):
    """The schedule where no file can be written: when tasks last ran is lost with the process."""

    def sync(self) -> None:
        """Do nothing, as there is no file."""

    close = sync


class BeatScheduler(PersistentScheduler):  # type: ignore[misc]
    """The scheduler, with a heartbeat. It retries tasks that PostgreSQL did not take, works without
    its file, and follows a clock that was set back."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._heartbeat = heartbeat_of(BEAT)
        self._is_unsaved = False
        super().__init__(*arguments, **options)

    def tick(self, *arguments: Any, **options: Any) -> Any:
        """Do what is due; return the seconds until there may be more to do."""
        taskqueue.CONTACT.look()
        self._heartbeat.beat_if_due()
        if taskqueue.CONTACT.problem:  # else there would be no query until the next task is due
            taskqueue.try_database()
        self._forget_the_future()
        wait = super().tick(*arguments, **options)
        if not taskqueue.CONTACT.problem:
            return wait
        self._heap = None  # what could not be queued is due again
        return LOOK_AGAIN_SECONDS

    def _forget_the_future(self) -> None:
        """A clock that was set back would stop each task until it shows the same time again.

        A small correction is waited for, else a task of this minute would run twice.
        """
        ahead = [
            entry
            for entry in self.schedule.values()
            if entry.last_run_at - entry.default_now() > _CORRECTION
        ]
        for entry in ahead:
            entry.last_run_at = entry.default_now()
        if ahead:
            self._heap = None
            names = ", ".join(entry.name for entry in ahead)
            _LOG.warning("the clock was set back: tasks ran in the future", tasks=names)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Queue a task; where PostgreSQL does not answer, it stays due."""
        try:
            self.apply_async(entry, producer=producer, advance=False)
        except Exception as error:  # noqa: BLE001  # any other task goes on
            text = " ".join(str(error).split())
            _LOG.warning("a periodic task could not be queued", task=entry.task, why=text)
            if taskqueue.CONTACT.problem:
                self.schedule[entry.name].last_run_at = entry.last_run_at

    def sync(self) -> None:
        """Store when tasks last ran."""
        try:
            super().sync()
        except _DISK as error:
            if not self._is_unsaved:
                _LOG.warning("the schedule cannot be stored", why=str(error))
            self._is_unsaved = True
        else:
            self._is_unsaved = False

    def close(self) -> None:
        """Store it at the end, if that is possible."""
        try:
            super().close()
        except _DISK as error:
            _LOG.warning("the schedule cannot be stored", why=str(error))

    def _destroy_open_corrupted_schedule(self, exc: Exception) -> Any:
        _LOG.warning("the schedule file cannot be read and is replaced", why=str(exc))
        try:
            self._remove_db()
            return self._open_schedule()
        except _DISK as error:
            _LOG.warning("the schedule is kept in memory only", why=str(error))
            return _Memory()
