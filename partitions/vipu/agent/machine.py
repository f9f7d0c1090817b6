"""domain: the state and operations of an agent: its IPU-Machine, as the Machine protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from partitions.vipu.agent.holder import Rival
    from partitions.vipu.errors import VipuError
    from partitions.vipu.telemetry import Sensors
    from partitions.vipu.types import IpuLinkRouting, SyncType


class PartitionState(StrEnum):
    """The progress of a machine with its part of a partition."""

    CONFIGURING = "CONFIGURING"
    READY = "READY"
    FAILED = "FAILED"
    RELEASING = "RELEASING"


@dataclass(frozen=True, slots=True)
class IpuInventory:
    """One IPU of a machine; `index` is its device number, `server_port` its port of IPUoF, 0 where
    it is not known; `pci` and `device` are what the machine's own system calls it."""

    index: int
    serial: str
    firmware: str
    architecture: str
    tiles: int
    clock_hertz: int
    server_port: int = 0
    pci: str = ""
    device: str = ""
    hexopt: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The parts of a machine; `exporter_port` is of its agent's metrics, 0: it has none."""

    platform: str
    board_type: str
    board_serial: str
    part_number: str
    gateway_version: str
    software_version: str
    ipuof_version: str
    ipus: tuple[IpuInventory, ...]
    exporter_port: int = 0
    manufacturer: str = ""
    discovery_mode: str = ""
    virm_version: str = ""
    runtime_version: str = ""
    hdf_version: str = ""
    hdf_hash: str = ""
    driver_version: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One IPU of a partition: its number on the machine, in the partition, and its GCD."""

    index: int
    routing_id: int
    gcd: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """A machine's part of a partition.

    `generation` names the operation that requested it: the same generation again changes nothing,
    another generation is a reset.
    """

    partition: str
    generation: str
    devices: tuple[Device, ...]
    routing: IpuLinkRouting
    sync_type: SyncType
    num_gcds: int = 1
    num_replicas: int = 1
    reconfigurable: bool = False


@dataclass(frozen=True, slots=True)
class Configure:
    """The machine has to set a partition up."""

    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Reset:
    """The machine has to reset the IPUs of a partition."""

    partition: str
    generation: str


@dataclass(frozen=True, slots=True)
class Release:
    """The machine has to free the IPUs of a partition."""

    partition: str


Order: TypeAlias = Configure | Reset | Release


@dataclass(frozen=True, slots=True)
class MachinePartition:
    """A partition as a machine has it; `problem` says why it is FAILED, or out of reach though
    READY."""

    configuration: Configuration
    state: PartitionState
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The content of a machine's heartbeat: its partitions, a sentence for each faulty IPU, and
    sensor readings.

    `boot_id` changes when the machine loses its partitions. `rival`: the controller that its agent
    has refused of late.
    """

    boot_id: str
    partitions: tuple[MachinePartition, ...]
    faults: Mapping[int, str]
    sensors: Mapping[int, Sensors] = field(default_factory=dict)
    rival: Rival | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A machine after some orders, and why it has not begun some of them, by their number."""

    health: Health
    refusals: Mapping[int, VipuError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IpuReading:
    """Readings of one IPU's sensors and counters; counts are from the start of the machine."""

    index: int
    in_use: bool
    temperature_celsius: float
    power_watts: float
    clock_hertz: float
    tiles: int
    links: int
    links_up: int
    link_corrected_errors: int
    link_uncorrected_errors: int
    memory_errors: int
    host_received_bytes: int
    host_sent_bytes: int
    resets: int


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """Counters of a machine's part of a partition since it was configured."""

    partition: str
    ipus: int
    seconds: float
    host_received_bytes: int
    host_sent_bytes: int


class Machine(Protocol):
    """An IPU-Machine. Each method takes the time; none blocks.

    `configure`, `reset` and `release` begin an operation, `health` says when it has ended.
    """

    @property
    def inventory(self) -> Inventory:
        """Return the inventory of the machine."""
        ...

    def configure(self, configuration: Configuration, now: datetime) -> None:
        """Begin to set a partition up; raises InvalidRequest, or NotReady if an IPU is taken."""
        ...

    def release(self, partition: str, now: datetime) -> None:
        """Begin to free the IPUs of a partition; a partition that is not there is released
        already."""
        ...

    def reset(self, partition: str, generation: str, now: datetime) -> None:
        """Begin to reset the IPUs of a partition; raises NotFound."""
        ...

    def health(self, now: datetime) -> Health:
        """Partitions and faults at this time."""
        ...

    def metrics(self, now: datetime) -> tuple[IpuReading, ...]:
        """One reading for each IPU, in the order of their device numbers."""
        ...

    def partition_metrics(self, now: datetime) -> tuple[PartitionReading, ...]:
        """One reading for each partition on the machine."""
        ...

    def test(self, kind: MachineTest, ipu: int | None, now: datetime) -> str:
        """Test the machine, or one IPU: a sentence on what is wrong, empty if nothing is.

        Raises InvalidRequest, or NotReady while a partition uses what the test would disturb.
        """
        ...


class MachineTest(StrEnum):
    """The kinds of tests of a machine."""

    CONNECTIVITY = "connectivity"
    IPU_SELF_TEST = "ipu-self-test"
    SYNC = "sync"


class FaultKind(StrEnum):
    """The kinds of faults that a simulated machine can have."""

    IPU_ERROR = "ipu-error"
    LINK_DOWN = "link-down"
    HANG = "hang"
    SLOW_RESET = "slow-reset"
    IPUOF_CLOSED = "ipuof-closed"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault on command, of one IPU (and one of its IPU-Links) or of the whole machine.

    `until` is its end, None: it stays. `seconds` is how long a slow reset takes, of a partition
    that stays or goes.
    """

    kind: FaultKind
    ipu: int = 0
    link: int = 0
    until: datetime | None = None
    seconds: float = 0.0
