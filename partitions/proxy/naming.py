"""domain: the id of a new partition; chosen once, at reserve, and never computed again."""

from __future__ import annotations

import hashlib
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

# Longer ids made jobs of the first IPU Operator fail with "Failed to acquire IPU(s)".
MAX_ID_LENGTH = 42
_HASH_LENGTH = 8


def choose_partition_id(
    *, name: str, namespace: str, instance: int, uid: str, taken: Collection[str]
) -> str:
    """Return `p-<job>-<namespace>-<instance>` if it fits and is free, else a form with a hash.

    Jobs `a-b` in `c` and `a` in `b-c` have the same readable form; `taken` holds the ids in use.
    """
    readable = f"p-{name}-{namespace}-{instance}"
    if len(readable) <= MAX_ID_LENGTH and readable not in taken:
        return readable
    hashed = (_hashed_id(name, instance, uid, salt) for salt in count())
    return next(one for one in hashed if one not in taken)


def _hashed_id(name: str, instance: int, uid: str, salt: int) -> str:
    identity = f"{uid}/{instance}" + (f"/{salt}" if salt else "")
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_LENGTH]
    tail = f"-{digest}-{instance}"
    head = f"p-{name}"[: MAX_ID_LENGTH - len(tail)].rstrip("-._")
    return head + tail
