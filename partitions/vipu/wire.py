"""io: converts between our values and messages of the V-IPU user API, for client and server."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from partitions.vipu.errors import InvalidRequest
from partitions.vipu.protos import vipu_user_pb2 as pb
from partitions.vipu.topology import IpuId
from partitions.vipu.types import (
    CreateRequest,
    GatewayRouting,
    Gcd,
    IpuLinkRouting,
    IpuofConfig,
    IpuofDevice,
    OperationState,
    ReadyState,
    SyncType,
    VipuPartition,
    VipuStatus,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_READY_STATES = {
    value: ReadyState(name.removeprefix("PS_"))
    for name, value in pb.PartitionReadyState.items()
    if name.removeprefix("PS_") in set(ReadyState)
}
_DEVICE_FIELDS = tuple(field.name for field in pb.IpuofDevice.DESCRIPTOR.fields)


def request_to_message(request: CreateRequest) -> pb.CreatePartitionRequest:
    """A request for a new partition."""
    return pb.CreatePartitionRequest(
        requirements=pb.PartitionRequirements(
            id=request.id,
            size=request.size,
            cluster_id=request.cluster_id,
            allocation_id=request.allocation_id,
            ipulink_routing_type=pb.IpuLinkRoutingType.Value(f"IRT_{request.routing}"),
            num_ipulink_segments=request.num_ipulink_segments,
            sync_type=pb.SyncType.Value(f"ST_{request.sync_type}"),
            num_gcds=request.num_gcds,
            reconfigurable=request.reconfigurable,
            num_replicas=request.num_replicas,
            ipus=ipus_to_messages(request.ipus),
            gw_routing_type=pb.GatewayRoutingType.Value(f"GRT_{request.gateway_routing}"),
        ),
        disable_auto_reset=not request.auto_reset,
        relocatable=request.relocatable,
    )


def request_from_message(message: pb.CreatePartitionRequest) -> CreateRequest:
    """The request a client sent; raises InvalidRequest for values that the API does not have."""
    wanted = message.requirements
    return CreateRequest(
        id=wanted.id,
        size=wanted.size or len(wanted.ipus),
        cluster_id=wanted.cluster_id,
        allocation_id=wanted.allocation_id,
        num_gcds=wanted.num_gcds,
        num_replicas=wanted.num_replicas,
        reconfigurable=wanted.reconfigurable,
        routing=_routing(wanted.ipulink_routing_type),
        sync_type=_sync_type(wanted.sync_type),
        num_ipulink_segments=wanted.num_ipulink_segments,
        ipus=ipus_from_messages(wanted.ipus, wanted.cluster_id),
        auto_reset=not message.disable_auto_reset,
        relocatable=message.relocatable,
        gateway_routing=_gateway_routing(wanted.gw_routing_type),
    )


def ipus_to_messages(ipus: Iterable[IpuId]) -> list[pb.PartitionIpu]:
    """The IPUs of a partition, numbered by their routing ids in the order given."""
    return [
        pb.PartitionIpu(
            ipulink_domain_topology_id=ipu.domain, topology_id=ipu.position, routing_id=number
        )
        for number, ipu in enumerate(ipus)
    ]


def ipus_from_messages(messages: Sequence[pb.PartitionIpu], cluster: str = "") -> tuple[IpuId, ...]:
    """The IPUs of a partition in the order of their routing ids, else of their places.

    `cluster` is the partition's: the domain ids belong to one cluster.
    """
    if len(messages) == 1:  # most are, and lists of many are read all the time
        return (IpuId(messages[0].ipulink_domain_topology_id, messages[0].topology_id, cluster),)
    ordered = sorted(
        messages,
        key=lambda message: (
            message.routing_id,
            message.ipulink_domain_topology_id,
            message.topology_id,
        ),
    )
    return tuple(
        IpuId(message.ipulink_domain_topology_id, message.topology_id, cluster)
        for message in ordered
    )


def partition_from_message(message: pb.Partition) -> VipuPartition:
    """One listed partition; states unknown to us become UNDEFINED."""
    spec = message.spec
    return VipuPartition(
        id=message.id,
        size=len(spec.ipus),
        ipus=ipus_from_messages(spec.ipus, spec.cluster_id),
        ready_state=_ready_state(message.ready_state),
        cluster_id=spec.cluster_id,
        allocation_id=spec.allocation_id,
        num_gcds=spec.num_gcds or 1,
        num_replicas=spec.num_replicas or spec.num_gcds or 1,
        reconfigurable=spec.reconfigurable,
    )


def partitions_from_messages(
    messages: Iterable[pb.Partition], known: Mapping[bytes, VipuPartition]
) -> dict[bytes, VipuPartition]:
    """Each listed partition by its bytes; partitions in `known`, an earlier list, are not decoded
    again."""
    found = {}
    for message in messages:
        raw = message.SerializeToString()
        found[raw] = known.get(raw) or partition_from_message(message)
    return found


def status_to_message(status: VipuStatus) -> pb.PartitionStatus:
    """The state of one partition."""
    message = pb.PartitionStatus(
        partition_id=status.id,
        ready_state=pb.PartitionReadyState.Value(f"PS_{status.ready_state}"),
        operation_state=pb.PartitionOperationState.Value(f"POS_{status.operation_state}"),
        errors=status.errors,
        max_auto_reset_retries=status.max_auto_resets,
        auto_reset_retry_count=status.auto_resets,
    )
    if status.last_auto_reset is not None:
        message.last_auto_reset_time.FromDatetime(status.last_auto_reset)
    return message


def status_from_message(message: pb.PartitionStatus) -> VipuStatus:
    """The state of one partition; states unknown to us become UNDEFINED."""
    was_reset = message.HasField("last_auto_reset_time")
    return VipuStatus(
        id=message.partition_id,
        ready_state=_ready_state(message.ready_state),
        operation_state=_operation_state(message.operation_state),
        errors=tuple(message.errors),
        max_auto_resets=message.max_auto_reset_retries,
        auto_resets=message.auto_reset_retry_count,
        last_auto_reset=message.last_auto_reset_time.ToDatetime(UTC) if was_reset else None,
    )


def config_to_message(config: IpuofConfig) -> pb.PartitionConfig:
    """The IPU-over-Fabric configuration of a partition."""
    return pb.PartitionConfig(
        ipulink_routing_type=pb.IpuLinkRoutingType.Value(f"IRT_{config.routing}"),
        sync_type=pb.SyncType.Value(f"ST_{config.sync_type}"),
        reconfigurable=config.reconfigurable,
        num_ipulink_segments=config.num_ipulink_segments,
        gcd_configs=[
            pb.PartitionConfig.Gcd(
                devices=[_device_to_message(device) for device in gcd.devices],
                attributes=gcd.attributes,
            )
            for gcd in config.gcds
        ],
        ipuof_server_version=config.server_version,
        gw_routing_type=pb.GatewayRoutingType.Value(f"GRT_{config.gateway_routing}"),
    )


def config_from_message(message: pb.PartitionConfig) -> IpuofConfig:
    """The IPU-over-Fabric configuration of a partition."""
    return IpuofConfig(
        routing=_routing(message.ipulink_routing_type),
        sync_type=_sync_type(message.sync_type),
        reconfigurable=message.reconfigurable,
        num_ipulink_segments=message.num_ipulink_segments,
        gcds=tuple(
            Gcd(tuple(_device_from_message(device) for device in gcd.devices), dict(gcd.attributes))
            for gcd in message.gcd_configs
        ),
        server_version=message.ipuof_server_version,
        gateway_routing=_gateway_routing(message.gw_routing_type),
    )


def attributes_to_message(
    attributes: Mapping[str, Mapping[int, Mapping[str, str]]],
) -> pb.ListIPUAttributesReply:
    """The attributes of each IPU, by agent and device number."""
    entry = pb.ListIPUAttributesReply.Entry
    return pb.ListIPUAttributesReply(
        entries=[
            entry(
                agent=agent,
                ipu_attributes={
                    index: entry.Attributes(attributes=found) for index, found in ipus.items()
                },
            )
            for agent, ipus in attributes.items()
        ]
    )


def attributes_from_message(
    message: pb.ListIPUAttributesReply,
) -> dict[str, dict[int, dict[str, str]]]:
    """The attributes of each IPU, by agent and device number."""
    return {
        entry.agent: {
            index: dict(found.attributes) for index, found in entry.ipu_attributes.items()
        }
        for entry in message.entries
    }


def _device_to_message(device: IpuofDevice) -> pb.IpuofDevice:
    return pb.IpuofDevice(**{name: getattr(device, name) for name in _DEVICE_FIELDS})


def _device_from_message(message: pb.IpuofDevice) -> IpuofDevice:
    return IpuofDevice(**{name: getattr(message, name) for name in _DEVICE_FIELDS})


def _routing(value: pb.IpuLinkRoutingType.ValueType) -> IpuLinkRouting:
    return IpuLinkRouting(_word("ipulink_routing_type", pb.IpuLinkRoutingType, value))


def _gateway_routing(value: pb.GatewayRoutingType.ValueType) -> GatewayRouting:
    return GatewayRouting(_word("gw_routing_type", pb.GatewayRoutingType, value))


def _sync_type(value: pb.SyncType.ValueType) -> SyncType:
    return SyncType(_word("sync_type", pb.SyncType, value))


def _word(field: str, enum: Any, value: int) -> str:
    """The name of a value of an enum without its prefix, such as DNC; raises InvalidRequest."""
    words: dict[int, str] = {number: name.partition("_")[2] for name, number in enum.items()}
    try:
        return words[value]
    except KeyError:
        known = ", ".join(f"{number} ({word})" for number, word in words.items() if number)
        raise InvalidRequest(f"{field} {value}: use {known}, or leave it out") from None


def _ready_state(value: pb.PartitionReadyState.ValueType) -> ReadyState:
    return _READY_STATES.get(value, ReadyState.UNDEFINED)


def _operation_state(value: pb.PartitionOperationState.ValueType) -> OperationState:
    try:
        return OperationState(pb.PartitionOperationState.Name(value).removeprefix("POS_"))
    except ValueError:
        return OperationState.UNDEFINED
