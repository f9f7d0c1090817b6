"""io: tells the proxy which released partitions are recorded, so it can drop their tombstones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import psycopg
import structlog

from ipuhub.backoff import Backoff, jitter
from ipuhub.concurrency import wait_set
from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import CONFIG_MAPS
from partitions.errors import PartitionsError
from partitions.history.recorder import shard_of, tombstones

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.watch import Scope
    from partitions.client import ProxyClient

log = structlog.get_logger(__name__)
MOST_AT_ONCE: Final = 1_000
_EVERY_SECONDS: Final = 60.0


class Acknowledger:
    """Compares the tracker of `scope` with what is stored, soon after `wake` and periodically.

    Nothing is remembered: a tombstone is acknowledged when the tracker has it unacknowledged and
    `recorded_of` finds its release committed. So a crash anywhere loses nothing, and a proxy that
    is unavailable gets it later. Recording never waits for this.
    """

    def __init__(
        self,
        client: KubeClient,
        scope: Scope,
        proxy: ProxyClient,
        recorded_of: Callable[[Sequence[str]], Awaitable[list[str]]],
    ) -> None:
        self._client, self._scope, self._proxy = client, scope, proxy
        self._recorded_of = recorded_of
        self._backoff = Backoff(1.0, _EVERY_SECONDS)
        self._woken = asyncio.Event()
        self.problem = ""

    def wake(self) -> None:
        """There may be something to acknowledge."""
        self._woken.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        failures = 0
        while True:
            self._woken.clear()
            try:
                await self.once()
            except (ApiError, PartitionsError, psycopg.Error) as error:
                self._note(str(error) or type(error).__name__)
                await asyncio.sleep(self._backoff.delay_seconds(failures, jitter()))
                failures += 1
                continue
            failures = 0
            self._note("")
            await wait_set(self._woken, _EVERY_SECONDS)

    async def once(self) -> int:
        """Acknowledge everything that is due; return how many. Raises what prevents it."""
        scope = self._scope
        found = await self._client.list(
            CONFIG_MAPS, scope.namespace, label_selector=scope.label_selector
        )
        waiting = [key for item in found.items for key in tombstones(shard_of(item).entries)]
        keys = await self._recorded_of(waiting) if waiting else []
        for first in range(0, len(keys), MOST_AT_ONCE):
            await self._proxy.acknowledge(keys[first : first + MOST_AT_ONCE])
        return len(keys)

    def _note(self, problem: str) -> None:
        if bool(problem) != bool(self.problem):
            event = "released partitions wait to be acknowledged" if problem else "acknowledged"
            log.info(event, problem=problem)
        self.problem = problem
