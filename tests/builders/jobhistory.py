"""A history of jobs, pods and partitions, as the recorders leave it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.utils import timezone

from jobs.models import JobAttempt, JobRecord, JobTransition
from partitions.models import PartitionLifetime
from usage.models import PodLifetime

SPEC = {
    "jobInstances": 1,
    "ipusPerJobInstance": "4",
    "workersPerJobInstance": 1,
    "restartPolicy": {"type": "OnFailure", "backOffLimit": 3},
    "launcher": {"command": ["mpirun", "--allow-run-as-root", "python3", "train.py"]},
    "workers": {"template": {"spec": {"containers": [{"name": "worker", "image": "poplar:3"}]}}},
}


def job(name: str = "train", namespace: str = "team-a", **fields: Any) -> JobRecord:
    """Store a job, running since an hour unless told otherwise."""
    created = fields.pop("created_at", None) or timezone.now() - dt.timedelta(hours=1)
    defaults: dict[str, Any] = {
        "uid": f"uid-{namespace}-{name}",
        "namespace": namespace,
        "name": name,
        "group": namespace,
        "ipus": 4,
        "workers": 1,
        "status": "Running",
        "reason": "IPUJobRunning",
        "message": f"IPUJob {name} is running.",
        "spec": SPEC,
        "conditions": [
            {
                "type": "Running",
                "status": "True",
                "reason": "IPUJobRunning",
                "message": f"IPUJob {name} is running.",
                "lastTransitionTime": "2026-11-21T10:00:00Z",
            }
        ],
        "created_at": created,
        "started_at": created,
        "updated_at": created,
    }
    return JobRecord.objects.create(**(defaults | fields))


def jobs(count: int, namespace: str = "team-a", **fields: Any) -> None:
    """Store many finished jobs, one each minute, of which two always share their instant."""
    first = timezone.now() - dt.timedelta(minutes=count)
    for number in range(count):
        created = first + dt.timedelta(minutes=number // 2 * 2)
        job(
            f"job-{number:04d}",
            namespace,
            **{"status": "Completed", "created_at": created, **fields},
        )


def pod(of: JobRecord, role: str = "worker", **fields: Any) -> PodLifetime:
    """Store a pod of a job, scheduled 10 s and started 20 s after the job was made."""
    began = of.created_at + dt.timedelta(seconds=2)
    name = f"{of.name}-launcher" if role == "launcher" else f"{of.name}-worker-0"
    defaults: dict[str, Any] = {
        "uid": f"{of.uid}-{role}-{fields.get('attempt', 0)}-{fields.get('pod_name', name)}",
        "namespace": of.namespace,
        "pod_name": name,
        "claim": "operator",
        "component": "ipujob",
        "component_name": of.name,
        "group": of.group,
        "job_uid": of.uid,
        "role": role,
        "instance": 0,
        "attempt": 0,
        "phase": "Running",
        "node": "node-1",
        "partition": f"p-{of.name}",
        "cpu_millicores": 2000,
        "memory_bytes": 4 * 2**30,
        "micro_ipus": 0 if role == "launcher" else 4_000_000,
        "created_at": began,
        "scheduled_at": began + dt.timedelta(seconds=8),
        "started_at": began + dt.timedelta(seconds=18),
        "updated_at": began,
    }
    return PodLifetime.objects.create(**(defaults | fields))


def partition(of: JobRecord, **fields: Any) -> PartitionLifetime:
    """Store the partition of a job, held since the job was made."""
    defaults: dict[str, Any] = {
        "key": f"{of.uid}/0/{fields.get('attempt', 0)}",
        "job_uid": of.uid,
        "namespace": of.namespace,
        "job_name": of.name,
        "partition": f"p-{of.name}-{of.namespace}-0",
        "controller": "vipu-1",
        "size": 4,
        "machines": {"ag0": [0, 1, 2, 3]},
        "phase": "active",
        "group": of.group,
        "reserved_at": of.created_at,
        "active_at": of.created_at + dt.timedelta(seconds=1),
        "updated_at": of.created_at,
    }
    return PartitionLifetime.objects.create(**(defaults | fields))


def attempt(of: JobRecord, number: int = 0, **fields: Any) -> JobAttempt:
    """Store an attempt of instance 0."""
    defaults = {"instance": 0, "attempt": number, "outcome": of.status, "began_at": of.created_at}
    return JobAttempt.objects.create(job=of, **(defaults | fields))


def transition(of: JobRecord, state: str, seconds: int, reason: str = "") -> JobTransition:
    """Store a change of state, some seconds after the job was made."""
    at = of.created_at + dt.timedelta(seconds=seconds)
    return JobTransition.objects.create(
        job=of, at=at, state=state, reason=reason, message=f"It is {state}."
    )
