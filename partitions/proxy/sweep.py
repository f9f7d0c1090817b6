"""io: the regular comparison of tracker and controllers, which finishes interrupted work."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from ipuhub.partition import Phase
from partitions.errors import PartitionsError
from partitions.proxy import lifecycle, tombstones
from partitions.proxy.controllers import ControllerSpec
from partitions.proxy.drift import (
    Drift,
    compare,
    contradicted,
    late_mismatch,
    why_lost,
)
from partitions.proxy.tombstones import is_over
from partitions.vipu.errors import NotFound, VipuError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.service import PartitionService
    from partitions.proxy.tracker import Draft
    from partitions.proxy.trackerstore import TrackerStore
    from partitions.vipu.topology import IpuId
    from partitions.vipu.types import VipuPartition

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Times of comparisons: one every `every_seconds`; lists that others request are collected for
    `overhear_seconds`. Tombstones stay for `tombstone_seconds` (with a recorder: at least). No
    partition comes any more once its controller has answered without it for `late_seconds`."""

    every_seconds: float = 60.0
    overhear_seconds: float = 0.5
    tombstone_seconds: float = 900.0
    late_seconds: float = 900.0
    needs_recorder: bool = False


class Sweep:
    """Compares once a minute; `drift` is what the last comparison found. In between it evaluates
    lists that are requested anyway, for placements and every few seconds.

    It touches only what the tracker has, tombstones of unanswered requests among it: any other
    partition may be a person's or another cluster's.
    """

    def __init__(
        self,
        store: TrackerStore,
        fleet: Fleet,
        service: PartitionService,
        now: Callable[[], datetime],
        options: SweepOptions,
    ) -> None:
        self.drift = Drift()
        self._store = store
        self._fleet = fleet
        self._service = service
        self._now = now
        self._options = options
        # The IPUs of partitions in the last lists, by controller and id.
        self._places: dict[tuple[str, str], tuple[IpuId, ...]] = {}

    async def run(self) -> None:
        """Sweep now and then regularly, until cancelled; a failure waits for the next turn."""
        while True:
            try:
                await self.once()
            except PartitionsError as error:
                log.info("sweep put off", problem=str(error))
                await asyncio.sleep(min(self._options.every_seconds, 1.0))
                continue
            await asyncio.sleep(self._options.every_seconds)

    async def watch(self) -> None:
        """Evaluate all lists of partitions, whatever they were requested for, until cancelled."""
        while True:
            try:
                await self.overhear()
            except PartitionsError:  # the tracker is unavailable: the sweep reports it
                await asyncio.sleep(self._options.overhear_seconds)

    async def overhear(self) -> None:
        """Wait for lists that other callers request from now on, and mark entries that they
        contradict; raises TrackerUnavailable."""
        entries, since = list(self._store.tracker.entries.values()), self._fleet.calls
        await asyncio.sleep(self._options.overhear_seconds)
        listed = await self._fleet.overhear(since)
        for address, partitions in listed.items():
            self._add_places(address, partitions.values())
        drift = contradicted(entries, listed)
        await self._mark(drift, {})
        _warn(drift)

    async def once(self) -> Drift:
        """Compare, mark, finish and clean up once; raises TrackerUnavailable."""
        drift, views = await self.look()
        if drift.lost:  # their machines may have been cordoned since the topology was read
            self._fleet.renew_topologies({entry.controller for entry in drift.lost})
            drift, views = await self.look()
        await self._mark(drift, {view.spec.address: view for view in views})
        self._note_places(views)
        await self._remove_late(drift, views)
        await self._bury(drift)
        holders = {entry.holder for entry in drift.unfinished}
        await asyncio.gather(*(self._service.resume(holder) for holder in holders))
        self._report(drift)
        return drift

    async def look(self) -> tuple[Drift, list[ControllerView]]:
        """Compare once and change nothing; what controllers said. Raises TrackerUnavailable."""
        await self._store.refresh()
        entries = list(self._store.tracker.entries.values())
        views = await self._views(entries)
        return compare(entries, views), views

    async def _views(self, entries: Iterable[TrackerEntry]) -> list[ControllerView]:
        """The controllers of the list, and those off it that still hold something of ours."""
        listed = {spec.address for spec in self._fleet.specs}
        draining: dict[str, str] = {}
        for entry in entries:
            if not is_over(entry) and entry.controller not in listed:
                # A tombstone has no label any more: an entry that has one says it.
                draining[entry.controller] = draining.get(entry.controller) or entry.label
        specs = [ControllerSpec(address, label) for address, label in draining.items()]
        others = await asyncio.gather(*(self._fleet.view(spec) for spec in specs))
        return [*await self._fleet.views(), *others]

    async def _mark(self, drift: Drift, views: Mapping[str, ControllerView]) -> None:
        """Mark ACTIVE entries whose partition is faulty or lost, and entries in ERROR whose
        partition works again. `views` by address, for messages about the machines of lost
        partitions."""
        marked = {entry: self._lost(entry, views.get(entry.controller)) for entry in drift.lost}
        for entry, reason in drift.replaced:
            marked[entry] = lifecycle.lose(entry, self._now(), reason)
        for entry in (*drift.faulty, *drift.healed):
            if (new := await self._asked(entry)) is not None:
                marked[entry] = new
        if not marked:
            return

        def change(draft: Draft) -> None:
            for entry, new in marked.items():
                draft.replace(entry, new)

        await self._store.write(change)
        for entry in marked.keys() & set(drift.healed):
            log.info("partition works again", controller=entry.controller, **entry.log_fields)

    async def _asked(self, entry: TrackerEntry) -> TrackerEntry | None:
        """The entry after a read of its partition's status, which has more details than a list;
        None: unchanged."""
        fleet = self._fleet
        try:
            status = await fleet.api(entry.controller).partition_status(entry.id)
        except VipuError as error:
            log.info("no status of a partition", problem=str(error), **entry.log_fields)
            return None
        if entry.phase is Phase.ACTIVE:
            return lifecycle.fault(entry, status) if status.is_faulty else None
        if status.is_faulty or not status.is_usable:
            return None
        wants_key = fleet.wants_key(entry.controller)
        return lifecycle.activate(entry, self._now(), wants_key=wants_key)

    async def _remove_late(self, drift: Drift, views: Iterable[ControllerView]) -> None:
        """Remove what V-IPU made of a request whose job had given it up by then."""
        seen = {(view.spec.address, p.id): p for view in views for p in view.partitions}
        for entry in drift.late:
            if self._is_taken(entry):
                continue
            try:
                await self._remove(entry, seen[entry.controller, entry.id])
            except NotFound:
                continue  # the next list shows whether it is gone
            except (VipuError, PartitionsError) as error:
                log.warning("late partition not removed", problem=str(error), **entry.log_fields)

    async def _remove(self, tomb: TrackerEntry, found: VipuPartition) -> None:
        """Have a late partition removed, once and again where that failed.

        One that is sound after its removal is another one: its id was free by then.
        """
        api = self._fleet.api(tomb.controller)
        status = await api.partition_status(tomb.id)
        if status.is_removing:
            return
        if tomb.has_come and not status.is_faulty:
            await self._note(tomb, found, tombstones.settle)
            return
        await api.remove_partition(tomb.id)
        log.warning("late partition removed", controller=tomb.controller, **tomb.log_fields)
        await self._note(tomb, found, tombstones.note_arrival)

    async def _note(
        self,
        tomb: TrackerEntry,
        found: VipuPartition,
        change: Callable[[TrackerEntry], TrackerEntry],
    ) -> None:
        """Record the outcome of a late partition, for all tombstones that it may belong to."""

        def may_be(other: TrackerEntry) -> bool:
            return not late_mismatch(other, found)

        def note(draft: Draft) -> None:
            now = draft.get(tomb.key)  # a recorder may have acknowledged it meanwhile
            if now is not None and tombstones.is_waiting(now):
                draft.put(change(now))
            tombstones.settle_others(draft, tomb, may_be)

        await self._store.write(note)

    def _is_taken(self, late: TrackerEntry) -> bool:
        """Return whether another owner's partition has that id by now."""
        return any(
            (entry.controller, entry.id) == (late.controller, late.id)
            for entry in self._store.tracker.entries.values()
            if entry.phase is not Phase.RELEASED
        )

    async def _bury(self, drift: Drift) -> None:
        """Drop the tombstones that have stood long enough, and note which controllers are without
        what may come."""
        now, options = self._now(), self._options

        def change(draft: Draft) -> None:
            for entry in drift.absent:
                new = tombstones.note_absence(entry, now, options.late_seconds)
                draft.replace(entry, new)
            for entry in list(draft.entries()):
                if tombstones.is_waiting(entry) and self._fleet.spec_of(entry.controller):
                    continue
                if tombstones.is_expired(
                    entry,
                    now,
                    options.tombstone_seconds,
                    needs_recorder=options.needs_recorder,
                ):
                    draft.drop(entry.key)

        await self._store.write(change)

    def _report(self, drift: Drift) -> None:
        before, self.drift = self.drift, drift
        _warn(drift)
        if drift.untracked != before.untracked:
            counts = dict(drift.untracked_by_controller)
            log.info("partitions that are not ours, left alone", controllers=counts)

    def _lost(self, entry: TrackerEntry, view: ControllerView | None) -> TrackerEntry:
        ipus = self._places.get((entry.controller, entry.id), ())
        return lifecycle.lose(entry, self._now(), why_lost(entry, ipus, view))

    def _note_places(self, views: Iterable[ControllerView]) -> None:
        """Store the places of the entries' partitions: once a partition is gone, no service knows
        its place."""
        for view in views:
            self._add_places(view.spec.address, view.partitions)
        entries = self._store.tracker.entries.values()
        live = {
            (entry.controller, entry.id) for entry in entries if entry.phase is not Phase.RELEASED
        }
        self._places = {place: ipus for place, ipus in self._places.items() if place in live}

    def _add_places(self, address: str, partitions: Iterable[VipuPartition]) -> None:
        self._places |= {(address, partition.id): partition.ipus for partition in partitions}


def _warn(drift: Drift) -> None:
    for entry in drift.lost:
        log.warning("partition lost", controller=entry.controller, **entry.log_fields)
    for entry in drift.faulty:
        log.warning("partition in ERROR", controller=entry.controller, **entry.log_fields)
    for entry, problem in drift.replaced:
        where = {"controller": entry.controller, **entry.log_fields}
        log.warning("partition replaced", problem=problem, **where)
