"""io: moves a reservation to another id or another controller."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

import structlog

from partitions.proxy import lifecycle, tombstones
from partitions.proxy.controllers import order_candidates
from partitions.proxy.drift import scope_of_settings, terms_of
from partitions.proxy.lifecycle import waiting_partition
from partitions.proxy.queue import Offer
from partitions.proxy.shortage import explain_shortage
from partitions.proxy.steps.step import Next
from partitions.proxy.tracker import free_id, next_serial

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.lifecycle import Shortage, TrackerEntry
    from partitions.proxy.steps.step import Step
    from partitions.proxy.tracker import Draft

log = structlog.get_logger(__name__)


class _Move(Enum):
    """The outcome of a move for which there was room.

    CHANGED: the entry is no longer the one that was to move. Another client has changed it, or our
    own move was written and its answer lost.
    """

    DONE = auto()
    CHANGED = auto()


async def try_other_id(step: Step, listed: Collection[str], problem: str) -> Next:
    """Take another id: a partition of another owner has ours, and is left alone."""
    entry = step.entry
    where = {"controller": entry.controller, **entry.log_fields}
    log.warning("partition id taken by someone else", **where, problem=problem)

    def rename(draft: Draft) -> bool:
        if draft.get(entry.key) != entry:
            return False
        draft.put(lifecycle.rename(entry, free_id(entry, draft, {entry.id, *listed})))
        return True

    step.memory.is_first_ask = await step.around.store.write(rename)
    return Next.NOW


async def try_other_controller(step: Step, *, is_full: bool = True) -> Next | None:
    """Try the next controller, or give the reservation up: this controller is full (`is_full`) or
    does not answer.

    None: no other controller has room, and a partition that was requested here without an answer
    may still appear.
    """
    entry, memory, around = step.entry, step.memory, step.around
    memory.tried.add(entry.controller)
    if is_full and around.fleet.spec_of(entry.controller) is not None:
        around.fleet.note_refusal(entry.controller, entry.size)
    outcome = await _move_on(step, memory.tried)
    if isinstance(outcome, _Move):
        memory.is_first_ask = outcome is _Move.DONE
        return Next.NOW
    if entry.may_come and not is_full:
        memory.tried.clear()
        around.waiting.forget(entry.holder)
        return None
    memory.waiting = waiting_partition(entry, outcome)
    await step.replace(tombstones.give_up(entry, around.now()))
    return Next.SETTLED


async def go_on(step: Step) -> bool:
    """Leave a controller that has not answered a creation for one that has room and answers them;
    return whether there is such a controller.

    Once per attempt: a controller may just be slower than the deadline, and two of them must not
    send a job back and forth. On the second it stays until the circuit breaker opens.
    """
    memory, fleet = step.memory, step.around.fleet
    if memory.has_gone_on:
        return False
    addresses = (spec.address for spec in fleet.specs)
    memory.has_gone_on = await _leave(step, {at for at in addresses if fleet.doubts_creations(at)})
    return memory.has_gone_on


async def leave_silent(step: Step) -> bool:
    """Leave a controller that answers nothing, after a creation that it may carry out later; return
    whether another controller has room. Once all were tried, each may be tried again."""
    has_left = await _leave(step, ())
    if not has_left:
        step.memory.tried.clear()
    return has_left


async def _leave(step: Step, avoided: Collection[str]) -> bool:
    """Move to a controller that was not tried and is not `avoided`, or stay. An entry that has
    changed meanwhile has left: it may be our move."""
    entry, memory = step.entry, step.memory
    tried = memory.tried | {entry.controller}
    if not isinstance(await _move_on(step, tried.union(avoided)), _Move):
        step.around.waiting.forget(entry.holder)
        return False
    memory.tried = tried
    return True


async def _move_on(step: Step, tried: Collection[str]) -> Shortage | _Move:
    """Send the reservation to a controller that was not tried, or say why to none."""
    entry, around = step.entry, step.around
    views = await around.fleet.views()
    candidates = [
        view
        for view in order_candidates(views, entry.size, around.rule)
        if view.spec.address not in tried
    ]
    if not candidates:
        around.waiting.note(entry.holder, entry.size, around.now())
        return explain_shortage(views, entry.size)
    offer = Offer(views, candidates)
    return await around.store.write(lambda draft: _move_if_open(step, draft, offer))


def _move_if_open(step: Step, draft: Draft, offer: Offer) -> Shortage | _Move:
    """Send the reservation to a controller that it may have, or say why to none."""
    entry, now = step.entry, step.around.now()
    if draft.get(entry.key) != entry:
        return _Move.CHANGED
    arguments = (entry.holder, entry.size, offer, draft, now)
    targets, held_back = step.around.waiting.open_to(*arguments)
    if held_back is not None:
        return held_back
    _move(draft, entry, targets[0], now)
    return _Move.DONE


def _move(draft: Draft, entry: TrackerEntry, target: ControllerView, now: datetime) -> None:
    listed = {partition.id for partition in target.partitions}
    if entry.may_come:  # it stays known where it may come; the other controller's is a new holding
        draft.put(tombstones.finish_release(entry, now))
        entry = lifecycle.again(entry, next_serial(entry, now), now)
        listed.add(entry.id)
    new_id = free_id(entry, draft, listed) if entry.id in listed else entry.id
    spec = target.spec
    moved = lifecycle.move(entry, controller=spec.address, label=spec.label, partition_id=new_id)
    terms = terms_of(spec.settings, entry.num_gcds)
    draft.put(lifecycle.note_request(moved, scope_of_settings(spec.settings), terms))
