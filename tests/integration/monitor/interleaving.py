"""Runs transactions of several connections in any wanted order of their statements."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PATIENCE_SECONDS = 90


class Actor:
    """Work on one connection that waits before each statement and before each commit."""

    def __init__(self, database: dict[str, Any], work: Callable[[dict[str, Any]], Any]) -> None:
        self._go, self._stops = threading.Semaphore(0), threading.Semaphore(0)
        self.is_done, self.is_waiting, self.pid = False, True, 0
        self.result: Any = None
        actor = self

        class Cursor(psycopg.Cursor[Any]):
            def execute(self, *given: Any, **options: Any) -> Any:
                actor._pause(self.connection)
                return super().execute(*given, **options)

            def __exit__(self, *given: Any) -> None:
                if given[0] is None:
                    actor._pause(self.connection)  # before the transaction ends
                super().__exit__(*given)

        self._thread = threading.Thread(
            target=self._run, args=(work, {**database, "cursor_factory": Cursor}), daemon=True
        )
        self._thread.start()
        self._wait_stop(None)

    def step(self, watcher: psycopg.Connection[Any]) -> None:
        """Let it go on to its next statement, or until another connection's lock stops it."""
        if self.is_done:
            return
        if self.is_waiting:
            self.is_waiting = False
            self._go.release()
        self._wait_stop(watcher)

    def _wait_stop(self, watcher: psycopg.Connection[Any] | None) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._stops.acquire(timeout=0.002):
            assert time.monotonic() < deadline, "an actor neither stops nor waits for a lock"
            if watcher is not None and self._is_blocked(watcher):
                return
        self.is_waiting = not self.is_done

    def _is_blocked(self, watcher: psycopg.Connection[Any]) -> bool:
        sql = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        found = watcher.execute(sql, [self.pid]).fetchone()
        return bool(found and found[0])

    def _pause(self, connection: psycopg.Connection[Any]) -> None:
        self.pid = connection.info.backend_pid
        self._stops.release()
        self._go.acquire()

    def _run(self, work: Callable[[dict[str, Any]], Any], database: dict[str, Any]) -> None:
        try:
            self.result = work(database)
        except Exception as error:  # noqa: BLE001  # the test looks at it
            self.result = error
        self.is_done = True
        self._stops.release()


def run_in_order(
    database: dict[str, Any],
    works: Sequence[Callable[[dict[str, Any]], Any]],
    order: Sequence[int],
) -> list[Any]:
    """Run `works` side by side, a statement at a time of the work that `order` names next.

    Returns what each returned or raised. A work that waits for a lock is passed over meanwhile.
    """
    with psycopg.connect(**database, autocommit=True) as watcher:
        actors = [Actor(database, work) for work in works]
        for number in order:
            actors[number].step(watcher)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not all(actor.is_done for actor in actors):
            assert time.monotonic() < deadline, "the actors wait for each other"
            for actor in actors:
                actor.step(watcher)
    return [actor.result for actor in actors]
