"""domain: one instance of a job: its current attempt, its pods, how far it is and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import OF_PARTITION, Reason
from jobs.ipujob.names import launcher_name, worker_name
from jobs.operator.instancerecord import record_of
from jobs.partitionview import Phase

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.ipujob.spec import JobSpec
    from jobs.operator.instancerecord import InstanceRecord
    from jobs.operator.observed import Observed
    from jobs.operator.pods import PodView
    from jobs.partitionview import Partition


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance. `record` is what the status says of it; `workers` has an entry per wanted
    worker; None: that pod is missing. `is_resting`: its next attempt may not begin yet.
    `is_hindered`: something keeps the whole job from making what it lacks. `now` is the pass's."""

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
        """Which attempt is the current one, from 0."""
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
    def is_blocked_out(self) -> bool:
        """It rests since its pods could not start for too long."""
        last = self.record.last_exit or {}
        return self.is_resting and last.get("reason") == Reason.START_BLOCKED

    @property
    def outdated(self) -> tuple[PodView, ...]:
        """Pods of earlier attempts. One of a later attempt says that our copy of the job is late:
        who knows of that attempt looks after it."""
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
    """Whether a pause is not over. One for the sake of the partition is over once that works."""
    if record.restart_at is None or now >= record.restart_at:
        return False
    is_for_partition = (record.last_exit or {}).get("reason") in OF_PARTITION
    is_healthy = partition is not None and partition.phase == Phase.ACTIVE
    return not (is_for_partition and is_healthy)
