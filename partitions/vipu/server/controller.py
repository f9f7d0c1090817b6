"""io: the partitions that exist on the simulated controller; a change counts once it is stored."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from partitions.vipu.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    NotReady,
    Unavailable,
)
from partitions.vipu.server.machines import ipu_attributes, ipuof_config
from partitions.vipu.server.records import PartitionRecord, fail_record, reset_record
from partitions.vipu.server.requirements import choose_ipus, settle
from partitions.vipu.server.statefile import StateFileError
from partitions.vipu.types import OperationState, ReadyState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from typing import TypeAlias

    from partitions.vipu.server.statefile import StateFile
    from partitions.vipu.topology import IpuId, Topology
    from partitions.vipu.types import CreateRequest, IpuofConfig

    # Puts a new record, or takes one away; raises VipuError before it does either.
    Change: TypeAlias = Callable[[dict[str, PartitionRecord]], None]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long the simulated machines take to create and to reset a partition."""

    create: timedelta = timedelta(seconds=0.5)
    reset: timedelta = timedelta(seconds=0.2)


@dataclass(eq=False, slots=True)
class _Waiting:
    """A change whose caller waits until it is on disk, or refused."""

    change: Change
    is_done: bool = False
    error: Exception | None = None


@dataclass(slots=True)
class _Queue:
    """The changes that wait for the next write of the state file."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[_Waiting] = field(default_factory=list)

    def add(self, waiting: _Waiting) -> None:
        with self.lock:
            self.waiting.append(waiting)

    def take(self) -> list[_Waiting]:
        with self.lock:
            taken, self.waiting = self.waiting, []
            return taken


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
        self.topology = topology
        self.clock = clock
        self._latencies = latencies
        self._state = state
        # Held by who writes. Readers need none: the mapping is replaced whole, never changed.
        self._writing = threading.Lock()
        self._queue = _Queue()
        self._records = {record.id: record for record in state.load()}
        self._check_fleet()

    def create(self, request: CreateRequest) -> PartitionRecord:
        """Reserve IPUs for a new partition, PENDING until the creation latency is over.

        Raises InvalidRequest, AlreadyExists, NoCapacity, or Unavailable when nothing is stored.
        """
        settled, made = settle(request), list[PartitionRecord]()

        def create(records: dict[str, PartitionRecord]) -> None:
            if request.id in records:
                raise AlreadyExists(f"partition {request.id} exists already")
            ipus = choose_ipus(request, self.topology, _holders(records))
            first, now = self.topology.by_id[ipus[0]], self.clock()
            records[request.id] = PartitionRecord(
                id=request.id,
                ipus=ipus,
                cluster=first.cluster,
                allocation=first.allocation,
                num_gcds=settled.num_gcds,
                num_replicas=settled.num_replicas,
                reconfigurable=request.reconfigurable,
                routing=settled.routing,
                sync_type=settled.sync_type,
                auto_reset=request.auto_reset,
                relocatable=request.relocatable,
                operation=OperationState.CREATING,
                started_at=now,
                ready_at=now + self._latencies.create,
            )
            made.append(records[request.id])

        self._write(create)
        record = made[-1]
        log.info(
            "partition created",
            partition=record.id,
            ipus=len(record.ipus),
            first=tuple(record.ipus[0]),
        )
        return record

    def reset(self, partition_id: str) -> None:
        """Bring a partition back to its first state on the same IPUs; raises NotFound."""

        def reset(records: dict[str, PartitionRecord]) -> None:
            record = _existing(records, partition_id)
            records[partition_id] = reset_record(record, self.clock(), self._latencies.reset)

        self._write(reset)
        log.info("partition reset", partition=partition_id)

    def remove(self, partition_id: str) -> None:
        """Free the IPUs of a partition in whatever state it is; raises NotFound."""

        def remove(records: dict[str, PartitionRecord]) -> None:
            del records[_existing(records, partition_id).id]

        self._write(remove)
        log.info("partition removed", partition=partition_id)

    def report_fault(self, partition_id: str, message: str) -> None:
        """Take a fault of a partition's IPUs: it resets itself if it may, else it is in ERROR.

        Raises NotFound.
        """

        def fail(records: dict[str, PartitionRecord]) -> None:
            record, now = _existing(records, partition_id), self.clock()
            records[partition_id] = fail_record(record, message, now, self._latencies.reset)

        self._write(fail)
        log.warning("partition has a fault", partition=partition_id, fault=message)

    def get(self, partition_id: str) -> PartitionRecord:
        """The partition of that id; raises NotFound."""
        return _existing(self._records, partition_id)

    def list(self, allocation: str = "") -> list[PartitionRecord]:
        """All partitions of an allocation, or of all, in the order of their creation.

        Raises InvalidRequest for an allocation that does not exist.
        """
        if allocation and allocation not in self.topology.allocations:
            raise InvalidRequest(f"allocation {allocation!r} does not exist")
        return [
            record for record in self._records.values() if allocation in ("", record.allocation)
        ]

    def attributes(
        self, agents: Collection[str], *, published_only: bool
    ) -> dict[str, dict[int, dict[str, str]]]:
        """The attributes of each IPU, by agent and device number; raises InvalidRequest."""
        return ipu_attributes(self.topology, agents, published_only=published_only)

    def ipuof_config(self, partition_id: str, gcd: int | None) -> IpuofConfig:
        """How to reach the devices of an ACTIVE partition; NotFound, NotReady, InvalidRequest."""
        record = self.get(partition_id)
        state = record.ready_state(self.clock())
        if state is not ReadyState.ACTIVE:
            raise NotReady(
                f"partition {partition_id} is {state}; its devices open once it is ACTIVE"
            )
        return ipuof_config(record, self.topology, gcd)

    def _write(self, change: Change) -> None:
        """Have a change stored, with all others that wait by then; raises what it raises.

        Who comes while the file is being written shares the next write: a sync of the disk takes
        as long for one change as for many.
        """
        mine = _Waiting(change)
        self._queue.add(mine)
        with self._writing:
            if not mine.is_done:
                self._write_all(self._queue.take())
        if mine.error is not None:
            raise mine.error

    def _write_all(self, batch: Sequence[_Waiting]) -> None:
        """Make the changes the truth, on disk first: an answer must never outrun the file."""
        records = dict(self._records)
        for waiting in batch:
            try:
                waiting.change(records)
            except Exception as error:  # noqa: BLE001  # it goes to its caller
                waiting.error = error
        failure = self._saved(records)
        for waiting in batch:
            waiting.error = waiting.error or failure
            waiting.is_done = True

    def _saved(self, records: dict[str, PartitionRecord]) -> Exception | None:
        """Store these from now on; what keeps the controller from it."""
        try:
            if records != self._records:
                self._state.save(records.values())
        except OSError as error:
            log.warning("state file not written", path=str(self._state.path), error=str(error))
            return Unavailable(f"the controller cannot write its state file: {error}")
        except Exception as error:  # noqa: BLE001  # it goes to all who wait
            return error
        self._records = records
        return None

    def _check_fleet(self) -> None:
        held: dict[IpuId, str] = {}
        for record in self._records.values():
            for ipu in record.ipus:
                if ipu not in self.topology.by_id:
                    raise StateFileError(
                        f"partition {record.id} in {self._state.path} holds IPU {ipu.position} of "
                        f"IPU-Link domain {ipu.domain}, which this fleet of {len(self.topology)} "
                        "IPUs does not have: start with the --machines it was made with"
                    )
                if ipu in held:
                    raise StateFileError(
                        f"the state file {self._state.path} is damaged: {held[ipu]} and "
                        f"{record.id} hold the same IPU. It was left as it is"
                    )
                held[ipu] = record.id


def _existing(records: Mapping[str, PartitionRecord], partition_id: str) -> PartitionRecord:
    try:
        return records[partition_id]
    except KeyError:
        raise NotFound(f"there is no partition {partition_id!r}") from None


def _holders(records: Mapping[str, PartitionRecord]) -> dict[IpuId, str]:
    return {ipu: record.id for record in records.values() for ipu in record.ipus}
