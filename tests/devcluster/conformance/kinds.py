"""domain: the manifests that the conformance tests use."""

from __future__ import annotations

import copy
from typing import Any

Json = dict[str, Any]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_SPEC: Json = {
    "type": "object",
    "description": "What the widget should be.",
    "properties": {
        "count": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": 10,
            "description": "How many there are.",
        },
        "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
        "code": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "enabled": {"type": "boolean", "default": True},
        "size": {"x-kubernetes-int-or-string": True},
        "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "maybe": {"type": "string", "nullable": True},
        "maybeFilled": {"type": "string", "nullable": True, "default": "filled"},
        "filled": {"type": "string", "default": "filled"},
        "nested": {
            "type": "object",
            "required": ["inner"],
            "properties": {
                "inner": {"type": "string"},
                "level": {"type": "integer", "default": 3},
                "size": {"type": "integer", "maximum": 4},
            },
        },
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "port": {"type": "integer", "default": 80},
                },
            },
        },
        "numbers": {"type": "object", "additionalProperties": {"type": "integer"}},
        "when": {"type": "string", "format": "date-time"},
        "replicas": {"type": "integer"},
    },
}
_STATUS: Json = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "when": {"type": "string", "format": "date-time"},
        "conditions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
            },
        },
    },
}
WIDGET_CRD: Json = {
    "plural": "widgets",
    "kind": "Widget",
    "schema": {
        "type": "object",
        "description": "Widget is a thing to try an API server with.",
        "properties": {"spec": _SPEC, "status": _STATUS},
    },
    "subresources": {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
    "columns": [
        {"name": "Count", "type": "integer", "jsonPath": ".spec.count"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[0].status"},
        {"name": "When", "type": "date", "jsonPath": ".status.when"},
        {"name": "Code", "type": "string", "jsonPath": ".spec.code", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ],
}


def crd_of(source: Json, group: str) -> Json:
    """Return the CustomResourceDefinition of a short form like WIDGET_CRD in `group`."""
    source = copy.deepcopy(source)
    version: Json = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": source["schema"]},
    }
    if "subresources" in source:
        version["subresources"] = source["subresources"]
    if "columns" in source:
        version["additionalPrinterColumns"] = source["columns"]
    kind, plural = source["kind"], source["plural"]
    names = {
        "plural": plural,
        "singular": kind.lower(),
        "kind": kind,
        "listKind": f"{kind}List",
        "shortNames": [f"{kind[0].lower()}{group.split('.', maxsplit=1)[0].replace('-', '')}"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": source.get("scope", "Namespaced"),
            "names": names,
            "versions": [version],
        },
    }


def widget(group: str, name: str, **spec: Any) -> Json:
    """A Widget."""
    return {
        "apiVersion": f"{group}/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": spec,
    }


def config_map(name: str, data: Json | None = None, **metadata: Any) -> Json:
    """A ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": data or {},
    }


def pod(name: str, **spec: Any) -> Json:
    """A pod with one container; `annotations` and `labels` go to its metadata."""
    metadata = {"name": name}
    for key in ("annotations", "labels"):
        if key in spec:
            metadata[key] = spec.pop(key)
    containers = [{"name": "main", "image": "example.com/main:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers, **spec},
    }


def maps(namespace: str, name: str = "") -> str:
    """The path of ConfigMaps, or of a single ConfigMap."""
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def pods(namespace: str, name: str = "", subresource: str = "") -> str:
    """The path of pods, of a single pod, or of its subresource."""
    path = f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")
    return f"{path}/{subresource}" if subresource else path


def widgets_path(group: str, namespace: str, name: str = "", subresource: str = "") -> str:
    """The path of Widgets, of a single Widget, or of its subresource."""
    path = f"/apis/{group}/v1/namespaces/{namespace}/widgets" + (f"/{name}" if name else "")
    return f"{path}/{subresource}" if subresource else path
