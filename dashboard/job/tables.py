"""glue: the tables of a job's pages, declared once for the page and its CSV and JSON exports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dashboard.job.shapes import outcome_of
from ipuhub.templatetags.lists import in_one_precision
from ipuhub.web.cells import make_cells
from ipuhub.web.columns import Column
from jobs.ipujob.names import parse_time
from partitions.views import MACHINES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from dashboard.job.usage import Held
    from ipuhub.web.cells import Cell
    from jobs.models import JobRecord


@dataclass(frozen=True, slots=True)
class Table:
    """A table with all its rows; `empty` is said where there is none."""

    key: str
    title: str
    empty: str
    columns: Sequence[Column]
    rows: Sequence[Any]

    @property
    def shown_columns(self) -> list[Column]:
        """The columns of the page."""
        return [
            column
            for column in self.columns
            if column.kind != "export"
            and not (column.sparse and all(column.value(row) in {None, ""} for row in self.rows))
        ]

    @property
    def cells(self) -> list[list[Cell]]:
        """Return the cells of the page's rows."""
        return [make_cells(self.shown_columns, row) for row in self.rows]


CONDITIONS = (
    Column("type", "Condition", lambda row: row.get("type")),
    Column("status", "Status", lambda row: row.get("status")),
    Column("reason", "Reason", lambda row: row.get("reason"), kind="code"),
    Column("message", "Message", lambda row: row.get("message"), kind="note"),
    Column("at", "Since", lambda row: parse_time(row.get("lastTransitionTime")), kind="second"),
)
ATTEMPTS = (
    Column("instance", "Instance", lambda row: row.instance),
    Column("attempt", "Attempt", lambda row: row.attempt + 1),
    Column("outcome", "Outcome", lambda row: row.outcome, kind="badge"),
    Column("reason", "Reason", lambda row: row.reason, kind="code", sparse=True),
    Column("exit_code", "Exit code", lambda row: row.exit_code, kind="number", sparse=True),
    Column("began_at", "Began", lambda row: row.began_at, kind="second"),
    Column("ended_at", "Ended", lambda row: row.ended_at, kind="second"),
    Column("message", "How it failed", lambda row: row.message, kind="note", sparse=True),
    Column("log", "Last log lines", lambda row: row.log, kind="log", sparse=True),
)
TRANSITIONS = (
    Column("at", "At", lambda row: row.at, kind="second"),
    Column("state", "State", lambda row: row.state, kind="badge"),
    Column("reason", "Reason", lambda row: row.reason, kind="code", sparse=True),
    Column("message", "Message", lambda row: row.message, kind="note"),
)
EVENTS = (
    Column("last_at", "Last", lambda row: row.last_at, kind="second"),
    Column("first_at", "First", lambda row: row.first_at, kind="second"),
    Column("count", "Times", lambda row: row.count, kind="number"),
    Column("pod", "Pod", lambda row: row.pod, sparse=True),
    Column("type", "Type", lambda row: row.type),
    Column("reason", "Reason", lambda row: row.reason, kind="code"),
    Column("message", "Message", lambda row: row.message, kind="note"),
)
# "State", as everywhere: Stopped and Deleted, which a pod may show, are no phases of Kubernetes.
# Files have the phase itself, as `phase`.
PODS = (
    Column("pod_name", "Pod", lambda row: row.pod_name),
    Column("role", "Role", lambda row: row.role),
    Column("attempt", "Attempt", lambda row: (row.attempt or 0) + 1, kind="number"),
    Column("phase", "State", lambda row: row.phase, kind="badge"),
    Column("reason", "Reason", lambda row: row.reason, kind="code", sparse=True),
    Column("exit_code", "Exit code", lambda row: row.exit_code, kind="number", sparse=True),
    Column("node", "Node", lambda row: row.node),
    Column("scheduled_at", "Scheduled", lambda row: row.scheduled_at, kind="second"),
    Column("started_at", "Started", lambda row: row.started_at, kind="second"),
    Column("finished_at", "Ended", lambda row: row.finished_at, kind="second"),
    Column("uid", "", lambda row: row.uid, kind="export"),
    Column("created_at", "", lambda row: row.created_at, kind="export"),
    Column("micro_ipus", "", lambda row: row.micro_ipus, kind="export"),
    Column("cpu_millicores", "", lambda row: row.cpu_millicores, kind="export"),
    Column("memory_bytes", "", lambda row: row.memory_bytes, kind="export"),
    Column("estimated", "", lambda row: row.estimated, kind="export"),
    Column("uncertainty_seconds", "", lambda row: row.uncertainty_seconds, kind="export"),
)
PARTITIONS = (
    Column("partition", "Partition", lambda row: row.partition, kind="code"),
    Column("size", "IPUs", lambda row: row.size, kind="number"),
    Column("phase", "State", lambda row: row.phase, kind="badge"),
    Column("controller", "Controller", lambda row: row.controller),
    MACHINES,
    Column("reserved_at", "Reserved", lambda row: row.reserved_at, kind="second"),
    Column("active_at", "Active", lambda row: row.active_at, kind="second"),
    Column("released_at", "Released", lambda row: row.released_at, kind="second"),
    Column("message", "", lambda row: row.message, kind="export"),
    Column("estimated", "", lambda row: row.estimated, kind="export"),
)


_AMOUNTS: Final = (("micro_ipus", 1e6), ("cpu_millicores", 1e3), ("memory_bytes", 2**30))
USED = (
    Column("pod_name", "Pod", lambda row: row[0].pod_name),
    Column("role", "Role", lambda row: row[0].role),
    Column("attempt", "Attempt", lambda row: (row[0].attempt or 0) + 1, kind="number"),
    Column("from", "From", lambda row: row[0].scheduled_at, kind="second"),
    Column("until", "Until", lambda row: row[0].finished_at, kind="second"),
    Column("ipus", "IPUs", lambda row: f"{row[0].micro_ipus / 1e6:g}", kind="number"),
    Column("ipu_hours", "IPU-hours", lambda row: row[1][0], kind="number"),
    Column("cpu_hours", "CPU core-hours", lambda row: row[1][1], kind="number"),
    Column("memory_hours", "Memory GiB-hours", lambda row: row[1][2], kind="number"),
)


def usage_table(held: Held, now: datetime) -> Table:
    """Return the table of each pod's allocation, from scheduling to its end."""
    lasted = [
        (pod, max(0.0, ((pod.finished_at or now) - pod.scheduled_at).total_seconds()))
        for pod in held.pods
        if pod.scheduled_at is not None
    ]
    hours = [
        in_one_precision([getattr(pod, name) / unit * seconds / 3600 for pod, seconds in lasted])
        for name, unit in _AMOUNTS
    ]
    rows = [(pod, own) for (pod, _), *own in zip(lasted, *hours, strict=True)]
    return Table("used", "Pods", "No pod of the job was scheduled.", USED, rows)


def job_tables(job: JobRecord, held: Held) -> list[Table]:
    """Return the tables in the order of the page."""
    attempts = sorted(job.past.attempts, key=lambda row: (row.attempt, row.instance))
    transitions = sorted(job.past.transitions, key=lambda row: (row.at, row.pk), reverse=True)
    events = sorted(job.past.events, key=lambda row: (row.last_at, row.pk), reverse=True)
    conditions = [row for row in job.conditions if isinstance(row, dict)]
    phase = partial(outcome_of, attempts=attempts)
    pods = [replace(each, rendered=phase) if each.key == "phase" else each for each in PODS]
    return [
        Table("pods", "Pods", "No pods recorded.", pods, held.pods),
        Table("attempts", "Attempts", "No attempts recorded.", ATTEMPTS, attempts),
        Table("transitions", "History", "No changes recorded.", TRANSITIONS, transitions),
        Table("conditions", "Conditions", "No conditions recorded.", CONDITIONS, conditions),
        Table("events", "Kubernetes Events", "No Kubernetes Events recorded.", EVENTS, events),
        Table("partitions", "Partitions", "No partitions recorded.", PARTITIONS, held.partitions),
    ]
