"""domain: a job's status when the installed CRD keeps only the published fields.

The CRD of Graphcore's chart has conditions, but not the fields in which the operator stores its
decisions about each instance: the API server drops them silently. With that CRD they are stored in
one more condition (`CARRIER`), as JSON in its message, in the same write.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jobs.ipujob.storedstatus import CARRIER, OWN_FIELDS, carrier_of, read_carried_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipuhub.partition import Partition
    from jobs.ipujob.names import Manifest
    from jobs.operator.pods import PodView

CARRIER_REASON = "CrdDropsStatusFields"
DECIDED = ("launcherStatus", "restartCount", "completionTime")


def with_carried_fields(status: Manifest) -> Manifest:
    """`status` with the fields that only its carrier has kept."""
    own, _ = read_carried_fields(status)
    missing = {name: value for name, value in own.items() if name not in status}
    return status | missing if missing else status


def has_carrier(status: Mapping[str, Any]) -> bool:
    """Return whether a carrier is in it."""
    return carrier_of(status) is not None


def with_carrier(stored: Manifest, changes: Manifest, now: str) -> Manifest:
    """The merge patch `changes` of the whole status `stored`, with a carrier of our own fields.

    The fields themselves are in it, too: the answer shows when the CRD begins to keep them.
    """
    after = merged(stored, changes)
    own = {name: after[name] for name in OWN_FIELDS if name in after}
    carrier = {
        "type": CARRIER,
        "status": "False",
        "reason": CARRIER_REASON,
        "message": json.dumps(own, sort_keys=True, separators=(",", ":")),
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    }
    return changes | own | {"conditions": [*plain_conditions(after), carrier]}


def without_carrier(stored: Manifest, changes: Manifest) -> Manifest:
    """The merge patch `changes`, for a CRD that keeps our fields; what a carrier in `stored` had
    to keep goes where it belongs."""
    if not has_carrier(stored):
        return changes
    after = merged(stored, changes)
    own = {name: after[name] for name in OWN_FIELDS if name in after}
    return changes | own | {"conditions": plain_conditions(after)}


def plain_conditions(status: Mapping[str, Any]) -> list[Manifest]:
    """The conditions that are for people."""
    return [
        condition
        for condition in status.get("conditions") or ()
        if condition.get("type") != CARRIER
    ]


def has_stored_decisions(answer: Manifest, stored: Manifest, written: Manifest) -> bool:
    """Return whether the server's `answer` shows every decision in `written`."""
    stored_status, after = with_carried_fields(answer), merged(stored, written)
    names = written.keys() & {*DECIDED, *OWN_FIELDS}
    return all(stored_status.get(name) == after.get(name) for name in names)


def has_stored_own_fields(answer: Manifest, written: Manifest) -> bool:
    """Return whether the fields themselves are in the answer, without a carrier's help."""
    names = [name for name in OWN_FIELDS if name in written]
    return bool(names) and all(answer.get(name) == written[name] for name in names)


def recovered(
    status: Manifest,
    pods: Iterable[PodView],
    partitions: Mapping[int, Partition],
    *,
    is_malformed: bool = False,
) -> Manifest:
    """Return the status with the records of instances that were lost, because another CRD was
    installed or because they were malformed.

    A whole status that lacks an instance has lost nothing: the job was scaled down. Lost ones are
    restored from the job's pods, its partitions and the count of restarts. Starting again at
    attempt 0 would wait forever for pods of a later attempt, or run the job again and again.
    """
    if not status or ("instances" in status and not is_malformed):
        return status
    known = status.get("instances", [])
    kept = {entry["index"] for entry in known}
    attempts = {index: partition.attempt for index, partition in partitions.items()}
    for pod in pods:
        attempts[pod.instance] = max(attempts.get(pod.instance, 0), pod.attempt)
    lost = {index: attempt for index, attempt in attempts.items() if index not in kept}
    if not any(lost.values()):
        return status
    used = status.get("restartCount", 0) if len(attempts) == 1 else 0
    state = status.get("launcherStatus")
    entries = [
        {"index": index, "attempt": attempt, "state": state, "restarts": used}
        for index, attempt in sorted(lost.items())
    ]
    return status | {"instances": [*known, *entries]}


def merged(old: Manifest, patch: Manifest) -> Manifest:
    """`old` after the merge patch."""
    after = dict(old)
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        elif isinstance(value, dict):
            before = after.get(key)
            after[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            after[key] = value
    return after
