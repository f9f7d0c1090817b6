"""domain: cordons of machines, faults of IPUs, lost agents, and their effect on partitions.

A cordon keeps new partitions away and does not affect existing partitions. A fault of an IPU, or
the loss of its agent, also sets its partitions to ERROR, or moves partitions that may move to free
IPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from partitions.vipu.errors import InvalidRequest, NotFound, NotReady, missing
from partitions.vipu.server.records import (
    MAX_AUTO_RESETS,
    UNCONFIRMED,
    MachineRecord,
    is_loss,
    reset_record,
)
from partitions.vipu.topology import best_fit
from partitions.vipu.types import OperationState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import datetime, timedelta

    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.server.state import Draft
    from partitions.vipu.topology import Ipu

MAX_REASON_LENGTH = 200
_ANOTHER_ATTEMPT: Final = "End this attempt of the job: the next one gets other IPUs"


def cordon(draft: Draft, agent: str, reason: str | None, now: datetime) -> None:
    """Give the machine no new partitions; raises NotFound, or InvalidRequest for a long reason.

    Without a reason a cordon that is there keeps its own.
    """
    if reason is not None and len(reason) > MAX_REASON_LENGTH:
        raise InvalidRequest(
            f"reason: the reason has {len(reason)} characters; write at most {MAX_REASON_LENGTH}"
        )
    machine = _machine(draft, agent)
    begun = now if machine.cordon is None else machine.cordoned_at
    text = (machine.cordon or "") if reason is None else reason
    draft.put_machine(replace(machine, cordon=text, cordoned_at=begun))


def uncordon(draft: Draft, agent: str) -> None:
    """Let the machine have new partitions again; raises NotFound."""
    draft.put_machine(replace(_machine(draft, agent), cordon=None, cordoned_at=None))


def fail_ipu(
    draft: Draft, agent: str, index: int, what: str, now: datetime, latency: timedelta
) -> None:
    """Apply a fault of an IPU, with a message that names the IPU; raises NotFound.

    `latency` is how long a partition that is moved takes until it is ACTIVE.
    """
    machine, sentence = _machine(draft, agent, index), f"{agent}: {what}"
    if machine.faults.get(index) != sentence:
        draft.put_machine(replace(machine, faults={**machine.faults, index: sentence}))
        _hit(draft, lambda ipu: (ipu.agent, ipu.index) == (agent, index), sentence, now, latency)


def heal_ipu(draft: Draft, agent: str, index: int, now: datetime, latency: timedelta) -> None:
    """End the fault of an IPU; raises NotFound. `latency` is the duration of a reset."""
    machine = _machine(draft, agent, index)
    if index in machine.faults:
        faults = {other: text for other, text in machine.faults.items() if other != index}
        draft.put_machine(replace(machine, faults=faults))
        _recover(draft, agent, now, latency)


def lose_agent(draft: Draft, agent: str, sentence: str, now: datetime, latency: timedelta) -> None:
    """Apply the loss of an agent, with a message that names it; raises NotFound."""
    machine = _machine(draft, agent)
    if machine.lost != sentence:
        draft.put_machine(replace(machine, lost=sentence))
        _forget_losses(draft, agent)
        _hit(draft, lambda ipu: ipu.agent == agent, sentence, now, latency)


def agent_back(draft: Draft, agent: str, now: datetime, latency: timedelta) -> None:
    """Apply the return of an agent; raises NotFound. `latency` is the duration of a reset."""
    machine = _machine(draft, agent)
    if machine.lost:
        draft.put_machine(replace(machine, lost=""))
        _recover(draft, agent, now, latency)


def fail_part(draft: Draft, seen: PartitionRecord, sentence: str, now: datetime) -> None:
    """Apply a machine's failure to serve or to create a partition.

    The partition is set to ERROR, or is reset once more if it may reset itself: not while an agent
    of it is lost, nor while an IPU of it has a fault. A partition that has changed since it was
    seen stays as it is.
    """
    record = draft.partitions.get(seen.id)
    if record is None or record.is_removing or record.errors != seen.errors:
        return
    if _operation_of(record) != _operation_of(seen):
        return
    failed = replace(record, errors=(*record.errors, sentence))
    if record.is_unconfirmed:
        failed = replace(failed, ready_at=now)
    draft.put(_reset_again(failed, now, UNCONFIRMED) if _may_reset(draft, failed) else failed)


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A change of a partition, for the events; `is_bad`: its programs have lost it."""

    what: str
    is_bad: bool
    facts: Mapping[str, str]


def partition_changes(
    before: Mapping[str, PartitionRecord], draft: Draft
) -> Iterator[PartitionChange]:
    """Yield the changes of the partitions that were there `before`."""
    for record in draft.partitions.values():
        old = before.get(record.id)
        if old is None or old is record:
            continue
        facts = {"partition": record.id, "agent": _agents_of(draft, old)}
        if old.ipus != record.ipus:
            yield PartitionChange(
                "partition moved", True, {**facts, "to": _agents_of(draft, record)}
            )
        elif record.auto_resets > old.auto_resets:
            yield PartitionChange("partition resets itself", False, facts)
        elif record.errors:
            yield PartitionChange(
                "partition in ERROR", True, {**facts, "problem": record.errors[-1]}
            )


def _agents_of(draft: Draft, record: PartitionRecord) -> str:
    by_id = draft.occupancy.topology.by_id
    return " ".join(dict.fromkeys(by_id[ipu].agent for ipu in record.ipus))


def _operation_of(record: PartitionRecord) -> tuple[OperationState, datetime, datetime]:
    """Its latest operation, and whether the machines have confirmed its end."""
    return record.operation, record.started_at, record.ready_at


def require_usable(
    draft: Draft, record: PartitionRecord, *, may_move: bool = False, by_pod: bool = False
) -> None:
    """Raise NotReady when the partition is being removed, an IPU of it has a fault or its agent is
    lost. `may_move`: other IPUs were looked for, and none are free. `by_pod`: a pod asks, which may
    neither remove, create nor move a partition."""
    if record.is_removing:
        remedy = _ANOTHER_ATTEMPT if by_pod else "Create it again once it is gone"
        raise NotReady(f"partition {record.id} is being removed. {remedy}")
    for problem in _problems(draft, record):
        remedy = (
            "Remove it and create a new partition, reset it with --relocatable to move it, or wait"
        )
        if by_pod:
            remedy = f"{_ANOTHER_ATTEMPT}. Or wait"
        elif may_move:
            remedy = f"It cannot move: {no_room(record)}. Wait"
        raise NotReady(
            f"partition {record.id} cannot be reset: {problem}. {remedy} until that is mended"
        )


def no_room(record: PartitionRecord) -> str:
    """Return the sentence about a partition that could move and finds no room."""
    size = len(record.ipus)
    ipus = "1 IPU" if size == 1 else f"{size} IPUs"
    return f"no block of {ipus} is free in allocation {record.allocation}"


def moved_by_reset(
    draft: Draft, record: PartitionRecord, now: datetime, latency: timedelta
) -> PartitionRecord | None:
    """The partition on other IPUs, as after a reset; None: its own can be used, it is being
    removed, or there is no room. `latency` is the duration of a creation."""
    if record.is_removing or not any(_problems(draft, record)):
        return None
    moved = moved_elsewhere(draft, record, now, latency)
    return moved and replace(moved, auto_resets=0, auto_reset_at=None)


def _hit(
    draft: Draft,
    is_hit: Callable[[Ipu], bool],
    sentence: str,
    now: datetime,
    latency: timedelta,
) -> None:
    topology = draft.occupancy.topology
    hit = {draft.occupancy.holder(ipu.id) for ipu in topology.ipus if is_hit(ipu)}
    for record in [record for record in draft.partitions.values() if record.id in hit]:
        if record.is_removing:  # it is no longer in use; it must neither move nor come back
            continue
        moved = moved_elsewhere(draft, record, now, latency) if record.relocatable else None
        if moved is not None:
            draft.put(moved)
        elif sentence not in record.errors:
            draft.put(replace(record, errors=(*record.errors, sentence)))


def move_stranded(draft: Draft, now: datetime, latency: timedelta) -> Iterator[PartitionChange]:
    """Move the relocatable partitions whose IPUs cannot be used and that found no room before;
    yield the moves. `latency` is the duration of a creation.

    Each counts as an automatic reset, so that machines which come and go move a partition a few
    times only.
    """
    if not any(machine.faults or machine.lost for machine in draft.machines.values()):
        return
    for record in list(draft.partitions.values()):
        is_stranded = record.errors and record.relocatable and any(_problems(draft, record))
        if not is_stranded or record.auto_resets >= MAX_AUTO_RESETS:
            continue
        moved = moved_elsewhere(draft, record, now, latency)
        if moved is None:
            continue
        draft.put(replace(moved, auto_resets=record.auto_resets + 1, auto_reset_at=now))
        facts = {"partition": record.id, "agent": _agents_of(draft, record)}
        what = "partition moved once there was room"
        yield PartitionChange(what, False, {**facts, "to": _agents_of(draft, moved)})


def _forget_losses(draft: Draft, agent: str) -> None:
    """Take earlier losses of an agent from its partitions: the new one says all, and agents that
    come and go must not let the errors grow."""
    for record in list(draft.partitions.values()):
        errors = tuple(each for each in record.errors if not is_loss(agent, each))
        if errors != record.errors:
            draft.put(replace(record, errors=errors))


def moved_elsewhere(
    draft: Draft, record: PartitionRecord, now: datetime, latency: timedelta
) -> PartitionRecord | None:
    """The partition on other IPUs of its allocation; None: there is no room. `latency` is the
    duration of a creation."""
    # Not `choose_ipus`: its sentence on what is free costs a hundred times the search, and this is
    # done for each stranded partition in each write.
    blocks = draft.occupancy.freed(record.ipus).free_blocks(
        cluster=record.cluster, allocation=record.allocation
    )
    ipus = best_fit(blocks, len(record.ipus))
    if ipus is None:
        return None
    return replace(
        record,
        ipus=ipus,
        operation=OperationState.CREATING,
        started_at=now,
        ready_at=now + latency,
        errors=(),
    )


def _recover(draft: Draft, agent: str, now: datetime, latency: timedelta) -> None:
    """Reset the partitions of a machine that are in ERROR and may reset themselves.

    The others wait for a manual reset: the programs on them are lost in any case.
    """
    topology = draft.occupancy.topology
    affected = {draft.occupancy.holder(ipu.id) for ipu in topology.ipus if ipu.agent == agent}
    for record in [record for record in draft.partitions.values() if record.id in affected]:
        if record.errors and _may_reset(draft, record):
            draft.put(_reset_again(record, now, latency))


def _may_reset(draft: Draft, record: PartitionRecord) -> bool:
    """Return whether the partition may reset itself once more, on IPUs that can all be used."""
    has_resets = record.auto_reset and record.auto_resets < MAX_AUTO_RESETS
    return has_resets and not any(_problems(draft, record))


def _reset_again(record: PartitionRecord, now: datetime, latency: timedelta) -> PartitionRecord:
    """The partition after it began to reset itself, counted."""
    again = reset_record(record, now, latency)
    return replace(again, auto_resets=record.auto_resets + 1, auto_reset_at=now)


def _problems(draft: Draft, record: PartitionRecord) -> Iterator[str]:
    """Yield the reasons why IPUs of the partition cannot be used; a cordon is not among them."""
    for place in record.ipus:
        ipu = draft.occupancy.topology.by_id[place]
        machine = draft.machines.get(ipu.agent)
        if machine is not None and (fault := machine.fault_of(ipu.index)):
            yield fault


def _machine(draft: Draft, agent: str, index: int | None = None) -> MachineRecord:
    found = [ipu.index for ipu in draft.occupancy.topology.ipus if ipu.agent == agent]
    if not found:
        raise NotFound(missing("agent", agent, "vipu-admin list agents"))
    if index is not None and index not in found:
        raise NotFound(no_ipu(agent, found, index))
    return draft.machines.get(agent, MachineRecord(agent))


def no_ipu(agent: str, indexes: Collection[int], index: int) -> str:
    """Return the sentence for an IPU that an agent's machine does not have."""
    return (
        f"ipu: {agent} has the IPUs {min(indexes)} to {max(indexes)}, not {index}; use one of them"
    )
