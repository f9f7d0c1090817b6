"""A generated API server, rows as a prober left them, and a monitor that looks at both."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.conf import settings
from psycopg.rows import dict_row

from ipuhub.kube.client import KubeClient
from ipuhub.kube.credentials import ClusterConfig
from ipuhub.recording.store import connection_arguments
from tests.fakes.podstream import PodStream, expected_row, pod_of, uid_of
from usage.monitor.api import PodCensus
from usage.monitor.rounds import Monitor, MonitorOptions
from usage.monitor.store import MonitorStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NOW = datetime(2026, 11, 5, 12, tzinfo=UTC)
STALE = 300
_ROW = """
INSERT INTO usage_podlifetime (uid, cluster_uid, namespace, pod_name, node, claim, component,
    component_name, "group", "user", user_verified, instance_type, job_uid, role, partition,
    cpu_millicores, memory_bytes, gpus, accelerators, micro_ipus, phase, reason, created_at,
    scheduled_at, end_source, estimated, uncertainty_seconds, updated_at)
VALUES (%s, %s, %s, %s, '', 'namespace', '', '', '', '', false, '', '', '', '', 0, 0, 0, '{}', 0,
    'Running', '', %s, %s, '', false, 0, %s)
"""
_WATCH = """
INSERT INTO ipuhub_watchcheckpoint
    (name, cluster_uid, resource_version, selection, epoch, position_at, namespace)
VALUES ('pods', %s, %s, 'all', %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET cluster_uid = excluded.cluster_uid, epoch = excluded.epoch,
    resource_version = excluded.resource_version, position_at = excluded.position_at,
    namespace = excluded.namespace
"""


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@dataclass
class Lookout:
    """The world of one monitor."""

    server: PodStream
    database: dict[str, Any]
    options: MonitorOptions = field(default_factory=lambda: MonitorOptions(stale_seconds=STALE))
    now: datetime = NOW
    seconds_a_look: float = 0
    at_look: Callable[[], object] = lambda: None
    monitors: list[Monitor] = field(default_factory=list)
    clients: list[KubeClient] = field(default_factory=list)

    def monitor(self) -> Monitor:
        client = KubeClient(ClusterConfig(self.server.url), timeout_seconds=5)
        self.clients.append(client)
        census = PodCensus(client, self._look, list_limit=10)
        store = MonitorStore(self.database, self.options.stale_seconds)
        monitor = Monitor(census, store, lambda: self.now, self.options)
        self.monitors.append(monitor)
        return monitor

    def _look(self) -> datetime:
        """The clock of a caller of the API server, which takes its time."""
        self.at_look()
        self.now += timedelta(seconds=self.seconds_a_look)
        return self.now

    async def close(self) -> None:
        for monitor in self.monitors:
            await monitor.aclose()
        for client in self.clients:
            await client.close()

    def remember(self, number: int, updated_at: datetime, cluster: str = "cluster-1") -> None:
        """A row that a prober wrote of running pod `number` at `updated_at`."""
        scheduled = expected_row(number).scheduled_at
        values = (uid_of(number), cluster, f"team-{number % 3}", f"pod-{number}")
        self.execute(_ROW, *values, scheduled, scheduled, updated_at)

    def run_pod(self, number: int, **meta: Any) -> None:
        """A pod that runs in the cluster."""
        pod = pod_of(number, "RUNNING")
        pod["metadata"] |= meta
        self.server.put("ADDED", pod)

    def watched(
        self,
        revision: int,
        position_at: datetime,
        *,
        cluster: str = "cluster-1",
        epoch: int = 1,
        namespace: str = "",
    ) -> None:
        """Return how far the prober came."""
        self.execute(_WATCH, cluster, str(revision), epoch, position_at, namespace)

    def execute(self, sql: str, *values: Any) -> None:
        with psycopg.connect(**self.database) as connection:
            connection.execute(sql, values)

    def row(self, number: int) -> dict[str, Any]:
        with psycopg.connect(**self.database, row_factory=dict_row) as connection:
            sql = "SELECT * FROM usage_podlifetime WHERE uid = %s"
            return connection.execute(sql, [uid_of(number)]).fetchone() or {}

    def is_open(self, number: int) -> bool:
        return self.row(number)["finished_at"] is None

    def last_round(self) -> dict[str, Any]:
        with psycopg.connect(**self.database, row_factory=dict_row) as connection:
            return connection.execute("SELECT * FROM usage_monitorround").fetchone() or {}


@pytest.fixture
async def lookout(transactional_db: None) -> AsyncIterator[Lookout]:
    tables = connection_arguments(settings.DATABASES["default"])
    async with PodStream() as server:
        lookout = Lookout(server, tables)
        try:
            yield lookout
        finally:
            await lookout.close()
