"""glue: the web process's shared connections to the cluster and to the V-IPU Proxy.

Also the proxy's current answers to `/stats` and `/query`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from ipuhub.kube.blocking import BlockingKubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ConfigError
from ipuhub.kube.token import FixedToken, TokenSource
from ipuhub.web.readings import NO_CONFIG, PATIENCE_SECONDS, Latest, Reading, attempt
from partitions.client import ProxyClient
from partitions.errors import PartitionsError, ProxyUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

PROXY_AUDIENCE = "ipuhub-proxy"
_OPENING: Final = threading.Lock()


@dataclass(frozen=True)
class Sources:
    """Open connections: the cluster, and the proxy on the same event loop."""

    kube: BlockingKubeClient
    proxy: ProxyClient

    def close(self) -> None:
        """End them and their thread."""
        self.kube.run(self.proxy.close)
        self.kube.close()


def sources() -> Sources:
    """Return the process's connections; both clients connect at their first request.

    Raises ConfigError without a usable kubeconfig, and tries again at the next call.
    """
    with _OPENING:  # threads that come together at the start would open a connection each
        return opened()


@lru_cache(maxsize=1)
def opened() -> Sources:
    """The connections of `sources`, which alone calls it."""
    config = load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT)
    kube = BlockingKubeClient(config, timeout_seconds=PATIENCE_SECONDS)
    token = (
        TokenSource(kube.client, settings.SERVICE_ACCOUNT, PROXY_AUDIENCE)
        if settings.SERVICE_ACCOUNT and not settings.PROXY_TOKEN
        else FixedToken(settings.PROXY_TOKEN)
    )
    proxy = ProxyClient(settings.PROXY_URL, token, timeout_seconds=PATIENCE_SECONDS)
    return Sources(kube, proxy)


def close() -> None:
    """Close the process's connections, if any are open."""
    with _OPENING:
        if opened.cache_info().currsize:
            opened().close()
            opened.cache_clear()


PROXY_AWAY: Final = "The V-IPU Proxy does not answer"
Stats = Reading[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Fit:
    """The number of partitions of `size` that fit now; `message` says why none does.

    `available` is false only if no V-IPU controller answered.
    """

    size: int
    count: int
    message: str
    available: bool


class FleetReader:
    """Reads from the proxy; keeps the last statistics, with their age, while it is unavailable."""

    def __init__(self, connect: Callable[[], Sources]) -> None:
        self._connect = connect
        self._stats: Latest[Stats] = Latest(
            Reading({}), self._read, lambda stats: not stats.problem
        )

    def stats(self, now: datetime) -> Stats:
        """IPUs used per namespace and available in the fleet, as `/stats` gives them."""
        return self._stats.at(now)

    def query(self, size: int) -> Fit:
        """Return how many partitions of `size` fit now; raises PartitionsError with a sentence."""
        try:
            connected = self._connect()
        except ConfigError as error:
            raise ProxyUnavailable(str(error)) from error
        found = connected.kube.run(connected.proxy.query, size)
        return Fit(
            size=size,
            count=int(found["numOfPartitions"]),
            message=str(found.get("message") or ""),
            available=bool(found.get("available", True)),
        )

    def _read(self, last: Stats, now: datetime) -> Stats:
        try:
            connected = self._connect()
        except ConfigError as error:
            return replace(last, problem=NO_CONFIG, detail=str(error))
        read_stats = connected.proxy.stats
        return connected.kube.run(_attempt_stats, read_stats, last, now)


async def _attempt_stats(read_stats: Callable[[], Any], last: Stats, now: datetime) -> Stats:
    return await attempt(read_stats(), last, now, "The V-IPU Proxy", (PartitionsError,))


@lru_cache(maxsize=1)
def fleet_reader() -> FleetReader:
    """Return the shared reader of this process."""
    return FleetReader(sources)
