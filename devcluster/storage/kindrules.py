"""domain: what the API server refuses in kinds that it only stores: data keys, rules, leases."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from devcluster.fielderror import FieldError, invalid, required

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Body = dict[str, Any]
_DATA_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_DATA_BYTES: Final = 1024 * 1024
_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
    "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_SECRET_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_RBAC: Final = "rbac.authorization.k8s.io"


def _data_faults(body: Body) -> Iterator[FieldError]:
    size = 0
    for place in ("data", "binaryData"):
        for key, value in (body.get(place) or {}).items():
            size += len(value.encode())
            if not _DATA_KEY.fullmatch(key) or key == "." or key.startswith(".."):
                yield invalid(f"{place}[{key}]", key, _KEY_RULE)
    for key in (body.get("data") or {}).keys() & (body.get("binaryData") or {}).keys():
        yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    if size > _DATA_BYTES:
        message = f"Too long: may not be more than {_DATA_BYTES} bytes"
        yield FieldError("", "FieldValueTooLong", message)


def _secret_faults(body: Body) -> Iterator[FieldError]:
    yield from _data_faults(body)
    for key in _SECRET_KEYS.get(body.get("type") or "", ()):
        if key not in (body.get("data") or {}):
            yield required(f"data[{key}]")


def _role_faults(body: Body) -> Iterator[FieldError]:
    for number, rule in enumerate(body.get("rules") or []):
        path = f"rules[{number}]"
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            continue
        for name in ("apiGroups", "resources"):
            if not rule.get(name):
                detail = f"resource rules must supply at least one {name[:-1]}"
                yield required(f"{path}.{name}", detail)


def _lease_faults(body: Body) -> Iterator[FieldError]:
    spec = body.get("spec") or {}
    if spec.get("leaseDurationSeconds", 1) <= 0:
        value = spec["leaseDurationSeconds"]
        yield invalid("spec.leaseDurationSeconds", value, "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        value = spec["leaseTransitions"]
        yield invalid("spec.leaseTransitions", value, "must be greater than or equal to 0")


def _event_faults(body: Body) -> Iterator[FieldError]:
    about = (body.get("involvedObject") or {}).get("namespace", "")
    if about != body["metadata"]["namespace"] and (
        about or body["metadata"]["namespace"] not in {"default", "kube-system"}
    ):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")


KIND_RULES: Final[dict[str, Callable[[Body], Iterator[FieldError]]]] = {
    "configmaps": _data_faults,
    "secrets": _secret_faults,
    f"roles.{_RBAC}": _role_faults,
    f"clusterroles.{_RBAC}": _role_faults,
    "leases.coordination.k8s.io": _lease_faults,
    "events": _event_faults,
    "events.events.k8s.io": _event_faults,
}
"""Resource -> the faults of a stored object whose types are right."""
