"""domain: converts a row of PrimeHub Usage into a pod lifetime, and reports what cannot be
converted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime  # noqa: TC003  # NamedTuple evaluates the annotations
from decimal import ROUND_CEILING
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ipuhub.quantities import LARGEST
from ipuhub.recording.shapes import Fault, Subject
from usage.pods.annotations import ANNOTATION, is_reserved
from usage.pods.lifetimes import BY_EVENT, BY_LIST

if TYPE_CHECKING:
    from decimal import Decimal

GPU_RESOURCE: Final = "nvidia.com/gpu"
"""PrimeHub Usage stores how many GPUs a pod had, not under which name."""


class SourceRow(NamedTuple):
    """A pod in `primehub_usages`. `copies`: its number of rows. `is_odd`: a time is impossible for
    a pod."""

    uid: str
    pod_name: str
    group: str
    user: str
    component: str
    component_name: str
    instance_type: str
    gpu: Decimal
    cpu: Decimal
    memory: Decimal
    scheduled_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime | None
    is_odd: bool
    copies: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts that PrimeHub Usage does not store in each row."""

    namespace: str
    now: datetime
    cluster_uid: str = ""
    gpu_resource: str = GPU_RESOURCE


@dataclass(frozen=True, slots=True)
class ConvertedRow:
    """Columns of a lifetime (None: the pod is skipped), and the faults of the row."""

    columns: dict[str, Any] | None
    faults: tuple[Fault, ...] = ()


def convert_row(row: SourceRow, origin: Origin) -> ConvertedRow:
    """Return the lifetime and the faults of a row."""
    subject = Subject(row.uid, origin.namespace, row.pod_name)
    if not row.uid.strip() or row.is_odd or row.updated_at is None:
        what = "a time that no pod can have" if row.uid.strip() else "no UID"
        return ConvertedRow(None, (Fault(subject, "import-refused", f"the row has {what}"),))
    faults = []
    if row.copies > 1:
        text = f"{row.copies} rows of this pod; the row that ended last was imported"
        faults.append(Fault(subject, "import-repeated", text))
    amounts, wrong = _amounts(row)
    if wrong:
        text = f"{', '.join(wrong)}: not an amount of a pod; imported as 0"
        faults.append(Fault(subject, "quantity", text))
    return ConvertedRow(_claim(row) | amounts | _accelerators(amounts["gpus"], origin)
                 | _times(row, row.updated_at, origin) | _place(row, origin),
                 tuple(faults))  # fmt: skip


def _place(row: SourceRow, origin: Origin) -> dict[str, Any]:
    return {
        "uid": row.uid,
        "pod_name": row.pod_name,
        "namespace": origin.namespace,
        "cluster_uid": origin.cluster_uid,
        "updated_at": origin.now,
    }


def _claim(row: SourceRow) -> dict[str, Any]:
    reserved = is_reserved(row.component)
    return {
        "claim": ANNOTATION,
        "component": "" if reserved else row.component,
        "claimed_component": row.component if reserved else "",
        "component_name": row.component_name,
        "group": row.group,
        "user": row.user,
        "instance_type": row.instance_type,
    }


def _amounts(row: SourceRow) -> tuple[dict[str, int], list[str]]:
    """Return whole amounts, rounded up as Kubernetes does, and the names of invalid amounts."""
    given = {
        "cpu_millicores": ("cpu", row.cpu, 1000),
        "memory_bytes": ("memory", row.memory, 1),
        "gpus": ("gpu", row.gpu, 1),
    }
    amounts, wrong = {}, []
    for column, (name, value, scale) in given.items():
        is_sound = value.is_finite() and value >= 0 and value * scale <= LARGEST
        if not is_sound:
            wrong.append(f"{name} {value}")
        rounded = (value * scale).to_integral_value(ROUND_CEILING) if is_sound else 0
        amounts[column] = int(rounded)
    return amounts, wrong


def _accelerators(gpus: int, origin: Origin) -> dict[str, Any]:
    return {"accelerators": {origin.gpu_resource: gpus} if gpus else {}}


def _times(row: SourceRow, updated_at: datetime, origin: Origin) -> dict[str, Any]:
    """Return when the pod began and ended.

    A row without an end ends when it was last updated, estimated, by a source that a pod which is
    there after all takes back.
    """
    began = row.scheduled_at
    ended = row.finished_at or updated_at
    possible = min(max(ended, began or ended), origin.now)
    is_open = row.finished_at is None
    return {
        "created_at": began or possible,
        "scheduled_at": began,
        "started_at": None,
        "finished_at": possible,
        "end_source": BY_LIST if is_open else BY_EVENT,
        "estimated": is_open,
        "uncertainty_seconds": _seconds(origin.now, possible) if is_open else 0,
        "skew_seconds": 0 if is_open else abs(_seconds(ended, possible)),
    }


def _seconds(later: datetime, earlier: datetime) -> int:
    return int((later - earlier).total_seconds())
