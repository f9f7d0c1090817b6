"""domain: the API server's changes to the metadata of every object: names, UIDs, finalizers.

Also the effect of a DELETE request: grace period, finalizers, propagation.
"""

from __future__ import annotations

import re
import secrets
import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from devcluster.status import (
    FieldError,
    bad_request,
    conflict,
    forbidden_field,
    invalid,
    invalid_value,
    required,
)
from ipuhub.times import format_time

if TYPE_CHECKING:
    from datetime import datetime

    from devcluster.schemas.kinds import Kind

LABEL_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PART: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_ANNOTATION_BYTES: Final = 256 * 1024
_SERVER_OWNED: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
)
_PATH_NAMES: Final = {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}
_LABEL_NAMES: Final = {"namespaces", "services"}
LABEL_MESSAGE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_PART_MESSAGE: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_MESSAGE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def prepare_new(kind: Kind, namespace: str, body: dict[str, Any], now: datetime) -> None:
    """Give a new object its name, UID and times; drop what only the server may set."""
    metadata = body["metadata"]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"):
        metadata.pop(name, None)
    metadata.pop("generation", None)
    if metadata.pop("resourceVersion", ""):
        raise bad_request("resourceVersion should not be set on objects to be created")
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(secrets.choice(_SUFFIX) for _ in range(5))
        metadata["name"] = metadata["generateName"][:58] + suffix
    if kind.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = format_time(now)


def keep_server_fields(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Undo what an update may not change in metadata (both are metadata)."""
    for name in _SERVER_OWNED:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)
    for name in ("managedFields", "selfLink"):
        new.pop(name, None)
    new["resourceVersion"] = old["resourceVersion"]


def check_metadata(kind: Kind, body: dict[str, Any]) -> list[FieldError]:
    """Return what is wrong with name, labels, annotations, owners and finalizers."""
    metadata = body["metadata"]
    errors = _check_name(kind, metadata.get("name", ""))
    for key, value in (metadata.get("labels") or {}).items():
        errors += check_key("metadata.labels", key)
        errors += check_label_value("metadata.labels", value)
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        errors += check_key("metadata.annotations", key.lower())
        size += len(key) + len(value)
    if size > _ANNOTATION_BYTES:
        message = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        errors.append(FieldError("metadata.annotations", "FieldValueTooLong", message))
    for number, owner in enumerate(metadata.get("ownerReferences") or []):
        path = f"metadata.ownerReferences[{number}]"
        errors += [
            invalid_value(f"{path}.{name}", "", "must not be empty")
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner.get(name)
        ]
    controllers = [o for o in metadata.get("ownerReferences") or [] if o.get("controller")]
    if len(controllers) > 1:
        message = "Invalid value: Only one reference can have Controller set to true"
        errors.append(FieldError("metadata.ownerReferences", "FieldValueInvalid", message))
    for finalizer in metadata.get("finalizers") or []:
        errors += _check_finalizer(finalizer)
    return errors


def check_new_finalizers(kind: Kind, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Refuse a finalizer that is added to an object that is being deleted (both are metadata)."""
    added = [f for f in new.get("finalizers") or [] if f not in (old.get("finalizers") or [])]
    if old.get("deletionTimestamp") and added:
        names = ", ".join(f'"{name}"' for name in added)
        reason = (
            "no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{names}}}"
        )
        raise invalid(kind, new["name"], [forbidden_field("metadata.finalizers", reason)])


def _check_name(kind: Kind, name: str) -> list[FieldError]:
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    if kind.plural in _PATH_NAMES:
        problem = "may not contain '/' or '%'" if "/" in name or "%" in name else ""
    elif kind.plural in _LABEL_NAMES:
        problem = "" if LABEL_NAME.fullmatch(name) else LABEL_MESSAGE
        problem = "must be no more than 63 characters" if len(name) > 63 else problem
    else:
        problem = "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_MESSAGE
        problem = "must be no more than 253 characters" if len(name) > 253 else problem
    return [invalid_value("metadata.name", name, problem)] if problem else []


def check_key(path: str, key: str) -> list[FieldError]:
    """Faults of a label's key."""
    prefix, slash, name = key.rpartition("/")
    problem = ""
    if not name:
        problem = "name part must be non-empty"
    elif len(name) > 63:
        problem = "name part must be no more than 63 characters"
    elif not _PART.fullmatch(name):
        problem = _PART_MESSAGE
    elif slash and not _SUBDOMAIN.fullmatch(prefix):
        problem = f"prefix part {_SUBDOMAIN_MESSAGE}"
    return [invalid_value(path, key, problem)] if problem else []


def check_label_value(path: str, value: str) -> list[FieldError]:
    """Faults of a label's value."""
    problem = "" if not value or _PART.fullmatch(value) else _VALUE_MESSAGE
    problem = "must be no more than 63 characters" if len(value) > 63 else problem
    return [invalid_value(path, value, problem)] if problem else []


_STANDARD_FINALIZERS: Final = {"orphan", "foregroundDeletion", "kubernetes"}


def finalizer_warnings(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return what a server says of the finalizers that a write adds to the metadata of a custom
    resource: a name without a path could be another controller's, too."""
    added = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name including a path '
        "(/) to avoid accidental conflicts with other finalizer writers"
        for name in sorted(added - _STANDARD_FINALIZERS)
        if "/" not in name
    ]


def _check_finalizer(finalizer: str) -> list[FieldError]:
    if "/" in finalizer or finalizer in _STANDARD_FINALIZERS:
        return check_key("metadata.finalizers", finalizer)
    if _SUBDOMAIN.fullmatch(finalizer) and "." in finalizer:
        return []  # old custom resources hold unqualified finalizers: see finalizer_warnings
    reason = "name is neither a standard finalizer name nor is it fully qualified"
    return [invalid_value("metadata.finalizers", finalizer, reason)]


ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_POLICIES: Final = {"": None, "Background": "", "Orphan": ORPHAN, "Foreground": FOREGROUND}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """`grace` in seconds (None: the object's own); empty strings where nothing was requested."""

    grace: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False


def parse_delete_options(body: dict[str, Any], query: dict[str, str]) -> DeleteOptions:
    """Read a DeleteOptions body, or without one the query parameters. StatusError 400.

    An API server with a body ignores the parameters, `dryRun` among them.
    """
    given: dict[str, Any] = body or dict(query)
    preconditions = body.get("preconditions") or {}
    grace = given.get("gracePeriodSeconds")
    propagation = given.get("propagationPolicy") or ""
    orphan = given.get("orphanDependents")
    if orphan is not None and propagation:
        raise bad_request("orphanDependents and propagationPolicy cannot be both set")
    if orphan is not None:
        propagation = "Orphan" if str(orphan).lower() == "true" else "Background"
    if propagation not in _POLICIES:
        raise bad_request(
            f'DeleteOptions is invalid: propagationPolicy: Unsupported value: "{propagation}": '
            'supported values: "Background", "Foreground", "Orphan"'
        )
    try:
        seconds = None if grace is None else int(grace)
    except ValueError as error:
        raise bad_request(f"gracePeriodSeconds: {error}") from error
    return DeleteOptions(
        seconds,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        propagation,
        bool(given.get("dryRun")),
    )


def check_preconditions(kind: Kind, metadata: dict[str, Any], options: DeleteOptions) -> None:
    """Refuse the deletion of another object, or version, than was meant. StatusError 409."""
    for what, wanted, found, rest in (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"], "modified"),
    ):
        if wanted and wanted != found:
            reason = (
                f"the {what} in the precondition ({wanted}) does not match the {what} in record "
                f"({found}). The object might have been {rest}"
            )
            raise conflict(kind, metadata["name"], reason)


def mark_deleted(
    kind: Kind, body: dict[str, Any], options: DeleteOptions, now: datetime
) -> dict[str, Any] | None:
    """Return the object as it stays while it is being deleted; None when it goes at once."""
    metadata = body["metadata"]
    finalizers = _finalizers(metadata.get("finalizers") or [], options.propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace(kind, body, options.grace)
    namespace_held = kind.plural == "namespaces" and bool(body["spec"].get("finalizers"))
    if not grace and not finalizers and not namespace_held:
        return None
    known = metadata.get("deletionGracePeriodSeconds")
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if metadata.get("generation"):
            metadata["generation"] += 1
    elif known and grace < known and (options.grace is not None or grace == 0):
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    if kind.plural == "namespaces":
        body.setdefault("status", {})["phase"] = "Terminating"
        metadata.pop("deletionGracePeriodSeconds", None)
    return body


def _finalizers(present: list[str], propagation: str) -> list[str]:
    wanted = _POLICIES[propagation]
    if wanted is None:
        return present
    others = [name for name in present if name not in {ORPHAN, FOREGROUND}]
    return [*others, wanted] if wanted else others


def _grace(kind: Kind, body: dict[str, Any], seconds: int | None) -> int:
    """Seconds until the kubelet must have ended a Pod; 0 for all other objects."""
    if kind.resource_name != "pods" or not body["spec"].get("nodeName"):
        return 0
    if (body.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    if seconds is None:
        seconds = body["metadata"].get(
            "deletionGracePeriodSeconds", body["spec"].get("terminationGracePeriodSeconds", 30)
        )
    return seconds if seconds >= 0 else 1


def without_finalizer(finalizer: str, body: dict[str, Any]) -> dict[str, Any]:
    """Remove one finalizer from the object, and return the object."""
    metadata = body["metadata"]
    metadata["finalizers"] = [each for each in metadata["finalizers"] if each != finalizer]
    if not metadata["finalizers"]:
        del metadata["finalizers"]
    return body
