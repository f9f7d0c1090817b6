"""domain: the next actions for one IPUJob.

`plan` asks a straight list of questions, in this order: gone, being deleted, finished (clean-up,
release; time to live), invalid, suspended, ended (deadline, exit, restart). Otherwise it brings the
job up: finalizer, partitions, ConfigMap and account, pods, and the launcher's access. A pass that
decides only writes the status. The next pass plans the consequences from that status, so a crash in
between loses nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.builders.launcher import build_launcher, overrides
from jobs.builders.pods import BuildContext, PodPlace, build_worker
from jobs.ipujob.conditions import JobState, Reason, Verdict, current_condition, plain_verdict
from jobs.ipujob.names import FINALIZER, FINALIZERS, Kind, is_being_deleted, metadata
from jobs.operator import decisions, waiting
from jobs.operator.actions import CreateChild, Event, Plan, SetFinalizers, Step, StoreKey
from jobs.operator.effectivespec import (
    effective_spec,
    effective_spec_of_invalid,
    fingerprint_of,
    strays_of,
)
from jobs.operator.observed import instances_of
from jobs.operator.provisioning import (
    access_steps,
    ask_again_after,
    changed_children,
    children_step,
    idle,
    release_again_after,
    releases,
    reservations,
    restore_again_after,
    restore_step,
    try_step,
)
from jobs.operator.status import next_status, status_patch, waiting_status, with_status
from jobs.operator.teardown import (
    end_pods,
    plan_deletion,
    plan_finished,
    plan_suspended,
    plan_without_job,
    release_held_step,
    surplus_steps,
)
from jobs.operator.waiting import waiting_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from jobs.ipujob.spec import JobSpec
    from jobs.operator.effectivespec import EffectiveSpec
    from jobs.operator.observed import Child, Instance, Observed
    from jobs.operator.pods import PodView

_OF_EDITS = frozenset({Reason.SPEC_CHANGED.value, Reason.INVALID_SPEC.value})


def pods_step(context: BuildContext, instances: tuple[Instance, ...]) -> Step:
    """The missing pods of every instance whose partition is ready, all at once: the launcher waits
    for its workers by itself, whichever is made first."""
    actions = []
    for instance in instances:
        place = _place(instance)
        if place is None:
            continue
        numbers = context.spec.workers_of(instance.index)
        actions += [
            CreateChild(Kind.POD, build_worker(context, place, number))
            for number, pod in zip(numbers, instance.workers.values(), strict=True)
            if pod is None
        ]
        if context.spec.has_launcher and instance.launcher is None:
            actions.append(CreateChild(Kind.POD, build_launcher(context, place)))
    return Step("pods", tuple(actions), needs_previous=True)


def keys_step(instances: tuple[Instance, ...]) -> Step:
    """The keys that pods which are due cannot do without."""
    return Step(
        "keys",
        tuple(
            StoreKey(instance.index, instance.attempt)
            for instance in instances
            if _may_get_pods(instance) and instance.partition and instance.partition.lacks_key
        ),
        needs_previous=True,
    )


def _place(instance: Instance) -> PodPlace | None:
    """Return the place of an instance's new pods; None: it must not get any now."""
    partition = instance.partition
    if partition is None or partition.lacks_key or not _may_get_pods(instance):
        return None
    return PodPlace(instance.index, instance.attempt, partition)


def _may_get_pods(instance: Instance) -> bool:
    """Return whether new pods of an instance may come now.

    A running attempt gets no second launcher and no replaced worker: a pod it lost ends it. Pods
    of another attempt have to be gone first, since they have the same names.
    """
    if not instance.is_active or instance.has_started or instance.strays:
        return False
    return not (instance.is_settled or instance.is_resting)


def plan(observed: Observed, now: datetime) -> Plan:
    """The next steps for the observed job; empty when everything is as it should be."""
    if observed.job is None:
        return plan_without_job(observed, now)
    if is_being_deleted(observed.job):
        return plan_deletion(observed, now)
    if observed.is_finished():
        return plan_finished(observed, now)
    if observed.spec is None:
        return _plan_invalid(observed, now)
    return _plan_valid(observed, observed.spec, now)


def _plan_valid(observed: Observed, written: JobSpec, now: datetime) -> Plan:
    effective = effective_spec(observed, written)
    parsed = effective.spec
    instances = instances_of(observed, parsed, now)
    if decisions.has_lost_status(observed, instances):
        return _plan_lost(observed, instances, now)
    records = decisions.ended(observed, parsed, instances, now)
    records |= decisions.released(observed, parsed.instances)
    if records or all(instance.is_settled for instance in instances):
        return _plan_decision(observed, instances, records, now)
    if parsed.is_suspended:
        return _plan_suspension(observed, instances, now)
    records = decisions.renewed(instances, effective)
    if records:
        return _plan_decision(observed, instances, records, now)
    standing = _standing_verdict(observed, instances, now)
    giving_up = _plan_giving_up(observed, instances, standing, now)
    return giving_up or _plan_bring_up(observed, effective, instances, standing, now)


def _plan_giving_up(
    observed: Observed, instances: tuple[Instance, ...], standing: Verdict, now: datetime
) -> Plan | None:
    """Plan the end of attempts that held a partition for too long without a start; None: there are
    none."""
    records = waiting.given_up(instances, standing, now, observed.patience)
    if not records:
        return None
    if standing.state is not JobState.RUNNING:
        message = (next(iter(records.values())).last_exit or {}).get("message", "")
        standing = Verdict(standing.state, Reason.START_BLOCKED, str(message))
    return _written(observed, standing, instances, records, now)


def _plan_suspension(observed: Observed, instances: tuple[Instance, ...], now: datetime) -> Plan:
    is_new = observed.state() is not JobState.SUSPENDED
    records = decisions.suspended(instances) if is_new else decisions.suspended_again(observed)
    if not is_new and not records:
        return plan_suspended(observed, now)
    verdict = plain_verdict(JobState.SUSPENDED, observed.key.path)
    return _written(observed, verdict, instances, records, now)


def _plan_invalid(observed: Observed, now: datetime) -> Plan:
    """An invalid spec makes nothing. Pods of an earlier spec keep running, and their end counts."""
    written = (observed.job or {}).get("spec")
    spec = written if isinstance(written, dict) else {}
    message = "; ".join(str(problem) for problem in observed.problems)
    if spec.get("suspend") is True and observed.state() is JobState.SUSPENDED:
        return plan_suspended(observed, now)
    parsed = effective_spec_of_invalid(observed, spec)
    instances = () if parsed is None else instances_of(observed, parsed, now)
    if decisions.has_lost_status(observed, instances):
        return _plan_lost(observed, instances, now)
    restarting = observed.state() is JobState.RESTARTING
    state = JobState.RESTARTING if restarting else JobState.PENDING
    if parsed is None:
        going = (*end_pods(strays_of(observed)), release_held_step(observed, now))
        steps = tuple(step for step in going if step.actions)
        verdict = Verdict(state, Reason.INVALID_SPEC, message)
        return with_status(observed, waiting_status(observed, verdict, now), now, steps)
    records = decisions.ended(observed, parsed, instances, now)
    if records or all(instance.is_settled for instance in instances):
        return _plan_decision(observed, instances, records, now)
    if parsed.is_suspended:
        return _plan_suspension(observed, instances, now)
    state = JobState.RUNNING if any(i.has_started for i in instances) else state
    warning = decisions.warning(instances[0], parsed, now) if state is JobState.RUNNING else ""
    text = f"{warning}. {message}" if warning else message
    status = next_status(observed, Verdict(state, Reason.INVALID_SPEC, text), instances, {}, now)
    planned = with_status(observed, status, now, (), tuple(_session_news(observed, warning)))
    return planned.requeued(*_waits(observed, parsed, instances, now))


def _plan_lost(observed: Observed, instances: tuple[Instance, ...], now: datetime) -> Plan:
    verdict, records = decisions.lost_with_status(observed, instances)
    return _written(observed, verdict, instances, records, now)


def _plan_decision(
    observed: Observed,
    instances: tuple[Instance, ...],
    records: decisions.Records,
    now: datetime,
) -> Plan:
    verdict = decisions.verdict_of(observed, instances, records)
    verdict = verdict or _with_waiting_edit(observed, _standing_verdict(observed, instances, now))
    return _written(observed, verdict, instances, records, now)


def _written(
    observed: Observed,
    verdict: Verdict,
    instances: tuple[Instance, ...],
    records: decisions.Records,
    now: datetime,
) -> Plan:
    """The verdict and its evidence, nothing else."""
    status = next_status(observed, verdict, instances, records, now)
    patch = status_patch(observed, status, now)
    if patch is None:
        return Plan()
    return Plan((Step("decide", (replace(patch, absent=decisions.missing(instances, records)),)),))


def _standing_verdict(
    observed: Observed, instances: tuple[Instance, ...], now: datetime
) -> Verdict:
    """Return the state of a job in which nothing has ended."""
    if observed.state() is JobState.RUNNING or any(i.has_started for i in instances):
        for reason, message in waiting.unheard_causes(instances):
            return Verdict(JobState.RUNNING, reason, message)
        return plain_verdict(JobState.RUNNING, observed.key.path)
    return waiting_verdict(observed, instances, now)


def _with_waiting_edit(observed: Observed, verdict: Verdict) -> Verdict:
    """Return the verdict, if the job still runs with the reason of an edit that waits: a decision
    about one instance does not look at the spec, the next pass does."""
    known = current_condition(observed.status()) or {}
    waits = known.get("status") == "True" and known.get("reason") in _OF_EDITS
    if verdict.state is not JobState.RUNNING or not waits:
        return verdict
    return Verdict(JobState.RUNNING, str(known["reason"]), str(known.get("message") or ""))


def _plan_bring_up(
    observed: Observed,
    effective: EffectiveSpec,
    instances: tuple[Instance, ...],
    verdict: Verdict,
    now: datetime,
) -> Plan:
    """Finalizer, partitions, children, pods: whatever is missing. `verdict`: the state of a job in
    which nothing has ended."""
    spec = effective.spec
    context = BuildContext(
        observed.key,
        observed.job or {},
        spec,
        observed.group,
        observed.options,
        fingerprint_of(spec).to_text(),
    )
    conflict = waiting.verdict(observed, now)
    if conflict is not None:
        status = next_status(observed, conflict, instances, {}, now)
        planned = with_status(observed, status, now, ())
        return planned.requeued(waiting.LOOK_AGAIN_SECONDS)
    steps = [
        *_ending_steps(observed, spec.instances, instances, now),
        _give_back_step(observed, instances, now),
    ]
    beside: tuple[Step, ...] = ()
    changed: tuple[Child, ...] = ()
    if not observed.is_namespace_ending:
        if not effective.waiting:  # running pods keep the spec they were made from
            changed = changed_children(observed, context, instances)
        steps = [
            _finalizer_step(observed),
            *steps,
            *_partitions_steps(observed, context, instances, now),
            restore_step(observed, changed, now),
            children_step(observed, context, instances),
            keys_step(instances),
            pods_step(context, instances),
        ]
        beside = access_steps(observed, context, instances)
    warning = decisions.warning(instances[0], spec, now)
    if effective.waiting and verdict.state is JobState.RUNNING:
        verdict = Verdict(JobState.RUNNING, Reason.SPEC_CHANGED, effective.waiting)
    if warning:  # its launcher has started
        verdict = Verdict(JobState.RUNNING, verdict.reason, warning)
    status = next_status(observed, verdict, instances, {}, now)
    planned = with_status(
        observed,
        status,
        now,
        tuple(step for step in steps if step.actions),
        tuple(_news(observed, spec, warning)),
    )
    waits = (*_waits(observed, spec, instances, now), restore_again_after(observed, changed, now))
    return replace(planned.requeued(*waits), beside=beside)


def _news(observed: Observed, spec: JobSpec, warning: str) -> Iterator[Event]:
    """Yield events beside the transitions, each once: a session's end and, with the first status of
    a generation of the spec, the parts of its template that are not used."""
    yield from _session_news(observed, warning)
    generation = metadata(observed.job or {}).get("generation", 0)
    notice = overrides(spec) if observed.status().get("observedGeneration") != generation else ""
    if notice:
        yield Event(Reason.SPEC_OVERRIDDEN, notice)


def _session_news(observed: Observed, warning: str) -> Iterator[Event]:
    if warning and not str(observed.status().get("lastMessage")).startswith(warning):
        yield Event(Reason.SESSION_ENDING, warning, is_warning=True)


def _waits(
    observed: Observed, spec: JobSpec, instances: tuple[Instance, ...], now: datetime
) -> list[float | None]:
    """Return the waits for what no watch reports."""
    rests = [
        (instance.record.restart_at - now).total_seconds()
        for instance in instances
        if instance.is_resting and instance.record.restart_at is not None
    ]
    return [
        ask_again_after(instances, spec.partition_size, now),
        release_again_after(observed, now),
        decisions.seconds_left(observed, spec, now),
        decisions.seconds_to_next(instances[0], spec, now),
        waiting.stuck_seconds_left(instances, now),
        waiting.blocked_seconds_left(instances, now, observed.patience),
        waiting.overdue_seconds_left(instances, now, observed.patience),
        *rests,
    ]


def _finalizer_step(observed: Observed) -> Step:
    present = tuple(metadata(observed.job or {}).get("finalizers") or ())
    missing = FINALIZERS.isdisjoint(present)
    return Step("finalizer", (SetFinalizers((*present, FINALIZER)),) if missing else ())


def _ending_steps(
    observed: Observed, wanted: int, instances: tuple[Instance, ...], now: datetime
) -> Iterator[Step]:
    """Return steps that end what no wanted attempt can use; none while a job only comes up."""
    held = {*observed.partitions, *(pod.instance for pod in observed.pods)}
    if any(index >= wanted for index in held):
        yield from surplus_steps(observed, wanted, now)
    unwanted = tuple(_unwanted_pods(instances))
    if unwanted:
        yield from end_pods(unwanted)


def _unwanted_pods(instances: tuple[Instance, ...]) -> Iterator[PodView]:
    """Return pods of another attempt, and lost pods of an attempt that has not started.

    They are created again once they are gone.
    """
    for instance in instances:
        yield from instance.outdated
        if not instance.has_started:
            yield from (pod for pod in instance.pods if pod.is_terminal and pod.is_lost)


def _give_back_step(observed: Observed, instances: tuple[Instance, ...], now: datetime) -> Step:
    free = idle(instances, now, observed.patience.hold_seconds)
    return Step("give back", releases(observed, free, now))


def _partitions_steps(
    observed: Observed, context: BuildContext, instances: tuple[Instance, ...], now: datetime
) -> tuple[Step, ...]:
    if observed.proxy_problem:
        return ()
    actions = reservations(instances, context.spec.partition_size, now)
    tries = try_step(observed, context, instances, actions)
    return tries, Step("partitions", actions, needs_previous=True)
