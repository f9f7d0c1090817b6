"""io: the operator's metrics: counted as passes go, or read off its caches when somebody asks.

The metrics of the operator and of the webhooks.
"""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING, Any

from ipuhub.process.metrics import OTHER
from ipuhub.process.metrictable import FAST_SECONDS, LONG_SECONDS, Kind, Metric
from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.manifests import metadata, parse_time
from jobs.operator.actions import CreateChild, DeleteChild
from jobs.operator.effects import Measures
from jobs.ports import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from ipuhub.kube.events import EventRecorder
    from ipuhub.process.metrics import Meters
    from jobs.ipujob.manifests import Manifest
    from jobs.operator.actions import Action, PatchStatus
    from jobs.operator.observed import Fault
    from jobs.operator.operator import Operator

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
_PENDING = JobState.PENDING.value
OUTAGES = (Reason.WEBHOOK_UNAVAILABLE, Reason.API_UNAVAILABLE, Reason.PROXY_UNAVAILABLE)
_REASONS = frozenset(reason.value for reason in Reason)
_STATES = frozenset(state.value for state in JobState)
_OUTCOMES = ("done", "failed", "deferred", "gone", "crashed")


class OperatorMeasures(Measures):
    """Counts what the passes of one operator do; `meters` has the operator's table."""

    def __init__(self, meters: Meters, now: Any) -> None:
        self._now = now
        seconds = meters.histogram(PASS_SECONDS)
        self._passes = {outcome: seconds.labels(outcome) for outcome in _OUTCOMES}
        self._actions = meters.histogram(ACTION_SECONDS)
        self._failures = meters.counter(ACTION_FAILURES)
        self._events = meters.counter(EVENTS)
        self._untold = meters.counter(EVENTS_DROPPED).labels("backlog")
        self._restarts = meters.counter(RESTARTS)
        self._starts = meters.histogram(START_SECONDS)

    def passed(self, outcome: str, seconds: float) -> None:
        """A pass has ended."""
        self._passes[outcome].observe(seconds)

    def acted(self, action: Action, seconds: float, error: BaseException | None) -> None:
        """An action has been carried out, or has failed."""
        name = action_name(action)
        self._actions.labels(name).observe(seconds)
        if error is not None:
            self._failures.labels(name, type(error).__name__).inc()

    def decided(self, job: Manifest, patch: PatchStatus) -> None:
        """A status has been written."""
        for event in patch.events:
            self._events.labels(known_reason(event.reason)).inc()
        before = job.get("status") or {}
        for reason in restart_reasons(before, patch.status):
            self._restarts.labels(reason).inc()
        if is_first_start(before, patch.status):
            created = parse_time(metadata(job).get("creationTimestamp"))
            if created is not None:
                self._starts.observe((self._now() - created).total_seconds())

    def untold(self, count: int) -> None:
        """So many Events will not be written: there was no room, or no time, for them."""
        self._untold.inc(count)


def action_name(action: Action) -> str:
    """How an action is called in metrics: CreatePod, PatchStatus, ..."""
    if isinstance(action, CreateChild):
        return f"Create{action.kind}"
    if isinstance(action, DeleteChild):
        return f"Delete{action.kind}"
    return type(action).__name__


def known_reason(written: object) -> str:
    """A reason as a label: what stands in a status may come from anybody who may write it."""
    return str(written) if str(written) in _REASONS else OTHER


def restart_reasons(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What ended the attempts that a written status starts anew."""
    attempts = {e.get("index"): e.get("attempt") or 0 for e in before.get("instances") or ()}
    return [
        known_reason(entry["lastExit"].get("reason"))
        for entry in after.get("instances") or ()
        if entry.get("lastExit") and entry["attempt"] > attempts.get(entry["index"], 0)
    ]


def is_first_start(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a written status makes a job Running that never was."""
    instances = after.get("instances") or before.get("instances") or ()
    return (
        after.get("launcherStatus") == JobState.RUNNING
        and before.get("launcherStatus", JobState.PENDING) == JobState.PENDING
        and not any(entry.get("attempt") for entry in instances)
    )


def tell_operator(meters: Meters, present: Callable[[], Operator]) -> None:
    """Fill what the queue, the caches, the facts and the faults of the `present` operator say at
    the time of a scrape."""

    def fill() -> None:
        operator = present()
        _fill_queue(meters, operator)
        _fill_jobs(meters, operator.caches.jobs.all())
        _fill_refused(meters, operator.controller.faults())
        _fill_waiting(meters, operator)
        meters.gauge(IGNORED_PODS).set(operator.controller.observer.ignored_pods)

    meters.at_scrape(fill)


def tell_events(meters: Meters, recorder: EventRecorder) -> None:
    """Fill how many Events `recorder` could not write."""
    meters.at_scrape(lambda: meters.count_up(EVENTS_DROPPED, {("unwritten",): recorder.dropped}))


def _fill_queue(meters: Meters, operator: Operator) -> None:
    queue = operator.controller.queue
    depth = {"due": len(queue), "active": queue.active, "delayed": queue.delayed}
    depth["failing"] = queue.failing
    meters.set(QUEUE_DEPTH, {(state,): count for state, count in depth.items()})
    meters.gauge(QUEUE_OLDEST).set(queue.oldest_seconds())
    meters.count_up(QUEUE_RETRIES, {(): queue.retries})


def _fill_jobs(meters: Meters, jobs: Any) -> None:
    states = Counts({(state.value,): 0 for state in JobState})
    pending: Counts[tuple[str, ...]] = Counts()
    for job in jobs:
        status = job.get("status") or {}
        state = status.get("launcherStatus") or _PENDING
        states[state if state in _STATES else OTHER,] += 1
        if state == _PENDING:
            pending[_pending_reason(status),] += 1
    meters.set(JOBS, states)
    meters.set(PENDING, pending)


def _fill_refused(meters: Meters, faults: Iterable[Fault]) -> None:
    refused = Counts({(str(reason),): 0 for reason in OUTAGES})
    refused.update((str(fault.reason),) for fault in faults)
    meters.set(REFUSED, refused)


def _pending_reason(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Pending" and condition.get("status") == "True":
            return known_reason(condition.get("reason"))
    return "New"


def _fill_waiting(meters: Meters, operator: Operator) -> None:
    facts, caches, now = operator.facts, operator.caches, operator.now()
    waiting: Counts[tuple[str, ...]] = Counts()
    oldest = now
    for uid in facts.uids():
        lacking = [one for one in facts.of(uid).values() if one.phase == Phase.WAITING]
        owner = facts.owner(uid)
        for partition in lacking:
            waiting[owner[0] if owner else "", str(partition.size)] += 1
        job = caches.job(uid) if lacking else None
        oldest = min(oldest, (job and parse_time(metadata(job).get("creationTimestamp"))) or now)
    meters.set(WAITING, waiting)
    meters.gauge(WAITING_OLDEST).set((now - oldest).total_seconds())
    meters.gauge(POLL_AGE).set(_age(facts.answered_at, now))


def _age(moment: datetime | None, now: datetime) -> float:
    return float("inf") if moment is None else (now - moment).total_seconds()
