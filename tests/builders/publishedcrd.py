"""The IPUJob CRD as Graphcore's chart 1.2.0 installs it, restated: its fields and their types.

A site that migrates has it: Helm does not upgrade what is in `crds/`.
"""

from __future__ import annotations

from typing import Any

from jobs.ipujob.crd import PRINTER_COLUMNS
from jobs.ipujob.names import GROUP, KIND, VERSION
from jobs.ipujob.podschema import PRESERVE, schema_of

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "format": "int32"}
TIME: Schema = {"type": "string", "format": "date-time"}
EITHER: Schema = {"x-kubernetes-int-or-string": True}
STATUS_FIELDS = frozenset(
    {
        "completionTime",
        "conditions",
        "currentReplicas",
        "desiredReplicas",
        "iPUPartitionCreated",
        "lastMessage",
        "lastReconcileTime",
        "launcherStatus",
        "restartCount",
        "startTime",
        "workersStatus",
    }
)


def build_published_crd() -> Schema:
    """The CustomResourceDefinition."""
    root = _object(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"})
    root["properties"] |= {"spec": _spec(), "status": _status()}
    names = {"kind": KIND, "listKind": "IPUJobList", "plural": "ipujobs", "singular": "ipujob"}
    scale = {
        "specReplicasPath": ".spec.jobInstances",
        "statusReplicasPath": ".status.desiredReplicas",
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": PRINTER_COLUMNS[:5],
        "subresources": {"status": {}, "scale": scale},
        "schema": {"openAPIV3Schema": root},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"ipujobs.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def _object(*, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": properties}
    return found | {"required": list(required)} if required else found


def _strict(schema: Any) -> Any:
    """The same, dropping what it does not know."""
    if isinstance(schema, dict):
        return {key: _strict(part) for key, part in schema.items() if key != PRESERVE}
    return [_strict(part) for part in schema] if isinstance(schema, list) else schema


def _spec() -> Schema:
    rolling = _object(maxSurge=EITHER, maxUnavailable=EITHER)
    workers = _object(
        replicas={**NUMBER, "default": 1, "minimum": 1},
        strategy=_object(rollingUpdate=rolling, type=TEXT),
        template=_strict(schema_of("V1PodTemplateSpec")),
    )
    environment = _strict(schema_of("V1EnvVar"))
    restart = _object(
        required=("type",),
        backOffLimit={**NUMBER, "default": 3},
        exitCodes={**TEXT, "pattern": "^([0-9]+(-[0-9]+)?)(,([0-9]+(-[0-9]+)?))*$"},
        type={**TEXT, "enum": ["Always", "OnFailure", "Never", "ExitCode"]},
    )
    launcher = _object(
        required=("command",),
        command={"type": "array", "items": TEXT},
        env={"type": "array", "items": environment},
    )
    return _object(
        required=("ipusPerJobInstance", "jobInstances", "workers"),
        cleanPodPolicy={**TEXT, "enum": ["None", "All", "Workers"]},
        interactive=_object(required=("ttl",), ttl=NUMBER),
        ipusPerJobInstance=TEXT,
        jobInstances=NUMBER,
        launcher=launcher,
        modelReplicasPerWorker=TEXT,
        restartPolicy=restart,
        workers=workers,
        workersPerJobInstance=TEXT,
    )


def _status() -> Schema:
    condition = _object(
        required=("status", "type"),
        lastTransitionTime=TIME,
        lastUpdateTime=TIME,
        message=TEXT,
        reason=TEXT,
        status=TEXT,
        type=TEXT,
    )
    return _object(
        required=("desiredReplicas", "lastMessage"),
        completionTime=TIME,
        conditions={"type": "array", "items": condition},
        currentReplicas=NUMBER,
        desiredReplicas=NUMBER,
        iPUPartitionCreated={"type": "boolean"},
        lastMessage=TEXT,
        lastReconcileTime=TIME,
        launcherStatus={**TEXT, "default": "Pending"},
        restartCount=NUMBER,
        startTime=TIME,
        workersStatus=_object(active=NUMBER, failed=NUMBER, succeeded=NUMBER),
    )
