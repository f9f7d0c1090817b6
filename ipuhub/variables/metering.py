"""glue: settings of prober, monitor, reports and worker, with PrimeHub Usage's as defaults."""

from __future__ import annotations

from ipuhub.database import primehub_database_url
from ipuhub.variables import ENV

ENV.read_by("Compatible with PrimeHub Usage")
PRIMEHUB_DATABASE_URL = primehub_database_url(
    ENV.text(
        "PRIMEHUB_USAGE_DB_HOST",
        "",
        doc="Setting of PrimeHub Usage, used if DATABASE_URL is not set: host of its database "
        "(`postgres`, port 5432).",
    ),
    ENV.text("PRIMEHUB_USAGE_DB_USER", "", doc="Setting of PrimeHub Usage: user of that database."),
    ENV.text(
        "PRIMEHUB_USAGE_DB_PASSWORD",
        "",
        doc="Setting of PrimeHub Usage: password of that database.",
    ),
)
PRIMEHUB_NAMESPACE = ENV.text(
    "PRIMEHUB_USAGE_WATCHED_NAMESPACE",
    "",
    doc="Setting of PrimeHub Usage: the only namespace whose pods are recorded if neither "
    "USAGE_NAMESPACES nor USAGE_NAMESPACE_SELECTOR is set. patch_legacy_pods reads it, too.",
).strip()
ENV.read_by("Prober, monitor, worker and dashboard")
USAGE_ENABLED = ENV.switch(
    "USAGE_ENABLED",
    True,
    doc="Whether usage is recorded and shown. If off, prober and monitor do not run, and usage "
    "has no pages, API or nightly reports. Set the same value for every process.",
)
ENV.read_by("Prober and monitor")
MIGRATE = ENV.switch(
    "IPUHUB_MIGRATE",
    False,
    doc="Whether this process applies missing database migrations at its start, as run_web always "
    "does. For installations without a dashboard; the Helm chart turns it on there.",
)
ENV.read_by("Prober")
USAGE_NAMESPACES = ENV.words(
    "USAGE_NAMESPACES", [], doc="Namespaces whose pods are recorded; empty: all."
)
USAGE_NAMESPACE_SELECTOR = ENV.text(
    "USAGE_NAMESPACE_SELECTOR",
    "",
    doc="Label selector of the namespaces whose pods are recorded, for example team,stage!=test."
    " The prober follows label changes. Cannot be combined with USAGE_NAMESPACES.",
)
if PRIMEHUB_NAMESPACE and not (ENV.is_set("USAGE_NAMESPACES") or USAGE_NAMESPACE_SELECTOR.strip()):
    USAGE_NAMESPACES = [PRIMEHUB_NAMESPACE]
USAGE_ALL_PODS = ENV.switch(
    "USAGE_ALL_PODS", False, doc="Record all pods, not only those with a usage annotation."
)
USAGE_GPU_RESOURCES = ENV.words(
    "USAGE_GPU_RESOURCES",
    ["nvidia.com/gpu", "nvidia.com/mig-*", "amd.com/gpu", "gpu.intel.com/*"],
    doc="Resources counted as accelerators: each under its own name, and all together as GPUs (a"
    " MIG slice counts as 1). A * at the end matches any text. `graphcore.ai/ipu` counts "
    "as IPUs, or not at all if IPUHUB_IPU_VISIBILITY is on.",
)
ENV.read_by("Prober, monitor, worker and dashboard")
USAGE_LABELS = ENV.label_keys(
    "USAGE_LABELS",
    doc="Keys of pod labels to record, for example app.kubernetes.io/part-of. Usage recorded "
    "from then on can be grouped by them (label:<key>).",
)
ENV.read_by("Prober")
TRUST_CREATED_BY = ENV.switch(
    "IPUHUB_TRUST_CREATED_BY",
    False,
    doc="Count usage as verified. Turn it on only where the admission webhooks record who "
    "creates each job.",
)
ENV.read_by("Monitor")
MONITOR_STALE_SECONDS = ENV.number(
    "MONITOR_STALE_SECONDS",
    300.0,
    minimum=1.0,
    doc="How long a running pod may go without a recorded change before the monitor checks it "
    "with the API server.",
)
MONITOR_ROUND_SECONDS = ENV.number(
    "MONITOR_ROUND_SECONDS", 60.0, minimum=1.0, doc="Time between two rounds of the monitor."
)
ENV.read_by("Dashboard")
USAGE_OPEN_PRIMEHUB_PATHS = ENV.networks(
    "USAGE_OPEN_PRIMEHUB_PATHS",
    doc="Networks that may read /report/monthly* without a token, over plain HTTP, too. Meant "
    "for PrimeHub's console, which sends no token. Clients in these networks see every "
    "namespace.",
)
ENV.read_by("Worker, dashboard and report commands")
USAGE_RETENTION_MONTHS = ENV.integer(
    "USAGE_RETENTION_MONTHS",
    0,
    minimum=0,
    doc="Number of full months before the current month for which pods, partitions and capacity "
    "are kept row by row. Older rows are deleted only if the report of their month is "
    "closed. Daily totals and reports are kept. 0: keep forever.",
)
USAGE_RETENTION_GAPS_MONTHS = ENV.integer(
    "USAGE_RETENTION_GAPS_MONTHS",
    0,
    minimum=0,
    doc="Number of full months before the current month for which gaps in the record are kept; 0: "
    "keep forever.",
)
USAGE_RETENTION_FAULTS_MONTHS = ENV.integer(
    "USAGE_RETENTION_FAULTS_MONTHS",
    0,
    minimum=0,
    doc="Number of full months before the current month for which faults in the record are kept; "
    "0: keep forever.",
)
USAGE_QUERY_SECONDS = ENV.integer(
    "USAGE_QUERY_SECONDS",
    20,
    minimum=0,
    maximum=3600,
    doc="Longest time PostgreSQL may spend on adding up records of single pods for a page or an "
    "API answer (for example sums by job, or by user and hour). A longer query is rejected with "
    "a hint on how to narrow it. 0: no limit.",
)
REPORT_ZONE = ENV.zone(
    "IPUHUB_REPORT_ZONE",
    "UTC",
    doc="Time zone of the month reports: defines when a month begins and when the daily run "
    "starts. Closed months keep their time zone, and a month next to a closed month begins "
    "or ends where the closed month does.",
)
REPORT_CURRENCY = ENV.pattern(
    "IPUHUB_REPORT_CURRENCY",
    "EUR",
    "[A-Z]{3}",
    doc="Currency of rates and costs: three capital letters. Existing reports keep theirs.",
)
REPORT_COST_DECIMALS = ENV.integer(
    "IPUHUB_REPORT_COST_DECIMALS",
    2,
    minimum=0,
    maximum=6,
    doc="Decimals of amounts in summaries, rounded half to even. Lines of details always have 5.",
)
CORRECTED_MONTHS = ENV.integer(
    "IPUHUB_CORRECTED_MONTHS",
    12,
    minimum=0,
    doc="How many closed months each daily run compares with the records to find corrections.",
)
RANGE_REPORT_HOURS = ENV.integer(
    "IPUHUB_RANGE_REPORT_HOURS",
    24,
    minimum=1,
    doc="How long a range report can be downloaded after it was requested.",
)
REPORT_SCHEDULE = ENV.cron(
    "IPUHUB_REPORT_SCHEDULE",
    "0 0 * * *",
    doc="When beat starts the daily run of the month reports: minute, hour, day of the month, "
    "month and day of the week in IPUHUB_REPORT_ZONE. 0 or 7 is Sunday. The dashboard shows it.",
)
ENV.read_by("Worker")
BEAT_SCHEDULE_PATH = ENV.text(
    "IPUHUB_BEAT_SCHEDULE_PATH",
    "celerybeat-schedule",
    doc="File in which the worker with --beat keeps when its nightly tasks last ran. The folder "
    "must be writable; in our image it is in /tmp.",
)
TASK_QUERY_SECONDS = ENV.integer(
    "IPUHUB_TASK_QUERY_SECONDS",
    900,
    minimum=1,
    doc="Longest time of one PostgreSQL query of the worker's tasks, reports included "
    "(statement_timeout). PostgreSQL also ends a session in which a task runs no query for that "
    "long. If PostgreSQL sends no answer for 5 s longer (for twice the time, if that is less), the "
    "task fails and the worker runs the next task.",
)
WORKER_HEALTH_PORT = ENV.port(
    "IPUHUB_WORKER_HEALTH_PORT",
    0,
    doc="Port of /healthz and /readyz of the Celery worker, or of beat as a process of its own, at "
    "IPUHUB_HEALTH_HOST; not for workers with --pool solo, which look for nothing while they work. "
    "0: none.",
)
