"""io: the connections to all agents of vipu-server, on a thread with its own event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ipuhub.addresses import host_of
from ipuhub.concurrency import end_tasks
from ipuhub.times import utc_now
from partitions.vipu.agent.client import AgentClient
from partitions.vipu.errors import NotFound, NotReady, Unavailable, missing
from partitions.vipu.loopthread import LoopThread
from partitions.vipu.server.agents.fleet import Identity, configurations
from partitions.vipu.server.agents.link import AgentLink, Surroundings
from partitions.vipu.server.machines import Hardware

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime
    from pathlib import Path

    from partitions.vipu.agent.machine import Fault, Inventory, MachineTest
    from partitions.vipu.client import TlsFiles
    from partitions.vipu.server.agents.fleet import LinkTiming, Machines
    from partitions.vipu.server.records import AgentRecord, PartitionRecord
    from partitions.vipu.telemetry import Heartbeat

_ONCE_SECONDS: Final = 5.0
_ID_LENGTH: Final = 32
_NOBODY: Final = Identity()


def controller_id_in(path: Path) -> str:
    """Return the id of the controller whose lock file this is; it is made where there is none, and
    stays the same for each process that uses the file."""
    found = path.read_text(errors="replace") if path.exists() else ""
    if len(found) == _ID_LENGTH and found.isalnum():
        return found
    made = uuid4().hex
    with suppress(OSError):  # of a full disk: after its next start it is another controller
        path.write_text(made)
    return made


class AgentLinks:
    """The connections to all agents, given by name and address; `tls` as for AgentClient.

    `connect`, `watch` and `stop` in this order, and between the last two `add` and `remove`; they
    may be called from any thread. What waits for an agent when `stop` comes raises CancelledError.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        timing: LinkTiming,
        tls: Callable[[], TlsFiles] | None = None,
        clock: Callable[[], datetime] = utc_now,
        identity: Identity = _NOBODY,
    ) -> None:
        self.addresses = dict(addresses)
        self._tls = tls
        self._identity = identity
        self._loop = LoopThread("agents")
        self._links: dict[str, AgentLink] = {}
        self._known: dict[str, tuple[PartitionRecord, frozenset[str]]] = {}
        # Partitions that changed since the last refresh. Any thread adds to them.
        self._changed: set[str] = set()
        self._changing = threading.Lock()
        self._hosts = {agent: host_of(address) for agent, address in addresses.items()}
        inventories: dict[str, Inventory] = {}
        heartbeats: dict[str, Heartbeat] = {}
        self.hardware = Hardware(inventories, self._hosts, heartbeats)
        self._around = Surroundings(
            timing,
            inventories,
            heartbeats,
            self.hardware,
            clock,
            self._known,
            confirm=self._confirm,
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def connect(self, usual_ipus: int) -> dict[str, int]:
        """Return the number of IPUs of each agent's machine; `usual_ipus` where none answers in
        time."""
        self._loop.start()
        self._loop.run(self._connect())
        return {
            agent: len(link.inventory.ipus) if link.inventory else usual_ipus
            for agent, link in self._links.items()
        }

    def inventory_at(self, address: str) -> Inventory:
        """Return the inventory of an agent's machine; raises VipuError."""
        return self._loop.run(self._inventory_at(address))

    def add(self, agent: AgentRecord, inventory: Inventory) -> None:
        """Begin to follow an agent that was created."""
        self._around.inventories[agent.id] = inventory
        self._loop.run(self._add(agent))

    def remove(self, agent: str) -> None:
        """Stop following an agent; its machine stays unchanged."""
        self._loop.run(self._remove(agent))

    def watch(self, machines: Machines) -> None:
        """Begin with the heartbeats."""
        self._around.watched = machines
        self._loop.run(self._watch(machines))

    def changed(self, partitions: Collection[str]) -> None:
        """Send changes of these partitions (created, reset or removed) to their machines now."""
        with self._changing:
            is_first = not self._changed
            self._changed.update(partitions)
        if is_first:
            self._loop.soon(self._refresh)

    def fail(self, agent: str, fault: Fault) -> None:
        """Let the machine of an agent fail, if it is simulated; raises VipuError."""
        self._loop.run(self._link(agent).client.inject(fault))

    def repair(self, agent: str, ipu: int | None) -> None:
        """End the faults of an IPU, or all of the machine; raises VipuError."""
        self._loop.run(self._link(agent).client.repair(ipu))

    def test(self, agent: str, kind: MachineTest, ipu: int | None) -> str:
        """Have an agent test its machine, or one IPU; what is wrong. Raises VipuError: NotReady
        where the agent is removed meanwhile."""
        link = self._links.get(agent)
        try:
            if link is not None:
                return self._loop.run(link.client.test(kind, ipu))
        except Unavailable:
            if self._links.get(agent) is link:
                raise
        raise NotReady(f"{agent} was removed while it was tested")

    def _link(self, agent: str) -> AgentLink:
        """The connection to an agent; raises NotFound for one that has just been removed."""
        try:
            return self._links[agent]
        except KeyError:
            raise NotFound(missing("agent", agent, "vipu-admin list agents")) from None

    def freeing(self, agent: str) -> frozenset[str] | None:
        """Return the partitions that an agent's machine has to free and may still have, after all
        changes so far; none of a machine that is lost or not followed. None: it has not answered
        since the start."""
        return self._loop.run(self._freeing(agent))

    def stop(self) -> None:
        """Close all connections; the machines stay unchanged."""
        self._loop.stop(self._close)

    async def _connect(self) -> None:
        for agent, address in self.addresses.items():
            self._open(agent, address)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._around.timing.lost_seconds):
                await asyncio.gather(*(link.take_inventory() for link in self._links.values()))

    def _open(self, agent: str, address: str) -> AgentLink:
        deadline = self._around.timing.heartbeat_seconds
        controller = self._identity.controller
        client = AgentClient(
            address, deadline_seconds=deadline, tls=self._tls, controller=controller
        )
        client.takes_over = self._identity.takes_over
        link = self._links[agent] = AgentLink(agent, client, self._around)
        return link

    async def _inventory_at(self, address: str) -> Inventory:
        async with AgentClient(address, deadline_seconds=_ONCE_SECONDS, tls=self._tls) as client:
            return await client.inventory()

    async def _add(self, agent: AgentRecord) -> None:
        link = self._open_created(agent)
        self._tasks[agent.id] = asyncio.create_task(link.follow())

    def _open_created(self, agent: AgentRecord) -> AgentLink:
        self.addresses[agent.id], self._hosts[agent.id] = agent.address, host_of(agent.address)
        link = self._open(agent.id, agent.address)
        link.indexes, link.is_created = set(range(agent.ipus)), True
        return link

    async def _remove(self, agent: str) -> None:
        task, link = self._tasks.pop(agent), self._links.pop(agent)
        await end_tasks(task)
        await link.client.close()
        around = self._around
        for known in (self.addresses, self._hosts, around.inventories, around.heartbeats):
            known.pop(agent, None)

    async def _watch(self, machines: Machines) -> None:
        for record in machines.state.agents.values():
            self._open_created(record)
        for ipu in machines.topology.ipus:
            self._links[ipu.agent].indexes.add(ipu.index)
        with self._changing:
            self._changed.update(machines.state.partitions)
        self._refresh()
        for agent, link in self._links.items():
            self._tasks[agent] = asyncio.create_task(link.follow())

    async def _freeing(self, agent: str) -> frozenset[str] | None:
        self._refresh()
        link = self._links.get(agent)
        return frozenset() if link is None else link.freeing

    async def _close(self) -> None:
        await asyncio.gather(*(link.client.close() for link in self._links.values()))

    def _refresh(self) -> None:
        """Pass the new configuration of changed partitions to the links of their machines."""
        with self._changing:
            changed, self._changed = self._changed, set()
        partitions = self._around.machines.state.partitions
        for partition in changed:
            self._want(partition, partitions.get(partition))

    def _want(self, partition: str, record: PartitionRecord | None) -> None:
        """Want this of a partition's machines, and nothing more where it is gone or removed."""
        _, agents = self._known.pop(partition, (None, frozenset()))
        parts = {}
        if record is not None:
            parts = configurations(record, self._around.machines.topology)
        for agent in agents - parts.keys():
            self._links[agent].forget(partition)
        if record is None:
            return
        self._known[partition] = record, frozenset(parts)
        for agent, configuration in parts.items():
            self._links[agent].want(partition, configuration, record)

    async def _confirm(self, link: AgentLink) -> None:
        """Report to the controller the partitions that all their machines have created or freed."""
        done = []
        for partition in (*link.wanted, *link.leaving):
            record, agents = self._known.get(partition, (None, frozenset()))
            if record is None or not record.is_unconfirmed:
                continue
            if all(self._links[agent].has_done(record) for agent in agents):
                done.append(record)
        # Together, so that they share a write of the state file.
        confirm = self._around.machines.confirm
        await asyncio.gather(*(asyncio.to_thread(confirm, record) for record in done))
