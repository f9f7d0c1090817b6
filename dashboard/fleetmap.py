"""domain: the fleet map: each IPU as a square, by whom it is held, for one reader of the page.

Names of jobs that the reader may not see are left out; their IPUs show as held by others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from dashboard.fleetqueue import Holding, JobFacts, queue_lines
from ipuhub.partition import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from dashboard.fleetqueue import Waiting

FILLS: Final = ("job", "user", "namespace", "state")
Paint = tuple[str, tuple[str, ...]]
"""A CSS class, and the patterns over it."""
OTHER: Final[Paint] = ("is-other", ())
COLOURS: Final = 7  # .fill-0 to .fill-6 in ipuhub.css; told apart by colour-blind people
PATTERNS: Final = 3  # plain, and two decals for names that share a colour
SQUARES_UP_TO: Final = 512  # beyond, neighbours with one holder are drawn as one
IDLE_AFTER_SECONDS: Final = 60  # pods of a job that has just got its IPUs are about to run
_OTHERS: Final = ("idle", "faulty", "free", "cordoned", "outside")
_MARKS: Final = {"idle": ("hatch",), "faulty": ("crossed",)}
_SQUARE: Final = 10
_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Square:
    """One IPU, or neighbours with one holder; `x` and `width` in the units of the drawing, `decals`
    the patterns over its colour."""

    x: int
    width: int
    css: str
    label: str
    job_uid: str = ""
    decals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """An IPU-Machine; `is_target`: the next who waits would get IPUs of it."""

    name: str
    width: int
    squares: tuple[Square, ...]
    is_target: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """The machines of one IPU-Link domain, in IPU-Link order."""

    controller: str
    cluster: str
    domain: int
    machines: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """A line of the legend: what a colour means, and how many IPUs have it."""

    label: str
    css: str
    ipus: int
    job_uid: str = ""
    note: str = ""
    since: datetime | None = None
    decals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IpuRow:
    """One IPU for programs. `state`: held, idle (held, no pod of the job runs), faulty, free,
    cordoned (free, but jobs cannot get it) or outside (not for jobs). Of what the reader may not
    see, `partition` and `job_uid` are empty."""

    controller: str
    cluster: str
    ipulink_domain: int
    machine: str
    position: int
    state: str
    partition: str
    job_uid: str


@dataclass(frozen=True, slots=True)
class FleetMap:
    """All of it. `total` and `counts` (by state) count the IPUs drawn; `next`: the job that would
    get the dashed machines; `problems`: what controllers say who do not answer."""

    blocks: tuple[Block, ...] = ()
    legend: tuple[Key, ...] = ()
    queue: tuple[Waiting, ...] = ()
    next: str = ""
    fits: tuple[tuple[int, int], ...] = ()
    idle: tuple[Holding, ...] = ()
    problems: tuple[str, ...] = ()
    machines: int = 0
    total: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    is_small: bool = False

    @property
    def idle_ipus(self) -> int:
        """IPUs held while no pod of their job runs."""
        return sum(holding.size for holding in self.idle)

    @property
    def waiting_ipus(self) -> int:
        """IPUs that all together ask for who wait."""
        return sum(waiting.ipus for waiting in self.queue)

    @property
    def never(self) -> int:
        """How many of those who wait ask for more than there is."""
        return sum(waiting.kind == "never" for waiting in self.queue)

    @property
    def others(self) -> tuple[tuple[str, int], ...]:
        """The IPUs that no job holds, and of those held the idle and faulty ones, by state."""
        return tuple((name, self.counts[name]) for name in _OTHERS if self.counts.get(name))

    @property
    def oldest(self) -> datetime | None:
        """Since when the oldest of them waits."""
        return min((waiting.since for waiting in self.queue if waiting.since), default=None)


@dataclass(frozen=True, slots=True)
class Reader:
    """For whom and of when the map is drawn: what he may see, and by what squares get colours."""

    covers: Callable[[str], bool]
    sees_all: bool
    now: datetime
    fill: str = FILLS[0]


def draw_fleet(fleet: Mapping[str, Any], jobs: Mapping[str, JobFacts], reader: Reader) -> FleetMap:
    """The map out of the answer to `/v1/fleet`; `jobs` by UID as the cluster lists them."""
    controllers = fleet.get("controllers") or []
    if not controllers:
        return FleetMap()
    holdings = _holdings(controllers, jobs, reader)
    paints = _paints(holdings.values(), reader.fill)
    target = _target(fleet.get("queue") or [])
    total = sum(len(m["ipus"]) for c in controllers for m in c["machines"])
    painter = _Painter(
        holdings,
        lambda holding: paints.get(holding.group_by(reader.fill), OTHER),
        target,
        is_small=total > SQUARES_UP_TO,
    )
    blocks = tuple(block for controller in controllers for block in painter.blocks(controller))
    queue = queue_lines(fleet, jobs, holdings)
    first = next((line.job for line in queue if line.kind in {"block", "soon"}), None)
    return FleetMap(
        blocks=blocks,
        next=first.name if first and target else "",
        legend=_legend(holdings.values(), paints, reader.fill),
        queue=queue,
        fits=tuple((fit["size"], fit["count"]) for fit in fleet.get("fits") or []),
        idle=tuple(h for h in holdings.values() if h.state == "idle" and h.job),
        problems=tuple(c["message"] for c in controllers if c["message"]),
        machines=sum(len(block.machines) for block in blocks),
        total=total,
        counts=painter.counts,
        is_small=total > SQUARES_UP_TO,
    )


def list_ipus(
    fleet: Mapping[str, Any], jobs: Mapping[str, JobFacts], reader: Reader
) -> Iterator[IpuRow]:
    """Each IPU of the map, in the order of controllers, machines and IPU-Links."""
    controllers = fleet.get("controllers") or []
    holdings = _holdings(controllers, jobs, reader)
    for controller in controllers:
        for machine in controller["machines"]:
            for ipu in machine["ipus"]:
                holding = holdings.get((controller["address"], ipu["partition"]))
                yield IpuRow(
                    controller=controller["address"],
                    cluster=machine["cluster"],
                    ipulink_domain=machine["domain"],
                    machine=machine["agent"],
                    position=ipu["position"],
                    state=holding.state if holding else _unheld(controller, ipu)[0],
                    partition=holding.id if holding else "",
                    job_uid=holding.job.uid if holding and holding.job else "",
                )


def read_queue(
    fleet: Mapping[str, Any], jobs: Mapping[str, JobFacts], reader: Reader
) -> tuple[Waiting, ...]:
    """Who waits, without the map."""
    return queue_lines(fleet, jobs, _holdings(fleet.get("controllers") or [], jobs, reader))


def _holdings(
    controllers: Sequence[Mapping[str, Any]], jobs: Mapping[str, JobFacts], reader: Reader
) -> dict[tuple[str, str], Holding]:
    """The partitions by controller and id."""
    return {
        (controller["address"], each["id"]): _holding(each, jobs, reader)
        for controller in controllers
        for each in controller["partitions"]
    }


def _holding(each: Mapping[str, Any], jobs: Mapping[str, JobFacts], reader: Reader) -> Holding:
    held_by = each["job"]
    state = "faulty" if each["state"] == "ERROR" else "held"
    if held_by is None:
        name = each["id"] if reader.sees_all else ""
        label = f"partition {name}, made by hand" if name else "a partition of no job"
        return Holding(name, each["size"], state, None, None, label)
    if not reader.covers(held_by["namespace"]):
        label = "a job of another namespace"
        return Holding("", each["size"], state, None, None, label)
    since = parse_time(held_by["since"])
    job = jobs.get(held_by["uid"]) or JobFacts(
        held_by["uid"], held_by["namespace"], held_by["name"], "", runs=False
    )
    is_old = since is None or (reader.now - since).total_seconds() >= IDLE_AFTER_SECONDS
    if state == "held" and is_old and not job.runs:
        state = "idle"
    words = [f"{job.namespace}/{job.name}", each["id"], job.user]
    words += ["no pod running"] if state == "idle" else []
    words += ["in ERROR"] if state == "faulty" else []
    return Holding(each["id"], each["size"], state, job, since, ", ".join(filter(None, words)))


def colour_number(name: str) -> int:
    """The colour that belongs to a name, on every page and at every time."""
    return crc32(name.encode()) % COLOURS


def paints_of(names: Iterable[str]) -> Mapping[str, Paint]:
    """How each name is drawn. Its colour belongs to it, whatever else is on the page; names that
    share one differ by a decal, the first in alphabetical order has none."""
    found: dict[str, Paint] = {}
    taken = Counter[int]()
    for name in sorted({*names} - {""}):
        colour = colour_number(name)
        number = taken[colour] % PATTERNS
        found[name] = f"fill-{colour}", (f"decal-{number}",) if number else ()
        taken[colour] += 1
    return found


def _paints(holdings: Iterable[Holding], fill: str) -> Mapping[str, Paint]:
    if fill == "state":
        return {"held": ("is-held", ()), "idle": ("is-idle", ()), "faulty": ("is-faulty", ())}
    return paints_of(holding.group_by(fill) for holding in holdings)


def _legend(holdings: Iterable[Holding], paints: Mapping[str, Paint], fill: str) -> tuple[Key, ...]:
    """The names on the map, those with the most IPUs first; at the end what nobody may name."""
    if fill == "state":
        held = sum(holding.size for holding in holdings if holding.state == "held")
        return (Key("held", "is-held", held),) if held else ()
    named: dict[tuple[str, str], list[Holding]] = {}
    for holding in holdings:
        uid = holding.job.uid if fill == "job" and holding.job else ""
        named.setdefault((holding.group_by(fill), uid), []).append(holding)
    keys = [_key(name, uid, found, paints) for (name, uid), found in named.items()]
    return tuple(sorted(keys, key=lambda key: (key.css == OTHER[0], -key.ipus, key.label)))


def _key(name: str, uid: str, found: Sequence[Holding], paints: Mapping[str, Paint]) -> Key:
    css, decals = paints.get(name, OTHER)
    job = found[0].job if uid else None
    if job is not None and all(holding.state == "idle" for holding in found):
        decals = (*decals, *_MARKS["idle"])
    return Key(
        label=name or "held by others",
        css=css,
        ipus=sum(holding.size for holding in found),
        job_uid=uid,
        note=" · ".join(filter(None, (job.user, job.namespace))) if job else "",
        since=min((holding.since for holding in found if holding.since), default=None),
        decals=decals,
    )


def _target(queue: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The block that the first who waits would get, of those who can be served."""
    return next((each["block"] for each in queue if each["block"]), None)


class _Painter:
    """Draws the machines of one map, and counts its IPUs by state."""

    def __init__(
        self,
        holdings: Mapping[tuple[str, str], Holding],
        paint_of: Callable[[Holding], Paint],
        target: Mapping[str, Any] | None,
        *,
        is_small: bool,
    ) -> None:
        self._holdings = holdings
        self._paint_of = paint_of
        self._target = target
        self._is_small = is_small
        self.counts: Counter[str] = Counter()

    def blocks(self, controller: Mapping[str, Any]) -> Iterable[Block]:
        """One for each IPU-Link domain of the controller."""
        by_domain = groupby(controller["machines"], lambda m: (m["cluster"], m["domain"]))
        for (cluster, domain), machines in by_domain:
            drawn = tuple(self._machine(controller, machine) for machine in machines)
            yield Block(controller["address"], cluster, domain, drawn)

    def _machine(self, controller: Mapping[str, Any], machine: Mapping[str, Any]) -> Machine:
        ipus = machine["ipus"]
        alike = (
            [[*run] for _, run in groupby(ipus, _holder)] if self._is_small else [[i] for i in ipus]
        )
        squares, x = [], 0
        for run in alike:
            width = len(run) * (_SQUARE + _GAP) - _GAP
            squares.append(self._square(controller, run, x, width))
            x += width + _GAP
        name = machine["agent"] or "IPU-Machine"
        is_target = self._is_target(controller["address"], machine)
        return Machine(name, max(x - _GAP, 1), tuple(squares), is_target)

    def _square(
        self, controller: Mapping[str, Any], run: Sequence[Mapping[str, Any]], x: int, width: int
    ) -> Square:
        """Draw neighbours with one holder."""
        holding = self._holdings.get((controller["address"], run[0]["partition"]))
        if holding is None:
            state, label = _unheld(controller, run[0])
            self.counts[state] += len(run)
            return Square(x, width, f"is-{state}", label, decals=_MARKS.get(state, ()))
        self.counts[holding.state] += len(run)
        uid = holding.job.uid if holding.job else ""
        css, decals = self._paint_of(holding)
        marks = _MARKS.get(holding.state, ())
        said = run[0].get("fault") or run[0].get("cordon")
        label = f"{holding.label}; {said}" if said else holding.label
        return Square(x, width, css, label, uid, (*decals, *marks))

    def _is_target(self, address: str, machine: Mapping[str, Any]) -> bool:
        block = self._target
        if block is None or block["controller"] != address:
            return False
        if (block["cluster"], block["domain"]) != (machine["cluster"], machine["domain"]):
            return False
        wanted = range(block["start"], block["start"] + block["size"])
        return any(ipu["position"] in wanted for ipu in machine["ipus"])


def _holder(ipu: Mapping[str, Any]) -> tuple[object, ...]:
    """What neighbours that are drawn as one have in common."""
    return ipu["partition"], bool(ipu.get("outside")), ipu.get("cordon"), ipu.get("fault")


def _unheld(controller: Mapping[str, Any], ipu: Mapping[str, Any]) -> tuple[str, str]:
    """State of an IPU that nobody holds, and what that means."""
    if ipu.get("outside"):
        return "outside", "in a cluster or allocation that jobs do not use"
    if ipu.get("fault"):
        return "faulty", ipu["fault"]
    if ipu.get("cordon"):
        return "cordoned", f"free, but {ipu['cordon']}"
    if not controller["hasNode"]:
        return "cordoned", "free, but no node has the label of the controller"
    return "free", "free"
