"""domain: the values that every builder of a job's manifests needs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.ipujob.names import (
    ANNOTATION_CREATED_BY,
    ANNOTATION_USAGE,
    API_VERSION,
    KIND,
    annotations_of,
    common_labels,
    metadata,
)
from jobs.ipujob.podstandards import ANNOTATIONS

if TYPE_CHECKING:
    from ipuhub.partition import Partition
    from jobs.ipujob.names import (
        JobKey,
        Manifest,
    )
    from jobs.ipujob.spec import JobSpec

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MICRO_IPUS = 1_000_000
_NOT_INHERITED = ("ipuhub.io/", *(prefix for control in ANNOTATIONS for prefix in control.fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """The operator's settings about pods."""

    host_network: bool = True
    launcher_image: str = "localhost/ipuhub-launcher"
    launcher_image_pull_policy: str = "IfNotPresent"
    launcher_pull_secrets: tuple[str, ...] = ()
    vipu_timeout_seconds: int = 120
    launcher_wait_seconds: float = 0.0
    mpi_interfaces: str = ""
    scheduler_name: str = ""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """One parsed job and its place. `group`: who its usage is accounted to. `fingerprint`: what the
    pods say they were made from (`jobs.operator.effectivespec`)."""

    key: JobKey
    job: Manifest
    spec: JobSpec
    group: str = ""
    options: PodOptions = field(default_factory=PodOptions)
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Which part of a job a pod is: its instance, attempt and the partition it works on."""

    instance: int
    attempt: int
    partition: Partition


def child_metadata(key: JobKey, name: str) -> Manifest:
    """Return metadata of an object that belongs to the job and is deleted with it."""
    return {
        "name": name,
        "namespace": key.namespace,
        "labels": common_labels(key),
        "ownerReferences": [owner_reference(key)],
    }


def owner_reference(key: JobKey) -> Manifest:
    """The reference that lets Kubernetes collect the object when the job is gone."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": key.name,
        "uid": key.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def inherited_annotations(job: Manifest) -> dict[str, str]:
    """Return the job's annotations that its pods get.

    Left out are kubectl's bookkeeping, IPUHub's own annotations, and those that the kubelet obeys:
    they belong in the pod template, where they are checked.
    """
    return {
        key: value
        for key, value in annotations_of(job).items()
        if key != LAST_APPLIED and not key.startswith(_NOT_INHERITED)
    }


def usage_annotation(context: BuildContext, place: PodPlace, micro_ipus: int) -> dict[str, str]:
    """Return the stamp by which usage is accounted; `micro_ipus` are millionths of an IPU."""
    stamp: dict[str, str | int] = {
        "component": "ipujob",
        "component_name": context.key.name,
        "group": context.group or context.key.namespace,
        "instance_type": f"ipu-{context.spec.partition_size}",
        "partition": place.partition.id,
        "ipus": micro_ipus,
    }
    created_by = metadata(context.job).get("annotations", {}) or {}
    if created_by.get(ANNOTATION_CREATED_BY):
        stamp["user"] = created_by[ANNOTATION_CREATED_BY]
    return {ANNOTATION_USAGE: json.dumps(stamp, sort_keys=True, separators=(",", ":"))}


def micro_ipus_of(size: int, workers: int, position: int) -> int:
    """Return one worker's share of a partition of `size` IPUs, in millionths.

    The workers with the lowest numbers get the remainder, so that the shares add up exactly.
    """
    share, rest = divmod(size * MICRO_IPUS, workers)
    return share + (1 if position < rest else 0)
