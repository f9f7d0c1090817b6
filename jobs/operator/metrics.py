"""io: the operator's metrics: counted as passes go, or read off its caches when somebody asks."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING, Any

from ipuhub.partition import Phase
from ipuhub.process.metrics import LONG_SECONDS, OTHER, Meters
from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.manifests import metadata, parse_time
from jobs.operator.actions import CreateChild, DeleteChild

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ipuhub.kube.workqueue import WorkQueue
    from jobs.ipujob.manifests import Manifest
    from jobs.operator.actions import Action, PatchStatus
    from jobs.operator.observed import Fault
    from jobs.operator.observer import Caches
    from jobs.operator.partitions import PartitionFacts

OPERATOR = Meters()
PASS_SECONDS = OPERATOR.histogram(
    "ipuhub_operator_pass_duration_seconds",
    "Passes over one job, with all their calls. Outcome: done, failed (tried again), deferred "
    "(the caches do not show our last write yet), gone, crashed (a bug: the log has it).",
    "Is the operator slow? Do its passes fail?",
    "outcome",
)
ACTION_SECONDS = OPERATOR.histogram(
    "ipuhub_operator_action_duration_seconds",
    "What passes do, such as CreatePod or EnsurePartition, failures included.",
    "What does the operator do, and what of it is slow?",
    "action",
)
ACTION_FAILURES = OPERATOR.counter(
    "ipuhub_operator_action_failures_total",
    "Actions that failed; error: the class of the failure, such as Forbidden or ProxyUnavailable.",
    "What fails, and why?",
    "action",
    "error",
)
QUEUE_DEPTH = OPERATOR.gauge(
    "ipuhub_operator_queue_depth",
    "Jobs; due: to be looked at now, active: being looked at, delayed: later, failing: whose last "
    "pass failed.",
    "Is the operator keeping up?",
    "state",
)
QUEUE_OLDEST = OPERATOR.gauge(
    "ipuhub_operator_queue_oldest_seconds",
    "How long the job that has been due longest has been due.",
    "Is a job starving?",
)
QUEUE_RETRIES = OPERATOR.counter(
    "ipuhub_operator_queue_retries_total",
    "Passes put off after a failure.",
    "Does it try the same again and again?",
)
JOBS = OPERATOR.gauge(
    "ipuhub_jobs",
    "IPUJobs by STATUS.",
    "How many jobs are in which state?",
    "state",
)
PENDING = OPERATOR.gauge(
    "ipuhub_jobs_pending",
    "Pending IPUJobs by the reason of their condition; New: they have none yet.",
    "Why do jobs not start?",
    "reason",
)
REFUSED = OPERATOR.gauge(
    "ipuhub_jobs_refused",
    "Jobs held up by a refusal of what the operator has to do for them (what may pass by itself "
    "counts from the second try on), by the reason that their condition names, jobs being deleted "
    "included. WebhookUnavailable: IPUJobs cannot be made or edited either.",
    "Are the webhooks away? What else holds up jobs: quotas, names, the API server, the proxy?",
    "reason",
)
IGNORED_PODS = OPERATOR.gauge(
    "ipuhub_operator_ignored_pods",
    "Pods with the UID label of an IPUJob that are not its own: in another namespace, under a name "
    "that it does not use, or controlled by something else. They decide nothing, hold up nothing "
    "and are not touched; the log names the first of a job's.",
    "Does somebody pass pods off as a job's?",
)
EVENTS = OPERATOR.counter(
    "ipuhub_job_events_total",
    "What jobs were told in Events, by reason.",
    "What happens to jobs: how many end, fail, lose a worker or a partition?",
    "reason",
)
EVENTS_DROPPED = OPERATOR.counter(
    "ipuhub_job_events_dropped_total",
    "Events that were not written; cause: unwritten (the API server refused one, or a job had too "
    "many), backlog (too many waited for the API server, or the operator ended before).",
    "Do users miss Events of their jobs?",
    "cause",
)
RESTARTS = OPERATOR.counter(
    "ipuhub_job_restarts_total",
    "Attempts that were started anew, by what ended the one before (other: it is not known).",
    "Why do jobs restart?",
    "reason",
)
START_SECONDS = OPERATOR.histogram(
    "ipuhub_job_start_duration_seconds",
    "From a job's creation to its first Running.",
    "How long do users wait for their jobs to run?",
    buckets=LONG_SECONDS,
)
WAITING = OPERATOR.gauge(
    "ipuhub_partitions_waiting",
    "Instances without a partition for lack of room, by namespace and needed IPUs.",
    "Who waits for how many IPUs?",
    "namespace",
    "ipus",
)
WAITING_OLDEST = OPERATOR.gauge(
    "ipuhub_partitions_waiting_oldest_seconds",
    "Age of the oldest job that waits for IPUs.",
    "How long has somebody waited for IPUs?",
)
POLL_AGE = OPERATOR.gauge(
    "ipuhub_proxy_poll_age_seconds",
    "Since the V-IPU Proxy last told the operator of all partitions; +Inf: never, as on a standby: "
    "look at it where ipuhub_leader is 1.",
    "Does the operator know the partitions?",
)
_PENDING = JobState.PENDING.value
OUTAGES = (Reason.WEBHOOK_UNAVAILABLE, Reason.API_UNAVAILABLE, Reason.PROXY_UNAVAILABLE)
_REASONS = frozenset(reason.value for reason in Reason)
_STATES = frozenset(state.value for state in JobState)
for _outcome in ("done", "failed", "deferred", "gone", "crashed"):
    PASS_SECONDS.labels(_outcome)  # there from the start
EVENTS_DROPPED.labels("backlog")
UNWRITTEN = ("unwritten",)  # the other cause


def count_action(action: Action, seconds: float, error: BaseException | None) -> None:
    """Count an action that has been carried out, or has failed."""
    name = action_name(action)
    ACTION_SECONDS.labels(name).observe(seconds)
    if error is not None:
        ACTION_FAILURES.labels(name, type(error).__name__).inc()


def count_decision(job: Manifest, patch: PatchStatus, now: datetime) -> None:
    """Count what a written status says; `job` is what it was before."""
    for event in patch.events:
        EVENTS.labels(known_reason(event.reason)).inc()
    before = job.get("status") or {}
    for reason in restart_reasons(before, patch.status):
        RESTARTS.labels(reason).inc()
    if is_first_start(before, patch.status):
        created = parse_time(metadata(job).get("creationTimestamp"))
        if created is not None:
            START_SECONDS.observe((now - created).total_seconds())


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


def fill_queue(queue: WorkQueue[str]) -> None:
    """Say what the queue holds."""
    depth = {"due": len(queue), "active": queue.active, "delayed": queue.delayed}
    depth["failing"] = queue.failing
    QUEUE_DEPTH.set_all({(state,): count for state, count in depth.items()})
    QUEUE_OLDEST.set(queue.oldest_seconds())
    QUEUE_RETRIES.count_up({(): queue.retries})


def fill_jobs(jobs: Iterable[Manifest]) -> None:
    """Say which states jobs are in."""
    states = Counts({(state.value,): 0 for state in JobState})
    pending: Counts[tuple[str, ...]] = Counts()
    for job in jobs:
        status = job.get("status") or {}
        state = status.get("launcherStatus") or _PENDING
        states[state if state in _STATES else OTHER,] += 1
        if state == _PENDING:
            pending[_pending_reason(status),] += 1
    JOBS.set_all(states)
    PENDING.set_all(pending)


def fill_refused(faults: Iterable[Fault]) -> None:
    """Say what holds jobs up."""
    refused = Counts({(str(reason),): 0 for reason in OUTAGES})
    refused.update((str(fault.reason),) for fault in faults)
    REFUSED.set_all(refused)


def _pending_reason(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Pending" and condition.get("status") == "True":
            return known_reason(condition.get("reason"))
    return "New"


def fill_waiting(facts: PartitionFacts, caches: Caches, now: datetime) -> None:
    """Say who waits for IPUs, and how old what we know is."""
    waiting: Counts[tuple[str, ...]] = Counts()
    oldest = now
    for uid in facts.uids():
        lacking = [
            partition for partition in facts.of(uid).values() if partition.phase == Phase.WAITING
        ]
        owner = facts.owner(uid)
        for partition in lacking:
            waiting[owner[0] if owner else "", str(partition.size)] += 1
        job = caches.job(uid) if lacking else None
        oldest = min(oldest, (job and parse_time(metadata(job).get("creationTimestamp"))) or now)
    WAITING.set_all(waiting)
    WAITING_OLDEST.set((now - oldest).total_seconds())
    POLL_AGE.set(_age(facts.answered_at, now))


def _age(moment: datetime | None, now: datetime) -> float:
    return float("inf") if moment is None else (now - moment).total_seconds()
