"""io: records the IPU-Machines of each partition, from the proxy's `/v1/fleet`.

The tracker does not contain them, and after a partition is removed no service knows them.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
import structlog

from ipuhub.concurrency import wait_set
from ipuhub.recording.store import explain
from partitions.errors import PartitionsError, ProxyUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from psycopg import Cursor

    from partitions.client import ProxyClient
    from partitions.fleetjson import ControllerJson, FleetJson, IpuJson

log = structlog.get_logger(__name__)
_EVERY_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 1.0  # the tracker changes many times a second while many jobs start
_UNPLACED: Final = """
SELECT key, controller, partition, attempt FROM partitions_partitionlifetime
WHERE released_at IS NULL AND active_at IS NOT NULL AND machines = '{}'::jsonb
"""
_PLACE: Final = """
UPDATE partitions_partitionlifetime SET machines = %(machines)s::jsonb
WHERE key = %(key)s AND controller = %(controller)s AND partition = %(partition)s
  AND attempt = %(attempt)s AND machines = '{}'::jsonb
"""


class Unplaced(NamedTuple):
    """A held partition without a recorded place."""

    key: str
    controller: str
    partition: str
    attempt: int


Places = dict[tuple[str, str], dict[str, list[int]]]
"""Positions of IPUs in the IPU-Link domain by agent, by the partition's controller and id."""


def places_of(fleet: FleetJson) -> tuple[set[str], Places]:
    """Return the controllers that say where their IPUs stand, and the places of their partitions.

    Raises ProxyUnavailable for an answer that makes no sense.
    """
    try:
        says = [each for each in fleet["controllers"] if _reports_places(each)]
        return {each["address"] for each in says}, _places(says)
    except (KeyError, TypeError, AttributeError) as error:
        raise ProxyUnavailable(
            f"the response to /v1/fleet has an unknown format: {error!r}"
        ) from error


def _places(controllers: Sequence[ControllerJson]) -> Places:
    found: Places = {}
    for controller in controllers:
        for machine in controller["machines"]:
            for ipu in machine["ipus"]:
                if (held_by := ipu["partition"]) and machine["agent"]:
                    machines = found.setdefault((controller["address"], held_by), {})
                    machines.setdefault(machine["agent"], []).append(_position(ipu))
    return found


def _position(ipu: IpuJson) -> int:
    position = ipu["position"]
    if not isinstance(position, int):
        raise TypeError(f"position is {position!r}")
    return position


def _reports_places(controller: ControllerJson) -> bool:
    """Return whether it answers, and says where its IPUs stand; Graphcore's does not."""
    return bool(controller.get("reachable") and controller.get("placesKnown"))


def unplaced(cursor: Cursor[Any]) -> list[Unplaced]:
    """Return the partitions that are held and have no recorded place."""
    cursor.execute(_UNPLACED)
    return [Unplaced(*row) for row in cursor.fetchall()]


def store_places(
    cursor: Cursor[Any],
    rows: Sequence[Unplaced],
    places: Places,
) -> int:
    """Write where `rows` stand; return of how many that is known."""
    known = [(row, places.get((row.controller, row.partition))) for row in rows]
    found = [
        row._asdict() | {"machines": json.dumps(machines)} for row, machines in known if machines
    ]
    if found:
        cursor.executemany(_PLACE, found)
    return len(found)


class PlaceRecorder:
    """Asks for the fleet soon after `wake` and now and then, if a place is not known.

    A controller that does not say where its IPUs stand, as Graphcore's, is queried now and then
    only.

    `rows` reads what has no place, `write` stores places. While the proxy or PostgreSQL is
    unavailable nothing is recorded; what is still held afterwards is.
    """

    def __init__(
        self,
        proxy: ProxyClient,
        rows: Callable[[], Awaitable[list[Unplaced]]],
        write: Callable[[Sequence[Unplaced], Places], Awaitable[int]],
    ) -> None:
        self._proxy, self._rows, self._write = proxy, rows, write
        self._woken = asyncio.Event()
        self._again_at: dict[str, float] = {}
        self.problem = ""

    def wake(self) -> None:
        """A partition may have become active."""
        self._woken.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            self._woken.clear()
            try:
                await self.once()
            except PartitionsError as error:
                self._note(str(error).strip() or type(error).__name__)
            except psycopg.Error as error:
                self._note(f"Postgres: {explain(error)}")
            else:
                self._note("")
            await asyncio.sleep(_PAUSE_SECONDS)
            await wait_set(self._woken, _EVERY_SECONDS)

    async def once(self) -> int:
        """Record what is due; return how many places. Raises what prevents it."""
        now = asyncio.get_running_loop().time()
        due = [row for row in await self._rows() if self._again_at.get(row.controller, now) <= now]
        if not due:
            return 0
        says, places = places_of(await self._proxy.fleet())
        self._again_at |= {row.controller: now + _EVERY_SECONDS for row in due}
        self._again_at = {name: at for name, at in self._again_at.items() if name not in says}
        return await self._write(due, places)

    def _note(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            event = "places of partitions are not recorded" if problem else "places are recorded"
            log.info(event, why=problem)
        self.problem = problem
