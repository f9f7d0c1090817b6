"""io: a connection that gives up when PostgreSQL sends nothing for too long."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from psycopg.abc import PQGen

SILENCE_SECONDS: Final = 25.0
"""For connections whose statements the server ends after 20 s. A process that waits for an answer
still ends within 30 s of SIGTERM."""


class PatientConnection(psycopg.Connection[Any]):
    """Waits `silence_seconds` for an answer (None: without limit), then closes itself and raises
    OperationalError without a state, as for any lost connection.

    A query may be silent for as long as it works: the limit is longer than what the server's
    `statement_timeout` allows.
    """

    silence_seconds: float | None = None

    def wait(self, gen: PQGen[Any], interval: float = 0.1, timeout: float | None = None) -> Any:
        """Return the server's answer, within the limit."""
        limit = self.silence_seconds
        if timeout is not None or limit is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(_hearing(gen, limit), interval)
        except errors._WaitTimeout:  # noqa: SLF001  # what psycopg's own callers catch
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


def connect(arguments: Mapping[str, Any], *, autocommit: bool = False) -> PatientConnection:
    """Return a connection by psycopg's `arguments` that waits SILENCE_SECONDS for an answer."""
    made = PatientConnection.connect(**arguments, autocommit=autocommit)
    made.silence_seconds = SILENCE_SECONDS
    return made


def _hearing(gen: PQGen[Any], limit: float) -> PQGen[Any]:
    """Pass on what `gen` waits for; raise _WaitTimeout once nothing has come for `limit` seconds.

    psycopg's own limit is for all rows of a statement together: a server that is slow with many is
    not silent.
    """
    heard_at = monotonic()
    ready: Any = None  # begins a generator
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
        if monotonic() - heard_at >= limit:
            raise errors._WaitTimeout("silence")  # noqa: SLF001
        ready = yield wanted
        if ready:
            heard_at = monotonic()
