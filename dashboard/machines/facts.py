"""domain: one IPU-Machine with its IPUs, from the data of the fleet map.

Names of jobs that the reader may not see are left out, as on the map.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dashboard.fleetmap import painter_of, read_holdings
from dashboard.fleetpaint import state_without_holder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from dashboard.fleetmap import Reader
    from dashboard.fleetqueue import Holding, JobFacts
    from ipuhub.web.palette import Paint
    from partitions.fleetjson import (
        ControllerJson,
        FleetJson,
        HardwareJson,
        IpuJson,
        MachineJson,
    )

_HARDWARE: Final = {
    "boardType": "Board type",
    "boardSerial": "Board serial number",
    "clock": "Clock",
    "firmware": "Firmware",
    "software": "Software",
}


MACHINE_STATES: Final = ("up", "cordoned", "faulty", "lost", "unknown", "gone")


@dataclass(frozen=True, slots=True)
class IpuFacts:
    """An IPU. `position` in its IPU-Link domain (0 to 63), `device`: its number in the machine;
    `state` as in the API; `reason`: why it gets no new partition; `outage`: faulty or cordoned,
    also while a partition holds it; `size`: IPUs of its partition; `paint`: its colour on the map;
    `hardware` by label."""

    position: int
    device: int
    state: str
    reason: str
    partition: str
    size: int
    job: JobFacts | None
    since: datetime | None
    paint: Paint
    hardware: Mapping[str, str] = field(default_factory=dict)
    outage: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """An IPU-Machine. `lost`: why its agent does not answer; `silent`: its controller does not
    answer, and this data is `age_seconds` old; `is_reached`: a node has its label."""

    controller: str
    name: str
    cluster: str
    domain: int
    lost: str
    silent: str
    age_seconds: int
    is_reached: bool
    is_certain: bool
    hardware: Mapping[str, str]
    ipus: tuple[IpuFacts, ...]

    @property
    def state(self) -> str:
        """lost, faulty, cordoned or up: what comes first is worse."""
        found = {state for ipu in self.ipus for state in (ipu.state, ipu.outage)}
        if self.lost:
            return "lost"
        return next((each for each in ("faulty", "cordoned") if each in found), "up")

    @property
    def held(self) -> int:
        """Return the number of its IPUs that are held."""
        return sum(bool(ipu.size) for ipu in self.ipus)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the reasons why its IPUs get no new partition, each once."""
        return tuple(dict.fromkeys(ipu.reason for ipu in self.ipus if ipu.reason))

    @property
    def is_closed(self) -> bool:
        """Return whether none of its IPUs gets a new partition."""
        return all(ipu.reason for ipu in self.ipus)

    def ipu(self, position: int) -> IpuFacts | None:
        """Its IPU of this position; None: it has no such IPU."""
        return next((ipu for ipu in self.ipus if ipu.position == position), None)


def find_machine(
    fleet: FleetJson,
    jobs: Mapping[str, JobFacts],
    reader: Reader,
    address: str,
    name: str,
) -> MachineFacts | None:
    """Return the machine with this agent of the controller; None: the reading has none."""
    controllers = fleet.get("controllers") or []
    controller = next((each for each in controllers if each["address"] == address), None)
    if controller is None:
        return None
    # Where places are only guessed, the IPUs of a machine may stand apart.
    parts = [machine for machine in controller["machines"] if machine["agent"] == name]
    if not parts or not name:
        return None
    holdings = read_holdings(controllers, jobs, reader)
    return MachineFacts(
        controller=address,
        name=name,
        cluster=parts[0]["cluster"],
        domain=parts[0]["domain"],
        lost=parts[0].get("lost") or "",
        silent=controller["message"],
        age_seconds=controller.get("ageSeconds") or 0,
        is_reached=controller["hasNode"],
        is_certain=controller["placesKnown"],
        hardware=_named(parts[0].get("hardware") or {}),
        ipus=tuple(_ipus(controller, parts, holdings)),
    )


def is_open(fleet: FleetJson, address: str) -> bool:
    """Return whether a controller's machines are still unknown: no answer has been read yet."""
    controllers = fleet.get("controllers")
    if controllers is None:
        return True
    found = next((each for each in controllers if each["address"] == address), None)
    return found is not None and not found["machines"]


def _ipus(
    controller: ControllerJson,
    parts: list[MachineJson],
    holdings: Mapping[tuple[str, str], Holding],
) -> Iterator[IpuFacts]:
    painter = painter_of(holdings, "job", None, "ipus")
    for machine in parts:
        made_of = machine.get("hardware") or {}
        squares = painter.machine(controller, machine).squares
        for number, (ipu, square) in enumerate(zip(machine["ipus"], squares, strict=True)):
            holding = holdings.get((controller["address"], ipu["partition"] or ""))
            yield IpuFacts(
                position=ipu["position"],
                device=ipu.get("device", number),
                state=holding.state if holding else state_without_holder(controller, ipu)[0],
                reason=_reason(controller, ipu, holding),
                partition=holding.id if holding else "",
                size=holding.size if holding else 0,
                job=holding.job if holding else None,
                since=holding.since if holding and holding.job else None,
                paint=(square.css, square.decals),
                hardware=_named(ipu.get("hardware") or made_of),
                outage="faulty" if ipu.get("fault") else "cordoned" if ipu.get("cordon") else "",
            )


def _reason(controller: ControllerJson, ipu: IpuJson, holding: Holding | None) -> str:
    problem = ipu.get("fault") or ipu.get("cordon") or ""
    if problem or holding is not None:
        return str(problem)
    state, label = state_without_holder(controller, ipu)
    return "" if state == "free" else label.removeprefix("free, but ")


def _named(hardware: HardwareJson) -> dict[str, str]:
    texts: Mapping[str, object] = hardware
    return {label: str(texts[key]) for key, label in _HARDWARE.items() if texts.get(key)}
