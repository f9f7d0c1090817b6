"""glue: structural schemas from the models of the `kubernetes` package.

The fields of a pod template are kept in a file: to generate them needs the `kubernetes` package,
half of a webhook's memory and start-up time.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ipuhub.kube.credentials import model_fields

Schema = dict[str, Any]
INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True}
PRESERVE = "x-kubernetes-preserve-unknown-fields"
_LIST = re.compile(r"[Ll]ist\[(.+)\]")
_MAP = re.compile(r"[Dd]ict[\[(]str, (.+)[\])]")
_SIMPLE: dict[str, Schema] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
}
# Where Kubernetes takes a number or a text: ports of probes by name, and quantities, which the
# models call plain strings.
_INT_OR_STRING_FIELDS = {
    ("V1HTTPGetAction", "port"),
    ("V1TCPSocketAction", "port"),
    ("V1EmptyDirVolumeSource", "size_limit"),
    ("V1ResourceFieldSelector", "divisor"),
    ("V1RollingUpdateDeployment", "max_surge"),
    ("V1RollingUpdateDeployment", "max_unavailable"),
}
_QUANTITY_MAPS = {
    ("V1PodSpec", "overhead"),
    ("V1ResourceRequirements", "limits"),
    ("V1ResourceRequirements", "requests"),
    ("V1VolumeResourceRequirements", "limits"),
    ("V1VolumeResourceRequirements", "requests"),
}
_METADATA: Schema = {
    "type": "object",
    PRESERVE: True,
    "properties": {
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}


def schema_of(model: str) -> Schema:
    """The schema of a model such as V1PodTemplateSpec: all types, no descriptions, nothing
    required, unknown fields kept at every level (a newer Kubernetes has more of them)."""
    if model == "V1ObjectMeta":
        return dict(_METADATA)
    properties = {
        name: _field(model, field, written)
        for name, (field, written) in model_fields(model).items()
    }
    return {"type": "object", PRESERVE: True, "properties": dict(sorted(properties.items()))}


def _field(model: str, field: str, written: str) -> Schema:
    if (model, field) in _INT_OR_STRING_FIELDS:
        return dict(INT_OR_STRING)
    if (model, field) in _QUANTITY_MAPS:
        return {"type": "object", "additionalProperties": dict(INT_OR_STRING)}
    return type_schema(written)


def type_schema(written: str) -> Schema:
    """Return the schema of a type as the models write it: str, list[str], V1EnvVar."""
    if found := _LIST.fullmatch(written):
        return {"type": "array", "items": type_schema(found[1])}
    if found := _MAP.fullmatch(written):
        return {"type": "object", "additionalProperties": type_schema(found[1])}
    if written == "object":
        return {PRESERVE: True}
    return dict(_SIMPLE[written]) if written in _SIMPLE else schema_of(written)


FILE = Path(__file__).with_name("podtemplate.json")


def read_pod_template() -> Schema:
    """The schema of `spec.workers.template`, of which only `properties` and `items` are left."""
    found: Schema = json.loads(FILE.read_bytes())
    return found


def pod_template_text(schema: Schema) -> str:
    """The file's text, made of the whole schema."""
    return json.dumps(_fields(schema), sort_keys=True, indent=1) + "\n"


def _fields(schema: Schema) -> Schema:
    result: Schema = {}
    if "properties" in schema:
        result["properties"] = {
            name: _fields(field) for name, field in schema["properties"].items()
        }
    if isinstance(schema.get("items"), dict):
        result["items"] = _fields(schema["items"])
    return result
