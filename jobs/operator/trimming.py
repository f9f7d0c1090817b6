"""domain: what the operator keeps of the objects it watches, so that many cost little memory."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Any

from jobs.ipujob.fingerprint import ANNOTATION_MADE_OF
from jobs.ipujob.names import ANNOTATION_END
from jobs.operator.contents import contents_of
from jobs.operator.ownership import controller_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobs.ipujob.manifests import Manifest

_OURS = "graphcore.ai/"
_META = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_CONDITION = ("type", "status", "reason", "message")
_STATUSES = ("initContainerStatuses", "containerStatuses")
_ANNOTATIONS = (ANNOTATION_MADE_OF, ANNOTATION_END)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def trim_job(job: Manifest) -> Manifest:
    """All but what `kubectl apply` has put there for itself, a second copy of the spec."""
    annotations = job["metadata"].get("annotations") or {}
    if _LAST_APPLIED in annotations:
        rest = {name: text for name, text in annotations.items() if name != _LAST_APPLIED}
        job = job | {"metadata": job["metadata"] | {"annotations": rest}}
    trimmed: Manifest = _shared(job)
    return trimmed


def trim_child(manifest: Manifest) -> Manifest:
    """Who it is and whose, since when, and what is in it, as a digest."""
    kept = _identity(manifest) | _of(manifest["metadata"], ("creationTimestamp",))
    return {
        "metadata": kept,
        "contents": manifest["contents"] if "contents" in manifest else contents_of(manifest),
    }


def trim_pod(pod: Manifest) -> Manifest:
    """What `jobs.operator.pods` reads."""
    kept: Manifest = {"metadata": _identity(pod)}
    annotations = _of(pod["metadata"].get("annotations") or {}, _ANNOTATIONS)
    if annotations:
        kept["metadata"]["annotations"] = annotations
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    kept["spec"] = _of(spec, ("nodeName", "activeDeadlineSeconds")) | {
        kind: [_of_container(container) for container in spec[kind]]
        for kind in ("initContainers", "containers")
        if spec.get(kind)
    }
    kept["status"] = _of(status, ("phase", "reason", "message", "startTime"))
    conditions = [_of(c, _CONDITION) for c in status.get("conditions") or () if _is_told(c)]
    if conditions:
        kept["status"]["conditions"] = conditions
    for kind in _STATUSES:
        if status.get(kind):
            kept["status"][kind] = [_of(one, ("name", "image", "state")) for one in status[kind]]
    return kept


def _identity(manifest: Manifest) -> Manifest:
    meta = manifest["metadata"]
    kept = _of(meta, _META)
    labels = meta.get("labels") or {}
    kept["labels"] = {key: intern(text) for key, text in labels.items() if key.startswith(_OURS)}
    controller = controller_of(manifest)
    if controller:
        kept["controller"] = intern(controller)
    return kept


def _shared(value: Any) -> Any:
    """The same, its texts kept once: jobs of one kind say the same in many words."""
    if isinstance(value, str):
        return intern(value)
    if isinstance(value, dict):
        return {key: _shared(one) for key, one in value.items()}
    return [_shared(one) for one in value] if isinstance(value, list) else value


def _of_container(container: Manifest) -> Manifest:
    kept = _of(container, ("name", "restartPolicy"))
    memory = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return kept | {"resources": {"limits": {"memory": memory}}} if memory else kept


def _is_told(condition: Manifest) -> bool:
    """Scheduled and initialised pods are so for good: nobody asks any more."""
    is_true = condition.get("status") == "True"
    return condition.get("type") in {"Ready", "DisruptionTarget"} or not is_true


def _of(source: Mapping[str, Any], names: Iterable[str]) -> Manifest:
    """The named fields that are there; equal texts are kept once."""
    return {
        name: intern(found) if isinstance(found, str) else found
        for name in names
        if (found := source.get(name)) is not None
    }
