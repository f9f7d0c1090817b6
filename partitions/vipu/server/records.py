"""domain: the stored record of a partition, and its state at any time.

No timer drives a partition: an operation ends at a stored instant. So a controller reports the same
state after a kill and restart as without.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ipuhub.times import format_time
from partitions.vipu.topology import IpuId
from partitions.vipu.types import (
    GatewayRouting,
    IpuLinkRouting,
    OperationState,
    ReadyState,
    SyncType,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_AUTO_RESETS = 3
# The latency of an operation whose end the agents of the machines have to confirm.
UNCONFIRMED = timedelta(days=36_525)


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """One partition: the request, the IPUs it got, and its latest operation.

    `ipus` stand in the order of their routing ids. `operation` is CREATING, RESETTING or REMOVING,
    running from `started_at` to `ready_at`; `errors`, once there are any, outlive it until a reset.
    """

    id: str
    ipus: tuple[IpuId, ...]
    cluster: str
    allocation: str
    num_gcds: int
    num_replicas: int
    reconfigurable: bool
    routing: IpuLinkRouting
    sync_type: SyncType
    auto_reset: bool
    relocatable: bool
    operation: OperationState
    started_at: datetime
    ready_at: datetime
    errors: tuple[str, ...] = ()
    auto_resets: int = 0
    auto_reset_at: datetime | None = None
    gateway_routing: GatewayRouting = GatewayRouting.UNDEFINED
    reader_hash: str = ""  # of the key by which pods read this partition; it ends with it

    def is_busy(self, now: datetime) -> bool:
        """Return whether the operation still runs; a clock that was set back does not prolong
        it."""
        return now < self.ready_at and (self.started_at <= now or self.is_unconfirmed)

    @property
    def is_unconfirmed(self) -> bool:
        """Return whether the operation runs until the agents confirm its end."""
        return self.ready_at - self.started_at >= UNCONFIRMED

    @property
    def generation(self) -> str:
        """Return the token that identifies its latest operation among all with a partition of this
        id."""
        return self.started_at.isoformat()

    @property
    def is_removing(self) -> bool:
        """Return whether its removal has begun; it holds its IPUs until its machines have freed
        them."""
        return self.operation is OperationState.REMOVING

    def ready_state(self, now: datetime) -> ReadyState:
        """Return whether programs may use the partition at `now`."""
        if self.is_removing:
            return ReadyState.PENDING
        if self.errors:
            return ReadyState.ERROR
        return ReadyState.PENDING if self.is_busy(now) else ReadyState.ACTIVE

    def operation_state(self, now: datetime) -> OperationState:
        """Return the controller's operation with the partition at `now`."""
        if self.is_removing:
            return OperationState.REMOVING
        if self.errors:
            return OperationState.FAILED
        return self.operation if self.is_busy(now) else OperationState.IDLE


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """The record of an IPU-Machine: a cordon, faults of its IPUs, that its agent is lost.

    `cordon` is the reason given, None without a cordon; `faults` has a sentence for each IPU with
    a fault, by device number; `lost` is a sentence, empty while the agent answers.
    """

    agent: str
    cordon: str | None = None
    cordoned_at: datetime | None = None
    faults: Mapping[int, str] = field(default_factory=dict)
    lost: str = ""

    @property
    def is_in_service(self) -> bool:
        """Return whether nothing keeps new partitions from any of its IPUs."""
        return self.cordon is None and not self.faults and not self.lost

    def fault_of(self, index: int) -> str:
        """Return why the IPU of that device number cannot be used; empty when it can."""
        return self.lost or self.faults.get(index, "")

    @property
    def cordon_sentence(self) -> str:
        """That the machine is cordoned, and why; empty when it is not."""
        if self.cordon is None:
            return ""
        return f"{self.agent} is cordoned" + (f": {self.cordon}" if self.cordon else "")

    def why_closed(self, index: int) -> str:
        """Return why the IPU of that device number gets no new partition; empty when it may."""
        return self.fault_of(index) or self.cordon_sentence


def silence(agent: str, since: datetime) -> str:
    """Return the sentence of an agent that is lost because it does not answer."""
    return f"{_silent(agent)} {format_time(since)}"


def is_silence(agent: str, sentence: str) -> bool:
    """Return whether this sentence says that the agent does not answer."""
    return sentence.startswith(_silent(agent))


def is_loss(agent: str, sentence: str) -> bool:
    """Return whether this sentence says that the agent is lost; "ag1: ..." is about an IPU or a
    partition of it."""
    return sentence.startswith(f"{agent} ")


def _silent(agent: str) -> str:
    return f"{agent} has not answered since"


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent that an administrator has created, and how many IPUs its machine has."""

    id: str
    address: str
    ipus: int


def reset_record(record: PartitionRecord, now: datetime, latency: timedelta) -> PartitionRecord:
    """The record after a reset began at `now`: same IPUs, no errors, a fresh retry count."""
    if record.operation is OperationState.CREATING and record.is_busy(now) and not record.errors:
        return record  # a partition that is being created is in the state that a reset leads to
    return replace(
        record,
        operation=OperationState.RESETTING,
        started_at=now,
        ready_at=now + latency,
        errors=(),
        auto_resets=0,
        auto_reset_at=None,
    )


def removing_record(record: PartitionRecord, now: datetime) -> PartitionRecord:
    """The record after its removal began at `now`, which the agents of its machines confirm.

    Its earlier problems no longer matter, because it cannot be used any more.
    """
    return replace(
        record,
        operation=OperationState.REMOVING,
        started_at=now,
        ready_at=now + UNCONFIRMED,
        errors=(),
    )


def record_to_json(record: PartitionRecord) -> dict[str, Any]:
    """The record as the state file holds it; times in RFC 3339."""
    return {
        "id": record.id,
        "ipus": [[ipu.domain, ipu.position] for ipu in record.ipus],
        "cluster": record.cluster,
        "allocation": record.allocation,
        "numGcds": record.num_gcds,
        "numReplicas": record.num_replicas,
        "reconfigurable": record.reconfigurable,
        "routing": record.routing,
        "syncType": record.sync_type,
        "gatewayRouting": record.gateway_routing,
        "autoReset": record.auto_reset,
        "relocatable": record.relocatable,
        "operation": record.operation,
        "startedAt": record.started_at.isoformat(),
        "readyAt": record.ready_at.isoformat(),
        "errors": list(record.errors),
        "autoResets": record.auto_resets,
        "autoResetAt": record.auto_reset_at.isoformat() if record.auto_reset_at else None,
        **({"readerSha256": record.reader_hash} if record.reader_hash else {}),
    }


def record_from_json(data: Mapping[str, Any]) -> PartitionRecord:
    """The inverse of `record_to_json`; KeyError, TypeError or ValueError on anything else."""
    auto_reset_at, cluster = data["autoResetAt"], str(data["cluster"])
    return PartitionRecord(
        id=str(data["id"]),
        ipus=tuple(IpuId(int(domain), int(place), cluster) for domain, place in data["ipus"]),
        cluster=cluster,
        allocation=str(data["allocation"]),
        num_gcds=int(data["numGcds"]),
        num_replicas=int(data["numReplicas"]),
        reconfigurable=bool(data["reconfigurable"]),
        routing=IpuLinkRouting(data["routing"]),
        sync_type=SyncType(data["syncType"]),
        auto_reset=bool(data["autoReset"]),
        relocatable=bool(data["relocatable"]),
        operation=OperationState(data["operation"]),
        started_at=_instant(data["startedAt"]),
        ready_at=_instant(data["readyAt"]),
        errors=tuple(map(str, data["errors"])),
        auto_resets=int(data["autoResets"]),
        auto_reset_at=None if auto_reset_at is None else _instant(auto_reset_at),
        # Files of version 1 do not have it.
        gateway_routing=GatewayRouting(data.get("gatewayRouting", "UNDEFINED")),
        reader_hash=str(data.get("readerSha256", "")),
    )


def machine_to_json(record: MachineRecord) -> dict[str, Any]:
    """The record as the state file holds it."""
    return {
        "agent": record.agent,
        "cordon": record.cordon,
        "cordonedAt": record.cordoned_at.isoformat() if record.cordoned_at else None,
        "faults": {str(index): text for index, text in record.faults.items()},
        "lost": record.lost,
    }


def machine_from_json(data: Mapping[str, Any]) -> MachineRecord:
    """The inverse of `machine_to_json`; KeyError, TypeError or ValueError on anything else."""
    cordon, cordoned_at = data["cordon"], data["cordonedAt"]
    return MachineRecord(
        agent=str(data["agent"]),
        cordon=None if cordon is None else str(cordon),
        cordoned_at=None if cordoned_at is None else _instant(cordoned_at),
        faults={int(index): str(text) for index, text in dict(data["faults"]).items()},
        lost=str(data["lost"]),
    )


def agent_to_json(record: AgentRecord) -> dict[str, Any]:
    """The record as the state file holds it."""
    return {"id": record.id, "address": record.address, "ipus": record.ipus}


def agent_from_json(data: Mapping[str, Any]) -> AgentRecord:
    """The inverse of `agent_to_json`; KeyError, TypeError or ValueError on anything else."""
    return AgentRecord(str(data["id"]), str(data["address"]), int(data["ipus"]))


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return instant
