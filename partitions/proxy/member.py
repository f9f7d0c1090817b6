"""io: one V-IPU controller of the fleet: its connection, its last answers, its last errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipuhub.concurrency import end_tasks

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection

    from partitions.proxy.breaker import CircuitBreaker
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.vipuapi import ChangeCounter
    from partitions.vipu.topology import Topology
    from partitions.vipu.types import VipuPartition


@dataclass(frozen=True, slots=True)
class Refusal:
    """The holdings of a controller when it had no room for a size, and until when that counts."""

    held: frozenset[str]
    until: float

    def holds(self, held: Collection[str], now: float) -> bool:
        """Return whether nothing has gone since that could have made room."""
        return now < self.until and self.held <= set(held)


@dataclass(frozen=True, slots=True)
class Listing:
    """The partitions of a controller; `changes`: how many were noted when the call began."""

    partitions: list[VipuPartition]
    changes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The last view of a controller, when it was read, and the changes it knows of."""

    view: ControllerView
    at: float
    changes: int


@dataclass(eq=False)
class Member:
    """The connection to one address; `silence`: why the last list failed."""

    api: ChangeCounter
    breaker: CircuitBreaker
    silence: str = ""
    topology: Topology | None = None
    topology_at: float = 0.0
    version: str = ""
    listed: frozenset[str] = frozenset()
    answer: Answer | None = None
    refusals: dict[int, Refusal] = field(default_factory=dict)
    listing: tuple[int, list[VipuPartition]] | None = None
    running: asyncio.Task[Listing] | None = None
    following: asyncio.Task[Listing] | None = field(default=None)
    renewing: asyncio.Task[ControllerView] | None = None
    used_at: float = 0.0

    @property
    def problem(self) -> str:
        """Return why the controller takes no calls, as far as is known; "" if it takes any."""
        return self.breaker.problem or self.silence

    async def close(self) -> None:
        """End what is under way, and the connection."""
        tasks = (self.running, self.following, self.renewing)
        await end_tasks(*(task for task in tasks if task is not None))
        await self.api.close()
