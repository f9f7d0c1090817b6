"""io: which pods a job has, by the API server's own word.

A watch may be late by a minute; what cannot be undone does not rest on the copy that it feeds.
Every function raises ApiError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.kube.errors import NotFound
from jobs.actions import Kind
from jobs.manifests import labels_of
from jobs.names import LABEL_ATTEMPT, LABEL_INSTANCE, LABEL_JOB_UID
from jobs.ownership import is_object_of, is_pod_of
from jobs.podview import TERMINAL
from jobs.resources import RESOURCE_OF

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from jobs.names import JobKey

_PODS = RESOURCE_OF[Kind.POD]


async def has_pod(client: KubeClient, key: JobKey, name: str, attempt: int) -> bool:
    """Whether the job has this pod, and for this attempt."""
    try:
        pod = await client.get(_PODS, name, key.namespace)
    except NotFound:
        return False
    return is_object_of(pod, key) and labels_of(pod).get(LABEL_ATTEMPT) == str(attempt)


async def has_live_pods(client: KubeClient, key: JobKey, instance: int) -> bool:
    """Whether a pod may still use the instance's IPUs."""
    selector = f"{LABEL_JOB_UID}={key.uid}"
    found = await client.list(_PODS, key.namespace, label_selector=selector)
    return any(
        (pod.get("status") or {}).get("phase") not in TERMINAL
        for pod in found.items
        if is_pod_of(pod, key)
        and labels_of(pod).get(LABEL_INSTANCE, str(instance)) == str(instance)
    )
