"""domain: which component of the product is down, by what each says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipuhub.text import spell_duration
from jobs.ipujob.names import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

UP: Final = "up"
DOWN: Final = "down"
UNKNOWN: Final = "unknown"
HEARTBEAT_STALE_SECONDS: Final = 120  # four heartbeats
_STALE_SECONDS: Final = 90  # a watch shows at least a bookmark each minute
_ROUNDS: Final = 3  # of the monitor that may fail to appear
_DEFAULT_LEASE_SECONDS: Final = 15


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the product. `state` is up, down or unknown; `since`: its last sign of life;
    `holder`: the replica that works."""

    name: str
    state: str
    detail: str
    holder: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Signs:
    """What was read of one component's Lease; `problem`: why it could not be read."""

    lease: Mapping[str, Any] | None = None
    problem: str = ""


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
    if renewed is None:
        return Component(name, UNKNOWN, "its Lease says no time", holder)
    age = (now - renewed).total_seconds()
    # One duration more than a standby waits: clocks differ, and a takeover takes a moment.
    if age > 2 * float(spec.get("leaseDurationSeconds") or _DEFAULT_LEASE_SECONDS):
        said = f"has not renewed its Lease for {spell_duration(age)}: stopped, frozen, or cut off"
        return Component(name, DOWN, said, holder, renewed)
    return Component(name, UP, "leads", holder, renewed)


def of_proxy(lease: Component, problem: str) -> Component:
    """The proxy, which must answer, too."""
    if problem:
        return Component(lease.name, DOWN, problem, lease.holder, lease.since)
    if lease.state == DOWN:
        return lease
    return Component(lease.name, UP, "answers", lease.holder, lease.since)


def of_controllers(fleet: Mapping[str, Any]) -> list[Component]:
    """The V-IPU controllers as the proxy reaches them."""
    return [
        Component(
            f"V-IPU controller {each['address']}",
            UP if each["reachable"] else DOWN,
            f"{len(each['partitions'])} partitions" if each["reachable"] else each["message"],
        )
        for each in fleet.get("controllers") or []
    ]


def of_prober(lease: Component, positions: Iterable[datetime | None], now: datetime) -> Component:
    """The prober: it leads, and no watch of it has stood still for 90 s."""
    if lease.state == DOWN:
        return lease
    known = list(positions)
    if not known:
        return Component(lease.name, UNKNOWN, "has recorded nothing yet", lease.holder)
    oldest = min((at for at in known if at is not None), default=None)
    if oldest is None or None in known:
        return Component(lease.name, UNKNOWN, "makes its first list", lease.holder)
    age = (now - oldest).total_seconds()
    if age > _STALE_SECONDS:
        said = f"has received nothing for {spell_duration(age)}"
        return Component(lease.name, DOWN, said, lease.holder, oldest)
    return Component(lease.name, UP, "records", lease.holder, oldest)


def of_monitor(
    ended_at: datetime | None, problem: str, round_seconds: float, now: datetime
) -> Component:
    """The monitor, by its last round."""
    if ended_at is None:
        return Component("Monitor", UNKNOWN, "has made no round yet")
    age = (now - ended_at).total_seconds()
    if age > _ROUNDS * round_seconds + 30:
        return Component("Monitor", DOWN, f"last round {spell_duration(age)} ago", since=ended_at)
    said = f"its last round is incomplete: {problem}" if problem else "makes its rounds"
    return Component("Monitor", DOWN if problem else UP, said, since=ended_at)


def of_worker_and_beat(
    heartbeat: datetime | None, oldest_task: datetime | None, busy: bool, now: datetime
) -> list[Component]:
    """Worker and beat: beat queues a heartbeat every 30 s, and the worker notes it.

    Without one, a task that waits tells that the worker does not work; else beat queues none.
    """
    if heartbeat is not None and (now - heartbeat).total_seconds() <= HEARTBEAT_STALE_SECONDS:
        worker = "makes a report" if busy else "waits for tasks"
        return [
            Component("Worker", UP, worker, since=heartbeat),
            Component("Beat", UP, "queues tasks", since=heartbeat),
        ]
    if busy:
        said = "makes a report; other tasks wait"
        return [
            Component("Worker", UP, said, since=heartbeat),
            Component("Beat", UNKNOWN, "its heartbeat waits for the worker", since=heartbeat),
        ]
    waits = oldest_task is not None and (now - oldest_task).total_seconds() > _ROUNDS * 10
    if waits and oldest_task is not None:
        age = spell_duration((now - oldest_task).total_seconds())
        return [
            Component("Worker", DOWN, f"a task has been waiting for {age}", since=heartbeat),
            Component("Beat", UNKNOWN, "tasks are queued", since=heartbeat),
        ]
    if heartbeat is None:
        said = "no heartbeat yet"
        return [Component("Worker", UNKNOWN, said), Component("Beat", UNKNOWN, said)]
    age = spell_duration((now - heartbeat).total_seconds())
    return [
        Component("Worker", UNKNOWN, "nobody gives it tasks", since=heartbeat),
        Component("Beat", DOWN, f"last heartbeat {age} ago", since=heartbeat),
    ]


def summary(components: Iterable[Component]) -> tuple[str, str]:
    """State and sentence for the header: the culprits by name."""
    found = list(components)
    down = [component.name for component in found if component.state == DOWN]
    if down:
        more = f" and {len(down) - 2} more" if len(down) > 2 else ""
        return DOWN, f"Down: {', '.join(down[:2])}{more}"
    unknown = sum(component.state == UNKNOWN for component in found)
    if unknown:
        return UNKNOWN, f"{len(found) - unknown} of {len(found)} components up"
    return UP, f"All {len(found)} components up"
