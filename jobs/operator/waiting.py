"""domain: the reasons that a job is not running yet.

The causes: pods that do not end because their node does not respond; pods on a node that stopped
reporting; attempts whose pods cannot start (they give their partition back after a while); objects
under a name that the job needs that belong to others, or that cannot be deleted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ipuhub.partition import Phase
from jobs.ipujob.conditions import LOST, JobState, Reason, Verdict, current_condition, plain_verdict
from jobs.ipujob.names import metadata, parse_time
from jobs.ipujob.rules import RESYNC_SECONDS
from jobs.operator.actions import DeleteChild
from jobs.operator.instancerecord import End
from jobs.operator.restarts import LONGEST_PAUSE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from ipuhub.partition import Partition
    from jobs.ipujob.rules import Patience
    from jobs.operator.instancerecord import InstanceRecord
    from jobs.operator.observed import Instance, Observed
    from jobs.operator.pods import PodView, Trouble

PATIENCE = timedelta(seconds=60)  # past the pod's own grace period


def stuck_causes(instances: Iterable[Instance], now: datetime) -> Iterator[tuple[str, str]]:
    """Return the pods that a job waits for: its partition is never reset under a pod that may still
    run."""
    for pod in _ending(instances):
        if pod.gone_by is not None and now - pod.gone_by >= PATIENCE:
            yield Reason.PODS_STUCK, _sentence(pod)


def stuck_seconds_left(instances: Iterable[Instance], now: datetime) -> float | None:
    """Return the seconds until an ending pod counts as stuck; None: no pod is ending."""
    waits = [
        (pod.gone_by + PATIENCE - now).total_seconds()
        for pod in _ending(instances)
        if pod.gone_by is not None and now - pod.gone_by < PATIENCE
    ]
    return min(waits) if waits else None


def _ending(instances: Iterable[Instance]) -> Iterator[PodView]:
    for instance in instances:
        for pod in (*instance.strays, *instance.pods):
            if pod.is_deleting and not pod.is_terminal:
                yield pod


def _sentence(pod: PodView) -> str:
    where = f" on node {pod.node}" if pod.node else ""
    return (
        f"Waiting for pod {pod.name}{where} to terminate, which is overdue. If the node is lost, "
        "delete the node, or force-delete the pod when none of its containers is running any "
        "more"
    )


MOST_NAMED = 3


def unheard_causes(instances: Iterable[Instance]) -> Iterator[tuple[str, str]]:
    """Return pods on nodes that are not Ready, at once: Kubernetes removes them minutes later."""
    pods = [pod for instance in instances for pod in _unheard(instance)]
    if not pods:
        return
    names = sorted(pod.name for pod in pods)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    message = (
        f"{_troubled_nodes(pods)}, with {', '.join(names[:MOST_NAMED])}{more}. "
        "If the node does not come back, Kubernetes removes the pods after some minutes (five by "
        "default), which ends the attempt"
    )
    yield Reason.NODE_NOT_READY, message


def _troubled_nodes(pods: Iterable[PodView]) -> str:
    """The nodes of these pods by their problem, as the beginning of a sentence."""
    found: dict[str, list[str]] = {}
    for node, trouble in sorted({pod.node: pod.node_trouble for pod in pods}.items()):
        found.setdefault(trouble, []).append(node)
    text = " and ".join(
        f"node{'s' if len(nodes) > 1 else ''} {', '.join(nodes[:MOST_NAMED])} {trouble}"
        for trouble, nodes in sorted(found.items())
    )
    return text[0].upper() + text[1:]


def _unheard(instance: Instance) -> Iterator[PodView]:
    if not instance.is_settled:
        yield from (pod for pod in instance.pods if pod.node_trouble and not pod.is_deleting)


LONGEST_CAUSE = 300


def given_up(
    instances: Iterable[Instance], cause: Verdict, now: datetime, patience: Patience
) -> dict[int, InstanceRecord]:
    """The instances that have held a partition for too long without a start, with a new attempt
    after a pause in which other jobs can use the IPUs; `cause` is the reason so far in the job's
    status."""
    found = {}
    for instance in instances:
        if _is_over(blocked_seconds_left([instance], now, patience)):
            what, detail = (
                f"could not start for {patience.start_seconds / 60:.0f} min",
                cause.message,
            )
        elif _is_over(overdue_seconds_left([instance], now, patience)):
            minutes = f"{patience.ready_seconds / 60:.0f} min (IPUHUB_READY_HOLD_SECONDS)"
            what, detail = f"did not start in {minutes}", _held_up(instance)
        else:
            continue
        again = now + timedelta(seconds=LONGEST_PAUSE_SECONDS)
        message = (
            f"The pods {what}. The partition is released and requested again at "
            f"{again:%H:%M:%S} UTC. {detail[:LONGEST_CAUSE]}"
        )
        end = End(False, Reason.START_BLOCKED, message)
        record = instance.record.next_attempt(
            JobState.PENDING, restart_at=again, losses=instance.record.losses
        )
        found[instance.index] = record.after(end, now)
    return found


def overdue_seconds_left(
    instances: Iterable[Instance], now: datetime, patience: Patience
) -> float | None:
    """Return the seconds until the first attempt should have started, whatever is in its way; None:
    none waits, or the operator looks again before, as for most, which need no timer."""
    seconds = patience.ready_seconds
    waits = [
        (instance.made_at - now).total_seconds() + seconds
        for instance in instances
        if instance.made_at is not None
    ]
    late = [wait for wait in waits if wait <= RESYNC_SECONDS]
    return min(late) if late and seconds else None


def _is_over(seconds_left: float | None) -> bool:
    return seconds_left is not None and seconds_left <= 0


def _held_up(instance: Instance) -> str:
    """The pod that an attempt waits for: workers before the launcher, which waits for them."""
    for pod in reversed(instance.pods):
        if not (pod.is_ready or pod.is_terminal):
            cause = f": {pod.waits_for}" if pod.waits_for else ""
            state = "running but not Ready" if pod.phase == "Running" else pod.phase
            return f"Pod {pod.name} is {state}{cause}; kubectl describe pod {pod.name} tells more"
    return ""


def blocked_seconds_left(
    instances: Iterable[Instance], now: datetime, patience: Patience
) -> float | None:
    """Return the seconds until the first attempt is given up; None: none is blocked, or no limit is
    set."""
    hold_seconds = patience.start_seconds
    waits = [
        (instance.blocked_since - now).total_seconds() + hold_seconds
        for instance in instances
        if instance.blocked_since is not None
    ]
    return min(waits) if waits and hold_seconds else None


def blocked_causes(instances: Iterable[Instance]) -> Iterator[tuple[str, str]]:
    """Return the cause shown during the pause."""
    for instance in instances:
        if instance.is_blocked_out:
            yield Reason.START_BLOCKED, str((instance.record.last_exit or {}).get("message"))


# The reasons of a restart; any other reason of the condition is outdated.
ENDS = frozenset({Reason.RESTARTING.value, *(reason.value for reason in LOST)})


def waiting_verdict(observed: Observed, instances: tuple[Instance, ...], now: datetime) -> Verdict:
    """Return Pending with the first cause that a person can do something about.

    A restarting job stays Restarting and shows why it ended, as long as nothing blocks it.
    """
    state = _waiting_state(observed)
    causes = (
        *stuck_causes(instances, now),
        *blocked_causes(instances),
        *unheard_causes(instances),
    )
    for reason, message in (*causes, *_causes(observed, instances)):
        return Verdict(state, reason, message)
    known = current_condition(observed.status()) if state is JobState.RESTARTING else None
    if known is not None and known.get("reason") in ENDS:
        return Verdict(state, known["reason"], known.get("message", ""))
    return plain_verdict(state, observed.key.path)


def pending_cause(observed: Observed, instances: Iterable[Instance]) -> str:
    """Return the reason that other instances of a running job wait; empty: none waits, or none is
    known."""
    waiting = tuple(one for one in instances if not (one.has_started or one.is_settled))
    causes = (*blocked_causes(waiting), *_causes(observed, waiting)) if waiting else ()
    return causes[0][1] if causes else ""


def _waiting_state(observed: Observed) -> JobState:
    restarting = JobState.RESTARTING
    return restarting if observed.state() is restarting else JobState.PENDING


def _causes(observed: Observed, instances: tuple[Instance, ...]) -> Iterator[tuple[str, str]]:
    if observed.is_namespace_ending:
        message = (
            f"Namespace {observed.key.namespace} is being deleted, so nothing can be created in it"
        )
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
        elif partition.reason and not _is_reported(instance, partition):  # it hangs on the way
            yield partition.reason, partition.message
    for instance in instances:
        for pod in reversed(instance.pods):  # workers before the launcher that waits for them
            if pod.trouble is not None:
                yield pod.trouble.reason, _first_details(observed, pod.trouble)


def _is_reported(instance: Instance, partition: Partition) -> bool:
    """Return whether the partition's fault has ended an attempt before: the job says so already."""
    return partition.phase == Phase.ERROR and partition.attempt < instance.attempt


def _first_details(observed: Observed, trouble: Trouble) -> str:
    """Keep the first details of a problem.

    A registry words each refusal differently (a request's number, a time), and each change would be
    a write.
    """
    known = current_condition(observed.status()) or {}
    message = str(known.get("message") or "")
    if known.get("reason") == trouble.reason and message.startswith(f"{trouble.message}: "):
        return message
    return trouble.sentence


LOOK_AGAIN_SECONDS = 2.0
COLLECTED_WITHIN = timedelta(seconds=30)


def verdict(observed: Observed, now: datetime) -> Verdict | None:
    """Pending because of a foreign object; None: there is none.

    Right after a job was replaced by one of the same name its predecessor's objects are still
    being collected; that passes by itself and is no news.
    """
    created = parse_time(metadata(observed.job or {}).get("creationTimestamp"))
    for child in observed.children.values():
        if child.job_uid != observed.key.uid:
            if created is not None and now - created < COLLECTED_WITHIN:
                return plain_verdict(JobState.PENDING, observed.key.path)
            return Verdict(
                JobState.PENDING,
                Reason.NAME_CONFLICT,
                f"{child.kind} {child.namespace}/{child.name} already exists and does not "
                "belong to the job: delete it or rename the job",
            )
    return None


def orphans(observed: Observed) -> tuple[DeleteChild, ...]:
    """Return our children without an owner (`--cascade=orphan` removes it): only we delete them."""
    return tuple(
        DeleteChild(child.kind, child.namespace, child.name, child.uid)
        for child in observed.children.values()
        if child.is_orphan_of(observed.key.uid) and not child.is_deleting
    )
