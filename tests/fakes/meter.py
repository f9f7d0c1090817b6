"""The whole way of metering in one place: pods on the embedded API, a real prober, real Postgres.

Synchronous for tests that read pages and files as well: server and prober live in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from django.conf import settings

from devcluster.demo.cluster import write_account_kubeconfig
from devcluster.server import DevCluster
from ipuhub.backoff import Backoff
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import NotFound
from ipuhub.kube.resources import NAMESPACES, PODS
from ipuhub.kube.watch import Pace
from ipuhub.models import WatchCheckpoint
from ipuhub.process.health import Health
from ipuhub.recording.recording import Recording, RecordingOptions
from ipuhub.recording.store import connection_arguments
from tests.fakes.waiting import eventually
from usage.monitor.api import PodCensus
from usage.monitor.rounds import Monitor
from usage.monitor.store import MonitorStore
from usage.pods.recorder import PodRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from tests.fakes.background import Background
    from usage.monitor.rounds import Tally
    from usage.pods.recorder import PodSelection

QUICK = RecordingOptions(
    batch_seconds=0.02, pace=Pace(backoff=Backoff(0.02, 0.2)), backoff=Backoff(0.02, 0.2)
)
NODE = "node-1"


def usage(**fields: Any) -> str:
    """Return an annotation's text; `fields` override the fields of a plain job of ada."""
    stamp = {"component": "job", "component_name": "train", "group": "vision", "user": "ada"}
    return orjson.dumps({**stamp, "instance_type": "cpu-1", **fields}).decode()


def spans(began: str, ended: str | None = None, *, phase: str = "") -> dict[str, Any]:
    """The status of a pod that was scheduled and ran so; instants are written as in manifests."""
    ran: dict[str, Any] = {"running": {"startedAt": began}}
    if ended:
        ran = {"terminated": {"exitCode": 0, "startedAt": began, "finishedAt": ended}}
    return {
        "phase": phase or ("Succeeded" if ended else "Running"),
        "conditions": [condition("PodScheduled", began)],
        "containerStatuses": [
            {"name": "main", "image": "a", "imageID": "", "ready": False, "restartCount": 0}
            | {"state": ran}
        ],
    }


def condition(kind: str, at: str, status: str = "True", reason: str = "") -> dict[str, str]:
    """One condition of a pod."""
    return {"type": kind, "status": status, "lastTransitionTime": at, "reason": reason}


@dataclass
class Meter:
    """An API server that can go away and come back, and as many probers as a test wants."""

    background: Background
    directory: Path
    _server: DevCluster = field(init=False)
    _revision: int = 0

    def __post_init__(self) -> None:
        self._server = DevCluster(self.directory, authorization="rbac")
        self.background.run(self._server.start())

    @property
    def kubeconfig(self) -> str:
        return str(self._server.kubeconfig)

    def kubeconfig_of(self, account: str) -> str:
        """A kubeconfig that acts as service account `namespace/name`."""

        async def write() -> str:
            async with KubeClient(load_config(self.kubeconfig)) as client:
                there = Path(self.kubeconfig)
                path = await write_account_kubeconfig(client, there, self.directory, account)
            return str(path)

        return str(self.background.run(write()))

    def close(self) -> None:
        self.background.run(self._server.stop())

    def restart_api(self) -> None:
        """The API server comes back at its address without its watch history."""
        port = int(self._server.url.rpartition(":")[2])
        self.close()
        with contextlib.closing(sqlite3.connect(self.directory / "objects.sqlite")) as file, file:
            file.execute("DELETE FROM changes")
        self._server = DevCluster(self.directory, port=port, authorization="rbac")
        self.background.run(self._server.start())

    @contextmanager
    def probing(
        self, selection: PodSelection | None = None, *, kubeconfig: str = "", **database: Any
    ) -> Iterator[Health]:
        """Run a prober; at the end everything that was there is recorded."""
        health = Health()
        recording = self._recording(selection, kubeconfig, health, database)
        task = self.background.run(_begun(recording))
        try:
            yield health
            self.recorded()
        finally:
            self.background.run(_ended(task, recording))

    def list_once(self) -> None:
        """Record one full list, as `run_prober --once` does."""
        recording = self._recording(None, "", Health(), {})

        async def work() -> None:
            await recording.list_once("asked for")
            await recording._client.close()

        self.background.run(work())

    def look(self, *, later: timedelta) -> Tally:
        """A monitor is started, goes one round `later` than now, and ends."""
        return self.background.run(self._look(lambda: datetime.now(UTC) + later))

    async def _look(self, clock: Callable[[], datetime]) -> Tally:
        async with KubeClient(load_config(self.kubeconfig)) as client:
            store = MonitorStore(connection_arguments(settings.DATABASES["default"]), 300.0)
            monitor = Monitor(PodCensus(client, clock), store, clock)
            try:
                return await monitor.round()
            finally:
                await monitor.aclose()

    def recorded(self) -> None:
        """Wait until the last change made here is committed."""
        self.background.run(_until(self._is_recorded))

    def pod(
        self,
        name: str,
        status: dict[str, Any] | None = None,
        *,
        stamp: str | None = "",
        namespace: str = "default",
        requests: dict[str, str] | None = None,
        **spec: Any,
    ) -> str:
        """Make a pod with this status and annotation (None: without annotation); return its UID."""
        annotations = {} if stamp is None else {"primehub.io/usage": stamp or usage()}
        container: dict[str, Any] = {"name": "main", "image": "train:1"}
        if requests is not None:
            container["resources"] = {"requests": requests}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [container], **spec},
        }
        return self.background.run(self._make(body, namespace, status))

    def change(self, name: str, status: dict[str, Any], namespace: str = "default") -> None:
        """Let a pod's status become this."""
        self.background.run(self._change(name, namespace, status))

    def delete(self, name: str, namespace: str = "default") -> None:
        """Take a pod away at once, as its kubelet does at the end."""
        self.background.run(self._delete(name, namespace))

    def apply(self, resource: Any, body: dict[str, Any], namespace: str | None = None) -> None:
        """Create any object."""
        self.background.run(self._apply(resource, body, namespace))

    def _recording(
        self, selection: Any, kubeconfig: str, health: Health, database: dict[str, Any]
    ) -> Recording[Any]:
        client = KubeClient(load_config(kubeconfig or self.kubeconfig))
        tables = connection_arguments(settings.DATABASES["default"]) | database
        now = lambda: datetime.now(UTC)  # noqa: E731
        return Recording(client, PodRecorder(selection), tables, health, now, QUICK)

    def _is_recorded(self) -> bool:
        known = WatchCheckpoint.objects.filter(name="pods").values_list("resource_version").first()
        return known is not None and int(known[0] or 0) >= self._revision

    def _hear(self, manifest: dict[str, Any]) -> None:
        self._revision = int(manifest["metadata"]["resourceVersion"])

    async def _make(
        self, body: dict[str, Any], namespace: str, status: dict[str, Any] | None
    ) -> str:
        async with KubeClient(load_config(self.kubeconfig)) as client:
            try:
                await client.get(NAMESPACES, namespace)
            except NotFound:
                await client.create(NAMESPACES, {"metadata": {"name": namespace}})
            made = await client.create(PODS, body, namespace)
            self._hear(made)
        if status is not None:
            await self._change(body["metadata"]["name"], namespace, status)
        return str(made["metadata"]["uid"])

    async def _change(self, name: str, namespace: str, status: dict[str, Any]) -> None:
        async with KubeClient(load_config(self.kubeconfig)) as client:
            self._hear(
                await client.patch(PODS, name, {"status": status}, namespace, subresource="status")
            )

    async def _delete(self, name: str, namespace: str) -> None:
        async with KubeClient(load_config(self.kubeconfig)) as client:
            await client.delete(PODS, name, namespace, grace_period_seconds=0)
            self._revision += 1  # the deletion is a change too

    async def _apply(self, resource: Any, body: dict[str, Any], namespace: str | None) -> None:
        async with KubeClient(load_config(self.kubeconfig)) as client:
            await client.create(resource, body, namespace)


async def _begun(recording: Recording[Any]) -> asyncio.Task[None]:
    return asyncio.create_task(recording.run())


async def _ended(task: asyncio.Task[None], recording: Recording[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await recording._client.close()


async def _until(is_so: Any) -> None:
    await eventually(lambda: asyncio.to_thread(_closing, is_so))


def _closing(read: Any) -> Any:
    """Read Postgres in a thread that leaves no connection behind."""
    from django.db import connections

    try:
        return read()
    finally:
        connections.close_all()
