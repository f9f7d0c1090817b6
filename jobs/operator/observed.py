"""domain: the input of a plan: one job, its children, partitions and instances, and the result of
an attempt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ipuhub.partition import Phase
from jobs.builders.pods import PodOptions
from jobs.ipujob.conditions import FINISHED, OF_PARTITION, JobState, Reason
from jobs.ipujob.names import ROLE_LAUNCHER, ROLE_WORKER, launcher_name, worker_name
from jobs.ipujob.rules import USUAL
from jobs.ipujob.spec import UNLIMITED
from jobs.ipujob.storedstatus import READ_STATUS
from jobs.operator.instancerecord import End, record_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ipuhub.partition import Partition
    from jobs.ipujob.names import JobKey, Kind, Manifest
    from jobs.ipujob.rules import Patience
    from jobs.ipujob.spec import JobSpec, SessionLimits
    from jobs.ipujob.storedstatus import StoredStatus
    from jobs.ipujob.validation import Problem
    from jobs.operator.instancerecord import InstanceRecord
    from jobs.operator.pods import PodView

STATES = {state.value: state for state in JobState}


@dataclass(frozen=True, slots=True)
class Fault:
    """The cause that kept the previous pass from completing its plan. `is_passing`: it may be over
    by itself."""

    reason: str
    message: str
    is_passing: bool = False


@dataclass(frozen=True, slots=True)
class Child:
    """An object other than a pod, found under a name that the job needs.

    `job_uid`: the job it belongs to; empty: something else's. `contents`: a digest of its contents,
    made at `made_at`; None: unknown.
    """

    kind: Kind
    namespace: str
    name: str
    uid: str
    job_uid: str
    has_owner: bool
    is_deleting: bool
    contents: str | None = None
    made_at: datetime | None = None

    def is_orphan_of(self, uid: str) -> bool:
        """It is the job's, and would stay without it: nothing controls it (`--cascade=orphan`)."""
        return self.job_uid == uid and not self.has_owner


@dataclass(frozen=True, slots=True)
class Observed:
    """The world as far as one job is concerned.

    `job` is None when no job of this UID exists any more. `pods` are all pods of the job;
    `children` the others by kind, under the names the job needs; `partitions` by instance.
    `proxy_problem` says why partitions are unknown or out of reach (empty: they are not).
    `is_namespace_ending`: nothing can be made in the job's namespace any more. `spec` is the job's
    spec as parsed, None if it is invalid: then `problems` are the rules that it breaks.
    `is_unwritten`: its stored status has nothing that the operator writes first.
    """

    key: JobKey
    job: Manifest | None
    spec: JobSpec | None = None
    problems: tuple[Problem, ...] = ()
    is_unwritten: bool = False
    pods: tuple[PodView, ...] = ()
    children: Mapping[Kind, Child] = field(default_factory=dict)
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    proxy_problem: str = ""
    group: str = ""
    is_namespace_ending: bool = False
    fault: Fault | None = None
    options: PodOptions = field(default_factory=PodOptions)
    limits: SessionLimits = UNLIMITED
    patience: Patience = USUAL

    def status(self) -> Manifest:
        """The job's stored status."""
        return (self.job or {}).get("status") or {}

    def malformed_status(self) -> StoredStatus | None:
        """Return the stored status as read; None: nothing in it is malformed."""
        return (self.job or {}).get(READ_STATUS)

    def state(self) -> JobState | None:
        """Return the stored STATUS; None before the first."""
        return STATES.get(self.status().get("launcherStatus", ""))

    def is_finished(self) -> bool:
        """The job has ended for good."""
        return self.state() in FINISHED

    def launcher(self, instance: int, attempt: int) -> PodView | None:
        """The launcher pod of an attempt."""
        for pod in self.pods:
            if pod.role == ROLE_LAUNCHER and (pod.instance, pod.attempt) == (instance, attempt):
                return pod
        return None

    def workers(self, instance: int, attempt: int) -> dict[str, PodView]:
        """The worker pods of an attempt, by name."""
        return {
            pod.name: pod
            for pod in self.pods
            if pod.role == ROLE_WORKER and (pod.instance, pod.attempt) == (instance, attempt)
        }


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance. `record` is its part of the status; `workers` has an entry per wanted worker;
    None: that pod is missing. `is_resting`: its next attempt may not begin yet. `is_hindered`: the
    whole job cannot create its missing objects. `now` is the time of the pass."""

    index: int
    record: InstanceRecord
    partition: Partition | None
    launcher: PodView | None
    workers: dict[str, PodView | None]
    strays: tuple[PodView, ...]
    has_launcher: bool
    launcher_name: str = ""
    is_resting: bool = False
    is_hindered: bool = False
    now: datetime | None = None

    @property
    def attempt(self) -> int:
        """Return the number of the current attempt, from 0."""
        return self.record.attempt

    @property
    def is_settled(self) -> bool:
        """It has ended for good."""
        return self.record.is_settled

    @property
    def pods(self) -> tuple[PodView, ...]:
        """The present pods of the current attempt."""
        found = tuple(pod for pod in self.workers.values() if pod is not None)
        return found if self.launcher is None else (self.launcher, *found)

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the current attempt's pods that are not there."""
        names = tuple(name for name, pod in self.workers.items() if pod is None)
        is_lacking = self.has_launcher and self.launcher is None
        return (self.launcher_name, *names) if is_lacking else names

    @property
    def is_active(self) -> bool:
        """The partition of the current attempt can be used."""
        partition = self.partition
        return (
            partition is not None
            and partition.phase == Phase.ACTIVE
            and partition.attempt == self.attempt
        )

    @property
    def has_started(self) -> bool:
        """The launcher's main container has started; without a launcher: all workers have been
        Ready once."""
        if self.record.was_running:
            return True
        if self.has_launcher:
            return self.launcher is not None and self.launcher.has_started
        return all(
            pod is not None and (pod.is_ready or pod.is_terminal) for pod in self.workers.values()
        )

    @property
    def blocked_since(self) -> datetime | None:
        """Since when the pods cannot start although the partition is there; None: they can."""
        if self.is_settled or self.has_started or not self.is_active:
            return None
        is_lacking = self.is_hindered and bool(self.missing)
        if not is_lacking and all(pod.trouble is None for pod in self.pods):
            return None
        return self.record.blocked_since or self.now

    @property
    def made_at(self) -> datetime | None:
        """Since when there are pods that do not start although the partition is there; None: they
        have started, there are none, or something of the job's own runs in them."""
        if self.is_settled or self.has_started or not self.is_active or self._is_at_work:
            return None
        return max((pod.set_up_at for pod in self.pods if pod.set_up_at), default=None)

    @property
    def _is_at_work(self) -> bool:
        """An init container of a worker runs, or, without a launcher, all workers' programs do."""
        workers = [pod for pod in self.workers.values() if pod is not None]
        if any(pod.is_initializing for pod in workers):
            return True
        all_there = len(workers) == len(self.workers)
        return not self.has_launcher and all_there and all(pod.has_started for pod in workers)

    @property
    def is_blocked_out(self) -> bool:
        """It rests since its pods could not start for too long."""
        last = self.record.last_exit or {}
        return self.is_resting and last.get("reason") == Reason.START_BLOCKED

    @property
    def outdated(self) -> tuple[PodView, ...]:
        """Pods of earlier attempts. A pod of a later attempt means that our copy of the job is
        stale: the replica that started that attempt handles it."""
        return tuple(pod for pod in self.strays if pod.attempt < self.attempt)

    @property
    def may_be_used(self) -> bool:
        """A pod of any attempt might still use the partition."""
        return any(not pod.is_terminal for pod in (*self.pods, *self.strays))


def instances_of(observed: Observed, spec: JobSpec, now: datetime) -> tuple[Instance, ...]:
    """The wanted instances of a job."""
    return tuple(_instance(observed, spec, index, now) for index in range(spec.instances))


def _instance(observed: Observed, spec: JobSpec, index: int, now: datetime) -> Instance:
    record = record_of(observed.status(), index)
    partition = observed.partitions.get(index)
    attempt = record.attempt
    present = observed.workers(index, attempt)
    names = [worker_name(observed.key.name, n) for n in spec.workers_of(index)]
    return Instance(
        index=index,
        record=record,
        partition=partition,
        launcher=observed.launcher(index, attempt),
        workers={name: present.get(name) for name in names},
        strays=tuple(
            pod for pod in observed.pods if pod.instance == index and pod.attempt != attempt
        ),
        has_launcher=spec.has_launcher,
        launcher_name=launcher_name(observed.key.name),
        is_resting=_is_resting(record, partition, now),
        is_hindered=observed.fault is not None,
        now=now,
    )


def _is_resting(record: InstanceRecord, partition: Partition | None, now: datetime) -> bool:
    """Return whether a pause is not over. A pause for the sake of the partition is over once that
    partition works."""
    if record.restart_at is None or now >= record.restart_at:
        return False
    is_for_partition = (record.last_exit or {}).get("reason") in OF_PARTITION
    is_healthy = partition is not None and partition.phase == Phase.ACTIVE
    return not (is_for_partition and is_healthy)


def end_of(instance: Instance) -> End | None:
    """Return the end of the instance's current attempt; None: it continues.

    A launcher that succeeded decides. Otherwise a partition in ERROR or a lost pod explains a
    failure better than the exit code that it caused.
    """
    launcher = instance.launcher
    if launcher is not None and launcher.phase == "Succeeded":
        return End(True, Reason.SUCCEEDED, f"{launcher.name} has completed", launcher.exit_code)
    return (
        _partition_error(instance)
        or (_lost_pod(instance) if instance.has_started else None)
        or (_launcher_exit(instance) if instance.has_launcher else _workers_exit(instance))
    )


def _partition_error(instance: Instance) -> End | None:
    partition = instance.partition
    if partition is None or partition.phase != Phase.ERROR:
        return None
    if partition.attempt != instance.attempt or instance.is_resting:
        return None
    detail = partition.message or "the V-IPU controller gave no reason"
    if partition.reason == Reason.PARTITION_LOST:
        return End(False, Reason.PARTITION_LOST, f"Partition {partition.id} is gone: {detail}")
    return End(False, Reason.PARTITION_ERROR, f"Partition {partition.id} is in ERROR: {detail}")


def _lost_pod(instance: Instance) -> End | None:
    if instance.has_launcher and (instance.launcher is None or _is_second(instance)):
        return End(False, Reason.WORKER_LOST, "The launcher pod is gone")
    for name, pod in instance.workers.items():
        if pod is None:
            return End(False, Reason.WORKER_LOST, f"Pod {name} is gone")
    for pod in instance.pods:
        if pod.is_lost:
            words = [pod.lost_reason or "it is being deleted", pod.lost_message]
            detail = ": ".join(word for word in words if word)
            return End(False, Reason.WORKER_LOST, f"Pod {pod.name} was removed: {detail}")
    return None


def _is_second(instance: Instance) -> bool:
    """The launcher has not started the command although its attempt has: an operator that was
    late made it after the launcher that did had gone, and its gate keeps it from a second start."""
    launcher = instance.launcher
    if launcher is None or launcher.has_started or not instance.record.was_running:
        return False
    # A launcher that is Pending in our copy may run by now: only its end is beyond doubt.
    return launcher.phase == "Failed" and launcher.exit_code is not None


def _launcher_exit(instance: Instance) -> End | None:
    launcher = instance.launcher
    if launcher is not None and launcher.is_terminal and not launcher.is_lost:
        return _with_workers_memory(_failed(launcher), instance)
    for pod in instance.workers.values():
        if pod is None or not pod.is_terminal or pod.is_lost or pod.is_ended_by_us:
            continue
        # A sleeping worker does not end by itself. A failed worker takes the job with it, and
        # a worker that ended well before the start would be waited for without end; later
        # the launcher knows best what it means.
        if pod.phase == "Failed" or not instance.has_started:
            return _ended_early(pod)
    return None


def _ended_early(pod: PodView) -> End:
    message = f"{pod.name} ended before the launcher"
    if pod.ending is None:
        return End(False, Reason.FAILED, message, pod.exit_code)
    failed = _failed(pod)
    return replace(failed, message=f"{message}: {failed.message}")


def _with_workers_memory(end: End, instance: Instance) -> End:
    """Add the memory failure of a worker, which is the cause, to a launcher that fails after it."""
    for pod in instance.workers.values():
        if pod is not None and pod.is_out_of_memory and pod.ending is not None:
            ending = pod.ending
            log = end.log or ending.log
            return replace(
                end, reason=ending.reason, message=f"{ending.sentence}; {end.message}", log=log
            )
    return end


def _workers_exit(instance: Instance) -> End | None:
    pods = list(instance.workers.values())
    if any(pod is None or not pod.is_terminal or pod.is_lost for pod in pods):
        return None
    failed = next((pod for pod in pods if pod is not None and pod.phase == "Failed"), None)
    if failed is not None:
        return _failed(failed)
    return End(True, Reason.SUCCEEDED, "All workers have completed", 0)


def _failed(pod: PodView) -> End:
    ending = pod.ending
    if ending is None:
        return End(False, Reason.FAILED, f"{pod.name} has failed", pod.exit_code)
    return End(False, ending.reason, ending.sentence, pod.exit_code, ending.log)
