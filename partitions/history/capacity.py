"""io: asks the proxy for the IPUs of all V-IPU controllers, and has the changes written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import structlog

from ipuhub.recording.store import explain
from partitions.errors import PartitionsError
from partitions.history.capacityrows import capacity_changes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from partitions.history.capacityrows import Capacity

    Changes = Callable[[Mapping[str, Capacity]], Sequence[Capacity]]
    Write = Callable[[Changes, datetime], Awaitable[int]]

log = structlog.get_logger(__name__)


class Proxy(Protocol):
    """What is needed of the V-IPU Proxy's client."""

    async def controllers(self) -> Mapping[str, Any]:
        """The V-IPU controllers: `items`."""
        ...


class CapacityPoll:
    """Has `write` called with what differs from the last rows, every `poll_seconds`.

    A proxy or a Postgres that is away leaves the rows as they are: nothing is known meanwhile.
    """

    def __init__(
        self, proxy: Proxy, write: Write, clock: Callable[[], datetime], poll_seconds: float = 10.0
    ) -> None:
        self._proxy, self._write, self._clock = proxy, write, clock
        self._poll_seconds = poll_seconds
        self.problem = ""

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            try:
                await self.once()
            except PartitionsError as error:
                self._note(str(error).strip() or type(error).__name__)
            except psycopg.Error as error:
                self._note(f"Postgres: {explain(error)}")
            else:
                self._note("")
            await asyncio.sleep(self._poll_seconds)

    async def once(self) -> int:
        """Ask once; return how many changes were written. Raises what keeps it from that."""
        answer = await self._proxy.controllers()
        at = self._clock()
        return await self._write(lambda known: capacity_changes(answer, known), at)

    def _note(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            log.info("capacity is not recorded" if problem else "capacity is recorded", why=problem)
        self.problem = problem
