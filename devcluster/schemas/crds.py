"""domain: CustomResourceDefinitions: how they are validated and served."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.builtin import definitions
from devcluster.schemas.kinds import ALL_VERBS, STATUS_VERBS, Kind, Subresource
from devcluster.schemas.schema import Schema

if TYPE_CHECKING:
    from devcluster.status import FieldError

CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
CRD_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_ESTABLISHED: Final = {
    "NamesAccepted": ("NoConflicts", "no conflicts found"),
    "Established": ("InitialNamesAccepted", "the initial names have been accepted"),
}


@dataclass(frozen=True, slots=True)
class CustomKind:
    """The version of a CRD that is stored and served; `columns` and `scale` are as the CRD says."""

    kind: Kind
    schema: Schema
    open_api: dict[str, Any]
    columns: list[dict[str, Any]] = field(default_factory=list)
    scale: dict[str, str] | None = None

    def faults(self, body: dict[str, Any], subresource: str = "") -> list[FieldError]:
        """Return the errors of an object by its schema, or of its status alone."""
        if subresource == "status":
            return self.schema.validate_part(body, "status")
        return self.schema.validate(body)


def serve(crd: dict[str, Any]) -> list[CustomKind]:
    """Return the kind that an established CRD serves, none before it is established."""
    status = crd.get("status") or {}
    established = any(
        c["type"] == "Established" and c["status"] == "True" for c in status.get("conditions", [])
    )
    return [_serve_version(crd, _storage_version(crd))] if established else []


def _serve_version(crd: dict[str, Any], version: dict[str, Any]) -> CustomKind:
    spec = crd["spec"]
    names, subresources = spec["names"], version.get("subresources") or {}
    below: list[Subresource] = []
    if "status" in subresources:
        below.append(Subresource("status", names["kind"], STATUS_VERBS))
    if "scale" in subresources:
        below.append(Subresource("scale", "Scale", STATUS_VERBS, "autoscaling", "v1"))
    kind = Kind(
        spec["group"],
        version["name"],
        names["plural"],
        names["singular"],
        names["kind"],
        spec["scope"] == "Namespaced",
        tuple(names.get("shortNames") or ()),
        ALL_VERBS,
        tuple(names.get("categories") or ()),
        tuple(below),
        names["listKind"],
    )
    open_api = version["schema"]["openAPIV3Schema"]
    columns = version.get("additionalPrinterColumns") or []
    scale = subresources.get("scale")
    return CustomKind(kind, Schema(open_api, definitions()), open_api, columns, scale)


def accept_names(crd: dict[str, Any], now: str) -> bool:
    """Write the status of an accepted CRD; return whether that changed anything."""
    names = crd["spec"]["names"]
    status = crd.setdefault("status", {})
    before = repr(status)
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    for kind, (reason, message) in _ESTABLISHED.items():
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        condition["lastTransitionTime"] = conditions.get(kind, {}).get("lastTransitionTime", now)
        conditions[kind] = condition
    status["conditions"] = list(conditions.values())
    status["acceptedNames"] = dict(names)
    stored = status.get("storedVersions") or []
    version = _storage_version(crd)["name"]
    status["storedVersions"] = stored if version in stored else [*stored, version]
    return repr(status) != before


def _storage_version(crd: dict[str, Any]) -> dict[str, Any]:
    version: dict[str, Any] = next(v for v in crd["spec"]["versions"] if v.get("storage"))
    return version
