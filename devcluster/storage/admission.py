"""domain: defaults and validation of the built-in kinds, applied before an object is stored.

Also the checks of kinds that the API server only stores: data keys, rules, leases.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.crds import CRDS
from devcluster.status import FieldError, forbidden_field, invalid_value, required
from devcluster.storage.pods import check_pod, check_pod_update, default_new_pod, default_pod
from devcluster.webhooks.conditions import find_faults
from devcluster.webhooks.review import MUTATING, VALIDATING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devcluster.schemas.kinds import Kind

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
                yield invalid_value(f"{place}[{key}]", key, _KEY_RULE)
    for key in (body.get("data") or {}).keys() & (body.get("binaryData") or {}).keys():
        yield invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
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
        yield invalid_value("spec.leaseDurationSeconds", value, "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        value = spec["leaseTransitions"]
        yield invalid_value("spec.leaseTransitions", value, "must be greater than or equal to 0")


def _crd_faults(body: Body) -> Iterator[FieldError]:
    versions = (body.get("spec") or {}).get("versions") or []
    stored = [version for version in versions if version.get("storage")]
    if len(stored) != 1:
        message = "Invalid value: must have exactly one version marked as storage version"
        yield FieldError("spec.versions", "FieldValueInvalid", message)
    elif not (stored[0].get("schema") or {}).get("openAPIV3Schema"):
        yield required("spec.versions.schema.openAPIV3Schema")


def _webhook_faults(body: Body) -> Iterator[FieldError]:
    for number, webhook in enumerate(body.get("webhooks") or ()):
        client = webhook.get("clientConfig") or {}
        url = client.get("url") or ""
        if bool(url) == bool(client.get("service")):
            detail = "exactly one of url or service is required"
            yield required(f"webhooks[{number}].clientConfig", detail)
        elif url and not url.startswith("https://"):
            detail = "the embedded API calls webhooks by an https URL"
            yield required(f"webhooks[{number}].clientConfig.url", detail)
        conditions = webhook.get("matchConditions") or ()
        yield from find_faults(conditions, f"webhooks[{number}].matchConditions")


def _event_faults(body: Body) -> Iterator[FieldError]:
    about = (body.get("involvedObject") or {}).get("namespace", "")
    if about != body["metadata"]["namespace"] and (
        about or body["metadata"]["namespace"] not in {"default", "kube-system"}
    ):
        yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")


KIND_RULES: Final[dict[str, Callable[[Body], Iterator[FieldError]]]] = {
    "configmaps": _data_faults,
    "secrets": _secret_faults,
    f"roles.{_RBAC}": _role_faults,
    f"clusterroles.{_RBAC}": _role_faults,
    "leases.coordination.k8s.io": _lease_faults,
    "events": _event_faults,
    CRDS: _crd_faults,
    MUTATING: _webhook_faults,
    VALIDATING: _webhook_faults,
}
"""Resource -> the faults of a stored object whose types are right."""
PROTECTED_NAMESPACES: Final = ("default", "kube-public", "kube-system")
CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
_RBAC_GROUP: Final = "rbac.authorization.k8s.io"


def default_new(kind: Kind, body: Body) -> None:
    """Fill in what the API server fills in when an object of a built-in kind is created."""
    if kind.has_status and kind.plural != "nodes":
        body.pop("status", None)  # only nodes register themselves together with a status
    default = _ON_CREATE.get(kind.resource_name)
    if default is not None:
        default(body)
    default_always(kind, body)


def default_always(kind: Kind, body: Body) -> None:
    """Fill in what the API server fills in at every write."""
    default = _ALWAYS.get(kind.resource_name)
    if default is not None:
        default(body)


def check_new(kind: Kind, body: Body) -> list[FieldError]:
    """Return the faults of a new object of a built-in kind."""
    check = _CHECKS.get(kind.resource_name)
    return list(check(body)) if check is not None else []


def check_update(kind: Kind, old: Body, new: Body) -> list[FieldError]:
    """Return what an update must not have changed, and the faults of the new state."""
    if kind.resource_name == "pods":
        return check_pod_update(old, new)
    if kind.plural in {"rolebindings", "clusterrolebindings"} and old["roleRef"] != new["roleRef"]:
        return [_changed_role(new["roleRef"])]
    if kind.plural == "secrets" and old.get("type") != new.get("type"):
        return [invalid_value("type", new.get("type"), "field is immutable")]
    if kind.plural in {"configmaps", "secrets"} and old.get("immutable"):
        names = ("data", "binaryData", "immutable", "type")
        return [
            forbidden_field(name, "field is immutable when `immutable` is set")
            for name in names
            if old.get(name) != new.get(name)
        ]
    return check_new(kind, new)


def _changed_role(reference: Body) -> FieldError:
    """The refusal of another role, which the server shows with the names of its own fields."""
    names = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
    parts = {field: reference.get(name, "") for field, name in names.items()}
    text = json.dumps(parts, separators=(",", ":"))
    return FieldError("roleRef", "FieldValueInvalid", f"Invalid value: {text}: field is immutable")


def _default_namespace(body: Body) -> None:
    labels = body["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = body["metadata"].get("name", "")
    body["spec"] = {"finalizers": ["kubernetes"]}
    body["status"] = {"phase": "Active"}


def _default_secret(body: Body) -> None:
    body.setdefault("type", "Opaque")
    for name, text in (body.pop("stringData", None) or {}).items():
        encoded = base64.b64encode(str(text).encode()).decode()
        body.setdefault("data", {})[name] = encoded


def _default_claim(body: Body) -> None:
    finalizers = body["metadata"].setdefault("finalizers", [])
    if CLAIM_FINALIZER not in finalizers:
        finalizers.append(CLAIM_FINALIZER)
    body.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    body["status"] = {"phase": "Pending"}


def _default_volume(body: Body) -> None:
    spec = body.setdefault("spec", {})
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    body["status"] = {"phase": "Available"}


def _default_binding(body: Body) -> None:
    body.setdefault("roleRef", {}).setdefault("apiGroup", _RBAC_GROUP)
    for subject in body.get("subjects") or []:
        group = "" if subject.get("kind") == "ServiceAccount" else _RBAC_GROUP
        if group:
            subject.setdefault("apiGroup", group)


def _default_crd(body: Body) -> None:
    spec = body.setdefault("spec", {})
    names = spec.setdefault("names", {})
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    spec.setdefault("conversion", {"strategy": "None"})


def _default_webhooks(body: Body) -> None:
    for webhook in body.get("webhooks") or ():
        _default_webhook(webhook)


def _default_webhook(webhook: Body) -> None:
    webhook.setdefault("failurePolicy", "Fail")
    webhook.setdefault("matchPolicy", "Equivalent")
    webhook.setdefault("timeoutSeconds", 10)
    for name in ("namespaceSelector", "objectSelector"):
        webhook.setdefault(name, {})
    for rule in webhook.get("rules") or ():
        rule.setdefault("scope", "*")


_ON_CREATE: Final[dict[str, Callable[[Body], None]]] = {
    "namespaces": _default_namespace,
    "pods": default_new_pod,
    "persistentvolumeclaims": _default_claim,
    "persistentvolumes": _default_volume,
}
_ALWAYS: Final[dict[str, Callable[[Body], None]]] = {
    "pods": default_pod,
    "secrets": _default_secret,
    f"rolebindings.{_RBAC_GROUP}": _default_binding,
    f"clusterrolebindings.{_RBAC_GROUP}": _default_binding,
    "customresourcedefinitions.apiextensions.k8s.io": _default_crd,
    MUTATING: _default_webhooks,
    VALIDATING: _default_webhooks,
}
_CHECKS: Final[dict[str, Callable[[Body], Iterable[FieldError]]]] = {
    "pods": check_pod,
    **KIND_RULES,
}
