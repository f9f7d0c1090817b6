"""domain: users of a controller, their access keys, and what each caller may see.

A key is 32 random bytes and cannot be guessed, so a plain SHA-256 protects it as well as a slow
password hash would, and each check costs only microseconds.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from partitions.vipu.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    Refused,
    Unauthenticated,
    missing,
    quoted,
)
from partitions.vipu.server.requirements import NAME
from partitions.vipu.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from partitions.vipu.server.occupancy import Occupancy
    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.server.state import Draft, State
    from partitions.vipu.server.userrecords import UserRecord

POD_PREFIX = "partition/"  # no user id has a slash
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Caller:
    """The user behind a call: with `allocations` None everybody's partitions are the caller's;
    `partition` is the only partition that a pod may read."""

    name: str = ""
    allocations: frozenset[str] | None = None
    partition: str = ""

    def sees(self, record: PartitionRecord) -> bool:
        """Return whether the partition exists for the caller."""
        if self.partition and record.id != self.partition:
            return False
        return self.allocations is None or record.allocation in self.allocations

    def require_user(self) -> None:
        """Raise Refused for a pod, which reads and resets its partition and does nothing else."""
        if self.partition:
            raise Refused(
                f"this key reads and resets the partition {self.partition} and nothing else; use "
                "the key of a user"
            )

    def require_allocations(self) -> None:
        """Raise Refused for a caller that no allocation was granted to."""
        self.require_user()
        if self.allocations is not None and not self.allocations:
            raise Refused(
                f"user {self.name} may use no allocation; ask an administrator for vipu-admin "
                f"grant user {self.name} --allocations ID"
            )

    def topology(self, topology: Topology) -> Topology:
        """The part of a fleet that the caller sees."""
        if self.allocations is None:
            return topology
        ours = (ipu for ipu in topology.ipus if ipu.allocation in self.allocations)
        return Topology(tuple(ours), topology.is_guess)

    def occupancy(self, occupancy: Occupancy) -> Occupancy:
        """The same, with who holds what in it."""
        return occupancy if self.allocations is None else occupancy.within(self.allocations)


EVERYTHING = Caller()  # of the insecure mode, and of administrators


def visible(
    partitions: Mapping[str, PartitionRecord], partition_id: str, caller: Caller
) -> PartitionRecord:
    """The partition with that id; raises NotFound, with the same message for other users'
    partitions."""
    record = partitions.get(partition_id)
    if record is None or not caller.sees(record):
        raise NotFound(missing("partition", partition_id, "vipu list partitions"))
    return record


def new_key() -> str:
    """A new random key of digits and letters, because a key that begins with a dash would be an
    option on a command line."""
    return secrets.token_hex(_KEY_BYTES)


def hash_key(key: str) -> str:
    """Return the digest of a key, which is stored in its place."""
    return hashlib.sha256(key.encode()).hexdigest()


def identify(state: State, user_id: str, key: str) -> Caller:
    """The caller of that name and key; raises Unauthenticated, with one sentence for all."""
    found, wanted = hash_key(key), ""
    caller: Caller | None = None
    if user_id.startswith(POD_PREFIX):
        record = state.partitions.get(user_id.removeprefix(POD_PREFIX))
        if record is not None and record.reader_hash:
            wanted = record.reader_hash
            caller = Caller(user_id, frozenset({record.allocation}), record.id)
    elif user := state.users.get(user_id):
        wanted, caller = user.key_hash, Caller(user_id, frozenset(user.allocations))
    if caller is None or not hmac.compare_digest(found, wanted):
        raise Unauthenticated("user id or access key is wrong; an administrator can make a new key")
    return caller


def check_user_id(user_id: str) -> None:
    """Raise InvalidRequest for what is no id of a user."""
    if not NAME.fullmatch(user_id):
        raise InvalidRequest(
            f"user_id {quoted(user_id)}: write 1 to 63 letters, digits, '.', '_' and '-', "
            "with a letter or digit first and last"
        )


def create_user(draft: Draft, record: UserRecord) -> None:
    """Add a user; raises InvalidRequest, AlreadyExists, NotFound."""
    check_user_id(record.id)
    if record.id in draft.users:
        raise AlreadyExists(f"user {record.id} exists already; vipu-admin rotate-key makes a key")
    _check_allocations(draft, record.allocations)
    draft.put_user(record)


def remove_user(draft: Draft, user_id: str) -> None:
    """Remove a user; raises NotFound."""
    draft.remove_user(_existing(draft, user_id).id)


def put_key(draft: Draft, user_id: str, key: str, now: datetime) -> None:
    """Put a new key in place of the old key; raises NotFound."""
    user = _existing(draft, user_id)
    draft.put_user(replace(user, key_hash=hash_key(key), key_created_at=now))


def grant(draft: Draft, user_id: str, allocations: Collection[str]) -> None:
    """Let a user see and use allocations; raises NotFound or InvalidRequest."""
    user = _existing(draft, user_id)
    _check_some(allocations)
    _check_allocations(draft, allocations)
    draft.put_user(replace(user, allocations=_ordered({*user.allocations, *allocations})))


def revoke(draft: Draft, user_id: str, allocations: Collection[str]) -> None:
    """Take allocations from a user, who need not have them; raises NotFound or InvalidRequest."""
    user = _existing(draft, user_id)
    _check_some(allocations)
    draft.put_user(replace(user, allocations=_ordered({*user.allocations} - {*allocations})))


def _existing(draft: Draft, user_id: str) -> UserRecord:
    try:
        return draft.users[user_id]
    except KeyError:
        raise NotFound(missing("user", user_id, "vipu-admin list users")) from None


def _check_some(allocations: Collection[str]) -> None:
    if not allocations:
        raise InvalidRequest("allocation_ids: name at least one allocation")


def _check_allocations(draft: Draft, allocations: Iterable[str]) -> None:
    known = draft.occupancy.topology.allocations
    for each in allocations:
        if not each or each not in known:
            raise NotFound(
                f"allocation_ids: there is no allocation {quoted(each)}; "
                "see vipu-admin list allocations"
            )


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
