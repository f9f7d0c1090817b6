"""domain: the stored record of a user."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user: the hash of the key, and the allocations whose partitions the user sees and makes."""

    id: str
    key_hash: str
    allocations: tuple[str, ...]
    created_at: datetime
    key_created_at: datetime


@dataclass(frozen=True, slots=True)
class RemovedUser:
    """The stored removal of a user."""

    id: str


def user_to_json(user: UserRecord) -> dict[str, Any]:
    """The record as the state file holds it."""
    return {
        "id": user.id,
        "keySha256": user.key_hash,
        "allocations": list(user.allocations),
        "createdAt": user.created_at.isoformat(),
        "keyCreatedAt": user.key_created_at.isoformat(),
    }


def user_from_json(data: Mapping[str, Any]) -> UserRecord:
    """The inverse of `user_to_json`; KeyError, TypeError or ValueError on anything else."""
    return UserRecord(
        id=str(data["id"]),
        key_hash=str(data["keySha256"]),
        allocations=tuple(map(str, data["allocations"])),
        created_at=datetime.fromisoformat(data["createdAt"]),
        key_created_at=datetime.fromisoformat(data["keyCreatedAt"]),
    )
