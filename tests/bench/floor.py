"""The floor: what the operator writes for a job, issued with no logic at all.

`CONCURRENCY` workers take jobs as they are submitted and write for each, in the operator's order:
the PUT that reserves the partition through the running proxy (which makes it on the running
vipu-server and writes the tracker), the launcher's four objects at the same time, the first status,
the worker, the launcher, and the status Running, without waiting for a pod to run; three Events a
job go out beside that, four at a time. It watches nothing, reads nothing and keeps nothing.
Without a proxy the reservation is left out, and with it all of proxy, vipu-server and tracker.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ipuhub.kube import resources
from jobs.resources import IPUJOBS
from tests.bench.surroundings import CONCURRENCY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.types import Manifest
    from partitions.proxyclient import ProxyClient

EVENT_WRITERS = 4
_RBAC = "rbac.authorization.k8s.io"
_KINDS = {
    "ConfigMap": resources.CONFIG_MAPS,
    "ServiceAccount": resources.SERVICE_ACCOUNTS,
    "Role": resources.ROLES,
    "RoleBinding": resources.ROLE_BINDINGS,
    "Pod": resources.PODS,
    "Event": resources.EVENTS,
}


@dataclass
class Floor:
    """Writes for one kind of job; `proxy` None: nothing is reserved."""

    client: KubeClient
    proxy: ProxyClient | None
    launcher: bool
    jobs: asyncio.Queue[Manifest] = field(default_factory=asyncio.Queue)
    _events: asyncio.Queue[Manifest] = field(default_factory=asyncio.Queue)
    _held: set[str] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have the workers at work."""
        workers = [asyncio.create_task(self._work()) for _ in range(CONCURRENCY)]
        workers += [asyncio.create_task(self._tell()) for _ in range(EVENT_WRITERS)]
        try:
            yield
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def release(self) -> None:
        """Give all partitions back: the tracker outlives the round."""
        if self.proxy is not None:
            await asyncio.gather(*(self.proxy.release(uid, 0) for uid in self._held))

    async def _work(self) -> None:
        while True:
            await self._write(await self.jobs.get())

    async def _tell(self) -> None:
        while True:
            await self._create(await self._events.get())

    async def _write(self, job: Manifest) -> None:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        await self._reserve(job)
        if self.launcher:
            objects = access(namespace, f"{name}-launcher")
            await asyncio.gather(*(self._create(manifest) for manifest in objects))
        await self._status(job, "Pending")
        await self._create(pod(name, namespace, f"{name}-worker-0"))
        if self.launcher:
            await self._create(pod(name, namespace, f"{name}-launcher"))
        await self._status(job, "Running")

    async def _reserve(self, job: Manifest) -> None:
        meta = job["metadata"]
        phase = "" if self.proxy is not None else "active"
        while self.proxy is not None and phase != "active":
            record = await self.proxy.ensure(
                uid=meta["uid"],
                namespace=meta["namespace"],
                name=meta["name"],
                instance=0,
                size=1,
                attempt=0,
            )
            phase = record.phase
            self._held.add(meta["uid"])

    async def _status(self, job: Manifest, state: str) -> None:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        message = f"IPUJob {namespace}/{name} is {state}."
        condition = {"type": state, "status": "True", "reason": f"IPUJob{state}"}
        body = {
            "launcherStatus": state,
            "conditions": [condition | {"message": message}],
            "lastMessage": message,
            "desiredReplicas": 1,
            "instances": [{"index": 0, "attempt": 0, "state": state}],
        }
        await self.client.patch(IPUJOBS, name, {"status": body}, namespace, subresource="status")
        self._events.put_nowait(event(job, state, message))
        if state == "Pending":
            self._events.put_nowait(event(job, "PartitionActive", message))

    async def _create(self, manifest: Manifest) -> None:
        await self.client.create(_KINDS[manifest["kind"]], manifest)


def access(namespace: str, name: str) -> list[Manifest]:
    """ConfigMap, ServiceAccount, Role and RoleBinding of a launcher, about as large."""
    meta = {"name": name, "namespace": namespace}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": _RBAC, "kind": "Role", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "y" * 600}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def pod(job: str, namespace: str, name: str) -> Manifest:
    """Return a pod about as large as the operator's."""
    env: list[dict[str, Any]] = [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(8)]
    container = {"name": "main", "image": "resnet:latest", "env": env, "command": ["sleep", "9"]}
    meta = {"name": name, "namespace": namespace, "labels": {"graphcore.ai/ipujob-name": job}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


def event(job: Manifest, reason: str, message: str) -> Manifest:
    """Return an Event about a job."""
    meta = job["metadata"]
    about = {key: meta[key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
        "involvedObject": {"apiVersion": job["apiVersion"], "kind": job["kind"]} | about,
        "reason": reason,
        "message": message,
        "type": "Normal",
    }
