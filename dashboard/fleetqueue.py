"""domain: who waits for IPUs, in the order of service, and for what, for one reader of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipuhub.partition import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the map says of a job; `runs`: some pod of it does."""

    uid: str
    namespace: str
    name: str
    user: str
    runs: bool


@dataclass(frozen=True, slots=True)
class Holding:
    """A partition, as far as the reader may know it; without `job` nobody's, or a stranger's.

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
        return str(getattr(self.job, "name" if fill == "job" else fill)) if self.job else ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A line of the queue. `kind`: never, blocked, soon or block; `blockers` as (name, UID)."""

    position: int
    job: JobFacts | None
    ipus: int
    since: datetime | None
    kind: str
    reason: str
    blockers: tuple[tuple[str, str], ...] = ()


def queue_lines(
    fleet: Mapping[str, Any],
    jobs: Mapping[str, JobFacts],
    holdings: Mapping[tuple[str, str], Holding],
) -> tuple[Waiting, ...]:
    """The queue of `/v1/fleet`. `jobs` are those that the reader may see; others have no name."""
    fits = fleet.get("fits") or []
    lines, position = [], 0
    for each in fleet.get("queue") or []:
        position += not each["never"]
        kind, reason, blockers = _why(each, holdings, fits)
        lines.append(
            Waiting(
                position=0 if each["never"] else position,
                job=jobs.get(each["uid"]),
                ipus=each["size"],
                since=parse_time(each["since"]),
                kind=kind,
                reason=reason,
                blockers=blockers,
            )
        )
    return tuple(lines)


def _why(
    each: Mapping[str, Any],
    holdings: Mapping[tuple[str, str], Holding],
    fits: Sequence[Mapping[str, int]],
) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Kind, reason and blockers of one who waits."""
    if each["never"]:
        has = max((fit["size"] for fit in fits), default=0)
        sentence = f"never fits: the largest block has {has}" if has else each["never"]
        return "never", sentence, ()
    if each["heldBack"]:
        return "blocked", "an older job is served first", ()
    if each["block"] is None:
        return "block", "no controller can say when", ()
    if each["inTheWay"] == 0:
        return "soon", "its block is free: about to start", ()
    controller = each["block"]["controller"]
    found = [holdings.get((controller, partition)) for partition in each["blockers"]]
    named = {h.job.uid: h.job.name for h in found if h is not None and h.job is not None}
    blockers = tuple((name, uid) for uid, name in named.items())
    largest = max((fit["size"] for fit in fits if fit["count"]), default=0)
    free = f"largest free {largest}" if largest else "none is free"
    return "block", f"needs a block of {each['size']}, {free}", blockers
