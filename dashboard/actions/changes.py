"""domain: the changes that users can make to an IPUJob, as API requests and as kubectl commands.

The recorded state of a job decides which actions are offered. The API server decides whether they
are allowed, by RBAC and the admission webhooks.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from jobs.ipujob.names import API_VERSION, KIND, LONGEST_JOB_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from jobs.ipujob.names import Manifest

SUSPEND, RESUME, SCALE, CANCEL, RUN_AGAIN, CREATE = (
    "suspend",
    "resume",
    "scale",
    "cancel",
    "run-again",
    "create",
)
MOST_INSTANCES: Final = 2**31 - 1  # int32, as the field is declared
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_RUN: Final = re.compile(r"-run(\d{1,9})$")


class BadChangeError(Exception):
    """A value of an action is wrong; the message says what to do. `field` names the value."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Job(Protocol):
    """The facts about a recorded job that decide about its actions."""

    uid: str
    namespace: str
    name: str
    status: str
    spec: dict[str, Any]
    labels: dict[str, str]
    instances: int
    completed_at: datetime | None
    deleted_at: datetime | None


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do. `effect` says what happens then, `done` what happened."""

    key: str
    label: str
    effect: str
    done: str
    is_severe: bool = False


ACTIONS: Final = {
    each.key: each
    for each in (
        Action(
            SUSPEND,
            "Suspend",
            "The operator ends the job's pods and gives its IPUs back. Data that the job did not "
            "save is lost. Resume starts the job from the beginning.",
            "suspended",
        ),
        Action(
            RESUME,
            "Resume",
            "The job asks for IPUs again, by its place in the queue, and starts when it gets them.",
            "resumed",
        ),
        Action(SCALE, "Scale", "The operator starts or ends instances of the job.", "scaled"),
        Action(
            CANCEL,
            "Cancel",
            "The job is deleted from the cluster, with its pods, and its IPUs are given back. This "
            "page and the usage stay.",
            "canceled",
            is_severe=True,
        ),
        Action(
            RUN_AGAIN,
            "Run again",
            "A new job with the same spec is created. This job stays as it is.",
            "created",
        ),
        Action(CREATE, "Create", "The job is created.", "created"),
    )
}
_DELETE: Final = replace(
    ACTIONS[CANCEL],
    label="Delete",
    effect="The ended job is deleted from the cluster, with the pods that it kept. This page and "
    "the usage stay.",
    done="deleted",
)
"""Cancel, in the words for a job that has ended."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write: an HTTP method on an IPUJob, or on the IPUJobs of the namespace for a new job.

    `uid` is the object's that is changed, empty for a new job; a deletion has no `body`. `kubectl`
    does the same on a command line. `fields`: name, value before and value after of what changes;
    of a new job only numbers and switches, because texts of a manifest can be secrets.
    """

    action: Action
    method: str
    namespace: str
    name: str
    body: Any
    kubectl: str
    uid: str = ""
    fields: tuple[tuple[str, Any, Any], ...] = ()

    @property
    def is_new(self) -> bool:
        """Return whether the write creates an object."""
        return self.method == "POST"


def offered_actions(job: Job) -> list[Action]:
    """Return the actions that make sense in the job's state, in the order of the page."""
    if job.deleted_at is not None:
        return [ACTIONS[RUN_AGAIN]]
    if job.completed_at is not None:
        return [ACTIONS[RUN_AGAIN], _DELETE]
    keys = [RESUME if job.spec.get("suspend") is True else SUSPEND]
    if can_scale(job.spec):
        keys.append(SCALE)
    return [ACTIONS[key] for key in (*keys, RUN_AGAIN, CANCEL)]


def action_of(job: Job, key: str) -> Action:
    """Return the action `key` in the words for the job's state."""
    return next((each for each in offered_actions(job) if each.key == key), ACTIONS[key])


def requested_verb(key: str, at: datetime, ended_at: datetime | None) -> str:
    """Return the verb for an action requested `at`, on a job that ended at `ended_at`, if ever."""
    is_ended = ended_at is not None and ended_at <= at
    action = _DELETE if key == CANCEL and is_ended else ACTIONS.get(key)
    return action.label.lower() if action else key


def can_scale(spec: Mapping[str, Any]) -> bool:
    """Return whether the job may have several instances: it has no launcher, and its spec gives
    sizes by instance."""
    return not spec.get("launcher") and "ipusPerJobInstance" in spec


def change_of(job: Job, key: str, values: Mapping[str, Any]) -> Change:
    """Return the write of the action `key`. Raise BadChangeError if a value is wrong, or if the
    job's state does not allow the action.

    `values`: `instances` for scale, `name` for run-again.
    """
    if key not in {action.key for action in offered_actions(job)}:
        raise BadChangeError("action", _not_now(job, key))
    if key == RUN_AGAIN:
        return run_again(job, str(values.get("name") or next_name(job.name)))
    if key == CANCEL:
        return _of(job, key, "DELETE", {}, f"delete ipujob {shlex.quote(job.name)}")
    if key == SCALE:
        number = read_instances(values.get("instances"))
        line = f"scale ipujob {shlex.quote(job.name)} --replicas {number}"
        return _of(job, key, "PATCH", {"spec": {"jobInstances": number}}, line)
    spec = {"spec": {"suspend": key == SUSPEND}}
    text = json.dumps(spec, separators=(",", ":"))
    line = f"patch ipujob {shlex.quote(job.name)} --type merge -p {shlex.quote(text)}"
    return _of(job, key, "PATCH", spec, line)


def _of(job: Job, key: str, method: str, body: dict[str, Any], line: str) -> Change:
    fields = tuple(
        (f"spec.{name}", job.spec.get(name), value) for name, value in body.get("spec", {}).items()
    )
    if method == "PATCH":
        # The server refuses to change a UID: a new job of the same name is never touched.
        body = {"metadata": {"uid": job.uid}, **body}
    kubectl = f"kubectl -n {shlex.quote(job.namespace)} {line}"
    action = action_of(job, key)
    return Change(action, method, job.namespace, job.name, body, kubectl, job.uid, fields)


def _not_now(job: Job, key: str) -> str:
    if job.deleted_at is not None:
        return "The job is no longer in the cluster."
    if job.completed_at is not None:
        return "The job has ended."
    if key == SCALE:
        return "Only jobs without a launcher have several instances."
    return "The job is suspended." if key == SUSPEND else "The job is not suspended."


def read_instances(value: object) -> int:
    """Return a number of instances. Raise BadChangeError if it is none."""
    text = str(value).strip() if isinstance(value, int | str) and value is not True else ""
    if text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= MOST_INSTANCES:
        return int(text)
    raise BadChangeError("instances", f"must be a whole number from 1 to {MOST_INSTANCES}.")


def next_name(name: str) -> str:
    """Return a name for another run of a job: `train-run2` after `train`, then `train-run3`."""
    found = _RUN.search(name)
    number = int(found[1]) + 1 if found else 2
    tail = f"-run{number}"
    stem = name[: found.start()] if found else name
    return stem[: LONGEST_JOB_NAME - len(tail)].rstrip("-.") + tail


def run_again(job: Job, name: str) -> Change:
    """Return the creation of a job with the same labels and spec, not suspended."""
    spec = {key: value for key, value in job.spec.items() if key != "suspend"}
    metadata: dict[str, Any] = {"name": name, "namespace": job.namespace}
    if job.labels:
        metadata["labels"] = job.labels
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    made = create(manifest, RUN_AGAIN)
    return replace(made, fields=(("copy of", None, job.name), *made.fields))


def create(manifest: Manifest, key: str = CREATE) -> Change:
    """Return the creation of an IPUJob. Raise BadChangeError if the manifest is of another kind, or
    lacks a usable name or namespace; the API server judges the rest."""
    _require_json(manifest, _DEEPEST)
    if manifest.get("apiVersion") != API_VERSION or manifest.get("kind") != KIND:
        raise BadChangeError("manifest", f"must have apiVersion {API_VERSION} and kind {KIND}.")
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        raise BadChangeError("manifest", "must have metadata with a name.")
    name, namespace = metadata.get("name"), metadata.get("namespace")
    _require_name("name", name, _NAME)
    _require_name("namespace", namespace, _NAMESPACE)
    if not isinstance(manifest.get("spec"), dict):
        raise BadChangeError("manifest", "must have a spec.")
    kubectl = f"kubectl -n {namespace} create -f {name}.yaml"
    fields = tuple(
        (f"spec.{field}", None, value)
        for field, value in manifest["spec"].items()
        if isinstance(value, int)
    )
    return Change(ACTIONS[key], "POST", str(namespace), str(name), manifest, kubectl, fields=fields)


_DEEPEST: Final = 64
_INT64: Final = 2**63


def _require_json(value: object, depth: int) -> None:
    """Raise BadChangeError if JSON, the API server or PostgreSQL cannot hold the value."""
    if not depth:
        raise BadChangeError("manifest", f"is nested deeper than {_DEEPEST} levels.")
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise BadChangeError("manifest", f"has the key {key!r}: write keys as text.")
            _require_scalar(key)
            _require_json(each, depth - 1)
    elif isinstance(value, list):
        for each in value:
            _require_json(each, depth - 1)
    else:
        _require_scalar(value)


def _require_scalar(value: object) -> None:
    wrong = ""
    if isinstance(value, str):
        if "\0" in value or _has_surrogate(value):
            wrong = "a character that no text may contain"
    elif isinstance(value, float):
        wrong = "" if math.isfinite(value) else f"{value}, which JSON does not know"
    elif isinstance(value, int):
        wrong = "" if -_INT64 <= value < _INT64 else "a whole number of more than 64 bits"
    elif value is not None:
        wrong = f"a value of the type {type(value).__name__}, which JSON does not know"
    if wrong:
        raise BadChangeError("manifest", f"has {wrong}.")


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


def _require_name(field: str, value: object, pattern: re.Pattern[str]) -> None:
    is_name = isinstance(value, str) and pattern.fullmatch(value)
    if not is_name or len(str(value)) > LONGEST_JOB_NAME:
        raise BadChangeError(
            field,
            f"must be lower-case letters, digits and hyphens, at most {LONGEST_JOB_NAME}, such as "
            "train-2.",
        )
