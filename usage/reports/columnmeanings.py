"""domain: the meanings of the columns of report files, in the words of docs/admin/csv-columns.md.

The reports page shows them below the files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from usage.reports.columns import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from usage.reports.columns import Columns


@dataclass(frozen=True, slots=True)
class Meaning:
    """Unit and sentence of a column."""

    unit: str
    text: str

    @property
    def parts(self) -> list[tuple[str, bool]]:
        """The pieces of the sentence, each with whether it is code."""
        pieces = self.text.split("`")
        return [(piece, number % 2 == 1) for number, piece in enumerate(pieces)]


_ALL: Final = {
    "report_month": Meaning(
        "YYYYMM",
        "The month of the report. `total` in the last line. In a file of a range: the interval, "
        "`begin/end` in UTC.",
    ),
    "namespace": Meaning("text", "Kubernetes namespace."),
    "group": Meaning(
        "text",
        "Label `ipuhub.io/group` of the namespace, or the group of the usage annotation; else the "
        "namespace.",
    ),
    "user": Meaning("text", "Who used it."),
    "user_verified": Meaning("Y/N", "The admission webhooks confirmed the user."),
    "component": Meaning(
        "text",
        "`ipujob` for pods of jobs, `partition` for partitions, else what the annotation says.",
    ),
    "component_name": Meaning("text", "Name of the job or component."),
    "instance_type": Meaning("text", "For example `ipu-4`."),
    "gpu_core_hours": Meaning("GPU-hours", "Accelerators x time."),
    "cpu_core_hours": Meaning("core-hours", "CPU cores x time."),
    "gb_memory_hours": Meaning("GiB-hours", "Memory in GiB (2^30 bytes) x time."),
    "ipu_hours": Meaning("IPU-hours", "IPUs of pods x time."),
    "partition_ipu_hours": Meaning(
        "IPU-hours",
        "IPUs of partitions x time held. The same IPUs as `ipu_hours`; do not add both.",
    ),
    "idle_ipu_hours": Meaning(
        "IPU-hours",
        "Time a partition was held beyond the IPUs of its pods. Only on lines of partitions.",
    ),
    "usage_hours": Meaning("hours", "Time of pods, summed. 0 on lines of partitions."),
    "pods": Meaning("number", "Pods in the line."),
    "estimated": Meaning("number", "Lifetimes with an estimated end."),
    "running": Meaning("Y/N", "Still running at the time of the report, in an open month."),
    "cost": Meaning(
        "currency", "Empty: nothing had a price. 0.00: prices applied, the use was free."
    ),
    "currency": Meaning("code", "Three letters, for example `EUR`. Empty without cost."),
    "instance_cpu_core": Meaning("cores", "CPU cores of the pod."),
    "instance_gpu_core": Meaning("GPUs", "Accelerators of the pod."),
    "instance_memory_gb": Meaning("GiB", "Memory of the pod."),
    "instance_ipus": Meaning("IPUs", "IPUs of the pod or partition."),
    "pod_name": Meaning("text", "Name of the pod."),
    "k8s_uid": Meaning("text", "UID of the pod."),
    "job_uid": Meaning("text", "UID of the IPUJob."),
    "partition": Meaning("text", "Partition id."),
    "node": Meaning("text", "Node of the pod."),
    "claim": Meaning(
        "text",
        "Where the attribution comes from: `operator` (confirmed by a recorded job), `annotation` "
        "(claimed by the pod), `stamp` (waits for its job), `namespace` (no usable annotation).",
    ),
    "start_time": Meaning("UTC", "Begin within the month. In the PrimeHub profile: report zone."),
    "end_time": Meaning("UTC", "End within the month. In the PrimeHub profile: report zone."),
    "seconds": Meaning("s", "Length within the month."),
    "uncertainty_seconds": Meaning("s", "Largest error of an estimated end."),
}
_ONE: Final = {"estimated": Meaning("Y/N", "The end is estimated.")}
"""Of a line that is one pod or partition."""


def _of(columns: Columns, meanings: Mapping[str, Meaning]) -> dict[str, Meaning]:
    return {name: meanings[name] for name, _ in columns}


SUMMARY: Final = _of(DEFAULT.summary, _ALL)
DETAILS: Final = _of(DEFAULT.details, _ALL | _ONE)
ONLY_DETAILS: Final = {
    name: meaning for name, meaning in DETAILS.items() if SUMMARY.get(name) != meaning
}
