"""domain: the fields of Pods, Nodes and Leases that are read, with their types.

The client drops malformed fields before anything else reads them. An API server validates these
kinds, but a faulty one, or a proxy before it, must not stop the work on all other objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from msgspec import Meta

from ipuhub.fieldrules import EVERY, SCALAR, FieldReader, Needed
from ipuhub.kube.resources import LEASES, NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipuhub.kube.resources import Manifest, Resource

NAME: Final = "metadata.name"
_INTEGER: Final = Annotated[int, Meta(ge=-(2**63) + 1, le=2**63 - 1)]  # more overflows a float
_TEXTS: Final = {EVERY: str}


class ReadObject(NamedTuple):
    """An object as read, or None if it has no name. `malformed`: the paths of dropped values."""

    manifest: Manifest | None
    malformed: tuple[str, ...] = ()


def _texts(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, str)


_META: Final = {
    "name": Needed(Annotated[str, Meta(min_length=1)]),
    **_texts("namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"),
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "ownerReferences": [{**_texts("apiVersion", "kind", "name", "uid"), "controller": bool}],
}
_CONDITIONS: Final = [_texts("type", "status", "reason", "message", "lastTransitionTime")]
_CONTAINERS: Final = [
    {**_texts("name", "restartPolicy"), "resources": {"limits": {"memory": SCALAR}}}
]
_STATUSES: Final = [
    {
        **_texts("name", "image"),
        "state": {
            "waiting": _texts("reason", "message"),
            "running": _texts("startedAt"),
            "terminated": {
                **_texts("reason", "message", "startedAt", "finishedAt"),
                "exitCode": _INTEGER,
            },
        },
    }
]
_SHAPES: Final[Mapping[str, dict[str, Any]]] = {
    PODS.kind: {
        "spec": {
            "nodeName": str,
            "activeDeadlineSeconds": _INTEGER,
            "initContainers": _CONTAINERS,
            "containers": _CONTAINERS,
        },
        "status": {
            **_texts("phase", "reason", "message", "startTime"),
            "conditions": _CONDITIONS,
            "initContainerStatuses": _STATUSES,
            "containerStatuses": _STATUSES,
        },
    },
    NODES.kind: {
        "spec": {"unschedulable": bool},
        "status": {
            "conditions": _CONDITIONS,
            "addresses": [_texts("type", "address")],
            "capacity": _TEXTS,
            "allocatable": _TEXTS,
        },
    },
    LEASES.kind: {
        "spec": {
            **_texts("holderIdentity", "acquireTime", "renewTime"),
            "leaseDurationSeconds": _INTEGER,
            "leaseTransitions": _INTEGER,
        },
    },
}
_READERS: Final = {
    kind: FieldReader({"metadata": Needed(_META), **shape}, is_null_missing=True)
    for kind, shape in _SHAPES.items()
}


def read_object(resource: Resource, found: object) -> ReadObject:
    """Return an object of `resource` without malformed fields. Other kinds, and unknown fields,
    stay; a null counts as a missing field."""
    reader = _READERS.get(resource.kind)
    manifest, malformed = reader.read(found) if reader else (found, ())
    if not isinstance(manifest, dict):
        return ReadObject(None, (NAME,))
    return ReadObject(manifest, malformed)
