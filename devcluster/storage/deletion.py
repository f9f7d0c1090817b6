"""domain: what a DELETE request does to an object: grace, finalizers, propagation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from devcluster.status import bad_request, conflict
from devcluster.storage.metadata import format_time

if TYPE_CHECKING:
    from datetime import datetime

    from devcluster.schemas.kinds import Kind

ORPHAN: Final = "orphan"
FOREGROUND: Final = "foregroundDeletion"
_POLICIES: Final = {"": None, "Background": "", "Orphan": ORPHAN, "Foreground": FOREGROUND}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """`grace` in seconds (None: the object's own); empty strings where nothing was asked."""

    grace: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False


def parse_delete_options(body: dict[str, Any], query: dict[str, str]) -> DeleteOptions:
    """Read a DeleteOptions body and its query parameters; the body wins. StatusError 400."""
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents", query.get("orphanDependents"))
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
        bool(body.get("dryRun") or query.get("dryRun")),
    )


def check_preconditions(kind: Kind, metadata: dict[str, Any], options: DeleteOptions) -> None:
    """Refuse the deletion of another object, or version, than was meant. StatusError 409."""
    for what, wanted, found, rest in (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"], "modified"),
    ):
        if wanted and wanted != found:
            why = (
                f"the {what} in the precondition ({wanted}) does not match the {what} in record "
                f"({found}). The object might have been {rest}"
            )
            raise conflict(kind, metadata["name"], why)


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
    kept = [name for name in present if name not in {ORPHAN, FOREGROUND}]
    return [*kept, wanted] if wanted else kept


def _grace(kind: Kind, body: dict[str, Any], asked: int | None) -> int:
    """Seconds until the kubelet must have ended a Pod; 0 for everything nobody has to end."""
    if kind.resource_name != "pods" or not body["spec"].get("nodeName"):
        return 0
    if (body.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    if asked is None:
        asked = body["metadata"].get(
            "deletionGracePeriodSeconds", body["spec"].get("terminationGracePeriodSeconds", 30)
        )
    return asked if asked >= 0 else 1
