"""domain: warnings: what is legal and probably not meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jobs.ipujob.sessionlimits import UNLIMITED
from jobs.ipujob.spec import parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jobs.ipujob.sessionlimits import SessionLimits
    from jobs.ipujob.spec import JobSpec

_PROCESSES = re.compile(r"(?:^|\s)(?:-np|--np|-n|-c)\s+(\d{1,6})(?=\s|$)")
_MOST_FIELDS = 10


def hints(
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
    asked = max((int(number) for number in _PROCESSES.findall(command)), default=0)
    if asked > slots:
        yield (
            f"spec.launcher.command: {asked} processes are more than the {slots} slots of the "
            "workers: mpirun will refuse"
        )


def _unknown_fields(template: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    found = sorted(set(_walk(template, schema, "spec.workers.template")))
    for path in found[:_MOST_FIELDS]:
        yield f"{path}: no such field in a pod template: it is kept and has no effect here"
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
