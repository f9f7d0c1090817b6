"""io: the proxy's metrics: counted as it works, or read from its state on each scrape."""

from __future__ import annotations

import time
from collections import Counter as Counts
from typing import TYPE_CHECKING

from aiohttp import web

from ipuhub.partition import Phase
from ipuhub.process.metrics import LONG_SECONDS, OTHER, Meters
from partitions.proxy.circuit import Calls, CircuitState
from partitions.vipu.topology import PARTITION_SIZES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aiohttp.typedefs import Handler

    from partitions.proxy.circuit import CircuitFacts
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.drift import Drift
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.tracker import Tracker

PROXY = Meters()
REQUESTS = PROXY.histogram(
    "ipuhub_proxy_request_duration_seconds",
    "Requests to the proxy. A PUT waits up to 1 s for its partition.",
    "Does the proxy answer, how fast, and with which errors?",
    "method",
    "route",
    "code",
)
PARTITIONS = PROXY.gauge(
    "ipuhub_partitions",
    "Partitions in the tracker by phase; released partitions are tombstones.",
    "How many partitions are in each phase? Are any stuck?",
    "controller",
    "phase",
)
RESERVE_SECONDS = PROXY.histogram(
    "ipuhub_partition_reserve_duration_seconds",
    "Time from the reservation of a partition to ACTIVE.",
    "Is V-IPU slow to create partitions?",
    "controller",
    buckets=LONG_SECONDS,
)
FAILURES = PROXY.counter(
    "ipuhub_partition_errors_total",
    "Partitions that entered the error phase, by reason.",
    "Which partitions fail, and why?",
    "controller",
    "reason",
)
REACHABLE = PROXY.gauge(
    "ipuhub_vipu_controller_reachable",
    "1: the V-IPU controller answered the last poll (every 5 s).",
    "Is a V-IPU controller unreachable?",
    "controller",
)
CIRCUIT = PROXY.gauge(
    "ipuhub_vipu_circuit_state",
    "1 for the present state of a V-IPU controller's circuit breaker, 0 for the others: closed "
    "(calls are sent), open (calls fail at once), half-open (one call tries). calls: all, or one "
    "kind of order (create, reset, remove, key) that is not answered although questions are.",
    "Does the proxy refuse calls to a V-IPU controller that does not answer?",
    "controller",
    "calls",
    "state",
)
CIRCUIT_TRIPS = PROXY.counter(
    "ipuhub_vipu_circuit_trips_total",
    "How often calls to a V-IPU controller stopped because it did not answer: 3 calls in a row. "
    "A failed try while they are stopped does not count.",
    "Does a V-IPU controller fail again and again?",
    "controller",
    "calls",
)
IPUS = PROXY.gauge(
    "ipuhub_vipu_ipus",
    "IPUs by state: total, free, faulty (in partitions in ERROR). Absent for unreachable "
    "controllers.",
    "Are we out of IPUs?",
    "controller",
    "state",
)
FITTING = PROXY.gauge(
    "ipuhub_vipu_fitting_partitions",
    "How many partitions of a size fit at the same time now.",
    "Are free IPUs too fragmented for the waiting jobs?",
    "controller",
    "ipus",
)
HELD_BACK = PROXY.gauge(
    "ipuhub_partitions_held_back",
    "Instances that would fit now, but wait because a V-IPU controller is reserved for an older "
    "instance.",
    "Do jobs wait although IPUs are free?",
)
BATCH = PROXY.histogram(
    "ipuhub_tracker_batch_changes",
    "Changes combined into one write of the tracker.",
    "How busy is the tracker's writer?",
    buckets=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
)
WRITE_SECONDS = PROXY.histogram(
    "ipuhub_tracker_write_duration_seconds",
    "Duration of a write of the tracker.",
    "Are partitions slow because the tracker is?",
)
CONFLICTS = PROXY.counter(
    "ipuhub_tracker_conflicts_total",
    "Writes of the tracker that failed because another client had changed the tracker.",
    "Does another client write to the tracker?",
)
SHARD_BYTES = PROXY.gauge(
    "ipuhub_tracker_shard_bytes",
    "Bytes reserved in a ConfigMap of the tracker; a new ConfigMap begins at 64,000.",
    "Does the tracker grow?",
    "shard",
)
UNREADABLE = PROXY.gauge(
    "ipuhub_tracker_unreadable_entries",
    "Entries of the tracker that cannot be parsed.",
    "Is the tracker damaged?",
)
DRIFT = PROXY.gauge(
    "ipuhub_drift_partitions",
    "Findings of the last sweep: unfinished, lost, faulty, replaced (by a foreign partition), "
    "late (created after their release), untracked (not created by IPUHub).",
    "Do the tracker and the V-IPU controllers disagree?",
    "kind",
)
EXTENDED = PROXY.counter(
    "ipuhub_scheduler_questions_total",
    "Questions of kube-scheduler to the extender, by pod: job (its partition is known), unknown "
    "(a job without a partition), other (not a job's pod).",
    "Does kube-scheduler ask the extender, and about which pods?",
    "verb",
    "pod",
)
ADVERTISED = PROXY.gauge(
    "ipuhub_advertised_ipus",
    "Capacity graphcore.ai/ipu of the nodes that IPUHub shows IPUs on; only from the leader.",
    "Do the nodes show as many IPUs as the V-IPU controllers have?",
    "node",
)
NODE_WRITES = PROXY.counter(
    "ipuhub_node_writes_total",
    "Writes to nodes for IPU visibility: metadata (labels) or status (capacity).",
    "How often do kubelets reset the capacity?",
    "part",
)


def count_change(before: TrackerEntry | None, after: TrackerEntry | None) -> None:
    """Count a change of a tracker entry."""
    if after is None:
        return
    if after.active_at and not (before and before.active_at):
        took = (after.active_at - after.reserved_at).total_seconds()
        RESERVE_SECONDS.labels(after.controller).observe(took)
    if after.phase is Phase.ERROR and not (before and before.phase is Phase.ERROR):
        FAILURES.labels(after.controller, after.reason or OTHER).inc()


def fill_drift(drift: Drift) -> None:
    """Set the metrics of the last sweep's findings."""
    kinds = ("unfinished", "lost", "faulty", "replaced", "late", "untracked")
    DRIFT.set_all({(kind,): len(getattr(drift, kind)) for kind in kinds})


def fill_fleet(views: Collection[ControllerView]) -> None:
    """Say how the V-IPU controllers stand."""
    REACHABLE.set_all({(view.spec.address,): view.is_reachable for view in views})
    answering = {view.spec.address: view for view in views if view.is_reachable}
    ipus: dict[tuple[str, ...], float] = {}
    for address, view in answering.items():
        ipus[address, "total"] = view.total
        ipus[address, "free"] = view.free
        ipus[address, "faulty"] = view.faulty
    IPUS.set_all(ipus)
    fitting = {
        (a, str(size)): view.fitting(size)
        for a, view in answering.items()
        for size in PARTITION_SIZES
    }
    FITTING.set_all(fitting)


def fill_circuits(circuits: Mapping[str, CircuitFacts]) -> None:
    """Set the metrics of the circuit breakers, by the address of the controller."""
    CIRCUIT.set_all(
        {
            (address, calls.value, state.value): known.state is state
            for address, facts in circuits.items()
            for calls in Calls
            for known in (facts if calls is Calls.ALL else facts.of(calls),)
            for state in CircuitState
        }
    )


def fill_tracker(tracker: Tracker | None) -> None:
    """Set the metrics of the tracker; None: it is not read yet, or this replica stands by."""
    if tracker is None:
        PARTITIONS.clear()
        SHARD_BYTES.clear()
        return
    counts: Counts[tuple[str, ...]] = Counts()
    for entry in tracker.entries.values():
        counts[entry.controller, entry.phase.value] += 1
    PARTITIONS.set_all(counts)
    SHARD_BYTES.set_all({(shard.name,): shard.budget_used for shard in tracker.shards.values()})
    UNREADABLE.set(len(tracker.unreadable))


@web.middleware
async def count_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Time each request under the route that it met."""
    began = time.perf_counter()
    answer = await handler(request)
    resource = request.match_info.route.resource
    route = resource.canonical if resource is not None else OTHER
    method = request.method if resource is not None else OTHER
    took = time.perf_counter() - began
    REQUESTS.labels(method, route, str(answer.status)).observe(took)
    return answer
