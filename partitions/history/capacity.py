"""io: polls the proxy for the IPUs of all V-IPU controllers, and writes changes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from ipuhub.recording.store import explain
from partitions.errors import PartitionsError, ProxyUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from partitions.client import ProxyClient


@dataclass(frozen=True, slots=True)
class Capacity:
    """The IPUs of one V-IPU controller; while a controller is unreachable its last numbers stay."""

    controller: str
    total: int = 0
    free: int = 0
    cordoned: int = 0
    faulty: int = 0
    reachable: bool = True


def capacity_changes(
    answer: Mapping[str, Any], known: Mapping[str, Capacity]
) -> tuple[Capacity, ...]:
    """Return the differences between the proxy's `/v1/controllers` and the last rows by controller.

    A controller that is gone from the answer has no IPUs any more: it is off the list and holds
    nothing of ours. A controller that never answered is left out. Raises ProxyUnavailable for an
    answer that makes no sense.
    """
    items = answer.get("items")
    if not isinstance(items, list):
        raise ProxyUnavailable("the answer has no items")
    now = {
        capacity.controller: capacity
        for capacity in (_read(item, known) for item in items)
        if capacity
    }
    listed = {item["address"] for item in items}
    gone = {
        address: Capacity(address, reachable=False) for address in known if address not in listed
    }
    return tuple(
        capacity for capacity in (now | gone).values() if capacity != known.get(capacity.controller)
    )


def _read(item: object, known: Mapping[str, Capacity]) -> Capacity | None:
    if not isinstance(item, dict) or not isinstance(item.get("address"), str):
        raise ProxyUnavailable("an item has no address")
    address = item["address"]
    if item.get("reachable") is not True:
        last = known.get(address)
        return None if last is None else replace(last, reachable=False)
    return Capacity(
        controller=address,
        total=_count(item, "total"),
        free=_count(item, "free"),
        cordoned=_count(item, "cordoned", 0),
        faulty=_count(item, "faulty", 0),
    )


def _count(item: Mapping[str, Any], name: str, default: int | None = None) -> int:
    number: object = item.get(name, default)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**31:
        raise ProxyUnavailable(f"{item['address']}: {name} is {number!r}, no number of IPUs")
    return number


if TYPE_CHECKING:
    Changes = Callable[[Mapping[str, Capacity]], Sequence[Capacity]]
    Write = Callable[[Changes, datetime], Awaitable[int]]
log = structlog.get_logger(__name__)


class CapacityPoll:
    """Polls the proxy every `poll_seconds`, and calls `write` with changes since the last rows.

    While the proxy or PostgreSQL is unavailable the rows stay unchanged: nothing is known
    meanwhile.
    """

    def __init__(
        self,
        proxy: ProxyClient,
        write: Write,
        clock: Callable[[], datetime],
        poll_seconds: float = 10.0,
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
        """Poll once; return how many changes were written. Raises what prevents it."""
        answer = await self._proxy.controllers()
        at = self._clock()
        return await self._write(lambda known: capacity_changes(answer, known), at)

    def _note(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            log.info("capacity is not recorded" if problem else "capacity is recorded", why=problem)
        self.problem = problem
