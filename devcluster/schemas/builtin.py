"""domain: schemas and merge keys of the built-in kinds, from a generated table of their fields.

`builtin_schemas.json` (made by `manage.py make_builtin_schemas`) holds, by type name, its fields
as `name` (required: `name!`) to one of string, integer, number, boolean, time, bytes, quantity,
intOrString, any, another type's name, `[T]` for a list and `{T}` for a map.

What the Python models of the built-in kinds do not say about their fields.

Source: the Kubernetes API reference (patchStrategy and patchMergeKey of each field; the types
Quantity and IntOrString). Keys are (type, field).

A client's body held against its kind's schema: types, unknown fields, nulls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.schema import OMIT_EMPTY, Schema
from devcluster.status import bad_request
from devcluster.storage.metadata import check_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devcluster.schemas.crds import CustomKind
    from devcluster.schemas.kinds import Kind
    from devcluster.schemas.schema import FieldError

MERGE_KEYS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("ObjectMeta", "finalizers"): "",
        ("ObjectMeta", "ownerReferences"): "uid",
        ("PodSpec", "containers"): "name",
        ("PodSpec", "ephemeralContainers"): "name",
        ("PodSpec", "hostAliases"): "ip",
        ("PodSpec", "imagePullSecrets"): "name",
        ("PodSpec", "initContainers"): "name",
        ("PodSpec", "resourceClaims"): "name",
        ("PodSpec", "schedulingGates"): "name",
        ("PodSpec", "topologySpreadConstraints"): "topologyKey",
        ("PodSpec", "volumes"): "name",
        ("PodStatus", "conditions"): "type",
        ("PodStatus", "hostIPs"): "ip",
        ("PodStatus", "podIPs"): "ip",
        ("PodStatus", "resourceClaimStatuses"): "name",
        ("Container", "env"): "name",
        ("Container", "ports"): "containerPort",
        ("Container", "volumeDevices"): "devicePath",
        ("Container", "volumeMounts"): "mountPath",
        ("ContainerStatus", "volumeMounts"): "mountPath",
        ("EphemeralContainer", "env"): "name",
        ("EphemeralContainer", "ports"): "containerPort",
        ("EphemeralContainer", "volumeDevices"): "devicePath",
        ("EphemeralContainer", "volumeMounts"): "mountPath",
        ("NodeSpec", "podCIDRs"): "",
        ("NodeStatus", "addresses"): "type",
        ("NodeStatus", "conditions"): "type",
        ("NamespaceStatus", "conditions"): "type",
        ("PersistentVolumeClaimStatus", "conditions"): "type",
        ("ServiceAccount", "secrets"): "name",
        ("ServiceSpec", "ports"): "port",
        ("ServiceStatus", "conditions"): "type",
        ("DeploymentStatus", "conditions"): "type",
        ("PodDisruptionBudgetStatus", "conditions"): "type",
        ("MutatingWebhookConfiguration", "webhooks"): "name",
        ("ValidatingWebhookConfiguration", "webhooks"): "name",
    }
)
"""Lists that merge, and by which key; empty: a list of texts that merges as a set."""
QUANTITIES: frozenset[tuple[str, str]] = frozenset(
    {
        ("ContainerStatus", "allocatedResources"),
        ("EmptyDirVolumeSource", "sizeLimit"),
        ("LimitRangeItem", "default"),
        ("LimitRangeItem", "defaultRequest"),
        ("LimitRangeItem", "max"),
        ("LimitRangeItem", "maxLimitRequestRatio"),
        ("LimitRangeItem", "min"),
        ("NodeStatus", "allocatable"),
        ("NodeStatus", "capacity"),
        ("PersistentVolumeClaimStatus", "allocatedResources"),
        ("PersistentVolumeClaimStatus", "capacity"),
        ("PersistentVolumeSpec", "capacity"),
        ("PodSpec", "overhead"),
        ("ResourceFieldSelector", "divisor"),
        ("ResourceQuotaSpec", "hard"),
        ("ResourceQuotaStatus", "hard"),
        ("ResourceQuotaStatus", "used"),
        ("ResourceRequirements", "limits"),
        ("ResourceRequirements", "requests"),
        ("VolumeResourceRequirements", "limits"),
        ("VolumeResourceRequirements", "requests"),
    }
)
"""Texts, or maps of texts, that are quantities; a JSON number is accepted too."""
INT_OR_STRING: frozenset[tuple[str, str]] = frozenset(
    {
        ("HTTPGetAction", "port"),
        ("PodDisruptionBudgetSpec", "maxUnavailable"),
        ("PodDisruptionBudgetSpec", "minAvailable"),
        ("RollingUpdateDeployment", "maxSurge"),
        ("RollingUpdateDeployment", "maxUnavailable"),
        ("ServicePort", "targetPort"),
        ("TCPSocketAction", "port"),
    }
)
REPLACED_TYPES: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        # The model says "object"; the API takes one schema here (a list is not structural).
        ("JSONSchemaProps", "items"): "JSONSchemaProps",
    }
)
SCHEMAS_FILE = Path(__file__).with_name("builtin_schemas.json")
_SCALARS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "string": {"type": "string"},
        "integer": {"type": "integer"},
        "number": {"type": "number"},
        "boolean": {"type": "boolean"},
        "time": {"type": "string", "format": "date-time"},
        "bytes": {"type": "string", "format": "byte"},
        "quantity": {"x-quantity": True},
        "intOrString": {"x-kubernetes-int-or-string": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True, "nullable": True},
    }
)
_ROOT_NAMES = MappingProxyType(
    {
        ("v1", "Event"): "CoreV1Event",
        ("events.k8s.io/v1", "Event"): "EventsV1Event",
        ("authentication.k8s.io/v1", "TokenRequest"): "AuthenticationV1TokenRequest",
    }
)
_JSON_TYPES = MappingProxyType(
    {
        "integer": "number",
        "number": "number",
        "boolean": "bool",
        "object": "object",
        "array": "array",
        "null": "null",
    }
)
_GO_TYPES = MappingProxyType({"integer": "int64", "number": "float64", "boolean": "bool"})


@cache
def definitions() -> Mapping[str, Mapping[str, Any]]:
    """Every type as an object schema; `$ref` holds the bare name of another type."""
    table: dict[str, dict[str, str]] = json.loads(SCHEMAS_FILE.read_text(encoding="utf-8"))
    return {name: _definition(fields) for name, fields in table.items()}


def definition_name(api_version: str, kind: str) -> str:
    """The name under which a kind's own type stands in `definitions`."""
    return _ROOT_NAMES.get((api_version, kind), kind)


@cache
def schema_of(api_version: str, kind: str) -> Schema | None:
    """The schema of a built-in kind, for pruning and `validate`; None for an unknown one."""
    name = definition_name(api_version, kind)
    return Schema({"$ref": name}, definitions()) if name in definitions() else None


@cache
def merge_keys(api_version: str, kind: str) -> Mapping[str, str]:
    """Path of each merging list (`spec.template.spec.containers`) -> its key, for `apply_patch`."""
    name = definition_name(api_version, kind)
    return dict(_merge_paths(name, "", (name,))) if name in definitions() else {}


def field_errors(api_version: str, kind: str, obj: Mapping[str, Any]) -> list[FieldError]:
    """Missing required fields and malformed quantities; types are `decode_error`'s.

    What only a status must have is not asked for: there a real server takes the zero value.
    """
    schema = schema_of(api_version, kind)
    faults = schema.validate(obj) if schema is not None else []
    return [error for error in faults if not _is_type_error(error) and _is_asked_for(error)]


def decode_error(api_version: str, kind: str, obj: Mapping[str, Any]) -> str:
    """The sentence for the first field of the wrong type, empty when all fit.

    The server refuses such a body (400) before it looks at anything else.
    """
    schema = schema_of(api_version, kind)
    faults = schema.validate(obj) if schema is not None else []
    wrong = next((error for error in faults if _is_type_error(error)), None)
    if wrong is None:
        return ""
    found, wanted = _types_in(wrong.message)
    return (
        f"json: cannot unmarshal {found} into Go struct field {kind}.{wrong.field} of type {wanted}"
    )


def _definition(fields: Mapping[str, str]) -> dict[str, Any]:
    properties = {name.removesuffix("!"): _field(kind) for name, kind in fields.items()}
    required = [name.removesuffix("!") for name in fields if name.endswith("!")]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
    }


def _field(kind: str) -> Mapping[str, Any]:
    if kind.startswith("["):
        return {"type": "array", "items": _field(kind[1:-1])}
    if kind.startswith("{"):
        # All maps of the built-in kinds are omitted when empty, so none is ever stored so.
        members = _field(kind[1:-1])
        return {"type": "object", "additionalProperties": members, OMIT_EMPTY: True}
    return _SCALARS.get(kind) or {"$ref": kind}


def _merge_paths(name: str, path: str, above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for field, kind in definitions()[name]["properties"].items():
        here = f"{path}.{field}" if path else field
        if (name, field) in MERGE_KEYS:
            yield here, MERGE_KEYS[name, field]
        below = (kind.get("items") or kind).get("$ref")
        if below is not None and below not in above:
            yield from _merge_paths(below, here, (*above, below))


def _is_type_error(error: FieldError) -> bool:
    return " in body must be of type " in error.message


def _is_asked_for(error: FieldError) -> bool:
    return error.type != "FieldValueRequired" or not error.field.startswith("status.")


def _types_in(message: str) -> tuple[str, str]:
    """The JSON type found and the Go type wanted, out of a validation message."""
    found = message.rpartition(': "')[2].rstrip('"')
    wanted = message.partition("must be of type ")[2].partition(":")[0]
    # A text of the wrong format (a time, base64) stands there itself instead of its type.
    return _JSON_TYPES.get(found, "string"), _GO_TYPES.get(wanted, wanted)


_LARGE: Final = ("spec", "status", "data", "binaryData")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to read a body: `mode` is Ignore, Warn (into `warnings`) or Strict.

    `old` is the stored object of an update: what is as before needs no second look.
    """

    mode: str
    warnings: list[str]
    old: dict[str, Any] | None = None


def decode(
    kind: Kind, custom: CustomKind | None, body: dict[str, Any], how: Decoding
) -> list[FieldError]:
    """Drop nulls and unknown fields from `body` and fill in a CRD's defaults.

    StatusError 400 for a field of a wrong type and, in mode Strict, for unknown ones. Returns what
    else is wrong with an object of a built-in kind.
    """
    api_version, name = body["apiVersion"], body["kind"]
    schema = custom.schema if custom is not None else schema_of(api_version, name)
    if custom is not None or schema is None:
        check_shape(kind, body)
    if schema is None:
        return []
    unchanged = _unchanged(body, how.old) if custom is None else {}
    for field in unchanged:
        del body[field]
    unknown = schema.prune(body)
    schema.default(body)
    faults = schema.validate(body) if custom is None else []
    wrong = decode_error(api_version, name, body) if faults else ""
    if wrong:
        raise _cannot_handle(kind, wrong)
    missing = field_errors(api_version, name, body) if faults else []
    body |= unchanged
    sentences = [f'unknown field "{path}"' for path in unknown]
    if sentences and how.mode == "Strict":
        raise _cannot_handle(kind, f"strict decoding error: {', '.join(sentences)}")
    if how.mode == "Warn":
        how.warnings.extend(sentences)
    return missing


def _unchanged(body: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    """Return the large parts of `body` that are as stored and whose absence is no fault."""
    if old is None:
        return {}
    name = definition_name(body["apiVersion"], body["kind"])
    needed = definitions().get(name, {}).get("required", ())
    kept = [f for f in _LARGE if f not in needed and f in body and body[f] == old.get(f)]
    return {field: body[field] for field in kept}


def _cannot_handle(kind: Kind, why: str) -> Exception:
    return bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )
