"""domain: the jobs that wait for IPUs, in order of service, with the reason, for one reader of the
page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipuhub.partition import parse_time
from ipuhub.text import spell_duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from partitions.fleetjson import FitJson, FleetJson, WaiterJson


KINDS: Final = ("soon", "block", "blocked", "never")
"""Of lines of the queue."""
UNKNOWN_GROUP: Final = "group not known yet"
"""Of a job that no recorder has seen: no group has a name with blanks."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The facts about a job on the map. `runs`: some pod of it does; `ends_by`: when it frees its
    IPUs at the latest, by its time limit (None: no limit); `workers`: how many of `all_workers`
    run (None: it has no status yet); `group`: the group that its usage counts for (empty: not
    known); `waits`: it was refused IPUs and waits for them."""

    uid: str
    namespace: str
    name: str
    user: str
    runs: bool
    ends_by: datetime | None = None
    workers: int | None = None
    all_workers: int = 0
    group: str = ""
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition, as far as the reader may know it; without `job` it has no job, or a stranger's.

    `state` is held, idle (no pod of the job runs), removing or faulty.
    """

    id: str
    size: int
    state: str
    job: JobFacts | None
    since: datetime | None
    label: str

    def group_by(self, fill: str) -> str:
        """The name that gives the holding its colour; empty: grey."""
        if fill == "state":
            return self.state
        if fill == "group" and self.job:
            return self.job.group or UNKNOWN_GROUP
        return str(getattr(self.job, "name" if fill == "job" else fill)) if self.job else ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A line of the queue. `kind`: never, blocked, soon or block; `blockers` as (name, UID).

    `position`: place in the order of service; 0: it can never be served.
    `free_by`: when all that hold its block have reached their time limits; None: one of them frees
    its IPUs by none, or belongs to a job that the reader may not see.
    `has_block`: its block is known, on a controller that answers.
    `typical`: how long such jobs ran, of a line that `is_open`: seconds, and of how many.
    """

    position: int
    job: JobFacts | None
    ipus: int
    since: datetime | None
    kind: str
    reason: str
    blockers: tuple[tuple[str, str], ...] = ()
    free_by: datetime | None = None
    has_block: bool = False
    typical: tuple[float, int] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether it waits for a block of which no time limit says when it is free."""
        return self.kind in {"block", "blocked"} and self.has_block and self.free_by is None


def silent_of(fleet: FleetJson) -> frozenset[str]:
    """The V-IPU controllers of `/v1/fleet` that do not answer: what they said last is no promise of
    what a job gets, and what they have is not known."""
    return frozenset(
        each["address"] for each in fleet.get("controllers") or () if not each["reachable"]
    )


def current_fits(fleet: FleetJson) -> list[FitJson]:
    """The fits of `/v1/fleet` without the places on controllers that do not answer."""
    found: list[FitJson] = []
    silent = silent_of(fleet)
    for each in fleet.get("fits") or ():
        places = each.get("places") or ()
        past = sum(place["count"] for place in places if place["controller"] in silent)
        remaining = [place for place in places if place["controller"] not in silent]
        found.append({**each, "count": each["count"] - past, "places": remaining})
    return found


def queue_lines(
    fleet: FleetJson,
    jobs: Mapping[str, JobFacts],
    holdings: Mapping[tuple[str, str], Holding],
) -> tuple[Waiting, ...]:
    """A line for each request of the queue of `/v1/fleet`, in its order. `jobs` are those that the
    reader may see; others have no name."""
    fits, silent = current_fits(fleet), silent_of(fleet)
    # What a controller that does not answer has is not known: it may have the block.
    closed = "" if silent else fleet.get("outOfService") or ""
    lines, position = [], 0
    for each in fleet.get("queue") or []:
        position += not each["never"]
        kind, reason, blockers = _why(each, holdings, fits, closed, silent)
        lines.append(
            Waiting(
                position=0 if each["never"] else position,
                job=jobs.get(each["uid"]),
                ipus=each["size"],
                since=parse_time(each["since"]),
                kind=kind,
                reason=reason,
                blockers=blockers,
                free_by=free_by(in_the_way(each, holdings)) if blockers else None,
                has_block=bool((block := each["block"]) and block["controller"] not in silent),
            )
        )
    return tuple(lines)


def unasked(
    fleet: FleetJson,
    jobs: Mapping[str, JobFacts],
    holdings: Mapping[tuple[str, str], Holding],
) -> int:
    """Return how many jobs wait that are in no queue: the proxy forgets a request that the operator
    does not repeat. Of a proxy that never answered no queue is known."""
    queue = fleet.get("queue")
    if queue is None:
        return 0
    known = {each["uid"] for each in queue}
    known |= {each.job.uid for each in holdings.values() if each.job}
    return sum(job.waits and job.uid not in known for job in jobs.values())


def served_first(lines: Iterable[Waiting]) -> tuple[Waiting, ...]:
    """The order of service, and after it those that can never be served: they have no place in
    it, however long they wait."""
    return tuple(sorted(lines, key=lambda line: line.position == 0))


def _why(
    each: WaiterJson,
    holdings: Mapping[tuple[str, str], Holding],
    fits: Sequence[FitJson],
    closed: str,
    silent: Collection[str],
) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Kind, reason and blockers of a waiting job."""
    if each["never"]:
        has = max((fit["size"] for fit in fits), default=0)
        sentence = f"never fits: the largest block has {has}" if has else each["never"]
        return "never", sentence, ()
    if each["heldBack"]:
        return "blocked", "an older job is served first", ()
    if unknown := _unknown(each, closed, silent):
        return "block", unknown, ()
    if each["inTheWay"] == 0:
        return "soon", "its block is free: about to start", ()
    found = in_the_way(each, holdings)
    named = {h.job.uid: h.job.name for h in found if h is not None and h.job is not None}
    blockers = tuple((name, uid) for uid, name in named.items())
    largest = max((fit["size"] for fit in fits if fit["count"]), default=0)
    free = f"largest free {largest}" if largest else "none is free"
    return "block", f"needs a block of {each['size']}, {free}", blockers


def _unknown(each: WaiterJson, closed: str, silent: Collection[str]) -> str:
    """Return why a waiting job's block is unknown; empty: it is known."""
    if each["block"] is None:
        if closed:
            return f"no block of {each['size']} can come free; out of service: {closed}"
        return "no controller can say when"
    if each["block"]["controller"] in silent:
        return "the V-IPU controller of its block does not answer"
    return ""


def in_the_way(
    each: WaiterJson | FitJson, holdings: Mapping[tuple[str, str], Holding]
) -> list[Holding | None]:
    """Return the holders of IPUs in the block that a waiting job, or a size, needs."""
    block = each.get("block")
    if block is None:
        return []
    return [holdings.get((block["controller"], partition)) for partition in each["blockers"]]


def free_by(found: Sequence[Holding | None]) -> datetime | None:
    """Return when all of them have reached their time limits; None: unknown."""
    ends = [each.job.ends_by if each is not None and each.job else None for each in found]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def policy_of(fleet: FleetJson) -> str:
    """The order of service in words; empty if the proxy does not report it."""
    seconds = fleet.get("reserveAfterSeconds")
    if seconds is None:
        return ""
    policy = "Oldest first. A newer job starts earlier if its block is free"
    if not seconds:
        return f"{policy}."
    return (
        f"{policy}; once the oldest has waited {spell_duration(seconds)}, only where that does not "
        "delay it."
    )
