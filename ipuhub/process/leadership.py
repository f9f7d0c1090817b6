"""io: the permission of a process to work: as the leader of several replicas, or alone."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import structlog

from ipuhub.kube.errors import ConfigError
from ipuhub.kube.leaderelection import LeaderElection, LeadershipLost, LeaseTiming

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from ipuhub.kube.client import KubeClient

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipOptions:
    """The Lease to hold, and the name to hold it under."""

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
                "each must be less than the previous value (IPUHUB_LEASE_DURATION_SECONDS, "
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
        """Return whether this replica may work now."""
        return self._election is None or self._election.is_leading

    @property
    def left_seconds(self) -> float:
        """For how long no other replica can work, whatever happens to this replica; 0: another may
        now."""
        return math.inf if self._election is None else self._election.left_seconds

    @property
    def holder(self) -> str:
        """Return the leader, as far as this replica knows."""
        return self._election.holder if self._election else ""

    @property
    def predecessor(self) -> str:
        """The replica that stopped renewing before this replica took over; empty: it left in
        order."""
        return self._election.predecessor if self._election else ""

    @property
    def problem(self) -> str:
        """Return why the leader is unknown; empty: it is known, even if it is another replica."""
        if self._election is None:
            return ""
        undecided = not (self._election.is_leading or self._election.holder)
        return self._election.problem or ("not decided yet" if undecided else "")

    @property
    def standby(self) -> str:
        """Return why this replica does not work; empty: it does. For processes that serve only as
        leader."""
        if self._election is None or self.is_leading:
            return ""
        reason = f"{self.holder} leads" if self.holder else self.problem
        if self.holder == self._election.identity:
            reason = self.problem or "it has not renewed its Lease in time"
        return f"this replica stands by: {reason}"

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for leadership, then run `work` while it lasts; repeat.

        When a replica loses leadership, to another replica or because the API server was
        unavailable, its `work` is cancelled and it becomes a standby. `work` must start from
        scratch each time, because another replica may have changed everything meanwhile. Returns
        when `work` does, raises what it raises.
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


class LeaseOverdue(Exception):  # noqa: N818  # a state, not an error
    """Another replica may lead by now; the same act may be this replica's again in a moment."""

    retryable = True


T = TypeVar("T")


def fenced(
    api: T,
    questions: Collection[str],
    left_seconds: Callable[[], float],
    not_leading: type[Exception] = LeaseOverdue,
    given_up: type[Exception] = LeaseOverdue,
) -> T:
    """Return `api`, whose methods are called only while no other replica can lead.

    For services that accept writes from any client. A process that was paused between a decision
    and its call would send the call while its successor leads, which may have decided otherwise.

    `left_seconds` returns for how long the leadership of this replica is certain (0: it has ended).
    A call then raises `not_leading`, and nothing is sent; a call without an answer in that time
    raises `given_up`, and may have been carried out. Methods named in `questions` change nothing
    and always pass.
    """
    return cast("T", _Fenced(api, questions, left_seconds, not_leading, given_up))


@dataclass
class _Fenced:
    api: Any
    questions: Collection[str]
    left_seconds: Callable[[], float]
    not_leading: type[Exception]
    given_up: type[Exception]

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.api, name)
        return method if name in self.questions else partial(self._change, method)

    async def _change(self, method: Callable[..., Awaitable[Any]], *args: Any, **more: Any) -> Any:
        remaining = self.left_seconds()
        if remaining <= 0:
            problem = "this replica has not renewed its Lease in time; try again in a moment"
            raise self.not_leading(problem)
        try:
            async with asyncio.timeout(None if remaining == math.inf else remaining):
                return await method(*args, **more)
        except TimeoutError:
            problem = "no answer for as long as this replica surely leads"
            raise self.given_up(problem) from None
