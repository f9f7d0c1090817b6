"""io: whether a process works: as one of several replicas behind a Lease, or alone.

Acts that are begun only by a replica that surely leads, and end while it does.

For orders to those who know no preconditions. A process that stood still between a decision and
its order would give it under its successor, who may have decided otherwise since.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import structlog

from ipuhub.kube.errors import ConfigError
from ipuhub.kube.leaderelection import LeaderElection, LeadershipLost, LeaseTiming

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ipuhub.kube.client import KubeClient

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeadershipOptions:
    """The Lease that is asked for, and under which name."""

    namespace: str
    lease: str
    identity: str
    timing: LeaseTiming = field(default_factory=LeaseTiming)

    def __post_init__(self) -> None:
        """Raise ConfigError for times at which two replicas could work side by side."""
        timing = self.timing
        if not timing.duration_seconds > timing.renew_deadline_seconds > timing.retry_seconds > 0:
            raise ConfigError(
                f"a Lease of {timing.duration_seconds:g} s, renewed within "
                f"{timing.renew_deadline_seconds:g} s, tried every {timing.retry_seconds:g} s: "
                "each must be less than the one before (IPUHUB_LEASE_DURATION_SECONDS, "
                "IPUHUB_LEASE_RENEW_SECONDS, IPUHUB_LEASE_RETRY_SECONDS)"
            )


class Leadership:
    """The right to work; without options it is always there."""

    def __init__(self, client: KubeClient, options: LeadershipOptions | None) -> None:
        self._election: LeaderElection | None = None
        if options is not None:
            place = (options.namespace, options.lease)
            self._election = LeaderElection(client, *place, options.identity, options.timing)

    @property
    def is_leading(self) -> bool:
        """Whether this replica may work now."""
        return self._election is None or self._election.is_leading

    @property
    def left_seconds(self) -> float:
        """For how long nobody else can work, whatever happens to this replica; 0: one may now."""
        return math.inf if self._election is None else self._election.left_seconds

    @property
    def holder(self) -> str:
        """Who leads, as far as this replica knows."""
        return self._election.holder if self._election else ""

    @property
    def problem(self) -> str:
        """Why it is not known who leads; empty: it is, also where somebody else does."""
        if self._election is None:
            return ""
        undecided = not (self._election.is_leading or self._election.holder)
        return self._election.problem or ("not decided yet" if undecided else "")

    @property
    def standby(self) -> str:
        """Why this replica does not work; empty: it does. For who serves only while it leads."""
        if self._election is None or self.is_leading:
            return ""
        why = f"{self.holder} leads" if self.holder else self.problem
        if self.holder == self._election.identity:
            why = self.problem or "it has not renewed its Lease in time"
        return f"this replica stands by: {why}"

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the right to work, then run `work` for as long as it is there; and again.

        A replica that loses the right, to another one or because the API server was away, has its
        `work` cancelled and stands by. `work` must begin anew each time: another replica may have
        changed everything meanwhile. Returns when `work` does, raises what it raises.
        """
        if self._election is None:
            await work()
            return
        while True:
            try:
                await self._election.lead(work)
            except LeadershipLost as lost:
                log.warning("standing by again", problem=str(lost))
            else:
                return

    async def lead_now(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` once, holding the right to it meanwhile.

        Raises LeaseHeld where another replica works, ApiError where that is not to be known,
        LeadershipLost where the right was lost before the end, and what `work` raises.
        """
        if self._election is None:
            await work()
        else:
            await self._election.lead_now(work)


_Answer = TypeVar("_Answer")


class LeaseOverdue(Exception):  # noqa: N818  # what is so, not a fault
    """Another replica may lead by now; the same act may be this replica's again in a moment."""

    retryable = True


async def while_leading(
    left_seconds: Callable[[], float], act: Callable[[], Awaitable[_Answer]]
) -> _Answer:
    """Do `act` if no other replica can lead for `left_seconds` (0: one may now) and return its
    answer. Raises LeaseOverdue, nothing done, and TimeoutError after that time."""
    left = left_seconds()
    if left <= 0:
        raise LeaseOverdue("this replica has not renewed its Lease in time; ask again in a moment")
    async with asyncio.timeout(None if left == math.inf else left):
        return await act()
