"""domain: a partition as the V-IPU Proxy's answers describe it, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from partitions.proxy.lifecycle import Phase, Reason
from partitions.proxy.tracker import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from partitions.proxy.controllers import Shortage
    from partitions.proxy.lifecycle import Request
    from partitions.proxy.tracker import TrackerEntry


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """One partition of a job. `needed` and `free` count IPUs, for phase `waiting` only.

    `node_selector` is what pods must carry to reach the partition; `key` names this holding of it
    and is what a recorder acknowledges; times are aware UTC. `lost_at`: since when the partition
    is known to be gone, with the reason in `message`; `release_error`: why the controller does not
    remove it, in its words.
    """

    uid: str
    namespace: str
    name: str
    instance: int
    attempt: int
    id: str
    size: int
    phase: str
    controller: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    needed: int | None = None
    free: int | None = None
    reserved_at: datetime | None = None
    active_at: datetime | None = None
    released_at: datetime | None = None
    key: str = ""
    lost_at: datetime | None = None
    release_error: str = ""


def record_of(entry: TrackerEntry) -> PartitionRecord:
    """The record of a tracked partition."""
    label, _, value = entry.label.partition("=")
    return PartitionRecord(
        uid=entry.uid,
        namespace=entry.namespace,
        name=entry.name,
        instance=entry.instance,
        attempt=entry.attempt,
        id=entry.id,
        size=entry.size,
        phase=entry.phase.value,
        controller=entry.controller,
        node_selector={label: value} if label else {},
        reason=entry.reason,
        message=entry.message,
        reserved_at=entry.reserved_at,
        active_at=entry.active_at,
        released_at=entry.released_at,
        key=entry.key,
        lost_at=entry.lost_at,
        release_error=release_error(entry),
    )


def release_error(entry: TrackerEntry) -> str:
    """Why the controller does not remove the partition, in its words; "" where it does."""
    is_refused = entry.phase is Phase.RELEASING and entry.reason == Reason.RELEASE_REFUSED
    return entry.message if is_refused else ""


def waiting_record(asked: Request | TrackerEntry, shortage: Shortage) -> PartitionRecord:
    """The answer to a request that finds no room now; nothing of it is stored."""
    return PartitionRecord(
        uid=asked.uid,
        namespace=asked.namespace,
        name=asked.name,
        instance=asked.instance,
        attempt=asked.attempt,
        id="",
        size=asked.size,
        phase=Phase.WAITING.value,
        reason=shortage.reason.value,
        message=shortage.message,
        needed=asked.size,
        free=shortage.free,
    )


def record_to_json(record: PartitionRecord) -> dict[str, Any]:
    """The record in camelCase, times as RFC 3339 in UTC or null."""
    return {
        "uid": record.uid,
        "namespace": record.namespace,
        "name": record.name,
        "instance": record.instance,
        "attempt": record.attempt,
        "id": record.id,
        "size": record.size,
        "phase": record.phase,
        "controller": record.controller,
        "nodeSelector": dict(record.node_selector),
        "reason": record.reason,
        "message": record.message,
        "needed": record.needed,
        "free": record.free,
        "reservedAt": format_time(record.reserved_at),
        "activeAt": format_time(record.active_at),
        "releasedAt": format_time(record.released_at),
        "key": record.key,
        "lostAt": format_time(record.lost_at),
        "releaseError": record.release_error,
    }


def record_from_json(found: Mapping[str, Any]) -> PartitionRecord:
    """Read what `record_to_json` wrote; raises ValueError, KeyError or TypeError."""
    return PartitionRecord(
        uid=found["uid"],
        namespace=found["namespace"],
        name=found["name"],
        instance=found["instance"],
        attempt=found["attempt"],
        id=found["id"],
        size=found["size"],
        phase=found["phase"],
        controller=found["controller"],
        node_selector=dict(found["nodeSelector"]),
        reason=found["reason"],
        message=found["message"],
        needed=found["needed"],
        free=found["free"],
        reserved_at=parse_time(found["reservedAt"]),
        active_at=parse_time(found["activeAt"]),
        released_at=parse_time(found["releasedAt"]),
        key=found.get("key", ""),
        lost_at=parse_time(found.get("lostAt")),
        release_error=found.get("releaseError", ""),
    )
