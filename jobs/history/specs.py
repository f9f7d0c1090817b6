"""domain: what was applied of a job, and how much of its written spec is in effect.

`kubectl apply` leaves what it applied in an annotation, server-side apply the names of the fields
that each manager applied. Of a job made in another way only its spec is known. An edit of what pods
are made of waits until the next attempt: the operator says so in the condition of the job.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jobs.ipujob.conditions import FINISHED, JobState, Reason
from jobs.ipujob.fields import FIELDS, whole_number
from jobs.ipujob.names import API_VERSION, KIND, annotations_of, metadata, name_of, namespace_of
from jobs.ipujob.spec import with_defaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobs.ipujob.names import Manifest

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_ENDED: Final = frozenset(state.value for state in FINISHED)
_RUNS: Final = frozenset({JobState.RUNNING.value, JobState.RESTARTING.value})


@dataclass(frozen=True, slots=True)
class Applied:
    """A manifest as it was applied, and by what; `by` is empty where nothing says so, and the
    manifest is then the job with its current spec."""

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
    """Return what was applied of a job."""
    try:
        found = json.loads(annotations_of(job).get(LAST_APPLIED) or "")
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(found.get("spec"), dict):
        return Applied(found, "kubectl apply")
    entries = [entry for entry in _managers(job) if "f:spec" in entry["fieldsV1"]]
    if not entries:
        return Applied(_with_spec(job, job.get("spec") or {}))
    fields: dict[str, Any] = {}
    for entry in entries:
        fields = _merged(fields, entry["fieldsV1"])
    names = sorted({str(entry.get("manager") or "") for entry in entries} - {""})
    owned = _owned(job, {"f:spec": fields["f:spec"]})
    by = " of ".join(filter(None, ("server-side apply", ", ".join(names))))
    return Applied(_with_spec(job, owned.get("spec") or {}), by)


def in_effect(job: Manifest, status: Mapping[str, Any], reason: str) -> InEffect:
    """Return how the spec takes effect; `reason`: that of the job's current condition."""
    spec = job.get("spec")
    filled = with_defaults(spec if isinstance(spec, dict) else {})
    state = status.get("launcherStatus")
    if reason == Reason.SPEC_CHANGED:
        policies = {name: filled[name] for name in FIELDS.while_running if name in filled}
        return InEffect(filled, is_whole=False, policies=policies)
    is_whole = state not in _ENDED and not (state in _RUNS and _is_unseen(job, status))
    return InEffect(filled, is_whole, {})


def _is_unseen(job: Manifest, status: Mapping[str, Any]) -> bool:
    """Return whether the operator has not looked at this spec yet."""
    written = whole_number(metadata(job).get("generation"))
    seen = whole_number(status.get("observedGeneration"))
    return written is not None and seen is not None and seen < written


def _with_spec(job: Manifest, spec: Manifest) -> Manifest:
    names = {"name": name_of(job), "namespace": namespace_of(job)}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": names, "spec": spec}


def _managers(job: Manifest) -> Iterable[dict[str, Any]]:
    """Yield who applied the job itself, not its status."""
    entries = metadata(job).get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        is_apply = isinstance(entry, dict) and entry.get("operation") == "Apply"
        if is_apply and not entry.get("subresource") and isinstance(entry.get("fieldsV1"), dict):
            yield entry


def _merged(one: Any, two: Any) -> dict[str, Any]:
    """Return the fields of both; what is no object of fields has none."""
    first, second = (each if isinstance(each, dict) else {} for each in (one, two))
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
        except ValueError:
            continue
        if kind == "v" and item == wanted:
            yield item
        elif kind == "k" and isinstance(item, dict) and wanted.items() <= item.items():
            yield {**wanted, **_owned(item, inner)}
