"""domain: the IPU-Machines behind vipu-server: their addresses and attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from partitions.vipu.agent.simulatedinventory import (
    DRIVER_VERSION,
    HEXOPT,
    serial,
    simulated_inventory,
)
from partitions.vipu.errors import InvalidRequest, quoted
from partitions.vipu.telemetry import heartbeat_attributes
from partitions.vipu.topology import (
    AGENT_PREFIX,
    ALLOCATION_ATTRIBUTE,
    BOARD_SERIAL_ATTRIBUTE,
    BOARD_TYPE_ATTRIBUTE,
    CLOCK_ATTRIBUTE,
    CLUSTER_ATTRIBUTE,
    DOMAIN_ATTRIBUTE,
    FIRMWARE_ATTRIBUTE,
    POSITION_ATTRIBUTE,
    SOFTWARE_ATTRIBUTE,
)
from partitions.vipu.types import Gcd, IpuofConfig, IpuofDevice

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from partitions.vipu.agent.machine import Inventory, IpuInventory
    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.telemetry import Heartbeat
    from partitions.vipu.topology import Ipu, Topology

IPUOF_VERSION = "1.10.0"
_DRIVER_ATTRIBUTE, _HEXOPT_ATTRIBUTE = "driver version", "hexopt"
_GATEWAY_VERSION = "2.6.0"
_MACHINE_VERSION = "2.6.0"
_MARK_2 = 2  # architecture of the IPUs of an IPU-M2000
_SERVER_PORT = 12000
_RDMA_PORT = 12100
_ADDRESSES = 4


@dataclass(frozen=True, slots=True)
class Hardware:
    """The agents' reports on their machines, by agent: their parts, their hosts, and
    their last heartbeats.

    A machine of which nothing is said is simulated, or has not answered yet.
    """

    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    heartbeats: Mapping[str, Heartbeat] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DevicePort:
    """The address of an IPU of a machine, as the IPUoF configuration says."""

    agent: str
    index: int
    host: str
    port: int


_SIMULATED = Hardware()


def ipu_attributes(
    topology: Topology,
    agents: Collection[str],
    *,
    published_only: bool = False,
    hardware: Hardware = _SIMULATED,
) -> dict[str, dict[int, dict[str, str]]]:
    """The attributes of each IPU by agent and device number; of all agents when none is named.

    Agents in no allocation are left out: their IPUs cannot be used.

    Named agents also include their last heartbeat.

    With `published_only` the attributes are limited to the attributes of other V-IPU controllers:
    without place, cluster and allocation. Raises InvalidRequest for an agent that does not exist.
    """
    wanted, usable = set(agents), [ipu for ipu in topology.ipus if ipu.allocation]
    if unknown := sorted(wanted - {ipu.agent for ipu in usable}):
        raise InvalidRequest(
            f"agents: there is no agent {quoted(unknown[0])} in an allocation; see vipu list "
            "allocations"
        )
    found: dict[str, dict[int, dict[str, str]]] = {}
    for ipu in usable:
        if not wanted or ipu.agent in wanted:
            ours = {} if published_only else _place(ipu) | _software(ipu, hardware)
            if wanted and not published_only and (heard := hardware.heartbeats.get(ipu.agent)):
                ours |= heartbeat_attributes(heard, ipu.index)
            found.setdefault(ipu.agent, {})[ipu.index] = _attributes(ipu, hardware) | ours
    return found


def ipuof_config(
    record: PartitionRecord,
    topology: Topology,
    gcd: int | None,
    hardware: Hardware = _SIMULATED,
) -> IpuofConfig:
    """Return how the devices of a partition are reached: of one GCD, or of all when `gcd` is None.

    Raises InvalidRequest for a GCD that the partition does not have.
    """
    if gcd is not None and gcd >= record.num_gcds:
        raise InvalidRequest(
            f"gcd_id: partition {record.id} has the GCDs 0 to {record.num_gcds - 1}, not {gcd}; "
            "use one of them, or leave it out"
        )
    wanted = range(record.num_gcds) if gcd is None else (gcd,)
    return IpuofConfig(
        routing=record.routing,
        sync_type=record.sync_type,
        reconfigurable=record.reconfigurable,
        num_ipulink_segments=1,
        gcds=tuple(_gcd(record, topology, number, hardware) for number in wanted),
        server_version=IPUOF_VERSION,
        gateway_routing=record.gateway_routing,
    )


def device_ports(
    record: PartitionRecord, agent: str, topology: Topology, hardware: Hardware
) -> list[DevicePort]:
    """Return the addresses of a partition's devices on a machine, by the IPUoF configuration.

    Only those whose agent says which port is theirs: others need not answer.
    """
    inventory = hardware.inventories.get(agent)
    ipus = [topology.by_id[place] for place in record.ipus]
    return [
        DevicePort(agent, ipu.index, *_address(ipu, hardware))
        for ipu in ipus
        if ipu.agent == agent and inventory and _of(ipu, inventory).server_port
    ]


def _address(ipu: Ipu, hardware: Hardware) -> tuple[str, int]:
    inventory = hardware.inventories.get(ipu.agent)
    port = _of(ipu, inventory).server_port if inventory else 0
    host = hardware.hosts.get(ipu.agent) or _machine_address(ipu)
    return host, port or _SERVER_PORT + ipu.index


def _gcd(record: PartitionRecord, topology: Topology, gcd: int, hardware: Hardware) -> Gcd:
    share = len(record.ipus) // record.num_gcds
    numbers = range(gcd * share, (gcd + 1) * share)
    return Gcd(
        tuple(_device(topology.by_id[record.ipus[number]], number, hardware) for number in numbers),
        _gcd_attributes(record, gcd),
    )


def _gcd_attributes(record: PartitionRecord, gcd: int) -> Mapping[str, str]:
    return {
        "partition id": record.id,
        "gcd id": str(gcd),
        "num gcds": str(record.num_gcds),
        "num replicas": str(record.num_replicas),
    }


def _device(ipu: Ipu, routing_id: int, hardware: Hardware) -> IpuofDevice:
    inventory = hardware.inventories.get(ipu.agent)
    host, port = _address(ipu, hardware)
    return IpuofDevice(
        ip=host,
        server_port=port,
        rdma_port=_RDMA_PORT + ipu.index,
        device_id=ipu.index,
        ipulink_segment_id=0,
        routing_id=routing_id,
        ipu_arch_id=_MARK_2,
        ipu_id=ipu.index,
        chip_id=_of(ipu, inventory).serial if inventory else serial(ipu.agent, ipu.index),
        gwsw_version=inventory.gateway_version if inventory else _GATEWAY_VERSION,
        ipum_sw_version=_software_of(inventory),
    )


def inventory_of(agent: str, ipus: int, hardware: Hardware) -> Inventory | None:
    """Return the inventory of a machine; None while its agent has not sent it."""
    if agent in hardware.hosts:
        return hardware.inventories.get(agent)
    return simulated_inventory(agent, ipus)


def _of(ipu: Ipu, inventory: Inventory) -> IpuInventory:
    return next(entry for entry in inventory.ipus if entry.index == ipu.index)


def _attributes(ipu: Ipu, hardware: Hardware) -> dict[str, str]:
    inventory = hardware.inventories.get(ipu.agent)
    if inventory is not None:
        found = _of(ipu, inventory)
        return {
            "board ipu index": str(ipu.index),
            BOARD_SERIAL_ATTRIBUTE: inventory.board_serial,
            BOARD_TYPE_ATTRIBUTE: inventory.board_type,
            CLOCK_ATTRIBUTE: f"{found.clock_hertz // 1_000_000}MHz",
            FIRMWARE_ATTRIBUTE: found.firmware,
            **_known(inventory.driver_version, found.hexopt),
        }
    return {
        "board ipu index": str(ipu.index),
        BOARD_SERIAL_ATTRIBUTE: serial(ipu.agent),
        BOARD_TYPE_ATTRIBUTE: "M2000",
        CLOCK_ATTRIBUTE: "1330MHz",
        FIRMWARE_ATTRIBUTE: _MACHINE_VERSION,
        **_known(DRIVER_VERSION, HEXOPT),
    }


def _software(ipu: Ipu, hardware: Hardware) -> dict[str, str]:
    return {SOFTWARE_ATTRIBUTE: _software_of(hardware.inventories.get(ipu.agent))}


def _software_of(inventory: Inventory | None) -> str:
    return inventory.software_version if inventory else _MACHINE_VERSION


def _known(driver_version: str, hexopt: str) -> dict[str, str]:
    """Return these attributes; an earlier agent does not report them."""
    attributes = {_DRIVER_ATTRIBUTE: driver_version, _HEXOPT_ATTRIBUTE: hexopt}
    return {name: value for name, value in attributes.items() if value}


def _place(ipu: Ipu) -> dict[str, str]:
    return {
        DOMAIN_ATTRIBUTE: str(ipu.id.domain),
        POSITION_ATTRIBUTE: str(ipu.id.position),
        CLUSTER_ATTRIBUTE: ipu.cluster,
        ALLOCATION_ATTRIBUTE: ipu.allocation,
    }


def _machine_address(ipu: Ipu) -> str:
    """An address of the machine in 10.0.0.0/8, every fourth address: clusters share the network."""
    number = _ADDRESSES * int(ipu.agent.removeprefix(AGENT_PREFIX))
    return f"10.{1 + (number >> 16)}.{(number >> 8) & 255}.{number & 255}"
