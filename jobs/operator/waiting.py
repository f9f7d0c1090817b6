"""domain: why a job is not running yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ipujob.conditions import LOST, JobState, Reason, Verdict, current_condition, plain_verdict
from jobs.operator import blocked, stuck, unheard
from jobs.partitionview import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from jobs.operator.instances import Instance
    from jobs.operator.observed import Observed
    from jobs.operator.pods import Trouble
    from jobs.partitionview import Partition

# What a restart is told as; any other reason of the condition is a cause that has passed.
ENDS = frozenset({Reason.RESTARTING.value, *(reason.value for reason in LOST)})


def waiting_verdict(observed: Observed, instances: tuple[Instance, ...], now: datetime) -> Verdict:
    """Pending, with the first cause that a person can do something about.

    A job that is being started again stays Restarting, and says why it ended as long as nothing
    stands in its way.
    """
    state = _waiting_state(observed)
    told = (
        *stuck.causes(instances, now),
        *blocked.causes(instances),
        *unheard.causes(instances),
    )
    for reason, message in (*told, *_causes(observed, instances)):
        return Verdict(state, reason, message)
    known = current_condition(observed.status()) if state is JobState.RESTARTING else None
    if known is not None and known.get("reason") in ENDS:
        return Verdict(state, known["reason"], known["message"])
    return plain_verdict(state, observed.key.path)


def _waiting_state(observed: Observed) -> JobState:
    restarting = JobState.RESTARTING
    return restarting if observed.state() is restarting else JobState.PENDING


def _causes(observed: Observed, instances: tuple[Instance, ...]) -> Iterator[tuple[str, str]]:
    if observed.is_namespace_ending:
        message = f"Namespace {observed.key.namespace} is being deleted: nothing new is made in it"
        yield Reason.NAMESPACE_TERMINATING, message
    if observed.fault is not None:
        yield observed.fault.reason, observed.fault.message
    if observed.proxy_problem and not all(instance.is_active for instance in instances):
        yield (
            Reason.PROXY_UNAVAILABLE,
            f"Waiting for the V-IPU Proxy: {observed.proxy_problem}",
        )
    for instance in instances:
        partition = instance.partition
        if partition is None:
            continue
        if partition.phase == Phase.WAITING:
            yield partition.reason or Reason.NO_CAPACITY, partition.message
        elif partition.reason and not _has_told(instance, partition):  # it hangs on the way
            yield partition.reason, partition.message
    for instance in instances:
        for pod in reversed(instance.pods):  # workers before the launcher that waits for them
            if pod.trouble is not None:
                yield pod.trouble.reason, _told_once(observed, pod.trouble)


def _has_told(instance: Instance, partition: Partition) -> bool:
    """Whether the partition's fault has ended an attempt before: the job says so already."""
    return partition.phase == Phase.ERROR and partition.attempt < instance.attempt


def _told_once(observed: Observed, trouble: Trouble) -> str:
    """The trouble with the first details that were told of it: a registry words each refusal anew
    (a request's number, a time), and each change would be a write."""
    known = current_condition(observed.status()) or {}
    message = str(known.get("message") or "")
    if known.get("reason") == trouble.reason and message.startswith(f"{trouble.message}: "):
        return message
    return trouble.sentence
