"""domain: when a launcher's command may start, and what it waits for until then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.conditions import FINISHED
from jobs.instancerecord import record_of
from jobs.manifests import is_being_deleted, uid_of
from jobs.podview import from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobs.manifests import Manifest

_FINISHED = frozenset(state.value for state in FINISHED)
_MOST_NAMED = 3


def awaited(workers: Iterable[str], pods: Iterable[Manifest], attempt: int) -> str:
    """What the launcher waits for, in a sentence; empty: all `workers` of `attempt` are Ready."""
    views = {pod.name: pod for pod in map(from_manifest, pods) if pod.attempt == attempt}
    wanted = list(workers)
    waiting: list[str] = []
    for name in wanted:
        view = views.get(name)
        if view is None:
            waiting.append(f"{name} (not there yet)")
        elif not view.is_ready or view.is_deleting:
            why = view.trouble.sentence if view.trouble else view.phase
            waiting.append(f"{name} ({why})")
    if not waiting:
        return ""
    named = ", ".join(waiting[:_MOST_NAMED])
    more = f" and {len(waiting) - _MOST_NAMED} more" if len(waiting) > _MOST_NAMED else ""
    ready = len(wanted) - len(waiting)
    return f"{ready} of {len(wanted)} workers are ready; waiting for {named}{more}"


def closed_because(job: Manifest | None, uid: str, instance: int, attempt: int) -> str:
    """Why the command must not start any more; empty: it may.

    A pod that an operator made which no longer leads would otherwise run the command twice.
    """
    if job is None or uid_of(job) != uid:
        return "the job is gone"
    if is_being_deleted(job):
        return "the job is being deleted"
    status = job.get("status") or {}
    if status.get("launcherStatus") in _FINISHED:
        return f"the job is {status['launcherStatus']}"
    record = record_of(status, instance)
    if record.attempt != attempt:
        return f"the job is at attempt {record.attempt}, this pod belongs to attempt {attempt}"
    if record.was_running:
        return f"another launcher of attempt {attempt} has started the command already"
    return ""
