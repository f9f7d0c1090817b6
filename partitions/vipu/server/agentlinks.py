"""io: the agents of vipu-server: heartbeats, and what the machines have to be configured for.

A thread with an event loop of its own asks each agent every second, and at once after a change.
Nothing is remembered across a restart: each answer of an agent is compared with the partitions
that are stored, and what differs is mended.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from partitions.vipu.agent.client import AgentClient
from partitions.vipu.errors import VipuError
from partitions.vipu.ipuofprobe import IpuofProbes
from partitions.vipu.loopthread import LoopThread
from partitions.vipu.server.agentfleet import (
    Configure,
    Outage,
    Release,
    begun_parts,
    configurations,
    differences,
    key_of,
    ready,
)
from partitions.vipu.server.machines import Hardware
from partitions.vipu.serving import host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from partitions.vipu.agent.machine import Configuration, Fault, Health, Inventory, MachineTest
    from partitions.vipu.client import TlsFiles
    from partitions.vipu.server.agentfleet import Action, LinkTiming, Machines
    from partitions.vipu.server.records import AgentRecord, PartitionRecord

log = structlog.get_logger(__name__)
# Between two questions while a machine is at work: soon after a change, then less and less often.
_BUSY_SECONDS: Final = 0.001
_LONGEST_BUSY_SECONDS: Final = 0.25
_ONCE_SECONDS: Final = 5.0
_RESTART: Final = "restart vipu-server"


@dataclass(eq=False, slots=True)
class _Link:
    """What is known of one agent since the start.

    `leaving`: by partition, the generation of its removal, where the machine has or had a part.
    `gone`: the removals whose partition it no longer had when it was last asked.
    """

    agent: str
    client: AgentClient
    heard_at: float
    wake: asyncio.Event
    is_created: bool = False
    inventory: Inventory | None = None
    boot_id: str = ""
    outage: Outage | None = None  # None: not known yet
    faults: dict[int, str] = field(default_factory=dict)
    wanted: dict[str, Configuration] = field(default_factory=dict)
    probes: IpuofProbes = field(default_factory=IpuofProbes)
    leaving: dict[str, str] = field(default_factory=dict)
    gone: frozenset[tuple[str, str]] = frozenset()
    ready: frozenset[tuple[str, str]] = frozenset()


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
    ) -> None:
        self.addresses = dict(addresses)
        self._timing = timing
        self._tls = tls
        self._loop = LoopThread("agents")
        self._links: dict[str, _Link] = {}
        self._known: dict[str, tuple[PartitionRecord, frozenset[str]]] = {}
        self._machines: Machines | None = None
        self._indexes: dict[str, set[int]] = {}
        # Partitions that changed since the last refresh. Any thread adds to them.
        self._changed: set[str] = set()
        self._changing = threading.Lock()
        self._inventories: dict[str, Inventory] = {}
        self._hosts = {agent: host_of(address) for agent, address in addresses.items()}
        self.hardware = Hardware(self._inventories, self._hosts)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def connect(self, usual_ipus: int) -> dict[str, int]:
        """How many IPUs each agent's machine has; `usual_ipus` where none answers in time."""
        self._loop.start()
        self._loop.run(self._connect())
        return {
            agent: len(link.inventory.ipus) if link.inventory else usual_ipus
            for agent, link in self._links.items()
        }

    def inventory_at(self, address: str) -> Inventory:
        """What the machine of an agent is made of; raises VipuError."""
        return self._loop.run(self._inventory_at(address))

    def add(self, agent: AgentRecord, inventory: Inventory) -> None:
        """Begin to follow an agent that was created."""
        self._inventories[agent.id] = inventory
        self._loop.run(self._add(agent))

    def remove(self, agent: str) -> None:
        """Follow an agent no longer; what its machine does stays as it is."""
        self._loop.run(self._remove(agent))

    def watch(self, machines: Machines) -> None:
        """Begin with the heartbeats."""
        self._machines = machines
        self._loop.run(self._watch())

    def changed(self, partitions: Collection[str]) -> None:
        """These partitions were made, reset or removed: tell their machines now."""
        with self._changing:
            is_first = not self._changed
            self._changed.update(partitions)
        if is_first:
            self._loop.soon(self._refresh)

    def fail(self, agent: str, fault: Fault) -> None:
        """Let the machine of an agent fail, if it is simulated; raises VipuError."""
        self._loop.run(self._links[agent].client.inject(fault))

    def repair(self, agent: str, ipu: int | None) -> None:
        """End the faults of an IPU, or all of the machine; raises VipuError."""
        self._loop.run(self._links[agent].client.repair(ipu))

    def test(self, agent: str, kind: MachineTest, ipu: int | None) -> str:
        """Have an agent test its machine, or one IPU; what is wrong. Raises VipuError."""
        return self._loop.run(self._links[agent].client.test(kind, ipu))

    def stop(self) -> None:
        """End all connections; what the machines do stays as it is."""
        self._loop.stop(self._close)

    async def _connect(self) -> None:
        for agent, address in self.addresses.items():
            self._open(agent, address)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.lost_seconds):
                await asyncio.gather(*map(self._take_inventory, self._links.values()))

    def _open(self, agent: str, address: str) -> _Link:
        deadline = self._timing.heartbeat_seconds
        client = AgentClient(address, deadline_seconds=deadline, tls=self._tls)
        link = _Link(agent, client, time.monotonic(), asyncio.Event())
        self._links[agent] = link
        return link

    async def _inventory_at(self, address: str) -> Inventory:
        async with AgentClient(address, deadline_seconds=_ONCE_SECONDS, tls=self._tls) as client:
            return await client.inventory()

    async def _add(self, agent: AgentRecord) -> None:
        link = self._open_created(agent)
        self._tasks[agent.id] = asyncio.create_task(self._follow(link))

    def _open_created(self, agent: AgentRecord) -> _Link:
        self.addresses[agent.id], self._hosts[agent.id] = agent.address, host_of(agent.address)
        self._indexes[agent.id] = set(range(agent.ipus))
        link = self._open(agent.id, agent.address)
        link.is_created = True
        return link

    async def _remove(self, agent: str) -> None:
        task, link = self._tasks.pop(agent), self._links.pop(agent)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await link.client.close()
        for known in (self.addresses, self._hosts, self._inventories, self._indexes):
            known.pop(agent, None)

    async def _take_inventory(self, link: _Link) -> None:
        while link.inventory is None:
            with suppress(VipuError):
                link.inventory = await link.client.inventory()
                self._inventories[link.agent] = link.inventory

    async def _watch(self) -> None:
        for ipu in self._watched.topology.ipus:
            self._indexes.setdefault(ipu.agent, set()).add(ipu.index)
        for record in self._watched.state.agents.values():
            self._open_created(record)
        with self._changing:
            self._changed.update(self._watched.state.partitions)
        self._refresh()
        for agent, link in self._links.items():
            self._tasks[agent] = asyncio.create_task(self._follow(link))

    async def _close(self) -> None:
        await asyncio.gather(*(link.client.close() for link in self._links.values()))

    def _refresh(self) -> None:
        """Say to the machines' links what changed partitions have to be configured for."""
        with self._changing:
            changed, self._changed = self._changed, set()
        partitions = self._watched.state.partitions
        for partition in changed:
            self._want(partition, partitions.get(partition))

    def _want(self, partition: str, record: PartitionRecord | None) -> None:
        """Want this of a partition's machines, and nothing more where it is gone or removed."""
        _, agents = self._known.pop(partition, (None, frozenset()))
        parts = configurations(record, self._watched.topology) if record is not None else {}
        for agent in agents - parts.keys():
            self._links[agent].leaving.pop(partition, None)
            self._links[agent].wanted.pop(partition, None)
            self._links[agent].wake.set()
        if record is None:
            return
        self._known[partition] = record, frozenset(parts)
        for agent, configuration in parts.items():
            link = self._links[agent]
            if record.is_removing:
                link.wanted.pop(partition, None)
                link.leaving[partition] = record.generation
                link.wake.set()
                continue
            link.leaving.pop(partition, None)
            if link.wanted.get(partition) != configuration:
                link.wanted[partition] = configuration
                link.wake.set()

    @property
    def _watched(self) -> Machines:
        if self._machines is None:
            raise RuntimeError("the agents are not watched yet")
        return self._machines

    async def _follow(self, link: _Link) -> None:
        busy = _BUSY_SECONDS
        while True:
            link.wake.clear()
            pause = self._timing.heartbeat_seconds
            try:
                if await self._beat(link):
                    pause, busy = busy, min(2 * busy, _LONGEST_BUSY_SECONDS)
                else:
                    busy = _BUSY_SECONDS
            except Exception:  # the outermost frame of a link: the others go on
                if not any(ipu.agent == link.agent for ipu in self._watched.topology.ipus):
                    return  # the controller has just removed the agent
                log.exception("agent not followed", agent=link.agent)
            with suppress(TimeoutError):
                await asyncio.wait_for(link.wake.wait(), pause)
                busy = _BUSY_SECONDS  # what is new must not wait as long as what is slow

    async def _beat(self, link: _Link) -> bool:
        """Ask an agent once and act on its answer; whether its machine is at work."""
        # The answer may be older than a removal that begins while it is on its way.
        leaving = frozenset(link.leaving.items())
        try:
            health = await link.client.health()
            if health.boot_id != link.boot_id:
                await self._greet(link, health)
        except VipuError as error:
            await self._miss(link, str(error))
            return False
        link.heard_at = time.monotonic()
        if not await self._fits(link):
            return False
        await self._report(link, health)
        actions = differences(link.wanted, health)
        # Each kind at once, but the releases first: their IPUs may be wanted again.
        releases = [each for each in actions if isinstance(each, Release)]
        begun = [each for each in actions if not isinstance(each, Release)]
        for few in (releases, begun):
            await asyncio.gather(*(self._do(link, action) for action in few))
        up = ready(health)
        fresh = begun_parts(up - link.ready, self._known)
        link.ready = up - await link.probes.closed(link.agent, fresh, self._watched, self.hardware)
        has = {each.configuration.partition for each in health.partitions}
        link.gone = frozenset(removal for removal in leaving if removal[0] not in has)
        await self._confirm(link)
        is_busy = any(key_of(each) not in link.ready for each in link.wanted.values())
        return is_busy or bool(actions) or not link.leaving.items() <= link.gone

    async def _greet(self, link: _Link, health: Health) -> None:
        """Take note of a machine that has started since, or is new."""
        link.inventory = await link.client.inventory()
        log.info(
            "agent answers",
            agent=link.agent,
            address=link.client.address,
            board=link.inventory.board_serial,
            ipus=len(link.inventory.ipus),
            partitions=len(health.partitions),
        )
        link.boot_id = health.boot_id
        if {ipu.index for ipu in link.inventory.ipus} == self._indexes[link.agent]:
            self._inventories[link.agent] = link.inventory

    async def _miss(self, link: _Link, why: str) -> None:
        silent = time.monotonic() - link.heard_at
        if silent >= self._timing.lost_seconds:
            text = f"{link.agent} has not answered for {silent:.0f} s: {why}"
            await self._lose(link, Outage.SILENT, text)

    async def _fits(self, link: _Link) -> bool:
        """Whether the machine has the IPUs that the fleet counts on; else it is lost."""
        fleet = self._indexes[link.agent]
        has = {ipu.index for ipu in link.inventory.ipus} if link.inventory else set()
        if fleet != has:
            remedy = "remove the agent and create it again" if link.is_created else _RESTART
            text = f"{link.agent} has {len(has)} IPUs, not {len(fleet)}: {remedy}"
            await self._lose(link, Outage.UNFIT, text)
        return fleet == has

    async def _lose(self, link: _Link, outage: Outage, sentence: str) -> None:
        if link.outage is not outage:
            await asyncio.to_thread(self._watched.lose_agent, link.agent, sentence)
            link.outage = outage
            link.ready = frozenset()
        await self._confirm(link)

    async def _report(self, link: _Link, health: Health) -> None:
        """Tell the controller what has changed: the agent is there, faults of its IPUs."""
        machines = self._watched
        if link.outage is not Outage.NONE:
            await asyncio.to_thread(machines.agent_back, link.agent)
            # A fault may have ended while nobody asked.
            for index in self._indexes[link.agent] - health.faults.keys():
                await asyncio.to_thread(machines.heal_ipu, link.agent, index)
                link.faults.pop(index, None)
            link.outage = Outage.NONE
        for index, sentence in health.faults.items():
            if link.faults.get(index) != sentence:
                await asyncio.to_thread(machines.fail_ipu, link.agent, index, sentence)
                link.faults[index] = sentence
        for index in link.faults.keys() - health.faults.keys():
            await asyncio.to_thread(machines.heal_ipu, link.agent, index)
            del link.faults[index]

    async def _do(self, link: _Link, action: Action) -> None:
        try:
            if isinstance(action, Configure):
                await link.client.configure(action.configuration)
            elif isinstance(action, Release):
                await link.client.release(action.partition)
            else:
                await link.client.reset(action.partition, action.generation)
        except VipuError as error:  # the next heartbeat finds the same difference
            log.warning("machine not changed", agent=link.agent, action=action, error=str(error))

    async def _confirm(self, link: _Link) -> None:
        """Tell the controller which partitions all their machines have set up or freed by now."""
        done = []
        for partition in (*link.wanted, *link.leaving):
            record, agents = self._known.get(partition, (None, frozenset()))
            if record is None or not record.is_unconfirmed:
                continue
            if all(_has_done(self._links[agent], record) for agent in agents):
                done.append(record)
        # Together, so that they share a write of the state file.
        await asyncio.gather(*(asyncio.to_thread(self._watched.confirm, one) for one in done))


def _has_done(link: _Link, record: PartitionRecord) -> bool:
    """Whether a machine of a partition has done its part.

    Nobody waits for a lost one to free IPUs: they get no new partition, and it frees them first.
    """
    if record.is_removing:
        is_gone = (record.id, record.generation) in link.gone
        return is_gone or link.outage in {Outage.SILENT, Outage.UNFIT}
    return key_of(link.wanted[record.id]) in link.ready
