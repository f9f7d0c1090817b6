"""domain: the one table of the fields of an IPUJob's spec.

Everything about a field follows from its row: the CRD, defaults, numbers, checks of its value,
which edits are allowed, what is kept of an invalid spec, and `JobSpec.plain`. A new plain field
needs a row here and the code of its effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LARGEST_NUMBER = 2**63 - 1  # what Kubernetes takes for an integer
_NUMBER = re.compile(r"\s*(-?[0-9]{1,19})\s*")


def whole_number(value: object) -> int | None:
    """Return the int-or-string `value` as an int.

    Return None if it is neither a whole number of 64 bits nor such a number as text ("4").
    """
    number = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, str) and (found := _NUMBER.fullmatch(value)):
        number = int(found[1])
    # Products of larger numbers could not even be printed: Python refuses 4,301 digits.
    return number if number is None or abs(number) <= LARGEST_NUMBER else None


NUMBER: Final = "number"  # an int, or one written as text
INTEGER: Final = "int32"
OBJECT: Final = "object with fields of its own"


class MayChange(Enum):
    """The states of a job in which an edit may change a field."""

    WHEN_IDLE = "while the job holds nothing"
    UNTIL_FINISHED = "until the job has finished"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of the spec.

    `path` is below spec, as in `restartPolicy.type`. `type` is NUMBER, INTEGER, OBJECT or as the
    models of Kubernetes write it (bool, str, list[str], V1EnvVar). An OBJECT with a default gets
    the defaults of its fields. `may_change` counts for the whole of a top-level field. `is_ours`:
    Graphcore's CRD has no such field. `unit`: of a number, for messages. `shape` is the way of
    giving sizes that it belongs to.
    """

    path: str
    type: str
    description: str
    default: Any = None
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    unit: str = ""
    may_change: MayChange = MayChange.WHEN_IDLE
    is_ours: bool = False
    shape: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


class FieldTable:
    """The rows by path, in the order of the CRD, and lists that follow from them."""

    def __init__(self, rows: Iterable[Field]) -> None:
        self.rows = {row.path: row for row in rows}
        top = self.below("")
        self.plain = tuple(row.path for row in top if row.type != OBJECT and not row.shape)
        self.numbers = tuple(p for p, row in self.rows.items() if row.type in {NUMBER, INTEGER})
        self.minima = tuple(row for row in top if row.minimum is not None)
        self.choices = tuple(row for row in top if row.choices)
        self.defaults = {row.path: row.default for row in top if row.default is not None}
        self.inner_defaults = {row.path: self._defaults_below(row.path) for row in top}
        self.not_published = tuple(row.path for row in top if row.is_ours)
        changing = {
            kind: frozenset(r.path for r in top if r.may_change is kind) for kind in MayChange
        }
        self.when_finished = changing[MayChange.ALWAYS]
        self.while_running = self.when_finished | changing[MayChange.UNTIL_FINISHED]

    def below(self, parent: str) -> tuple[Field, ...]:
        """Return the fields of the object at `parent`; "" is spec itself."""
        return tuple(r for path, r in self.rows.items() if path.rpartition(".")[0] == parent)

    def of_shape(self, shape: str) -> tuple[str, ...]:
        """Return the fields of one of the two forms of giving sizes."""
        return tuple(path for path, row in self.rows.items() if row.shape == shape)

    def default_of(self, row: Field) -> Any:
        """Return the default; the default of an OBJECT includes the defaults of its fields."""
        return row.default if row.default is None else self._defaults_below(row.path) or row.default

    def value(self, spec: Mapping[str, Any], path: str) -> Any:
        """Return the field of `spec`, whose objects are objects: a number as an int (or None), a
        switch as a bool, any other value as written; the default if it is missing."""
        row = self.rows[path]
        found: Any = spec
        for name in path.split("."):
            found = (found or {}).get(name)
        if row.type in {NUMBER, INTEGER}:
            found = whole_number(found)
        if found is None:
            found = row.default
        return bool(found) if row.type == "bool" else found

    def _defaults_below(self, parent: str) -> Mapping[str, Any]:
        inner = {row.name: row.default for row in self.below(parent)}
        return {name: default for name, default in inner.items() if default is not None}


ALPHA_SHAPE: Final = "replicas of a model"
CURRENT_SHAPE: Final = "instances of a job"
FIELDS: Final = FieldTable(
    (
        Field(
            path="modelReplicas",
            type=NUMBER,
            minimum=1,
            shape=ALPHA_SHAPE,
            is_ours=True,
            description="How many replicas of the model the job trains together. Goes with "
            "ipusPerModelReplica and not with ipusPerJobInstance.",
        ),
        Field(
            path="ipusPerModelReplica",
            type=NUMBER,
            minimum=1,
            shape=ALPHA_SHAPE,
            is_ours=True,
            description="IPUs of one replica of the model.",
        ),
        Field(
            path="ipusPerJobInstance",
            type=NUMBER,
            minimum=1,
            shape=CURRENT_SHAPE,
            description="IPUs of the partition that each instance of the job gets for itself.",
        ),
        Field(
            path="jobInstances",
            type=INTEGER,
            minimum=1,
            shape=CURRENT_SHAPE,
            may_change=MayChange.UNTIL_FINISHED,
            description="How many equal instances of the job to run, each on a partition of "
            "its own; more than 1 is for jobs without a launcher. What kubectl scale sets.",
        ),
        Field(
            path="workersPerJobInstance",
            type=NUMBER,
            minimum=1,
            shape=CURRENT_SHAPE,
            description="Worker pods of one instance; left out, workers.replicas counts.",
        ),
        Field(
            path="modelReplicasPerWorker",
            type=NUMBER,
            minimum=1,
            description="Replicas of the model that one worker runs: its slots in the hostfile.",
        ),
        Field(
            path="launcher",
            type=OBJECT,
            description="The pod that starts the job's processes in the workers, with the workers' "
            "image and volumes. Left out, the workers run their own command.",
        ),
        Field(
            path="launcher.command",
            type="list[str]",
            description="The command that runs the job, such as mpirun or poprun.",
        ),
        Field(
            path="launcher.env",
            type="list[V1EnvVar]",
            description="More environment variables for the launcher.",
        ),
        Field(
            path="interactive",
            type=OBJECT,
            may_change=MayChange.UNTIL_FINISHED,
            description="Makes this an interactive job: the launcher runs nothing and waits for "
            "people (kubectl exec).",
        ),
        Field(
            path="interactive.ttl",
            type=NUMBER,
            minimum=1,
            unit="seconds",
            description="How long the session lasts, in seconds; the administrator may have set a "
            "default and a maximum.",
        ),
        Field(path="workers", type=OBJECT, description="The pods that use the partition."),
        Field(
            path="workers.replicas",
            type=NUMBER,
            default=1,
            minimum=1,
            description="How many workers an instance has, where workersPerJobInstance is left "
            "out.",
        ),
        Field(
            path="workers.strategy",
            type="V1DeploymentStrategy",
            description="Accepted for compatibility, without effect.",
        ),
        Field(
            path="workers.template",
            type="V1PodTemplateSpec",
            description="The worker pods. The launcher starts processes in the first "
            "container. Everything Kubernetes allows in a pod template is possible; "
            "restartPolicy is always Never.",
        ),
        Field(
            path="cleanPodPolicy",
            type="str",
            default="None",
            choices=("None", "Workers", "All"),
            may_change=MayChange.ALWAYS,
            description="Which pods to delete when the job has finished: None, Workers, or "
            "All, which includes the launcher. Kept pods are ended, their logs stay.",
        ),
        Field(
            path="restartPolicy",
            type=OBJECT,
            default={},
            may_change=MayChange.UNTIL_FINISHED,
            description="Whether to run the job again when it has ended.",
        ),
        Field(
            path="restartPolicy.type",
            type="str",
            default="Never",
            choices=("Never", "OnFailure", "Always", "ExitCode"),
            description="Never; OnFailure: after a non-zero exit code; Always: after any; "
            "ExitCode: after the codes in exitCodes.",
        ),
        Field(
            path="restartPolicy.backOffLimit",
            type=NUMBER,
            default=3,
            minimum=0,
            description="How many restarts there may be.",
        ),
        Field(
            path="restartPolicy.exitCodes",
            type="str",
            description="Exit codes and ranges that restart the job, such as "
            '"1,5,10-127"; left out, 128 to 255.',
        ),
        Field(
            path="suspend",
            type="bool",
            may_change=MayChange.UNTIL_FINISHED,
            is_ours=True,
            description="Hold the job back: it has no pods and no IPUs while this is true.",
        ),
        Field(
            path="activeDeadlineSeconds",
            type=NUMBER,
            minimum=1,
            unit="seconds",
            may_change=MayChange.UNTIL_FINISHED,
            is_ours=True,
            description="Longest time in seconds that the job may run.",
        ),
        Field(
            path="ttlSecondsAfterFinished",
            type=NUMBER,
            minimum=0,
            unit="seconds",
            may_change=MayChange.ALWAYS,
            is_ours=True,
            description="Delete the job this many seconds after it has finished.",
        ),
        Field(
            path="keepPartition",
            type="bool",
            may_change=MayChange.ALWAYS,
            is_ours=True,
            description="Keep the IPU partition when the job has finished, until the job "
            "is deleted. Without it the IPUs are free as soon as the pods have ended.",
        ),
    )
)
ALPHA_FIELDS: Final = FIELDS.of_shape(ALPHA_SHAPE)
CURRENT_FIELDS: Final = FIELDS.of_shape(CURRENT_SHAPE)
