"""domain: the component of the product that is down, judged by the state that each reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ipuhub import VERSION_ANNOTATION
from ipuhub.kube.malformed import ANNOTATION, NOTHING, read_annotation
from ipuhub.text import spell_duration
from ipuhub.times import HEARTBEAT_STALE_SECONDS
from jobs.ipujob.names import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ipuhub.kube.malformed import Malformed
    from partitions.fleetjson import FleetJson, MachineJson

UP: Final = "up"
DOWN: Final = "down"
UNKNOWN: Final = "unknown"
PARTLY: Final = "partly"
"""Of the header: nothing is known to be down, and of some components nothing is known."""
STATES: Final = (UP, DOWN, UNKNOWN)
"""Of a component."""
PROXY: Final = "V-IPU Proxy"
KUBERNETES: Final = "Kubernetes API"
_CONTROLLER: Final = "V-IPU controller "
_AGENTS: Final = "V-IPU agents of "
KINDS: Final = {_CONTROLLER: "V-IPU controller", _AGENTS: "V-IPU agent"}
"""By how their names begin: the components of which a fleet has many."""
_PART: Final = "component"
_ROOM: Final = 46  # characters of the header of a desk
_STALE_SECONDS: Final = 90  # a watch shows at least a bookmark each minute, a look is each 30 s
_ROUNDS: Final = 3  # of the monitor that may fail to appear
_TASK_WAITS_SECONDS: Final = 30
_DEFAULT_LEASE_SECONDS: Final = 15


@dataclass(frozen=True, slots=True)
class LastOutage:
    """The outage of a component that lasts, else the last that ended; of those `members` of it, if
    any. `ended_at` None: it lasts."""

    began_at: datetime
    ended_at: datetime | None
    detail: str
    members: tuple[str, ...] = ()

    @property
    def is_on_one_day(self) -> bool:
        """Return whether it began and ended on the same day of UTC."""
        return self.ended_at is not None and self.began_at.date() == self.ended_at.date()

    @property
    def reason(self) -> str:
        """Return why it was down; of members also which."""
        return f"{enumerated(self.members)}: {self.detail}" if self.members else self.detail


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the product. `state` is up, down or unknown; `since`: its last sign of life;
    `is_dated`: whether `detail` says how long ago that was; `holder`: the replica that works,
    of `version`, and leads since `leads_since` (None: no replica leads, or the component is not up,
    so that its lead is unknown).

    A component that stands for several of a kind names its `members`; `absent`: those that are
    down. `last_outage`: the one that lasts, or the last that ended. `lag_seconds`: how far its work
    is behind, which no ETag counts, because it changes all the time. `malformed`: objects of which
    the replica that leads ignores fields.
    """

    name: str
    state: str
    detail: str
    holder: str = ""
    since: datetime | None = None
    members: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    version: str = ""
    leads_since: datetime | None = None
    last_outage: LastOutage | None = None
    lag_seconds: float | None = field(default=None, repr=False)
    is_dated: bool = field(default=False, repr=False)
    malformed: Malformed = NOTHING

    def __post_init__(self) -> None:
        if self.state != UP:
            object.__setattr__(self, "leads_since", None)

    @property
    def member_count(self) -> int | None:
        """Return the number of members; None if the component stands for itself."""
        return len(self.members) or None


@dataclass(frozen=True, slots=True)
class Signs:
    """The state of one component's Lease; `problem`: why it could not be read.

    `is_silent`: the API server itself did not answer, or could not be reached.
    """

    lease: Mapping[str, Any] | None = None
    problem: str = ""
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class TaskSigns:
    """The last signs of life of worker and beat, and the last run of the task that beat queues.

    `waits_since`: when the first task was queued that no worker has; `is_busy`: a report is made.
    """

    worker_at: datetime | None = None
    beat_at: datetime | None = None
    task_at: datetime | None = None
    waits_since: datetime | None = None
    is_busy: bool = False


def by_lease(name: str, signs: Signs, now: datetime) -> Component:
    """A component of which one replica leads: it renews its Lease every few seconds."""
    if signs.problem:
        return Component(name, UNKNOWN, f"its Lease cannot be read: {signs.problem}")
    if signs.lease is None:
        return Component(name, UNKNOWN, "no Lease: never started, or no leader election")
    spec = signs.lease.get("spec") or {}
    renewed = parse_time(spec.get("renewTime"))
    holder = str(spec.get("holderIdentity") or "")
    if not holder:
        return Component(name, DOWN, "stopped: no replica leads", since=renewed)
    annotations = (signs.lease.get("metadata") or {}).get("annotations") or {}
    found = Component(
        name,
        UP,
        "leads",
        holder,
        renewed,
        version=annotations.get(VERSION_ANNOTATION, ""),
        malformed=read_annotation(annotations.get(ANNOTATION, "")),
        leads_since=parse_time(spec.get("acquireTime")),
    )
    if renewed is None:
        return replace(found, state=UNKNOWN, detail="its Lease says no time")
    age = (now - renewed).total_seconds()
    # One duration more than a standby waits: clocks differ, and a takeover takes a moment.
    if age > 2 * float(spec.get("leaseDurationSeconds") or _DEFAULT_LEASE_SECONDS):
        text = f"has not renewed its Lease for {spell_duration(age)}: stopped, frozen, or cut off"
        return replace(found, state=DOWN, detail=text, is_dated=True)
    return found


def of_kubernetes(signs: Iterable[Signs], version: str = "") -> Component:
    """The API server, which answers a question about a Lease; a refusal is an answer, too."""
    silent = [each.problem for each in signs if each.is_silent]
    if silent:
        return Component(KUBERNETES, DOWN, silent[0])
    return Component(KUBERNETES, UP, "answers", version=version)


def of_answering(lease: Component, problem: str, kubernetes: Component) -> Component:
    """A component that must answer, whatever its Lease says: the proxy, or the webhooks.

    It needs the API server to authenticate its callers, so while the API server is unavailable it
    is not blamed for silence.
    """
    if problem and kubernetes.state == DOWN:
        text = "not to be judged without the Kubernetes API"
        return replace(lease, state=UNKNOWN, detail=text, is_dated=False)
    if problem:
        return replace(lease, state=DOWN, detail=problem, is_dated=False)
    if lease.state == DOWN:
        return lease
    return replace(lease, state=UP, detail="answers")


def of_controllers(fleet: FleetJson) -> list[Component]:
    """The V-IPU controllers as the proxy reaches them; a controller that does not answer some
    orders is down, too."""
    found = []
    for each in fleet.get("controllers") or []:
        problem = each.get("unansweredOrders") or ("" if each["reachable"] else each["message"])
        is_up = each["reachable"] and not problem
        count = len(each["partitions"])
        detail = f"{count} partition{'' if count == 1 else 's'}" if is_up else problem
        name = f"{_CONTROLLER}{each['address']}"
        version = each.get("version", "")
        found.append(Component(name, UP if is_up else DOWN, detail, version=version))
    return found


def of_agents(fleet: FleetJson) -> list[Component]:
    """The V-IPU agents of each controller that answers and names them."""
    return [
        _agents_of(each["address"], named)
        for each in fleet.get("controllers") or []
        if each["reachable"]
        and (named := [machine for machine in each["machines"] if machine["agent"]])
    ]


def _agents_of(address: str, machines: Sequence[MachineJson]) -> Component:
    lost = {machine["agent"]: bool(machine.get("lost")) for machine in machines}
    absent = tuple(agent for agent, is_lost in lost.items() if is_lost)
    detail = f"{len(lost) - len(absent)} of {len(lost)} answer"
    state = DOWN if absent else UP
    version = enumerated(_software_of(machines))
    name = f"{_AGENTS}{address}"
    return Component(name, state, detail, members=tuple(lost), absent=absent, version=version)


def _software_of(machines: Iterable[MachineJson]) -> list[str]:
    """Return the releases of software on the machines, each once."""
    found = (each.get("hardware", {}).get("software", "") for each in machines)
    return sorted({*found} - {""})


def names_of(address: str) -> tuple[str, str]:
    """Return the names of a V-IPU controller and of its agents, as components."""
    return f"{_CONTROLLER}{address}", f"{_AGENTS}{address}"


def controller_of(name: str) -> str:
    """Return the name of the controller whose agents a component stands for; empty: for none."""
    address = name.removeprefix(_AGENTS)
    return "" if address == name else f"{_CONTROLLER}{address}"


def enumerated(names: Sequence[str], most: int = 10) -> str:
    """Return the names, of many the first names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def name_members(component: str, members: Sequence[str]) -> str:
    """Return some members of a component as a subject: an agent, or so many agents."""
    place = component.removeprefix(_AGENTS)
    if len(members) == 1:
        return f"V-IPU agent {members[0]} of {place}"
    return f"{len(members)} V-IPU agents of {place}"


def by_heartbeat(name: str, heartbeat: datetime | None, now: datetime, does: str) -> Component:
    """A component that records a heartbeat every 30 s; `does`: its work while it is up."""
    if heartbeat is None:
        return Component(name, UNKNOWN, "no heartbeat yet")
    if _is_silent(heartbeat, now):
        detail = f"last heartbeat {spell_duration((now - heartbeat).total_seconds())} ago"
        return Component(name, DOWN, detail, since=heartbeat, is_dated=True)
    return Component(name, UP, does, since=heartbeat)


def _is_silent(heartbeat: datetime, now: datetime) -> bool:
    return (now - heartbeat).total_seconds() > HEARTBEAT_STALE_SECONDS


def with_heartbeat(
    judged: Component, heartbeat: datetime | None, kubernetes: Component, now: datetime
) -> Component:
    """A component that is judged by its work and also by its heartbeat (None: an earlier release
    writes none). If it is alive and the API server is unavailable, it only waits for that."""
    if heartbeat is None:
        return judged
    if _is_silent(heartbeat, now):
        if judged.state == DOWN:
            return judged
        silent = by_heartbeat(judged.name, heartbeat, now, "")
        return replace(
            judged, state=silent.state, detail=silent.detail, since=silent.since, is_dated=True
        )
    if judged.state == DOWN and kubernetes.state == DOWN:
        return replace(judged, state=UP, detail="waits for the Kubernetes API", since=heartbeat)
    return judged


def remembered(component: Component, looked_at: datetime, now: datetime) -> Component:
    """A component as it was found at `looked_at`; without current state if that is too old."""
    age = (now - looked_at).total_seconds()
    if age <= _STALE_SECONDS:
        return component
    detail = f"not observed for {spell_duration(age)}; before that it was {component.state}"
    return replace(component, state=UNKNOWN, detail=detail, absent=(), is_dated=False)


def of_prober(lease: Component, positions: Iterable[datetime | None], now: datetime) -> Component:
    """The prober: it leads, and no watch of it has stood still for 90 s."""
    if lease.state == DOWN:
        return lease
    known = list(positions)
    if not known:
        return replace(lease, state=UNKNOWN, detail="has recorded nothing yet", since=None)
    oldest = min((at for at in known if at is not None), default=None)
    if oldest is None or None in known:
        return replace(lease, state=UNKNOWN, detail="makes its first list", since=None)
    age = (now - oldest).total_seconds()
    if age > _STALE_SECONDS:
        detail = f"has received nothing for {spell_duration(age)}"
        return replace(lease, state=DOWN, detail=detail, since=oldest, is_dated=True)
    return replace(lease, state=UP, detail="records", since=oldest)


def of_monitor(
    ended_at: datetime | None, problem: str, round_seconds: float, now: datetime
) -> Component:
    """The monitor, by its last round."""
    if ended_at is None:
        return Component("Monitor", UNKNOWN, "has made no round yet")
    age = (now - ended_at).total_seconds()
    if age > _ROUNDS * round_seconds + 30:
        detail = f"last round {spell_duration(age)} ago"
        return Component("Monitor", DOWN, detail, since=ended_at, is_dated=True)
    detail = f"its last round is incomplete: {problem}" if problem else "makes its rounds"
    return Component("Monitor", DOWN if problem else UP, detail, since=ended_at)


def of_worker_and_beat(signs: TaskSigns, now: datetime) -> list[Component]:
    """Worker and beat by their heartbeats, and by the tasks that get from one to the other."""
    worker = _worker(signs, now)
    beat = by_heartbeat("Beat", signs.beat_at, now, "queues tasks")
    is_idle = worker.state == UP and not signs.is_busy and signs.waits_since is None
    if beat.state == UP and is_idle and signs.task_at and _is_silent(signs.task_at, now):
        detail = f"has queued no task for {spell_duration((now - signs.task_at).total_seconds())}"
        beat = replace(beat, state=DOWN, detail=detail)
    return [worker, beat]


def _worker(signs: TaskSigns, now: datetime) -> Component:
    found = by_heartbeat("Worker", signs.worker_at, now, "waits for tasks")
    if found.state == DOWN:
        return found
    waited = (now - signs.waits_since).total_seconds() if signs.waits_since else 0.0
    found = replace(found, lag_seconds=waited)
    if signs.is_busy:
        return replace(found, detail="makes a report; other tasks wait")
    if waited > _TASK_WAITS_SECONDS:
        detail = f"a task has been waiting for {spell_duration(waited)}"
        return replace(found, state=DOWN, detail=detail)
    return found


def steady(found: Iterable[Component]) -> list[Component]:
    """Return them without the last sign of life of what is up, which changes with each reading:
    nothing that shows it would ever be unchanged."""
    return [replace(each, since=None) if each.state == UP else each for each in found]


def summary(components: Iterable[Component], *, named: bool = True) -> tuple[str, str]:
    """State and sentence for the header: the culprits by name, or without names as a number.

    The header has room for what is before a semicolon: of many culprits how many of which kind.
    """
    found = list(components)
    down = [each for each in found if each.state == DOWN]
    if down:
        number = f"{len(down)} of {len(found)} components down"
        return DOWN, _culprits(down) if named else number
    unknown = [each.name for each in found if each.state == UNKNOWN]
    if len(unknown) == len(found):
        return UNKNOWN, "Nothing is known of the components"
    if unknown:
        up = f"{len(found) - len(unknown)} of {len(found)} components up"
        return PARTLY, f"{up}; not known: {enumerated(unknown, 2)}" if named else up
    return UP, f"All {len(found)} components up"


def _culprits(down: Sequence[Component]) -> str:
    names = [_culprit(each) for each in down]
    brief = f"Down: {enumerated(names, 2)}"
    if len(brief) <= _ROOM:
        return brief
    kinds: dict[str, int] = {}
    for each in down:
        prefix = next((kind for kind in KINDS if each.name.startswith(kind)), "")
        kind = KINDS.get(prefix, each.name)
        kinds[kind] = kinds.get(kind, 0) + max(1, len(each.absent))
    counted = [_counted(kind, number) for kind, number in kinds.items()]
    texts = (
        f"Down: {', '.join(counted[:most])}{' and more' * (len(counted) > most)}" for most in (2, 1)
    )
    fitting = next((text for text in texts if len(text) <= _ROOM), "")
    return f"{fitting or f'Down: {_counted(_PART, len(down))}'}; {enumerated(names)}"


def _counted(kind: str, number: int) -> str:
    if kind not in {_PART, *KINDS.values()}:
        return kind
    return f"{number} {kind}{'' if number == 1 else 's'}"


def _culprit(component: Component) -> str:
    return name_members(component.name, component.absent) if component.absent else component.name
