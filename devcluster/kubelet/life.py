"""domain: one pod on its node: known facts, the current situation and its consequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.containers import own_conditions
from devcluster.schemas.schema import copy_json
from ipuhub.times import read_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from devcluster.kubelet.behaviour import Behaviour

_FIELDS: Final = ("phase", "hostIP", "podIP", "podIPs", "startTime", "reason", "message")
_CONTAINERS: Final = ("initContainerStatuses", "containerStatuses")


@dataclass(frozen=True, slots=True)
class PodState:
    """The status a node last wrote, and exact instants that its whole seconds do not show.

    `marks` is only memory: losing it costs less than a second of precision.
    """

    status: Mapping[str, Any]
    marks: Mapping[str, datetime] = field(default_factory=dict)

    @classmethod
    def observed(cls, pod: Mapping[str, Any]) -> PodState:
        """The state that a node takes over from the API: after a restart, or a new pod's."""
        found = pod.get("status") or {}
        status = {key: found[key] for key in _FIELDS if found.get(key)}
        status.setdefault("phase", "Pending")
        for key in _CONTAINERS:
            if found.get(key):
                status[key] = [_container(container) for container in found[key]]
        if found.get("conditions"):
            status["conditions"] = own_conditions(found)
        return cls(status)


def _container(found: Mapping[str, Any]) -> Any:
    defaults = {"restartCount": 0, "ready": False, "started": False, "lastState": {}}
    return copy_json({**defaults, **found})


@dataclass(frozen=True, slots=True)
class End:
    """The end of a process that was a container."""

    code: int
    at: datetime
    message: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """The surroundings of the pod now. `are_workers_ready` matters to launchers of IPUJobs only.

    `ends` (by containerID) is given where containers are processes: they end when those do.
    """

    now: datetime
    behaviour: Behaviour
    node_ip: str
    pod_ip: str
    are_workers_ready: bool = False
    ends: Mapping[str, End] | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """An Event to record about the pod; `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Step:
    """The pod's next state. `is_changed`: the status has to be written.

    `wake_at` is when to look again (None: not before something changes); `remove`: nothing runs
    any more, the object may go once the status is written. `signals` are for processes, by
    containerID.
    """

    state: PodState
    is_changed: bool
    wake_at: datetime | None = None
    remove: bool = False
    notes: tuple[Note, ...] = ()
    signals: Mapping[str, int] = field(default_factory=dict)


class Life:
    """One pod during one step: a copy of its state that is being moved on."""

    def __init__(self, pod: Mapping[str, Any], state: PodState, situation: Situation) -> None:
        self.spec: Mapping[str, Any] = pod["spec"]
        self.metadata: Mapping[str, Any] = pod["metadata"]
        self.situation = situation
        self.now = situation.now
        self.behaviour = situation.behaviour
        self.status: dict[str, Any] = copy_json(dict(state.status))
        self.marks: dict[str, datetime] = dict(state.marks)
        self.wake_at: datetime | None = None
        self.remove = False
        self.notes: list[Note] = []
        self.signals: dict[str, int] = {}

    @property
    def restart_policy(self) -> str:
        """Always, OnFailure or Never."""
        policy: str = self.spec.get("restartPolicy") or "Always"
        return policy

    @property
    def is_accepted(self) -> bool:
        """Return whether a node has taken the pod on; what another node left without statuses is
        not."""
        return bool(self.status.get("startTime") and self.status.get("containerStatuses"))

    def pairs(self, kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Each container beside its status; `kind` is "containers" or "initContainers"."""
        key = _CONTAINERS[0] if kind == "initContainers" else _CONTAINERS[1]
        by_name = {status["name"]: status for status in self.status.get(key) or ()}
        containers = self.spec.get(kind) or ()
        return [
            (container, by_name[container["name"]])
            for container in containers
            if container["name"] in by_name
        ]

    def all_pairs(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Each container, init containers first, beside its status."""
        return [*self.pairs("initContainers"), *self.pairs("containers")]

    def wake(self, moment: datetime) -> None:
        """Look again at `moment`; the earliest wish counts."""
        self.wake_at = moment if self.wake_at is None else min(moment, self.wake_at)

    def is_due(self, since: datetime, seconds: float) -> bool:
        """Return whether `seconds` have passed since then; if not, look again when they have."""
        due = since + timedelta(seconds=seconds)
        if self.now >= due:
            return True
        self.wake(due)
        return False

    def instant(self, mark: str, text: str) -> datetime:
        """Return the exact instant that `text` shows in whole seconds, if it is remembered."""
        return self.marks.get(mark) or read_time(text)

    def note(self, kind: str, reason: str, message: str) -> None:
        """Record an Event with this step."""
        self.notes.append(Note(kind, reason, message))
