"""io: what the cluster and the V-IPU Proxy say now; the last good answer while one is away."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ipuhub.kube.errors import ApiError, ConfigError
from jobs.resources import IPUJOBS
from partitions.errors import PartitionsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from ipuhub.kube.blocking import BlockingKubeClient
    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.types import Manifest
    from partitions.proxyclient import PartitionRecord, ProxyClient

_T = TypeVar("_T")


@dataclass(frozen=True)
class Reading(Generic[_T]):
    """A value, when it was read, and what stops a newer one (empty: nothing)."""

    value: _T
    read_at: datetime | None = None
    problem: str = ""


@dataclass(frozen=True)
class LiveState:
    """All that the overview shows."""

    jobs: Reading[Sequence[Manifest]] = field(default_factory=lambda: Reading(()))
    partitions: Reading[Sequence[PartitionRecord]] = field(default_factory=lambda: Reading(()))
    stats: Reading[Mapping[str, Any]] = field(default_factory=lambda: Reading({}))


@dataclass(frozen=True)
class Sources:
    """Open connections: the cluster, and the proxy on the same event loop."""

    kube: BlockingKubeClient
    proxy: ProxyClient


class LiveReader:
    """Reads jobs, partitions and stats side by side, at most once in `fresh_seconds`.

    A source that does not answer keeps its last value, with its age and a sentence. `connect`
    may raise ConfigError; it is tried again at the next reading.
    """

    def __init__(self, connect: Callable[[], Sources], *, fresh_seconds: float = 1.0) -> None:
        self._connect = connect
        self._fresh_seconds = fresh_seconds
        self._sources: Sources | None = None
        self._state = LiveState()
        self._asked_at: datetime | None = None
        self._lock = threading.Lock()

    def read(self, now: datetime) -> LiveState:
        """Return the state at `now`; concurrent readers share one round of requests."""
        with self._lock:
            asked = self._asked_at
            if asked is None or (now - asked).total_seconds() >= self._fresh_seconds:
                self._state = self._read(now)
                self._asked_at = now
            return self._state

    def _read(self, now: datetime) -> LiveState:
        old = self._state
        try:
            sources = self._sources = self._sources or self._connect()
        except ConfigError as error:
            problem = str(error)
            return LiveState(
                replace(old.jobs, problem=problem),
                replace(old.partitions, problem=problem),
                replace(old.stats, problem=problem),
            )
        return sources.kube.run(_read_all, sources, old, now)


async def _read_all(sources: Sources, old: LiveState, now: datetime) -> LiveState:
    jobs, partitions, stats = await asyncio.gather(
        _attempt(_list_jobs(sources.kube.client), old.jobs, now, "The Kubernetes API"),
        _attempt(sources.proxy.list(), old.partitions, now, "The V-IPU Proxy"),
        _attempt(sources.proxy.stats(), old.stats, now, "The V-IPU Proxy"),
    )
    return LiveState(jobs, partitions, stats)


async def _list_jobs(client: KubeClient) -> Sequence[Manifest]:
    return (await client.list(IPUJOBS)).items


async def _attempt(
    reading: Awaitable[_T], last: Reading[_T], now: datetime, who: str
) -> Reading[_T]:
    try:
        return Reading(await asyncio.wait_for(reading, timeout=5.0), now)
    except (ApiError, PartitionsError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        return replace(last, problem=f"{who} does not answer: {reason}")
