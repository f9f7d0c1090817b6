"""domain: the applied manifest of a job, and how much of its written spec is in effect.

`kubectl apply` stores the applied manifest in an annotation; server-side apply stores the names of
the fields that each manager applied. Of other jobs only the spec is known. An edit of the pods
waits until the next attempt, an invalid edit until it is corrected; the operator reports both in a
condition of the job.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jobs.ipujob.conditions import FINISHED, JobState, Reason
from jobs.ipujob.fields import FIELDS, whole_number
from jobs.ipujob.names import (
    API_VERSION,
    KIND,
    LABEL_ATTEMPT,
    LABEL_INSTANCE,
    LABEL_JOB_NAME,
    LABEL_JOB_UID,
    LABEL_ROLE,
    LAST_APPLIED,
    annotations_of,
    labels_of,
    metadata,
    name_of,
    namespace_of,
)
from jobs.ipujob.spec import with_defaults
from jobs.ipujob.validation import MOST_LEVELS, is_nested_deeper, valid_policies

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobs.ipujob.names import Manifest

_OF_PODS: Final = {LABEL_JOB_NAME, LABEL_JOB_UID, LABEL_ROLE, LABEL_INSTANCE, LABEL_ATTEMPT}
_ENDED: Final = frozenset(state.value for state in FINISHED)
_RUNS: Final = frozenset({JobState.RUNNING.value, JobState.RESTARTING.value})


@dataclass(frozen=True, slots=True)
class Applied:
    """A manifest as it was applied, and the client that applied it; `by` is empty if that is
    unknown, and the manifest is then the job with its current spec."""

    manifest: Manifest
    by: str = ""


@dataclass(frozen=True, slots=True)
class InEffect:
    """The written spec with the operator's defaults, and how it takes effect: as a whole
    (`is_whole`), or of it only `policies`, the fields that apply to pods that already run."""

    spec: Manifest
    is_whole: bool
    policies: Manifest


def applied_of(job: Manifest) -> Applied:
    """Return the applied manifest of a job."""
    found = _decoded(annotations_of(job).get(LAST_APPLIED) or "")
    if isinstance(found, dict) and isinstance(found.get("spec"), dict):
        return Applied(found, "kubectl apply")
    return _owned_by_managers(job) or Applied(_plain(job))


def storable_json(value: Any) -> Any:
    """Return the same JSON; what PostgreSQL cannot store as text (NUL, half a surrogate pair)
    becomes U+FFFD."""
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, dict):
        return {_clean_text(str(key)): storable_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable_json(item) for item in value]
    return value


def _clean_text(text: str) -> str:
    if "\x00" not in text and (text.isascii() or not _has_surrogate(text)):
        return text
    return "".join("\ufffd" if c == "\x00" or "\ud800" <= c <= "\udfff" else c for c in text)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def in_effect(job: Manifest, status: Mapping[str, Any], reason: str) -> InEffect:
    """Return how the spec takes effect; `reason`: the reason of the job's current condition."""
    spec = job.get("spec")
    filled = with_defaults(spec if isinstance(spec, dict) else {})
    state = status.get("launcherStatus")
    is_invalid = reason == Reason.INVALID_SPEC and state in _RUNS
    if reason == Reason.SPEC_CHANGED or is_invalid:
        policies = {name: filled[name] for name in FIELDS.while_running if name in filled}
        if is_invalid:  # the operator goes by those that are valid
            policies = valid_policies(policies)
        return InEffect(filled, is_whole=False, policies=policies)
    is_whole = state not in _ENDED and not (state in _RUNS and _is_unseen(job, status))
    return InEffect(filled, is_whole, {})


def _is_unseen(job: Manifest, status: Mapping[str, Any]) -> bool:
    """Return whether the operator has not looked at this spec yet."""
    written = whole_number(metadata(job).get("generation"))
    seen = whole_number(status.get("observedGeneration"))
    return written is not None and seen is not None and seen < written


def _decoded(text: str) -> Any:
    """Return the JSON of untrusted text; None if PostgreSQL or a page cannot take it."""
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return None if is_nested_deeper(found, MOST_LEVELS) else storable_json(found)


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and Infinity are not JSON


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # 1e999
        raise ValueError(text)
    return number


def _plain(job: Manifest) -> Manifest:
    """Return the job with its current spec and labels, without what belongs to its pods."""
    labels = {key: value for key, value in labels_of(job).items() if key not in _OF_PODS}
    return _manifest(job, job.get("spec") or {}, labels)


def _manifest(job: Manifest, spec: Manifest, labels: Mapping[str, str]) -> Manifest:
    names: Manifest = {"name": name_of(job), "namespace": namespace_of(job)}
    if labels:
        names["labels"] = dict(labels)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": names, "spec": spec}


def _owned_by_managers(job: Manifest) -> Applied | None:
    """Return the fields that managers applied on the server; None: no manager did."""
    entries = [entry for entry in _managers(job) if "f:spec" in entry["fieldsV1"]]
    if not entries:
        return None
    fields: dict[str, Any] = {}
    for entry in entries:
        fields = _merged(fields, entry["fieldsV1"])
    names = sorted({str(entry.get("manager") or "") for entry in entries} - {""})
    named = _merged(fields.get("f:metadata"), {}).get("f:labels")
    spec = _owned(job, {"f:spec": fields["f:spec"]}).get("spec") or {}
    labels = _owned(labels_of(job), named) if named else {}
    by = " of ".join(filter(None, ("server-side apply", ", ".join(names))))
    return Applied(_manifest(job, spec, labels), by)


def _managers(job: Manifest) -> Iterable[dict[str, Any]]:
    """Yield who applied the job itself, not its status."""
    entries = metadata(job).get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        is_apply = isinstance(entry, dict) and entry.get("operation") == "Apply"
        if not is_apply or entry.get("subresource"):
            continue
        fields = entry.get("fieldsV1")
        if isinstance(fields, dict) and not is_nested_deeper(fields, MOST_LEVELS):
            yield entry


def _merged(old: Any, new: Any) -> dict[str, Any]:
    """Return the fields of both; a value that is not an object has no fields."""
    first, second = (each if isinstance(each, dict) else {} for each in (old, new))
    both = {key: _merged(first[key], second[key]) for key in first.keys() & second.keys()}
    return {**first, **second, **both}


def _owned(value: Any, fields: Any) -> Any:
    """Return of a value what `fields`, as managedFields write them, name."""
    named = {key: inner for key, inner in _merged(fields, {}).items() if key != "."}
    if not named:
        return value
    if isinstance(value, dict):
        return {
            name: _owned(inner, named[f"f:{name}"])
            for name, inner in value.items()
            if f"f:{name}" in named
        }
    if isinstance(value, list):
        return [part for item in value for part in _owned_items(item, named)]
    return value


def _owned_items(item: Any, named: Mapping[str, Any]) -> Iterable[Any]:
    """Yield an item of a list that is named by its keys, or by its value."""
    for key, inner in named.items():
        kind, _, text = key.partition(":")
        try:
            wanted = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if kind == "v" and item == wanted:
            yield item
        elif kind != "k" or not isinstance(item, dict) or not isinstance(wanted, dict):
            continue
        elif wanted.items() <= item.items():
            yield {**wanted, **_owned(item, inner)}
