"""io: the proxy's metrics: counted as it works, or read off its state when somebody asks.

The metrics of the V-IPU Proxy.
"""

from __future__ import annotations

import time
from collections import Counter as Counts
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ipuhub.process.metrictable import LONG_SECONDS, Kind, Metric
from partitions.errors import TrackerUnavailable
from partitions.proxy.lifecycle import Phase
from partitions.proxy.store import StoreMeasures
from partitions.vipu.topology import PARTITION_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from aiohttp.typedefs import Middleware

    from ipuhub.process.metrics import Meters
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.queue import WaitingList
    from partitions.proxy.requests import Handler
    from partitions.proxy.store import TrackerStore
    from partitions.proxy.sweep import Sweep

REQUESTS = Metric(
    "ipuhub_proxy_request_duration_seconds",
    Kind.HISTOGRAM,
    "Requests to the proxy; a PUT waits up to a second for its partition.",
    "Does the proxy answer, how fast, and with which errors?",
    ("method", "route", "code"),
)
PARTITIONS = Metric(
    "ipuhub_partitions",
    Kind.GAUGE,
    "Partitions in the tracker by phase; released ones are tombstones.",
    "How many partitions are where, and do some hang?",
    ("controller", "phase"),
)
RESERVE_SECONDS = Metric(
    "ipuhub_partition_reserve_duration_seconds",
    Kind.HISTOGRAM,
    "From a partition's reservation to ACTIVE.",
    "Is V-IPU slow to make partitions?",
    ("controller",),
    LONG_SECONDS,
)
FAILURES = Metric(
    "ipuhub_partition_errors_total",
    Kind.COUNTER,
    "Partitions that went to error, by reason.",
    "Which partitions fail, and why?",
    ("controller", "reason"),
)
REACHABLE = Metric(
    "ipuhub_vipu_controller_reachable",
    Kind.GAUGE,
    "1: the V-IPU controller answered the last look (every 5 s).",
    "Does a V-IPU controller not answer?",
    ("controller",),
)
IPUS = Metric(
    "ipuhub_vipu_ipus",
    Kind.GAUGE,
    "IPUs by state: total, free, faulty (in partitions in ERROR). Of silent controllers: none.",
    "Are we out of IPUs?",
    ("controller", "state"),
)
FITTING = Metric(
    "ipuhub_vipu_fitting_partitions",
    Kind.GAUGE,
    "How many partitions of a size fit now, all at once.",
    "Are free IPUs too scattered for the jobs that wait?",
    ("controller", "ipus"),
)
HELD_BACK = Metric(
    "ipuhub_partitions_held_back",
    Kind.GAUGE,
    "Instances that would fit now, but for an older one that a V-IPU controller is kept for.",
    "Do jobs wait although IPUs are free?",
)
BATCH = Metric(
    "ipuhub_tracker_batch_changes",
    Kind.HISTOGRAM,
    "Callers whose changes went out as one write of the tracker.",
    "How busy is the tracker's writer?",
    buckets=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
)
WRITE_SECONDS = Metric(
    "ipuhub_tracker_write_duration_seconds",
    Kind.HISTOGRAM,
    "Time of a write of the tracker.",
    "Are partitions slow because the tracker is?",
)
CONFLICTS = Metric(
    "ipuhub_tracker_conflicts_total",
    Kind.COUNTER,
    "Writes of the tracker that found it changed by somebody else.",
    "Does a second writer touch the tracker?",
)
SHARD_BYTES = Metric(
    "ipuhub_tracker_shard_bytes",
    Kind.GAUGE,
    "Bytes set aside in a ConfigMap of the tracker; a new one begins at 64,000.",
    "Does the tracker grow?",
    ("shard",),
)
UNREADABLE = Metric(
    "ipuhub_tracker_unreadable_entries",
    Kind.GAUGE,
    "Entries of the tracker that nobody can read.",
    "Has somebody damaged the tracker?",
)
DRIFT = Metric(
    "ipuhub_drift_partitions",
    Kind.GAUGE,
    "What the last sweep found: unfinished, lost, faulty, replaced (by another's), late (made "
    "after their release), untracked (not ours).",
    "Do tracker and controllers disagree?",
    ("kind",),
)
PROXY = (
    REQUESTS,
    PARTITIONS,
    RESERVE_SECONDS,
    FAILURES,
    REACHABLE,
    IPUS,
    FITTING,
    HELD_BACK,
    BATCH,
    WRITE_SECONDS,
    CONFLICTS,
    SHARD_BYTES,
    UNREADABLE,
    DRIFT,
)
_OTHER: Final = "other"


class ProxyMeasures(StoreMeasures):
    """Counts what the tracker's writer does; `meters` has the proxy's table."""

    def __init__(self, meters: Meters) -> None:
        self._batches = meters.histogram(BATCH)
        self._writes = meters.histogram(WRITE_SECONDS)
        self._conflicts = meters.counter(CONFLICTS)
        self._reserves = meters.histogram(RESERVE_SECONDS)
        self._failures = meters.counter(FAILURES)

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
    meters.at_scrape(lambda: meters.gauge(HELD_BACK).set(waiting.held_back(now())))


def tell_proxy(meters: Meters, store: TrackerStore, fleet: Fleet, sweep: Sweep) -> None:
    """Fill what tracker, controllers and sweep say at the time of a scrape."""

    def fill() -> None:
        _fill_fleet(meters, fleet.last_views)
        drift = sweep.drift
        kinds = ("unfinished", "lost", "faulty", "replaced", "late", "untracked")
        meters.set(DRIFT, {(kind,): len(getattr(drift, kind)) for kind in kinds})
        _fill_tracker(meters, store)

    meters.at_scrape(fill)


def _fill_fleet(meters: Meters, views: tuple[ControllerView, ...]) -> None:
    meters.set(REACHABLE, {(view.spec.address,): view.is_reachable for view in views})
    answering = {view.spec.address: view for view in views if view.is_reachable}
    ipus: dict[tuple[str, ...], float] = {}
    for address, view in answering.items():
        ipus[address, "total"] = view.total
        ipus[address, "free"] = view.free
        ipus[address, "faulty"] = view.faulty
    meters.set(IPUS, ipus)
    fitting = {
        (a, str(size)): view.fitting(size)
        for a, view in answering.items()
        for size in PARTITION_SIZES
    }
    meters.set(FITTING, fitting)


def _fill_tracker(meters: Meters, store: TrackerStore) -> None:
    try:
        tracker = store.tracker
    except TrackerUnavailable:  # not read yet, or this replica stands by
        for gauge in (PARTITIONS, SHARD_BYTES):
            meters.set(gauge, {})
        return
    counts: Counts[tuple[str, ...]] = Counts()
    for entry in tracker.entries.values():
        counts[entry.controller, entry.phase.value] += 1
    meters.set(PARTITIONS, counts)
    sizes = {(shard.name,): shard.budget_used for shard in tracker.shards.values()}
    meters.set(SHARD_BYTES, sizes)
    meters.gauge(UNREADABLE).set(len(tracker.unreadable))


def count_requests(meters: Meters) -> Middleware:
    """The middleware that times each request under the route that it met."""
    seconds = meters.histogram(REQUESTS)

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
