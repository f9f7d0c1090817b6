"""domain: the input of a plan: one job, its children and its partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.builders.pods import PodOptions
from jobs.ipujob.conditions import FINISHED, JobState
from jobs.ipujob.names import ROLE_LAUNCHER, ROLE_WORKER
from jobs.ipujob.rules import USUAL
from jobs.ipujob.spec import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ipuhub.partition import Partition
    from jobs.ipujob.names import JobKey, Kind, Manifest
    from jobs.ipujob.rules import Patience
    from jobs.ipujob.spec import JobSpec, SessionLimits
    from jobs.ipujob.validation import Problem
    from jobs.operator.pods import PodView

STATES = {state.value: state for state in JobState}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the previous pass could not do all it wanted. `is_passing`: it may be over by itself."""

    reason: str
    message: str
    is_passing: bool = False


@dataclass(frozen=True, slots=True)
class Child:
    """An object other than a pod, found under a name that the job needs.

    `job_uid`: the job it belongs to; empty: something else's. `contents`: a digest of its contents,
    made at `made_at`; None: unknown.
    """

    kind: Kind
    namespace: str
    name: str
    uid: str
    job_uid: str
    has_owner: bool
    is_deleting: bool
    contents: str | None = None
    made_at: datetime | None = None

    def is_orphan_of(self, uid: str) -> bool:
        """It is the job's, and would stay without it: nothing controls it (`--cascade=orphan`)."""
        return self.job_uid == uid and not self.has_owner


@dataclass(frozen=True, slots=True)
class Observed:
    """The world as far as one job is concerned.

    `job` is None when no job of this UID exists any more. `pods` are all pods of the job;
    `children` the others by kind, under the names the job needs; `partitions` by instance.
    `proxy_problem` says why partitions are unknown or out of reach (empty: they are not).
    `is_namespace_ending`: nothing can be made in the job's namespace any more. `spec` is the job's
    spec as parsed, None if it is invalid: then `problems` are the rules that it breaks.
    """

    key: JobKey
    job: Manifest | None
    spec: JobSpec | None = None
    problems: tuple[Problem, ...] = ()
    pods: tuple[PodView, ...] = ()
    children: Mapping[Kind, Child] = field(default_factory=dict)
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    proxy_problem: str = ""
    group: str = ""
    is_namespace_ending: bool = False
    fault: Fault | None = None
    options: PodOptions = field(default_factory=PodOptions)
    limits: SessionLimits = UNLIMITED
    patience: Patience = USUAL

    def status(self) -> Manifest:
        """The job's stored status."""
        return (self.job or {}).get("status") or {}

    def state(self) -> JobState | None:
        """Return the stored STATUS; None before the first."""
        return STATES.get(self.status().get("launcherStatus", ""))

    def is_finished(self) -> bool:
        """The job has ended for good."""
        return self.state() in FINISHED

    def launcher(self, instance: int, attempt: int) -> PodView | None:
        """The launcher pod of an attempt."""
        for pod in self.pods:
            if pod.role == ROLE_LAUNCHER and (pod.instance, pod.attempt) == (instance, attempt):
                return pod
        return None

    def workers(self, instance: int, attempt: int) -> dict[str, PodView]:
        """The worker pods of an attempt, by name."""
        return {
            pod.name: pod
            for pod in self.pods
            if pod.role == ROLE_WORKER and (pod.instance, pod.attempt) == (instance, attempt)
        }
