"""domain: what to do next for one IPUJob.

`plan` is a straight list of questions, in this order: gone, being deleted, finished (clean-up,
release; time to live), invalid, (suspended), ended (deadline, exit, restart), and otherwise the
way up: finalizer, partitions, ConfigMap and access, workers, launcher. A pass that decides writes
only the status; what follows from it is planned by the next pass from that status, so that a
crash in between loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.actions import Plan, SetFinalizers, Step
from jobs.builders.context import BuildContext
from jobs.conditions import ConditionType as Condition
from jobs.conditions import JobState, Reason, Verdict, default_message, plain_verdict
from jobs.instances import instances_of
from jobs.manifests import is_being_deleted, metadata, parse_time
from jobs.names import FINALIZER, ROLE_LAUNCHER
from jobs.partitionview import Phase
from jobs.policies import name_conflict
from jobs.policies.cleanup import clean_up, delete_pod
from jobs.policies.outcome import end_of
from jobs.policies.partitioning import (
    ask_again_after,
    is_released,
    known_instances,
    release_again_after,
    releases,
    reservations,
    was_released,
)
from jobs.policies.startup import waiting_verdict
from jobs.spec import parse_spec, whole_number
from jobs.status import (
    coalescing_seconds,
    is_urgent,
    live_fields,
    next_status,
    status_patch,
    waiting_status,
)
from jobs.validation import problems
from jobs.wayup import children_step, launcher_step, workers_step

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.instances import Instance
    from jobs.manifests import Manifest
    from jobs.observed import Observed
    from jobs.policies.outcome import End
    from jobs.spec import JobSpec

EXPLAIN_DELETION_SECONDS = 10.0


def plan(observed: Observed, now: datetime) -> Plan:
    """The next steps for the observed job; empty when everything is as it should be."""
    if observed.job is None:
        return _plan_without_job(observed, now)
    if is_being_deleted(observed.job):
        return _plan_deletion(observed, now)
    if observed.is_finished():
        return _plan_finished(observed, now)
    spec = observed.job.get("spec")
    found = problems(observed.key.name, spec)
    if found or not isinstance(spec, dict):
        message = "; ".join(str(problem) for problem in found)
        verdict = Verdict(JobState.PENDING, Reason.INVALID_SPEC, message)
        return _with_status(observed, waiting_status(observed, verdict, now), now, ())
    parsed = parse_spec(spec)
    instances = instances_of(observed, parsed)
    ends = {i.index: end for i in instances if (end := end_of(i)) is not None}
    if len(ends) == len(instances):
        return _plan_end(observed, instances, ends, now)
    return _plan_way_up(observed, parsed, instances, now)


def _plan_without_job(observed: Observed, now: datetime) -> Plan:
    """Nothing may outlive a job whose finalizer was taken off by hand."""
    return _free(observed, known_instances(observed, 0), now)


def _plan_deletion(observed: Observed, now: datetime) -> Plan:
    """Launcher, then workers, then the partitions, then the finalizer."""
    spec = (observed.job or {}).get("spec") or {}
    wanted = whole_number(spec.get("jobInstances")) or 1
    indexes = known_instances(observed, 1 if problems(observed.key.name, spec) else wanted)
    finalizers = tuple(metadata(observed.job or {}).get("finalizers") or ())
    if FINALIZER not in finalizers:
        return _free(observed, known_instances(observed, 0), now)
    work = _free(observed, indexes, now)
    # Also a pod that has ended goes first: it has the name that a job made again would need.
    if work.steps or observed.pods or not all(is_released(observed, index) for index in indexes):
        return _explained(observed, work, now)
    rest = tuple(f for f in finalizers if f != FINALIZER)
    return Plan((Step("finalizer", (SetFinalizers(rest),)),))


def _free(observed: Observed, indexes: tuple[int, ...], now: datetime) -> Plan:
    """Steps down: delete pods and whatever the garbage collector will not; release partitions
    once no pod of the job can use them."""
    launchers = [p for p in observed.pods if p.role == ROLE_LAUNCHER and not p.is_deleting]
    others = [p for p in observed.pods if p.role != ROLE_LAUNCHER and not p.is_deleting]
    steps = [
        Step("end launcher", tuple(delete_pod(pod) for pod in launchers)),
        Step("end workers", tuple(delete_pod(pod) for pod in others)),
    ]
    if all(pod.is_terminal for pod in observed.pods):
        steps.append(Step("release", releases(observed, indexes, now)))
    steps.append(Step("orphans", name_conflict.orphans(observed)))
    done = tuple(step for step in steps if step.actions)
    return Plan(done, release_again_after(observed, now))


def _explained(observed: Observed, work: Plan, now: datetime) -> Plan:
    """Says in the status what a deletion waits for, once it takes longer than a moment."""
    asked = parse_time(metadata(observed.job or {}).get("deletionTimestamp"))
    elapsed = (now - asked).total_seconds() if asked else 0.0
    if elapsed < EXPLAIN_DELETION_SECONDS:
        return _requeued(work, EXPLAIN_DELETION_SECONDS - elapsed)
    status = observed.status() | {"lastMessage": _awaited(observed)}
    patch = status_patch(observed, status, now)
    if patch is None or not observed.status():
        return work
    wait = coalescing_seconds(observed.status(), now)
    if wait:
        return _requeued(work, wait)
    return Plan((*work.steps, Step("status", (patch,))), work.requeue_after)


def _awaited(observed: Observed) -> str:
    """What a deletion waits for."""
    left = [pod.name for pod in observed.pods]
    if left:
        others = f" and {len(left) - 1} more" if len(left) > 1 else ""
        return f"Being deleted: waiting for pod {left[0]}{others} to go"
    causes = [observed.fault.message if observed.fault else "", observed.proxy_problem]
    causes += [p.message for p in observed.partitions.values() if p.phase == Phase.RELEASING]
    why = next((cause for cause in causes if cause), "")
    return f"Being deleted: waiting for the partition to be released. {why}".strip()


def _plan_finished(observed: Observed, now: datetime) -> Plan:
    """Clean-up of a job that will not run again."""
    spec = (observed.job or {}).get("spec") or {}
    actions = clean_up(observed.pods, str(spec.get("cleanPodPolicy") or "None"))
    steps = [Step("clean up", actions)]
    if all(pod.is_terminal for pod in observed.pods) and not spec.get("keepPartition"):
        held = (
            index for index in known_instances(observed, 0) if not was_released(observed, index)
        )
        steps.append(Step("release", releases(observed, held, now)))
    status = observed.status() | live_fields(observed, finished=True)
    planned = _with_status(observed, status, now, tuple(step for step in steps if step.actions))
    return _requeued(planned, release_again_after(observed, now))


def _plan_end(
    observed: Observed, instances: tuple[Instance, ...], ends: dict[int, End], now: datetime
) -> Plan:
    """All instances have ended: the verdict and its evidence, nothing else."""
    path = observed.key.path
    bad = next((end for end in ends.values() if not end.succeeded), None)
    if bad is None:
        verdict = plain_verdict(JobState.COMPLETED, path)
    else:
        message = f"{default_message(Condition.FAILED, path)[:-1]}: {bad.message}."
        verdict = Verdict(JobState.FAILED, bad.reason, message)
    patch = status_patch(observed, next_status(observed, verdict, instances, ends, now), now)
    return Plan((Step("decide", (patch,)),) if patch else ())


def _plan_way_up(
    observed: Observed, spec: JobSpec, instances: tuple[Instance, ...], now: datetime
) -> Plan:
    """Finalizer, partitions, children, workers, launcher: whatever is missing."""
    context = BuildContext(observed.key, observed.job or {}, spec, observed.group, observed.options)
    conflict = name_conflict.verdict(observed, now)
    if conflict is not None:
        status = next_status(observed, conflict, instances, {}, now)
        return _requeued(_with_status(observed, status, now, ()), name_conflict.LOOK_AGAIN_SECONDS)
    steps = [
        _finalizer_step(observed),
        _unwanted_pods_step(instances),
        _partitions_step(observed, spec, instances, now),
        children_step(observed, context, instances),
        workers_step(context, instances),
        launcher_step(context, instances),
    ]
    if observed.state() is JobState.RUNNING or any(i.has_started for i in instances):
        verdict = plain_verdict(JobState.RUNNING, observed.key.path)
    else:
        verdict = waiting_verdict(observed, instances)
    status = next_status(observed, verdict, instances, {}, now)
    planned = _with_status(observed, status, now, tuple(step for step in steps if step.actions))
    return _requeued(planned, ask_again_after(instances, now))


def _finalizer_step(observed: Observed) -> Step:
    present = tuple(metadata(observed.job or {}).get("finalizers") or ())
    missing = () if FINALIZER in present else (SetFinalizers((*present, FINALIZER)),)
    return Step("finalizer", missing)


def _unwanted_pods_step(instances: tuple[Instance, ...]) -> Step:
    """Pods of another attempt, and lost ones of an attempt that has not started: they are made
    again once they are gone."""
    actions = []
    for instance in instances:
        lost = (
            ()
            if instance.has_started
            else tuple(pod for pod in instance.pods if pod.is_terminal and pod.is_lost)
        )
        actions += [delete_pod(pod) for pod in (*instance.strays, *lost) if not pod.is_deleting]
    return Step("unwanted pods", tuple(actions))


def _partitions_step(
    observed: Observed, spec: JobSpec, instances: tuple[Instance, ...], now: datetime
) -> Step:
    if observed.proxy_problem:
        return Step("partitions", ())
    actions = reservations(instances, spec.partition_size, now)
    return Step("partitions", actions, needs_previous=True)


def _with_status(
    observed: Observed, status: Manifest, now: datetime, steps: tuple[Step, ...]
) -> Plan:
    """`steps` and then the status, if it is worth a write now.

    A pass that asks for a partition leaves the status to the pass that knows the answer; counts
    wait until nothing else is to be done and a second has gone by.
    """
    patch = status_patch(observed, status, now)
    if patch is None or any(step.name == "partitions" for step in steps):
        return Plan(steps)
    if is_urgent(observed.status(), status):
        return Plan((*steps, Step("status", (patch,))))
    if steps:
        return Plan(steps)
    wait = coalescing_seconds(observed.status(), now)
    return Plan((), wait) if wait else Plan((Step("status", (patch,)),))


def _requeued(planned: Plan, seconds: float | None) -> Plan:
    waits = [wait for wait in (planned.requeue_after, seconds) if wait is not None]
    return Plan(planned.steps, min(waits) if waits else None)
