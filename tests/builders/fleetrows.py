"""Rows of partitions, capacity, jobs and checkpoints as the recorders leave them."""

from __future__ import annotations

import datetime as dt
from typing import Any

from ipuhub.models import WatchCheckpoint
from jobs.models import JobRecord
from partitions.models import CapacityChange, PartitionLifetime

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def partition_row(job: str, namespace: str = "team-a", **given: Any) -> PartitionLifetime:
    fields: dict[str, Any] = {
        "key": f"key-{namespace}-{job}-{given.get('instance', 0)}",
        "job_uid": f"uid-{job}",
        "namespace": namespace,
        "job_name": job,
        "partition": f"p-{job}-{namespace}-0",
        "controller": "v1:8090",
        "size": 4,
        "phase": "released" if given.get("released_at") else "active",
        "reserved_at": NOON,
        "active_at": NOON,
        "updated_at": NOON,
    }
    return PartitionLifetime.objects.create(**fields | given)


def capacity_row(controller: str, **given: Any) -> CapacityChange:
    fields: dict[str, Any] = {"controller": controller, "at": NOON, "total": 64, "free": 40}
    return CapacityChange.objects.create(**fields | given)


def job_row(name: str, namespace: str = "team-a", **given: Any) -> JobRecord:
    fields: dict[str, Any] = {
        "uid": f"uid-{namespace}-{name}",
        "namespace": namespace,
        "name": name,
        "ipus": 4,
        "workers": 1,
        "status": "Completed" if given.get("completed_at") else "Running",
        "created_at": NOON,
        "started_at": NOON + dt.timedelta(seconds=5),
        "updated_at": NOON,
    }
    return JobRecord.objects.create(**fields | given)


def checkpoint(name: str, at: dt.datetime) -> WatchCheckpoint:
    return WatchCheckpoint.objects.create(name=name, resource_version="1", position_at=at)
