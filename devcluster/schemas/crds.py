"""domain: CustomResourceDefinitions: how they are checked, accepted and served."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from devcluster.schemas.kinds import ALL_VERBS, STATUS_VERBS, Kind, Subresource
from devcluster.schemas.schema import Schema, structural_errors
from devcluster.status import FieldError, go_value, invalid_value, required, unsupported

CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"
CRD_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"
_KIND: Final = re.compile(r"[A-Za-z]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_ESTABLISHED: Final = {
    "NamesAccepted": ("NoConflicts", "no conflicts found"),
    "Established": ("InitialNamesAccepted", "the initial names have been accepted"),
}
_SPEC_PATHS: Final = {"specReplicasPath": "int64"}
_STATUS_PATHS: Final = {"statusReplicasPath": "int64", "labelSelectorPath": "string"}
_GO_TYPES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
}


@dataclass(frozen=True, slots=True)
class CustomKind:
    """A served version of a CRD; `stored_as`: the apiVersion that its objects are stored with.

    `columns` and `scale` are as the CRD has them.
    """

    kind: Kind
    schema: Schema
    open_api: dict[str, Any]
    stored_as: str
    columns: list[dict[str, Any]] = field(default_factory=list)
    scale: dict[str, str] | None = None

    def faults(self, body: dict[str, Any], subresource: str = "") -> list[FieldError]:
        """What is wrong with an object by its schema and its scale; of the status just the part."""
        if subresource == "status":
            found, names = self.schema.validate_part(body, "status"), _STATUS_PATHS
        else:
            found, names = self.schema.validate(body), _SPEC_PATHS
        for name, wanted in names.items():
            found += _scale_faults(body, (self.scale or {}).get(name, ""), wanted)
        return found


def _scale_faults(body: dict[str, Any], path: str, wanted: str) -> list[FieldError]:
    """Faults of what the scale subresource reads at `path` (int64 or string)."""
    value: Any = body if path else None
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return []
    found = _GO_TYPES.get(type(value), "map[string]interface {}")
    if found != wanted:
        shown = value if isinstance(value, str) else go_value(value)
        why = f"{path} accessor error: {shown} is of the type {found}, expected {wanted}"
        return [invalid_value(path, 0 if wanted == "int64" else "", why)]
    if wanted == "int64" and value < 0:
        return [invalid_value(path, value, "should be a non-negative integer")]
    return []


def serve(crd: dict[str, Any]) -> list[CustomKind]:
    """Return the versions that an established CRD serves, none before it is established."""
    status = crd.get("status") or {}
    established = any(
        c["type"] == "Established" and c["status"] == "True" for c in status.get("conditions", [])
    )
    versions = crd["spec"]["versions"] if established else []
    return [_serve_version(crd, version) for version in versions if version.get("served")]


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
    stored_as = f"{spec['group']}/{_storage_version(crd)['name']}"
    scale = subresources.get("scale")
    return CustomKind(kind, Schema(open_api), open_api, stored_as, columns, scale)


def check_crd(crd: dict[str, Any]) -> list[FieldError]:
    """Return what makes a CRD unusable: names, versions, scale paths, missing types."""
    spec = crd["spec"]
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    wanted = f"{names.get('plural')}.{spec.get('group')}"
    errors: list[FieldError] = []
    name = crd["metadata"].get("name", "")
    if name != wanted:
        errors.append(
            invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
        )
    errors += [] if spec.get("group") else [required("spec.group")]
    errors += [required(f"spec.names.{n}") for n in ("plural", "kind") if not names.get(n)]
    for name in ("kind", "listKind"):
        if not _KIND.fullmatch(names.get(name) or "A"):
            errors.append(invalid_value(f"spec.names.{name}", names[name], "must be a DNS label"))
    if spec.get("scope") not in {"Namespaced", "Cluster"}:
        scopes = ("Cluster", "Namespaced")
        errors.append(unsupported("spec.scope", spec.get("scope", ""), scopes))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        message = "Invalid value: must have exactly one version marked as storage version"
        errors.append(FieldError("spec.versions", "FieldValueInvalid", message))
    for number, version in enumerate(versions):
        errors += _check_version(f"spec.versions[{number}]", version)
    return errors


def check_crd_update(old: dict[str, Any], new: dict[str, Any]) -> list[FieldError]:
    """Return what an update of an established CRD must not have changed."""
    errors = [
        invalid_value(f"spec.{name}", new["spec"].get(name), "field is immutable")
        for name in ("group", "scope")
        if new["spec"].get(name) != old["spec"][name]
    ]
    left = [version.get("name") for version in new["spec"].get("versions") or []]
    for number, name in enumerate((new.get("status") or {}).get("storedVersions") or []):
        if name not in left:
            path = f"status.storedVersions[{number}]"
            errors.append(invalid_value(path, name, "must appear in spec.versions"))
    return errors


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


def _check_version(path: str, version: dict[str, Any]) -> list[FieldError]:
    if not version.get("name"):
        return [required(f"{path}.name")]
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        return [required(f"{path}.schema.openAPIV3Schema")]
    errors: list[FieldError] = []
    errors += structural_errors(schema, f"{path}.schema.openAPIV3Schema")
    for number, column in enumerate(version.get("additionalPrinterColumns") or []):
        text = column.get("jsonPath") or ""
        if not text.startswith("."):
            where = f"{path}.additionalPrinterColumns[{number}].jsonPath"
            errors.append(invalid_value(where, text, "must be a simple json path starting with ."))
    scale = (version.get("subresources") or {}).get("scale")
    for name, parent in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        if scale is not None and not str(scale.get(name, "")).startswith(parent):
            message = (
                f'Invalid value: "{scale.get(name, "")}": should be a json path under {parent[:-1]}'
            )
            errors.append(
                FieldError(f"{path}.subresources.scale.{name}", "FieldValueInvalid", message)
            )
    return errors
