"""io: collects the input of a pass from local copies: one job, its children, its partitions.

Also the operator's caches of what it watches, the parsed spec of each job (not every pass validates
and parses it again), and the order in which jobs request IPUs. The order is no guarantee: whatever
fits gets IPUs, so a small job can overtake older, larger jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.partition import Phase
from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.names import (
    LABEL_GROUP,
    LABEL_JOB_UID,
    JobKey,
    Kind,
    is_being_deleted,
    labels_of,
    launcher_name,
    metadata,
    name_of,
    namespace_of,
    parse_time,
    uid_of,
)
from jobs.ipujob.privileges import LABEL_POD_PROFILE
from jobs.ipujob.rules import USUAL_RULES
from jobs.ipujob.spec import parse_spec
from jobs.ipujob.storedstatus import READ_STATUS, UNWRITTEN
from jobs.ipujob.validation import problems
from jobs.operator.observed import Child, Observed
from jobs.operator.ownership import claimed_key, contents_of, controller_of, is_pod_of
from jobs.operator.pods import from_manifest, on_node, trouble_of_node
from jobs.operator.statuscarrier import recovered, with_carried_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ipuhub.kube.informer import Informer
    from jobs.builders.pods import PodOptions
    from jobs.ipujob.names import Manifest
    from jobs.ipujob.privileges import Privileges
    from jobs.ipujob.rules import Rules
    from jobs.ipujob.spec import JobSpec, SessionLimits
    from jobs.ipujob.validation import Problem
    from jobs.operator.observed import Fault
    from jobs.operator.partitions import PartitionFacts
    from jobs.operator.pods import PodView

BY_UID = "uid"
BY_JOB = "job"
BY_NODE = "node"


@dataclass(frozen=True, slots=True)
class Caches:
    """One cache per kind; `jobs` is indexed by UID, `pods` by the UID of their job."""

    jobs: Informer
    children: Mapping[Kind, Informer]
    namespaces: Informer
    nodes: Informer

    @property
    def pods(self) -> Informer:
        """The pods with the operator's labels."""
        return self.children[Kind.POD]

    def job(self, uid: str) -> Manifest | None:
        """The job with this UID."""
        found = self.jobs.by_index(BY_UID, uid)
        return found[0] if found else None

    def group_of(self, namespace: str) -> str:
        """Return the group that a namespace's usage is accounted to, by its label; empty: none is
        named."""
        found = self.namespaces.get("", namespace)
        return labels_of(found).get(LABEL_GROUP, "") if found else ""

    def pod_profile(self, namespace: str) -> str | None:
        """The pod profile that a namespace's label chooses; None: it has none."""
        found = self.namespaces.get("", namespace)
        return labels_of(found).get(LABEL_POD_PROFILE) if found else None

    def is_ending(self, namespace: str) -> bool:
        """Return whether a namespace is being deleted."""
        found = self.namespaces.get("", namespace)
        return found is not None and is_being_deleted(found)

    def node_trouble(self, name: str) -> str:
        """Return the problem of a node that is not Ready. Empty for a ready node, and where nodes
        are unknown, since the right to list them is optional."""
        found = self.nodes.get("", name)
        return trouble_of_node(found) if found is not None else ""


def by_uid(manifest: Manifest) -> list[str]:
    """Index of jobs."""
    return [uid_of(manifest)]


def by_job(manifest: Manifest) -> list[str]:
    """Index of objects by the job that they belong to."""
    uid = labels_of(manifest).get(LABEL_JOB_UID)
    return [uid] if uid else []


def by_node(pod: Manifest) -> list[str]:
    """Index of pods by the node that they are on."""
    name = (pod.get("spec") or {}).get("nodeName")
    return [name] if name else []


def only_metadata(manifest: Manifest) -> Manifest:
    """Of objects that are only looked for, the contents need no memory."""
    return {key: manifest[key] for key in ("apiVersion", "kind", "metadata") if key in manifest}


@dataclass(frozen=True, slots=True)
class ParsedSpec:
    """A job's spec as parsed, None if it is invalid, and the rules that it breaks."""

    spec: JobSpec | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    written: object
    limits: SessionLimits
    privileges: Privileges
    judgement: ParsedSpec


_NO_JOB = ParsedSpec(None, ())


class SpecCache:
    """Validates and parses specs, and remembers each by the job's UID as long as nothing that it
    depends on has changed: a job is looked at about ten times on its way to Running, and judging it
    would be a third of each plan."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def of(
        self, key: JobKey, job: Mapping[str, object], limits: SessionLimits, privileges: Privileges
    ) -> ParsedSpec:
        """The job's spec, or what is wrong with it."""
        written, known = job.get("spec"), self._known.get(key.uid)
        if (
            known is not None
            and known.written == written
            and (known.limits, known.privileges) == (limits, privileges)
        ):
            return known.judgement
        found = problems(key.name, written, limits, namespace=key.namespace, privileges=privileges)
        parsed = parse_spec(written, limits) if isinstance(written, dict) and not found else None
        judgement = ParsedSpec(parsed, tuple(found))
        self._known[key.uid] = _Known(written, limits, privileges, judgement)
        return judgement

    def forget(self, uid: str) -> None:
        """The job has gone."""
        self._known.pop(uid, None)


def _as_written(job: Manifest | None) -> Manifest | None:
    """Return the job without a status that only its CRD has given it."""
    if job is None or job.get("status") != UNWRITTEN or READ_STATUS in job:
        return job
    return {name: value for name, value in job.items() if name != "status"}


log = structlog.get_logger(__name__)
_MOST_NAMED = 3


class Observer:
    """Builds an `Observed` from the caches, without a request."""

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
        self.rules = rules
        self._ignored: dict[str, int] = {}
        self._judgements = SpecCache()

    @property
    def ignored_pods(self) -> int:
        """Return the number of pods that claim a job they do not belong to, as of each job's last
        pass."""
        return sum(self._ignored.values())

    def observe(self, uid: str, fault: Fault | None = None) -> Observed | None:
        """Return the job of this UID; None if nothing is left of it, or if another operator owns
        it."""
        job = _as_written(self._caches.job(uid))
        if job is None:
            self._judgements.forget(uid)
        claims = self._caches.pods.by_index(BY_JOB, uid)
        key = self._key(uid, job, claims)
        if key is not None and not self.rules.concern(key.namespace):
            return None
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
        views = tuple(self._view(pod) for pod in pods)
        stored = with_carried_fields((job or {}).get("status") or {})
        if job is not None and stored:
            status = recovered(stored, views, partitions, is_malformed=READ_STATUS in job)
            job = job if status is job["status"] else job | {"status": status}
        limits = self.rules.limits
        privileges = self.rules.privileges.of_namespace(self._caches.pod_profile(key.namespace))
        judgement = _NO_JOB
        if job is not None:
            judgement = self._judgements.of(key, job, limits, privileges)
        return Observed(
            key=key,
            job=job,
            spec=judgement.spec,
            problems=judgement.problems,
            is_unwritten=not (stored.get("conditions") or stored.get("instances")),
            pods=views,
            children=children,
            partitions=partitions,
            proxy_problem=self._facts.problem,
            group=self._caches.group_of(key.namespace),
            is_namespace_ending=self._caches.is_ending(key.namespace),
            fault=fault,
            options=self._options,
            limits=limits,
            patience=self.rules.patience,
        )

    def _view(self, pod: Manifest) -> PodView:
        view = from_manifest(pod)
        return on_node(view, self._caches.node_trouble(view.node))

    def _key(self, uid: str, job: Manifest | None, claims: Sequence[Manifest]) -> JobKey | None:
        if job is not None:
            return JobKey(namespace_of(job), name_of(job), uid)
        owner = self._facts.owner(uid)
        if owner is not None:
            return JobKey(*owner, uid)
        owned = [pod for pod in claims if is_pod_of(pod, claimed_key(pod))] or self._orphans(uid)
        # Several may say so, each in its namespace: they take turns, those that are being deleted
        # last.
        return claimed_key(min(owned, key=is_being_deleted)) if owned else None

    def _orphans(self, uid: str) -> list[Manifest]:
        """Return objects that the garbage collector will not remove, because they have no owner any
        more."""
        return [
            manifest
            for kind, cache in self._caches.children.items()
            if kind is not Kind.POD
            for manifest in cache.by_index(BY_JOB, uid)
            if not controller_of(manifest)
            and name_of(manifest) == launcher_name(claimed_key(manifest).name)
        ]

    def _ignore(self, uid: str, strangers: Sequence[Manifest]) -> None:
        """Count the ignored pods of a job, and log them once."""
        if not strangers:
            del self._ignored[uid]
            return
        if uid not in self._ignored:
            named = [f"{namespace_of(p)}/{name_of(p)}" for p in strangers[:_MOST_NAMED]]
            log.warning(
                "pods that say they are a job's are ignored: another namespace, name or controller",
                job_uid=uid,
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


ASKING: Final = frozenset(
    {
        Reason.NO_CAPACITY,
        Reason.NO_CONTROLLERS,
        Reason.CONTROLLER_UNAVAILABLE,
        Reason.NO_LABELLED_NODE,
    }
)
"""The reasons of jobs that ask for IPUs again and again."""
BY_AGE: Final = JobState.PENDING
"""The state in which a job asks in the order of age; any other job that waits asks before."""


def waiting_order(job: Manifest | None) -> float:
    """Return the number that orders jobs that wait for IPUs, lowest first.

    It is the job's creation in seconds since 1970; 0 for a job that has run before or is gone.
    """
    if job is None:
        return 0.0
    state = (job.get("status") or {}).get("launcherStatus", BY_AGE)
    if state != BY_AGE:
        return 0.0
    created = parse_time(metadata(job).get("creationTimestamp"))
    return created.timestamp() if created else 0.0
