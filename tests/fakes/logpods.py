"""Pods of a job whose logs a page reads, on an API server without nodes."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import PODS
from tests.builders import jobhistory

if TYPE_CHECKING:
    from jobs.models import JobRecord
    from tests.fakes.background import Background, Cluster
    from usage.models import PodLifetime

BEGAN = dt.datetime(2026, 11, 20, 9, tzinfo=dt.UTC)


def at(seconds: float) -> str:
    return f"{BEGAN + dt.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def running(seconds: float = 0) -> dict[str, Any]:
    return {"running": {"startedAt": at(seconds)}}


def ended(code: int, seconds: float = 60) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "startedAt": at(0), "finishedAt": at(seconds)}}


class LogPods:
    """Pods of a job in a cluster whose status a test writes in place of a node."""

    def __init__(self, background: Background, cluster: Cluster, job: JobRecord) -> None:
        self._background, self._cluster, self._job = background, cluster, job

    def add(self, role: str = "launcher", *, log: str | None = None, **sim: str) -> PodLifetime:
        """A pod that has not started, and its record."""
        notes = {f"sim/{key}": value for key, value in sim.items()}
        if log is not None:
            notes["sim/log"] = log
        name = f"{self._job.name}-{role}"
        body = {
            "metadata": {
                "name": name,
                "annotations": notes,
                "labels": {"graphcore.ai/ipujob-uid": self._job.uid, "graphcore.ai/role": role},
            },
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
        }
        uid = self.run("create", PODS, body, self._job.namespace)["metadata"]["uid"]
        return jobhistory.pod(self._job, role, uid=uid, pod_name=name)

    def say(self, pod: PodLifetime, state: dict[str, Any], **more: Any) -> None:
        """Write the status of its container."""
        one = {"name": "main", "state": state, "restartCount": 0, **more}
        status = {"status": {"containerStatuses": [one]}}
        self.run("patch", PODS, pod.pod_name, status, pod.namespace, subresource="status")

    def note(self, pod: PodLifetime, log: str) -> None:
        patch = {"metadata": {"annotations": {"sim/log": log}}}
        self.run("patch", PODS, pod.pod_name, patch, pod.namespace)

    def delete(self, pod: PodLifetime) -> None:
        self.run("delete", PODS, pod.pod_name, pod.namespace, grace_period_seconds=0)

    def run(self, verb: str, *given: Any, **options: Any) -> Any:
        async def call() -> Any:
            async with KubeClient(load_config(self._cluster.kubeconfig)) as client:
                return await getattr(client, verb)(*given, **options)

        return self._background.run(call())
