"""domain: the IPUJob's spec, both published shapes brought to one.

How long the administrator lets interactive jobs last.

What an IPUJob means when it leaves a field out.

The fields that an IPUJob has, as paths: what a user writes beside them is no field.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jobs.ipujob.names import ROLE_WORKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobs.ipujob.manifests import Manifest


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Seconds of `interactive.ttl`: `default_seconds` where a job says nothing (0: it must say),
    `maximum_seconds` at most (0: there is no limit)."""

    default_seconds: int = 0
    maximum_seconds: int = 0

    def allowed(self, seconds: int) -> int:
        """The value nearest to `seconds` that is within the limit."""
        return min(seconds, self.maximum_seconds) if self.maximum_seconds else seconds


UNLIMITED = SessionLimits()
CLEAN_POD_POLICY = "None"
RESTART_TYPE = "Never"
BACK_OFF_LIMIT = 3
WORKER_REPLICAS = 1
JOB_INSTANCES = 1


def with_defaults(spec: Mapping[str, Any], limits: SessionLimits = UNLIMITED) -> dict[str, Any]:
    """A copy of `spec` with the defaults filled in; applying it twice changes nothing."""
    filled = dict(spec)
    if filled.get("cleanPodPolicy") is None:
        filled["cleanPodPolicy"] = CLEAN_POD_POLICY
    restart = filled.get("restartPolicy")
    if restart is None or isinstance(restart, dict):
        filled["restartPolicy"] = {"type": RESTART_TYPE, "backOffLimit": BACK_OFF_LIMIT} | (
            restart or {}
        )
    workers = filled.get("workers")
    if isinstance(workers, dict):
        filled["workers"] = {"replicas": WORKER_REPLICAS} | workers
    interactive = filled.get("interactive")
    if isinstance(interactive, dict) and interactive.get("ttl") is None and limits.default_seconds:
        filled["interactive"] = interactive | {"ttl": limits.default_seconds}
    # kubectl scale reads the number of instances here.
    if filled.get("ipusPerJobInstance") is not None and filled.get("jobInstances") is None:
        filled["jobInstances"] = JOB_INSTANCES
    return filled


LARGEST_PARTITION = 64  # IPUs: the published limit of a partition
ALPHA_FIELDS = ("modelReplicas", "ipusPerModelReplica")
LARGEST_NUMBER = 2**63 - 1  # what Kubernetes takes for an integer
CURRENT_FIELDS = ("ipusPerJobInstance", "jobInstances", "workersPerJobInstance")
NUMBERS = (
    *ALPHA_FIELDS,
    *CURRENT_FIELDS,
    "modelReplicasPerWorker",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "workers.replicas",
    "restartPolicy.backOffLimit",
    "interactive.ttl",
)
_NUMBER = re.compile(r"\s*(-?[0-9]{1,19})\s*")


def whole_number(value: object) -> int | None:
    """The int-or-string `value` as an int, or None where it is neither a whole number of 64 bits
    nor one written as text ("4")."""
    number = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, str) and (found := _NUMBER.fullmatch(value)):
        number = int(found[1])
    # Products of what is larger could not even be written down: Python refuses 4,301 digits.
    return number if number is None or abs(number) <= LARGEST_NUMBER else None


def with_plain_numbers(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `spec` with its NUMBERS as ints, however they are written; what is no number stays
    as it is."""
    plain = dict(spec)
    for path in NUMBERS:
        outer, _, inner = path.partition(".")
        holder = plain.get(outer) if inner else plain
        number = whole_number(holder.get(inner or outer)) if isinstance(holder, dict) else None
        if number is not None:
            plain[outer] = {**plain[outer], inner: number} if inner else number
    return plain


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When an attempt that has ended is followed by another, at most `back_off_limit` times."""

    type: str = "Never"
    back_off_limit: int = 3
    exit_codes: tuple[range, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A valid IPUJob spec.

    `partition_size` is in IPUs, `ttl_seconds` (of an interactive job) in seconds;
    `model_replicas` and `ipus_per_replica` are None in the 1.x shape; `launcher_command` is None
    without a launcher.
    `template` is the pod template as written: do not change it.
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
    clean_pod_policy: str = "None"
    keep_partition: bool = False
    restart: RestartPolicy = RestartPolicy()
    is_suspended: bool = False
    deadline_seconds: int | None = None

    @property
    def has_launcher(self) -> bool:
        """Whether a launcher pod drives the workers, which then sleep."""
        return self.launcher_command is not None or self.ttl_seconds is not None

    @property
    def is_interactive(self) -> bool:
        """Whether the launcher only waits for people."""
        return self.ttl_seconds is not None

    def sleeps(self, role: str) -> bool:
        """Whether pods of this role only wait until they are not needed any more."""
        return self.has_launcher if role == ROLE_WORKER else self.is_interactive

    @property
    def total_workers(self) -> int:
        """Worker pods over all instances."""
        return self.instances * self.workers_per_instance

    @property
    def total_ipus(self) -> int:
        """IPUs over all instances."""
        return self.instances * self.partition_size

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
        clean_pod_policy=spec["cleanPodPolicy"],
        keep_partition=bool(spec.get("keepPartition")),
        restart=_restart_policy(spec["restartPolicy"]),
        is_suspended=bool(spec.get("suspend")),
        deadline_seconds=whole_number(spec.get("activeDeadlineSeconds")),
    )


def _restart_policy(written: Mapping[str, Any]) -> RestartPolicy:
    return RestartPolicy(
        type=written["type"],
        back_off_limit=_number(written.get("backOffLimit"), BACK_OFF_LIMIT),
        exit_codes=tuple(_code_range(part) for part in _parts(written.get("exitCodes"))),
    )


def _parts(codes: str | None) -> list[str]:
    return codes.split(",") if codes else []


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
_OWN: Final = frozenset(
    """
    metadata.name spec spec.replicas
    spec.activeDeadlineSeconds spec.cleanPodPolicy spec.interactive spec.interactive.ttl
    spec.ipusPerJobInstance spec.ipusPerModelReplica spec.jobInstances spec.keepPartition
    spec.launcher spec.launcher.command spec.launcher.env spec.modelReplicas
    spec.modelReplicasPerWorker spec.restartPolicy spec.restartPolicy.backOffLimit
    spec.restartPolicy.exitCodes spec.restartPolicy.type spec.suspend
    spec.ttlSecondsAfterFinished spec.workers spec.workers.replicas spec.workers.strategy
    spec.workers.template spec.workersPerJobInstance
    """.split()  # noqa: SIM905  # one name a line would fill a page
)


def known_field(path: str, template_schema: Mapping[str, Any]) -> str | None:
    """`path` without the indices of lists; None: an IPUJob, or a Scale, has no such field.

    `template_schema` is the CRD's of a pod template.
    """
    plain = _INDEX.sub("", path)
    if plain in _OWN:
        return plain
    below = plain.removeprefix(f"{TEMPLATE}.")
    return plain if below != plain and _has(template_schema, below.split(".")) else None


def _has(schema: Mapping[str, Any], parts: Iterable[str]) -> bool:
    here = schema
    for part in parts:
        properties = here.get("items", here).get("properties") or {}
        if part not in properties:
            return False
        here = properties[part]
    return True
