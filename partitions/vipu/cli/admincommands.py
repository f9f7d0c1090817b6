"""io: the commands of `vipu-admin` and the tables of their answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from partitions.vipu.cli import commands, groups
from partitions.vipu.cli.output import Table, as_data, as_time
from partitions.vipu.errors import NotFound, VipuError
from partitions.vipu.protos import vipu_admin_pb2 as pb
from partitions.vipu.types import ReadyState

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from google.protobuf.message import Message

    from partitions.vipu.client import VipuClient

_AGENT_HEADS: Final = ("Agent ID", "Host", "Port", "Status", "IPUs", "Held", "Cluster")
_AGENT_MORE: Final = ("Allocation", "ILD", "Partitions", "Reason")
_IPU_HEADS: Final = (
    "IPU",
    "PCI",
    "Device",
    "Serial",
    "Firmware",
    "Architecture",
    "Num Tiles",
    "Clock",
    "Status",
)
_PARTITION_HEADS: Final = ("Partition", "Cluster", "Allocation", "Size", "Agents", "State")
_PARTITION_MORE: Final = ("Operation", "Since", "Auto-resets", "Errors")


async def list_agents(client: VipuClient, options: argparse.Namespace) -> Table:
    """All agents in IPU-Link order."""
    del options
    found = (await client.ask("ListAgents", pb.ListAgentsRequest())).agents
    heads = (*_AGENT_HEADS, *_AGENT_MORE)
    return _table(heads, [_agent(each) for each in found], found, _AGENT_MORE)


async def get_agent(client: VipuClient, options: argparse.Namespace) -> Table:
    """One agent: where it is, its faults, what its machine is made of, and each IPU."""
    agent = await client.ask("GetAgent", pb.GetAgentRequest(agent_id=options.name))
    rows = list(zip((*_AGENT_HEADS, *_AGENT_MORE), _agent(agent), strict=True))
    rows += [("Cordoned since", as_time(agent.cordoned_at))] if agent.cordoned else []
    rows += [(f"Fault of IPU {index}", agent.faults[index]) for index in sorted(agent.faults)]
    # An earlier controller, or a controller that has not heard the agent yet, does not say it.
    rows += _machine(agent.inventory) if agent.HasField("inventory") else []
    below = _ipus(agent) if agent.inventory.ipus else None
    return Table(("Attribute", "Value"), rows, as_data(agent), below=below)


def _machine(made: pb.Inventory) -> list[tuple[str, str]]:
    facts = (
        ("Exporter", made.exporter),
        ("Platform", made.platform),
        ("Manufacturer", made.manufacturer),
        ("Discovery Mode", made.discovery_mode),
        ("Virm version", made.virm_version),
        ("Runtime version", made.runtime_version),
        ("Driver version", made.driver_version),
        ("Board type", made.board_type),
        ("Board serial number", made.board_serial),
        ("Part number", made.part_number),
        ("Software version", made.software_version),
        ("GWSW version", made.gateway_version),
        ("IPUoF server version", made.ipuof_version),
        ("HDF Version", made.hdf_version),
        ("HDF Hash", made.hdf_hash),
        ("Num of IPUs", str(len(made.ipus))),
    )
    return [(name, value or "-") for name, value in facts]


def _ipus(agent: pb.Agent) -> Table:
    rows = [
        (
            str(ipu.index),
            ipu.pci or "-",
            ipu.device or "-",
            ipu.serial,
            ipu.firmware,
            ipu.architecture,
            str(ipu.tiles),
            f"{ipu.clock_hertz // 1_000_000}MHz",
            "Unknown" if agent.lost else "Faulty" if ipu.index in agent.faults else "Up",
        )
        for ipu in agent.inventory.ipus
    ]
    return Table(_IPU_HEADS, rows, None)


async def cordon_agent(client: VipuClient, options: argparse.Namespace) -> None:
    """Keep new partitions from a machine. Raise VipuError."""
    # Without a reason a cordon that is there keeps its own.
    question = pb.CordonAgentRequest(agent_id=options.name, reason=options.reason)
    await client.ask("CordonAgent", question)


async def uncordon_agent(client: VipuClient, options: argparse.Namespace) -> None:
    """Let a machine have new partitions again. Raise VipuError."""
    await client.ask("UncordonAgent", pb.UncordonAgentRequest(agent_id=options.name))


async def list_partitions(client: VipuClient, options: argparse.Namespace) -> Table:
    """All partitions, or the partitions of a machine, a cluster or an allocation."""
    if options.cluster is not None:
        groups.named(await groups.clusters(client), "cluster", options.cluster)
    if options.allocation is not None:
        groups.named(await groups.allocations(client), "allocation", options.allocation)
    question = pb.ListPartitionsRequest(agent_id=options.agent or "")
    found = [
        each
        for each in (await client.ask("ListPartitions", question)).partitions
        if options.cluster in {None, each.cluster_id}
        and options.allocation in {None, each.allocation_id}
    ]
    return commands.with_removed(_partitions_table(found), options.shown, _removed)


def _removed(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "ready_state": ReadyState.REMOVED, "operation_state": "IDLE"}


async def get_partition(client: VipuClient, options: argparse.Namespace) -> Table:
    """One partition, or how its devices are reached; `--watch` ends once it is REMOVED. Raise
    VipuError."""
    try:
        return await _show_partition(client, options)
    except NotFound:
        if options.shown is None or not options.shown.heads:
            raise
        return commands.removed_partition(options.shown, _removed)


async def _show_partition(client: VipuClient, options: argparse.Namespace) -> Table:
    of_user = await commands.show_partition(client, options)
    if not of_user.heads:
        return of_user
    everyone = (await client.ask("ListPartitions", pb.ListPartitionsRequest())).partitions
    table = _partitions_table([each for each in everyone if each.id == options.name])
    if not table.rows:
        raise NotFound(f"there is no partition {options.name!r}; see vipu-admin list partitions")
    rows = list(zip(table.heads, table.rows[0], strict=True))
    # The user API knows how it is wired, and the admin API where it is.
    known = {*table.heads, "Error"}
    rows += [(str(name), value) for name, value in of_user.rows if name not in known]
    data = {**table.data[0], "spec": of_user.data["partition"].get("spec", {})}
    return Table(("Attribute", "Value"), rows, data)


def _partitions_table(found: Sequence[pb.Partition]) -> Table:
    rows = [
        (
            each.id,
            each.cluster_id,
            each.allocation_id,
            str(each.size),
            " ".join(each.agent_ids),
            each.ready_state,
            each.operation_state,
            as_time(each.since),
            str(each.auto_resets),
            "; ".join(each.errors) or "-",
        )
        for each in found
    ]
    return _table((*_PARTITION_HEADS, *_PARTITION_MORE), rows, found, _PARTITION_MORE)


async def reset_partition(client: VipuClient, options: argparse.Namespace) -> None:
    """Reset a partition of any user and wait until it is ACTIVE. Raise VipuError."""
    question = pb.ResetPartitionRequest(partition_id=options.name, relocatable=options.relocatable)
    await client.ask("ResetPartition", question)
    if not options.no_wait:
        await commands.until_active(client, options.name)


async def remove_partition(client: VipuClient, options: argparse.Namespace) -> None:
    """Remove a partition of any user and wait until its IPUs are free. Raise VipuError."""
    name = options.name
    if options.force:  # of the user API, which this port has, too
        await client.remove_partition(name, force=True)
        return
    await client.ask("RemovePartition", pb.RemovePartitionRequest(partition_id=name))
    try:
        async with asyncio.timeout(commands.WAIT_SECONDS):
            while True:
                if options.no_wait or not await _is_being_removed(client, name):
                    return
                await asyncio.sleep(commands.POLL_SECONDS)
    except TimeoutError:
        raise VipuError(
            f"it is still being removed after {commands.WAIT_SECONDS:g} s; "
            f"vipu-admin remove partition {name} --force waits for no machine"
        ) from None


async def _is_being_removed(client: VipuClient, name: str) -> bool:
    everyone = (await client.ask("ListPartitions", pb.ListPartitionsRequest())).partitions
    return any((each.id, each.operation_state) == (name, "REMOVING") for each in everyone)


async def provoke_fault(client: VipuClient, options: argparse.Namespace) -> None:
    """Let a simulated machine fail. Raise VipuError."""
    question = pb.ProvokeFaultRequest(
        agent_id=options.name, ipu=options.ipu, ipuof_port=options.ipuof_port
    )
    await client.ask("ProvokeFault", question)


async def clear_fault(client: VipuClient, options: argparse.Namespace) -> None:
    """End such a fault. Raise VipuError."""
    question = pb.ClearFaultRequest(agent_id=options.name, ipu=options.ipu)
    await client.ask("ClearFault", question)


async def list_events(client: VipuClient, options: argparse.Namespace) -> Table:
    """Return the events since the controller started, the oldest first."""
    del options
    answer = await client.ask("ListEvents", pb.ListEventsRequest())
    rows = [(as_time(each.at), each.what, _facts(each.facts)) for each in answer.events]
    if answer.forgotten:
        rows.insert(0, ("-", f"{answer.forgotten} older events are not kept", ""))
    return Table(("Time", "Event", "Facts"), rows, as_data(answer))


async def get_server(client: VipuClient, options: argparse.Namespace) -> Table:
    """Version, age, size and health of the controller."""
    del options
    server: pb.Server = await client.ask("GetServer", pb.GetServerRequest())
    agents = "simulated here" if server.simulates_machines else str(server.agents)
    not_well = [
        (server.lost_agents, "lost"),
        (server.faulty_agents, "with faults"),
        (server.cordoned_agents, "cordoned"),
    ]
    rows = [
        ("Version", server.version),
        ("Started", as_time(server.started_at)),
        ("Mode", _mode(server)),
        ("State file", server.state_file),
        *_unwritten(server),
        ("Agents", _with_these(agents, not_well)),
        ("IPUs", str(server.ipus)),
        ("Free IPUs", str(server.free_ipus)),
        (
            "Partitions",
            _with_these(str(server.partitions), [(server.error_partitions, "in ERROR")]),
        ),
    ]
    return Table(("Attribute", "Value"), rows, as_data(server))


def _mode(server: pb.Server) -> str:
    if not server.HasField("secure"):  # an earlier server
        return "-"
    return "secure" if server.secure else "insecure"


def _unwritten(server: pb.Server) -> list[tuple[str, str]]:
    if not server.HasField("unwritten_since"):
        return []
    since, reason = as_time(server.unwritten_since), server.unwritten_why
    return [("State file problem", f"not written since {since}: {reason}")]


def _with_these(total: str, parts: Sequence[tuple[int, str]]) -> str:
    """The total, and of how many of it there is something to say."""
    return ", ".join([total, *(f"{count} {what}" for count, what in parts if count)])


def _agent(agent: pb.Agent) -> tuple[str, ...]:
    host, _, port = agent.address.rpartition(":")
    problems = [agent.lost, *(agent.faults[index] for index in sorted(agent.faults))]
    problems += [agent.cordon_reason]
    return (
        agent.id,
        host or "simulated",
        port or "-",
        _status(agent),
        str(agent.ipus),
        str(agent.held_ipus),
        agent.cluster_id,
        agent.allocation_id,
        str(agent.ipulink_domain),
        " ".join(agent.partition_ids) or "-",
        "; ".join(filter(None, problems)) or "-",
    )


def _status(agent: pb.Agent) -> str:
    """As `kubectl get nodes` writes it: Up, or why not, and then the cordon."""
    state = "Lost" if agent.lost else "Faulty" if agent.faults else "Up"
    return f"{state},Cordoned" if agent.cordoned else state


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    messages: Sequence[Message],
    wide: Sequence[str],
) -> Table:
    return Table(heads, rows, [as_data(message) for message in messages], frozenset(wide))


def _facts(facts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {facts[name]}" for name in sorted(facts))
