"""io: writes the sample history into Postgres, by the recorders that write the real one.

Every object goes through a recorder's `read` and `write`, as if a watch had shown it. The rows
carry the cluster identity `sample-history`: nothing else reads or ends them, and `clear` removes
them. The same history written again changes nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec

from devcluster.demo.historyobjects import deletion_of, job_states, pod_of, pods_of, tracker_of
from devcluster.demo.historyplan import (
    CLUSTER,
    CONTROLLER,
    TOTAL_IPUS,
    free_ipus,
    past_jobs,
    past_pods,
)
from partitions.history.capacityrows import Capacity
from partitions.history.recorder import store_capacity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    import psycopg

    from devcluster.demo.historyplan import PastJob
    from ipuhub.recording.recorder import Fault, Recorder

Manifest = dict[str, Any]
_BATCH: Final = 500
_JOBS_A_MAP: Final = 100
_OF_JOBS: Final = " USING jobs_jobrecord AS job WHERE job_id = job.id AND job.cluster_uid = "
_CLEAR: Final = (
    f"DELETE FROM jobs_jobattempt{_OF_JOBS}%(cluster)s",  # noqa: S608  # no value is pasted in
    f"DELETE FROM jobs_jobtransition{_OF_JOBS}%(cluster)s",  # noqa: S608
    "DELETE FROM jobs_jobrecord WHERE cluster_uid = %(cluster)s",
    "DELETE FROM partitions_partitionlifetime WHERE cluster_uid = %(cluster)s",
    "DELETE FROM partitions_capacitychange WHERE controller = %(controller)s",
    "DELETE FROM usage_podlifetime WHERE cluster_uid = %(cluster)s",
)


class HistoryError(RuntimeError):
    """The history cannot be written as planned; the message says what the recorders found."""


@dataclass(frozen=True, slots=True)
class Recorders:
    """The prober's own."""

    pods: Recorder[Any]
    jobs: Recorder[Any]
    partitions: Recorder[Any]


@dataclass
class HistoryWriter:
    """Writes all that happened from `begin` to `end`. `counts` says how much it was."""

    connection: psycopg.Connection[Any]
    recorders: Recorders
    begin: datetime
    end: datetime
    seed: int = 1
    counts: Counter[str] = field(default_factory=Counter)

    def write(self) -> None:
        """Write everything in one transaction. Raises HistoryError."""
        jobs = list(past_jobs(self.seed, self.begin, self.end))
        pods = list(past_pods(self.seed, self.begin, self.end))
        with self.connection.transaction():
            # Partitions count for whom their jobs count: the jobs come first.
            self._feed("job states", self.recorders.jobs, _job_changes(jobs, self.end))
            self._feed("partitions", self.recorders.partitions, _tracker_changes(jobs))
            ended = [("MODIFIED", pod) for past in jobs for pod in pods_of(past)]
            self._feed("pods", self.recorders.pods, ended)
            others = [("MODIFIED", pod_of(past)) for past in pods]
            self._feed("pods", self.recorders.pods, others)
            self._write_capacity(jobs)
        self.counts["jobs"] = len(jobs)
        self.counts["partitions"] = len(jobs)

    def _feed(
        self, what: str, recorder: Recorder[Any], changes: Iterable[tuple[str, Manifest]]
    ) -> None:
        """Show the recorder one object after the other, and let it write them in batches."""
        faults: list[Fault] = []
        with self.connection.cursor() as cursor:
            for batch in _batches(changes):
                found = [
                    recorder.read(kind, _decoded(recorder, manifest), faults, self.end)
                    for kind, manifest in batch
                ]
                rows = [row for row in found if row is not None]
                if faults or len(rows) < len(batch):
                    why = faults[0].message if faults else "a recorder left an object out"
                    raise HistoryError(f"the sample {what} do not fit this version: {why}")
                recorder.write(cursor, rows, CLUSTER, self.end)
                self.counts[what] += len(rows)

    def _write_capacity(self, jobs: list[PastJob]) -> None:
        points = [
            (moment, Capacity(CONTROLLER, TOTAL_IPUS, free))
            for moment, free in free_ipus(jobs, self.begin, self.end)
        ]
        # In the present there is no such controller.
        points.append((self.end, Capacity(CONTROLLER, reachable=False)))
        with self.connection.cursor() as cursor:
            for moment, capacity in points:
                change = (capacity,)
                store_capacity(cursor, lambda _, change=change: change, moment)  # type: ignore[misc]
        self.counts["changes of capacity"] += len(points)


def clear(connection: psycopg.Connection[Any]) -> int:
    """Remove the sample history; return how many rows it had."""
    values = {"cluster": CLUSTER, "controller": CONTROLLER}
    with connection.transaction(), connection.cursor() as cursor:
        return sum(cursor.execute(sql, values).rowcount for sql in _CLEAR)


def _job_changes(jobs: Iterable[PastJob], now: datetime) -> Iterator[tuple[str, Manifest]]:
    for past in jobs:
        for state in job_states(past):
            yield "MODIFIED", state
        yield "DELETED", deletion_of(past, now)


def _tracker_changes(jobs: list[PastJob]) -> Iterator[tuple[str, Manifest]]:
    for first in range(0, len(jobs), _JOBS_A_MAP):
        part = jobs[first : first + _JOBS_A_MAP]
        yield "MODIFIED", tracker_of(f"sample-history-{part[0].created:%Y%m%d}-{first}", part)


def _batches(changes: Iterable[tuple[str, Manifest]]) -> Iterator[list[tuple[str, Manifest]]]:
    numbered = enumerate(changes)
    for _, group in groupby(numbered, key=lambda one: one[0] // _BATCH):
        yield [change for _, change in group]


def _decoded(recorder: Recorder[Any], manifest: Manifest) -> Any:
    """The object as the recorder would get it from the API server."""
    if recorder.manifest is dict:
        return manifest
    return msgspec.json.decode(json.dumps(manifest), type=recorder.manifest)


def longest_ended(now: datetime) -> datetime:
    """The end of the history: a minute ago, so that nothing of it lies in the future."""
    return (now - timedelta(minutes=1)).replace(microsecond=0)
