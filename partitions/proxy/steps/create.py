"""io: creates a reserved partition on its controller, or resets it if it already exists."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from ipuhub.partition import Reason
from partitions.proxy import lifecycle
from partitions.proxy.circuit import CircuitOpen
from partitions.proxy.controllers import PartitionSettings
from partitions.proxy.drift import mismatch, scope_of_settings, terms_of
from partitions.proxy.steps.activate import record_active
from partitions.proxy.steps.elsewhere import go_on, leave_silent, try_other_controller, try_other_id
from partitions.proxy.steps.step import Next
from partitions.proxy.vipuapi import is_under_removal
from partitions.vipu.errors import (
    AlreadyExists,
    NoAnswer,
    NoCapacity,
    NotFound,
    NotReady,
    NotStored,
    Unavailable,
    VipuError,
)
from partitions.vipu.types import CreateRequest, ReadyState

if TYPE_CHECKING:
    from partitions.proxy.steps.step import Step

log = structlog.get_logger(__name__)


async def create(step: Step) -> Next:
    """Reset the partition if it exists and is ours, else create it."""
    entry, memory, fleet = step.entry, step.memory, step.around.fleet
    try:
        listed = {} if memory.is_first_ask else await fleet.listed(entry.controller)
        found = listed.get(entry.id)
        is_there = found is not None and found.ready_state is not ReadyState.REMOVED
        is_ending = is_there and await is_under_removal(step.api, entry.id)
    except VipuError as error:
        if entry.may_come and isinstance(error, Unavailable) and await leave_silent(step):
            return Next.NOW
        return await step.hang(Reason.CONTROLLER_UNAVAILABLE, error)
    memory.is_reset = is_there
    if found is not None and is_there and (reason := mismatch(entry, found)):
        return await try_other_id(step, listed, reason)
    if is_ending:
        return Next.POLL  # neither ours to reset nor room for a new partition yet
    spec = fleet.spec_of(entry.controller)
    if spec and not memory.is_reset:
        how = scope_of_settings(spec.settings), terms_of(spec.settings, entry.num_gcds)
        if not lifecycle.has_request(entry, *how):
            await step.replace(lifecycle.note_request(entry, *how))
            return Next.NOW
    return await _send(step)


async def _send(step: Step) -> Next:
    """Have the partition reset or created, here or where creations are carried out."""
    entry, memory = step.entry, step.memory
    if memory.is_unanswered and entry.may_come and not memory.is_reset:
        memory.is_unanswered = False
        if await go_on(step):
            return Next.NOW
    try:
        if memory.is_reset:
            await step.api.reset_partition(entry.id)
        elif step.around.fleet.spec_of(entry.controller) is None:
            raise NoCapacity(f"{entry.controller} is off the list and drains")
        else:
            await step.api.create_partition(_create_request(step))
    except CircuitOpen as error:
        return await _not_sent(step, error)
    except VipuError as error:
        return await _not_taken(step, error)
    memory.is_first_ask = False
    # The controller is at work from now on, while that is still being written down.
    readiness = step.around.readiness
    wait = readiness.first_look_seconds(entry.controller, is_reset=memory.is_reset)
    memory.accepted_at, memory.looks = asyncio.get_running_loop().time(), 0
    memory.look_at = memory.accepted_at + wait
    accepted = lifecycle.accept(entry)
    if await _is_ready_at_once(step):
        return await record_active(step, accepted)
    await step.replace(accepted)
    return Next.ACCEPTED


def _create_request(step: Step) -> CreateRequest:
    """Auto-reset and relocation stay off: pods hold the partition and must see its faults."""
    entry, spec = step.entry, step.around.fleet.spec_of(step.entry.controller)
    settings = spec.settings if spec else PartitionSettings()
    return CreateRequest(
        id=entry.id,
        size=entry.size,
        cluster_id=settings.cluster_id,
        allocation_id=settings.allocation_id,
        num_gcds=entry.num_gcds or settings.num_gcds,
        num_replicas=entry.num_replicas or settings.num_replicas,
        reconfigurable=settings.reconfigurable,
        auto_reset=False,
        relocatable=False,
    )


async def _is_ready_at_once(step: Step) -> bool:
    """Look before the acceptance is written, where that is when to look: what is ACTIVE by then
    is worth one write, not two."""
    if step.memory.look_at > asyncio.get_running_loop().time():
        return False
    step.memory.looks += 1
    try:
        status = await step.api.partition_status(step.entry.id)
    except VipuError:
        return False  # the next look will see it, too
    return status.is_usable


async def _not_taken(step: Step, error: VipuError) -> Next:
    """Return the step that follows the controller's refusal to create or reset."""
    memory = step.memory
    if isinstance(error, AlreadyExists):
        return await _meet_existing(step)
    if isinstance(error, NoCapacity):
        return await try_other_controller(step) or Next.BACKOFF
    if isinstance(error, NotFound):
        return Next.NOW  # removed between the question and the reset
    memory.is_first_ask = False  # the answer may be lost, not the request
    if isinstance(error, NotReady) and memory.is_reset:
        return await _give_back(step, error)
    if error.retryable:
        return await _hang_unanswered(step, error)
    await step.replace(lifecycle.fail(step.entry, Reason.CREATE_REFUSED, str(error)))
    return Next.SETTLED


async def _not_sent(step: Step, error: CircuitOpen) -> Next:
    """Choose another controller: this controller stopped answering since it was chosen, or does not
    answer creations. The entry first records what may still appear here, so that its tombstone
    removes it."""
    entry, memory = step.entry, step.memory
    if memory.is_reset:
        return await step.hang(Reason.CONTROLLER_UNAVAILABLE, error)
    if not memory.is_first_ask and not entry.may_come:
        return await _hang_unanswered(step, error)
    gone = await try_other_controller(step, is_full=False)
    return await _stay(step) if gone is None else gone


async def _stay(step: Step) -> Next:
    """Stay on this controller: no other has room, and the requested partition may still appear, or
    a later request may be answered."""
    entry, memory = step.entry, step.memory
    if not memory.is_told:  # in place of what the first call came to
        text = f"{entry.controller} does not answer creations, and no other V-IPU controller fits"
        changed = replace(entry, reason=Reason.CONTROLLER_UNAVAILABLE, message=text)
        await step.replace(changed)
        memory.is_told = True
    return Next.BACKOFF


async def _meet_existing(step: Step) -> Next:
    """A partition of our id exists: ours from before, or, at the first ask, another's."""
    if not step.memory.is_first_ask:
        return Next.BACKOFF  # it appeared since the question: ask again, and judge it
    return await try_other_id(step, {step.entry.id}, "it was there before")


async def _give_back(step: Step, cause: VipuError) -> Next:
    """The partition cannot be reset, since its IPUs are broken: another takes its place."""
    log.warning("partition given back", problem=str(cause), **step.entry.log_fields)
    try:
        await step.api.remove_partition(step.entry.id)
    except NotFound:
        return Next.NOW
    except VipuError as error:
        return await step.hang(Reason.CONTROLLER_UNAVAILABLE, error)
    return Next.BACKOFF


async def _hang_unanswered(step: Step, error: VipuError) -> Next:
    """The partition may come, whenever that is; a reset makes nothing."""
    entry = step.entry
    step.memory.is_unanswered = isinstance(error, NoAnswer | NotStored)
    if step.memory.is_reset or entry.may_come:
        return await step.hang(Reason.CONTROLLER_UNAVAILABLE, error)
    log.warning("no answer to a creation", problem=str(error), **entry.log_fields)
    await step.replace(lifecycle.hang_unanswered(entry, str(error)))
    return Next.BACKOFF
