"""domain: the decisions of a pass: an instance's end or restart, suspension, the job's end.

A decision is only written to the status, with its evidence. The next pass plans its consequences
from that status, so a crash in between loses nothing. Decisions are: what follows an instance's
end; the deadline of a job; the end of an interactive session and the warning before it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ipuhub.partition import Phase
from jobs.ipujob.conditions import (
    LOST,
    SAVE_WORK,
    JobState,
    Reason,
    Verdict,
    default_message,
    plain_verdict,
)
from jobs.ipujob.conditions import ConditionType as Condition
from jobs.ipujob.logtails import clean_tail, longest_tail
from jobs.ipujob.names import parse_time
from jobs.operator.instancerecord import End, InstanceRecord, end_reason, records_of
from jobs.operator.observed import end_of
from jobs.operator.restarts import is_loss, is_series_over, restart_after, tally_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from jobs.ipujob.spec import JobSpec
    from jobs.operator.effectivespec import EffectiveSpec
    from jobs.operator.observed import Instance, Observed


def seconds_left(observed: Observed, spec: JobSpec, now: datetime) -> float | None:
    """Return the seconds until `activeDeadlineSeconds` is over (0 or less: it is); None: no
    deadline.

    It counts from startTime, which is set again when a suspended job is resumed.
    """
    started = parse_time(observed.status().get("startTime"))
    if spec.deadline_seconds is None or started is None or observed.state() is JobState.SUSPENDED:
        return None
    return spec.deadline_seconds - (now - started).total_seconds()


def deadline_end(spec: JobSpec) -> End:
    """Return how the deadline ends an instance."""
    seconds = spec.deadline_seconds
    return End(
        False,
        Reason.DEADLINE_EXCEEDED,
        f"it ran longer than its activeDeadlineSeconds of {seconds} s",
    )


WARNED_BEFORE = timedelta(minutes=5)
LONGEST_SECONDS = 10**10  # three centuries: no clock can say when 64 bits of seconds have passed


def ends_at(instance: Instance, spec: JobSpec) -> datetime | None:
    """Return when the session ends: `ttl` after the launcher began to run; None: unknown."""
    launcher = instance.launcher
    if spec.ttl_seconds is None or launcher is None or launcher.started_at is None:
        return None
    return launcher.started_at + timedelta(seconds=min(spec.ttl_seconds, LONGEST_SECONDS))


def session_end(instance: Instance, spec: JobSpec, now: datetime) -> End | None:
    """The session's end, if its time is over: a success whatever the launcher did."""
    over = ends_at(instance, spec)
    if over is None or now < over:
        return None
    return End(True, Reason.SUCCEEDED, f"The session's {spec.ttl_seconds} s have passed", 0)


def warning(instance: Instance, spec: JobSpec, now: datetime) -> str:
    """Return the warning for people in the session; empty: it is too early."""
    over = ends_at(instance, spec)
    if over is None or now < over - WARNED_BEFORE:
        return ""
    return f"The session ends at {over:%H:%M:%S} {SAVE_WORK}"


def seconds_to_next(instance: Instance, spec: JobSpec, now: datetime) -> float | None:
    """Seconds until the warning or, after it, the end."""
    over = ends_at(instance, spec)
    if over is None:
        return None
    next_at = over if now >= over - WARNED_BEFORE else over - WARNED_BEFORE
    return max((next_at - now).total_seconds(), 0.0)


Records = dict[int, "InstanceRecord"]
PodName = tuple[str, int]


def ended(
    observed: Observed, spec: JobSpec, instances: Iterable[Instance], now: datetime
) -> Records:
    """Return the instances whose attempt has ended, but not yet in the status."""
    remaining = seconds_left(observed, spec, now)
    is_over = remaining is not None and remaining <= 0
    found: Records = {}
    for instance in instances:
        if instance.is_settled:
            continue
        over = deadline_end(spec) if is_over else session_end(instance, spec, now)
        end = over or end_of(instance)
        if end is not None:
            end = replace(end, log=clean_tail(end.log, longest_tail(spec.instances)))
            most = observed.patience.most_losses
            found[instance.index] = (
                instance.record.settled(_with_limit(end, spec, instance.record))
                if over is not None
                else _record(instance, spec, end, now, most)
            )
    return found


def _record(
    instance: Instance, spec: JobSpec, end: End, now: datetime, most_losses: int
) -> InstanceRecord:
    record, tally = instance.record, tally_of(instance, now)
    again = restart_after(spec.restart, end, tally, most_losses)
    if again is None:
        if is_series_over(spec.restart, end, tally, most_losses):
            message = f"{end.message}; {tally.losses} earlier attempts were lost, too"
            return record.settled(replace(end, reason=Reason.LOSS_LIMIT, message=message))
        return record.settled(_with_limit(end, spec, record))
    return record.next_attempt(
        JobState.RESTARTING,
        restart_at=now + timedelta(seconds=again.pause_seconds),
        counted=again.is_counted,
        losses=tally.losses + 1 if is_loss(end) else 0,
    ).after(end, now)


def missing(instances: Iterable[Instance], records: Records) -> tuple[PodName, ...]:
    """The pods whose absence makes these ends: (name, attempt)."""
    return tuple(
        (name, instance.attempt)
        for instance in instances
        if instance.has_started and instance.index in records
        for name in instance.missing
    )


def _with_limit(end: End, spec: JobSpec, record: InstanceRecord) -> End:
    """Says so where another restart would have been wanted."""
    if not record.restarts or record.restarts < spec.restart.back_off_limit:
        return end
    times = f"{record.restarts} restart{'' if record.restarts == 1 else 's'}"
    return replace(end, message=f"{end.message} after {times}")


def released(observed: Observed, wanted: int) -> Records:
    """Instances that are no longer wanted and may hold something.

    If they are wanted again, their next attempt must not find pods of this attempt. An instance
    that was given up before the first status is known only by what it holds.
    """
    known = {record.index: record for record in records_of(observed.status())}
    held = {*observed.partitions, *(pod.instance for pod in observed.pods)} - known.keys()
    records = [*known.values(), *map(InstanceRecord, held)]
    return {
        record.index: record.next_attempt(JobState.SUSPENDED)
        for record in records
        if record.index >= wanted
        and (
            (record.index in known and record.state != JobState.SUSPENDED)
            or _holds_current(observed, record)
        )
    }


def suspended_again(observed: Observed) -> Records:
    """Instances that hold something of the attempt that was to begin when they are resumed: they
    have been resumed and suspended in one breath. The next attempt must not find it."""
    return {
        record.index: record.next_attempt(JobState.SUSPENDED)
        for record in records_of(observed.status())
        if not record.is_settled and _holds_current(observed, record)
    }


def _holds_current(observed: Observed, record: InstanceRecord) -> bool:
    attempts = [pod.attempt for pod in observed.pods if pod.instance == record.index]
    partition = observed.partitions.get(record.index)
    if partition is not None and partition.phase != Phase.RELEASED:
        attempts.append(partition.attempt)
    return any(attempt >= record.attempt for attempt in attempts)


def renewed(instances: Iterable[Instance], effective: EffectiveSpec) -> Records:
    """Instances that have not started and were made from an outdated spec: they start again, at no
    cost."""
    return {
        instance.index: instance.record.next_attempt(JobState.PENDING)
        for instance in instances
        if effective.is_outdated(instance)
    }


def suspended(instances: Iterable[Instance]) -> Records:
    """Return all instances that have not ended; they lose what they hold."""
    return {
        instance.index: instance.record.next_attempt(JobState.SUSPENDED)
        for instance in instances
        if not instance.is_settled
    }


def has_lost_status(observed: Observed, instances: Iterable[Instance]) -> bool:
    """Return whether the job has no status although it once held IPUs, and holds none now.

    The operator stores a status before it releases anything, so another writer has removed the
    status since. The job may have finished, and a second run could overwrite its results. Pods that
    succeeded still prove the outcome. Without the proxy's answer nothing is known.
    """
    if not observed.is_unwritten or observed.proxy_problem:
        return False
    children, partitions = observed.children.values(), observed.partitions.values()
    # A job's ConfigMap, account and roles are made once it has a partition, and stay until the end.
    has_begun = any(child.job_uid == observed.key.uid for child in children) or any(
        partition.active_at is not None for partition in partitions
    )
    holds_nothing = all(pod.is_terminal for pod in observed.pods) and all(
        partition.phase in {Phase.WAITING, Phase.RELEASED} for partition in partitions
    )
    ends = [end_of(instance) for instance in instances]
    has_succeeded = bool(ends) and all(end and end.succeeded for end in ends)
    return has_begun and holds_nothing and not has_succeeded


def lost_with_status(observed: Observed, instances: Iterable[Instance]) -> tuple[Verdict, Records]:
    """Return the end of a job that has lost its status, and of its instances as far as known."""
    message = "its status was removed after it had held IPUs, so it is not run again"
    end = End(False, Reason.STATUS_LOST, message)
    failed = default_message(Condition.FAILED, observed.key.path)[:-1]
    verdict = Verdict(JobState.FAILED, Reason.STATUS_LOST, f"{failed}: {message}.")
    return verdict, {instance.index: instance.record.settled(end) for instance in instances}


def verdict_of(
    observed: Observed, instances: tuple[Instance, ...], records: Records
) -> Verdict | None:
    """Return the job's state once `records` are written; None: they do not change it."""
    path = observed.key.path
    after = [records.get(instance.index, instance.record) for instance in instances]
    if all(record.is_settled for record in after):
        bad = next((record for record in after if not record.has_succeeded), None)
        if bad is None:
            return plain_verdict(JobState.COMPLETED, path)
        message = f"{default_message(Condition.FAILED, path)[:-1]}: {bad.message}."
        return Verdict(JobState.FAILED, end_reason(bad), message)
    others = [i for i in instances if i.index not in records and not i.is_settled]
    restarting = [record for record in after if record.state == JobState.RESTARTING]
    if restarting and not any(instance.has_started for instance in others):
        return _restarting(path, restarting[0])
    return None


def _restarting(path: str, record: InstanceRecord) -> Verdict:
    last = record.last_exit or {}
    when = f"at {record.restart_at:%H:%M:%S} UTC" if record.restart_at else "once its pods are gone"
    message = (
        f"{default_message(Condition.RESTARTING, path)[:-1]}: {last.get('message', 'it ended')}; "
        f"attempt {record.attempt + 1} begins {when}."
    )
    reason = str(last.get("reason"))
    is_lost = reason in {lost.value for lost in LOST}
    return Verdict(JobState.RESTARTING, reason if is_lost else Reason.RESTARTING, message)
