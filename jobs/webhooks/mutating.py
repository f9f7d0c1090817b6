"""domain: changes and warnings of the mutating webhook. Applying it twice has no further effect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jobs.ipujob.names import (
    ANNOTATION_CREATED_BY,
    FINALIZER,
    FINALIZERS,
    annotations_of,
    is_being_deleted,
    metadata,
)
from jobs.ipujob.spec import UNLIMITED, parse_spec, with_defaults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobs.ipujob.spec import JobSpec, SessionLimits
    from jobs.webhooks.review import Review

Operations = list[dict[str, Any]]


def operations(review: Review, limits: SessionLimits = UNLIMITED) -> Operations:
    """RFC 6902 operations on the reviewed IPUJob.

    `ipuhub.io/created-by` is the job's creator, whatever the object claims. Only a CREATE request
    has it, so UPDATE copies it from the old object. The finalizer comes on CREATE and never on an
    object that is being deleted, where the API server refuses a new finalizer.
    """
    if review.subresource or review.operation not in {"CREATE", "UPDATE"}:
        return []
    return [*_created_by(review), *_finalizer(review), *_defaults(review, limits)]


def _created_by(review: Review) -> Operations:
    is_new = review.operation == "CREATE"
    wanted = review.username if is_new else annotations_of(review.old).get(ANNOTATION_CREATED_BY)
    present = annotations_of(review.manifest)
    path = "/metadata/annotations/" + ANNOTATION_CREATED_BY.replace("/", "~1")
    if present.get(ANNOTATION_CREATED_BY) == wanted:
        return []
    if not wanted:
        return [{"op": "remove", "path": path}]
    if not isinstance(metadata(review.manifest).get("annotations"), dict):
        value: Any = {ANNOTATION_CREATED_BY: wanted}
        return [{"op": "add", "path": "/metadata/annotations", "value": value}]
    return [{"op": "add", "path": path, "value": wanted}]


def _finalizer(review: Review) -> Operations:
    present = metadata(review.manifest).get("finalizers")
    if review.operation != "CREATE" or is_being_deleted(review.manifest):
        return []
    if isinstance(present, list) and any(name in FINALIZERS for name in present):
        return []
    value = [*(present or []), FINALIZER]
    return [{"op": "add", "path": "/metadata/finalizers", "value": value}]


def _defaults(review: Review, limits: SessionLimits) -> Operations:
    spec = review.manifest.get("spec")
    if not isinstance(spec, dict) or is_being_deleted(review.manifest):
        return []
    return _difference("/spec", spec, with_defaults(spec, limits))


def _difference(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Operations:
    """Return additions only: a default never replaces a written value."""
    found: Operations = []
    for key, value in new.items():
        place = f"{path}/{key}"
        if old.get(key) is None and value is not None:
            found.append({"op": "add", "path": place, "value": value})
        elif isinstance(value, dict) and isinstance(old.get(key), dict):
            found += _difference(place, old[key], value)
    return found


_PROCESSES = re.compile(r"(?:^|\s)(?:-np|--np|-n|-c)\s+(\d{1,6})(?=\s|$)")
_MOST_FIELDS = 10


def warnings_of(
    spec: Mapping[str, Any],
    template_schema: Mapping[str, Any],
    limits: SessionLimits = UNLIMITED,
) -> list[str]:
    """Sentences for the user of a spec that is valid by `limits`; `template_schema` is the CRD's
    of a pod template."""
    parsed = parse_spec(spec, limits)
    return [*_mpi(parsed), *_unknown_fields(parsed.template, template_schema)]


def _mpi(spec: JobSpec) -> Iterator[str]:
    command = " ".join(spec.launcher_command or ())
    if "mpirun" not in command:
        return
    slots = spec.slots * spec.total_workers
    wanted = max((int(number) for number in _PROCESSES.findall(command)), default=0)
    if wanted > slots:
        yield (
            f"spec.launcher.command: {wanted} processes exceed the {slots} slots of the workers: "
            "mpirun will fail"
        )


def _unknown_fields(template: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    found = sorted(set(_walk(template, schema, "spec.workers.template")))
    for path in found[:_MOST_FIELDS]:
        yield f"{path}: unknown field of a pod template; it has no effect"
    if len(found) > _MOST_FIELDS:
        yield f"spec.workers.template: {len(found) - _MOST_FIELDS} more unknown fields"


def _walk(value: object, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    properties = schema.get("properties")
    if isinstance(value, dict) and properties and not path.endswith(".metadata"):
        for key, part in value.items():
            if key in properties:
                yield from _walk(part, properties[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, part in enumerate(value):
            yield from _walk(part, schema["items"], f"{path}[{index}]")
