"""io: the operator's metrics: counted as passes go, or read off its caches when somebody asks."""

from __future__ import annotations

from collections import Counter as Counts
from typing import TYPE_CHECKING, Any

from ipuhub.process.boundedmetrics import OTHER
from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.manifests import metadata, parse_time
from jobs.operator import metrictable as table
from jobs.operator.actions import CreateChild, DeleteChild
from jobs.operator.measures import Measures
from jobs.partitionview import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from ipuhub.kube.events import EventRecorder
    from ipuhub.process.metrics import Meters
    from jobs.ipujob.manifests import Manifest
    from jobs.operator.actions import Action, PatchStatus
    from jobs.operator.observed import Fault
    from jobs.operator.operator import Operator

_PENDING = JobState.PENDING.value
OUTAGES = (Reason.WEBHOOK_UNAVAILABLE, Reason.API_UNAVAILABLE, Reason.PROXY_UNAVAILABLE)
_REASONS = frozenset(reason.value for reason in Reason)
_STATES = frozenset(state.value for state in JobState)
_OUTCOMES = ("done", "failed", "deferred", "gone", "crashed")


class OperatorMeasures(Measures):
    """Counts what the passes of one operator do; `meters` has the operator's table."""

    def __init__(self, meters: Meters, now: Any) -> None:
        self._now = now
        seconds = meters.histogram(table.PASS_SECONDS)
        self._passes = {outcome: seconds.labels(outcome) for outcome in _OUTCOMES}
        self._actions = meters.histogram(table.ACTION_SECONDS)
        self._failures = meters.counter(table.ACTION_FAILURES)
        self._events = meters.counter(table.EVENTS)
        self._untold = meters.counter(table.EVENTS_DROPPED).labels("backlog")
        self._restarts = meters.counter(table.RESTARTS)
        self._starts = meters.histogram(table.START_SECONDS)

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
        meters.gauge(table.IGNORED_PODS).set(operator.controller.observer.ignored_pods)

    meters.at_scrape(fill)


def tell_events(meters: Meters, recorder: EventRecorder) -> None:
    """Fill how many Events `recorder` could not write."""
    meters.at_scrape(
        lambda: meters.count_up(table.EVENTS_DROPPED, {("unwritten",): recorder.dropped})
    )


def _fill_queue(meters: Meters, operator: Operator) -> None:
    queue = operator.controller.queue
    depth = {"due": len(queue), "active": queue.active, "delayed": queue.delayed}
    depth["failing"] = queue.failing
    meters.set(table.QUEUE_DEPTH, {(state,): count for state, count in depth.items()})
    meters.gauge(table.QUEUE_OLDEST).set(queue.oldest_seconds())
    meters.count_up(table.QUEUE_RETRIES, {(): queue.retries})


def _fill_jobs(meters: Meters, jobs: Any) -> None:
    states = Counts({(state.value,): 0 for state in JobState})
    pending: Counts[tuple[str, ...]] = Counts()
    for job in jobs:
        status = job.get("status") or {}
        state = status.get("launcherStatus") or _PENDING
        states[state if state in _STATES else OTHER,] += 1
        if state == _PENDING:
            pending[_pending_reason(status),] += 1
    meters.set(table.JOBS, states)
    meters.set(table.PENDING, pending)


def _fill_refused(meters: Meters, faults: Iterable[Fault]) -> None:
    refused = Counts({(str(reason),): 0 for reason in OUTAGES})
    refused.update((str(fault.reason),) for fault in faults)
    meters.set(table.REFUSED, refused)


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
    meters.set(table.WAITING, waiting)
    meters.gauge(table.WAITING_OLDEST).set((now - oldest).total_seconds())
    meters.gauge(table.POLL_AGE).set(_age(facts.answered_at, now))


def _age(moment: datetime | None, now: datetime) -> float:
    return float("inf") if moment is None else (now - moment).total_seconds()
