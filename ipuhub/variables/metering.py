"""glue: what prober, reports and worker read.

The variables of PrimeHub Usage, read as defaults by a site that comes from there.
"""

from __future__ import annotations

from ipuhub.database import primehub_database_url
from ipuhub.variables import ENV

ENV.read_by("Compatible with PrimeHub Usage")
PRIMEHUB_DATABASE_URL = primehub_database_url(
    ENV.text(
        "PRIMEHUB_USAGE_DB_HOST",
        "",
        doc="PrimeHub Usage's: without DATABASE_URL, the database `postgres` on port 5432 of this "
        "host.",
    ),
    ENV.text("PRIMEHUB_USAGE_DB_USER", "", doc="PrimeHub Usage's: the user of that database."),
    ENV.text(
        "PRIMEHUB_USAGE_DB_PASSWORD", "", doc="PrimeHub Usage's: the password of that database."
    ),
)
PRIMEHUB_NAMESPACE = ENV.text(
    "PRIMEHUB_USAGE_WATCHED_NAMESPACE",
    "",
    doc="PrimeHub Usage's: the only namespace whose pods are recorded where neither "
    "USAGE_NAMESPACES nor USAGE_NAMESPACE_SELECTOR is set, and that patch_legacy_pods reads.",
).strip()
ENV.read_by("Prober, monitor, worker and dashboard")
USAGE_ENABLED = ENV.switch(
    "USAGE_ENABLED",
    True,
    doc="Off: neither prober nor monitor run, and there are no pages, addresses or nightly reports "
    "of usage. Set it for every process alike.",
)
ENV.read_by("Prober")
CAPACITY_POLL_SECONDS = ENV.number(
    "IPUHUB_CAPACITY_POLL_SECONDS",
    10.0,
    doc="How often the prober asks the proxy how many IPUs there are and are free.",
)
USAGE_NAMESPACES = ENV.words(
    "USAGE_NAMESPACES", [], doc="Namespaces whose pods are recorded; empty: all."
)
USAGE_NAMESPACE_SELECTOR = ENV.text(
    "USAGE_NAMESPACE_SELECTOR",
    "",
    doc="Label selector of the namespaces whose pods are recorded, followed live, such as "
    "team,stage!=test; not together with USAGE_NAMESPACES.",
)
if PRIMEHUB_NAMESPACE and not (ENV.is_set("USAGE_NAMESPACES") or USAGE_NAMESPACE_SELECTOR.strip()):
    USAGE_NAMESPACES = [PRIMEHUB_NAMESPACE]
USAGE_ALL_PODS = ENV.switch(
    "USAGE_ALL_PODS", False, doc="Record all pods, not only those with a usage annotation."
)
USAGE_GPU_RESOURCES = ENV.words(
    "USAGE_GPU_RESOURCES",
    ["nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*"],
    doc="Resources counted as accelerators, each by its name and all together as GPUs (a MIG slice "
    "as one); a * at the end stands for anything. `graphcore.ai/ipu` counts as IPUs, always.",
)
ENV.read_by("Prober, monitor, worker and dashboard")
USAGE_LABELS = ENV.label_keys(
    "USAGE_LABELS",
    doc="Keys of pod labels to record, such as app.kubernetes.io/part-of; usage can be grouped by "
    "them (label:<key>) from then on.",
)
ENV.read_by("Prober")
TRUST_CREATED_BY = ENV.switch(
    "IPUHUB_TRUST_CREATED_BY",
    False,
    doc="Usage counts as verified: on only where the admission webhooks stamp who makes a job.",
)
ENV.read_by("Monitor")
MONITOR_STALE_SECONDS = ENV.number(
    "MONITOR_STALE_SECONDS",
    300.0,
    minimum=1.0,
    doc="The monitor asks the API server about running pods of which nothing was recorded for this "
    "long.",
)
MONITOR_ROUND_SECONDS = ENV.number(
    "MONITOR_ROUND_SECONDS", 60.0, minimum=1.0, doc="Time between two rounds of the monitor."
)
ENV.read_by("Prober")
PROBER_BATCH_SECONDS = ENV.number(
    "IPUHUB_PROBER_BATCH_SECONDS", 0.2, doc="How old a change gets before it is committed."
)
PROBER_BATCH_EVENTS = ENV.integer(
    "IPUHUB_PROBER_BATCH_EVENTS", 1000, minimum=1, doc="Changes that are committed at once."
)
ENV.read_by("Dashboard")
USAGE_OPEN_PRIMEHUB_PATHS = ENV.networks(
    "USAGE_OPEN_PRIMEHUB_PATHS",
    doc="Networks that may read /report/monthly* without a token, by plain HTTP too: those of "
    "PrimeHub's console, which sends none. Everybody there sees every namespace.",
)
ENV.read_by("Worker, dashboard and report commands")
USAGE_RETENTION_MONTHS = ENV.integer(
    "USAGE_RETENTION_MONTHS",
    0,
    minimum=0,
    doc="Whole months before this one for which pods, partitions and capacity are kept row by row, "
    "where the older month's report is closed; sums by day and reports stay. 0: for ever.",
)
USAGE_RETENTION_GAPS_MONTHS = ENV.integer(
    "USAGE_RETENTION_GAPS_MONTHS",
    0,
    minimum=0,
    doc="Whole months before this one for which gaps in the record are kept. 0: for ever.",
)
USAGE_RETENTION_FAULTS_MONTHS = ENV.integer(
    "USAGE_RETENTION_FAULTS_MONTHS",
    0,
    minimum=0,
    doc="Whole months before this one for which faults in the record are kept. 0: for ever.",
)
USAGE_QUERY_SECONDS = ENV.integer(
    "USAGE_QUERY_SECONDS",
    20,
    minimum=0,
    maximum=3600,
    doc="Longest time that PostgreSQL adds up records of single pods for a page or an answer of "
    "the API (sums by job, by hour and the like); then the question is refused with the remedy. "
    "0: no limit.",
)
REPORT_ZONE = ENV.zone(
    "IPUHUB_REPORT_ZONE",
    "UTC",
    doc="Time zone of the month reports: when a month begins, and when the daily run is. "
    "Closed months keep those of before; a month beside one begins or ends where that does.",
)
REPORT_CURRENCY = ENV.pattern(
    "IPUHUB_REPORT_CURRENCY",
    "EUR",
    "[A-Z]{3}",
    doc="Currency of rates and costs: three capital letters. Reports made before keep theirs.",
)
REPORT_COST_DECIMALS = ENV.integer(
    "IPUHUB_REPORT_COST_DECIMALS",
    2,
    minimum=0,
    maximum=6,
    doc="Decimals of money in summaries; half to even. Lines of details always have 5.",
)
CORRECTED_MONTHS = ENV.integer(
    "IPUHUB_CORRECTED_MONTHS",
    12,
    minimum=0,
    doc="How many closed months each daily run compares with the records, for a correction.",
)
RANGE_REPORT_HOURS = ENV.integer(
    "IPUHUB_RANGE_REPORT_HOURS",
    24,
    minimum=1,
    doc="How long the report of a range that somebody asked for can be downloaded.",
)
