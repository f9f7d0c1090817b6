"""io: what a pass sees: one job, its children and its partitions, all from local copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs import podview
from jobs.actions import Kind
from jobs.caches import BY_JOB
from jobs.manifests import (
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    uid_of,
)
from jobs.names import LABEL_JOB_NAME, LABEL_JOB_UID, JobKey, launcher_name
from jobs.observed import Child, Observed
from jobs.partitionview import Phase
from jobs.sessionlimits import UNLIMITED
from jobs.waitingline import line_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jobs.builders.context import PodOptions
    from jobs.caches import Caches
    from jobs.manifests import (
        Manifest,
    )
    from jobs.observed import Fault
    from jobs.partitionfacts import PartitionFacts
    from jobs.partitionview import Partition
    from jobs.sessionlimits import SessionLimits


class Observer:
    """Makes an `Observed` of the caches; asks nobody."""

    def __init__(
        self,
        caches: Caches,
        facts: PartitionFacts,
        options: PodOptions,
        limits: SessionLimits = UNLIMITED,
    ) -> None:
        self._caches = caches
        self._facts = facts
        self._options = options
        self._limits = limits
        self._line: dict[str, int] = {}
        self._line_as_of = 0

    def observe(self, uid: str, fault: Fault | None = None) -> Observed | None:
        """The job of this UID; None: nothing is left of it."""
        job = self._caches.job(uid)
        pods = self._caches.pods.by_index(BY_JOB, uid)
        partitions = self._facts.of(uid)
        key = self._key(uid, job)
        held = any(p.phase != Phase.RELEASED for p in partitions.values())
        if key is None:
            return None
        if job is None and not pods and not held and not self._orphans(uid):
            return None
        return Observed(
            key=key,
            job=job,
            pods=tuple(podview.from_manifest(pod) for pod in pods),
            children=self._children(key),
            partitions=partitions,
            proxy_problem=self._facts.problem,
            group=self._caches.group_of(key.namespace),
            is_namespace_ending=self._caches.is_ending(key.namespace),
            fault=fault,
            jobs_before=self._before(uid, partitions),
            options=self._options,
            limits=self._limits,
        )

    def _before(self, uid: str, partitions: Mapping[int, Partition]) -> int:
        """How many wait before a job that waits, as of the last poll: with each one placed, the
        places of all change."""
        if not any(p.phase == Phase.WAITING for p in partitions.values()):
            return 0
        if self._line_as_of != self._facts.polls:
            self._line_as_of = self._facts.polls
            jobs = (self._caches.job(one) for one in self._facts.waiting())
            self._line = line_of(job for job in jobs if job is not None)
        return self._line.get(uid, len(self._line))

    def _key(self, uid: str, job: Manifest | None) -> JobKey | None:
        if job is not None:
            return JobKey(namespace_of(job), name_of(job), uid)
        owner = self._facts.owner(uid)
        if owner is not None:
            return JobKey(*owner, uid)
        for left in (*self._caches.pods.by_index(BY_JOB, uid), *self._orphans(uid)):
            return JobKey(namespace_of(left), labels_of(left).get(LABEL_JOB_NAME, ""), uid)
        return None

    def _orphans(self, uid: str) -> list[Manifest]:
        """What the garbage collector will not take away: no owner is left in it."""
        return [
            manifest
            for cache in self._caches.children.values()
            for manifest in cache.by_index(BY_JOB, uid)
            if not metadata(manifest).get("ownerReferences")
        ]

    def _children(self, key: JobKey) -> dict[Kind, Child]:
        name = launcher_name(key.name)
        found = {}
        for kind, cache in self._caches.children.items():
            manifest = None if kind is Kind.POD else cache.get(key.namespace, name)
            if manifest is not None:
                found[kind] = _child(kind, manifest)
        return found


def _child(kind: Kind, manifest: Manifest) -> Child:
    return Child(
        kind=kind,
        namespace=namespace_of(manifest),
        name=name_of(manifest),
        uid=uid_of(manifest),
        job_uid=labels_of(manifest).get(LABEL_JOB_UID, ""),
        has_owner=bool(metadata(manifest).get("ownerReferences")),
        is_deleting=is_being_deleted(manifest),
    )
