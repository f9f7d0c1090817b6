"""domain: the fleet map: each IPU as a square with its holder, for one reader of the page.

Names of jobs that the reader may not see are left out; their IPUs show as held by others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from dashboard.fleetfits import fragments_of, size_fits
from dashboard.fleetpaint import MARKS, Painter, detail_of, state_without_holder
from dashboard.fleetqueue import (
    UNKNOWN_GROUP,
    Holding,
    JobFacts,
    policy_of,
    queue_lines,
    served_first,
    silent_of,
    unasked,
)
from ipuhub.partition import parse_time
from ipuhub.text import short_names
from ipuhub.web.palette import OTHER, paints_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from dashboard.fleetfits import Fragments, SizeFit
    from dashboard.fleetpaint import Block, Detail
    from dashboard.fleetqueue import Waiting
    from ipuhub.web.palette import Paint
    from partitions.fleetjson import BlockJson, ControllerJson, FleetJson, PartitionJson

FILLS: Final = ("job", "group", "user", "state")
IDLE_AFTER_SECONDS: Final = 60  # pods of a job that has just got its IPUs are about to run
_FEW_CONTROLLERS: Final = 4
_OTHERS: Final = ("idle", "removing", "faulty", "free", "cordoned", "outside")
IPU_STATES: Final = ("held", "idle", "removing", "faulty", "free", "cordoned", "outside")
_STATES: Final = {"ERROR": "faulty", "REMOVING": "removing"}


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
class SilentController:
    """A controller that does not answer, in its proxy's words; `read_at`: the minute of its last
    answer, which the map still shows (None: it has given none)."""

    message: str
    read_at: datetime | None


@dataclass(frozen=True, slots=True)
class IpuRow:
    """One IPU for programs. `state`: held, idle (held, no pod of the job runs), removing (its
    partition is being removed), faulty, free, cordoned (free, but jobs cannot get it) or outside
    (not for jobs); `note`: its fault, or why it gets no new partition. Of what the reader may not
    see, `partition`, `job_uid`, `job` and `since` are empty."""

    controller: str
    cluster: str
    ipulink_domain: int
    machine: str
    position: int
    state: str
    partition: str
    job_uid: str
    job: JobFacts | None = None
    since: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FleetMap:
    """All of it, in the `detail` that the size of the fleet allows. `total` and `counts` (by state)
    count the IPUs drawn, `closed` those that are free and no job can get; `next`: the job that
    would get the dashed machines; `silent`: the controllers that do not answer; `out_of_service`:
    which IPUs get no new partition, and why; `policy`: the order of service in words; `names`:
    controller and agent of each machine, where the map draws no names; `unasked`: how many jobs
    wait and are not in the queue.
    """

    blocks: tuple[Block, ...] = ()
    legend: tuple[Key, ...] = ()
    queue: tuple[Waiting, ...] = ()
    next: str = ""
    fits: tuple[SizeFit, ...] = ()
    fragments: tuple[Fragments, ...] = ()
    idle: tuple[Holding, ...] = ()
    silent: tuple[SilentController, ...] = ()
    machines: int = 0
    total: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    closed: int = 0
    detail: Detail = "ipus"
    out_of_service: str = ""
    policy: str = ""
    names: tuple[tuple[str, str], ...] = ()
    unasked: int = 0

    @property
    def full(self) -> tuple[str, ...]:
        """The controllers without a free IPU."""
        return tuple(each.controller for each in self.fragments if not each.free)

    @property
    def fragmented(self) -> tuple[Fragments, ...]:
        """Controllers with free IPUs to show one by one: those whose free IPUs are scattered, the
        worst first; all of them where there are few."""
        found = [each for each in self.fragments if each.free]
        if len(found) > _FEW_CONTROLLERS:
            found = [each for each in found if each.percent or not each.largest]
        return tuple(sorted(found, key=lambda each: -each.percent))

    @property
    def in_one_piece(self) -> tuple[Fragments, ...]:
        """The other controllers with free IPUs."""
        drawn = {each.controller for each in self.fragmented}
        return tuple(each for each in self.fragments if each.free and each.controller not in drawn)

    @property
    def has_domains(self) -> bool:
        """Return whether a controller has more than one IPU-Link domain."""
        return any(block.domain for block in self.blocks)

    @property
    def idle_ipus(self) -> int:
        """IPUs held while no pod of their job runs."""
        return sum(holding.size for holding in self.idle)

    @property
    def idle_owners(self) -> tuple[str, ...]:
        """The users whose jobs hold them, or their groups where no user is known."""
        jobs = [holding.job for holding in self.idle if holding.job]
        return tuple(dict.fromkeys(name for job in jobs if (name := job.user or job.group)))

    @property
    def waiting_ipus(self) -> int:
        """IPUs that all together ask for who wait."""
        return sum(waiting.ipus for waiting in self.queue)

    @property
    def waiting(self) -> int:
        """Return how many jobs wait, in the queue or not."""
        return len(self.queue) + self.unasked

    @property
    def never(self) -> int:
        """Return the number of waiting jobs that ask for more IPUs than exist."""
        return sum(waiting.kind == "never" for waiting in self.queue)

    @property
    def others(self) -> tuple[tuple[str, int], ...]:
        """The IPUs that no job holds, and of those held the idle, removing and faulty, by
        state."""
        return tuple((name, self.counts[name]) for name in _OTHERS if self.counts.get(name))

    @property
    def oldest(self) -> datetime | None:
        """Since when the oldest of them waits."""
        return min((waiting.since for waiting in self.queue if waiting.since), default=None)


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader for whom the map is drawn, and its time: what they may see, and what colours mean;
    `groups`: groups of jobs by UID, where they are shown."""

    covers: Callable[[str], bool]
    sees_all: bool
    now: datetime
    fill: str = FILLS[0]
    groups: Mapping[str, str] = field(default_factory=dict)


def draw_fleet(fleet: FleetJson, jobs: Mapping[str, JobFacts], reader: Reader) -> FleetMap:
    """Draw the map from the answer to `/v1/fleet`; `jobs` by UID as the cluster lists them."""
    controllers = fleet.get("controllers") or []
    if not controllers:
        return FleetMap()
    holdings = read_holdings(controllers, jobs, reader)
    target = _target(fleet)
    undrawn = _undrawn(fleet, jobs, holdings, reader)
    detail = detail_of(undrawn.total)
    painter = painter_of(holdings, reader.fill, target, detail)
    short = short_names((each["address"] for each in controllers), keeps_begin=True)
    blocks = tuple(
        replace(block, short=short[block.controller])
        for controller in controllers
        for block in painter.blocks(controller)
    )
    first = next((line.job for line in undrawn.queue if line.kind in {"block", "soon"}), None)
    return replace(
        undrawn,
        blocks=blocks,
        next=first.name if first and target else "",
        legend=_legend(holdings.values(), _paints(holdings.values(), reader.fill), reader.fill),
        counts=painter.counts,
        closed=painter.closed,
        detail=detail,
        names=() if detail == "ipus" else _names(controllers),
    )


def read_board(fleet: FleetJson, jobs: Mapping[str, JobFacts], reader: Reader) -> FleetMap:
    """Return who waits and what fits, as `draw_fleet` has it, without the drawing."""
    holdings = read_holdings(fleet.get("controllers") or [], jobs, reader)
    return _undrawn(fleet, jobs, holdings, reader)


def _undrawn(
    fleet: FleetJson,
    jobs: Mapping[str, JobFacts],
    holdings: Mapping[tuple[str, str], Holding],
    reader: Reader,
) -> FleetMap:
    controllers = fleet.get("controllers") or []
    return FleetMap(
        queue=served_first(queue_lines(fleet, jobs, holdings)),
        fits=size_fits(fleet, holdings),
        fragments=fragments_of(fleet),
        idle=_idle(holdings.values()),
        silent=tuple(_silent_controller(c, reader.now) for c in controllers if c["message"]),
        machines=sum(len(controller["machines"]) for controller in controllers),
        total=sum(len(m["ipus"]) for c in controllers for m in c["machines"]),
        out_of_service=fleet.get("outOfService") or "",
        policy=policy_of(fleet),
        unasked=unasked(fleet, jobs, holdings),
    )


def _idle(holdings: Iterable[Holding]) -> tuple[Holding, ...]:
    """Return the partitions held idle, as far as the reader may see them, the longest first."""
    named = (each for each in holdings if each.state == "idle" and each.job)
    return tuple(sorted(named, key=lambda each: (each.since is None, each.since)))


def _names(controllers: Iterable[ControllerJson]) -> tuple[tuple[str, str], ...]:
    places = ((c["address"], machine["agent"]) for c in controllers for machine in c["machines"])
    return tuple(dict.fromkeys(place for place in places if place[1]))


def painter_of(
    holdings: Mapping[tuple[str, str], Holding],
    fill: str,
    target: BlockJson | None,
    detail: Detail,
) -> Painter:
    """A painter that gives each holder the colour it has on the map."""
    paints = _paints(holdings.values(), fill)
    return Painter(
        holdings, lambda each: paints.get(each.group_by(fill), OTHER), target, detail=detail
    )


def list_ipus(fleet: FleetJson, jobs: Mapping[str, JobFacts], reader: Reader) -> Iterator[IpuRow]:
    """Each IPU of the map, in the order of controllers, machines and IPU-Links."""
    controllers = fleet.get("controllers") or []
    holdings = read_holdings(controllers, jobs, reader)
    for controller in controllers:
        for machine in controller["machines"]:
            for ipu in machine["ipus"]:
                holding = holdings.get((controller["address"], ipu["partition"] or ""))
                yield IpuRow(
                    controller=controller["address"],
                    cluster=machine["cluster"],
                    ipulink_domain=machine["domain"],
                    machine=machine["agent"],
                    position=ipu["position"],
                    state=holding.state if holding else state_without_holder(controller, ipu)[0],
                    partition=holding.id if holding else "",
                    job_uid=holding.job.uid if holding and holding.job else "",
                    job=holding.job if holding else None,
                    since=holding.since if holding else None,
                    note=ipu.get("fault") or ipu.get("cordon") or "",
                )


def read_holdings(
    controllers: Sequence[ControllerJson], jobs: Mapping[str, JobFacts], reader: Reader
) -> dict[tuple[str, str], Holding]:
    """The partitions by controller and id, as far as a reader may see them."""
    return {
        (controller["address"], each["id"]): _holding(each, jobs, reader)
        for controller in controllers
        for each in controller["partitions"]
    }


def _silent_controller(controller: ControllerJson, now: datetime) -> SilentController:
    age = controller.get("ageSeconds")
    at = (now - timedelta(seconds=age)).replace(second=0, microsecond=0) if age else None
    return SilentController(controller["message"], at)


def _holding(each: PartitionJson, jobs: Mapping[str, JobFacts], reader: Reader) -> Holding:
    held_by = each["job"]
    state = _STATES.get(each["state"], "held")
    ending = ", being removed" if state == "removing" else ""
    if held_by is None:
        name = each["id"] if reader.sees_all else ""
        label = f"partition {name}, made by hand" if name else "a partition of no job"
        return Holding(name, each["size"], state, None, None, label + ending)
    if not reader.covers(held_by["namespace"]):
        label = "a job of another namespace"
        return Holding("", each["size"], state, None, None, label + ending)
    since = parse_time(held_by["since"])
    job = jobs.get(held_by["uid"]) or JobFacts(
        held_by["uid"], held_by["namespace"], held_by["name"], "", runs=False
    )
    job = replace(job, group=reader.groups.get(held_by["uid"], ""))
    is_old = since is None or (reader.now - since).total_seconds() >= IDLE_AFTER_SECONDS
    if state == "held" and is_old and not job.runs:
        state = "idle"
    words = [f"{job.namespace}/{job.name}", each["id"], job.user]
    words += [f"group {job.group}"] if job.group else []
    words += [f"held since {since:%Y-%m-%d %H:%M} UTC"] if since else []
    words += [_workers(job.workers, job.all_workers)] if job.workers and state == "held" else []
    words += ["no pod running"] if state == "idle" else []
    words += ["in ERROR"] if state == "faulty" else []
    words += ["being removed"] if state == "removing" else []
    return Holding(each["id"], each["size"], state, job, since, ", ".join(filter(None, words)))


def _workers(running: int, wanted: int) -> str:
    number = max(running, wanted)
    part = f"{running} of {number}" if running < number else f"{running}"
    return f"{part} worker{'' if number == 1 else 's'} running"


def _paints(holdings: Iterable[Holding], fill: str) -> Mapping[str, Paint]:
    if fill == "state":
        return {name: (f"is-{name}", ()) for name in ("held", "idle", "removing", "faulty")}
    return paints_of((holding.group_by(fill) for holding in holdings), UNKNOWN_GROUP)


def _legend(holdings: Iterable[Holding], paints: Mapping[str, Paint], fill: str) -> tuple[Key, ...]:
    """The names on the map, by number of IPUs; at the end the holders without a name."""
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
        decals = (*decals, *MARKS["idle"])
    return Key(
        label=name or "held by others",
        css=css,
        ipus=sum(holding.size for holding in found),
        job_uid=uid,
        note=" · ".join(filter(None, (job.user, job.namespace))) if job else "",
        since=min((holding.since for holding in found if holding.since), default=None),
        decals=decals,
    )


def _target(fleet: FleetJson) -> BlockJson | None:
    """The block that the first who waits would get, of those who can be served; None: there is
    none, or its controller does not answer."""
    block = next((each["block"] for each in fleet.get("queue") or () if each["block"]), None)
    return None if block is None or block["controller"] in silent_of(fleet) else block
