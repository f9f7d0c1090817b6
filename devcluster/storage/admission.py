"""domain: defaults and rules of the built-in kinds, applied before an object is stored."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from devcluster.fielderror import FieldError, forbidden, invalid
from devcluster.schemas.crds import CRDS, check_crd_update
from devcluster.storage.kindrules import KIND_RULES
from devcluster.storage.pods import check_pod, check_pod_update, default_new_pod, default_pod
from devcluster.webhooks.rules import default_mutating, default_validating, webhook_faults
from devcluster.webhooks.webhookmatch import MUTATING, VALIDATING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devcluster.schemas.kinds import Kind

Body = dict[str, Any]
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
        return [invalid("type", new.get("type"), "field is immutable")]
    if kind.storage_key == CRDS:
        return check_crd_update(old, new)
    if kind.plural in {"configmaps", "secrets"} and old.get("immutable"):
        names = ("data", "binaryData", "immutable", "type")
        return [
            forbidden(name, "field is immutable when `immutable` is set")
            for name in names
            if old.get(name) != new.get(name)
        ]
    return check_new(kind, new)


def _changed_role(reference: Body) -> FieldError:
    """The refusal of another role, which the server shows with the names of its own fields."""
    names = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
    parts = {shown: reference.get(name, "") for shown, name in names.items()}
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


def _default_deployment(body: Body) -> None:
    spec = body.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    body["status"] = {}


def _default_service(body: Body) -> None:
    spec = body.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


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


_ON_CREATE: Final[dict[str, Callable[[Body], None]]] = {
    "namespaces": _default_namespace,
    "pods": default_new_pod,
    "persistentvolumeclaims": _default_claim,
    "persistentvolumes": _default_volume,
    "deployments.apps": _default_deployment,
}
_ALWAYS: Final[dict[str, Callable[[Body], None]]] = {
    "pods": default_pod,
    "secrets": _default_secret,
    "services": _default_service,
    f"rolebindings.{_RBAC_GROUP}": _default_binding,
    f"clusterrolebindings.{_RBAC_GROUP}": _default_binding,
    "customresourcedefinitions.apiextensions.k8s.io": _default_crd,
    MUTATING: default_mutating,
    VALIDATING: default_validating,
}
_CHECKS: Final[dict[str, Callable[[Body], Iterable[FieldError]]]] = {
    "pods": check_pod,
    **KIND_RULES,
    MUTATING: webhook_faults,
    VALIDATING: webhook_faults,
}
