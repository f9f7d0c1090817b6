"""io: the common parts of every process: health, metrics, Lease and web page."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import ProcessCollector

from ipuhub.kube.access import Reviewer
from ipuhub.process.health import Health, build_runner, listening
from ipuhub.process.leadership import Leadership
from ipuhub.process.metrics import Kind, Meters, Metric, Page
from ipuhub.process.metricspage import Guard, metrics_route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.informer import Informer
    from ipuhub.process.leadership import LeadershipOptions

EVERY_PROCESS = Meters()
READY = EVERY_PROCESS.gauge(
    "ipuhub_ready",
    "1: the check of /readyz or /healthz passes; 0: it fails.",
    "Which check of a process fails?",
    "check",
)
ProcessCollector(registry=EVERY_PROCESS.registry)
for _metric in (
    Metric(
        "process_resident_memory_bytes",
        Kind.GAUGE,
        "Memory of the process.",
        "Does the memory use of a process grow?",
    ),
    Metric(
        "process_cpu_seconds_total",
        Kind.COUNTER,
        "CPU time of the process.",
        "Which process uses the CPU?",
    ),
    Metric(
        "process_start_time_seconds",
        Kind.GAUGE,
        "When the process started.",
        "Does a process restart repeatedly?",
    ),
    Metric(
        "process_open_fds",
        Kind.GAUGE,
        "Open files and connections.",
        "Does a process leak connections?",
    ),
):
    EVERY_PROCESS.describe(_metric)

WITH_LEASE = Meters()
LEADER = WITH_LEASE.gauge(
    "ipuhub_leader",
    "1: this replica leads; 0: it stands by. The sum over all replicas is 1.",
    "Which replica leads? Did the leader change?",
)
LEASE_PROBLEM = WITH_LEASE.gauge(
    "ipuhub_lease_problem",
    "1: the leader is unknown, or the Lease cannot be renewed.",
    "Why is there no leader?",
)

WITH_API = Meters()
KUBE_SECONDS = WITH_API.histogram(
    "ipuhub_kube_request_duration_seconds",
    "Duration of calls to the API server, including retries that the API server requested.",
    "Is the API server slow?",
    "verb",
    "resource",
)
KUBE_REQUESTS = WITH_API.counter(
    "ipuhub_kube_requests_total",
    "Calls to the API server; code: HTTP status of a failure, ok, or none (no response).",
    "Which calls does the API server reject?",
    "verb",
    "resource",
    "code",
)
KUBE_MALFORMED = WITH_API.counter(
    "ipuhub_kube_malformed_objects_total",
    "Pods, Nodes and Leases with fields of wrong types, which are ignored; counted at each read. "
    "The log and the page System name objects and fields.",
    "Does the API server send objects that cannot be read in full?",
    "resource",
)

WITH_WATCHES = Meters()
WATCH_AGE = WITH_WATCHES.gauge(
    "ipuhub_watch_age_seconds",
    "Seconds since the last sign of life of a watch; up to about 70 s for an idle watch. Absent "
    "before the first list, for example on a standby replica.",
    "Is a watch stale?",
    "resource",
)
WATCH_LISTS = WITH_WATCHES.counter(
    "ipuhub_watch_lists_total",
    "Full lists, including the first.",
    "Does a watch fail repeatedly?",
    "resource",
)
WATCH_OBJECTS = WITH_WATCHES.gauge(
    "ipuhub_watch_objects",
    "Objects in the local cache.",
    "What uses the memory?",
    "resource",
)


class Process:
    """A process with `/healthz`, `/readyz` and `/metrics`; `meters` are its own metrics."""

    def __init__(self, *meters: Meters) -> None:
        self.health = Health()
        self.metrics = Page(EVERY_PROCESS, *meters)
        self.metrics.at_scrape(self._fill_ready)

    @asynccontextmanager
    async def serving(self, host: str, port: int, guard: Guard) -> AsyncIterator[None]:
        """Serve the three pages meanwhile. Raises ListenError when the port is taken."""
        runner = build_runner(self.health.app([metrics_route(self.metrics, guard)]))
        async with listening(runner, host, port, "IPUHUB_HEALTH_PORT"):
            yield

    def _fill_ready(self) -> None:
        checks = self.health.checks()
        READY.set_all({(name,): not problem for name, problem in checks.items()})


class ClusterProcess(Process):
    """A process that works with the API server, always or while it leads."""

    def __init__(self, client: KubeClient, *meters: Meters) -> None:
        super().__init__(WITH_API, *meters)
        self.client = client
        self.client.on_called = _count_call
        self.client.on_malformed = lambda plural: KUBE_MALFORMED.labels(plural).inc()
        self.leadership = Leadership(client, None)

    def metrics_guard(self, token: str) -> Guard:
        """Return the guard of the metrics: it allows holders of `token`, and clients that the API
        server allows."""
        reviewer = Reviewer(self.client, audience="")
        return Guard(token, lambda: reviewer)

    def elect(self, options: LeadershipOptions | None) -> None:
        """Work only while it leads by this Lease; None: always."""
        self.leadership = leadership = Leadership(self.client, options)
        self.health.ask("leader election", lambda: leadership.problem)
        self.metrics.show(WITH_LEASE)
        self.metrics.at_scrape(lambda: LEADER.set(leadership.is_leading))
        self.metrics.at_scrape(lambda: LEASE_PROBLEM.set(bool(leadership.problem)))

    def follow(self, informers: Callable[[], Mapping[str, Informer]]) -> None:
        """Show the watches; `informers` returns the informers of the present term, by name."""
        self.metrics.show(WITH_WATCHES)
        self.metrics.at_scrape(lambda: _fill_watches(informers()))


def _count_call(verb: str, resource: str, code: str, took: float) -> None:
    KUBE_SECONDS.labels(verb, resource).observe(took)
    KUBE_REQUESTS.labels(verb, resource, code).inc()


def _fill_watches(informers: Mapping[str, Informer]) -> None:
    now = time.monotonic()
    # Watches without a first list are on /readyz; a standby, which has no watches, is no alarm.
    heard = {
        (name,): informer.stale_seconds(now)
        for name, informer in informers.items()
        if informer.relists
    }
    WATCH_AGE.set_all(heard)
    WATCH_LISTS.count_up({(name,): informer.relists for name, informer in informers.items()})
    WATCH_OBJECTS.set_all({(name,): len(informer) for name, informer in informers.items()})
