"""domain: whether an attempt has ended, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import Reason
from jobs.partitionview import Phase

if TYPE_CHECKING:
    from jobs.operator.instances import Instance
    from jobs.operator.pods import PodView


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended. `exit_code` is None where no container's code decided it; `log` holds
    the last lines of the container that failed."""

    succeeded: bool
    reason: Reason
    message: str
    exit_code: int | None = None
    log: str = ""


def end_of(instance: Instance) -> End | None:
    """The end of the instance's current attempt; None: it goes on.

    A launcher that succeeded settles it. Otherwise a partition in ERROR or a pod that was taken
    away explains a failure better than the exit code that followed from it.
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
    said = partition.message or "the V-IPU controller gave no reason"
    if partition.reason == Reason.PARTITION_LOST:
        return End(False, Reason.PARTITION_LOST, f"Partition {partition.id} is gone: {said}")
    return End(False, Reason.PARTITION_ERROR, f"Partition {partition.id} is in ERROR: {said}")


def _lost_pod(instance: Instance) -> End | None:
    if instance.has_launcher and (instance.launcher is None or _is_second(instance)):
        return End(False, Reason.WORKER_LOST, "The launcher pod is gone")
    for name, pod in instance.workers.items():
        if pod is None:
            return End(False, Reason.WORKER_LOST, f"Pod {name} is gone")
    for pod in instance.pods:
        if pod.is_lost:
            words = [pod.lost_reason or "it is being deleted", pod.lost_message]
            why = ": ".join(word for word in words if word)
            return End(False, Reason.WORKER_LOST, f"Pod {pod.name} was taken away: {why}")
    return None


def _is_second(instance: Instance) -> bool:
    """The launcher has not started the command although its attempt has: an operator that was
    late made it after the one that did had gone, and its gate keeps it from a second start."""
    launcher = instance.launcher
    if launcher is None or launcher.has_started or not instance.record.was_running:
        return False
    # One that is Pending in our copy may run by now: only its end is beyond doubt.
    return launcher.phase == "Failed" and launcher.exit_code is not None


def _launcher_exit(instance: Instance) -> End | None:
    launcher = instance.launcher
    if launcher is not None and launcher.is_terminal and not launcher.is_lost:
        return _with_workers_memory(_failed(launcher), instance)
    for pod in instance.workers.values():
        if pod is None or not pod.is_terminal or pod.is_lost or pod.is_ended_by_us:
            continue
        # A sleeping worker does not end by itself. One that failed takes the job with it, and
        # one that ended well before the start would be waited for until the end of days; later
        # the launcher knows best what it means.
        if pod.phase == "Failed" or not instance.has_started:
            return _ended_early(pod)
    return None


def _ended_early(pod: PodView) -> End:
    said = f"{pod.name} ended before the launcher did"
    if pod.ending is None:
        return End(False, Reason.FAILED, said, pod.exit_code)
    failed = _failed(pod)
    return replace(failed, message=f"{said}: {failed.message}")


def _with_workers_memory(end: End, instance: Instance) -> End:
    """Of a launcher that fails since a worker ran out of memory, the worker tells more."""
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
