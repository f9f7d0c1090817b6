"""glue: builds our processes from the settings: leadership, clients, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from ipuhub.kube.access import Reviewer
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import ConfigError
from ipuhub.kube.leaderelection import LeaseTiming
from ipuhub.kube.token import FixedToken, TokenSource
from ipuhub.process import logs
from ipuhub.process.leaderlabel import identity_of
from ipuhub.process.leadership import LeadershipOptions
from ipuhub.process.metricspage import Guard
from ipuhub.process.process import ClusterProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from ipuhub.process.metrics import Meters
    from ipuhub.process.process import Process

T = TypeVar("T")
PROXY_AUDIENCE = "ipuhub-proxy"


def run(
    work: Callable[[], Coroutine[Any, Any, T]],
    *refusals: type[Exception],
    runner: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run,
) -> T:
    """Set up the log and run `work`. ConfigError and `refusals` become a CommandError.

    `work` is called last: a coroutine made before the settings are read would never be awaited
    when one of them is wrong.
    """
    logs.configure(settings.LOG_LEVEL, settings.LOG_FORMAT)
    known: tuple[type[Exception], ...] = (ConfigError, *refusals)
    try:
        return runner(work())
    except known as error:
        raise CommandError(str(error)) from error


@contextlib.asynccontextmanager
async def running(
    name: str, *meters: Meters, elects: bool = False
) -> AsyncIterator[ClusterProcess]:
    """Yield process `name`, which works with the API server and serves its pages meanwhile.

    With `elects` it has a Lease of this name. Raises ConfigError without credentials, for
    impossible times of the Lease, and when the health port is taken.
    """
    async with cluster_client(name) as client:
        process = ClusterProcess(client, *meters)
        if elects:
            process.elect(leadership_options(name))
        async with serving(process, process.metrics_guard(settings.METRICS_TOKEN)):
            yield process


def serving(process: Process, guard: Guard) -> contextlib.AbstractAsyncContextManager[None]:
    """Serve the pages of `process` where the settings say."""
    return process.serving(settings.HEALTH_HOST, settings.HEALTH_PORT, guard)


def cluster_client(name: str) -> KubeClient:
    """Return the client of process `name`. Raises ConfigError without credentials."""
    return KubeClient(load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT), user_agent=name)


def proxy_client(client: KubeClient) -> Any:
    """Return the client of the V-IPU Proxy, which the settings name."""
    return import_string(settings.PROXY_CLIENT)(settings.PROXY_URL, proxy_token(client))


def proxy_token(client: KubeClient) -> Callable[[], Awaitable[str]]:
    """Return the given token, or else a token that is requested for the own account and renewed."""
    if settings.SERVICE_ACCOUNT and not settings.PROXY_TOKEN:
        return TokenSource(client, settings.SERVICE_ACCOUNT, PROXY_AUDIENCE)
    return FixedToken(settings.PROXY_TOKEN)


def leadership_options(lease: str) -> LeadershipOptions | None:
    """Return the settings of leader election; None: it is off. Raises ConfigError for invalid
    times."""
    if not settings.LEADER_ELECTION:
        return None
    timing = LeaseTiming(
        duration_seconds=settings.LEASE_DURATION_SECONDS,
        renew_deadline_seconds=settings.LEASE_RENEW_SECONDS,
        retry_seconds=settings.LEASE_RETRY_SECONDS,
    )
    # A pod's host name is its name cut at 63 characters.
    pod = settings.POD_NAME or socket.gethostname()
    identity = settings.IDENTITY or identity_of(pod, secrets.token_hex(4))
    name = f"{settings.LEASE_PREFIX}{lease}"
    return LeadershipOptions(
        namespace=settings.NAMESPACE, lease=name, identity=identity, timing=timing
    )


@contextlib.asynccontextmanager
async def standalone_metrics_guard(name: str) -> AsyncIterator[Guard]:
    """Yield the guard of the metrics of a process that needs no API server: the API server is
    looked up when a token has to be verified."""
    async with contextlib.AsyncExitStack() as stack:
        made: list[Reviewer] = []

        def reviewer() -> Reviewer:
            if not made:
                client = cluster_client(name)
                stack.push_async_callback(client.close)
                made.append(Reviewer(client, audience=""))
            return made[0]

        yield Guard(settings.METRICS_TOKEN, reviewer)
