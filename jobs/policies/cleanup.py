"""domain: what happens to the pods of a finished job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.actions import DeleteChild, EndPod, Kind
from jobs.names import ROLE_WORKER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobs.podview import PodView


def clean_up(pods: Iterable[PodView], policy: str) -> tuple[DeleteChild | EndPod, ...]:
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
            actions.append(end_pod(pod) if pod.is_scheduled else delete_pod(pod))
    return tuple(actions)


def delete_pod(pod: PodView) -> DeleteChild:
    """Delete this pod and no successor of its name."""
    return DeleteChild(Kind.POD, pod.namespace, pod.name, pod.uid)


def end_pod(pod: PodView) -> EndPod:
    """End the pod's containers, keep its object and log."""
    return EndPod(pod.namespace, pod.name, pod.uid)
