"""domain: the fields of an IPUJob's status, with descriptions for `kubectl explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Schema = dict[str, Any]


def status_schema() -> Schema:
    """Return the schema of every field that the operator writes, published fields first."""
    return {
        "type": "object",
        "description": "How the job is doing; written by the IPU Operator only.",
        "default": {},  # a new job shows as Pending before anybody has written to it
        "properties": {
            "launcherStatus": {
                "type": "string",
                "default": "Pending",
                "description": "Pending, Running, Restarting, Suspended, Completed or Failed; of "
                "the job, also where it has no launcher.",
            },
            "conditions": {
                "type": "array",
                "description": "The states the job has been in; the current state is True.",
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
            "attempt": _integer("The number of the current attempt, from 0."),
            "state": _text("Pending, Running, Restarting, Suspended, Completed or Failed."),
            "restarts": _integer("Restarts that count against backOffLimit."),
            "losses": _integer("Attempts in a row that a lost pod or partition has ended."),
            "restartAt": _time("When the current attempt may begin."),
            "blockedSince": _time("Since when the pods of the current attempt cannot start."),
            "reason": _text("Why it ended for good."),
            "exitCode": _integer("The exit code that decided it, if any."),
            "message": _text("How it failed, in a sentence."),
            "log": _text("The last lines of the container that failed, at most 2 KiB."),
            "lastExit": {
                "type": "object",
                "description": "How the previous attempt ended.",
                "properties": {
                    "attempt": _integer("Which attempt it was."),
                    "at": _time("When it ended."),
                    "reason": _text("Why it ended, in one word."),
                    "exitCode": _integer("The exit code that decided it, if any."),
                    "message": _text("Why it ended, in a sentence."),
                    "log": _text("The last lines of the container that failed, at most 2 KiB."),
                },
            },
        },
    }


def status_paths(names: Iterable[str]) -> list[str]:
    """Return the paths below status of the fields `names`, and of all that is in them."""
    fields = status_schema()["properties"]
    return [path for name in names for path in _paths(name, fields[name])]


def _paths(path: str, schema: Schema) -> Iterator[str]:
    yield path
    for name, inner in (schema.get("items") or schema).get("properties", {}).items():
        yield from _paths(f"{path}.{name}", inner)
