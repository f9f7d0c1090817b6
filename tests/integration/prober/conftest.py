"""A generated API server, a recording into the tests' database, and the rows it made."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.conf import settings
from psycopg.rows import dict_row

from devcluster.server import DevCluster
from ipuhub.backoff import Backoff
from ipuhub.kube.client import KubeClient
from ipuhub.kube.credentials import ClusterConfig
from ipuhub.kube.watch import Pace
from ipuhub.process.health import Health
from ipuhub.recording.recording import Recording, RecordingOptions
from ipuhub.recording.store import connection_arguments
from tests.fakes.podstream import PodStream
from tests.fakes.waiting import eventually
from usage.pods.recorder import PodRecorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

QUICK = RecordingOptions(
    batch_seconds=0.02,
    pace=Pace(backoff=Backoff(0.02, 0.2)),
    backoff=Backoff(0.02, 0.2),
)


@pytest.fixture
def tables(transactional_db: None) -> dict[str, Any]:
    """Return the address of the tests' database, whose tables are empty."""
    return connection_arguments(settings.DATABASES["default"])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[DevCluster]:
    """An embedded cluster of this test alone."""
    cluster = DevCluster(tmp_path / "cluster")
    await cluster.start()
    yield cluster
    await cluster.stop()


@dataclass
class Lab:
    """Recordings of one API server, and what they wrote."""

    server: PodStream
    database: dict[str, Any]
    options: RecordingOptions = QUICK
    now: Any = lambda: datetime.now(UTC)
    health: list[Health] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    clients: list[KubeClient] = field(default_factory=list)

    def start(self, recorder: Any = None) -> asyncio.Task[None]:
        """Start another prober."""
        task = asyncio.create_task(self.recording(recorder).run())
        self.tasks.append(task)
        return task

    def recording(self, recorder: Any = None) -> Recording[Any]:
        client = KubeClient(ClusterConfig(self.server.url))
        self.clients.append(client)
        health = Health()
        self.health.append(health)
        chosen = recorder or PodRecorder()
        return Recording(client, chosen, self.database, health, self.now, self.options)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self.tasks.clear()
        for client in self.clients:
            await client.close()
        self.clients.clear()

    def query(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(**self.database, row_factory=dict_row) as connection:
            return connection.execute(sql, values).fetchall()

    def execute(self, sql: str) -> None:
        with psycopg.connect(**self.database) as connection:
            connection.execute(sql)

    def rows(self) -> dict[str, dict[str, Any]]:
        """Every lifetime by UID; more rows than UIDs would fail here."""
        found = self.query("SELECT * FROM usage_podlifetime")
        by_uid = {row["uid"]: row for row in found}
        assert len(by_uid) == len(found)
        return by_uid

    def checkpoint(self) -> dict[str, Any]:
        return (self.query("SELECT * FROM ipuhub_watchcheckpoint") or [{}])[0]

    def is_at(self, revision: int) -> bool:
        """Return whether all up to `revision` is committed."""
        return self.checkpoint().get("resource_version") == str(revision)

    def emit(self, numbers: range, *steps: str) -> None:
        """Let each of these pods take these steps."""
        for number in numbers:
            for step in steps:
                self.server.step(number, step)

    async def all_recorded(self) -> None:
        """Wait until everything that was emitted is committed."""
        await self.server.tell()
        await eventually(lambda: self.is_at(self.server.revision))

    def faults(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.query("SELECT * FROM ipuhub_recordfault")}

    def gaps(self) -> list[dict[str, Any]]:
        return self.query("SELECT * FROM ipuhub_watchgap ORDER BY id")


@pytest.fixture
async def lab(tables: dict[str, Any]) -> AsyncIterator[Lab]:
    async with PodStream() as server:
        lab = Lab(server, tables)
        try:
            yield lab
        finally:
            await lab.stop()
