"""io: a connection that gives up when PostgreSQL sends nothing for too long."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.abc import PQGen


class PatientConnection(psycopg.Connection[Any]):
    """Waits `silence_seconds` for an answer (None: without limit), then closes itself and raises
    OperationalError without a state, as for any lost connection.

    A query may be silent for as long as it works: the limit is longer than what the server's
    `statement_timeout` allows.
    """

    silence_seconds: float | None = None

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        """Return the server's answer, within the limit."""
        limit = self.silence_seconds if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit)
        except errors._WaitTimeout:  # noqa: SLF001  # what psycopg's own callers catch
            if timeout is not None:
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"PostgreSQL has said nothing for {limit:g} s") from None

    @contextmanager
    def at_most(self, seconds: float) -> Iterator[None]:
        """Limit each wait in the block to this."""
        before = self.silence_seconds
        self.silence_seconds = seconds if before is None else min(before, seconds)
        try:
            yield
        finally:
            self.silence_seconds = before
