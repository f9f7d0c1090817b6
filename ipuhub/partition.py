"""domain: a partition of a job as exchanged between V-IPU Proxy and operator, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

ASK_AGAIN: Final = timedelta(seconds=5)  # between two calls for a partition that is not there yet
KEY_WANTED: Final = "wanted"


class Phase(StrEnum):
    """The phase of a partition; `waiting` is only an answer and is never stored."""

    WAITING = "waiting"
    RESERVING = "reserving"
    CREATING = "creating"
    ACTIVE = "active"
    ERROR = "error"
    RELEASING = "releasing"
    RELEASED = "released"

    @property
    def is_settled(self) -> bool:
        """Return whether nothing is left to do until the next request."""
        return self in _SETTLED


class Reason(StrEnum):
    """The reason that a partition waits, hangs or is in error, in one word."""

    NO_CAPACITY = "NoCapacity"
    NO_CONTROLLERS = "NoControllers"
    NO_LABELLED_NODE = "NoLabelledNode"
    CONTROLLER_UNAVAILABLE = "ControllerUnavailable"
    CREATE_REFUSED = "CreateRefused"
    RELEASE_REFUSED = "ReleaseRefused"
    REMOVING = "PartitionRemoving"
    PARTITION_ERROR = "PartitionError"
    PARTITION_LOST = "PartitionLost"


_SETTLED = frozenset({Phase.ACTIVE, Phase.ERROR, Phase.RELEASED})


@dataclass(frozen=True, slots=True)
class TrackerPlace:
    """The tracker's first ConfigMap, and how often to poll the proxy for
    capacity."""

    namespace: str
    name: str
    capacity_seconds: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The partition of one instance of a job.

    `node_selector` is required in pods to reach it. `needed` and `free` count IPUs, in phase
    `waiting` only. `key` names this holding of it; recorders acknowledge it; times are aware UTC.
    `lost_at`: when its loss was noticed, with the reason in `message`; `release_error`: why the
    controller does not remove it, in its words. `pod_key`: the id of the key with which pods reach
    it, KEY_WANTED before they have a key; empty: they need none.

    `asked_at` is internal to the operator and never sent: when it last requested the partition
    (None: not since it started, or not since a change that may free IPUs).
    """

    uid: str = ""
    namespace: str = ""
    name: str = ""
    instance: int
    attempt: int = 0
    id: str = ""
    size: int = 0
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
    pod_key: str = ""
    asked_at: datetime | None = None

    @property
    def is_removal_refused(self) -> bool:
        """Return whether the V-IPU controller does not remove it, by `message`."""
        return self.phase == Phase.RELEASING and self.reason == Reason.RELEASE_REFUSED

    @property
    def is_lost(self) -> bool:
        """Return whether it is gone, or a stranger's has its id: nothing of it is left to keep."""
        return self.phase == Phase.ERROR and self.reason == Reason.PARTITION_LOST

    @property
    def lacks_key(self) -> bool:
        """Return whether its pods need a key and none is stored for them yet."""
        return self.pod_key == KEY_WANTED

    def was_asked(self, now: datetime) -> bool:
        """Return whether the operator has just requested it."""
        return self.asked_at is not None and now - self.asked_at < ASK_AGAIN


def format_time(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str | None) -> datetime | None:
    """Read an RFC 3339 time; raises ValueError for anything else."""
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time {text!r} has no offset")
    return moment.astimezone(UTC)


def partition_to_json(partition: Partition) -> dict[str, Any]:
    """Return the partition in camelCase, times as RFC 3339 in UTC or null."""
    return {
        "uid": partition.uid,
        "namespace": partition.namespace,
        "name": partition.name,
        "instance": partition.instance,
        "attempt": partition.attempt,
        "id": partition.id,
        "size": partition.size,
        "phase": partition.phase,
        "controller": partition.controller,
        "nodeSelector": dict(partition.node_selector),
        "reason": partition.reason,
        "message": partition.message,
        "needed": partition.needed,
        "free": partition.free,
        "reservedAt": format_time(partition.reserved_at),
        "activeAt": format_time(partition.active_at),
        "releasedAt": format_time(partition.released_at),
        "key": partition.key,
        "lostAt": format_time(partition.lost_at),
        "releaseError": partition.release_error,
        "podKey": partition.pod_key,
    }


def partition_from_json(found: Mapping[str, Any]) -> Partition:
    """Read what `partition_to_json` wrote; raises ValueError, KeyError or TypeError."""
    return Partition(
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
        pod_key=found.get("podKey", ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodKey:
    """The credentials of a job's pods for a V-IPU controller, and the CAs they trust; they are
    never logged.

    `id` names the key and reveals nothing of it. `ca`, `certificate` and `private_key` are PEM
    texts.
    """

    id: str
    user_id: str
    access_key: str = field(repr=False)
    ca: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)


def pod_key_to_json(key: PodKey) -> dict[str, str]:
    """Return the key in camelCase."""
    return {
        "id": key.id,
        "userId": key.user_id,
        "accessKey": key.access_key,
        "ca": key.ca,
        "certificate": key.certificate,
        "privateKey": key.private_key,
    }


def pod_key_from_json(found: Mapping[str, str]) -> PodKey:
    """Read what `pod_key_to_json` wrote; raises KeyError or TypeError."""
    return PodKey(
        id=found["id"],
        user_id=found["userId"],
        access_key=found["accessKey"],
        ca=found["ca"],
        certificate=found["certificate"],
        private_key=found["privateKey"],
    )
