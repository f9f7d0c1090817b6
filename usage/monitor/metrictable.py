"""domain: the metrics of the monitor."""

from __future__ import annotations

from ipuhub.process.metrictable import Kind, Metric

CHECKED = Metric(
    "ipuhub_monitor_checked_total",
    Kind.COUNTER,
    "Running pods that the API server was asked about, since nothing was recorded of them.",
    "Are there pods of which nothing is recorded for long?",
)
CLOSED = Metric(
    "ipuhub_monitor_closed_total",
    Kind.COUNTER,
    "Lifetimes ended by the monitor, estimated: their pods were gone.",
    "Does the prober miss ends?",
)
LEFT = Metric(
    "ipuhub_monitor_left_total",
    Kind.COUNTER,
    "Pods found gone and not ended: the prober is about to record their end, or somebody wrote "
    "their row meanwhile.",
    "Does the monitor wait for the prober?",
)
FAILURES = Metric(
    "ipuhub_monitor_failures_total",
    Kind.COUNTER,
    "Questions without a full answer, and rounds that Postgres stopped: nothing was ended then.",
    "Can the monitor judge?",
    ("of",),
)
LAST_ROUND = Metric(
    "ipuhub_monitor_round_age_seconds",
    Kind.GAUGE,
    "Since the last round that asked all it had to ask; since the start before the first.",
    "Does the monitor work?",
)
MONITOR = (CHECKED, CLOSED, LEFT, FAILURES, LAST_ROUND)
