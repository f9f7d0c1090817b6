"""domain: tears down a job that is gone, being deleted, finished or suspended.

Also the clean-up of a finished job's pods, and the deletion of finished jobs (TTL).
"""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING

from ipuhub.partition import Phase
from jobs.ipujob.fields import FIELDS
from jobs.ipujob.names import (
    FINALIZERS,
    ROLE_LAUNCHER,
    ROLE_WORKER,
    Kind,
    format_time,
    metadata,
    parse_time,
)
from jobs.operator import waiting
from jobs.operator.actions import DeleteChild, DeleteJob, EndPod, Event, Plan, SetFinalizers, Step
from jobs.operator.instancerecord import record_of, records_of
from jobs.operator.pods import END_SECONDS
from jobs.operator.provisioning import (
    is_released,
    known_instances,
    release_again_after,
    releases,
    was_released,
)
from jobs.operator.status import coalescing_seconds, live_fields, status_patch, with_status

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from datetime import datetime

    from ipuhub.partition import Partition
    from jobs.operator.observed import Observed
    from jobs.operator.pods import PodView

# How long a sleeping pod has to end after the signal: a node takes a second or two. Then it is
# ended like any other, and its phase becomes Failed.
PATIENCE = timedelta(seconds=20)


def clean_up(
    pods: Iterable[PodView], policy: str, now: datetime
) -> tuple[DeleteChild | EndPod, ...]:
    """Return actions on the pods of a job that will not run again.

    None keeps all pods, Workers keeps the launcher, All keeps none. A kept pod that still runs is
    ended: a sleeping worker would hold CPU, memory and the partition for a year.
    """
    actions: list[DeleteChild | EndPod] = []
    for pod in pods:
        if pod.is_deleting:
            continue
        if policy == "All" or (policy == "Workers" and pod.role == ROLE_WORKER):
            actions.append(delete_pod(pod))
        elif not pod.is_terminal and not pod.is_ended_by_us:
            # The deadline is the kubelet's business: a pod that has no node needs deleting.
            actions.append(end_pod(pod, now) if pod.is_scheduled else delete_pod(pod))
    return tuple(actions)


def delete_pod(pod: PodView) -> DeleteChild:
    """Delete this pod and no successor of its name."""
    return DeleteChild(Kind.POD, pod.namespace, pod.name, pod.uid)


def end_pod(pod: PodView, now: datetime) -> EndPod:
    """End the pod's containers, keep its object and log: a pod that sleeps ends with success, and
    any other by a deadline that has passed. A deadline can only be made shorter."""
    if not pod.ends_on_signal or pod.accepted_at is None:
        return EndPod(pod.namespace, pod.name, pod.uid, END_SECONDS)
    seconds = max(ceil((now + PATIENCE - pod.accepted_at).total_seconds()), END_SECONDS)
    is_sooner = pod.deadline is None or seconds < pod.deadline
    deadline = seconds if is_sooner else None
    return EndPod(pod.namespace, pod.name, pod.uid, deadline, format_time(now))


def seconds_left(observed: Observed, now: datetime) -> float | None:
    """Return the seconds until `ttlSecondsAfterFinished` is over (0 or less: it is); None: the job
    stays."""
    spec = (observed.job or {}).get("spec") or {}
    seconds: int | None = FIELDS.value(spec, "ttlSecondsAfterFinished")
    ended = parse_time(observed.status().get("completionTime"))
    if seconds is None or seconds < 0 or ended is None:
        return None
    return seconds - (now - ended).total_seconds()


EXPLAIN_DELETION_SECONDS = 10.0


def plan_without_job(observed: Observed, now: datetime) -> Plan:
    """Nothing may outlive a job whose finalizer was taken off by hand."""
    return _free(observed, known_instances(observed, 0), now)


def plan_deletion(observed: Observed, now: datetime) -> Plan:
    """Launcher, then workers, then the partitions, then the finalizer."""
    indexes = known_instances(observed, observed.spec.instances if observed.spec else 1)
    finalizers = tuple(metadata(observed.job or {}).get("finalizers") or ())
    if FINALIZERS.isdisjoint(finalizers):
        return _free(observed, known_instances(observed, 0), now)
    work = _free(observed, indexes, now)
    # Also a pod that has ended goes first: it has the name that a job made again would need.
    if work.steps or observed.pods or not all(is_released(observed, index) for index in indexes):
        return _explained(observed, work, now)
    rest = tuple(f for f in finalizers if f not in FINALIZERS)
    removal = Step("finalizer", (SetFinalizers(rest),))
    if observed.fault is None:
        return Plan((removal,))
    # It was refused before: say why first, since after it there is no job to say it of.
    explained = _explained(observed, Plan(), now)
    return Plan((*explained.steps, removal), explained.requeue_after)


def plan_finished(observed: Observed, now: datetime) -> Plan:
    """Clean-up of a job that will not run again, and its deletion when its time is over."""
    spec = (observed.job or {}).get("spec") or {}
    remaining = seconds_left(observed, now)
    if remaining is not None and remaining <= 0:
        return Plan((Step("time to live is over", (DeleteJob(),)),))
    policy = FIELDS.value(spec, "cleanPodPolicy")
    steps = [
        Step(f"clean up {role}", clean_up(pods, policy, now))
        for role, pods in launchers_first(observed.pods)
    ]
    if all(pod.is_terminal for pod in observed.pods):
        keeps_partition = FIELDS.value(spec, "keepPartition")
        steps.append(
            _release_lost(observed, now)
            if keeps_partition
            else _release_held(observed, now, known_instances(observed, 0))
        )
    status = observed.status() | live_fields(observed)
    planned = with_status(observed, status, now, tuple(step for step in steps if step.actions))
    return planned.requeued(release_again_after(observed, now)).requeued(remaining)


def plan_suspended(observed: Observed, now: datetime) -> Plan:
    """A suspended job holds nothing; pods of an instance that has ended for good stay."""
    settled = {record.index for record in records_of(observed.status()) if record.is_settled}
    going = [
        pod
        for pod in observed.pods
        if (not pod.is_terminal if pod.instance in settled else _is_past(observed, pod))
    ]
    steps = [*end_pods(going)]
    if all(pod.is_terminal for pod in observed.pods):
        steps.append(_release_held(observed, now, settled))
    status = observed.status() | live_fields(observed)
    planned = with_status(observed, status, now, tuple(step for step in steps if step.actions))
    return planned.requeued(release_again_after(observed, now))


def surplus_steps(observed: Observed, wanted: int, now: datetime) -> tuple[Step, ...]:
    """Return steps that end the pods and partitions of surplus instances, the highest number first.

    Their end was decided before, so they belong to no later attempt.
    """
    surplus = [pod for pod in observed.pods if pod.instance >= wanted]
    surplus.sort(key=lambda pod: -pod.instance)
    free = [
        index
        for index in sorted(observed.partitions, reverse=True)
        if index >= wanted and all(pod.is_terminal for pod in surplus if pod.instance == index)
    ]
    return (*end_pods(surplus), Step("release surplus", releases(observed, free, now)))


def _is_past(observed: Observed, thing: PodView | Partition) -> bool:
    """Return whether a pod or partition belongs to a past attempt.

    If it belongs to a later attempt than our copy of the job knows, the copy is stale.
    """
    return thing.attempt < record_of(observed.status(), thing.instance).attempt


def _release_held(observed: Observed, now: datetime, settled: Container[int] = ()) -> Step:
    """Of a suspended job; `settled` instances keep their last attempt."""
    held = (
        index
        for index in known_instances(observed, 0)
        if not was_released(observed, index)
        and (
            index in settled
            or index not in observed.partitions
            or _is_past(observed, observed.partitions[index])
        )
    )
    return Step("release", releases(observed, held, now))


def _release_lost(observed: Observed, now: datetime) -> Step:
    """Of a job that keeps its partitions: of those that are gone nothing is left to keep."""
    lost = [index for index, partition in observed.partitions.items() if partition.is_lost]
    return Step("release", releases(observed, lost, now))


def release_held_step(observed: Observed, now: datetime) -> Step:
    """Of a job that has no pods and cannot get any: others can have its IPUs."""
    held = [
        index
        for index, partition in observed.partitions.items()
        if partition.phase not in {Phase.WAITING, Phase.RELEASED}
    ]
    return Step("release", () if observed.pods else releases(observed, held, now))


def end_pods(pods: Iterable[PodView]) -> tuple[Step, ...]:
    """Delete pods: a launcher before the workers that its command still talks to."""
    return tuple(
        Step(f"end {role}", tuple(delete_pod(pod) for pod in some if not pod.is_deleting))
        for role, some in launchers_first(pods)
    )


def launchers_first(pods: Iterable[PodView]) -> tuple[tuple[str, list[PodView]], ...]:
    """The pods by role, in the order in which they are to end."""
    found = list(pods)
    return (
        ("launcher", [pod for pod in found if pod.role == ROLE_LAUNCHER]),
        ("workers", [pod for pod in found if pod.role != ROLE_LAUNCHER]),
    )


def _free(observed: Observed, indexes: tuple[int, ...], now: datetime) -> Plan:
    """Steps down: delete pods and whatever the garbage collector will not; release partitions
    once no pod of the job can use them."""
    steps = [*end_pods(observed.pods)]
    if all(pod.is_terminal for pod in observed.pods):
        steps.append(Step("release", releases(observed, indexes, now)))
    steps.append(Step("orphans", waiting.orphans(observed)))
    done = tuple(step for step in steps if step.actions)
    return Plan(done, release_again_after(observed, now))


def _explained(observed: Observed, work: Plan, now: datetime) -> Plan:
    """Write in the status what a deletion waits for, once it takes longer than a moment."""
    deleted_at = parse_time(metadata(observed.job or {}).get("deletionTimestamp"))
    elapsed = (now - deleted_at).total_seconds() if deleted_at else 0.0
    if elapsed < EXPLAIN_DELETION_SECONDS:
        return work.requeued(EXPLAIN_DELETION_SECONDS - elapsed)
    awaited = _awaited(observed)
    status = observed.status() | {"lastMessage": awaited}
    if any(partition.is_removal_refused for partition in observed.partitions.values()):
        status["partitions"] = live_fields(observed)["partitions"]
    fault = observed.fault
    events = (Event(fault.reason, awaited, is_warning=True),) if fault else ()
    patch = status_patch(observed, status, now, events)
    if patch is None or not observed.status():
        return work
    wait = coalescing_seconds(observed.status(), now)
    if wait:
        return work.requeued(wait)
    return Plan((*work.steps, Step("status", (patch,))), work.requeue_after)


def _awaited(observed: Observed) -> str:
    """Return what a deletion waits for."""
    fault = observed.fault.message if observed.fault else ""
    pods = [f"{p.name} on {p.node}" if p.node else p.name for p in observed.pods]
    if pods:
        others = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        return f"Being deleted: waiting for pod {pods[0]}{others} to terminate. {fault}".strip(". ")
    if all(p.phase == Phase.RELEASED for p in observed.partitions.values()) and fault:
        return f"Being deleted. {fault}"
    causes = [fault, observed.proxy_problem]
    causes += [p.message for p in observed.partitions.values() if p.phase == Phase.RELEASING]
    detail = next((cause for cause in causes if cause), "")
    return f"Being deleted: waiting for the partition to be released. {detail}".strip()
