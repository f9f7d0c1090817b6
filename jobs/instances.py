"""domain: one instance of a job: its current attempt, its pods, how far it is and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.names import worker_name
from jobs.partitionview import Phase

if TYPE_CHECKING:
    from jobs.observed import Observed
    from jobs.partitionview import Partition
    from jobs.podview import PodView
    from jobs.spec import JobSpec

STATE_RUNNING = "Running"


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance. `workers` has an entry per wanted worker; None: that pod is missing.

    `was_started`: the status says that this attempt has been running.
    """

    index: int
    attempt: int
    partition: Partition | None
    launcher: PodView | None
    workers: dict[str, PodView | None]
    strays: tuple[PodView, ...]
    was_started: bool
    has_launcher: bool

    @property
    def pods(self) -> tuple[PodView, ...]:
        """The present pods of the current attempt."""
        found = tuple(pod for pod in self.workers.values() if pod is not None)
        return found if self.launcher is None else (self.launcher, *found)

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
        if self.was_started:
            return True
        if self.has_launcher:
            return self.launcher is not None and self.launcher.has_started
        return all(
            pod is not None and (pod.is_ready or pod.is_terminal) for pod in self.workers.values()
        )

    @property
    def may_be_used(self) -> bool:
        """A pod of any attempt might still use the partition."""
        return any(not pod.is_terminal for pod in (*self.pods, *self.strays))


def instances_of(observed: Observed, spec: JobSpec) -> tuple[Instance, ...]:
    """The wanted instances of a job."""
    return tuple(_instance(observed, spec, index) for index in range(spec.instances))


def _instance(observed: Observed, spec: JobSpec, index: int) -> Instance:
    attempt = observed.attempt_of(index)
    present = observed.workers(index, attempt)
    names = [worker_name(observed.key.name, n) for n in spec.workers_of(index)]
    return Instance(
        index=index,
        attempt=attempt,
        partition=observed.partitions.get(index),
        launcher=observed.launcher(index, attempt),
        workers={name: present.get(name) for name in names},
        strays=tuple(
            pod for pod in observed.pods if pod.instance == index and pod.attempt != attempt
        ),
        was_started=_was_started(observed, index),
        has_launcher=spec.has_launcher,
    )


def _was_started(observed: Observed, index: int) -> bool:
    for entry in observed.status().get("instances") or ():
        if entry.get("index") == index:
            return bool(entry.get("state") == STATE_RUNNING)
    return False
