"""glue: the monitor as a process: settings, health page, metrics, an orderly end."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from django.conf import settings

from ipuhub.composition import metrics_guard
from ipuhub.kube.client import KubeClient
from ipuhub.process import metrics, metrictable
from ipuhub.process.health import Health
from ipuhub.process.metricspage import metrics_route
from ipuhub.process.runtime import until_stopped
from ipuhub.recording.store import connection_arguments
from usage.monitor.api import PodCensus
from usage.monitor.rounds import MONITOR, Monitor, MonitorOptions
from usage.monitor.store import MonitorStore

if TYPE_CHECKING:
    from ipuhub.kube.credentials import ClusterConfig
    from usage.monitor.rounds import Tally


def utc_now() -> datetime:
    """The monitor's clock."""
    return datetime.now(UTC)


async def monitor_once(config: ClusterConfig) -> Tally:
    """Go one round."""
    async with KubeClient(config, user_agent="ipuhub-monitor") as client:
        meters = metrics.of_process(MONITOR, health=Health())
        monitor = build_monitor(client, meters)
        try:
            return await monitor.round()
        finally:
            await monitor.close()


async def run_monitor(config: ClusterConfig) -> None:
    """Go round after round until SIGTERM or SIGINT. Raises OSError: the health port is taken."""
    health = Health()
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(KubeClient(config, user_agent="ipuhub-monitor"))
        meters = metrics.of_process(MONITOR, metrictable.WITH_API, health=health)
        metrics.tell_calls(meters, client)
        monitor = build_monitor(client, meters)
        stack.push_async_callback(monitor.close)
        page = metrics_route(meters, metrics_guard(client))
        runner = await health.serve(settings.HEALTH_HOST, settings.HEALTH_PORT, [page])
        stack.push_async_callback(runner.cleanup)
        await until_stopped(monitor.run(health))


def build_monitor(client: KubeClient, meters: metrics.Meters) -> Monitor:
    """The monitor, by the settings."""
    stale_seconds = settings.MONITOR_STALE_SECONDS
    store = MonitorStore(connection_arguments(settings.DATABASES["default"]), stale_seconds)
    options = MonitorOptions(stale_seconds, settings.MONITOR_ROUND_SECONDS)
    return Monitor(PodCensus(client, utc_now), store, meters, utc_now, options)
