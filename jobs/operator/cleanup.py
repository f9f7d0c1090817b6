"""domain: what happens to the pods of a finished job."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING

from jobs.ipujob.manifests import format_time
from jobs.ipujob.names import ROLE_WORKER
from jobs.operator.actions import DeleteChild, EndPod, Kind
from jobs.operator.pods import END_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from jobs.operator.pods import PodView

# How long a sleeping pod has to hear of it: a node takes a second or two. Then it is ended like
# any other, which its phase shows as Failed.
PATIENCE = timedelta(seconds=20)


def clean_up(
    pods: Iterable[PodView], policy: str, now: datetime
) -> tuple[DeleteChild | EndPod, ...]:
    """Actions on the pods of a job that will not run again.

    None keeps all pods, Workers keeps the launcher, All keeps none. A kept pod that still runs
    is ended: a sleeping worker would hold CPU, memory and the partition for a year.
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
    if not pod.hears_end or pod.accepted_at is None:
        return EndPod(pod.namespace, pod.name, pod.uid, END_SECONDS)
    seconds = max(ceil((now + PATIENCE - pod.accepted_at).total_seconds()), END_SECONDS)
    is_sooner = pod.deadline is None or seconds < pod.deadline
    deadline = seconds if is_sooner else None
    return EndPod(pod.namespace, pod.name, pod.uid, deadline, format_time(now))
