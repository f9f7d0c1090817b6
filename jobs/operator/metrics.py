"""io: the operator's metrics: counted in passes, or read from its caches on each scrape."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING, Any

from ipuhub.partition import Phase
from ipuhub.process.metrics import LONG_SECONDS, OTHER, Meters
from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.names import metadata, parse_time
from jobs.operator.actions import CreateChild, DeleteChild

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ipuhub.kube.workqueue import WorkQueue
    from jobs.ipujob.names import Manifest
    from jobs.operator.actions import Action, PatchStatus
    from jobs.operator.observed import Fault
    from jobs.operator.observer import Caches
    from jobs.operator.partitions import PartitionFacts

OPERATOR = Meters()
PASS_SECONDS = OPERATOR.histogram(
    "ipuhub_operator_pass_duration_seconds",
    "Reconcile passes over one job, including all their calls. Outcome: done, failed (will be "
    "retried), deferred (the caches do not show the last write yet), gone, crashed (a bug, see "
    "the log).",
    "Is the operator slow? Do its reconcile passes fail?",
    "outcome",
)
ACTION_SECONDS = OPERATOR.histogram(
    "ipuhub_operator_action_duration_seconds",
    "Actions of reconcile passes, for example CreatePod or EnsurePartition, including failures.",
    "What does the operator do, and which actions are slow?",
    "action",
)
ACTION_FAILURES = OPERATOR.counter(
    "ipuhub_operator_action_failures_total",
    "Failed actions; error: the class of the failure, for example Forbidden or ProxyUnavailable.",
    "What fails, and why?",
    "action",
    "error",
)
QUEUE_DEPTH = OPERATOR.gauge(
    "ipuhub_operator_queue_depth",
    "Jobs in the work queue; due: waiting for a pass now, active: in a pass, delayed: due "
    "later, failing: the last pass failed.",
    "Is the operator keeping up?",
    "state",
)
QUEUE_OLDEST = OPERATOR.gauge(
    "ipuhub_operator_queue_oldest_seconds",
    "How long the oldest due job has been waiting.",
    "Is a job starving?",
)
QUEUE_RETRIES = OPERATOR.counter(
    "ipuhub_operator_queue_retries_total",
    "Passes retried after a failure.",
    "Does the operator retry repeatedly?",
)
JOBS = OPERATOR.gauge(
    "ipuhub_jobs",
    "IPUJobs by STATUS.",
    "How many jobs are in each state?",
    "state",
)
PENDING = OPERATOR.gauge(
    "ipuhub_jobs_pending",
    "Pending IPUJobs by the reason of their condition; New: no condition yet.",
    "Why do jobs not start?",
    "reason",
)
REFUSED = OPERATOR.gauge(
    "ipuhub_jobs_refused",
    "Jobs (including jobs being deleted) for which an action of the operator is rejected, by "
    "the reason in their condition. Rejections that may be temporary count from the second "
    "attempt. WebhookUnavailable: IPUJobs cannot be created or edited either.",
    "What blocks jobs: webhooks, quotas, names, the API server, the proxy?",
    "reason",
)
IGNORED_PODS = OPERATOR.gauge(
    "ipuhub_operator_ignored_pods",
    "Pods that carry the UID label of an IPUJob but do not belong to it: they are in another "
    "namespace, have a name that the job does not use, or have another controller. The operator "
    "ignores them. The log names the first such pod of each job.",
    "Are there pods that impersonate a job's pods?",
)
EVENTS = OPERATOR.counter(
    "ipuhub_job_events_total",
    "Events of jobs, by reason.",
    "What happens to jobs: how many finish, fail, lose a worker or a partition?",
    "reason",
)
EVENTS_DROPPED = OPERATOR.counter(
    "ipuhub_job_events_dropped_total",
    "Events that were not written; cause: unwritten (rejected by the API server, or too many "
    "for one job), backlog (too many in the queue, or the operator stopped first).",
    "Are Events of jobs lost?",
    "cause",
)
RESTARTS = OPERATOR.counter(
    "ipuhub_job_restarts_total",
    "Restarted attempts, by the reason why the previous attempt ended (other: unknown).",
    "Why do jobs restart?",
    "reason",
)
START_SECONDS = OPERATOR.histogram(
    "ipuhub_job_start_duration_seconds",
    "Time from the creation of a job to its first Running.",
    "How long do users wait for their jobs to run?",
    buckets=LONG_SECONDS,
)
WAITING = OPERATOR.gauge(
    "ipuhub_partitions_waiting",
    "Instances that wait for a partition because too few IPUs are free, by namespace and number "
    "of IPUs.",
    "Which namespaces wait for IPUs, and for how many?",
    "namespace",
    "ipus",
)
WAITING_OLDEST = OPERATOR.gauge(
    "ipuhub_partitions_waiting_oldest_seconds",
    "Age of the oldest job waiting for IPUs.",
    "How long have jobs waited for IPUs?",
)
POLL_AGE = OPERATOR.gauge(
    "ipuhub_proxy_poll_age_seconds",
    "Seconds since the V-IPU Proxy last sent the operator the list of all partitions; +Inf: "
    "never, for example on a standby. Combine it with ipuhub_leader == 1.",
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
    """Count the decision in a written status; `job` is the job before it."""
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
    """Return an action's name in metrics: CreatePod, PatchStatus, ..."""
    if isinstance(action, CreateChild):
        return f"Create{action.kind}"
    if isinstance(action, DeleteChild):
        return f"Delete{action.kind}"
    return type(action).__name__


def known_reason(written: object) -> str:
    """Return a reason as a label: a status can be written by others, so its text is checked."""
    return str(written) if str(written) in _REASONS else OTHER


def restart_reasons(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return why attempts ended that a written status restarts."""
    attempts = {e.get("index"): e.get("attempt") or 0 for e in before.get("instances") or ()}
    return [
        known_reason(entry["lastExit"].get("reason"))
        for entry in after.get("instances") or ()
        if entry.get("lastExit") and entry["attempt"] > attempts.get(entry["index"], 0)
    ]


def is_first_start(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a written status makes a job Running that never was."""
    instances = after.get("instances") or before.get("instances") or ()
    return (
        after.get("launcherStatus") == JobState.RUNNING
        and before.get("launcherStatus", JobState.PENDING) == JobState.PENDING
        and not any(entry.get("attempt") for entry in instances)
    )


def fill_queue(queue: WorkQueue[str]) -> None:
    """Set the metrics of the queue."""
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
    """Set the metrics of faults that block jobs."""
    refused = Counts({(str(reason),): 0 for reason in OUTAGES})
    refused.update((str(fault.reason),) for fault in faults)
    REFUSED.set_all(refused)


def _pending_reason(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Pending" and condition.get("status") == "True":
            return known_reason(condition.get("reason"))
    return "New"


def fill_waiting(facts: PartitionFacts, caches: Caches, now: datetime) -> None:
    """Set the metrics of jobs that wait for IPUs, and the age of that information."""
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
