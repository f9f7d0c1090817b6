"""domain: the progress of a job: submitted, partition, pods, running, ended, drawn to scale."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ipuhub.text import spell_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from dashboard.job.shapes import Job, Lives, Pod

ENDS: Final = ("Completed", "Failed", "Deleted")
_KINDS: Final = {"partition": "waiting", "pods": "starting", "running": "starting", "end": "worker"}
"""The class of the bar that leads to a step, as the timeline has them."""
_WORDS: Final = {"waiting": "waited for IPUs", "starting": "started pods", "worker": "ran"}


@dataclass(frozen=True, slots=True)
class Step:
    """A station. `state`: done, current, todo, failed or stopped; `took`: since the step before;
    `since`: from when on the job has been at the current step, or on the way to it."""

    label: str
    state: str
    at: datetime | None = None
    took: str = ""
    note: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the bar, in per cent of the whole; `kind` is a class of the timeline."""

    x: str
    width: str
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Stepper:
    """The stations in order, and the bar below them."""

    steps: tuple[Step, ...]
    parts: tuple[Part, ...]


def draw_stepper(job: Job, state: str, lives: Lives, now: datetime) -> Stepper:
    """Place the stations. `state` is the page's; times never run backwards, although Kubernetes
    rounds its own to seconds."""
    ended = state in ENDS
    reached = _forwards(_instants(job, lives, ended=ended))
    steps = list(_steps(job, state, reached, ended=ended))
    known = [(key, at) for key, at in reached if at is not None]
    if not ended:
        unreached = [key for key, at in reached if at is None]
        known.append((unreached[0] if unreached else "end", max(now, known[-1][1])))
    return Stepper(tuple(steps), tuple(_parts(known)))


def _instants(job: Job, lives: Lives, *, ended: bool) -> Iterator[tuple[str, datetime | None]]:
    yield "submitted", job.created_at
    if job.ipus:
        active = [each.active_at for each in lives.partitions if each.active_at is not None]
        yield "partition", min(active, default=None)
    yield "pods", _pods_ready(lives.pods) or job.started_at
    yield "running", job.started_at
    yield "end", (job.completed_at or job.deleted_at) if ended else None


def _pods_ready(pods: Sequence[Pod]) -> datetime | None:
    """Return when the last pod of the first attempt started; None while a pod has not."""
    first = min((pod.attempt or 0 for pod in pods), default=0)
    own = [pod.started_at for pod in pods if (pod.attempt or 0) == first]
    started = [at for at in own if at is not None]
    return max(started) if started and len(started) == len(own) else None


def _forwards(
    found: Iterable[tuple[str, datetime | None]],
) -> list[tuple[str, datetime | None]]:
    placed: list[tuple[str, datetime | None]] = []
    last: datetime | None = None
    for key, at in found:
        if at is not None:
            last = at if last is None else max(last, at)
        placed.append((key, None if at is None else last))
    return placed


def _steps(
    job: Job,
    state: str,
    reached: Sequence[tuple[str, datetime | None]],
    *,
    ended: bool,
) -> Iterator[Step]:
    on_the_way = {"partition": "Waiting for IPUs", "pods": "Starting pods", "running": "Starting"}
    labels = {
        "submitted": "Submitted",
        "partition": "Partition ready",
        "pods": "Pods ready",
        "running": "Running",
        "end": state if ended else "Ended",
    }
    before: datetime | None = None
    current = not ended
    running = job.started_at is not None and not ended
    for key, at in reached:
        # A job that runs stands on "Running", not before its end.
        is_current = current and (key == "running" if running else at is None)
        took = _took(before, at) if at and before else ""
        since = (at or before) if is_current else None
        current = current and not is_current
        restarts = job.restart_count if key == "running" else 0
        note = f"{restarts} restart{'s' if restarts > 1 else ''}" if restarts else ""
        look = _look(key, state, at, is_current=is_current)
        label = on_the_way.get(key, labels[key]) if is_current and at is None else labels[key]
        yield Step(label, look, at, took, note, since)
        before = at or before


def _took(begin: datetime, end: datetime) -> str:
    """Return the time between two instants as they are shown, to the second."""
    return spell_duration(int(end.timestamp()) - int(begin.timestamp()))


def _look(key: str, state: str, at: datetime | None, *, is_current: bool) -> str:
    if is_current:
        return "stopped" if state == "Suspended" else "current"
    if key == "end" and at is not None:
        return {"Failed": "failed", "Deleted": "stopped"}.get(state, "done")
    return "todo" if at is None else "done"


def _parts(known: Sequence[tuple[str, datetime]]) -> Iterator[Part]:
    first, last = known[0][1], known[-1][1]
    total = (last - first).total_seconds()
    reached = [key for key, _ in known]
    for (_, begin), (key, end) in pairwise(known):
        seconds = (end - begin).total_seconds()
        if total <= 0 or seconds <= 0:
            continue
        # Who never ran did not run until its end.
        kind = "waiting" if key == "end" and "running" not in reached else _KINDS[key]
        x = 100 * (begin - first).total_seconds() / total
        words = f"{_WORDS[kind]} for {spell_duration(seconds)}"
        yield Part(f"{x:.2f}%", f"{max(100 * seconds / total, 0.4):.2f}%", kind, words)
