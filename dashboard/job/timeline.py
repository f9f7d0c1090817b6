"""domain: the timeline of a job: rows of bars for its partitions and pods over one time axis.

Positions are percentages with two decimals, so the drawing fits any width without being scaled, and
its text keeps its size on a phone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from dashboard.job.shapes import is_stopped
from ipuhub.text import spell_duration, spell_ipus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from dashboard.job.shapes import Attempt, Lives, Partition, Pod

_SECONDS = (1, 2, 5, 10, 15, 30)
_MINUTES = (1, 2, 5, 10, 15, 30)
_HOURS = (1, 2, 3, 6, 12)
_DAYS = (1, 2, 7, 14, 28, 91, 182, 364)
_STEPS = (
    *(timedelta(seconds=n) for n in _SECONDS),
    *(timedelta(minutes=n) for n in _MINUTES),
    *(timedelta(hours=n) for n in _HOURS),
    *(timedelta(days=n) for n in _DAYS),
)
TOP, ROW, BAR = 24, 44, 16  # pixels: the axis, a row, its bar
SIGN = 14  # of a restart, below the rows


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a row: `end` None: it continues; `kind` is a class of the stylesheet."""

    begin: datetime
    end: datetime | None
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Row:
    """A pod or partition: its label and stretches, the first of which begins first."""

    label: str
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch, placed: `x` and `width` in per cent, `y` in pixels."""

    x: str
    width: str
    y: int
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A row, placed."""

    label: str
    y: int
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which the job was restarted, across all rows."""

    x: str
    words: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of the axis; narrow screens leave out those that are not `major`."""

    x: str
    at: datetime
    words: str
    is_major: bool


@dataclass(frozen=True, slots=True)
class Timeline:
    """The drawing."""

    rows: Sequence[DrawnRow]
    ticks: Sequence[Tick]
    restarts: Sequence[Mark]
    height: int
    begin: datetime
    end: datetime

    @property
    def restart_y(self) -> int:
        """The place at which the line of a restart ends, above its sign."""
        return self.height - SIGN


def draw_timeline(
    rows: Sequence[Row], now: datetime, attempts: Sequence[Attempt] = ()
) -> Timeline | None:
    """Place all rows on one axis, from the first beginning to the last end (now for open ends),
    with a mark at each new attempt.

    None: there is nothing to draw.
    """
    spans = [span for row in rows for span in row.spans]
    if not spans:
        return None
    begin = min(span.begin for span in spans)
    end = max(span.end or max(now, span.begin) for span in spans)
    end = max(end, begin + timedelta(seconds=1))
    drawn = [_draw(row, place, begin, end) for place, row in enumerate(rows)]
    marks = list(_restarts(attempts, begin, end))
    height = TOP + ROW * len(rows) + (4 + SIGN if marks else 4)
    return Timeline(drawn, list(_ticks(begin, end)), marks, height, begin, end)


def _restarts(attempts: Sequence[Attempt], begin: datetime, end: datetime) -> Iterator[Mark]:
    """A mark for all instances that were restarted in the same second."""
    before = {(each.instance, each.attempt): each for each in attempts}
    found: dict[datetime, str] = {}
    for each in attempts:
        failed = before.get((each.instance, each.attempt - 1))
        if failed is not None and begin <= each.began_at <= end:
            cause = f" ({failed.reason})" if failed.reason else ""
            words = (
                f"Restarted at {each.began_at:%H:%M:%S} UTC: attempt {each.attempt} failed{cause}"
            )
            found.setdefault(each.began_at.replace(microsecond=0), words)
    for at in sorted(found)[-DRAWN:]:
        yield Mark(f"{_percent(max(at, begin), begin, end):.2f}%", found[at])


def _draw(row: Row, place: int, begin: datetime, end: datetime) -> DrawnRow:
    y = TOP + ROW * place
    bars = [_bar(span, y + ROW - BAR - 4, begin, end) for span in row.spans]
    return DrawnRow(row.label, y + ROW - BAR - 10, bars)


def _bar(span: Span, y: int, begin: datetime, end: datetime) -> Bar:
    left = _percent(span.begin, begin, end)
    right = _percent(max(span.end or end, span.begin), begin, end)
    width = max(right - left, 0.4)  # a short span is still seen
    return Bar(f"{min(left, 99.6):.2f}%", f"{width:.2f}%", y, span.kind, span.words)


def _ticks(begin: datetime, end: datetime) -> Iterable[Tick]:
    span = end - begin
    step = next((step for step in _STEPS if span / step <= 8), span / 4)
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    number = (begin - midnight) // step + 1
    first = number
    while (instant := midnight + number * step) < end:
        x = _percent(instant, begin, end)
        if x <= 92:  # its text would leave the drawing
            yield Tick(f"{x:.2f}%", instant, _words(instant, step), (number - first) % 2 == 0)
        number += 1


def _words(instant: datetime, step: timedelta) -> str:
    if step < timedelta(minutes=1):
        return f"{instant:%H:%M:%S}"
    if step < timedelta(days=1):
        return f"{instant:%H:%M}" if instant.hour or instant.minute else f"{instant:%d %b}"
    return f"{instant:%d %b}"


def _percent(instant: datetime, begin: datetime, end: datetime) -> float:
    return 100 * ((instant - begin) / (end - begin))


DRAWN = 40  # more rows are no drawing any more; the table below has them all


def timeline_rows(lives: Lives, attempts: Sequence[Attempt]) -> list[Row]:
    """Return partitions and then pods, the newest of them where there are too many."""
    partitions = [
        Row(
            f"{partition.partition} · {spell_ipus(partition.size)}",
            list(_partition_spans(partition)),
        )
        for partition in lives.partitions[-DRAWN // 4 :]
    ]
    pods = [Row(_pod_label(pod), list(_pod_spans(pod, attempts))) for pod in lives.pods[-DRAWN:]]
    return partitions + pods


def _pod_label(pod: Pod) -> str:
    again = f" · attempt {pod.attempt + 1}" if pod.attempt else ""
    return f"{pod.pod_name}{again}"


def _partition_spans(partition: Partition) -> Iterator[Span]:
    active = partition.active_at or partition.released_at
    yield _span(partition.reserved_at, active, "waiting", f"{partition.partition}: being made")
    if partition.active_at:
        yield _span(
            partition.active_at, partition.released_at, "partition", f"{partition.partition}: held"
        )


def _pod_spans(pod: Pod, attempts: Sequence[Attempt]) -> Iterator[Span]:
    scheduled = pod.scheduled_at or pod.finished_at
    yield _span(pod.created_at, scheduled, "waiting", f"{pod.pod_name}: not scheduled")
    if pod.scheduled_at is None:
        return
    began = pod.started_at or pod.finished_at
    yield _span(pod.scheduled_at, began, "starting", f"{pod.pod_name}: starting")
    if pod.started_at is None:
        return
    stopped = is_stopped(pod, attempts)
    failed = pod.phase == "Failed" or bool(pod.exit_code)
    own = "launcher" if pod.role == "launcher" else "worker"
    kind = "stopped" if stopped else "failed" if failed else own
    end = " (end estimated)" if pod.estimated else ""
    code = "" if pod.exit_code is None else f", exit code {pod.exit_code}"
    state = "running" if not pod.finished_at else "ran until it was stopped" if stopped else "ran"
    words = f"{pod.pod_name}: {state}{code}{end}"
    yield _span(pod.started_at, pod.finished_at, kind, words)


def _span(begin: datetime, end: datetime | None, kind: str, words: str) -> Span:
    if end is None:
        return Span(begin, None, kind, f"{words} since {begin:%H:%M:%S} UTC")
    took = spell_duration(max(0.0, (end - begin).total_seconds()))
    return Span(begin, end, kind, f"{words} for {took}, from {begin:%H:%M:%S} UTC")
