"""domain: the status of an IPUJob, and which changes of it are written."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ipuhub.partition import Phase
from jobs.ipujob.conditions import FINISHED, JobState, Reason, current_condition, with_verdict
from jobs.ipujob.names import ROLE_WORKER, format_time, metadata, parse_time
from jobs.operator.actions import Event, PatchStatus, Plan, Step
from jobs.operator.instancerecord import records_of
from jobs.operator.provisioning import MOST_AT_ONCE, is_released
from jobs.operator.waiting import pending_cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from jobs.ipujob.conditions import Verdict
    from jobs.ipujob.names import Manifest
    from jobs.operator.instancerecord import InstanceRecord
    from jobs.operator.observed import Instance, Observed

COALESCE = timedelta(seconds=2)  # times in a status have whole seconds: at least one second
# The progress of a starting job is written with its next report, usually that it runs: an immediate
# write would cost each start a third write.
ON_THE_WAY = timedelta(seconds=30)
# The message of a job that waits for room also depends on others (nodes, controllers that do not
# answer, an older job that is served first): a changed message is written no more often than this.
RECOUNT = timedelta(seconds=60)
ABOUT_ROOM = frozenset({Reason.NO_CAPACITY.value, Reason.UNSCHEDULABLE.value})
WORDS = frozenset({"conditions", "lastMessage", "lastReconcileTime"})
COUNTS = frozenset(
    {"workersStatus", "partitions", "iPUPartitionCreated", "ipus", "lastReconcileTime"}
)
MOST_NAMED = 5  # malformed fields in one Event
ALL_DONE = "All instances done"
OTHERS = ". Others are pending: "
GOOD_REASONS = frozenset(
    {Reason.PENDING, Reason.RUNNING, Reason.SUCCEEDED, Reason.SUSPENDED, Reason.RESTARTING}
)


def next_status(
    observed: Observed,
    verdict: Verdict,
    instances: tuple[Instance, ...],
    records: Mapping[int, InstanceRecord],
    now: datetime,
) -> Manifest:
    """Return the whole status for `verdict` and the observed pods and partitions.

    `records` are the decisions about instances. `status_patch` sets `lastReconcileTime`.
    """
    stored = observed.status()
    written = format_time(now)
    running = _running(instances, records)
    resumed = stored.get("launcherStatus") == JobState.SUSPENDED != verdict.state
    status: Manifest = stored | {
        "launcherStatus": verdict.state.value,
        "conditions": with_verdict(
            list(stored.get("conditions") or ()), verdict, observed.key.path, written
        ),
        "lastMessage": _last_message(observed, verdict, instances, running),
        "restartCount": stored.get("restartCount", 0)
        + sum(record.state == JobState.RESTARTING for record in records.values()),
        "startTime": written if resumed else stored.get("startTime", written),
        "currentReplicas": running,
        "desiredReplicas": len(instances),
        "instances": _instance_entries(stored, instances, records),
        "observedGeneration": metadata(observed.job or {}).get("generation", 0),
    }
    status |= live_fields(observed)
    if verdict.state in FINISHED:
        status["completionTime"] = written
    return status


def waiting_status(observed: Observed, verdict: Verdict, now: datetime) -> Manifest:
    """The status of a job whose spec cannot be acted on."""
    stored = observed.status()
    written = format_time(now)
    conditions = with_verdict(
        list(stored.get("conditions") or ()), verdict, observed.key.path, written
    )
    return stored | {
        "launcherStatus": verdict.state.value,
        "conditions": conditions,
        "lastMessage": verdict.message,
        "restartCount": stored.get("restartCount", 0),
        "iPUPartitionCreated": stored.get("iPUPartitionCreated", False),
        "currentReplicas": stored.get("currentReplicas", 0),
        "desiredReplicas": stored.get("desiredReplicas", 0),
        "startTime": stored.get("startTime", written),
        "observedGeneration": metadata(observed.job or {}).get("generation", 0),
    }


def live_fields(observed: Observed) -> Manifest:
    """The fields that count pods and partitions: they change without the job's state changing."""
    status: Manifest = {"workersStatus": _workers_status(observed)}
    partitions = _partitions(observed)
    if partitions:
        status["partitions"] = partitions
        held = [p for p in partitions if p["state"] == Phase.ACTIVE]
        status["iPUPartitionCreated"] = len(held) == len(partitions)
        # Until the proxy has reported all partitions, the previous number stays.
        indexes = [p.get("instance", 0) for p in held]
        if all(index in observed.partitions for index in indexes):
            status["ipus"] = sum(observed.partitions[index].size for index in indexes)
    elif "iPUPartitionCreated" not in observed.status():
        status["iPUPartitionCreated"] = False
    return status


def status_patch(
    observed: Observed, status: Manifest, now: datetime, events: tuple[Event, ...] = ()
) -> PatchStatus | None:
    """Return the write that turns the stored status into `status`; None: they are equal.

    `events` are recorded in addition to the events of transitions.
    """
    stored, read = observed.status(), observed.malformed_status()
    changes = _difference(read.written if read else stored, status)
    if not changes:
        return None
    changes["lastReconcileTime"] = format_time(now)
    dropped = (_dropped(read.malformed),) if read else ()
    return PatchStatus(changes, (*dropped, *_events(stored, status), *events))


def _dropped(malformed: Sequence[str]) -> Event:
    """Return the Event about malformed fields, which the next write of the status corrects."""
    named = ", ".join(malformed[:MOST_NAMED])
    more = f" and {len(malformed) - MOST_NAMED} more" if len(malformed) > MOST_NAMED else ""
    message = f"The operator dropped malformed values of {named}{more}"
    return Event(Reason.STATUS_MALFORMED, message, is_warning=True)


def with_status(
    observed: Observed,
    status: Manifest,
    now: datetime,
    steps: tuple[Step, ...],
    events: tuple[Event, ...] = (),
) -> Plan:
    """`steps` and the status, if it is worth a write now.

    It is written before pods are made, beside the objects that they need, since a write that
    succeeds proves that our copy of the job is not late, and otherwise last. A pass that asks
    for a partition leaves the status to the pass that knows the answer, unless the pass before
    could not ask, or a new job asks for so many that it takes a while; counts wait until nothing
    else is to be done and a second has gone by, on the way up ten, and how much room a waiting job
    finds for a minute.
    """
    patch = status_patch(observed, status, now, events)
    changes = sum(len(step.actions) for step in steps if step.name == "partitions")
    is_long = changes >= MOST_AT_ONCE and not observed.status()
    is_asking = changes and observed.fault is None and not is_long
    if patch is None or is_asking:
        return Plan(steps)
    if is_urgent(observed.status(), status) or events:
        if is_long:
            at = next(n for n, step in enumerate(steps) if step.name == "partitions")
            return Plan((*steps[:at], Step("status", (patch,)), *steps[at:]))
        return Plan(_written_among(steps, patch))
    if steps:
        return Plan(steps)
    wait = coalescing_seconds(observed.status(), now, _pause_before(patch, status))
    return Plan((), wait) if wait else Plan((Step("status", (patch,)),))


def _written_among(steps: tuple[Step, ...], patch: PatchStatus) -> tuple[Step, ...]:
    at = next((n for n, step in enumerate(steps) if step.makes_pods), len(steps))
    before, after = steps[:at], steps[at:]
    if after and before and before[-1].name == "children":
        joined = replace(before[-1], actions=(*before[-1].actions, patch))
        return (*before[:-1], joined, *after)
    return (*before, Step("status", (patch,)), *after)


def is_urgent(stored: Manifest, status: Manifest) -> bool:
    """Return whether the difference is more than counts and sentences, which can wait."""
    return _essence(stored) != _essence(status)


def _pause_before(patch: PatchStatus, status: Manifest) -> timedelta:
    """Return the age that the stored status must have before this patch, which is not urgent."""
    if _is_recount(patch, status):
        return RECOUNT
    is_on_its_way = status.get("launcherStatus") in {JobState.PENDING, JobState.RESTARTING}
    return ON_THE_WAY if is_on_its_way and patch.status.keys() <= COUNTS else COALESCE


def _is_recount(patch: PatchStatus, status: Manifest) -> bool:
    """Return whether a job, or instances of a running job, wait as before, and only how much room
    there is has changed."""
    reason = (current_condition(status) or {}).get("reason")
    is_about_room = reason in ABOUT_ROOM or OTHERS in status.get("lastMessage", "")
    return is_about_room and patch.status.keys() <= WORDS


def coalescing_seconds(stored: Manifest, now: datetime, pause: timedelta = COALESCE) -> float:
    """Return the seconds that a difference that is not urgent waits, with `pause` between two
    writes; 0: not at all."""
    last = parse_time(stored.get("lastReconcileTime"))
    if last is None or last > now + pause:  # no write of ours is that far ahead
        return 0.0
    return max((last + pause - now).total_seconds(), 0.0)


def _essence(status: Manifest) -> tuple[object, ...]:
    return (
        status.get("launcherStatus"),
        (current_condition(status) or {}).get("reason"),
        status.get("observedGeneration"),
        [instance.get("state") for instance in status.get("instances") or ()],
    )


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Manifest:
    """A merge patch from `old` to `new`."""
    changes: Manifest = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            changes[key] = value
        elif isinstance(value, dict) and isinstance(old[key], dict):
            nested = _difference(old[key], value)
            if nested:
                changes[key] = nested
        elif old[key] != value:
            changes[key] = value
    return changes


def _events(stored: Manifest, status: Manifest) -> list[Event]:
    """An Event for each change that is a transition."""
    events = []
    was = current_condition(stored)
    now_true = current_condition(status)
    if now_true and (not was or was.get("reason") != now_true.get("reason")):
        reason = now_true["reason"]
        events.append(Event(reason, now_true["message"], is_warning=reason not in GOOD_REASONS))
    had, has = bool(stored.get("iPUPartitionCreated")), bool(status.get("iPUPartitionCreated"))
    partitions = status.get("partitions") or ()
    known = {
        partition["id"] for partition in stored.get("partitions") or () if partition.get("message")
    }
    for partition in partitions:
        if partition.get("message") and partition["id"] not in known:
            message = f"Partition {partition['id']} is not removed: {partition['message']}"
            events.append(Event(Reason.REMOVAL_REFUSED, message, is_warning=True))
    if has and not had:
        events.append(Event(Reason.PARTITION_ACTIVE, _partitions_are(partitions, "active")))
    if _are_released(partitions) and not _are_released(stored.get("partitions") or ()):
        events.append(Event(Reason.PARTITION_RELEASED, _partitions_are(partitions, "released")))
    return events


def _partitions_are(partitions: Sequence[Manifest], what: str) -> str:
    ids = ", ".join(partition["id"] for partition in partitions)
    return (
        f"Partition {ids} is {what}." if len(partitions) == 1 else f"Partitions {ids} are {what}."
    )


def _are_released(partitions: Sequence[Manifest]) -> bool:
    return bool(partitions) and all(p.get("state") == Phase.RELEASED for p in partitions)


def _last_message(
    observed: Observed, verdict: Verdict, instances: tuple[Instance, ...], running: int
) -> str:
    if verdict.state is JobState.COMPLETED:
        return ALL_DONE
    if verdict.reason != Reason.RUNNING or running >= len(instances):
        return verdict.message
    cause = pending_cause(observed, instances)
    others = f"{OTHERS}{cause}" if cause else ""
    return f"{running} of {len(instances)} instances are running{others}"


def _running(instances: tuple[Instance, ...], records: Mapping[int, InstanceRecord]) -> int:
    return sum(
        instance.has_started and not instance.is_settled and instance.index not in records
        for instance in instances
    )


def _instance_entries(
    stored: Manifest, instances: tuple[Instance, ...], records: Mapping[int, InstanceRecord]
) -> list[Manifest]:
    """Return entries of all instances that ever existed: an instance that returns needs its
    attempt."""
    known = {record.index: record for record in records_of(stored)}
    known |= {instance.index: _record_now(instance) for instance in instances}
    known |= records
    return [known[index].to_entry() for index in sorted(known)]


def _record_now(instance: Instance) -> InstanceRecord:
    record = instance.record
    if record.is_settled:
        return record
    if instance.has_started:
        return replace(record, state=JobState.RUNNING.value, restart_at=None, blocked_since=None)
    record = replace(record, blocked_since=instance.blocked_since)
    if record.state == JobState.RESTARTING:
        return record
    return replace(record, state=JobState.PENDING.value)


def _workers_status(observed: Observed) -> Manifest:
    """Counts of the current attempts' worker pods; zero is left out, as Go's encoder does."""
    counts = {"active": 0, "succeeded": 0, "failed": 0}
    finished = observed.is_finished()
    attempts = {
        entry.get("index"): entry.get("attempt")
        for entry in observed.status().get("instances") or ()
    }
    for pod in observed.pods:
        if pod.role != ROLE_WORKER or pod.attempt != (attempts.get(pod.instance) or 0):
            continue
        if pod.phase == "Succeeded" or (pod.phase == "Failed" and finished and pod.is_ended_by_us):
            counts["succeeded"] += 1
        elif pod.phase == "Failed":
            counts["failed"] += 1
        elif pod.phase == "Running":
            counts["active"] += 1
    return {name: count for name, count in counts.items() if count}


def _partitions(observed: Observed) -> list[Manifest]:
    known = {
        index: {
            "instance": index,
            "id": partition.id,
            "controller": partition.controller,
            "state": str(partition.phase),
            **({"message": partition.message} if partition.is_removal_refused else {}),
        }
        for index, partition in observed.partitions.items()
        if partition.id  # a waiting partition has none
    }
    for entry in observed.status().get("partitions") or ():
        index = entry.get("instance", 0)
        # The proxy may know no more of it than that it is gone.
        gone = {"state": str(Phase.RELEASED)} if is_released(observed, index) else {}
        rest = {name: value for name, value in entry.items() if name != "message"}
        known.setdefault(index, rest | gone)
    return [known[index] for index in sorted(known)]
