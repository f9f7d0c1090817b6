"""domain: the stretches of a job's partitions and pods, for its timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dashboard.timeline import Row, Span
from ipuhub.text import human_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

_STOPPED = "DeadlineExceeded"
DRAWN = 40  # more rows are no drawing any more; the table below has them all


class Pod(Protocol):
    """What of a pod's lifetime is drawn."""

    pod_name: str
    role: str
    attempt: int | None
    phase: str
    reason: str
    exit_code: int | None
    created_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    estimated: bool


class Partition(Protocol):
    """What of a partition's lifetime is drawn."""

    partition: str
    size: int
    reserved_at: datetime
    active_at: datetime | None
    released_at: datetime | None


class Lives(Protocol):
    """The partitions and pods of a job."""

    @property
    def pods(self) -> Sequence[Pod]:
        """Pods."""
        ...

    @property
    def partitions(self) -> Sequence[Partition]:
        """Partitions."""
        ...


def timeline_rows(lives: Lives) -> list[Row]:
    """Return partitions and then pods, the newest of them where there are too many."""
    partitions = [
        Row(f"{one.partition} · {one.size} IPUs", list(_partition_spans(one)))
        for one in lives.partitions[-DRAWN // 4 :]
    ]
    pods = [Row(_pod_label(pod), list(_pod_spans(pod))) for pod in lives.pods[-DRAWN:]]
    return partitions + pods


def _pod_label(pod: Pod) -> str:
    again = f" · attempt {pod.attempt + 1}" if pod.attempt else ""
    return f"{pod.pod_name}{again}"


def _partition_spans(one: Partition) -> Iterator[Span]:
    active = one.active_at or one.released_at
    yield _span(one.reserved_at, active, "waiting", f"{one.partition}: being made")
    if one.active_at:
        yield _span(one.active_at, one.released_at, "partition", f"{one.partition}: held")


def _pod_spans(pod: Pod) -> Iterator[Span]:
    scheduled = pod.scheduled_at or pod.finished_at
    yield _span(pod.created_at, scheduled, "waiting", f"{pod.pod_name}: not scheduled")
    if pod.scheduled_at is None:
        return
    began = pod.started_at or pod.finished_at
    yield _span(pod.scheduled_at, began, "starting", f"{pod.pod_name}: starting")
    if pod.started_at is None:
        return
    # So ends a worker whose launcher is done: Kubernetes calls it Failed, and nothing is wrong.
    stopped = pod.reason == _STOPPED
    failed = not stopped and (pod.phase == "Failed" or bool(pod.exit_code))
    kind = "failed" if failed else "launcher" if pod.role == "launcher" else "worker"
    end = " (end estimated)" if pod.estimated else ""
    code = "" if pod.exit_code is None else f", exit code {pod.exit_code}"
    state = "running" if not pod.finished_at else "ran until it was stopped" if stopped else "ran"
    words = f"{pod.pod_name}: {state}{code}{end}"
    yield _span(pod.started_at, pod.finished_at, kind, words)


def _span(begin: datetime, end: datetime | None, kind: str, words: str) -> Span:
    if end is None:
        return Span(begin, None, kind, f"{words} since {begin:%H:%M:%S} UTC")
    took = human_duration(max(0.0, (end - begin).total_seconds()))
    return Span(begin, end, kind, f"{words} for {took}, from {begin:%H:%M:%S} UTC")
