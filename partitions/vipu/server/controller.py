"""io: the one truth about which partitions exist; a change is stored before it counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
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
from partitions.vipu.server.fleet import ipu_attributes, ipuof_config
from partitions.vipu.server.records import PartitionRecord, fail_record, reset_record
from partitions.vipu.server.requirements import choose_ipus, settle
from partitions.vipu.server.statefile import StateFileError
from partitions.vipu.types import OperationState, ReadyState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from partitions.topology import IpuId, Topology
    from partitions.vipu.server.statefile import StateFile
    from partitions.vipu.types import CreateRequest, IpuofConfig

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long the simulated machines take to create and to reset a partition."""

    create: timedelta = timedelta(seconds=0.5)
    reset: timedelta = timedelta(seconds=0.2)


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
        # Held by writers. Readers need none: the mapping is replaced whole, never changed.
        self._lock = threading.Lock()
        self._records = {record.id: record for record in state.load()}
        self._check_fleet()

    def create(self, request: CreateRequest) -> PartitionRecord:
        """Reserve IPUs for a new partition, PENDING until the creation latency is over.

        Raises InvalidRequest, AlreadyExists, NoCapacity, or Unavailable when nothing is stored.
        """
        settled = settle(request)
        with self._lock:
            if request.id in self._records:
                raise AlreadyExists(f"partition {request.id} exists already")
            ipus = choose_ipus(request, self.topology, self._holders())
            first, now = self.topology.by_id[ipus[0]], self.clock()
            record = PartitionRecord(
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
            self._put(record)
        log.info("partition created", partition=record.id, ipus=len(ipus), first=tuple(ipus[0]))
        return record

    def reset(self, partition_id: str) -> None:
        """Bring a partition back to its first state on the same IPUs; raises NotFound."""
        with self._lock:
            record = self._get(partition_id)
            self._put(reset_record(record, self.clock(), self._latencies.reset))
        log.info("partition reset", partition=partition_id)

    def remove(self, partition_id: str) -> None:
        """Free the IPUs of a partition in whatever state it is; raises NotFound."""
        with self._lock:
            self._get(partition_id)
            self._store({key: one for key, one in self._records.items() if key != partition_id})
        log.info("partition removed", partition=partition_id)

    def report_fault(self, partition_id: str, message: str) -> None:
        """Take a fault of a partition's IPUs: it resets itself if it may, else it is in ERROR.

        Raises NotFound.
        """
        with self._lock:
            record = self._get(partition_id)
            self._put(fail_record(record, message, self.clock(), self._latencies.reset))
        log.warning("partition has a fault", partition=partition_id, fault=message)

    def get(self, partition_id: str) -> PartitionRecord:
        """The partition of that id; raises NotFound."""
        return self._get(partition_id)

    def list(self, allocation: str = "") -> list[PartitionRecord]:
        """All partitions of an allocation, or of all, in the order of their creation.

        Raises InvalidRequest for an allocation that does not exist.
        """
        if allocation and allocation not in self.topology.allocations:
            raise InvalidRequest(f"allocation {allocation!r} does not exist")
        return [one for one in self._records.values() if allocation in ("", one.allocation)]

    def attributes(self, agents: Collection[str]) -> dict[str, dict[int, dict[str, str]]]:
        """The attributes of each IPU, by agent and device number; raises InvalidRequest."""
        return ipu_attributes(self.topology, agents)

    def ipuof_config(self, partition_id: str, gcd: int | None) -> IpuofConfig:
        """How to reach the devices of an ACTIVE partition; NotFound, NotReady, InvalidRequest."""
        record = self.get(partition_id)
        state = record.ready_state(self.clock())
        if state is not ReadyState.ACTIVE:
            raise NotReady(
                f"partition {partition_id} is {state}; its devices open once it is ACTIVE"
            )
        return ipuof_config(record, self.topology, gcd)

    def _get(self, partition_id: str) -> PartitionRecord:
        try:
            return self._records[partition_id]
        except KeyError:
            raise NotFound(f"there is no partition {partition_id!r}") from None

    def _put(self, record: PartitionRecord) -> None:
        self._store({**self._records, record.id: record})

    def _store(self, records: dict[str, PartitionRecord]) -> None:
        """Make `records` the truth, on disk first: an answer must never outrun the file."""
        try:
            self._state.save(records.values())
        except OSError as error:
            log.warning("state file not written", path=str(self._state.path), error=str(error))
            raise Unavailable(f"the controller cannot write its state file: {error}") from error
        self._records = records

    def _holders(self) -> dict[IpuId, str]:
        return {ipu: record.id for record in self._records.values() for ipu in record.ipus}

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
