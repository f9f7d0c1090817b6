"""The floor: what the operator writes for a job, issued with no logic at all.

`CONCURRENCY` workers take jobs as they are submitted and write for each, one after another:
the PUT that reserves the partition through the running proxy (which makes it on the running
vipu-server and writes the tracker), the launcher's four objects at the same time, the first status,
the worker, the launcher, and the status Running, without waiting for a pod to run; the Events that
the operator tells a job go out beside that, four at a time. What is sent is what the operator
sends, planned once for a job of the same shape, with the names of each job put in. It watches
nothing, reads nothing and keeps nothing. Without a proxy the reservation is left out, and with it
all of proxy, vipu-server and tracker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipuhub.kube import resources
from jobs.ipujob.names import IPUJOBS, RESOURCE_OF, Kind
from jobs.operator.actions import CreateChild, EnsurePartition, PatchStatus
from jobs.operator.plan import plan
from tests.bench.jobtimes import job_manifest
from tests.bench.surroundings import CONCURRENCY
from tests.builders.ipujobs import NOW, launcher, observed, partition, worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest
    from jobs.operator.actions import Action, Event
    from partitions.client import ProxyClient

EVENT_WRITERS = 4
_NAME, _UID = "job-template", "00000000-1111-2222-3333-444444444444"
_PARTITION = {"id": f"p-{_NAME}-of-the-burst-0", "controller": "127.0.0.1:28090"}


@dataclass(frozen=True)
class Bodies:
    """The operator's requests for one job, in their order: the launcher's objects, the first
    status, pods, the status Running; and its Events."""

    access: list[tuple[str, Manifest]]
    pending: Manifest
    pods: list[tuple[str, Manifest]]
    running: Manifest
    events: list[Manifest]


class Template:
    """The bodies of a job of one namespace and shape, planned by the operator's own code."""

    def __init__(self, namespace: str, *, has_launcher: bool) -> None:
        job = job_manifest(namespace, _NAME, has_launcher)
        job["metadata"] |= {"uid": _UID, "generation": 1}
        job["metadata"]["creationTimestamp"] = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.size = next(
            a.size for a in plan(observed(job), NOW).actions if isinstance(a, EnsurePartition)
        )
        active = (partition(**_PARTITION),)
        actions = plan(observed(job, partitions=active), NOW).actions
        made = [(str(a.kind), a.manifest) for a in actions if isinstance(a, CreateChild)]
        pending = _patch(actions)
        job["status"] = pending.status
        pods = [worker(job).running(), *([launcher(job).running()] if has_launcher else ())]
        seen = observed(job, *pods, partitions=active, with_children=has_launcher)
        running = _patch(plan(seen, NOW).actions)
        events = [event(job, one) for patch in (pending, running) for one in patch.events]
        bodies = Bodies(
            [one for one in made if one[0] != "Pod"],
            pending.status,
            [one for one in made if one[0] == "Pod"],
            running.status,
            events,
        )
        self._text = json.dumps(vars(bodies))

    def of(self, job: Manifest) -> Bodies:
        """The bodies of a job."""
        meta = job["metadata"]
        text = self._text.replace(_NAME, meta["name"]).replace(_UID, meta["uid"])
        return Bodies(**json.loads(text))


@dataclass
class Floor:
    """Writes for the jobs of a template; `proxy` None: nothing is reserved."""

    client: KubeClient
    proxy: ProxyClient | None
    template: Template
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
            await self.client.create(resources.EVENTS, await self._events.get())

    async def _write(self, job: Manifest) -> None:
        bodies = self.template.of(job)
        await self._reserve(job)
        await asyncio.gather(*(self._create(*one) for one in bodies.access))
        await self._status(job, bodies.pending)
        for one in bodies.pods:
            await self._create(*one)
        for each in bodies.events:
            self._events.put_nowait(each)
        await self._status(job, bodies.running)

    async def _reserve(self, job: Manifest) -> None:
        meta = job["metadata"]
        phase = "" if self.proxy is not None else "active"
        while self.proxy is not None and phase != "active":
            record = await self.proxy.ensure(
                uid=meta["uid"],
                namespace=meta["namespace"],
                name=meta["name"],
                instance=0,
                size=self.template.size,
                attempt=0,
            )
            phase = record.phase
            self._held.add(meta["uid"])

    async def _status(self, job: Manifest, status: Manifest) -> None:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        await self.client.patch(IPUJOBS, name, {"status": status}, namespace, subresource="status")

    async def _create(self, kind: str, manifest: Manifest) -> None:
        await self.client.create(RESOURCE_OF[Kind(kind)], manifest)


def _patch(actions: tuple[Action, ...]) -> PatchStatus:
    return next(action for action in actions if isinstance(action, PatchStatus))


def event(job: Manifest, source: Event) -> Manifest:
    """Return an Event about a job, with the fields that the operator's have."""
    meta = job["metadata"]
    at = meta["creationTimestamp"]
    about = {key: meta[key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
        "involvedObject": {"apiVersion": job["apiVersion"], "kind": job["kind"]} | about,
        "source": {"component": "ipuhub-operator"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "type": "Warning" if source.is_warning else "Normal",
        "reason": source.reason,
        "message": source.message,
    }
