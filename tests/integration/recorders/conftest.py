"""A whole prober of jobs and partitions: embedded API, real proxy, vipu-server and Postgres."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.db.backends.signals import connection_created

from devcluster.demo.cluster import write_account_kubeconfig
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import NotFound
from ipuhub.kube.resources import EVENTS
from ipuhub.kube.token import TokenSource
from ipuhub.partition import TrackerPlace
from ipuhub.process.health import Health
from ipuhub.recording.recording import Recording, RecordingOptions
from ipuhub.recording.store import connection_arguments
from jobs.ipujob.names import IPUJOBS
from partitions.client import ProxyClient
from tests.fakes.proxylab import SYSTEM
from tests.integration.jobs.conftest import install_crd
from tests.integration.proxy.conftest import lab  # noqa: F401  # a fixture
from usage.prober import JobsAndPartitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.fakes.proxylab import Lab

OPTIONS = RecordingOptions(batch_seconds=0.02)


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Prober:
    """A running prober and its parts."""

    parts: JobsAndPartitions
    recordings: list[Recording[Any]]

    async def run(self) -> None:
        async with self.parts.running(), asyncio.TaskGroup() as group:
            for recording in self.recordings:
                group.create_task(recording.run())


@dataclass
class Site:
    """The lab, and probers on it with the rights of `ipuhub-prober`."""

    lab: Lab
    folder: Path
    proxy_url: str = "http://127.0.0.1:1"

    @asynccontextmanager
    async def probing(self) -> AsyncIterator[Prober]:
        account = f"{SYSTEM}/ipuhub-prober"
        path = await write_account_kubeconfig(
            self.lab.client, Path(self.lab.kubeconfig), self.folder, account
        )
        database = connection_arguments(connection.settings_dict)
        async with (
            KubeClient(load_config(str(path))) as client,
            ProxyClient(self.proxy_url, TokenSource(client, account, "ipuhub-proxy")) as proxy,
        ):
            place = TrackerPlace(SYSTEM, self.lab.tracker, capacity_seconds=0.1)
            parts = JobsAndPartitions(client, proxy, database, utc_now, place)
            recordings = [
                Recording(client, recorder, database, Health(), utc_now, OPTIONS)
                for recorder in (parts.jobs, parts.partitions)
            ]
            parts.partitions.known_until = lambda: recordings[1].committed_until
            task = asyncio.create_task(Prober(parts, recordings).run())
            try:
                yield Prober(parts, recordings)
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def make(self, job: dict[str, Any]) -> dict[str, Any]:
        body = {**job, "metadata": {**job["metadata"]}}
        for bookkeeping in ("uid", "resourceVersion", "generation", "creationTimestamp"):
            body["metadata"].pop(bookkeeping, None)
        status = body.pop("status", None)
        made = await self.lab.client.create(IPUJOBS, body)
        return await self.patch_status(made, status) if status else made

    async def patch_status(self, job: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        meta = job["metadata"]
        return await self.lab.client.patch(
            IPUJOBS, meta["name"], {"status": status}, meta["namespace"], subresource="status"
        )


@pytest.fixture
def own_connections(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets asynchronous tests look into Postgres between their awaits.

    Django opens a connection for each of their contexts, which this fixture closes.
    """
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    opened: list[Any] = []

    def note(connection: Any, **_: Any) -> None:
        opened.append(connection)

    connection_created.connect(note)
    yield
    connection_created.disconnect(note)
    for one in opened:
        one.close()


@pytest.fixture
async def site(
    lab: Lab,  # noqa: F811
    tmp_path: Path,
    own_connections: None,
) -> AsyncIterator[Site]:
    await install_crd(lab.client)
    # A real server has what other tests left.
    await remove_jobs(lab.client)
    await remove_events(lab.client)
    yield Site(lab, tmp_path)
    await remove_jobs(lab.client)


async def remove_jobs(client: KubeClient) -> None:
    """Delete the jobs of all namespaces, with or without an operator to let them go."""
    for job in (await client.list(IPUJOBS)).items:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        with contextlib.suppress(NotFound):
            await client.delete(IPUJOBS, name, namespace)
            await client.patch(IPUJOBS, name, {"metadata": {"finalizers": None}}, namespace)
    while (await client.list(IPUJOBS)).items:
        await asyncio.sleep(0.02)


async def remove_events(client: KubeClient) -> None:
    """Delete the Events of all namespaces."""
    for event in (await client.list(EVENTS)).items:
        with contextlib.suppress(NotFound):
            await client.delete(EVENTS, event["metadata"]["name"], event["metadata"]["namespace"])
