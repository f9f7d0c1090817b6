"""io: which pods a job has, by the API server's own word.

A watch may be late by a minute; what cannot be undone does not rest on the copy that it feeds.
Every function raises ApiError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.kube.errors import NotFound
from jobs.ipujob.manifests import labels_of
from jobs.ipujob.names import LABEL_ATTEMPT, LABEL_INSTANCE, LABEL_JOB_UID
from jobs.ipujob.resources import RESOURCE_OF
from jobs.operator.actions import Kind
from jobs.operator.ownership import is_object_of, is_pod_of
from jobs.operator.pods import TERMINAL

if TYPE_CHECKING:
    from ipuhub.kube.client import KubeClient
    from jobs.ipujob.names import JobKey

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
