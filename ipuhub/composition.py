"""glue: what every process has: settings about leadership and metrics, and an orderly end."""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.management.base import CommandError

from ipuhub.kube.access import Reviewer
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.leaderelection import LeaseTiming
from ipuhub.process.leadership import LeadershipOptions
from ipuhub.process.metricspage import Guard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp.web import AppRunner, RouteDef

    from ipuhub.process.health import Health


async def serve_health(health: Health, *more: RouteDef) -> AppRunner:
    """Serve `/healthz`, `/readyz` and `more`; the caller calls `cleanup`.

    Raises CommandError when the port is taken.
    """
    host, port = settings.HEALTH_HOST, settings.HEALTH_PORT
    try:
        return await health.serve(host, port, more)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {host}:{port} (set IPUHUB_HEALTH_PORT): {error.strerror}"
        ) from error


def leadership_options(lease: str) -> LeadershipOptions | None:
    """The settings about leader election; None: it is off. Raises ConfigError for bad times."""
    if not settings.LEADER_ELECTION:
        return None
    timing = LeaseTiming(
        settings.LEASE_DURATION_SECONDS, settings.LEASE_RENEW_SECONDS, settings.LEASE_RETRY_SECONDS
    )
    identity = settings.IDENTITY or f"{socket.gethostname()}_{secrets.token_hex(4)}"
    return LeadershipOptions(settings.NAMESPACE, lease, identity, timing)


def metrics_guard(client: KubeClient) -> Guard:
    """Who may read the metrics of a process that speaks to the API server anyway."""
    reviewer = Reviewer(client, audience="")
    return Guard(settings.METRICS_TOKEN, lambda: reviewer)


@contextlib.asynccontextmanager
async def lonely_metrics_guard(user_agent: str) -> AsyncIterator[Guard]:
    """The same for a process that needs no API server: one is looked for when a token has to be
    judged."""
    async with contextlib.AsyncExitStack() as stack:
        made: list[Reviewer] = []

        def reviewer() -> Reviewer:
            if not made:
                config = load_config(settings.KUBECONFIG, settings.KUBE_CONTEXT)
                client = KubeClient(config, user_agent=user_agent)
                stack.push_async_callback(client.close)
                made.append(Reviewer(client, audience=""))
            return made[0]

        yield Guard(settings.METRICS_TOKEN, reviewer)
