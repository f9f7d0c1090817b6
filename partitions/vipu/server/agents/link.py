"""io: one agent of vipu-server: its heartbeats, and the desired configuration of its machine.

Nothing is remembered across a restart: each answer of an agent is compared with the stored
partitions, and differences are corrected.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.concurrency import wait_set
from partitions.vipu.agent.holder import RefusedHosts
from partitions.vipu.errors import NotReady, VipuError
from partitions.vipu.ipuofprobe import IpuofProbes
from partitions.vipu.server.agents.fleet import (
    Outage,
    begun_parts,
    differences,
    failed_parts,
    key_of,
    ready,
)
from partitions.vipu.server.records import is_silence, silence
from partitions.vipu.telemetry import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from partitions.vipu.agent.client import AgentClient
    from partitions.vipu.agent.holder import Rival
    from partitions.vipu.agent.machine import Configuration, Health, Inventory
    from partitions.vipu.server.agents.fleet import LinkTiming, Machines
    from partitions.vipu.server.machines import Hardware
    from partitions.vipu.server.records import PartitionRecord

log = structlog.get_logger(__name__)
# Between two questions while a machine is at work: soon after a change, then less and less often.
_BUSY_SECONDS: Final = 0.001
_LONGEST_BUSY_SECONDS: Final = 0.25
_MISSES_OF_LOST: Final = 3
# After its restart an agent obeys who calls first: that must be who had it before.
_FOREIGN_PAUSES: Final = 5
_RESTART: Final = "restart vipu-server"


@dataclass(slots=True)
class Surroundings:
    """The objects that all links share.

    `known`: the stored partitions, each with the agents of its machines. `confirm` is called when
    a machine may have been the last to do its part. `watched`: the controller, once it is started.
    """

    timing: LinkTiming
    inventories: dict[str, Inventory]
    heartbeats: dict[str, Heartbeat]
    hardware: Hardware
    clock: Callable[[], datetime]
    known: Mapping[str, tuple[PartitionRecord, frozenset[str]]]
    confirm: Callable[[AgentLink], Awaitable[None]]
    watched: Machines | None = None

    @property
    def machines(self) -> Machines:
        """The controller's side of the fleet."""
        if self.watched is None:
            raise RuntimeError("the agents are not watched yet")
        return self.watched


@dataclass(eq=False, slots=True)
class AgentLink:
    """The connection to one agent, and what it reported since the start.

    `indexes`: the IPUs that the fleet counts on. `leaving`: by partition, the generation of its
    removal, where the machine has or had a part. `gone`: the removals whose partition its last
    answer no longer had. `held`: the partitions that the machine may have a part of, None while it
    has not answered yet; nothing of a lost machine is waited for. `last`: its last answer, None
    after a question without one.
    """

    agent: str
    client: AgentClient
    around: Surroundings
    indexes: set[int] = field(default_factory=set)
    is_created: bool = False
    heard_at: float = field(default_factory=time.monotonic)
    misses: int = 0  # questions in a row without an answer
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    inventory: Inventory | None = None
    boot_id: str = ""
    outage: Outage | None = None  # None: not known yet
    faults: dict[int, str] = field(default_factory=dict)
    wanted: dict[str, Configuration] = field(default_factory=dict)
    probes: IpuofProbes = field(default_factory=IpuofProbes)
    leaving: dict[str, str] = field(default_factory=dict)
    gone: frozenset[tuple[str, str]] = frozenset()
    held: frozenset[str] | None = None
    last: Health | None = None
    ready: frozenset[tuple[str, str]] = frozenset()
    rivals: RefusedHosts = field(default_factory=RefusedHosts)

    async def take_inventory(self) -> None:
        """Ask what the machine is made of until it answers."""
        while self.inventory is None:
            with suppress(VipuError):
                self.inventory = await self.client.inventory()
                self.around.inventories[self.agent] = self.inventory

    async def follow(self) -> None:
        """Ask the agent once a heartbeat, and at once after a change, until this is cancelled."""
        busy = _BUSY_SECONDS
        while True:
            self.wake.clear()
            pause = self.around.timing.heartbeat_seconds
            try:
                if await self._beat():
                    pause, busy = busy, min(2 * busy, _LONGEST_BUSY_SECONDS)
                else:
                    busy = _BUSY_SECONDS
                if self.outage is Outage.FOREIGN:
                    pause *= _FOREIGN_PAUSES
            except Exception:  # the outermost frame of a link: the others go on
                if not any(ipu.agent == self.agent for ipu in self.around.machines.topology.ipus):
                    return  # the controller has just removed the agent
                log.exception("agent not followed", agent=self.agent)
            if await wait_set(self.wake, pause):
                busy = _BUSY_SECONDS  # new work must not wait as long as slow work

    def want(self, partition: str, configuration: Configuration, record: PartitionRecord) -> None:
        """Have the machine set its part of a partition up, or free it."""
        if record.is_removing:
            self.wanted.pop(partition, None)
            self.leaving[partition] = record.generation
            self.wake.set()
            return
        self.leaving.pop(partition, None)
        if self.wanted.get(partition) != configuration:
            self.wanted[partition] = configuration
            self.wake.set()

    def forget(self, partition: str) -> None:
        """The machine has no part of this partition any more."""
        self.leaving.pop(partition, None)
        if self.wanted.pop(partition, None) is not None:
            self.wake.set()

    def has_done(self, record: PartitionRecord) -> bool:
        """Return whether the machine has done its part of a partition.

        A lost machine does not delay the freeing of IPUs: they get no new partition until it
        returns, and it frees them first.
        """
        if record.is_removing:
            is_gone = (record.id, record.generation) in self.gone
            return is_gone or self.outage not in {None, Outage.NONE}
        return key_of(self.wanted[record.id]) in self.ready

    @property
    def freeing(self) -> frozenset[str] | None:
        """Return the partitions that the machine may still have a part of and is to free; None: it
        has not answered yet."""
        return None if self.held is None else self.held - self.wanted.keys()

    async def _beat(self) -> bool:
        """Give the agent its orders and act on its answer; whether its machine is at work."""
        # The answer may be older than a removal that begins while it is on its way.
        leaving = frozenset(self.leaving.items())
        # By its last answer: another question first would double the way of each order.
        orders = differences(self.wanted, self.last) if self.last else []
        if self.held is not None:  # it may be removed before the answer
            self.held |= self.wanted.keys()
        self.last = None
        try:
            outcome = await self.client.follow(*orders)
            health = outcome.health
            if health.boot_id != self.boot_id:
                await self._greet(health)
        except NotReady as error:
            await self._leave_to_another(str(error))
            return False
        except VipuError as error:
            await self._miss(str(error))
            return False
        for number, refusal in outcome.refusals.items():  # the difference is there the next time
            order = orders[number]
            log.warning("machine not changed", agent=self.agent, order=order, error=str(refusal))
        self.heard_at, self.misses = time.monotonic(), 0
        around = self.around
        around.heartbeats[self.agent] = Heartbeat(around.clock(), health.sensors)
        self._note_rival(health.rival)
        if not await self._fits():
            return False
        has = frozenset(each.configuration.partition for each in health.partitions)
        self.held, self.last = has, health
        await self._report(health)
        up = ready(health)
        for partition, _ in self.ready - up:
            if partition in self.wanted and partition not in has:
                around.machines.note_lost_part(self.agent, partition)
        fresh = begun_parts(up - self.ready, around.known)
        closed = await self.probes.closed(self.agent, fresh, around.machines, around.hardware)
        self.ready = up - closed
        self.gone = frozenset(removal for removal in leaving if removal[0] not in has)
        await around.confirm(self)
        is_set_up = self.ready.issuperset(map(key_of, self.wanted.values()))
        is_free = self.leaving.items() <= self.gone and not differences(self.wanted, health)
        return not is_set_up or not is_free

    def _note_rival(self, rival: Rival | None) -> None:
        """Tell once of each host whose controller the agent refuses, until it has refused none for
        a while."""
        if rival is None:
            self.rivals.forget()
        elif self.rivals.is_new(rival.host):
            self.around.machines.note_rival(self.agent, rival)

    async def _greet(self, health: Health) -> None:
        """Take note of a machine that has started since, or is new."""
        self.inventory = await self.client.inventory()
        log.info(
            "agent answers",
            agent=self.agent,
            address=self.client.address,
            board=self.inventory.board_serial,
            ipus=len(self.inventory.ipus),
            partitions=len(health.partitions),
        )
        self.boot_id = health.boot_id
        if {ipu.index for ipu in self.inventory.ipus} == self.indexes:
            self.around.inventories[self.agent] = self.inventory

    async def _miss(self, error: str) -> None:
        """Take note of a question without an answer, which may be the one that shows the loss.

        The time alone shows nothing: it passes also while this server stands still.
        """
        self.misses += 1
        silent = time.monotonic() - self.heard_at
        if silent < self.around.timing.lost_seconds or self.misses < _MISSES_OF_LOST:
            return
        if self.outage is not Outage.SILENT:
            log.warning("agent lost", agent=self.agent, address=self.client.address, error=error)
        # Everybody whose job waits reads this: the address and what gRPC says are for the log.
        known = self.around.machines.state.machines.get(self.agent)
        sentence = silence(self.agent, self.around.clock() - timedelta(seconds=silent))
        if known and is_silence(self.agent, known.lost):
            sentence = known.lost  # it was lost before a restart of this server
        await self._lose(Outage.SILENT, sentence)

    async def _leave_to_another(self, error: str) -> None:
        """Send no orders to an agent that another controller uses."""
        if self.outage is not Outage.FOREIGN:
            log.warning("agent refuses this vipu-server", agent=self.agent, error=error)
        self.misses = 0
        await self._lose(
            Outage.FOREIGN,
            f"{self.agent} is used by another vipu-server: stop one of the two, or start this one "
            "with --take-over-agents",
        )

    async def _fits(self) -> bool:
        """Return whether the machine has the IPUs that the fleet counts on; else it is lost."""
        has = {ipu.index for ipu in self.inventory.ipus} if self.inventory else set()
        if self.indexes != has:
            remedy = "remove the agent and create it again" if self.is_created else _RESTART
            text = f"{self.agent} has {len(has)} IPUs, not {len(self.indexes)}: {remedy}"
            await self._lose(Outage.UNFIT, text)
        return self.indexes == has

    async def _lose(self, outage: Outage, sentence: str) -> None:
        if self.outage is not outage:
            await asyncio.to_thread(self.around.machines.lose_agent, self.agent, sentence)
            self.outage = outage
            self.ready = frozenset()
        self.held = frozenset()
        await self.around.confirm(self)

    async def _report(self, health: Health) -> None:
        """Report changes to the controller: the agent is back, faults of its IPUs, partitions that
        it cannot serve."""
        machines = self.around.machines
        if self.outage is not Outage.NONE:
            await asyncio.to_thread(machines.agent_back, self.agent)
            # A fault may have ended between two polls.
            for index in self.indexes - health.faults.keys():
                await asyncio.to_thread(machines.heal_ipu, self.agent, index)
                self.faults.pop(index, None)
            self.outage = Outage.NONE
        for index, sentence in health.faults.items():
            if self.faults.get(index) != sentence:
                await asyncio.to_thread(machines.fail_ipu, self.agent, index, sentence)
                self.faults[index] = sentence
        for index in self.faults.keys() - health.faults.keys():
            await asyncio.to_thread(machines.heal_ipu, self.agent, index)
            del self.faults[index]
        for record, problem in failed_parts(health, self.around.known):
            await asyncio.to_thread(machines.fail_part, record, f"{self.agent}: {problem}")
