"""domain: what a metric is, and those that every process has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


FAST_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0)
CALL_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)
LONG_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: `question` is what somebody on call asks, `help` what the number is.

    `is_foreign`: a library exposes it, this is only its description.
    """

    name: str
    kind: Kind
    help: str
    question: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = CALL_SECONDS
    is_foreign: bool = False


LEADER = Metric(
    "ipuhub_leader",
    Kind.GAUGE,
    "1: this replica works; 0: it stands by. The sum over replicas is 1.",
    "Is somebody leading, and who? Did that change?",
)
LEASE_PROBLEM = Metric(
    "ipuhub_lease_problem",
    Kind.GAUGE,
    "1: it is not known who leads, or the Lease cannot be renewed.",
    "Why does nobody lead?",
)
READY = Metric(
    "ipuhub_ready",
    Kind.GAUGE,
    "1: the check of /readyz or /healthz holds; 0: it does not.",
    "What does a process lack?",
    ("check",),
)
KUBE_SECONDS = Metric(
    "ipuhub_kube_request_duration_seconds",
    Kind.HISTOGRAM,
    "Time of calls to the API server, with retries that it asked for.",
    "Is the API server slow?",
    ("verb", "resource"),
)
KUBE_REQUESTS = Metric(
    "ipuhub_kube_requests_total",
    Kind.COUNTER,
    "Calls to the API server; code: HTTP status of a failure, ok, or none (no answer).",
    "Does the API server refuse us, and what?",
    ("verb", "resource", "code"),
)
WATCH_AGE = Metric(
    "ipuhub_watch_age_seconds",
    Kind.GAUGE,
    "Since the last sign of life of a watch; a quiet one comes to about 70 s. None before the "
    "first list, as on a standby.",
    "Is a watch stale?",
    ("resource",),
)
WATCH_LISTS = Metric(
    "ipuhub_watch_lists_total",
    Kind.COUNTER,
    "Full lists taken, the first included.",
    "Does a watch break off again and again?",
    ("resource",),
)
WATCH_OBJECTS = Metric(
    "ipuhub_watch_objects",
    Kind.GAUGE,
    "Objects in the local copy.",
    "What fills the memory?",
    ("resource",),
)

EVERY_PROCESS = (
    READY,
    Metric(
        "process_resident_memory_bytes",
        Kind.GAUGE,
        "Memory of the process.",
        "Does a process grow?",
        is_foreign=True,
    ),
    Metric(
        "process_cpu_seconds_total",
        Kind.COUNTER,
        "Processor time of the process.",
        "Which process burns the processor?",
        is_foreign=True,
    ),
    Metric(
        "process_start_time_seconds",
        Kind.GAUGE,
        "When the process started.",
        "Does a process restart again and again?",
        is_foreign=True,
    ),
    Metric(
        "process_open_fds",
        Kind.GAUGE,
        "Open files and connections.",
        "Does a process leak connections?",
        is_foreign=True,
    ),
)
WITH_LEASE = (LEADER, LEASE_PROBLEM)
WITH_API = (KUBE_SECONDS, KUBE_REQUESTS)
WITH_WATCHES = (WATCH_AGE, WATCH_LISTS, WATCH_OBJECTS)
