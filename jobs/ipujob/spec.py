"""domain: the spec of an IPUJob, normalized from both published forms, and the session limits."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from jobs.ipujob.fields import FIELDS, whole_number
from jobs.ipujob.names import ROLE_WORKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobs.ipujob.names import Manifest


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of `interactive.ttl` in seconds.

    `default_seconds` applies if a job sets no ttl (0: it must set one); `maximum_seconds` is the
    longest (0: no limit).
    """

    default_seconds: int = 0
    maximum_seconds: int = 0

    def allowed(self, seconds: int) -> int:
        """The value nearest to `seconds` that is within the limit."""
        return min(seconds, self.maximum_seconds) if self.maximum_seconds else seconds


UNLIMITED = SessionLimits()
LARGEST_PARTITION = 64  # IPUs: the published limit of a partition


def with_defaults(spec: Mapping[str, Any], limits: SessionLimits = UNLIMITED) -> dict[str, Any]:
    """Return a copy of `spec` with the defaults filled in; applying it twice changes nothing."""
    filled = dict(spec)
    for name, default in FIELDS.defaults.items():
        if filled.get(name) is None:
            filled[name] = default
    for name, inner in FIELDS.inner_defaults.items():
        if inner and isinstance(filled.get(name), dict):
            filled[name] = {**inner, **filled[name]}
    interactive = filled.get("interactive")
    if isinstance(interactive, dict) and interactive.get("ttl") is None and limits.default_seconds:
        filled["interactive"] = interactive | {"ttl": limits.default_seconds}
    # kubectl scale reads the number of instances here.
    if filled.get("ipusPerJobInstance") is not None and filled.get("jobInstances") is None:
        filled["jobInstances"] = 1
    return filled


def with_plain_numbers(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `spec` with its numbers as ints, in whatever form they are written.

    A value that is not a number stays unchanged.
    """
    plain = dict(spec)
    for path in FIELDS.numbers:
        outer, _, inner = path.partition(".")
        holder = plain.get(outer) if inner else plain
        number = whole_number(holder.get(inner or outer)) if isinstance(holder, dict) else None
        if number is not None:
            plain[outer] = {**plain[outer], inner: number} if inner else number
    return plain


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The rule by which another attempt follows an ended attempt, at most `back_off_limit`
    times."""

    type: str = FIELDS.rows["restartPolicy.type"].default
    back_off_limit: int = FIELDS.rows["restartPolicy.backOffLimit"].default
    exit_codes: tuple[range, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A valid IPUJob spec.

    `partition_size` is in IPUs, `ttl_seconds` (of an interactive job) in seconds;
    `model_replicas` and `ipus_per_replica` are None in the 1.x shape; `launcher_command` is None
    without a launcher. `plain` holds the values of the fields that are neither objects nor sizes,
    by name. `template` is the pod template as written: do not change it.
    """

    partition_size: int
    instances: int
    workers_per_instance: int
    slots: int
    template: Manifest
    model_replicas: int | None = None
    ipus_per_replica: int | None = None
    launcher_command: tuple[str, ...] | None = None
    launcher_env: tuple[Manifest, ...] = ()
    ttl_seconds: int | None = None
    restart: RestartPolicy = RestartPolicy()
    plain: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_suspended(self) -> bool:
        """Return whether the job is held back."""
        return bool(self.plain.get("suspend"))

    @property
    def deadline_seconds(self) -> int | None:
        """Return the seconds that the job may run."""
        seconds: int | None = self.plain.get("activeDeadlineSeconds")
        return seconds

    @property
    def has_launcher(self) -> bool:
        """Return whether a launcher pod drives the workers, which then sleep."""
        return self.launcher_command is not None or self.ttl_seconds is not None

    @property
    def is_interactive(self) -> bool:
        """Return whether the launcher only waits for people."""
        return self.ttl_seconds is not None

    def sleeps(self, role: str) -> bool:
        """Return whether pods of this role only wait until they are not needed any more."""
        return self.has_launcher if role == ROLE_WORKER else self.is_interactive

    @property
    def total_workers(self) -> int:
        """Worker pods over all instances."""
        return self.instances * self.workers_per_instance

    def workers_of(self, instance: int) -> range:
        """The numbers of one instance's workers."""
        first = instance * self.workers_per_instance
        return range(first, first + self.workers_per_instance)


def parse_spec(written: Mapping[str, Any], limits: SessionLimits = UNLIMITED) -> JobSpec:
    """The spec as the operator acts on it. `written` must have passed `validation.problems` with
    the same `limits`."""
    spec = with_defaults(written, limits)
    workers = spec["workers"]
    replicas = whole_number(spec.get("modelReplicas"))
    per_replica = whole_number(spec.get("ipusPerModelReplica"))
    if replicas is not None and per_replica is not None:
        size, instances = replicas * per_replica, 1
    else:
        size = whole_number(spec.get("ipusPerJobInstance")) or 1
        instances = _number(spec.get("jobInstances"), 1)
    per_instance = _number(spec.get("workersPerJobInstance"), _number(workers.get("replicas"), 1))
    launcher = spec.get("launcher")
    interactive = spec.get("interactive")
    return JobSpec(
        partition_size=size,
        instances=instances,
        workers_per_instance=per_instance,
        slots=_slots(spec, replicas, per_instance),
        template=workers["template"],
        model_replicas=replicas,
        ipus_per_replica=per_replica,
        launcher_command=tuple(launcher["command"]) if launcher else None,
        launcher_env=tuple(launcher.get("env") or ()) if launcher else (),
        ttl_seconds=whole_number(interactive["ttl"]) if interactive else None,
        restart=restart_policy(spec),
        plain=plain_values(spec),
    )


def plain_values(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that are neither objects nor sizes, by name."""
    return {name: FIELDS.value(spec, name) for name in FIELDS.plain}


def restart_policy(spec: Mapping[str, Any]) -> RestartPolicy:
    """Return the restart policy of a valid spec."""
    codes = FIELDS.value(spec, "restartPolicy.exitCodes")
    return RestartPolicy(
        type=FIELDS.value(spec, "restartPolicy.type"),
        back_off_limit=FIELDS.value(spec, "restartPolicy.backOffLimit"),
        exit_codes=tuple(_code_range(part) for part in codes.split(",")) if codes else (),
    )


def _code_range(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def _number(value: object, default: int) -> int:
    number = whole_number(value)
    return default if number is None else number


def _slots(spec: Mapping[str, Any], replicas: int | None, workers: int) -> int:
    per_worker = whole_number(spec.get("modelReplicasPerWorker"))
    if per_worker is not None:
        return per_worker
    return math.ceil(replicas / workers) if replicas else 1


TEMPLATE: Final = "spec.workers.template"
_INDEX: Final = re.compile(r"\[[^]]*\]")
_BESIDE: Final = frozenset({"metadata.name", "spec", "spec.replicas"})


def known_field(path: str, template_schema: Mapping[str, Any]) -> str | None:
    """`path` without the indices of lists; None: an IPUJob, or a Scale, has no such field.

    `template_schema` is the CRD's of a pod template.
    """
    plain = _INDEX.sub("", path)
    name = plain.removeprefix("spec.")
    if plain in _BESIDE or (name != plain and name in FIELDS.rows):
        return plain
    below = plain.removeprefix(f"{TEMPLATE}.")
    return plain if below != plain and _has(template_schema, below.split(".")) else None


def _has(schema: Mapping[str, Any], parts: Iterable[str]) -> bool:
    node = schema
    for part in parts:
        properties = node.get("items", node).get("properties") or {}
        if part not in properties:
            return False
        node = properties[part]
    return True
