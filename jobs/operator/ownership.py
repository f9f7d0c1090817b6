"""domain: which objects are a job's own.

Anybody who may make a pod may give it a job's labels, in any namespace. What belongs to a job
stands in its namespace, under a name that the job uses, and is controlled by the job, or by
nothing: `kubectl delete --cascade=orphan` strips the owner of what the operator has made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ipujob.manifests import labels_of, metadata, name_of, namespace_of
from jobs.ipujob.names import (
    LABEL_JOB_NAME,
    LABEL_JOB_UID,
    LABEL_ROLE,
    ROLE_LAUNCHER,
    JobKey,
    is_worker_name,
    launcher_name,
)

if TYPE_CHECKING:
    from jobs.ipujob.manifests import Manifest


def controller_of(manifest: Manifest) -> str:
    """The UID of what controls an object, in full or as `jobs.operator.trimming` keeps it; empty:
    nothing does."""
    meta = metadata(manifest)
    kept = meta.get("controller")
    if kept is not None:
        return str(kept)
    owners = meta.get("ownerReferences") or ()
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def is_object_of(manifest: Manifest, key: JobKey) -> bool:
    """Whether an object that was found under a name of the job's is the job's."""
    return (
        namespace_of(manifest) == key.namespace
        and labels_of(manifest).get(LABEL_JOB_UID) == key.uid
        and controller_of(manifest) in {"", key.uid}
    )


def is_pod_of(pod: Manifest, key: JobKey) -> bool:
    """Whether a pod is one that the operator has made for the job."""
    name = name_of(pod)
    if name != launcher_name(key.name) and (
        labels_of(pod).get(LABEL_ROLE) == ROLE_LAUNCHER or not is_worker_name(name, key.name)
    ):
        return False
    return is_object_of(pod, key)


def claimed_key(manifest: Manifest) -> JobKey:
    """Whose an object says it is: of a job in its own namespace."""
    labels = labels_of(manifest)
    name, uid = labels.get(LABEL_JOB_NAME, ""), labels.get(LABEL_JOB_UID, "")
    return JobKey(namespace_of(manifest), name, uid)
