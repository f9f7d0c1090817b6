"""io: the commands of `vipu` and their output."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from partitions.vipu import wire
from partitions.vipu.cli.output import Table, as_data, as_word
from partitions.vipu.errors import NoAnswer, NotFound, VipuError
from partitions.vipu.protos import vipu_user_pb2 as pb
from partitions.vipu.types import (
    CreateRequest,
    GatewayRouting,
    IpuLinkRouting,
    ReadyState,
    SyncType,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from partitions.vipu.client import VipuClient

POLL_SECONDS: Final = 0.2
WAIT_SECONDS: Final = 600.0
C2_COMPATIBLE: Final = "c2-compatible"  # the original's other word for GS2_DEFAULT
_HEADS: Final = (
    "Partition",
    "Cluster",
    "ILDs",
    "GW Routing",
    "ILD Routing",
    "Size",
    "GCDs",
    "State",
)
_MORE: Final = ("Allocation", "Replicas", "Sync", "Reconfigurable", "IPUoF server")
_OPERATION: Final = "Operation"


async def list_partitions(client: VipuClient, options: argparse.Namespace) -> Table:
    """All partitions, or the partitions of one allocation."""
    question = pb.ListPartitionsRequest(allocation_id=options.allocation or "")
    found = (await client.ask("ListPartitions", question)).partitions
    listed = sorted(found, key=lambda partition: partition.id)
    pending = [each.id for each in listed if each.ready_state == pb.PS_PENDING]
    statuses = {name: status async for name, status in _statuses(client, pending)}
    operations = {
        name: as_word(pb.PartitionOperationState, status.operation_state)
        for name, status in statuses.items()
    }
    table = Table(
        (*_HEADS, *_MORE, _OPERATION),
        [(*_row(each), operations.get(each.id, "-")) for each in listed],
        [
            {"partition": as_data(each)}
            | ({"status": as_data(statuses[each.id])} if each.id in statuses else {})
            for each in listed
        ],
        frozenset({*_MORE, _OPERATION}),
    )
    return with_removed(table, options.shown, _removed)


def with_removed(table: Table, before: Table | None, removed: Callable[[Any], Any]) -> Table:
    """Return the list of a watch, with partitions of the list `before` that are gone: once, as
    REMOVED. `removed` converts their data."""
    if before is None:
        return table
    here = {row[0] for row in table.rows}
    state, operation = table.heads.index("State"), table.heads.index(_OPERATION)
    both = list(zip(table.rows, table.data, strict=True))
    for row, data in zip(before.rows, before.data, strict=True):
        if row[0] not in here and row[state] != ReadyState.REMOVED:
            cells = list(row)
            cells[state], cells[operation] = ReadyState.REMOVED, "-"
            both.append((cells, removed(data)))
    both.sort(key=lambda each: each[0][0])
    return replace(table, rows=[row for row, _ in both], data=[data for _, data in both])


def _removed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a removed partition, without its last operation."""
    return {"partition": {**data["partition"], "ready_state": "PS_REMOVED"}}


async def _statuses(
    client: VipuClient, names: Iterable[str]
) -> AsyncIterator[tuple[str, pb.PartitionStatus]]:
    """Yield the controller's operations with partitions, which no list has; a partition that is
    gone is left out. Raise VipuError."""
    for name in names:
        request = pb.GetPartitionStatusRequest(partition_id=name)
        try:
            yield name, (await client.ask("GetPartitionStatus", request)).status
        except NotFound:
            continue


async def get_partition(client: VipuClient, options: argparse.Namespace) -> Table:
    """One partition with its state, or how its devices are reached; `--watch` ends once it is
    REMOVED. Raise VipuError."""
    try:
        return await show_partition(client, options)
    except NotFound:
        if options.shown is None or not options.shown.heads:
            raise
        return removed_partition(options.shown, _removed)


async def show_partition(client: VipuClient, options: argparse.Namespace) -> Table:
    """One partition with its state, or how its devices are reached. Raise VipuError."""
    name = options.name
    if options.ipu_configs or options.gcd is not None:
        question = pb.GetPartitionIpuofConfigRequest(partition_id=name)
        if options.gcd is not None:
            question.gcd_id.CopyFrom(pb.GetPartitionIpuofConfigRequest.GcdID(id=options.gcd))
        answer = await client.ask_user("GetPartitionIpuofConfig", question)
        return Table((), [], as_data(answer.ipuof_config))
    request = pb.GetPartitionStatusRequest(partition_id=name)
    status = (await client.ask_user("GetPartitionStatus", request)).status
    everyone = (await client.ask_user("ListPartitions", pb.ListPartitionsRequest())).partitions
    partition = next((each for each in everyone if each.id == name), pb.Partition(id=name))
    rows = list(zip((*_HEADS, *_MORE), _row(partition), strict=True))
    rows += [(_OPERATION, as_word(pb.PartitionOperationState, status.operation_state))]
    rows += [("IPUs", " ".join(_ipu(each) for each in partition.spec.ipus))]
    resets = f"{status.auto_reset_retry_count} of {status.max_auto_reset_retries}"
    rows += [("Auto-resets", resets), *(("Error", each) for each in status.errors)]
    data = {"partition": as_data(partition), "status": as_data(status)}
    return Table(("Attribute", "Value"), rows, data)


def removed_partition(last: Table, removed: Callable[[Any], Any]) -> Table:
    """Return the end of a watch: a partition as it was last shown, REMOVED."""
    now = {"State": ReadyState.REMOVED, _OPERATION: "-"}
    rows = [(name, now.get(name, value)) for name, value in last.rows]
    return replace(last, rows=rows, data=removed(last.data), is_last=True)


async def create_partition(client: VipuClient, options: argparse.Namespace) -> None:
    """Make a partition, and wait until programs may use it. Raise VipuError."""
    request = wire.request_to_message(
        CreateRequest(
            id=options.name,
            size=options.size,
            cluster_id=options.cluster or "",
            allocation_id=options.allocation or "",
            num_gcds=options.num_gcds,
            num_replicas=options.gcd_sync_replicas,
            reconfigurable=options.reconfigurable,
            routing=IpuLinkRouting(options.routing.upper()),
            sync_type=_sync_type(options),
            num_ipulink_segments=options.num_ipulink_segments,
            auto_reset=not options.disable_auto_reset,
            relocatable=options.relocatable,
            gateway_routing=GatewayRouting(options.gw_routing.upper()),
        )
    )
    await client.ask("CreatePartition", request)
    if options.no_wait:
        return
    try:
        await until_active(client, options.name)
    except (NoAnswer, NotFound):
        raise
    except VipuError as error:
        raise VipuError(
            f"{error}. The partition stays and keeps its IPUs until it is removed"
        ) from None


def _sync_type(options: argparse.Namespace) -> SyncType:
    """The requested sync type; with `--index` a reconfigurable partition has its own."""
    if options.sync_type == C2_COMPATIBLE:
        return SyncType.GS2_DEFAULT
    if options.index and options.reconfigurable:
        return SyncType.UNDEFINED
    return SyncType(options.sync_type.upper().replace("-", "_"))


async def reset_partition(client: VipuClient, options: argparse.Namespace) -> None:
    """Bring a partition back to its first state, and wait for it. Raise VipuError."""
    question = pb.ResetPartitionRequest(partition_id=options.name, relocatable=options.relocatable)
    await client.ask("ResetPartition", question)
    if not options.no_wait:
        await until_active(client, options.name)


async def remove_partition(client: VipuClient, options: argparse.Namespace) -> None:
    """Remove a partition, and wait until its IPUs are free. Raise VipuError."""
    await client.remove_partition(options.name, force=options.force)
    if not options.no_wait:
        await _until_gone(client, options.name)


async def list_allocations(client: VipuClient, options: argparse.Namespace) -> Table:
    """The allocations with their agents, as the IPUs name them. Raise VipuError."""
    del options
    topology = await client.list_ipu_attributes()
    agents: dict[str, list[str]] = {}
    for ipu in topology.ipus:
        known = agents.setdefault(ipu.allocation, [])
        if ipu.agent not in known:
            known.append(ipu.agent)
    if "" in agents:
        raise VipuError(
            "the controller does not say to which allocation its IPUs belong. The allocations of "
            "existing partitions: vipu list partitions --output wide"
        )
    rows = [(name, " ".join(agents[name])) for name in sorted(agents)]
    data = [{"id": name, "spec": {"agent_ids": agents[name]}} for name in sorted(agents)]
    return Table(("Allocation ID", "Agents"), rows, data)


async def list_ipu_attributes(client: VipuClient, options: argparse.Namespace) -> Table:
    """Each attribute of each IPU."""
    question = pb.ListIPUAttributesRequest(agents=options.agent or ())
    entries = (await client.ask("ListIPUAttributes", question)).entries
    rows = list(_attributes(entries))
    return Table(("Agent", "IPU", "Attribute", "Value"), rows, [as_data(each) for each in entries])


def _attributes(entries: Iterable[pb.ListIPUAttributesReply.Entry]) -> Iterator[tuple[str, ...]]:
    for entry in sorted(entries, key=lambda each: each.agent):
        for index in sorted(entry.ipu_attributes):
            attributes: Mapping[str, str] = entry.ipu_attributes[index].attributes
            for name in sorted(attributes):
                yield entry.agent, str(index), name, attributes[name]


async def until_active(client: VipuClient, name: str) -> None:
    """Poll, as there is no call that waits. Raise VipuError if it fails, vanishes or takes long."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                status = await client.partition_status(name)
                if status.ready_state is ReadyState.ACTIVE:
                    return
                if status.ready_state is ReadyState.REMOVED:
                    raise NotFound("it has been removed")
                if status.ready_state is ReadyState.ERROR:
                    raise VipuError("; ".join(status.errors) or "its state is ERROR")
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise VipuError(
            f"it is not ACTIVE after {WAIT_SECONDS:g} s; see vipu get partition {name}"
        ) from None


async def _until_gone(client: VipuClient, name: str) -> None:
    """Poll while the controller is removing a partition. Raise VipuError if that takes long."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                if not (await client.partition_status(name)).is_removing:
                    return
                await asyncio.sleep(POLL_SECONDS)
    except NotFound:
        return
    except TimeoutError:
        raise VipuError(
            f"it is still being removed after {WAIT_SECONDS:g} s; "
            f"vipu remove partition {name} --force waits for no machine"
        ) from None


def _row(partition: pb.Partition) -> tuple[str, ...]:
    spec = partition.spec
    return (
        partition.id,
        spec.cluster_id or "-",
        str(len({ipu.ipulink_domain_topology_id for ipu in spec.ipus}) or "-"),
        _default(as_word(pb.GatewayRoutingType, spec.gw_routing_type)),
        _default(as_word(pb.IpuLinkRoutingType, spec.ipulink_routing_type)),
        str(len(spec.ipus)),
        str(spec.num_gcds or 1),
        as_word(pb.PartitionReadyState, partition.ready_state),
        spec.allocation_id or "-",
        str(spec.num_replicas or 1),
        _default(as_word(pb.SyncType, spec.sync_type)),
        "yes" if spec.reconfigurable else "no",
        partition.ipuof_server_version or "-",
    )


def _ipu(ipu: pb.PartitionIpu) -> str:
    return f"{ipu.ipulink_domain_topology_id}.{ipu.topology_id}"


def _default(word: str) -> str:
    return "DEFAULT" if word == "UNDEFINED" else word
