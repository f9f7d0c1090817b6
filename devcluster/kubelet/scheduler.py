"""io: binds pods to nodes, in place of kube-scheduler.

Several workers take keys from one queue, with retries.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog

from devcluster.kubelet.containers import TERMINAL
from devcluster.kubelet.scheduling import Ledger, choose_node, judge_claims, needs_node
from devcluster.kubelet.world import BY_NAMESPACE
from ipuhub.kube.errors import ApiError, Conflict, NotFound
from ipuhub.kube.informer import key_of
from ipuhub.kube.resources import PODS
from ipuhub.kube.workqueue import WorkQueue
from ipuhub.times import format_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from devcluster.kubelet.world import World
    from ipuhub.kube.informer import ObjectKey
    from ipuhub.kube.resources import Manifest

if TYPE_CHECKING:
    K = TypeVar("K", bound=Hashable)
log = structlog.get_logger(__name__)


async def run_workers(
    queue: WorkQueue[K], handle: Callable[[K], Awaitable[None]], count: int, name: str
) -> None:
    """Hand keys to `handle`, `count` at a time, until cancelled; failures are tried again."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_work(queue, handle, name))


async def _work(queue: WorkQueue[Any], handle: Callable[[Any], Awaitable[None]], name: str) -> None:
    while True:
        key = await queue.get()
        try:
            await handle(key)
            queue.forget(key)
        except ApiError as error:
            if queue.failures(key) == 0:
                log.warning("will try again", work=name, key=key, problem=str(error))
            queue.add_rate_limited(key)
        except Exception:  # one odd object must not stop the others
            log.exception("will try again", work=name, key=key)
            queue.add_rate_limited(key)
        finally:
            queue.done(key)


_RETRY_SECONDS: Final = 0.5  # one more look at all waiting pods for a burst of changes


class Scheduler:
    """Finds a node for each pod without a node; those that fit nowhere wait for a change."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._recorder = world.recorder(world.options.scheduler_name)
        self._ledger = Ledger()
        self._queue: WorkQueue[ObjectKey] = WorkQueue(first_seconds=0.1, max_seconds=30.0)
        self._waiting: dict[ObjectKey, None] = {}
        world.pods.add_handler(self._on_pod)
        world.nodes.add_handler(self._on_other)
        world.claims.add_handler(self._on_other)

    async def run(self) -> None:
        """Schedule until cancelled."""
        world = self._world
        for informer in (world.pods, world.nodes, world.claims):
            await informer.wait_synced()
        await run_workers(self._queue, self._schedule, world.options.concurrency, "scheduling")

    def _on_pod(self, old: Manifest | None, new: Manifest | None) -> None:
        if new is None:
            if old is not None:
                self._ledger.forget(old["metadata"]["uid"])
                self._waiting.pop(key_of(old), None)
                self._retry_waiting()
            return
        self._ledger.observe(new)
        if self._is_mine(new):
            self._queue.add(key_of(new))
        elif (new.get("status") or {}).get("phase") in TERMINAL:
            self._retry_waiting()

    def _is_mine(self, pod: Manifest) -> bool:
        return needs_node(pod, self._world.options.scheduler_name)

    def _on_other(self, old: Manifest | None, new: Manifest | None) -> None:
        if old is None or new is None or _fit(old) != _fit(new):
            self._retry_waiting()

    def _retry_waiting(self) -> None:
        for key in self._waiting:
            self._queue.add_after(key, _RETRY_SECONDS)

    async def _schedule(self, key: ObjectKey) -> None:
        world = self._world
        pod = world.pods.get(*key)
        if pod is None or not self._is_mine(pod) or self._ledger.has(pod["metadata"]["uid"]):
            self._waiting.pop(key, None)
            return
        claims = {
            claim["metadata"]["name"]: claim
            for claim in world.claims.by_index(BY_NAMESPACE, key[0])
        }
        problem = judge_claims(pod, claims)
        placement = choose_node(pod, world.nodes.all(), self._ledger, problem)
        if placement.node:
            self._waiting.pop(key, None)
            await self._bind(pod, placement.node)
        else:
            self._waiting[key] = None
            await self._refuse(pod, placement.message)

    async def _bind(self, pod: Manifest, node: str) -> None:
        metadata = pod["metadata"]
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        # Counted before the request: other pods are being placed meanwhile.
        self._ledger.assume(pod, node)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._world.client.create(
                PODS, binding, namespace, name=name, subresource="binding"
            )
        except (NotFound, Conflict):
            self._ledger.forget(uid)  # deleted or bound meanwhile: the watch will say so
        except ApiError:
            self._ledger.forget(uid)
            raise
        else:
            message = f"Successfully assigned {namespace}/{name} to {node}"
            await self._recorder.record(pod, type="Normal", reason="Scheduled", message=message)

    async def _refuse(self, pod: Manifest, message: str) -> None:
        status = pod.get("status") or {}
        found: Manifest = next(
            (
                condition
                for condition in status.get("conditions") or ()
                if condition["type"] == "PodScheduled"
            ),
            {},
        )
        if found.get("message") == message:
            return
        metadata = pod["metadata"]
        patch = _build_refusal(metadata["uid"], message, found, format_time(self._world.now()))
        where = (metadata["name"], patch, metadata["namespace"])
        try:
            await self._world.client.patch(
                PODS, *where, subresource="status", patch_type="strategic"
            )
        except NotFound:
            return
        await self._recorder.record(pod, type="Warning", reason="FailedScheduling", message=message)


def _build_refusal(uid: str, message: str, found: Manifest, now: str) -> dict[str, Any]:
    since = found.get("lastTransitionTime") if found.get("status") == "False" else None
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": since or now,
    }
    return {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}


def _fit(manifest: Manifest) -> Any:
    """Return the parts of a node or claim that can make a pod fit."""
    status = manifest.get("status") or {}
    labels = manifest["metadata"].get("labels")
    return manifest["spec"], labels, status.get("allocatable"), status.get("phase")
