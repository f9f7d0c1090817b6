"""domain: the objects that belong to a job.

Anybody who can create a pod can give it a job's labels, in any namespace. An object belongs to a
job if it is in the job's namespace, has a name that the job uses, and is controlled by the job or
by nothing (`kubectl delete --cascade=orphan` removes the owner). Also digests of a job's objects,
to detect edits, and the trimmed form in which the operator caches objects.
"""

from __future__ import annotations

import hashlib
import json
from sys import intern
from typing import TYPE_CHECKING, Any

from jobs.ipujob.names import (
    ANNOTATION_END,
    ANNOTATION_FINGERPRINT,
    LABEL_JOB_NAME,
    LABEL_JOB_UID,
    LABEL_ROLE,
    LAST_APPLIED,
    ROLE_LAUNCHER,
    JobKey,
    is_worker_name,
    labels_of,
    launcher_name,
    metadata,
    name_of,
    namespace_of,
)
from jobs.ipujob.storedstatus import with_read_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobs.ipujob.names import Manifest


def controller_of(manifest: Manifest) -> str:
    """Return the UID of an object's controller; empty: none.

    The object is complete, or trimmed by `jobs.operator.ownership`.
    """
    meta = metadata(manifest)
    name = meta.get("controller")
    if name is not None:
        return str(name)
    owners = meta.get("ownerReferences") or ()
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def is_object_of(manifest: Manifest, key: JobKey) -> bool:
    """Return whether an object that was found under a name of the job's is the job's."""
    return (
        namespace_of(manifest) == key.namespace
        and labels_of(manifest).get(LABEL_JOB_UID) == key.uid
        and controller_of(manifest) in {"", key.uid}
    )


def is_pod_of(pod: Manifest, key: JobKey) -> bool:
    """Return whether the operator made this pod for the job."""
    name = name_of(pod)
    if name != launcher_name(key.name) and (
        labels_of(pod).get(LABEL_ROLE) == ROLE_LAUNCHER or not is_worker_name(name, key.name)
    ):
        return False
    return is_object_of(pod, key)


def claimed_key(manifest: Manifest) -> JobKey:
    """Return the job, in the object's namespace, that the object claims to belong to."""
    labels = labels_of(manifest)
    name, uid = labels.get(LABEL_JOB_NAME, ""), labels.get(LABEL_JOB_UID, "")
    return JobKey(namespace_of(manifest), name, uid)


_FIELDS = ("data", "binaryData", "rules", "roleRef", "subjects")


def contents_of(manifest: Manifest) -> str:
    """Return a digest of the fields that the operator fills; empty if there are none."""
    filled = {name: manifest[name] for name in _FIELDS if manifest.get(name)}
    if not filled:
        return ""
    text = json.dumps(filled, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_OURS = "graphcore.ai/"
_META = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_CONDITION = ("type", "status", "reason", "message")
_STATUSES = ("initContainerStatuses", "containerStatuses")
_ANNOTATIONS = (ANNOTATION_FINGERPRINT, ANNOTATION_END)


def trim_job(job: Manifest) -> Manifest:
    """Return the job without the annotation of `kubectl apply`, a second copy of the spec, and
    without malformed fields of its status."""
    annotations = job["metadata"].get("annotations") or {}
    if LAST_APPLIED in annotations:
        rest = {name: text for name, text in annotations.items() if name != LAST_APPLIED}
        job = job | {"metadata": job["metadata"] | {"annotations": rest}}
    trimmed: Manifest = _shared(with_read_status(job))
    return trimmed


def trim_child(manifest: Manifest) -> Manifest:
    """Return its identity, owner and creation time, and a digest of its contents."""
    trimmed = _identity(manifest) | _of(manifest["metadata"], ("creationTimestamp",))
    return {
        "metadata": trimmed,
        "contents": manifest["contents"] if "contents" in manifest else contents_of(manifest),
    }


def trim_pod(pod: Manifest) -> Manifest:
    """Return the fields that `jobs.operator.pods` reads."""
    meta = _identity(pod) | _of(pod["metadata"], ("creationTimestamp",))
    trimmed: Manifest = {"metadata": meta}
    annotations = _of(pod["metadata"].get("annotations") or {}, _ANNOTATIONS)
    if annotations:
        trimmed["metadata"]["annotations"] = annotations
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    trimmed["spec"] = _of(spec, ("nodeName", "activeDeadlineSeconds")) | {
        kind: [_of_container(container) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if spec.get(kind)
    }
    trimmed["status"] = _of(status, ("phase", "reason", "message", "startTime"))
    conditions = [_of(c, _CONDITION) for c in status.get("conditions") or () if _is_read(c)]
    if conditions:
        trimmed["status"]["conditions"] = conditions
    for kind in _STATUSES:
        if status.get(kind):
            trimmed["status"][kind] = [
                _of(container, ("name", "image", "state")) for container in status[kind]
            ]
    return trimmed


def trim_node(node: Manifest) -> Manifest:
    """Return a node's name and whether it is Ready: nodes are large, and report again and again."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [_of(c, ("type", "status", "reason")) for c in conditions if c.get("type") == "Ready"]
    return {"metadata": _of(node["metadata"], _META), "status": {"conditions": ready}}


def _identity(manifest: Manifest) -> Manifest:
    meta = manifest["metadata"]
    trimmed = _of(meta, _META)
    labels = meta.get("labels") or {}
    trimmed["labels"] = {key: intern(text) for key, text in labels.items() if key.startswith(_OURS)}
    controller = controller_of(manifest)
    if controller:
        trimmed["controller"] = intern(controller)
    return trimmed


def _shared(value: Any) -> Any:
    """Return an equal object whose texts are shared in memory: similar jobs repeat most of them."""
    if isinstance(value, str):
        return intern(value)
    if isinstance(value, dict):
        return {key: _shared(part) for key, part in value.items()}
    return [_shared(part) for part in value] if isinstance(value, list) else value


def _of_container(container: Manifest) -> Manifest:
    trimmed = _of(container, ("name", "restartPolicy"))
    memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return trimmed | {"resources": {"limits": {"memory": memory}}} if memory else trimmed


def _is_read(condition: Manifest) -> bool:
    """Return whether the operator reads a condition. A pod that is scheduled or initialised stays
    so, and is never asked about again."""
    is_true = condition.get("status") == "True"
    return condition.get("type") in {"Ready", "DisruptionTarget"} or not is_true


def _of(source: Mapping[str, Any], names: Iterable[str]) -> Manifest:
    """The named fields that are there; equal texts are kept once."""
    return {
        name: intern(found) if isinstance(found, str) else found
        for name in names
        if (found := source.get(name)) is not None
    }
