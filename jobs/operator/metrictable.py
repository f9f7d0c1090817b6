"""domain: the metrics of the operator and of the webhooks."""

from __future__ import annotations

from ipuhub.process.metrictable import FAST_SECONDS, LONG_SECONDS, Kind, Metric

PASS_SECONDS = Metric(
    "ipuhub_operator_pass_duration_seconds",
    Kind.HISTOGRAM,
    "Passes over one job, with all their calls. Outcome: done, failed (tried again), deferred "
    "(the caches do not show our last write yet), gone, crashed (a bug: the log has it).",
    "Is the operator slow? Do its passes fail?",
    ("outcome",),
)
ACTION_SECONDS = Metric(
    "ipuhub_operator_action_duration_seconds",
    Kind.HISTOGRAM,
    "What passes do, such as CreatePod or EnsurePartition, failures included.",
    "What does the operator do, and what of it is slow?",
    ("action",),
)
ACTION_FAILURES = Metric(
    "ipuhub_operator_action_failures_total",
    Kind.COUNTER,
    "Actions that failed; error: the class of the failure, such as Forbidden or ProxyUnavailable.",
    "What fails, and why?",
    ("action", "error"),
)
QUEUE_DEPTH = Metric(
    "ipuhub_operator_queue_depth",
    Kind.GAUGE,
    "Jobs; due: to be looked at now, active: being looked at, delayed: later, failing: whose last "
    "pass failed.",
    "Is the operator keeping up?",
    ("state",),
)
QUEUE_OLDEST = Metric(
    "ipuhub_operator_queue_oldest_seconds",
    Kind.GAUGE,
    "How long the job that has been due longest has been due.",
    "Is a job starving?",
)
QUEUE_RETRIES = Metric(
    "ipuhub_operator_queue_retries_total",
    Kind.COUNTER,
    "Passes put off after a failure.",
    "Does it try the same again and again?",
)
JOBS = Metric(
    "ipuhub_jobs", Kind.GAUGE, "IPUJobs by STATUS.", "How many jobs are in which state?", ("state",)
)
PENDING = Metric(
    "ipuhub_jobs_pending",
    Kind.GAUGE,
    "Pending IPUJobs by the reason of their condition; New: they have none yet.",
    "Why do jobs not start?",
    ("reason",),
)
REFUSED = Metric(
    "ipuhub_jobs_refused",
    Kind.GAUGE,
    "Jobs held up by a refusal of what the operator has to do for them (what may pass by itself "
    "counts from the second try on), by the reason that their condition names, jobs being deleted "
    "included. WebhookUnavailable: IPUJobs cannot be made or edited either.",
    "Are the webhooks away? What else holds up jobs: quotas, names, the API server, the proxy?",
    ("reason",),
)
IGNORED_PODS = Metric(
    "ipuhub_operator_ignored_pods",
    Kind.GAUGE,
    "Pods with the UID label of an IPUJob that are not its own: in another namespace, under a name "
    "that it does not use, or controlled by something else. They decide nothing, hold up nothing "
    "and are not touched; the log names the first of a job's.",
    "Does somebody pass pods off as a job's?",
)
EVENTS = Metric(
    "ipuhub_job_events_total",
    Kind.COUNTER,
    "What jobs were told in Events, by reason.",
    "What happens to jobs: how many end, fail, lose a worker or a partition?",
    ("reason",),
)
EVENTS_DROPPED = Metric(
    "ipuhub_job_events_dropped_total",
    Kind.COUNTER,
    "Events that were not written; cause: unwritten (the API server refused one, or a job had too "
    "many), backlog (too many waited for the API server, or the operator ended before).",
    "Do users miss Events of their jobs?",
    ("cause",),
)
RESTARTS = Metric(
    "ipuhub_job_restarts_total",
    Kind.COUNTER,
    "Attempts that were started anew, by what ended the one before (other: it is not known).",
    "Why do jobs restart?",
    ("reason",),
)
START_SECONDS = Metric(
    "ipuhub_job_start_duration_seconds",
    Kind.HISTOGRAM,
    "From a job's creation to its first Running.",
    "How long do users wait for their jobs to run?",
    buckets=LONG_SECONDS,
)
WAITING = Metric(
    "ipuhub_partitions_waiting",
    Kind.GAUGE,
    "Instances without a partition for lack of room, by namespace and needed IPUs.",
    "Who waits for how many IPUs?",
    ("namespace", "ipus"),
)
WAITING_OLDEST = Metric(
    "ipuhub_partitions_waiting_oldest_seconds",
    Kind.GAUGE,
    "Age of the oldest job that waits for IPUs.",
    "How long has somebody waited for IPUs?",
)
POLL_AGE = Metric(
    "ipuhub_proxy_poll_age_seconds",
    Kind.GAUGE,
    "Since the V-IPU Proxy last told the operator of all partitions; +Inf: never, as on a standby: "
    "look at it where ipuhub_leader is 1.",
    "Does the operator know the partitions?",
)

OPERATOR = (
    PASS_SECONDS,
    ACTION_SECONDS,
    ACTION_FAILURES,
    QUEUE_DEPTH,
    QUEUE_OLDEST,
    QUEUE_RETRIES,
    JOBS,
    PENDING,
    REFUSED,
    IGNORED_PODS,
    EVENTS,
    EVENTS_DROPPED,
    RESTARTS,
    START_SECONDS,
    WAITING,
    WAITING_OLDEST,
    POLL_AGE,
)

REVIEWS = Metric(
    "ipuhub_webhook_reviews_total",
    Kind.COUNTER,
    "Reviews; webhook: mutate or validate; outcome: allowed, patched, warned, denied, unreadable, "
    "crashed (a bug: the log has it, and the request was refused).",
    "Are the webhooks asked, and what do they answer?",
    ("webhook", "operation", "outcome"),
)
DENIALS = Metric(
    "ipuhub_webhook_denials_total",
    Kind.COUNTER,
    "Reasons of refusals by field of the IPUJob (other: no field of one); one review may have "
    "several.",
    "What did the webhooks deny?",
    ("field",),
)
REVIEW_SECONDS = Metric(
    "ipuhub_webhook_review_duration_seconds",
    Kind.HISTOGRAM,
    "Time to answer a review, without TLS and transfer.",
    "Do the webhooks hold up kubectl?",
    ("webhook",),
    FAST_SECONDS,
)
CERTIFICATE_END = Metric(
    "ipuhub_webhook_certificate_expiry_timestamp_seconds",
    Kind.GAUGE,
    "When the serving certificate ends.",
    "When do the webhooks stop to be trusted?",
)
WEBHOOKS = (REVIEWS, DENIALS, REVIEW_SECONDS, CERTIFICATE_END)
