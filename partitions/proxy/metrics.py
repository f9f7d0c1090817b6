"""io: the proxy's metrics: counted as it works, or read off its state when somebody asks."""

from __future__ import annotations

import time
from collections import Counter as Counts
from typing import TYPE_CHECKING, Final

from aiohttp import web

from partitions.errors import TrackerUnavailable
from partitions.proxy import metrictable as table
from partitions.proxy.lifecycle import Phase
from partitions.proxy.measures import StoreMeasures
from partitions.vipu.topology import PARTITION_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aiohttp.typedefs import Middleware

    from ipuhub.process.metrics import Meters
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.problems import Handler
    from partitions.proxy.queue import WaitingList
    from partitions.proxy.store import TrackerStore
    from partitions.proxy.sweep import Sweep
    from partitions.proxy.tracker import TrackerEntry

_OTHER: Final = "other"


class ProxyMeasures(StoreMeasures):
    """Counts what the tracker's writer does; `meters` has the proxy's table."""

    def __init__(self, meters: Meters) -> None:
        self._batches = meters.histogram(table.BATCH)
        self._writes = meters.histogram(table.WRITE_SECONDS)
        self._conflicts = meters.counter(table.CONFLICTS)
        self._reserves = meters.histogram(table.RESERVE_SECONDS)
        self._failures = meters.counter(table.FAILURES)

    def written(self, changes: int, seconds: float) -> None:
        """So many callers' changes went out together."""
        self._batches.observe(changes)
        self._writes.observe(seconds)

    def conflicted(self) -> None:
        """Somebody else has changed the tracker."""
        self._conflicts.inc()

    def changed(self, before: TrackerEntry | None, after: TrackerEntry | None) -> None:
        """An entry is another one now."""
        if after is None:
            return
        if after.active_at and not (before and before.active_at):
            took = (after.active_at - after.reserved_at).total_seconds()
            self._reserves.labels(after.controller).observe(took)
        if after.phase is Phase.ERROR and not (before and before.phase is Phase.ERROR):
            self._failures.labels(after.controller, after.reason or _OTHER).inc()


def tell_waiting(meters: Meters, waiting: WaitingList, now: Callable[[], datetime]) -> None:
    """Fill how many are held back, at the time of a scrape."""
    meters.at_scrape(lambda: meters.gauge(table.HELD_BACK).set(waiting.held_back(now())))


def tell_proxy(meters: Meters, store: TrackerStore, fleet: Fleet, sweep: Sweep) -> None:
    """Fill what tracker, controllers and sweep say at the time of a scrape."""

    def fill() -> None:
        _fill_fleet(meters, fleet.last_views)
        drift = sweep.drift
        kinds = ("unfinished", "lost", "faulty", "replaced", "late", "untracked")
        meters.set(table.DRIFT, {(kind,): len(getattr(drift, kind)) for kind in kinds})
        _fill_tracker(meters, store)

    meters.at_scrape(fill)


def _fill_fleet(meters: Meters, views: tuple[ControllerView, ...]) -> None:
    meters.set(table.REACHABLE, {(view.spec.address,): view.is_reachable for view in views})
    answering = {view.spec.address: view for view in views if view.is_reachable}
    ipus: dict[tuple[str, ...], float] = {}
    for address, view in answering.items():
        ipus[address, "total"] = view.total
        ipus[address, "free"] = view.free
        ipus[address, "faulty"] = view.faulty
    meters.set(table.IPUS, ipus)
    fitting = {
        (a, str(size)): view.fitting(size)
        for a, view in answering.items()
        for size in PARTITION_SIZES
    }
    meters.set(table.FITTING, fitting)


def _fill_tracker(meters: Meters, store: TrackerStore) -> None:
    try:
        tracker = store.tracker
    except TrackerUnavailable:  # not read yet, or this replica stands by
        for gauge in (table.PARTITIONS, table.SHARD_BYTES):
            meters.set(gauge, {})
        return
    counts: Counts[tuple[str, ...]] = Counts()
    for entry in tracker.entries.values():
        counts[entry.controller, entry.phase.value] += 1
    meters.set(table.PARTITIONS, counts)
    sizes = {(shard.name,): shard.budget_used for shard in tracker.shards.values()}
    meters.set(table.SHARD_BYTES, sizes)
    meters.gauge(table.UNREADABLE).set(len(tracker.unreadable))


def count_requests(meters: Meters) -> Middleware:
    """The middleware that times each request under the route that it met."""
    seconds = meters.histogram(table.REQUESTS)

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        answer = await handler(request)
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else _OTHER
        method = request.method if resource is not None else _OTHER
        took = time.perf_counter() - began
        seconds.labels(method, route, str(answer.status)).observe(took)
        return answer

    return count
