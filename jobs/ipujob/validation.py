"""domain: the one list of rules for a valid IPUJob.

The operator checks stored jobs before it acts, the webhook checks incoming jobs. Also the depth of
a JSON value, measured without recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from jobs.ipujob.fields import ALPHA_FIELDS, CURRENT_FIELDS, FIELDS, LARGEST_NUMBER, whole_number
from jobs.ipujob.names import LONGEST_JOB_NAME
from jobs.ipujob.privileges import LABEL_POD_PROFILE, privilege_excesses
from jobs.ipujob.spec import LARGEST_PARTITION, UNLIMITED, with_defaults
from jobs.ipujob.templateshape import wrong_launcher_types, wrong_types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jobs.ipujob.fields import Field
    from jobs.ipujob.privileges import Privileges
    from jobs.ipujob.spec import SessionLimits


def is_nested_deeper(value: object, levels: int) -> bool:
    """Return whether there are objects or lists in `value` below more than `levels` others."""
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not layer:
            return False
        layer = [part for part in chain.from_iterable(map(_parts, layer)) if _is_container(part)]
    return bool(layer)


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _is_container(value: object) -> bool:
    return isinstance(value, dict | list)


MOST_WORKERS = 1000
EXIT_CODES = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*")
MOST_LEVELS = 100  # a reader or writer of JSON somewhere on the way gives up at 250
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule: the field's path, and a message that says what to write instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


Problems = Iterator[Problem]
Spec = dict[str, Any]


def problems(
    name: str,
    spec: object,
    limits: SessionLimits = UNLIMITED,
    *,
    namespace: str = "",
    privileges: Privileges | None = None,
) -> list[Problem]:
    """Return every broken rule of the IPUJob called `name`; empty: it is valid.

    The administrator's `limits` and `privileges` are checked, too, unless they are None.
    """
    found = [*_name(name)]
    if not isinstance(spec, dict) or not spec:
        return [*found, Problem("spec", "is required: set workers.template and a partition size")]
    filled = with_defaults(spec, limits)
    for rule in RULES:
        found += rule(filled)
    found += _session(filled, limits)
    if privileges is not None:
        found += _beyond(filled, namespace, privileges)
    return found


def valid_policies(policies: Mapping[str, Any]) -> dict[str, Any]:
    """Return of fields that apply to running pods those that are valid."""
    valid = dict(policies)
    for problem in problems("kept", valid):
        valid.pop(problem.field.removeprefix("spec.").partition(".")[0], None)
    return valid


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        return "a number of more than 64 bits"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def _name(name: str) -> Problems:
    over = len(name) - LONGEST_JOB_NAME
    if over > 0:
        yield Problem(
            "metadata.name",
            f"has {len(name)} characters; the limit is {LONGEST_JOB_NAME}: "
            f'shorten it by {over}, for example to "{name[:LONGEST_JOB_NAME].rstrip("-.")}"',
        )


def _value(spec: Spec, path: str) -> Any:
    found: Any = spec
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _at_least(spec: Spec, row: Field, *, required: bool = False) -> Problems:
    """The number is whole and at least the row's minimum."""
    value = _value(spec, row.path)
    minimum = row.minimum or 0
    wanted = f"a whole number of {f'{row.unit}, ' if row.unit else ''}at least {minimum}"
    if value is None:
        if required:
            yield Problem(f"spec.{row.path}", f"is required: set {wanted}")
        return
    number = whole_number(value)
    if number is None:
        yield Problem(
            f"spec.{row.path}",
            f"{_shown(value)} is not a whole number: use {wanted}",
        )
    elif number < minimum:
        unit = f" ({row.unit})" if row.unit else ""
        message = f"{number} is too small: use {minimum} or more{unit}"
        yield Problem(f"spec.{row.path}", message)


def _chosen(spec: Spec, row: Field) -> Problems:
    """The value is one of the row's choices; left out, it needs no default."""
    value = _value(spec, row.path)
    if value not in row.choices and not (value is None and row.default is None):
        choices = ", ".join(row.choices)
        yield Problem(f"spec.{row.path}", f"{_shown(value)} is unknown: use one of {choices}")


def _shape(spec: Spec) -> Problems:
    alpha = [field for field in ALPHA_FIELDS if spec.get(field) is not None]
    current = [field for field in CURRENT_FIELDS if spec.get(field) is not None]
    if alpha and current:
        yield Problem(
            f"spec.{current[0]}",
            f"cannot be combined with {' and '.join(alpha)}: use only one way to set the size, "
            "for example "
            f"ipusPerJobInstance: {_converted_size(spec)}, jobInstances: 1 "
            f"and no {' or '.join(ALPHA_FIELDS)}",
        )
    elif not alpha and spec.get("ipusPerJobInstance") is None:
        yield Problem(
            "spec.ipusPerJobInstance",
            "is required: set the IPUs of one partition, a power of two up to "
            f"{LARGEST_PARTITION} (or modelReplicas and ipusPerModelReplica)",
        )
    elif len(alpha) == 1:
        missing = ALPHA_FIELDS[1 - ALPHA_FIELDS.index(alpha[0])]
        yield Problem(f"spec.{missing}", f'is required with {alpha[0]}: use "1" or more')


def _converted_size(spec: Spec) -> int:
    replicas = whole_number(spec.get("modelReplicas")) or 1
    per_replica = whole_number(spec.get("ipusPerModelReplica")) or 1
    return whole_number(spec.get("ipusPerJobInstance")) or replicas * per_replica


def _numbers(spec: Spec) -> Problems:
    for row in FIELDS.minima:
        yield from _at_least(spec, row)


def _size(spec: Spec) -> Problems:
    single = whole_number(spec.get("ipusPerJobInstance"))
    replicas, per_replica = (whole_number(spec.get(field)) for field in ALPHA_FIELDS)
    if single is not None and single >= 1:
        yield from _size_of("spec.ipusPerJobInstance", f"{_shown_size(single)}", single)
    elif replicas is not None and per_replica is not None and min(replicas, per_replica) >= 1:
        size = replicas * per_replica
        text = f"modelReplicas x ipusPerModelReplica is {_shown_size(size)}, which"
        yield from _size_of("spec.ipusPerModelReplica", text, size)


def _shown_size(size: int) -> str:
    return f"{size} IPU{'' if size == 1 else 's'}"


def _size_of(field: str, subject: str, size: int) -> Problems:
    verb = "exceed" if subject[0].isdigit() else "exceeds"
    if size > LARGEST_PARTITION:
        yield Problem(
            field,
            f"{subject} {verb} the largest partition: use {LARGEST_PARTITION} or less, "
            "a power of two",
        )
    elif size & (size - 1):
        below = 1 << (size.bit_length() - 1)
        verb = "are" if subject[0].isdigit() else "is"
        yield Problem(field, f"{subject} {verb} not a power of two: use {below} or {2 * below}")


def _workers(spec: Spec) -> Problems:
    workers = spec.get("workers")
    if not isinstance(workers, dict):
        yield Problem("spec.workers", "is required: set workers.template, a pod template")
        return
    yield from _at_least(spec, FIELDS.rows["workers.replicas"])
    per_instance = whole_number(spec.get("workersPerJobInstance")) or whole_number(
        workers.get("replicas")
    )
    total = (per_instance or 1) * (whole_number(spec.get("jobInstances")) or 1)
    if total > MOST_WORKERS:
        yield Problem(
            "spec.workers.replicas",
            f"the job would have {total} workers: the limit is {MOST_WORKERS}",
        )
    yield from _template(workers.get("template"))


def _template(template: object) -> Problems:
    field = "spec.workers.template"
    if not isinstance(template, dict) or not template:
        yield Problem(field, "is required: set a pod template with spec.containers")
        return
    pod = template.get("spec")
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if not isinstance(containers, list) or not containers:
        yield Problem(f"{field}.spec.containers", "is required: add at least one container")
        return
    for index, container in enumerate(containers):
        for part in ("name", "image"):
            value = container.get(part) if isinstance(container, dict) else None
            if not isinstance(value, str) or not value:
                yield Problem(f"{field}.spec.containers[{index}].{part}", "is required")
    for path, wanted in wrong_types(template):
        yield _wrong_type(f"{field}.{path}", wanted)


def _wrong_type(field: str, wanted: str) -> Problem:
    return Problem(field, f"has a wrong type: use {wanted}")


def _launcher(spec: Spec) -> Problems:
    launcher = spec.get("launcher")
    if launcher is None:
        return
    fields = launcher if isinstance(launcher, dict) else {}
    command = fields.get("command")
    if not isinstance(command, list) or not command or not _all_text(command):
        yield Problem(
            "spec.launcher.command",
            "is required: set the command as a list of strings, or leave launcher out",
        )
    for path, wanted in wrong_launcher_types(fields):
        yield _wrong_type(f"spec.launcher.{path}", wanted)
    if (whole_number(spec.get("jobInstances")) or 1) > 1:
        yield Problem(
            "spec.jobInstances",
            "must be 1 for a job with a launcher: use 1, or leave launcher out",
        )
    if spec.get("interactive") is not None:
        yield Problem(
            "spec.launcher",
            "an interactive job has no command: leave out launcher or interactive",
        )


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _interactive(spec: Spec) -> Problems:
    if spec.get("interactive") is None:
        return
    yield from _at_least(spec, FIELDS.rows["interactive.ttl"], required=True)
    if (whole_number(spec.get("jobInstances")) or 1) > 1:
        yield Problem("spec.jobInstances", "must be 1 for an interactive job: use 1")


def _session(spec: Spec, limits: SessionLimits) -> Problems:
    interactive = spec.get("interactive")
    ttl = whole_number(interactive.get("ttl")) if isinstance(interactive, dict) else None
    if ttl is not None and ttl > limits.allowed(ttl):
        most = limits.allowed(ttl)
        yield Problem(
            "spec.interactive.ttl",
            f"{_shown(ttl)} s exceed the limit of this cluster: use {most} or less",
        )


def _beyond(spec: Spec, namespace: str, privileges: Privileges) -> Problems:
    found = list(privilege_excesses(spec, privileges))
    remedy = (
        f". An administrator can choose another pod profile than {privileges.profile}: with "
        f"IPUHUB_POD_PROFILE for all, with the label {LABEL_POD_PROFILE} for the namespace"
        f"{f' {namespace}' if namespace else ''}"
    )
    for place, excess in enumerate(found, start=1):
        by = f"the pod profile {privileges.profile}"
        problem = f"{_shown(excess.value)} is not allowed by {by}"
        if excess.value is None:
            problem = f"is missing, which {by} requires"
        last = remedy if place == len(found) else ""
        yield Problem(excess.field, f"{problem} ({excess.control}): {excess.instead}{last}")


def _policies(spec: Spec) -> Problems:
    for row in FIELDS.choices:
        yield from _chosen(spec, row)
    restart = spec.get("restartPolicy")
    if not isinstance(restart, dict):
        yield Problem("spec.restartPolicy", "is not an object: use, for example, type: Never")
        return
    yield from _chosen(spec, FIELDS.rows["restartPolicy.type"])
    yield from _at_least(spec, FIELDS.rows["restartPolicy.backOffLimit"])
    yield from _exit_codes(restart.get("exitCodes"))


def _exit_codes(value: object) -> Problems:
    field = "spec.restartPolicy.exitCodes"
    if value is None:
        return
    if not isinstance(value, str) or not EXIT_CODES.fullmatch(value):
        yield Problem(
            field,
            f'{_shown(value)} is not a list of codes and ranges: use a list like "1,5,10-127"',
        )
        return
    for part in value.split(","):
        first, _, last = part.partition("-")
        if int(first) > int(last or first) or int(last or first) > 255:
            yield Problem(field, f"{part} is not a range of exit codes: use 0 to 255, low to high")


def _nesting(spec: Spec) -> Problems:
    for field, value in spec.items():
        if is_nested_deeper(value, MOST_LEVELS):
            yield Problem(
                f"spec.{field}",
                f"is nested deeper than {MOST_LEVELS} levels: remove fields that pods do not have",
            )


RULES: tuple[Callable[[Spec], Problems], ...] = (
    _shape,
    _numbers,
    _size,
    _workers,
    _launcher,
    _interactive,
    _policies,
    _nesting,
)
