"""io: what a pass sees: one job, its children and its partitions, all from local copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from jobs.ipujob.manifests import (
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    parse_time,
    uid_of,
)
from jobs.ipujob.names import LABEL_JOB_UID, JobKey, launcher_name
from jobs.ipujob.rules import USUAL_RULES
from jobs.operator import pods as podview
from jobs.operator.actions import Kind
from jobs.operator.caches import BY_JOB
from jobs.operator.contents import contents_of
from jobs.operator.judgements import Judgements
from jobs.operator.keptstatus import recovered, whole
from jobs.operator.observed import Child, Observed
from jobs.operator.ownership import claimed_key, controller_of, is_pod_of
from jobs.partitionview import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobs.builders.context import PodOptions
    from jobs.ipujob.manifests import (
        Manifest,
    )
    from jobs.ipujob.rules import Rules
    from jobs.operator.caches import Caches
    from jobs.operator.observed import Fault
    from jobs.operator.partitions import PartitionFacts


log = structlog.get_logger(__name__)
_MOST_NAMED = 3


class Observer:
    """Makes an `Observed` of the caches; asks nobody."""

    def __init__(
        self,
        caches: Caches,
        facts: PartitionFacts,
        options: PodOptions,
        rules: Rules = USUAL_RULES,
    ) -> None:
        self._caches = caches
        self._facts = facts
        self._options = options
        self._rules = rules
        self._ignored: dict[str, int] = {}
        self._judgements = Judgements()

    @property
    def ignored_pods(self) -> int:
        """How many pods say that they are a job's and are not, as of the last look at each job."""
        return sum(self._ignored.values())

    def observe(self, uid: str, fault: Fault | None = None) -> Observed | None:
        """The job of this UID; None: nothing is left of it."""
        job = self._caches.job(uid)
        if job is None:
            self._judgements.forget(uid)
        claims = self._caches.pods.by_index(BY_JOB, uid)
        key = self._key(uid, job, claims)
        pods = [pod for pod in claims if key is not None and is_pod_of(pod, key)]
        if len(pods) != len(claims) or uid in self._ignored:
            self._ignore(uid, [p for p in claims if key is None or not is_pod_of(p, key)])
        if key is None:
            return None
        partitions, children = self._facts.of(uid), self._children(key)
        held = any(p.phase != Phase.RELEASED for p in partitions.values())
        is_left = held or any(child.is_orphan_of(uid) for child in children.values())
        if job is None and not pods and not is_left:
            return None
        views = tuple(podview.from_manifest(pod) for pod in pods)
        if job is not None and job.get("status"):
            status = recovered(whole(job["status"]), views, partitions)
            job = job if status is job["status"] else job | {"status": status}
        limits = self._rules.limits
        privileges = self._rules.privileges.of_namespace(self._caches.pod_profile(key.namespace))
        return Observed(
            key=key,
            job=job,
            pods=views,
            children=children,
            partitions=partitions,
            proxy_problem=self._facts.problem,
            group=self._caches.group_of(key.namespace),
            is_namespace_ending=self._caches.is_ending(key.namespace),
            fault=fault,
            options=self._options,
            limits=limits,
            privileges=privileges,
            patience=self._rules.patience,
            judged=self._judgements.of(key, job, limits, privileges) if job is not None else None,
        )

    def _key(self, uid: str, job: Manifest | None, claims: Sequence[Manifest]) -> JobKey | None:
        if job is not None:
            return JobKey(namespace_of(job), name_of(job), uid)
        owner = self._facts.owner(uid)
        if owner is not None:
            return JobKey(*owner, uid)
        left = [pod for pod in claims if is_pod_of(pod, claimed_key(pod))] or self._orphans(uid)
        # Several may say so, each in its namespace: one after another, those that go already last.
        return claimed_key(min(left, key=is_being_deleted)) if left else None

    def _orphans(self, uid: str) -> list[Manifest]:
        """What the garbage collector will not take away: nothing controls it any more."""
        return [
            manifest
            for kind, cache in self._caches.children.items()
            if kind is not Kind.POD
            for manifest in cache.by_index(BY_JOB, uid)
            if not controller_of(manifest)
            and name_of(manifest) == launcher_name(claimed_key(manifest).name)
        ]

    def _ignore(self, uid: str, strangers: Sequence[Manifest]) -> None:
        """Counts them, and tells once that there are any."""
        if not strangers:
            del self._ignored[uid]
            return
        if uid not in self._ignored:
            named = [f"{namespace_of(p)}/{name_of(p)}" for p in strangers[:_MOST_NAMED]]
            log.warning(
                "pods that say they are a job's are ignored: another namespace, name or controller",
                job=uid,
                pods=named,
            )
        self._ignored[uid] = len(strangers)

    def _children(self, key: JobKey) -> dict[Kind, Child]:
        name = launcher_name(key.name)
        found = {}
        for kind, cache in self._caches.children.items():
            manifest = None if kind is Kind.POD else cache.get(key.namespace, name)
            if manifest is not None:
                found[kind] = _child(kind, manifest)
        return found


def _child(kind: Kind, manifest: Manifest) -> Child:
    claimed, controller = labels_of(manifest).get(LABEL_JOB_UID, ""), controller_of(manifest)
    return Child(
        kind=kind,
        namespace=namespace_of(manifest),
        name=name_of(manifest),
        uid=uid_of(manifest),
        job_uid=claimed if controller in {"", claimed} else "",
        has_owner=bool(controller),
        is_deleting=is_being_deleted(manifest),
        contents=manifest["contents"] if "contents" in manifest else contents_of(manifest),
        made_at=parse_time(metadata(manifest).get("creationTimestamp")),
    )
