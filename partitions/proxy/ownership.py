"""domain: whether a partition under our id can be the one that was made for an entry.

V-IPU keeps no mark of ours beside the id, and another cluster, or a person, may come to the same
one. What its list tells of a partition is compared with what was asked for.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from partitions.proxy.controllers import PartitionSettings
    from partitions.proxy.tracker import TrackerEntry
    from partitions.vipu.types import VipuPartition

_DIGITS = 6  # an id in full may be longer than an entry of the tracker has room for


def asked_of(settings: PartitionSettings) -> str:
    """Return in which cluster and allocation `settings` ask for partitions, as digests."""
    parts = (settings.cluster_id, settings.allocation_id)
    return "/".join(map(_digest, parts)) if any(parts) else ""


def strangeness(entry: TrackerEntry, found: VipuPartition) -> str:
    """Why `found`, which has the entry's id, is not the entry's partition; empty: it can be.

    What was not asked for, what the entry does not tell and what V-IPU does not say is no reason.
    """
    if found.size != entry.size:
        return f"{found.id} has {found.size} IPUs, not {entry.size}: it is not this job's"
    cluster, _, allocation = entry.asked.partition("/")
    if _differs(cluster, found.cluster_id):
        return f"{found.id} is in another cluster, {found.cluster_id}: it is not this job's"
    if _differs(allocation, found.allocation_id):
        return f"{found.id} is in another allocation, {found.allocation_id}: it is not this job's"
    return ""


def _differs(asked: str, found: str) -> bool:
    return bool(asked and found) and asked != _digest(found)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:_DIGITS] if name else ""
