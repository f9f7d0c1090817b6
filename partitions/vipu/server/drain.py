"""domain: drains a machine: a cordon, and partitions that are moved, ended, or waited for.

No drain is stored. A call does what is possible immediately and returns what remains; a repeated
call continues. So after a restart of the controller or an interrupted client only the cordon
remains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from partitions.vipu.errors import NotReady
from partitions.vipu.server import outages
from partitions.vipu.server.records import removing_record

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.server.state import Draft


# Of a partition that has left and that the machine still has a part of.
FREEING: Final = "the machine is freeing it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOrder:
    """The request of an administrator.

    `reason` None keeps the present cordon's reason. `force` ends partitions that cannot
    move. `resume` continues a drain, unless its cordon has been ended; the cordon keeps its
    reason, which another administrator may have changed since.
    """

    agent: str
    reason: str | None = None
    force: bool = False
    resume: bool = False


@dataclass(slots=True)
class Drained:
    """The outcome of a call: by partition, the agents where it is now, or why it is still there.

    `cordon`: the reason of a cordon that the call has begun or changed; None: it was there.
    """

    cordon: str | None = None
    moved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    remaining: dict[str, str] = field(default_factory=dict)


def drain(
    draft: Draft, order: DrainOrder, now: datetime, latency: timedelta, *, confirmed_removal: bool
) -> Drained:
    """Cordon a machine and remove the partitions that may leave it now.

    `latency` is the duration of a creation. With `confirmed_removal` a partition that is ended
    holds its IPUs until its machines have freed them. Raises NotFound, InvalidRequest for a long
    reason, or NotReady if the cordon of a drain to continue is gone.
    """
    found = Drained(_cordon(draft, order, now))
    for record in _here(draft, order.agent):
        moved = None
        if record.relocatable and not record.is_removing:
            moved = outages.moved_elsewhere(draft, record, now, latency)
        if moved is not None:
            draft.put(moved)
            found.moved[moved.id] = agents_of(draft, moved)
        elif not order.force or record.is_removing:
            found.remaining[record.id] = _why_here(record)
        elif confirmed_removal:
            ending = removing_record(record, now)
            draft.put(ending)
            found.ended.append(record.id)
            found.remaining[record.id] = _why_here(ending)
        else:
            draft.remove(record.id)
            found.ended.append(record.id)
    return found


def agents_of(draft: Draft, record: PartitionRecord) -> tuple[str, ...]:
    """Return the agents of the partition's machines."""
    by_id = draft.occupancy.topology.by_id
    return tuple(dict.fromkeys(by_id[ipu].agent for ipu in record.ipus))


def _cordon(draft: Draft, order: DrainOrder, now: datetime) -> str | None:
    """Cordon the machine; the reason, if that changes anything."""
    before = draft.machines.get(order.agent)
    cordon = before.cordon if before else None
    if cordon is None and order.resume:
        raise NotReady(
            f"{order.agent} is no longer cordoned: its drain has been ended. Drain it again to "
            "begin another"
        )
    if order.resume:
        return None
    reason = (cordon or "") if order.reason is None else order.reason
    if reason == cordon:
        return None
    outages.cordon(draft, order.agent, reason, now)
    return reason


def _here(draft: Draft, agent: str) -> list[PartitionRecord]:
    """Return the partitions on a machine, the largest first: they find room least easily."""
    ipus = [ipu.id for ipu in draft.occupancy.topology.ipus if ipu.agent == agent]
    held = {draft.occupancy.holder(ipu) for ipu in ipus}
    found = [record for record in draft.partitions.values() if record.id in held]
    return sorted(found, key=lambda record: -len(record.ipus))


def _why_here(record: PartitionRecord) -> str:
    if record.is_removing:
        return "it is being removed"
    if record.relocatable:
        return (
            f"{outages.no_room(record)} to move it to: it moves when one is, or is removed by its "
            "owner or with --force"
        )
    return "it is not relocatable: it leaves when its owner removes it, or with --force"
