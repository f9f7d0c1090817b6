"""glue: the CustomResourceDefinition of IPUJobs, built from the tables of spec and status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.ipujob.fields import FIELDS, INTEGER, NUMBER, OBJECT
from jobs.ipujob.names import GROUP, KIND, VERSION
from jobs.ipujob.podschema import INT_OR_STRING, schema_of, type_schema
from jobs.ipujob.statusfields import status_schema

if TYPE_CHECKING:
    from jobs.ipujob.fields import Field

Schema = dict[str, Any]
_TYPES: dict[str, Schema] = {
    NUMBER: INT_OR_STRING,
    INTEGER: {"type": "integer", "format": "int32"},
    OBJECT: {"type": "object"},
}


def build_crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition of IPUJobs.

    Its schema is never stricter than the published schemas: a stricter schema would keep stored
    objects from ever losing their finalizer. The rules are in `jobs.ipujob.validation`.
    """
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"ipujobs.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": "IPUJobList",
                "plural": "ipujobs",
                "singular": "ipujob",
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": PRINTER_COLUMNS,
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.jobInstances",
                            "statusReplicasPath": ".status.desiredReplicas",
                        },
                    },
                    "schema": {"openAPIV3Schema": _root()},
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **more}


PRINTER_COLUMNS = [
    _column("status", "string", ".status.launcherStatus"),
    _column("current", "integer", ".status.currentReplicas"),
    _column("desired", "integer", ".status.desiredReplicas"),
    _column("LastMessage", "string", ".status.lastMessage"),
    _column("Age", "date", ".metadata.creationTimestamp"),
    _column("IPUs", "integer", ".status.ipus", priority=1),
    _column("Partition", "string", ".status.partitions[0].id", priority=1),
    _column("Restarts", "integer", ".status.restartCount", priority=1),
]


def template_schema() -> Schema:
    """Return the schema of `spec.workers.template`."""
    return schema_of("V1PodTemplateSpec")


def _root() -> Schema:
    text = {"type": "string"}
    return {
        "type": "object",
        "description": "A job that runs on Graphcore IPUs: a partition of IPUs, worker pods that "
        "use it and, for MPI jobs, a launcher pod that starts processes in them.",
        "properties": {
            "apiVersion": text | {"description": "Always graphcore.ai/v1alpha1."},
            "kind": text | {"description": "Always IPUJob."},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": status_schema(),
        },
    }


def _spec() -> Schema:
    return {
        "type": "object",
        "description": "What to run. The size of a partition is either modelReplicas x "
        "ipusPerModelReplica or ipusPerJobInstance: a power of two, at most 64.",
        "properties": _properties(""),
    }


def _properties(parent: str) -> Schema:
    return {row.name: _schema(row) for row in FIELDS.below(parent)}


def _schema(row: Field) -> Schema:
    found = dict(_TYPES.get(row.type) or type_schema(row.type))
    if row.choices:
        found["enum"] = list(row.choices)
    default = FIELDS.default_of(row)
    if default is not None and row.type != NUMBER:
        found["default"] = default
    found["description"] = row.description
    if row.default is not None and row.type != OBJECT:  # kubectl explain shows no defaults
        found["description"] += f" Default: {row.default}."
    if default is not None:
        found["default"] = default
    if row.type == OBJECT:
        found["properties"] = _properties(row.path)
    return found
