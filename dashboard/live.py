"""glue: live data of the cluster and the V-IPU Proxy, or the last good answer during an outage.

Builds the web process's readers from settings, once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.utils import timezone

from ipuhub.kube.errors import ApiError, ConfigError
from ipuhub.web.readings import NO_CONFIG, Latest, LatestKeeper, Reading, attempt
from jobs.ipujob.names import IPUJOBS
from jobs.ipujob.storedstatus import with_read_status
from partitions.connections import sources
from partitions.errors import PartitionsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest
    from ipuhub.partition import Partition
    from partitions.connections import Sources
    from partitions.fleetjson import FleetJson

_ERRORS = (ApiError, PartitionsError)


@dataclass(frozen=True)
class LiveState:
    """All that the overview shows of the present."""

    jobs: Reading[Sequence[Manifest]] = field(default_factory=lambda: Reading(()))
    partitions: Reading[Sequence[Partition]] = field(default_factory=lambda: Reading(()))
    fleet: Reading[FleetJson] = field(default_factory=lambda: Reading({}))

    @property
    def readings(self) -> tuple[Reading[Any], ...]:
        """All three readings, each with its own problem."""
        return (self.jobs, self.partitions, self.fleet)

    @property
    def is_whole(self) -> bool:
        return not any(reading.problem for reading in self.readings)


class LiveReader:
    """Reads jobs, partitions and the fleet side by side, at most twice a second: in the thread of a
    keeper while there is one, else in a thread that answers a request.

    A source that does not answer keeps its last value, with its age and a sentence. `connect`
    may raise ConfigError; it is tried again at the next reading.
    """

    def __init__(self, connect: Callable[[], Sources]) -> None:
        self._connect = connect
        self._latest = Latest(
            LiveState(), self._read, lambda state: state.is_whole, fresh_seconds=0.5
        )

    def read(self, now: datetime) -> LiveState:
        """Return the state at `now`; concurrent readers share one round of requests."""
        return self._latest.at(now)

    def keeper(self) -> LatestKeeper:
        """Return a thread that reads for requests, once it is started."""
        return LatestKeeper(self._latest, timezone.now)

    def _read(self, old: LiveState, now: datetime) -> LiveState:
        try:
            sources = self._connect()
        except ConfigError as error:
            detail = str(error)
            return LiveState(
                replace(old.jobs, problem=NO_CONFIG, detail=detail),
                replace(old.partitions, problem=NO_CONFIG, detail=detail),
                replace(old.fleet, problem=NO_CONFIG, detail=detail),
            )
        return sources.kube.run(_read_all, sources, old, now)


async def _read_all(sources: Sources, old: LiveState, now: datetime) -> LiveState:
    proxy, cluster = "The V-IPU Proxy", "The Kubernetes API"
    jobs, partitions, fleet = await asyncio.gather(
        attempt(list_jobs(sources.kube.client, old.jobs.value), old.jobs, now, cluster, _ERRORS),
        attempt(sources.proxy.list(), old.partitions, now, proxy, _ERRORS),
        attempt(sources.proxy.fleet(), old.fleet, now, proxy, _ERRORS),
    )
    return LiveState(jobs, partitions, fleet)


async def list_jobs(client: KubeClient, last: Sequence[Manifest]) -> Sequence[Manifest]:
    """List the jobs, with their statuses as read. While none changes it is the same object, so do
    not modify it."""
    found = (await client.list(IPUJOBS)).items
    if _versions(found) == _versions(last):
        return last
    return [with_read_status(job) for job in found]


def _versions(jobs: Sequence[Manifest]) -> list[tuple[str, str]]:
    return [(each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in jobs]


@lru_cache(maxsize=1)
def live_reader() -> LiveReader:
    """Return the process's one reader of the present."""
    return LiveReader(sources)
