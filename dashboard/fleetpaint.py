"""domain: the drawing of the fleet map: machines or racks, IPUs in the colour of their holder."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

from ipuhub.text import short_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dashboard.fleetqueue import Holding
    from ipuhub.web.palette import Paint
    from partitions.fleetjson import BlockJson, ControllerJson, IpuJson, MachineJson

MARKS: Final = {
    "idle": ("hatch",),
    "removing": ("fading",),
    "faulty": ("crossed",),
    "cordoned": ("striped",),
}
Detail = Literal["ipus", "machines", "racks"]
"""The drawings of a fleet: a square per IPU; machines, neighbours with the same holder joined;
or a bar per IPU-Link domain."""
_IPUS_UP_TO: Final = 512
_MACHINES_UP_TO: Final = 1024  # IPUs
_SQUARE: Final = 10
_GAP: Final = 2


@dataclass(frozen=True, slots=True)
class Square:
    """One IPU, or neighbours with one holder; `x` and `width` in the units of the drawing, `decals`
    the patterns over its colour. `key`: controller and agent of the first, where they are known."""

    x: int
    width: int
    css: str
    label: str
    job_uid: str = ""
    decals: tuple[str, ...] = ()
    key: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class HolderOutline:
    """Neighbours of one partition, which are drawn apart: the outline around them."""

    x: int
    width: int


@dataclass(frozen=True, slots=True)
class Machine:
    """An IPU-Machine; `is_target`: the next who waits would get IPUs of it; `key`: its controller
    and agent (None: it stands for several, or it has no name); `short`: its name in little
    room."""

    name: str
    width: int
    squares: tuple[Square, ...]
    joints: tuple[HolderOutline, ...] = ()
    is_target: bool = False
    key: tuple[str, str] | None = None
    short: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """The machines of an IPU-Link domain in their order, or all as one; `free`: its free IPUs;
    `is_stale`: its controller is silent, and this is what it said last; `short`: the name of its
    controller in little room."""

    controller: str
    cluster: str
    domain: int
    machines: tuple[Machine, ...]
    free: int = 0
    is_stale: bool = False
    short: str = ""


def detail_of(total: int) -> Detail:
    """Return as what a fleet of `total` IPUs is drawn, so that it fits a screen."""
    if total <= _IPUS_UP_TO:
        return "ipus"
    return "machines" if total <= _MACHINES_UP_TO else "racks"


class Painter:
    """Draws the machines of one map, and counts its IPUs by state; `closed`: those that no job
    holds and no job can get."""

    def __init__(
        self,
        holdings: Mapping[tuple[str, str], Holding],
        paint_of: Callable[[Holding], Paint],
        target: BlockJson | None,
        *,
        detail: Detail,
    ) -> None:
        self._holdings = holdings
        self._paint_of = paint_of
        self._target = target
        self._detail = detail
        self.counts: Counter[str] = Counter()
        self.closed = 0

    def blocks(self, controller: ControllerJson) -> Iterable[Block]:
        """A block for each IPU-Link domain of the controller."""
        by_domain = groupby(controller["machines"], lambda m: (m["cluster"], m["domain"]))
        short = short_names(machine["agent"] for machine in controller["machines"])
        for (cluster, domain), machines in by_domain:
            together = self._detail == "racks"
            racks = [_joined(cluster, domain, [*machines])] if together else [*machines]
            before = self.counts["free"]
            drawn = tuple(
                replace(self.machine(controller, machine), short=short.get(machine["agent"], ""))
                for machine in racks
            )
            free = self.counts["free"] - before
            is_stale = bool(controller["message"])
            yield Block(controller["address"], cluster, domain, drawn, free, is_stale)

    def machine(self, controller: ControllerJson, machine: MachineJson) -> Machine:
        """Draw an IPU-Machine, or the machines of a domain joined to one."""
        ipus = machine["ipus"]
        alike = (
            [[i] for i in ipus]
            if self._detail == "ipus"
            else [[*run] for _, run in groupby(ipus, _holder)]
        )
        squares, x = [], 0
        for run in alike:
            width = len(run) * (_SQUARE + _GAP) - _GAP
            agent = run[0].get("agent", machine["agent"])
            key = (controller["address"], agent) if agent else None
            squares.append(replace(self._square(controller, run, x, width), key=key))
            x += width + _GAP
        name = machine["agent"] or "IPU-Machine"
        is_target = self._is_target(controller["address"], machine)
        is_one = machine["agent"] and not any("agent" in ipu for ipu in ipus[:1])
        own = (controller["address"], machine["agent"]) if is_one else None
        joints = tuple(_joints([run[0]["partition"] for run in alike], squares))
        return Machine(name, max(x - _GAP, 1), tuple(squares), joints, is_target, own)

    def _square(
        self, controller: ControllerJson, run: Sequence[IpuJson], x: int, width: int
    ) -> Square:
        """Draw neighbours with one holder."""
        holding = self._holdings.get((controller["address"], run[0]["partition"] or ""))
        if holding is None:
            state, label = state_without_holder(controller, run[0])
            self.counts[state] += len(run)
            self.closed += len(run) if state != "free" else 0
            return Square(x, width, f"is-{state}", _place(run) + label, decals=MARKS.get(state, ()))
        self.counts[holding.state] += len(run)
        uid = holding.job.uid if holding.job else ""
        css, decals = self._paint_of(holding)
        state = "faulty" if run[0].get("fault") else holding.state
        marks = dict.fromkeys((*MARKS.get(holding.state, ()), *MARKS.get(state, ())))
        problem = run[0].get("fault") or run[0].get("cordon")
        label = _place(run) + (f"{holding.label}; {problem}" if problem else holding.label)
        return Square(x, width, css, label, uid, (*decals, *marks))

    def _is_target(self, address: str, machine: MachineJson) -> bool:
        block = self._target
        if block is None or block["controller"] != address:
            return False
        if (block["cluster"], block["domain"]) != (machine["cluster"], machine["domain"]):
            return False
        wanted = range(block["start"], block["start"] + block["size"])
        return any(ipu["position"] in wanted for ipu in machine["ipus"])


def _joints(partitions: Sequence[str | None], squares: Sequence[Square]) -> Iterable[HolderOutline]:
    """Yield an outline for each partition that has more than one of the squares side by side."""
    for partition, run in groupby(range(len(squares)), lambda at: partitions[at]):
        own = [squares[at] for at in run]
        if partition and len(own) > 1:
            yield HolderOutline(own[0].x, own[-1].x + own[-1].width - own[0].x)


def _joined(cluster: str, domain: int, machines: Sequence[MachineJson]) -> MachineJson:
    """All machines of a domain as one; each IPU keeps the name of its own."""
    ipus: list[IpuJson] = [
        {**ipu, "agent": machine["agent"]} for machine in machines for ipu in machine["ipus"]
    ]
    name = f"{cluster or 'IPU-Link domain'} {domain}" if domain or not cluster else cluster
    return {"agent": name, "cluster": cluster, "domain": domain, "ipus": ipus}


def _place(run: Sequence[IpuJson]) -> str:
    """The machines of neighbours in a rack, as a beginning of their label."""
    first, last = run[0].get("agent", ""), run[-1].get("agent", "")
    return f"{first} to {last}, " if last != first else f"{first}, " if first else ""


def _holder(ipu: IpuJson) -> tuple[object, ...]:
    """Return the key that neighbours drawn as one block share."""
    return ipu["partition"], bool(ipu.get("outside")), ipu.get("cordon"), ipu.get("fault")


def state_without_holder(controller: ControllerJson, ipu: IpuJson) -> tuple[str, str]:
    """The state of an IPU that no partition holds, and its meaning."""
    if ipu.get("outside"):
        return "outside", "in a cluster or allocation that jobs do not use"
    if ipu.get("fault"):
        return "faulty", ipu["fault"]
    if ipu.get("cordon"):
        return "cordoned", f"free, but {ipu['cordon']}"
    if not controller["hasNode"]:
        return "cordoned", "free, but no node has the label of the controller"
    return "free", "free"
