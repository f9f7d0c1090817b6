"""Fluent builders of IPUJobs, their pods and what a plan is made from."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from ipuhub.partition import Partition
from jobs.builders.pods import owner_reference
from jobs.ipujob.names import FINALIZER, JobKey, Kind, launcher_name, pod_labels, worker_name
from jobs.ipujob.privileges import NOBODYS
from jobs.ipujob.spec import UNLIMITED
from jobs.operator.observed import Child, Observed
from jobs.operator.observer import SpecCache
from jobs.operator.ownership import trim_pod
from jobs.operator.pods import from_manifest

if TYPE_CHECKING:
    from jobs.operator.observed import Fault

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """`seconds` after the tests' noon."""
    return NOW + timedelta(seconds=seconds)


class IPUJobBuilder:
    """Starts as seed 001's job: 4 IPUs, one worker, a launcher, with the finalizer."""

    def __init__(self, name: str) -> None:
        self.manifest: dict[str, Any] = {
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUJob",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "generation": 1,
                "resourceVersion": "1",
                "creationTimestamp": "2026-03-01T12:00:00Z",
                "finalizers": [FINALIZER],
            },
            "spec": {
                "modelReplicas": "4",
                "ipusPerModelReplica": "1",
                "launcher": {"command": ["mpirun", "-np", "1", "true"]},
                "workers": {
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}},
                },
            },
        }

    @property
    def spec(self) -> dict[str, Any]:
        return self.manifest["spec"]

    def current_shape(self) -> Self:
        """The 1.x shape, one instance of 4 IPUs."""
        for field in ("modelReplicas", "ipusPerModelReplica"):
            self.spec.pop(field, None)
        self.spec.update(ipusPerJobInstance="4", jobInstances=1)
        return self

    def ipus(self, size: int) -> Self:
        self.current_shape()
        self.spec["ipusPerJobInstance"] = str(size)
        return self

    def workers(self, count: int) -> Self:
        self.spec["workers"]["replicas"] = count
        return self

    def instances(self, count: int) -> Self:
        self.current_shape()
        self.spec["jobInstances"] = count
        return self

    def without_launcher(self) -> Self:
        self.spec.pop("launcher", None)
        return self

    def interactive(self, ttl: int = 3600) -> Self:
        self.spec.pop("launcher", None)
        self.spec["interactive"] = {"ttl": ttl}
        return self

    def clean(self, policy: str) -> Self:
        self.spec["cleanPodPolicy"] = policy
        return self

    def keep_partition(self) -> Self:
        self.spec["keepPartition"] = True
        return self

    def with_spec(self, **fields: Any) -> Self:
        self.spec.update(fields)
        return self

    def with_template(self, **fields: Any) -> Self:
        self.spec["workers"]["template"]["spec"].update(fields)
        return self

    def annotated(self, **annotations: str) -> Self:
        self.manifest["metadata"]["annotations"] = annotations
        return self

    def without_finalizer(self) -> Self:
        self.manifest["metadata"].pop("finalizers")
        return self

    def deleted(self, seconds: float = 0) -> Self:
        stamp = at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.manifest["metadata"]["deletionTimestamp"] = stamp
        return self

    def with_status(self, **fields: Any) -> Self:
        self.manifest.setdefault("status", {}).update(fields)
        return self

    def running(self) -> Self:
        """Write the operator's status of a job whose launcher runs."""
        return self.with_status(
            launcherStatus="Running",
            conditions=[
                {"type": "Pending", "status": "False", "reason": "IPUJobPending"},
                {"type": "Running", "status": "True", "reason": "IPUJobRunning"},
            ],
            instances=[{"index": 0, "attempt": 0, "state": "Running"}],
            iPUPartitionCreated=True,
        )

    def finished(self, state: str = "Completed") -> Self:
        return self.running().with_status(
            launcherStatus=state,
            instances=[{"index": 0, "attempt": 0, "state": state}],
            partitions=[{"instance": 0, "id": "p-0", "controller": "vipu:8090", "state": "active"}],
        )

    def build(self) -> dict[str, Any]:
        return copy.deepcopy(self.manifest)


def ipujob(name: str = "sample") -> IPUJobBuilder:
    """A new IPUJob."""
    return IPUJobBuilder(name)


def key_of(job: dict[str, Any]) -> JobKey:
    """The key of a job's manifest."""
    meta = job["metadata"]
    return JobKey(meta["namespace"], meta["name"], meta["uid"])


class PodBuilder:
    """A pod of a job, Pending and unscheduled at first."""

    def __init__(self, job: dict[str, Any], name: str, role: str, instance: int) -> None:
        key = key_of(job)
        self.manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "uid": f"uid-{name}",
                "labels": pod_labels(key, role, instance, 0),
                "ownerReferences": [owner_reference(key)],
            },
            "spec": {"containers": [{"name": "main", "image": "app:1"}]},
            "status": {"phase": "Pending"},
        }

    def attempt(self, number: int) -> Self:
        self.manifest["metadata"]["labels"]["graphcore.ai/attempt"] = str(number)
        return self

    def scheduled(self) -> Self:
        self.manifest["spec"]["nodeName"] = "node-0"
        return self

    def running(self) -> Self:
        self.scheduled()
        self.manifest["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "main", "state": {"running": {"startedAt": "2026-03-01T12:00:01Z"}}}
            ],
        }
        return self

    def unheard(self) -> Self:
        """Running on a node that has stopped reporting, as the node controller leaves it."""
        self.running()
        self.manifest["status"]["conditions"] = [
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": "True"},
        ]
        return self

    def exited(self, code: int = 0, reason: str = "") -> Self:
        self.scheduled()
        state = {"exitCode": code, "startedAt": "2026-03-01T12:00:01Z"}
        self.manifest["status"] = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{"name": "main", "state": {"terminated": state}}],
        } | ({"reason": reason} if reason else {})
        return self

    def failed(self, code: int, reason: str = "Error", message: str = "") -> Self:
        """The main container's end, as the kubelet tells it."""
        self.exited(code)
        ended = self.manifest["status"]["containerStatuses"][0]["state"]["terminated"]
        ended.update(reason=reason, message=message)
        return self

    def annotated(self, **annotations: str) -> Self:
        self.manifest["metadata"].setdefault("annotations", {}).update(annotations)
        return self

    def with_sidecar(self, code: int, reason: str = "Error") -> Self:
        """A native sidecar, ended with this code after the main container, as by SIGTERM."""
        self.manifest["spec"]["initContainers"] = [
            {"name": "prepare", "image": "app:1"},
            {"name": "logs", "image": "app:1", "restartPolicy": "Always"},
        ]
        ended = {"exitCode": code, "reason": reason, "message": "told to end"}
        self.manifest["status"]["initContainerStatuses"] = [
            {"name": "prepare", "state": {"terminated": {"exitCode": 0}}},
            {"name": "logs", "state": {"terminated": ended}},
        ]
        return self

    def with_status(self, **fields: Any) -> Self:
        self.manifest["status"].update(fields)
        return self

    def with_spec(self, **fields: Any) -> Self:
        self.manifest["spec"].update(fields)
        return self

    def ended_by_operator(self, *, ended: bool = True) -> Self:
        self.running()
        self.manifest["spec"]["activeDeadlineSeconds"] = 1
        if ended:
            self.manifest["status"] = {"phase": "Failed", "reason": "DeadlineExceeded"}
        return self

    def waiting(self, reason: str, message: str = "") -> Self:
        self.scheduled()
        self.manifest["status"]["containerStatuses"] = [
            {
                "name": "main",
                "image": "app:1",
                "state": {"waiting": {"reason": reason, "message": message}},
            }
        ]
        return self

    def unschedulable(self, message: str = "0/4 nodes are available") -> Self:
        self.manifest["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
            }
        ]
        return self

    def deleting(self) -> Self:
        self.manifest["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
        return self

    def build(self) -> dict[str, Any]:
        return copy.deepcopy(self.manifest)


def worker(job: dict[str, Any], number: int = 0, instance: int = 0) -> PodBuilder:
    """Worker pod `number` of the job."""
    name = worker_name(job["metadata"]["name"], number)
    return PodBuilder(job, name, "worker", instance)


def launcher(job: dict[str, Any]) -> PodBuilder:
    """The launcher pod of the job."""
    return PodBuilder(job, launcher_name(job["metadata"]["name"]), "launcher", 0)


def partition(
    instance: int = 0, phase: str = "active", *, size: int = 4, **fields: Any
) -> Partition:
    """A partition; an active partition has an id and a controller."""
    defaults: dict[str, Any] = {
        "id": f"p-{instance}",
        "controller": "vipu:8090",
        "node_selector": {"vipu-ctrl": "vctl1"},
    }
    return Partition(instance=instance, phase=phase, size=size, **(defaults | fields))


def children(job: dict[str, Any], **changes: Any) -> dict[Kind, Child]:
    """ConfigMap, ServiceAccount, Role and RoleBinding of a job."""
    key = key_of(job)
    fields: dict[str, Any] = {"job_uid": key.uid, "has_owner": True, "is_deleting": False}
    return {
        kind: Child(
            kind=kind,
            namespace=key.namespace,
            name=launcher_name(key.name),
            uid=f"uid-{kind}",
            **(fields | changes),
        )
        for kind in Kind
        if kind is not Kind.POD
    }


def observed(
    job: dict[str, Any] | None,
    *pods: PodBuilder,
    partitions: tuple[Partition, ...] = (),
    with_children: bool = False,
    fault: Fault | None = None,
    **fields: Any,
) -> Observed:
    """Return the input of a plan."""
    key = fields.pop("key", None) or key_of(job or {})
    if with_children and job is not None:
        fields.setdefault("children", children(job))
    privileges = fields.pop("privileges", NOBODYS)
    if job is not None:
        limits = fields.get("limits", UNLIMITED)
        judgement = SpecCache().of(key, job, limits, privileges)
        fields |= {"spec": judgement.spec, "problems": judgement.problems}
    return Observed(
        key=key,
        job=job,
        pods=tuple(from_manifest(trim_pod(pod.build())) for pod in pods),
        partitions={p.instance: p for p in partitions},
        fault=fault,
        **fields,
    )
