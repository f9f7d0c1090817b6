"""A V-IPU controller in memory: buddy placement, polls until ACTIVE, faults."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipuhub.times import utc_now
from partitions.proxy.breaker import CircuitBreaker, Connection
from partitions.vipu.client import Credentials
from partitions.vipu.errors import AlreadyExists, NoCapacity, NotFound, NotReady
from partitions.vipu.server.machines import ipu_attributes
from partitions.vipu.telemetry import Heartbeat
from partitions.vipu.topology import (
    CORDON_ATTRIBUTE,
    LOST_ATTRIBUTE,
    fleet_of_parts,
    place,
    topology_from_attributes,
)
from partitions.vipu.types import (
    CreateRequest,
    OperationState,
    ReadyState,
    VipuPartition,
    VipuStatus,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from partitions.vipu.client import TlsFiles, VipuClient
    from partitions.vipu.errors import VipuError
    from partitions.vipu.server.controller import Controller
    from partitions.vipu.topology import Ipu, IpuId, Topology


@dataclass
class FakePartition:
    request: CreateRequest
    ipus: tuple[IpuId, ...]
    polls_left: int = 0
    polls: int = 0
    resets: int = 0
    ready: ReadyState = ReadyState.ACTIVE
    operation: OperationState = OperationState.IDLE
    errors: tuple[str, ...] = ()
    key: str = ""


@dataclass
class FakeVipu:
    """`polls` statuses are PENDING after each create and reset; `on_write` as in FakeConfigMaps.

    `broken` partitions have an IPU with a fault, told in a sentence.
    `create_lost` errors are raised after a create took effect, `create_refused` before. Accepted
    removals leave partitions in the states of `removals_end`, one each, and then nothing.
    `published_only`: IPUs say of themselves what the published interface knows. Each of `clusters`
    has `machines`, and an allocation. With `pod_files` pods need keys, of which it has made `keys`.
    """

    machines: int = 8
    published_only: bool = False
    clusters: dict[str, str] = field(default_factory=lambda: {"c": "a"})
    polls: int = 0
    partitions: dict[str, FakePartition] = field(default_factory=dict)
    down: VipuError | None = None
    down_once: list[VipuError] = field(default_factory=list)
    create_lost: list[VipuError] = field(default_factory=list)
    create_refused: list[VipuError] = field(default_factory=list)
    remove_refused: list[VipuError] = field(default_factory=list)
    reset_refused: list[VipuError] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)  # agents that do not answer it
    cordons: dict[str, str] = field(default_factory=dict)  # reasons by agent
    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    release: str = "1.18.0"
    version_error: VipuError | None = None
    needs_force: bool = False
    removes_slowly: bool = False
    removals_end: list[tuple[ReadyState, OperationState]] = field(default_factory=list)
    fleet_error: Exception | None = None
    created: list[str] = field(default_factory=list)
    on_write: Callable[[], Awaitable[None]] | None = None
    before_create: Callable[[CreateRequest], None] | None = None
    lists: int = 0
    removes: int = 0
    closed: bool = False
    pod_files: TlsFiles | None = None
    makes_keys: bool = True
    keys: int = 0

    def by_hand(self, partition_id: str, size: int, allocation: str = "") -> None:
        """A person makes a partition."""
        request = CreateRequest(partition_id, size, allocation_id=allocation)
        self.partitions[partition_id] = FakePartition(request, self._place(request))

    async def list_partitions(self) -> list[VipuPartition]:
        self.lists += 1
        await self._arrive()
        return [
            VipuPartition(
                one.request.id,
                one.request.size,
                one.ipus,
                one.ready,
                num_gcds=one.request.num_gcds or 1,
                reconfigurable=one.request.reconfigurable,
                cluster_id=one.ipus[0].cluster,
                allocation_id=one.request.allocation_id or self.clusters[one.ipus[0].cluster],
            )
            for one in self.partitions.values()
        ]

    async def list_ipu_attributes(self) -> Topology:
        await self._arrive()
        if self.fleet_error is not None:
            raise self.fleet_error
        by_agent = ipu_attributes(self._fleet, [], published_only=self.published_only)
        for agent in self.lost & by_agent.keys():
            for attributes in by_agent[agent].values():
                attributes[LOST_ATTRIBUTE] = f"{agent} has not answered"
        for agent in self.cordons.keys() & by_agent.keys():
            for attributes in by_agent[agent].values():
                attributes[CORDON_ATTRIBUTE] = f"{agent} is cordoned: {self.cordons[agent]}"
        return topology_from_attributes(by_agent)

    async def version(self) -> str:
        await asyncio.sleep(0)
        if error := self.version_error or self.down:
            raise error
        return self.release

    async def heartbeat(self, agent: str) -> Heartbeat:
        await self._arrive()
        return self.heartbeats.get(agent, Heartbeat())

    async def create_partition(self, request: CreateRequest) -> str:
        await self._arrive()
        if self.before_create:
            self.before_create(request)
        if self.create_refused:
            raise self.create_refused.pop(0)
        if request.id in self.partitions:
            raise AlreadyExists(f"{request.id} exists")
        self.partitions[request.id] = FakePartition(request, self._place(request), self.polls)
        self.created.append(request.id)
        if self.create_lost:
            raise self.create_lost.pop(0)
        await self._written()
        return request.id

    async def partition_status(self, partition_id: str) -> VipuStatus:
        await self._arrive()
        one = self._find(partition_id)
        one.polls += 1
        if one.polls_left > 0:
            one.polls_left -= 1
            return VipuStatus(partition_id, ReadyState.PENDING, OperationState.CREATING)
        return VipuStatus(partition_id, one.ready, one.operation, one.errors)

    async def reset_partition(self, partition_id: str) -> None:
        await self._arrive()
        one = self._find(partition_id)
        if partition_id in self.broken:
            raise NotReady(f"partition {partition_id} cannot be reset: {self.broken[partition_id]}")
        if self.reset_refused:
            raise self.reset_refused.pop(0)
        one.resets += 1
        one.polls_left, one.ready, one.errors = self.polls, ReadyState.ACTIVE, ()
        await self._written()

    async def remove_partition(self, partition_id: str, *, force: bool = False) -> None:
        await self._arrive()
        self.removes += 1
        one = self._find(partition_id)
        if self.needs_force and not force:
            raise NotReady(f"{partition_id}: a device is in use; use force")
        if self.remove_refused:
            raise self.remove_refused.pop(0)
        if self.removes_slowly:
            one.ready, one.operation = ReadyState.PENDING, OperationState.REMOVING
        elif self.removals_end:
            one.ready, one.operation = self.removals_end.pop(0)
        else:
            del self.partitions[partition_id]
        await self._written()

    def pod_tls(self) -> TlsFiles | None:
        return self.pod_files

    async def create_partition_key(self, partition_id: str) -> Credentials | None:
        await self._arrive()
        if not self.makes_keys:
            return None
        one = self._find(partition_id)
        self.keys += 1
        one.key = f"key-{self.keys}"
        await self._written()
        return Credentials(f"partition/{partition_id}", one.key)

    async def close(self) -> None:
        self.closed = True

    def _find(self, partition_id: str) -> FakePartition:
        if partition_id not in self.partitions:
            raise NotFound(f"no {partition_id}")
        return self.partitions[partition_id]

    def _place(self, request: CreateRequest) -> tuple[IpuId, ...]:
        used = {ipu for one in self.partitions.values() for ipu in one.ipus}
        ipus = place(self._fleet, used, request.size)
        if ipus is None:
            raise NoCapacity(f"{request.id}: no room")
        return ipus

    @property
    def _fleet(self) -> Topology:
        return fleet_of_parts(self.machines, 4, list(self.clusters.items()))

    async def _arrive(self) -> None:
        await asyncio.sleep(0)
        if self.down_once:
            raise self.down_once.pop(0)
        if self.down is not None:
            raise self.down

    async def _written(self) -> None:
        if self.on_write is not None:
            await self.on_write()


def let_ipu_fail(controller: Controller, partition: str, what: str) -> Ipu:
    """Let the first IPU of a partition fail on the simulated controller; return the IPU."""
    ipu = controller.topology.by_id[controller.get(partition).ipus[0]]
    controller.fail_ipu(ipu.agent, ipu.index, what)
    return ipu


def unfenced(client: VipuClient) -> Connection:
    """A controller for a fleet without a Lease."""
    breaker = CircuitBreaker(client.address, time.monotonic, utc_now)
    return Connection(breaker.guard(client), breaker)
