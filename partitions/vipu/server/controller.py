"""io: the partitions of the simulated controller; a change takes effect once it is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from partitions.vipu.errors import (
    AlreadyExists,
    InvalidRequest,
    NotReady,
    quoted,
)
from partitions.vipu.server import outages
from partitions.vipu.server.drain import Drained, drain
from partitions.vipu.server.events import Events
from partitions.vipu.server.loading import load_state
from partitions.vipu.server.machines import Hardware, ipu_attributes, ipuof_config
from partitions.vipu.server.records import PartitionRecord, removing_record, reset_record
from partitions.vipu.server.requirements import choose_ipus, complete_request, routing_of
from partitions.vipu.server.sharedwrites import SharedWrites
from partitions.vipu.server.users import EVERYTHING, visible
from partitions.vipu.topology import CORDON_ATTRIBUTE, FAULT_ATTRIBUTE, LOST_ATTRIBUTE
from partitions.vipu.types import OperationState, ReadyState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from partitions.vipu.agent.holder import Rival
    from partitions.vipu.server.drain import DrainOrder
    from partitions.vipu.server.layout import Layout
    from partitions.vipu.server.records import MachineRecord
    from partitions.vipu.server.sharedwrites import Change
    from partitions.vipu.server.state import Draft, State
    from partitions.vipu.server.statefile import StateFile
    from partitions.vipu.server.users import Caller
    from partitions.vipu.topology import Topology
    from partitions.vipu.types import CreateRequest, IpuofConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The times in which simulated machines create and reset a partition.

    `confirmed_removal`: machines have to confirm that they have freed the IPUs of a partition.
    """

    create: timedelta = timedelta(seconds=0.5)
    reset: timedelta = timedelta(seconds=0.2)
    confirmed_removal: bool = False


class Controller:
    """Creates, resets and removes partitions; safe to call from many threads.

    `clock` gives the time as aware UTC. Raises StateFileError when the stored partitions do not
    fit the fleet.
    """

    def __init__(
        self,
        topology: Topology,
        state: StateFile,
        latencies: Latencies,
        clock: Callable[[], datetime],
    ) -> None:
        self.clock = clock
        self.events = Events(clock)
        self._latencies = latencies
        self.writes = SharedWrites(state, load_state(topology, state), clock)
        self.writes.settle = self._move_stranded
        self.hardware = Hardware()

    def create(self, request: CreateRequest, caller: Caller = EVERYTHING) -> PartitionRecord:
        """Reserve IPUs for a new partition, PENDING until the creation latency is over.

        Raises InvalidRequest, AlreadyExists, NoCapacity, Refused, or NotStored when nothing is
        stored.
        """
        caller.require_allocations()
        settled, made = complete_request(request), list[PartitionRecord]()

        def create(draft: Draft) -> None:
            if known := draft.partitions.get(request.id):
                taken = "exists already; use another id, or remove it first"
                reason = "is being removed; try again later" if known.is_removing else taken
                raise AlreadyExists(f"partition {request.id} {reason}")
            ipus = choose_ipus(request, caller.occupancy(draft.occupancy), draft.layout.meshes)
            first, now = draft.occupancy.topology.by_id[ipus[0]], self.clock()
            record = PartitionRecord(
                id=request.id,
                ipus=ipus,
                cluster=first.cluster,
                allocation=first.allocation,
                num_gcds=settled.num_gcds,
                num_replicas=settled.num_replicas,
                reconfigurable=request.reconfigurable,
                routing=routing_of(request, has_loops=first.cluster not in draft.layout.meshes),
                sync_type=settled.sync_type,
                auto_reset=request.auto_reset,
                relocatable=request.relocatable,
                gateway_routing=request.gateway_routing,
                operation=OperationState.CREATING,
                started_at=now,
                ready_at=now + self._latencies.create,
            )
            draft.put(record)
            made.append(record)

        self.writes.write(create)
        record = made[-1]
        self.events.note(
            "partition created",
            partition=record.id,
            ipus=len(record.ipus),
            agent=self.topology.by_id[record.ipus[0]].agent,
        )
        return record

    def reset(
        self, partition_id: str, caller: Caller = EVERYTHING, *, relocatable: bool = False
    ) -> None:
        """Bring a partition back to its first state on the same IPUs, or on others if one of its
        IPUs cannot be used and either the partition or this reset is `relocatable`.

        A pod may reset its own partition, as poprun does before it starts, because no other program
        uses these IPUs. It cannot move the partition: the scheduler decides who gets other IPUs.
        Raises NotFound, Refused, or NotReady while an IPU of it has a fault or its agent is lost
        and it does not move, or while it is being removed.
        """
        moved = list[bool]()

        def reset(draft: Draft) -> None:
            record, now = visible(draft.partitions, partition_id, caller), self.clock()
            may_move = relocatable or (record.relocatable and not caller.partition)
            create = self._latencies.create
            other = outages.moved_by_reset(draft, record, now, create) if may_move else None
            if other is None:
                by_pod = bool(caller.partition)
                outages.require_usable(draft, record, may_move=may_move, by_pod=by_pod)
            else:
                caller.require_user()
            draft.put(other or reset_record(record, now, self._latencies.reset))
            moved.append(other is not None)

        self.writes.write(reset)
        what = "partition moved by a reset" if moved[-1] else "partition reset"
        self.events.note(what, partition=partition_id)

    def remove(
        self, partition_id: str, caller: Caller = EVERYTHING, *, force: bool = False
    ) -> None:
        """Remove a partition in whatever state it is; raises NotFound.

        Where machines confirm it, it is REMOVING and holds its IPUs until they have. With `force`
        it is gone at once.
        """
        caller.require_user()
        happened = list[str]()

        def remove(draft: Draft) -> None:
            record = visible(draft.partitions, partition_id, caller)
            if force or not self._latencies.confirmed_removal:
                draft.remove(record.id)
                happened.append("partition removed")
            elif not record.is_removing:
                draft.put(removing_record(record, self.clock()))
                happened.append("partition is being removed")

        self.writes.write(remove)
        for what in happened:
            self.events.note(what, partition=partition_id)

    def confirm(self, done: PartitionRecord) -> None:
        """End an operation that all machines of the partition have completed.

        A partition that is gone or has a newer operation stays unchanged.
        """
        happened = list[str]()

        def confirm(draft: Draft) -> None:
            record, begun = draft.partitions.get(done.id), (done.operation, done.started_at)
            if record is None or not record.is_unconfirmed:
                return
            if (record.operation, record.started_at) != begun:
                return
            if record.is_removing:
                draft.remove(record.id)
                happened.append("partition removed")
            else:
                draft.put(replace(record, ready_at=max(self.clock(), record.started_at)))
                happened.append("machines have confirmed")

        self.writes.write(confirm)
        for what in happened:
            self.events.note(what, partition=done.id)

    @property
    def topology(self) -> Topology:
        """All IPUs of the fleet, as they are arranged at this moment."""
        return self.state.occupancy.topology

    def arrange(self, change: Callable[[Draft], Layout], what: str, **facts: str) -> None:
        """Change clusters or allocations; `what` and `facts` are its event.

        Raises what `change` raises, before anything is stored.
        """
        self.writes.write(lambda draft: draft.put_layout(change(draft)))
        self.events.note(what, is_bad=False, **facts)

    def change(self, change: Change, what: str, **facts: str) -> None:
        """Make a change that has no method of its own; `what` and `facts` are its event.

        Raises what `change` raises, before anything is stored.
        """
        self.writes.write(change)
        self.events.note(what, is_bad=False, **facts)

    @property
    def state(self) -> State:
        """All that is known at this moment; it never changes: each write makes another state."""
        return self.writes.state

    @property
    def machines(self) -> Mapping[str, MachineRecord]:
        """Return the records of machines, by agent; machines that are simply in service have
        none."""
        return self.state.machines

    def cordon(self, agent: str, reason: str | None) -> None:
        """Give a machine no new partitions; raises NotFound or InvalidRequest.

        Without a reason a cordon that is there keeps its own.
        """
        self.writes.write(lambda draft: outages.cordon(draft, agent, reason, self.clock()))
        self.events.note(
            "machine cordoned", agent=agent, reason="as before" if reason is None else reason
        )

    def uncordon(self, agent: str) -> None:
        """Let a machine have new partitions again; raises NotFound."""
        self.writes.write(lambda draft: outages.uncordon(draft, agent))
        self.events.note("machine uncordoned", agent=agent)

    def drain(self, order: DrainOrder) -> Drained:
        """Cordon a machine and take from it what may leave it now; raises NotFound, InvalidRequest
        or NotReady."""
        made = list[Drained]()
        latencies = self._latencies
        removal = latencies.confirmed_removal

        def change(draft: Draft) -> None:
            done = drain(draft, order, self.clock(), latencies.create, confirmed_removal=removal)
            made.append(done)

        self.writes.write(change)
        drained, agent, note = made[-1], order.agent, self.events.note
        if drained.cordon is not None:
            note("machine cordoned", agent=agent, reason=drained.cordon)
        for name, agents in drained.moved.items():
            note("partition moved by a drain", partition=name, agent=agent, to=" ".join(agents))
        for name in drained.ended:
            note("partition ended by a drain", is_bad=True, partition=name, agent=agent)
        return drained

    def fail_ipu(self, agent: str, index: int, what: str) -> None:
        """Take a fault, in a sentence that names the IPU: its partition is in ERROR, or moves.

        Raises NotFound.
        """
        create = self._latencies.create
        became = self._hit(
            lambda draft: outages.fail_ipu(draft, agent, index, what, self.clock(), create)
        )
        self.events.note("IPU has a fault", is_bad=True, agent=agent, ipu=index, fault=what)
        self._tell(became)

    def fail_part(self, seen: PartitionRecord, problem: str) -> None:
        """Set a partition to ERROR or reset it, as machines cannot serve it as it was `seen`."""
        became = self._hit(lambda draft: outages.fail_part(draft, seen, problem, self.clock()))
        facts = {"partition": seen.id, "problem": problem}
        self.events.note("partition failed on its machines", is_bad=True, **facts)
        self._tell(became)

    def heal_ipu(self, agent: str, index: int) -> None:
        """End the fault of an IPU; raises NotFound."""
        reset, before = self._latencies.reset, self.machines.get(agent)
        became = self._hit(lambda draft: outages.heal_ipu(draft, agent, index, self.clock(), reset))
        if self.machines.get(agent) != before:
            self.events.note("IPU is well again", agent=agent, ipu=index)
        self._tell(became)

    def lose_agent(self, agent: str, sentence: str) -> None:
        """Take that an agent does not answer, in a sentence: its partitions are in ERROR, or move.

        Raises NotFound.
        """
        create = self._latencies.create
        became = self._hit(
            lambda draft: outages.lose_agent(draft, agent, sentence, self.clock(), create)
        )
        self.events.note("agent lost", is_bad=True, agent=agent, problem=sentence)
        self._tell(became)

    def note_rival(self, agent: str, rival: Rival) -> None:
        """Take that another controller has asked for an agent of ours, and was refused."""
        facts = {"agent": agent, "controller": rival.controller, "host": rival.host}
        self.events.note("another vipu-server asks for an agent", is_bad=True, **facts)

    def note_lost_part(self, agent: str, partition: str) -> None:
        """Take that a machine had forgotten a partition: its programs have lost their IPUs."""
        what = "machine had lost a partition, which is set up again"
        self.events.note(what, is_bad=True, agent=agent, partition=partition)

    def agent_back(self, agent: str) -> None:
        """Take that an agent answers again; raises NotFound."""
        reset, before = self._latencies.reset, self.machines.get(agent)
        became = self._hit(lambda draft: outages.agent_back(draft, agent, self.clock(), reset))
        if self.machines.get(agent) != before:
            self.events.note("agent is back", agent=agent)
        self._tell(became)

    def _hit(self, change: Change) -> Sequence[outages.PartitionChange]:
        """Change what machines can do, and return what it did to partitions."""
        found = list[outages.PartitionChange]()

        def hit(draft: Draft) -> None:
            before = dict(draft.partitions)
            change(draft)
            found.extend(outages.partition_changes(before, draft))

        self.writes.write(hit)
        return found

    def _move_stranded(self, draft: Draft) -> Callable[[], None]:
        """Move what waits for room, in the write that makes it."""
        moved = list(outages.move_stranded(draft, self.clock(), self._latencies.create))
        return lambda: self._tell(moved)

    def _tell(self, became: Sequence[outages.PartitionChange]) -> None:
        for each in became:
            self.events.note(each.what, is_bad=each.is_bad, **each.facts)

    def get(self, partition_id: str, caller: Caller = EVERYTHING) -> PartitionRecord:
        """The partition of that id; raises NotFound."""
        return visible(self.state.partitions, partition_id, caller)

    def list(self, allocation: str = "", caller: Caller = EVERYTHING) -> list[PartitionRecord]:
        """All partitions of an allocation, or of all, in the order of their creation.

        Raises InvalidRequest for an allocation that does not exist.
        """
        if allocation and allocation not in caller.topology(self.topology).allocations:
            raise InvalidRequest(
                f"allocation_id: allocation {quoted(allocation)} does not exist; "
                "see vipu list allocations"
            )
        return [
            record
            for record in self.state.partitions.values()
            if allocation in ("", record.allocation) and caller.sees(record)
        ]

    def attributes(
        self, agents: Collection[str], *, published_only: bool, caller: Caller = EVERYTHING
    ) -> dict[str, dict[int, dict[str, str]]]:
        """The attributes of each IPU, by agent and device number; raises InvalidRequest."""
        caller.require_user()
        fleet = caller.topology(self.topology)
        found = ipu_attributes(fleet, agents, published_only=published_only, hardware=self.hardware)
        if not published_only:
            for agent in found.keys() & self.machines.keys():
                machine = self.machines[agent]
                for index, attributes in found[agent].items():
                    texts = {
                        CORDON_ATTRIBUTE: machine.cordon_sentence,
                        FAULT_ATTRIBUTE: machine.fault_of(index),
                        LOST_ATTRIBUTE: machine.lost,
                    }
                    attributes.update({name: text for name, text in texts.items() if text})
        return found

    def ipuof_config(
        self, partition_id: str, gcd: int | None, caller: Caller = EVERYTHING
    ) -> IpuofConfig:
        """Return how to reach the devices of an ACTIVE partition; NotFound, NotReady,
        InvalidRequest."""
        record = self.get(partition_id, caller)
        state = record.ready_state(self.clock())
        if state is not ReadyState.ACTIVE:
            raise NotReady(
                f"partition {partition_id} is {state}; its devices open once it is ACTIVE"
            )
        return ipuof_config(record, self.topology, gcd, self.hardware)
