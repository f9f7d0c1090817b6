"""io: drives the pods that are bound to the stand-in nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from devcluster.kubelet.behaviour import (
    Behaviour,
    are_workers_ready,
    attempt_of,
    is_worker,
    waits_for_workers,
)
from devcluster.kubelet.containers import TERMINAL, is_running
from devcluster.kubelet.life import PodState, Situation
from devcluster.kubelet.machine import advance, build_patch
from devcluster.kubelet.scheduler import run_workers
from devcluster.kubelet.world import BY_ATTEMPT, BY_NODE, delete_pod
from devcluster.processes.podfiles import MissingError
from ipuhub.kube.errors import NotFound
from ipuhub.kube.informer import key_of
from ipuhub.kube.resources import PODS
from ipuhub.kube.workqueue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devcluster.kubelet.life import Step
    from devcluster.kubelet.nodes import StandInNode
    from devcluster.kubelet.world import World
    from devcluster.processes.runtime import ProcessRuntime
    from ipuhub.kube.informer import ObjectKey
    from ipuhub.kube.resources import Manifest

_LEFT_SECONDS: Final = 1.0
_MISSING_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Run:
    """One pod on its node; `is_removed`: nothing is left to do but to see it go.

    `is_left`: the API server was left a moment to remove it.
    """

    state: PodState
    ip: str
    is_left: bool = False
    is_removed: bool = False


class PodDriver:
    """Writes the status of each pod as it goes through its life, and removes deleted pods.

    A status is written only when it changes. Memory holds nothing that the API does not have,
    but fractions of a second.
    """

    def __init__(
        self,
        world: World,
        nodes: Mapping[str, StandInNode],
        runtime: ProcessRuntime | None = None,
    ) -> None:
        self._world, self._runtime = world, runtime
        if runtime is not None:
            runtime.listen(lambda pod: self._queue.add(key_of(pod)))
        self._stand_ins = nodes
        self._recorder = world.recorder("kubelet")
        self._queue: WorkQueue[ObjectKey] = WorkQueue(first_seconds=0.1, max_seconds=30.0)
        self._runs: dict[str, _Run] = {}
        world.pods.add_handler(self._on_pod)

    async def run(self) -> None:
        """Drive pods until cancelled."""
        await self._world.pods.wait_synced()
        concurrency = self._world.options.concurrency
        await run_workers(self._queue, self._drive, concurrency, "pods")

    def _on_pod(self, old: Manifest | None, new: Manifest | None) -> None:
        pod = new or old
        if pod is None:
            return
        if new is None:
            self._runs.pop(pod["metadata"]["uid"], None)
            if self._runtime is not None:
                self._runtime.forget(pod["metadata"]["uid"])
        elif new["spec"].get("nodeName") in self._stand_ins:
            self._queue.add(key_of(new))
        if is_worker(pod):
            for launcher in self._world.pods.by_index(BY_ATTEMPT, attempt_of(pod)):
                if waits_for_workers(launcher):
                    self._queue.add(key_of(launcher))

    async def _drive(self, key: ObjectKey) -> None:
        pod = self._world.pods.get(*key)
        node = None if pod is None else self._stand_ins.get(pod["spec"].get("nodeName") or "")
        if pod is None or node is None:
            return
        run = self._run_of(pod, node)
        if run.is_removed:
            return
        if not await self._is_prepared(key, pod, run, node):
            return
        now, runtime = self._world.now(), self._runtime
        situation = Situation(
            now,
            Behaviour(pod, self._world.options.durations),
            node.ip,
            run.ip,
            waits_for_workers(pod) and self._has_workers(pod),
            None if runtime is None else runtime.ends_of(run.state.status, now),
        )
        step = advance(pod, run.state, situation)
        await self._operate(pod, step)
        if step.is_changed:
            await self._write(pod, step)
        run.state = step.state
        if step.remove:
            if pod["metadata"].get("deletionGracePeriodSeconds") == 0 and not run.is_left:
                # The server removes it itself, unless it was stopped just now.
                run.is_left = True
                self._queue.add_after(key, _LEFT_SECONDS)
                return
            await delete_pod(self._world.client, pod, grace_seconds=0)
            run.is_removed = True
        elif step.wake_at is not None:
            self._queue.add_after(key, (step.wake_at - now).total_seconds())

    async def _is_prepared(
        self, key: ObjectKey, pod: Manifest, run: _Run, node: StandInNode
    ) -> bool:
        """Return whether the pod's volumes are there, where its containers are processes."""
        is_over = run.state.status["phase"] in TERMINAL or pod["metadata"].get("deletionTimestamp")
        if self._runtime is None or is_over:
            return True
        ips = {"status.podIP": run.ip, "status.hostIP": node.ip}
        try:
            await self._runtime.prepare(pod, ips)
        except MissingError as error:
            note = f"MountVolume.SetUp failed: {error}"
            await self._recorder.record(pod, type="Warning", reason="FailedMount", message=note)
            self._queue.add_after(key, _MISSING_SECONDS)
            return False
        return True

    async def _operate(self, pod: Manifest, step: Step) -> None:
        """Start and signal the processes of a step."""
        if self._runtime is None:
            return
        for name in ("initContainerStatuses", "containerStatuses"):
            for status in step.state.status.get(name) or ():
                if is_running(status):
                    await self._runtime.start(pod, status)
        for identity, number in step.signals.items():
            self._runtime.signal(identity, number)

    def _has_workers(self, pod: Manifest) -> bool:
        return are_workers_ready(pod, self._world.pods.by_index(BY_ATTEMPT, attempt_of(pod)))

    def _run_of(self, pod: Manifest, node: StandInNode) -> _Run:
        uid = pod["metadata"]["uid"]
        run = self._runs.get(uid)
        if run is None:
            state = PodState.observed(pod)
            ip = state.status.get("podIP") or node.choose_pod_ip(self._taken(node))
            run = self._runs[uid] = _Run(state, ip)
        ended_elsewhere = (pod.get("status") or {}).get("phase") in TERMINAL
        if ended_elsewhere and run.state.status["phase"] not in TERMINAL:
            run.state = PodState.observed(pod)
        return run

    def _taken(self, node: StandInNode) -> set[str]:
        pods = self._world.pods.by_index(BY_NODE, node.name)
        runs = (self._runs.get(pod["metadata"]["uid"]) for pod in pods)
        return {(pod.get("status") or {}).get("podIP", "") for pod in pods} | {
            run.ip for run in runs if run
        }

    async def _write(self, pod: Manifest, step: Step) -> None:
        metadata = pod["metadata"]
        patch = build_patch(metadata["uid"], step.state.status)
        where = (metadata["name"], patch, metadata["namespace"])
        try:
            await self._world.client.patch(
                PODS, *where, subresource="status", patch_type="strategic"
            )
        except NotFound:
            return  # force-deleted; the watch will say so
        for note in step.notes:
            await self._recorder.record(
                pod, type=note.type, reason=note.reason, message=note.message
            )
