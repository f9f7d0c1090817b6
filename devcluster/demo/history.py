"""io: writes the sample history into PostgreSQL with the recorders of the real history.

Every object goes through a recorder's `read` and `write`, as if a watch had delivered it. The rows
have the cluster identity `sample-history`: nothing else reads or ends them, and `clear` removes
them. Writing the same history again changes nothing.

Also builds the last seen Kubernetes object and partition of each past job or pod.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec
from django.apps import apps

from devcluster.demo.samples import (
    CLUSTER,
    CONTROLLER,
    LABEL,
    LAST_LINES,
    TOTAL_IPUS,
    Outcome,
    free_ipus,
    job_manifest,
    past_jobs,
    past_pods,
    sample_uid,
)
from ipuhub.partition import Partition, Phase
from jobs.builders.launcher import build_launcher
from jobs.builders.pods import BuildContext, PodOptions, PodPlace, build_worker
from jobs.ipujob.conditions import FINISHED, JobState, Reason, Verdict, plain_verdict, with_verdict
from jobs.ipujob.names import ANNOTATION_CREATED_BY, JobKey, format_time
from jobs.ipujob.spec import parse_spec
from partitions.history.capacity import Capacity
from partitions.history.recorder import store_capacity
from partitions.proxy.lifecycle import TrackerEntry
from partitions.proxy.tracker import encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    import psycopg

    from devcluster.demo.samples import PastJob, PastPod
    from ipuhub.recording.recorder import Fault, Recorder

Manifest = dict[str, Any]
_EXIT_CODES: Final = {Outcome.FAILS: 1, Outcome.OUT_OF_MEMORY: 137}
_TO_READY: Final = timedelta(seconds=2)  # from PodScheduled to the containers' start
_KEPT: Final = timedelta(hours=20)  # from a job's end to its deletion
_RELEASE: Final = timedelta(seconds=2)  # from the job's end to the partition's


def job_states(past: PastJob) -> list[Manifest]:
    """The IPUJob as it was after each change of its state, oldest first."""
    path = f"{past.job.team.namespace}/{past.job.name}"
    conditions, states = list[Manifest](), []
    for at, verdict in _verdicts(past, path):
        conditions = with_verdict(conditions, verdict, path, format_time(at))
        states.append(_job(past, _status(past, verdict, conditions, at)))
    return states


def is_deleted(past: PastJob) -> bool:
    """Return whether a user deleted it while it ran."""
    return past.job.outcome is Outcome.DELETED


def deletion_of(past: PastJob, now: datetime) -> Manifest:
    """The IPUJob as its deletion showed it: of a finished job hours after its end, or now."""
    last = job_states(past)[-1]
    at = past.ended if is_deleted(past) else min(past.ended + _KEPT, now)
    last["metadata"]["deletionTimestamp"] = format_time(at)
    return last


def pods_of(past: PastJob) -> list[Manifest]:
    """Launcher and workers, as the operator builds them and the kubelet ended them."""
    job = _made(past)
    team = past.job.team
    key = JobKey(team.namespace, past.job.name, past.uid)
    context = BuildContext(key, job, parse_spec(job["spec"]), team.group, PodOptions())
    place = PodPlace(0, 0, _partition_of(past))
    scheduled = past.started - _TO_READY
    code = _EXIT_CODES.get(past.job.outcome, 0)
    launcher = _ended_pod(build_launcher(context, place), scheduled, past.ended, code)
    workers = [build_worker(context, place, number) for number in range(past.job.workers)]
    after = past.ended + timedelta(seconds=1)
    return [launcher, *(_ended_pod(worker, scheduled, after, 0) for worker in workers)]


def partition_of(past: PastJob) -> TrackerEntry:
    """The tracker's entry of its partition, released."""
    reserved = past.started - timedelta(seconds=3)
    return TrackerEntry(
        uid=past.uid,
        instance=0,
        serial=int(reserved.timestamp() * 1000),
        namespace=past.job.team.namespace,
        name=past.job.name,
        attempt=0,
        id=_partition_of(past).id,
        size=past.job.ipus,
        phase=Phase.RELEASED,
        controller=CONTROLLER,
        label="vipu-ctrl=sample",
        reserved_at=reserved,
        active_at=reserved + timedelta(milliseconds=300),
        released_at=past.ended + _RELEASE,
        recorded=True,
    )


def tracker_of(name: str, jobs: Iterable[PastJob]) -> Manifest:
    """A ConfigMap of the tracker with the entries of these jobs."""
    entries = map(partition_of, jobs)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "uid": sample_uid("tracker", name),
            "namespace": "ipuhub-system",
            "name": name,
            "resourceVersion": "1",
        },
        "data": {entry.key: encode_entry(entry) for entry in entries},
    }


def pod_of(past: PastPod) -> Manifest:
    """A pod of another product, with that product's annotation."""
    claim = {
        "component": past.component,
        "component_name": past.name,
        "group": past.team.group,
        "instance_type": f"gpu-{past.gpus}" if past.gpus else f"cpu-{past.cpu_cores}",
    }
    if past.user:
        claim["user"] = past.user
    requests = {"cpu": str(past.cpu_cores), "memory": f"{past.cpu_cores * 4}Gi"}
    limits = {"nvidia.com/gpu": str(past.gpus)} if past.gpus else {}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": past.name,
            "namespace": past.team.namespace,
            "labels": {LABEL: "true"},
            "annotations": {"primehub.io/usage": json.dumps(claim)},
        },
        "spec": {
            "containers": [
                {"name": "main", "resources": {"requests": requests | limits, "limits": limits}}
            ]
        },
    }
    return _ended_pod(pod, past.started, past.ended, 0, past.uid)


def _partition_of(past: PastJob) -> Partition:
    name = f"p-{past.job.name}-{past.uid[:8]}-0"
    place: dict[str, Any] = {"controller": CONTROLLER, "node_selector": {"vipu-ctrl": "sample"}}
    return Partition(instance=0, phase=Phase.ACTIVE, id=name, size=past.job.ipus, **place)


def _ended_pod(
    pod: Manifest, scheduled: datetime, ended: datetime, code: int, uid: str = ""
) -> Manifest:
    """The pod with identity and with the status that scheduler and kubelet left on it."""
    metadata, spec = pod["metadata"], pod["spec"]
    owner = (metadata.get("ownerReferences") or [{}])[0].get("uid", "")
    metadata |= {
        "uid": uid or sample_uid(owner, metadata["name"]),
        "resourceVersion": "1",
        "creationTimestamp": format_time(scheduled),
    }
    spec["nodeName"] = f"sample-node-{int(metadata['uid'][:4], 16) % 8}"
    started = scheduled + _TO_READY
    terminated = {
        "exitCode": code,
        "reason": "Completed" if not code else "OOMKilled" if code == 137 else "Error",
        "startedAt": format_time(started),
        "finishedAt": format_time(ended),
    }
    pod["status"] = {
        "phase": "Failed" if code else "Succeeded",
        "startTime": format_time(scheduled),
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": format_time(scheduled),
            }
        ],
        "containerStatuses": [
            {"name": container["name"], "state": {"terminated": terminated}}
            for container in spec["containers"]
        ],
    }
    return pod


def _made(past: PastJob) -> Manifest:
    """The IPUJob as its user made it and the webhooks stamped it."""
    job = job_manifest(past.job)
    job["metadata"]["annotations"][ANNOTATION_CREATED_BY] = past.job.user
    return job


def _job(past: PastJob, status: Manifest) -> Manifest:
    job = _made(past)
    job["metadata"] |= {
        "uid": past.uid,
        "resourceVersion": "1",
        "creationTimestamp": format_time(past.created),
    }
    return job | {"status": status}


def _verdicts(past: PastJob, path: str) -> list[tuple[datetime, Verdict]]:
    """Return the decisions of the operator's passes with their times."""
    waiting = plain_verdict(JobState.PENDING, path)
    if past.started - past.created > timedelta(seconds=10):
        message = f"waiting for {past.job.ipus} free IPUs"
        waiting = Verdict(JobState.PENDING, Reason.NO_CAPACITY, message)
    states = [(past.created, waiting), (past.started, plain_verdict(JobState.RUNNING, path))]
    code = _EXIT_CODES.get(past.job.outcome)
    if code is not None:
        message = f"IPUJob {path} has failed: exit code {code}."
        states.append((past.ended, Verdict(JobState.FAILED, Reason.FAILED, message)))
    elif not is_deleted(past):
        states.append((past.ended, plain_verdict(JobState.COMPLETED, path)))
    return states


def _status(past: PastJob, verdict: Verdict, conditions: list[Manifest], at: datetime) -> Manifest:
    instance: Manifest = {"index": 0, "attempt": 0, "state": str(verdict.state)}
    partition = {"instance": 0, "id": _partition_of(past).id, "controller": CONTROLLER}
    status: Manifest = {
        "launcherStatus": str(verdict.state),
        "conditions": conditions,
        "lastMessage": verdict.message,
        "restartCount": 0,
        "startTime": format_time(past.created),
    }
    if verdict.state is not JobState.PENDING:
        status |= {"ipus": past.job.ipus, "partitions": [partition | {"state": "active"}]}
    if verdict.state in FINISHED:
        status["completionTime"] = format_time(at)
        status["partitions"] = [partition | {"state": Phase.RELEASED.value}]
        instance["reason"] = str(verdict.reason)
        instance["exitCode"] = _EXIT_CODES.get(past.job.outcome, 0)
        instance["log"] = LAST_LINES.get(past.job.outcome, "")
    return status | {"instances": [instance]}


_BATCH: Final = 500
_JOBS_A_MAP: Final = 100
# What is deleted, in order: the model whose rows, and the condition.
_CLEAR: Final = (
    ("jobs.JobAttempt", "job_id IN (SELECT id FROM {job} WHERE cluster_uid = %(cluster)s)"),
    ("jobs.JobTransition", "job_id IN (SELECT id FROM {job} WHERE cluster_uid = %(cluster)s)"),
    ("jobs.JobEvent", "job_id IN (SELECT id FROM {job} WHERE cluster_uid = %(cluster)s)"),
    ("jobs.JobRecord", "cluster_uid = %(cluster)s"),
    ("partitions.PartitionLifetime", "cluster_uid = %(cluster)s"),
    ("partitions.CapacityChange", "controller = %(controller)s"),
    ("usage.PodLifetime", "cluster_uid = %(cluster)s"),
)


class HistoryError(RuntimeError):
    """The history cannot be written as planned; the message has the recorders' problem."""


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
            self.write_jobs(jobs)
            others = [("MODIFIED", pod_of(past)) for past in pods]
            self._feed("pods", self.recorders.pods, others)
            self._write_capacity(jobs)
        self.counts["jobs"] = self.counts["partitions"] = len(jobs)

    def write_jobs(self, jobs: list[PastJob]) -> None:
        """Write these jobs with their partitions and pods. Raises HistoryError."""
        # Partitions count for the owners of their jobs, so the jobs come first.
        self._feed("job states", self.recorders.jobs, _job_changes(jobs, self.end))
        self._feed("partitions", self.recorders.partitions, _tracker_changes(jobs))
        ended = (("MODIFIED", pod) for past in jobs for pod in pods_of(past))
        self._feed("pods", self.recorders.pods, ended)

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
                    reason = faults[0].message if faults else "a recorder left an object out"
                    raise HistoryError(f"the sample {what} do not fit this version: {reason}")
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
        return sum(
            cursor.execute(
                f"DELETE FROM {_table(model)} WHERE {rows.format(job=_table('jobs.JobRecord'))}",  # noqa: S608
                values,
            ).rowcount
            for model, rows in _CLEAR
        )


def _table(model: str) -> str:
    name: str = apps.get_model(model)._meta.db_table  # noqa: SLF001  # of Django's documented API
    return name


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
    for _, group in groupby(numbered, key=lambda item: item[0] // _BATCH):
        yield [change for _, change in group]


def _decoded(recorder: Recorder[Any], manifest: Manifest) -> Any:
    """The object as the recorder would get it from the API server."""
    if recorder.manifest is dict:
        return manifest
    return msgspec.json.decode(json.dumps(manifest), type=recorder.manifest)


def longest_ended(now: datetime) -> datetime:
    """The end of the history: one minute before now, so that nothing is in the future."""
    return (now - timedelta(minutes=1)).replace(microsecond=0)
