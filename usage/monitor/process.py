"""glue: builds the monitor process from the settings."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from django.conf import settings

from ipuhub import composition, heartbeats, schema
from ipuhub.process.runtime import until_stopped
from ipuhub.recording.store import connection_arguments
from ipuhub.times import utc_now
from usage.monitor.api import PodCensus
from usage.monitor.rounds import MONITOR, Monitor, MonitorOptions
from usage.monitor.store import MonitorStore

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from usage.monitor.rounds import Tally

NAME = "ipuhub-monitor"


async def monitor_once() -> Tally:
    """Run one round."""
    async with (
        composition.cluster_client(NAME) as client,
        contextlib.aclosing(build_monitor(client)) as monitor,
    ):
        return await monitor.round()


async def run_monitor() -> None:
    """Run rounds until SIGTERM or SIGINT. Raises what `composition.running` raises."""
    async with (
        composition.running(NAME, MONITOR) as process,
        contextlib.aclosing(build_monitor(process.client)) as monitor,
    ):
        process.metrics.at_scrape(monitor.fill_metrics)
        async with (
            schema.migrating(process.health),
            heartbeats.writing_heartbeats(heartbeats.MONITOR, database()),
        ):
            await until_stopped(monitor.run(process.health))


def database() -> dict[str, Any]:
    """Return how the monitor reaches PostgreSQL."""
    return connection_arguments(settings.DATABASES["default"])


def build_monitor(client: KubeClient) -> Monitor:
    """The monitor, by the settings."""
    stale_seconds = settings.MONITOR_STALE_SECONDS
    store = MonitorStore(database(), stale_seconds)
    options = MonitorOptions(
        stale_seconds=stale_seconds, round_seconds=settings.MONITOR_ROUND_SECONDS
    )
    return Monitor(PodCensus(client, utc_now), store, utc_now, options)
