"""io: converts between our values and messages of the agent API, for controller and agent."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, TypeVar

from partitions.vipu.agent.holder import Rival
from partitions.vipu.agent.machine import (
    Configuration,
    Configure,
    Device,
    Fault,
    FaultKind,
    Health,
    Inventory,
    IpuInventory,
    MachinePartition,
    MachineTest,
    Outcome,
    PartitionState,
    Release,
    Reset,
)
from partitions.vipu.codes import code_of, details_of, error_from_number, number_of
from partitions.vipu.errors import InvalidRequest
from partitions.vipu.protos import vipu_agent_pb2 as pb
from partitions.vipu.protos import vipu_diagnostics_pb2 as diagnostics_pb
from partitions.vipu.telemetry import Sensors
from partitions.vipu.types import IpuLinkRouting, SyncType

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from partitions.vipu.agent.machine import Order

_Word = TypeVar("_Word", IpuLinkRouting, SyncType)
_STATES = {
    pb.PARTITION_STATE_CONFIGURING: PartitionState.CONFIGURING,
    pb.PARTITION_STATE_READY: PartitionState.READY,
    pb.PARTITION_STATE_FAILED: PartitionState.FAILED,
    pb.PARTITION_STATE_RELEASING: PartitionState.RELEASING,
}
_STATE_NUMBERS = {state: number for number, state in _STATES.items()}
_KINDS = {
    pb.FAULT_KIND_IPU_ERROR: FaultKind.IPU_ERROR,
    pb.FAULT_KIND_LINK_DOWN: FaultKind.LINK_DOWN,
    pb.FAULT_KIND_HANG: FaultKind.HANG,
    pb.FAULT_KIND_SLOW_RESET: FaultKind.SLOW_RESET,
    pb.FAULT_KIND_IPUOF_CLOSED: FaultKind.IPUOF_CLOSED,
}
_KIND_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_TESTS = {
    diagnostics_pb.TEST_KIND_CONNECTIVITY: MachineTest.CONNECTIVITY,
    diagnostics_pb.TEST_KIND_IPU_SELF_TEST: MachineTest.IPU_SELF_TEST,
    diagnostics_pb.TEST_KIND_SYNC: MachineTest.SYNC,
}
TEST_NUMBERS = {kind: number for number, kind in _TESTS.items()}
_SENSORS = tuple(field.name for field in fields(Sensors))
_PLAIN = tuple(field.name for field in fields(Inventory) if field.name != "ipus")


def inventory_to_message(inventory: Inventory) -> pb.GetInventoryReply:
    """Return the message of a machine's inventory."""
    plain = {name: getattr(inventory, name) for name in _PLAIN}
    return pb.GetInventoryReply(**plain, ipus=[pb.Ipu(**asdict(ipu)) for ipu in inventory.ipus])


def inventory_from_message(message: pb.GetInventoryReply) -> Inventory:
    """The inverse of `inventory_to_message`."""
    ipus = tuple(
        IpuInventory(
            ipu.index,
            ipu.serial,
            ipu.firmware,
            ipu.architecture,
            ipu.tiles,
            ipu.clock_hertz,
            ipu.server_port,
            ipu.pci,
            ipu.device,
            ipu.hexopt,
        )
        for ipu in message.ipus
    )
    return Inventory(**{name: getattr(message, name) for name in _PLAIN}, ipus=ipus)


def configuration_to_message(configuration: Configuration) -> pb.Configuration:
    """A machine's part of a partition."""
    return pb.Configuration(
        partition_id=configuration.partition,
        generation=configuration.generation,
        devices=[pb.Device(**asdict(device)) for device in configuration.devices],
        routing=configuration.routing,
        sync_type=configuration.sync_type,
        num_gcds=configuration.num_gcds,
        num_replicas=configuration.num_replicas,
        reconfigurable=configuration.reconfigurable,
    )


def configuration_from_message(message: pb.Configuration) -> Configuration:
    """The inverse of `configuration_to_message`; raises InvalidRequest for an unknown word."""
    return Configuration(
        partition=message.partition_id,
        generation=message.generation,
        devices=tuple(
            Device(device.index, device.routing_id, device.gcd) for device in message.devices
        ),
        routing=_word(IpuLinkRouting, "routing", message.routing),
        sync_type=_word(SyncType, "sync_type", message.sync_type),
        num_gcds=message.num_gcds,
        num_replicas=message.num_replicas,
        reconfigurable=message.reconfigurable,
    )


def orders_to_message(orders: Iterable[Order]) -> pb.Orders:
    """Return the message of some orders to a machine."""
    return pb.Orders(orders=map(_order_to_message, orders))


def _order_to_message(order: Order) -> pb.Order:
    if isinstance(order, Configure):
        return pb.Order(configure=configuration_to_message(order.configuration))
    if isinstance(order, Release):
        return pb.Order(release=order.partition)
    return pb.Order(reset=pb.Reset(partition_id=order.partition, generation=order.generation))


def order_from_message(message: pb.Order) -> Order:
    """The order of a message; raises InvalidRequest for an unknown one, or an unknown word."""
    kind = message.WhichOneof("order")
    if kind == "configure":
        return Configure(configuration_from_message(message.configure))
    if kind == "release":
        return Release(message.release)
    if kind == "reset":
        return Reset(message.reset.partition_id, message.reset.generation)
    raise InvalidRequest("orders: write configure, reset or release in each")


def outcome_to_message(outcome: Outcome) -> pb.FollowReply:
    """Return the answer to some orders."""
    refusals = [
        pb.Refusal(order=number, code=number_of(code_of(error)), reason=details_of(error))
        for number, error in outcome.refusals.items()
    ]
    return pb.FollowReply(health=health_to_message(outcome.health), refusals=refusals)


def outcome_from_message(message: pb.FollowReply) -> Outcome:
    """The inverse of `outcome_to_message`."""
    refusals = {each.order: error_from_number(each.code, each.reason) for each in message.refusals}
    return Outcome(health_from_message(message.health), refusals)


def health_to_message(health: Health) -> pb.Health:
    """Return the message of a heartbeat."""
    rival = health.rival
    return pb.Health(
        boot_id=health.boot_id,
        partitions=[
            pb.Partition(
                configuration=configuration_to_message(partition.configuration),
                state=_STATE_NUMBERS[partition.state],
                problem=partition.problem,
            )
            for partition in health.partitions
        ],
        faults=health.faults,
        sensors=[
            pb.Sensors(index=index, **{name: getattr(sensors, name) for name in _SENSORS})
            for index, sensors in sorted(health.sensors.items())
        ],
        rival=pb.Rival(controller_id=rival.controller, host=rival.host) if rival else None,
    )


def health_from_message(message: pb.Health) -> Health:
    """The inverse of `health_to_message`; a state of a newer agent counts as CONFIGURING."""
    rival = message.rival
    return Health(
        boot_id=message.boot_id,
        partitions=tuple(
            MachinePartition(
                configuration_from_message(partition.configuration),
                _STATES.get(partition.state, PartitionState.CONFIGURING),
                partition.problem,
            )
            for partition in message.partitions
        ),
        faults=dict(message.faults),
        sensors={sensors.index: _sensors(sensors) for sensors in message.sensors},
        rival=Rival(rival.controller_id, rival.host) if message.HasField("rival") else None,
    )


def _sensors(message: pb.Sensors) -> Sensors:
    return Sensors(
        message.temperature_celsius if message.HasField("temperature_celsius") else None,
        message.power_watts if message.HasField("power_watts") else None,
        message.clock_hertz if message.HasField("clock_hertz") else None,
    )


def test_kind_from_message(value: diagnostics_pb.TestKind.ValueType) -> MachineTest:
    """The kind of a test; raises InvalidRequest for an unknown kind."""
    try:
        return _TESTS[value]
    except KeyError:
        raise InvalidRequest(
            f"kind {value}: use 1 (connectivity), 2 (IPU self-test) or 3 (sync)"
        ) from None


def fault_to_message(fault: Fault, duration: timedelta | None) -> pb.InjectFaultRequest:
    """A fault on command, for as long as `duration`; None: until it is repaired."""
    message = pb.InjectFaultRequest(kind=_KIND_NUMBERS[fault.kind], ipu=fault.ipu, link=fault.link)
    if duration is not None:
        message.duration.FromTimedelta(duration)
    message.latency.FromMicroseconds(int(fault.seconds * 1e6))
    return message


def fault_from_message(message: pb.InjectFaultRequest, now: datetime) -> Fault:
    """The fault that a message asks for at `now`; raises InvalidRequest."""
    if message.kind not in _KINDS:
        raise InvalidRequest(f"kind {message.kind}: use one of {_numbered()}")
    until = None
    try:
        if message.HasField("duration"):
            until = now + message.duration.ToTimedelta()
    except (OverflowError, ValueError):
        raise InvalidRequest("duration is too long: leave it out for a fault that stays") from None
    latency = message.latency.ToMicroseconds() / 1e6
    if not 0 <= latency <= 86400:
        raise InvalidRequest("latency: write 0 to 86400 seconds")
    return Fault(_KINDS[message.kind], message.ipu, message.link, until, latency)


def _numbered() -> str:
    return ", ".join(f"{number} ({kind})" for number, kind in _KINDS.items())


def _word(kind: type[_Word], field: str, text: str) -> _Word:
    try:
        return kind(text)
    except ValueError:
        raise InvalidRequest(f"{field} {text[:40]!r}: use one of {', '.join(kind)}") from None
