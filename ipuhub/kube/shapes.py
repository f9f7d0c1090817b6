"""domain: the fields of Pods, Nodes and Leases that are read, with their types.

The client drops fields of wrong types here, before anything else reads them, so that no reader has
to expect them. An API server validates these kinds, but a faulty one, or a proxy before it, must
not stop the work on all other objects.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from ipuhub.kube.resources import LEASES, NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipuhub.kube.resources import Manifest, Resource

EVERY: Final = ""
NAME: Final = "metadata.name"
_NEEDED: Final = {"": "metadata", "metadata": "name"}
_DROPPED: Final = object()
_LARGEST: Final = 2**63 - 1  # a larger number would overflow a float
_TEXTS: Final = {EVERY: str}


class ReadObject(NamedTuple):
    """An object as read, or None if it has no name. `malformed`: the paths of dropped values."""

    manifest: Manifest | None
    malformed: tuple[str, ...] = ()


def _texts(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, str)


_META: Final = {
    **_texts("name", "namespace", "uid", "resourceVersion"),
    **_texts("creationTimestamp", "deletionTimestamp"),
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "ownerReferences": [{**_texts("apiVersion", "kind", "name", "uid"), "controller": bool}],
}
_CONDITIONS: Final = [_texts("type", "status", "reason", "message", "lastTransitionTime")]
_CONTAINERS: Final = [
    {**_texts("name", "restartPolicy"), "resources": {"limits": {"memory": object}}}
]
_STATUSES: Final = [
    {
        **_texts("name", "image"),
        "state": {
            "waiting": _texts("reason", "message"),
            "running": _texts("startedAt"),
            "terminated": {
                **_texts("reason", "message", "startedAt", "finishedAt"),
                "exitCode": int,
            },
        },
    }
]
_SHAPES: Final[Mapping[str, dict[str, Any]]] = {
    PODS.kind: {
        "metadata": _META,
        "spec": {
            "nodeName": str,
            "activeDeadlineSeconds": int,
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
        "metadata": _META,
        "spec": {"unschedulable": bool},
        "status": {
            "conditions": _CONDITIONS,
            "addresses": [_texts("type", "address")],
            "capacity": _TEXTS,
            "allocatable": _TEXTS,
        },
    },
    LEASES.kind: {
        "metadata": _META,
        "spec": {
            **_texts("holderIdentity", "acquireTime", "renewTime"),
            "leaseDurationSeconds": int,
            "leaseTransitions": int,
        },
    },
}


def read_object(resource: Resource, found: object) -> ReadObject:
    """Return an object of `resource` without malformed fields. Other kinds, and unknown fields,
    stay; a null counts as a missing field."""
    shape = _SHAPES.get(resource.kind)
    if shape is None and isinstance(found, dict):
        return ReadObject(found)
    if shape is not None and _is_whole(resource.kind, found):
        return ReadObject(found)  # type: ignore[arg-type]  # it has the fields of a dict
    malformed: list[str] = []
    read = _read(found, shape or {}, "", malformed)
    if not isinstance(read, dict) or not (read.get("metadata") or {}).get("name"):
        return ReadObject(None, (NAME,))
    return ReadObject(read, tuple(malformed))


def _is_whole(kind: str, found: object) -> bool:
    """Return whether nothing in an object is malformed, in a tenth of the time of reading
    it."""
    try:
        msgspec.convert(found, _types(kind))
    except msgspec.ValidationError:
        return False
    return isinstance(found, dict)


@cache
def _types(kind: str) -> Any:
    """Return the shape as types of msgspec, which checks an object in C. Unknown fields pass."""
    return _type_of(_SHAPES[kind], "")


def _type_of(shape: Any, path: str) -> Any:
    if isinstance(shape, list):
        return list[_type_of(shape[0], path)]  # type: ignore[misc]
    if isinstance(shape, dict):
        if EVERY in shape:
            return dict[str, _type_of(shape[EVERY], path)]  # type: ignore[misc]
        types = {name: _type_of(each, _joined(path, name)) for name, each in shape.items()}
        needed: list[tuple[str, Any]] = []
        if path in _NEEDED:
            name = _NEEDED[path]
            needed.append((name, types.pop(name)))
        # A default is not checked: a field that is there has its type, null is no value of it.
        optional = [(name, each, None) for name, each in types.items()]
        return msgspec.defstruct(path.replace(".", "_") or "object", [*needed, *optional], gc=False)
    if path == NAME:
        return Annotated[str, msgspec.Meta(min_length=1)]
    if shape is object:
        return str | int | float | bool
    return Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)] if shape is int else shape


def _read(value: Any, shape: Any, path: str, malformed: list[str]) -> Any:
    """Return the value, the same if nothing in it is malformed, or _DROPPED.

    A shape is a type; a dict of fields, or of all keys (EVERY); or a list of one shape.
    """
    if isinstance(shape, dict):
        if isinstance(value, dict):
            return _read_fields(value, shape, path, malformed)
    elif isinstance(shape, list):
        if isinstance(value, list):
            return _read_entries(value, shape[0], path, malformed)
    elif _is_scalar(value, shape):
        return value
    malformed.append(path)
    return _DROPPED


def _read_fields(
    value: Manifest, shape: Mapping[str, Any], path: str, malformed: list[str]
) -> Manifest:
    changed: Manifest = {}
    inner = shape.get(EVERY)
    fields = shape if inner is None else dict.fromkeys(value, inner)
    for name, each in fields.items():
        if name not in value:
            continue
        old = value[name]
        new = _DROPPED if old is None else _read(old, each, _joined(path, name), malformed)
        if new is not old:
            changed[name] = new
    if not changed:
        return value
    return {name: each for name, each in (value | changed).items() if each is not _DROPPED}


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _read_entries(value: list[Any], shape: Any, path: str, malformed: list[str]) -> list[Any]:
    read = [_read(each, shape, f"{path}[{n}]", malformed) for n, each in enumerate(value)]
    if all(new is old for new, old in zip(read, value, strict=True)):
        return value
    return [each for each in read if each is not _DROPPED]


def _is_scalar(value: object, kind: type) -> bool:
    if kind is object:
        return not isinstance(value, dict | list)
    # To isinstance, true is an integer.
    return type(value) is kind and (kind is not int or -_LARGEST <= value <= _LARGEST)  # type: ignore[operator]
