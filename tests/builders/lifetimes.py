"""Rows of pod and partition lifetimes for tests of usage."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from partitions.models import PartitionLifetime
from usage.models import PodLifetime


def at(text: str) -> datetime:
    """The instant written like `2026-11-05T12:00` in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def store_pod(began: str | None, ended: str | None = None, **fields: Any) -> PodLifetime:
    """Store a pod's lifetime; ipus, cpu (cores) and memory_gib may be given in units."""
    start = at(began) if began else None
    units = {
        "micro_ipus": round(fields.pop("ipus", 0) * 1_000_000),
        "cpu_millicores": round(fields.pop("cpu", 1) * 1000),
        "memory_bytes": round(fields.pop("memory_gib", 1) * 2**30),
    }
    defaults: dict[str, Any] = {
        "uid": str(uuid4()),
        "namespace": "team-a",
        "pod_name": "pod",
        "group": "team-a",
        "component": "ipujob",
        "component_name": "job",
        "claim": "operator",
        "instance_type": "ipu-4",
        "created_at": start or at("2026-01-01T00:00"),
        "updated_at": start or at("2026-01-01T00:00"),
        "scheduled_at": start,
        "finished_at": at(ended) if ended else None,
    }
    return PodLifetime.objects.create(**(defaults | units | fields))


def store_partition(began: str, ended: str | None = None, **fields: Any) -> PartitionLifetime:
    """Store a partition's lifetime."""
    defaults: dict[str, Any] = {
        "key": str(uuid4()),
        "job_uid": str(uuid4()),
        "namespace": "team-a",
        "job_name": "job",
        "partition": "p-job-team-a-0",
        "size": 4,
        "phase": "released" if ended else "active",
        "group": "team-a",
        "reserved_at": at(began),
        "released_at": at(ended) if ended else None,
        "updated_at": at(began),
    }
    return PartitionLifetime.objects.create(**(defaults | fields))
