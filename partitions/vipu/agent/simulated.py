"""domain: a simulated IPU-M2000: sensors that depend on load, latencies, injected faults.

Nothing runs in the background: the values are a function of the seed, the operations so far and the
time of the request.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import exp
from typing import TYPE_CHECKING, Final

from partitions.vipu.agent.machine import (
    FaultKind,
    Health,
    IpuReading,
    MachinePartition,
    MachineTest,
    PartitionReading,
    PartitionState,
)
from partitions.vipu.agent.simulatedinventory import CLOCK_HERTZ, TILES, serial, simulated_inventory
from partitions.vipu.errors import InvalidRequest, NotFound, NotReady, quoted
from partitions.vipu.telemetry import Sensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from partitions.vipu.agent.machine import Configuration, Fault, Inventory

LINKS: Final = 10  # IPU-Links of an IPU of the second generation
_IDLE_CLOCK_HERTZ: Final = 330_000_000
_IDLE_CELSIUS, _BUSY_CELSIUS = 31.0, 58.0
_IDLE_WATTS, _BUSY_WATTS = 48.0, 165.0
_WARMING_SECONDS: Final = 90.0  # until two thirds of the way to another temperature are gone
_RECEIVED_PER_SECOND, _SENT_PER_SECOND = 1_400_000_000, 350_000_000
_SECONDS_PER_CORRECTED_ERROR: Final = 3600.0
_MOST_PARTITION_ID: Final = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLatencies:
    """The times in which a simulated machine configures and resets its part of a partition."""

    configure: timedelta = timedelta(seconds=0.5)
    reset: timedelta = timedelta(seconds=0.2)


@dataclass(slots=True)
class _Ipu:
    """The state of a simulated IPU; temperature and use since `changed_at`."""

    changed_at: datetime
    celsius: float
    in_use: bool = False
    used_seconds: float = 0.0
    uncorrected_errors: int = 0
    memory_errors: int = 0
    resets: int = 0

    def celsius_at(self, now: datetime) -> float:
        goal = _BUSY_CELSIUS if self.in_use else _IDLE_CELSIUS
        share = exp(-_since(self.changed_at, now) / _WARMING_SECONDS)
        return goal + (self.celsius - goal) * share

    def used_at(self, now: datetime) -> float:
        return self.used_seconds + (_since(self.changed_at, now) if self.in_use else 0.0)

    def use(self, now: datetime, *, in_use: bool) -> None:
        self.celsius, self.used_seconds = self.celsius_at(now), self.used_at(now)
        self.changed_at, self.in_use = now, in_use


@dataclass(slots=True)
class _Part:
    """A partition on the machine, READY from `ready_at` on, gone at `free_at` once released."""

    configuration: Configuration
    ready_at: datetime
    configured_at: datetime
    free_at: datetime | None = None


@dataclass(slots=True)
class SimulatedMachine:
    """An IPU-M2000 that exists from `started_at` on; `seed` makes its serials and its noise."""

    seed: str
    started_at: datetime
    num_ipus: int = 4
    latencies: MachineLatencies = field(default_factory=MachineLatencies)
    ipuof_ports: Mapping[int, int] = field(default_factory=dict)
    _ipus: dict[int, _Ipu] = field(default_factory=dict)
    _parts: dict[str, _Part] = field(default_factory=dict)
    _faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ipus = {index: _Ipu(self.started_at, _IDLE_CELSIUS) for index in range(self.num_ipus)}

    @property
    def inventory(self) -> Inventory:
        """Return the inventory of the machine; the same for the same seed."""
        return simulated_inventory(self.seed, self.num_ipus, self.ipuof_ports)

    def configure(self, configuration: Configuration, now: datetime) -> None:
        """Begin to set a partition up; raises InvalidRequest, or NotReady if an IPU is taken."""
        self._forget_freed(now)
        self._check(configuration)
        known = self._parts.get(configuration.partition)
        if known is not None and known.configuration == configuration and known.free_at is None:
            return
        self.release(configuration.partition, now)
        if configuration.partition in self._parts:
            raise NotReady(f"partition {configuration.partition} is being released")
        self._parts[configuration.partition] = _Part(
            configuration, now + self.latencies.configure, now
        )
        for device in configuration.devices:
            self._ipus[device.index].use(now, in_use=True)

    def release(self, partition: str, now: datetime) -> None:
        """Begin to free the IPUs of a partition; a partition that is not there is released already.

        The machine resets them, which takes no time unless its resets are slow.
        """
        self._forget_freed(now)
        part = self._parts.get(partition)
        if part is None or part.free_at is not None:
            return
        part.free_at = now + max([timedelta(0), *self._slow_resets(now)])
        for device in part.configuration.devices:
            self._ipus[device.index].use(now, in_use=False)
        self._forget_freed(now)

    def reset(self, partition: str, generation: str, now: datetime) -> None:
        """Begin to reset the IPUs of a partition; raises NotFound."""
        self._forget_freed(now)
        part = self._parts.get(partition)
        if part is None or part.free_at is not None:
            raise NotFound(
                f"partition_id: this machine has no partition {quoted(partition)}; configure it"
            )
        if part.configuration.generation == generation:
            return
        for device in part.configuration.devices:
            self._ipus[device.index].resets += 1
        latency = max([self.latencies.reset, *self._slow_resets(now)])
        configuration = replace(part.configuration, generation=generation)
        self._parts[partition] = _Part(configuration, now + latency, part.configured_at)

    def health(self, now: datetime) -> Health:
        """Partitions and faults at this time."""
        self._forget_freed(now)
        faults = self._sentences(now)
        return Health(
            boot_id=f"{self.seed}/{self.started_at.isoformat()}",
            partitions=tuple(self._as_seen(part, faults, now) for part in self._parts.values()),
            faults=faults,
            sensors={
                reading.index: Sensors(
                    reading.temperature_celsius, reading.power_watts, reading.clock_hertz
                )
                for reading in self.metrics(now)
            },
        )

    def metrics(self, now: datetime) -> tuple[IpuReading, ...]:
        """One reading for each IPU, in the order of their device numbers."""
        return tuple(self._reading(index, ipu, now) for index, ipu in self._ipus.items())

    def partition_metrics(self, now: datetime) -> tuple[PartitionReading, ...]:
        """One reading for each partition on the machine."""
        parts = [part for part in self._parts.values() if part.free_at is None]
        return tuple(_partition_reading(part, now) for part in parts)

    def test(self, kind: MachineTest, ipu: int | None, now: datetime) -> str:
        """Test the machine, or one IPU: a sentence on what is wrong, empty if nothing is.

        Raises InvalidRequest, or NotReady while a partition uses what the test would disturb.
        """
        if ipu is not None and ipu not in self._ipus:
            raise InvalidRequest(
                f"ipu {ipu}: the machine has the IPUs 0 to {self.num_ipus - 1}; use one of them"
            )
        self._forget_freed(now)
        tested = set(self._ipus) if ipu is None else {ipu}
        if kind is not MachineTest.CONNECTIVITY:  # this test only reads
            for name, part in self._parts.items():
                if tested & {device.index for device in part.configuration.devices}:
                    raise NotReady(f"partition {name} uses it; remove that first")
        kinds = {
            MachineTest.CONNECTIVITY: {FaultKind.LINK_DOWN, FaultKind.IPUOF_CLOSED},
            MachineTest.IPU_SELF_TEST: {FaultKind.IPU_ERROR},
            MachineTest.SYNC: {FaultKind.LINK_DOWN, FaultKind.IPU_ERROR},
        }[kind]
        found = [
            fault for fault in self._present(now) if fault.kind in kinds and fault.ipu in tested
        ]
        return "; ".join(sorted(map(_sentence, found)))

    def open_devices(self, now: datetime) -> frozenset[int]:
        """The devices whose IPUoF port answers: the devices of READY partitions without a port
        fault."""
        closed = {fault.ipu for fault in self._closed_ports(now)}
        return frozenset(
            device.index
            for part in self._parts.values()
            if part.free_at is None and part.ready_at <= now
            for device in part.configuration.devices
            if device.index not in closed
        )

    def is_hung(self, now: datetime) -> bool:
        """Return whether the agent of this machine answers nothing."""
        return any(fault.kind is FaultKind.HANG for fault in self._present(now))

    def inject(self, fault: Fault, now: datetime) -> None:
        """Let something go wrong from now on; raises InvalidRequest for a part that is not there.

        Of two faults of one kind and place the later fault counts.
        """
        if fault.ipu not in self._ipus or not 0 <= fault.link < LINKS:
            raise InvalidRequest(
                f"ipu {fault.ipu}, link {fault.link}: the machine has the IPUs 0 to "
                f"{self.num_ipus - 1}, each with the links 0 to {LINKS - 1}; use these"
            )
        self._faults = [other for other in self._present(now) if not _is_same(other, fault)]
        self._faults.append(fault)
        if fault.kind is FaultKind.IPU_ERROR:
            self._ipus[fault.ipu].memory_errors += 1
        if fault.kind is FaultKind.LINK_DOWN:
            self._ipus[fault.ipu].uncorrected_errors += 1

    def repair(self, ipu: int | None = None) -> None:
        """End all faults, or all faults of one IPU."""
        of_ipu = {FaultKind.IPU_ERROR, FaultKind.LINK_DOWN, FaultKind.IPUOF_CLOSED}
        self._faults = [
            fault
            for fault in self._faults
            if ipu is not None and not (fault.kind in of_ipu and fault.ipu == ipu)
        ]

    def _as_seen(self, part: _Part, faults: dict[int, str], now: datetime) -> MachinePartition:
        if part.free_at is not None:
            return MachinePartition(part.configuration, PartitionState.RELEASING)
        indexes = sorted(device.index for device in part.configuration.devices)
        problem = "; ".join(faults[index] for index in indexes if index in faults)
        if problem:
            return MachinePartition(part.configuration, PartitionState.FAILED, problem)
        if now < part.ready_at:
            return MachinePartition(part.configuration, PartitionState.CONFIGURING)
        closed = [fault for fault in self._closed_ports(now) if fault.ipu in indexes]
        problem = "; ".join(sorted(map(_sentence, closed)))
        return MachinePartition(part.configuration, PartitionState.READY, problem)

    def _closed_ports(self, now: datetime) -> list[Fault]:
        return [fault for fault in self._present(now) if fault.kind is FaultKind.IPUOF_CLOSED]

    def _forget_freed(self, now: datetime) -> None:
        freed = [
            name
            for name, part in self._parts.items()
            if part.free_at is not None and part.free_at <= now
        ]
        for name in freed:
            del self._parts[name]

    def _present(self, now: datetime) -> list[Fault]:
        return [fault for fault in self._faults if fault.until is None or now < fault.until]

    def _slow_resets(self, now: datetime) -> list[timedelta]:
        return [
            timedelta(seconds=fault.seconds)
            for fault in self._present(now)
            if fault.kind is FaultKind.SLOW_RESET
        ]

    def _sentences(self, now: datetime) -> dict[int, str]:
        found: dict[int, list[str]] = {}
        for fault in self._present(now):
            if fault.kind in {FaultKind.IPU_ERROR, FaultKind.LINK_DOWN}:
                found.setdefault(fault.ipu, []).append(_sentence(fault))
        return {index: "; ".join(sorted(texts)) for index, texts in sorted(found.items())}

    def _check(self, configuration: Configuration) -> None:
        if not 0 < len(configuration.partition) <= _MOST_PARTITION_ID:
            raise InvalidRequest(f"partition_id: write 1 to {_MOST_PARTITION_ID} characters")
        indexes = [device.index for device in configuration.devices]
        wanted = set(indexes)
        if not wanted or len(wanted) != len(indexes) or not self._ipus.keys() >= wanted:
            raise InvalidRequest(
                f"devices: name one or more of the IPUs 0 to {self.num_ipus - 1}, each once"
            )
        for name, part in self._parts.items():
            taken = {device.index for device in part.configuration.devices} & wanted
            if name != configuration.partition and taken:
                raise NotReady(f"IPU {min(taken)} belongs to partition {name}; release that first")

    def _reading(self, index: int, ipu: _Ipu, now: datetime) -> IpuReading:
        noise = _noise(self.seed, index, int(_since(self.started_at, now)))
        used = ipu.used_at(now)
        warmth = (ipu.celsius_at(now) - _IDLE_CELSIUS) / (_BUSY_CELSIUS - _IDLE_CELSIUS)
        down = {
            fault.link
            for fault in self._present(now)
            if fault.kind is FaultKind.LINK_DOWN and fault.ipu == index
        }
        # A warm chip leaks: some of the power stays for a while after the work.
        work = 0.9 if ipu.in_use else 0.0
        return IpuReading(
            index=index,
            in_use=ipu.in_use,
            temperature_celsius=round(ipu.celsius_at(now) + noise, 2),
            power_watts=round(
                _IDLE_WATTS + (_BUSY_WATTS - _IDLE_WATTS) * (work + 0.1 * warmth) + noise, 2
            ),
            clock_hertz=CLOCK_HERTZ if ipu.in_use else _IDLE_CLOCK_HERTZ,
            tiles=TILES,
            links=LINKS,
            links_up=LINKS - len(down),
            link_corrected_errors=int(used / _SECONDS_PER_CORRECTED_ERROR),
            link_uncorrected_errors=ipu.uncorrected_errors,
            memory_errors=ipu.memory_errors,
            host_received_bytes=int(used * _RECEIVED_PER_SECOND),
            host_sent_bytes=int(used * _SENT_PER_SECOND),
            resets=ipu.resets,
        )


def _partition_reading(part: _Part, now: datetime) -> PartitionReading:
    seconds, ipus = _since(part.configured_at, now), len(part.configuration.devices)
    return PartitionReading(
        partition=part.configuration.partition,
        ipus=ipus,
        seconds=seconds,
        host_received_bytes=int(ipus * seconds * _RECEIVED_PER_SECOND),
        host_sent_bytes=int(ipus * seconds * _SENT_PER_SECOND),
    )


def _sentence(fault: Fault) -> str:
    if fault.kind is FaultKind.IPU_ERROR:
        return f"IPU {fault.ipu} has a memory error"
    if fault.kind is FaultKind.IPUOF_CLOSED:
        return f"the IPUoF port of IPU {fault.ipu} is closed"
    return f"IPU-Link {fault.link} of IPU {fault.ipu} is down"


def _is_same(fault: Fault, other: Fault) -> bool:
    return (fault.kind, fault.ipu, fault.link) == (other.kind, other.ipu, other.link)


def _since(start: datetime, now: datetime) -> float:
    return max((now - start).total_seconds(), 0.0)


def _noise(*of: object) -> float:
    """A number from -1 to 1, the same for the same words."""
    return int(serial(*of)[:4], 16) / 0x7FFF - 1
