"""io: removes a partition, unless its id now belongs to another owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.partition import Reason
from partitions.proxy import tombstones
from partitions.proxy.drift import mismatch
from partitions.proxy.steps.step import Next
from partitions.vipu.errors import NotFound, Unavailable, VipuError
from partitions.vipu.types import ReadyState

if TYPE_CHECKING:
    from partitions.proxy.steps.step import Step
    from partitions.vipu.types import VipuStatus

log = structlog.get_logger(__name__)

# A controller that takes a removal may begin it late; a controller that has forgotten it never
# does.
LOOKS_UNTIL_ASKED_AGAIN: Final = 10
# A removal that takes longer than about 1 s is worth a write: people see the progress.
LOOKS_UNTIL_TOLD: Final = 6


async def release(step: Step) -> Next:
    """Ask once for the removal, then look until the partition is gone."""
    entry, memory = step.entry, step.memory
    try:
        if not memory.is_removed:
            found = (await step.around.fleet.listed(entry.controller)).get(entry.id)
            if found is not None and (problem := mismatch(entry, found)):
                return await _leave(step, problem)
            if found is not None:
                memory.was_there = True
                await step.api.remove_partition(entry.id)
                memory.is_removed, memory.looks = True, 0
        status = await step.api.partition_status(entry.id)
    except NotFound:
        pass
    except VipuError as error:
        is_silent = isinstance(error, Unavailable)
        reason = Reason.CONTROLLER_UNAVAILABLE if is_silent else Reason.RELEASE_REFUSED
        return await step.hang(reason, error)
    else:
        if status.ready_state is not ReadyState.REMOVED:
            return await _still_there(step, status)
    now, was_there = step.around.now(), memory.was_there
    await step.replace(tombstones.finish_release(entry, now, was_there=was_there))
    return Next.SETTLED


async def _leave(step: Step, reason: str) -> Next:
    """Leave the partition: it belongs to another owner, so ours cannot exist any more."""
    entry = step.entry
    where = {"controller": entry.controller, **entry.log_fields}
    log.warning("partition left alone", problem=reason, **where)
    await step.replace(tombstones.leave(step.entry, step.around.now(), reason))
    return Next.SETTLED


async def _still_there(step: Step, status: VipuStatus) -> Next:
    """Wait for the removal, which is in progress or may begin late, or request it again."""
    entry, memory = step.entry, step.memory
    memory.looks += 1
    if status.is_removing and memory.looks >= LOOKS_UNTIL_TOLD:
        sentence = f"{entry.controller} is removing partition {entry.id}: its IPUs are not free yet"
        await step.hang(Reason.REMOVING, sentence)
    if status.is_removing or (not status.is_faulty and memory.looks < LOOKS_UNTIL_ASKED_AGAIN):
        return Next.POLL
    memory.is_removed, memory.looks = False, 0
    problem = "; ".join(status.errors) or (
        f"{entry.controller} was to remove partition {entry.id}, "
        f"which is {status.ready_state} and {status.operation_state}"
    )
    return await step.hang(Reason.RELEASE_REFUSED, problem)
