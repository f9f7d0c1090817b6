"""domain: the metrics of the V-IPU Proxy."""

from __future__ import annotations

from ipuhub.process.metrictable import LONG_SECONDS, Kind, Metric

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
