"""domain: the metrics of the web process that are our own."""

from __future__ import annotations

from ipuhub.process.metrictable import Kind, Metric

OPEN_READS = Metric(
    "ipuhub_open_report_reads_total",
    Kind.COUNTER,
    "Reads below /report/monthly without a token, from USAGE_OPEN_PRIMEHUB_PATHS.",
    "Who reads reports without signing in, and does anybody still?",
    ("path",),
)
WEB = (OPEN_READS,)
