"""io: checks whether a partition that its controller accepted is usable."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipuhub.partition import Reason
from partitions.proxy import lifecycle
from partitions.proxy.steps.step import Next
from partitions.vipu.errors import NotFound, VipuError
from partitions.vipu.types import ReadyState

if TYPE_CHECKING:
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.steps.step import Step


async def activate(step: Step) -> Next:
    """Record what has become of the creation or the reset."""
    step.memory.looks += 1
    try:
        status = await step.api.partition_status(step.entry.id)
    except NotFound:
        return await _make_again(step)
    except VipuError as error:
        return await step.hang(Reason.CONTROLLER_UNAVAILABLE, error)
    if status.ready_state is ReadyState.REMOVED:
        return await _make_again(step)
    if status.is_faulty:
        await step.replace(lifecycle.fault(step.entry, status))
        return Next.SETTLED
    return await record_active(step, step.entry) if status.is_usable else Next.POLL


async def _make_again(step: Step) -> Next:
    await step.replace(lifecycle.make_again(step.entry))
    return Next.BACKOFF


async def record_active(step: Step, entry: TrackerEntry) -> Next:
    """Record that the partition is usable, and learn how long that took."""
    memory, around = step.memory, step.around
    if memory.accepted_at is not None:
        took = asyncio.get_running_loop().time() - memory.accepted_at
        around.readiness.learn(entry.controller, took, memory.looks, is_reset=memory.is_reset)
    wants_key = around.fleet.wants_key(entry.controller)
    await step.replace(lifecycle.activate(entry, around.now(), wants_key=wants_key))
    return Next.NOW  # another change may have been written to the tracker meanwhile
