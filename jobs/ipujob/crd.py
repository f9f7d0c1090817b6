"""glue: the IPUJob CustomResourceDefinition, with our own words for `kubectl explain`.

The schema of an IPUJob's status.
"""

from __future__ import annotations

from typing import Any

from jobs.ipujob.names import GROUP, KIND, VERSION
from jobs.ipujob.podschema import PRESERVE, schema_of
from jobs.ipujob.spec import BACK_OFF_LIMIT, CLEAN_POD_POLICY, RESTART_TYPE, WORKER_REPLICAS
from jobs.ipujob.validation import CLEAN_POD_POLICIES, RESTART_TYPES

Schema = dict[str, Any]


def status_schema() -> Schema:
    """Every field that the operator writes, the published ones first."""
    return {
        "type": "object",
        "description": "How the job is doing; written by the IPU Operator only.",
        "properties": {
            "launcherStatus": {
                "type": "string",
                "default": "Pending",
                "description": "Pending, Running, Restarting, Suspended, Completed or Failed; of "
                "the job, also where it has no launcher.",
            },
            "conditions": {
                "type": "array",
                "description": "The states the job has been in; the current one is True.",
                "items": _condition(),
            },
            "workersStatus": {
                "type": "object",
                "description": "Worker pods by state. Those that slept until the launcher had "
                "ended count as succeeded.",
                "properties": {
                    "active": _integer("Running workers."),
                    "succeeded": _integer("Workers that have ended as they should."),
                    "failed": _integer("Workers that have failed."),
                },
            },
            "iPUPartitionCreated": {
                "type": "boolean",
                "description": "All the job's partitions are ready to use.",
            },
            "restartCount": _integer("How often the job has been restarted."),
            "currentReplicas": _integer("Running instances."),
            "desiredReplicas": _integer("Wanted instances."),
            "lastMessage": _text("What the job does or waits for, in one sentence."),
            "startTime": _time("When the operator took the job up."),
            "completionTime": _time("When the job finished."),
            "lastReconcileTime": _time("When this status was last written."),
            "ipus": _integer("IPUs in the job's partitions now."),
            "partitions": {
                "type": "array",
                "description": "The IPU partitions, one per instance.",
                "items": _partition(),
            },
            "instances": {
                "type": "array",
                "description": "How each instance of the job is doing.",
                "items": _instance(),
            },
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "The generation of the spec that this status is about.",
            },
        },
    }


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _integer(description: str) -> Schema:
    return {"type": "integer", "format": "int32", "description": description}


def _time(description: str) -> Schema:
    return {"type": "string", "format": "date-time", "description": description}


def _condition() -> Schema:
    return {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": _text(
                "Pending, Running, Restarting, Suspended, Succeeded or Failed; Complete beside "
                "Succeeded."
            ),
            "status": _text("True for the current state, else False."),
            "reason": _text("The cause in one word, else IPUJob and the type."),
            "message": _text("The cause in a sentence."),
            "lastUpdateTime": _time("When anything in this condition changed."),
            "lastTransitionTime": _time("When its status changed."),
        },
    }


def _partition() -> Schema:
    return {
        "type": "object",
        "properties": {
            "instance": _integer("The instance that uses it, from 0."),
            "id": _text("Its id in V-IPU."),
            "controller": _text("The V-IPU controller that has it, host:port."),
            "message": _text("Why the V-IPU controller does not remove it, in its words."),
            "state": _text("reserving, creating, active, error, releasing or released."),
        },
    }


def _instance() -> Schema:
    return {
        "type": "object",
        "properties": {
            "index": _integer("Which instance, from 0."),
            "attempt": _integer("Which attempt is the current one, from 0."),
            "state": _text("Pending, Running, Restarting, Suspended, Completed or Failed."),
            "restarts": _integer("Restarts that count against backOffLimit."),
            "losses": _integer("Attempts in a row that a lost pod or partition has ended."),
            "restartAt": _time("When the current attempt may begin."),
            "blockedSince": _time("Since when the pods of the current attempt cannot start."),
            "reason": _text("Why it ended for good."),
            "exitCode": _integer("The exit code that decided it, where one did."),
            "message": _text("How it failed, in a sentence."),
            "log": _text("The last lines of the container that failed, at most 2 KiB."),
            "lastExit": {
                "type": "object",
                "description": "How the attempt before the current one ended.",
                "properties": {
                    "attempt": _integer("Which attempt it was."),
                    "at": _time("When it ended."),
                    "reason": _text("Why it ended, in one word."),
                    "exitCode": _integer("The exit code that decided it, where one did."),
                    "message": _text("Why it ended, in a sentence."),
                    "log": _text("The last lines of the container that failed, at most 2 KiB."),
                },
            },
        },
    }


def build_crd() -> dict[str, Any]:
    """The CustomResourceDefinition of IPUJobs.

    Its schema is never tighter than the published ones: a tightened schema would keep old stored
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
    """The schema of `spec.workers.template`."""
    template: Schema = _workers()["properties"]["template"]
    return template


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


def _number(description: str, **more: Any) -> Schema:
    return {"x-kubernetes-int-or-string": True, "description": description, **more}


def _spec() -> Schema:
    return {
        "type": "object",
        "description": "What to run. The size of a partition is either modelReplicas x "
        "ipusPerModelReplica or ipusPerJobInstance: a power of two, at most 64.",
        "properties": {
            "modelReplicas": _number(
                "How many replicas of the model the job trains together. Goes with "
                "ipusPerModelReplica and not with ipusPerJobInstance."
            ),
            "ipusPerModelReplica": _number("IPUs of one replica of the model."),
            "ipusPerJobInstance": _number(
                "IPUs of the partition that each instance of the job gets for itself."
            ),
            "jobInstances": {
                "type": "integer",
                "format": "int32",
                "description": "How many equal instances of the job to run, each on a partition of "
                "its own; more than 1 is for jobs without a launcher. What kubectl scale sets.",
            },
            "workersPerJobInstance": _number(
                "Worker pods of one instance; left out, workers.replicas counts."
            ),
            "modelReplicasPerWorker": _number(
                "Replicas of the model that one worker runs: its slots in the hostfile."
            ),
            "launcher": _launcher(),
            "interactive": _interactive(),
            "workers": _workers(),
            "cleanPodPolicy": {
                "type": "string",
                "enum": list(CLEAN_POD_POLICIES),
                "default": CLEAN_POD_POLICY,
                "description": "Which pods to delete when the job has finished: None, Workers, or "
                "All, which includes the launcher. Kept pods are ended, their logs stay.",
            },
            "restartPolicy": _restart_policy(),
            "suspend": {
                "type": "boolean",
                "description": "Hold the job back: it has no pods and no IPUs while this is true.",
            },
            "activeDeadlineSeconds": _number("Longest time in seconds that the job may run."),
            "ttlSecondsAfterFinished": _number(
                "Delete the job this many seconds after it has finished."
            ),
            "keepPartition": {
                "type": "boolean",
                "description": "Keep the IPU partition when the job has finished, until the job "
                "is deleted. Without it the IPUs are free as soon as the pods have ended.",
            },
        },
    }


def _launcher() -> Schema:
    environment = schema_of("V1EnvVar")
    return {
        "type": "object",
        "description": "The pod that starts the job's processes in the workers, with the workers' "
        "image and volumes. Left out, the workers run their own command.",
        "properties": {
            "command": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The command that runs the job, such as mpirun or poprun.",
            },
            "env": {
                "type": "array",
                "items": environment,
                "description": "More environment variables for the launcher.",
            },
        },
    }


def _interactive() -> Schema:
    return {
        "type": "object",
        "description": "Makes this an interactive job: the launcher runs nothing and waits for "
        "people (kubectl exec).",
        "properties": {
            "ttl": _number(
                "How long the session lasts, in seconds; the administrator may have set a default "
                "and a maximum."
            )
        },
    }


def _workers() -> Schema:
    strategy = schema_of("V1DeploymentStrategy") | {
        "description": "Accepted for compatibility, without effect."
    }
    template = schema_of("V1PodTemplateSpec") | {
        "description": "The worker pods. The first container is the one in which the launcher "
        "starts processes. Everything Kubernetes allows in a pod template is possible; "
        "restartPolicy is always Never.",
        PRESERVE: True,
    }
    return {
        "type": "object",
        "description": "The pods that use the partition.",
        "properties": {
            "replicas": _number(
                "How many workers an instance has, where workersPerJobInstance is left out.",
                default=WORKER_REPLICAS,
            ),
            "strategy": strategy,
            "template": template,
        },
    }


def _restart_policy() -> Schema:
    return {
        "type": "object",
        "default": {"type": RESTART_TYPE, "backOffLimit": BACK_OFF_LIMIT},
        "description": "Whether to run the job again when it has ended.",
        "properties": {
            "type": {
                "type": "string",
                "enum": list(RESTART_TYPES),
                "default": RESTART_TYPE,
                "description": "Never; OnFailure: after a non-zero exit code; Always: after any; "
                "ExitCode: after the codes in exitCodes.",
            },
            "backOffLimit": _number("How many restarts there may be.", default=BACK_OFF_LIMIT),
            "exitCodes": {
                "type": "string",
                "description": "Exit codes and ranges that restart the job, such as "
                '"1,5,10-127"; left out, 128 to 255.',
            },
        },
    }
