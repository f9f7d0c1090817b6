"""domain: utilization of a V-IPU controller: exact sums over time that add up.

capacity = reserved + idle + down + unknown, at every instant and so in every sum. The tracker knows
exactly what jobs hold; everything else is known only from polls of the controller. If the two
disagree for a moment, the jobs' partitions count and the other states share the rest. Instants are
cut to whole seconds, as in usage/time/windows.py, so that sums are integers and parts of a range
add up to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from heapq import merge
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MICRO: Final = 10**6
_Event = tuple[int, "int | State | _Gap"]


@dataclass(frozen=True, slots=True)
class State:
    """The IPUs of a controller as reported at `at` (microseconds of the epoch).

    `down`: cordoned or faulty. `known` false: it did not answer, and keeps its total.
    """

    at: int
    total: int
    free: int
    down: int
    known: bool = True


@dataclass(frozen=True, slots=True)
class Holding:
    """`size` IPUs held by a job from `start` to `stop`, in microseconds of the epoch."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True, slots=True)
class ControllerTimeline:
    """The recorded facts about one controller.

    `states` in order of time, from the state at the beginning of the range, for which `held_then`
    is the number of IPUs that jobs held. `gaps`: when no recorder polled it (from, to), in
    microseconds.
    """

    states: tuple[State, ...] = ()
    held_then: int = 0
    holdings: tuple[Holding, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Utilization:
    """IPU-seconds of one step. capacity = reserved + idle + down + unknown.

    `reserved` by partitions, `by_others`: the part in partitions without a job (made by hand);
    `held_idle`: the part in partitions whose job had no running pod; `pod_micro`: allocated to
    pods, in micro-IPU-seconds. `down`: cordoned or faulty and not held by a job; `unknown`: no
    recorder polled, or the controller did not answer.
    """

    capacity: int = 0
    reserved: int = 0
    by_others: int = 0
    held_idle: int = 0
    idle: int = 0
    down: int = 0
    unknown: int = 0
    pod_micro: int = 0

    def __add__(self, other: Utilization) -> Utilization:
        """Return both together."""
        return Utilization(  # by name: a month of hours adds six thousand of these up
            self.capacity + other.capacity,
            self.reserved + other.reserved,
            self.by_others + other.by_others,
            self.held_idle + other.held_idle,
            self.idle + other.idle,
            self.down + other.down,
            self.unknown + other.unknown,
            self.pod_micro + other.pod_micro,
        )

    @property
    def by_jobs(self) -> int:
        """Return what jobs' partitions reserved."""
        return self.reserved - self.by_others

    @property
    def busy(self) -> int:
        """Return what jobs' partitions reserved while a pod of the job ran on them."""
        return self.by_jobs - self.held_idle

    @property
    def is_known(self) -> bool:
        """Return whether there was capacity of which anything is known."""
        return self.capacity > self.unknown

    def with_pods(self, busy: int, pod_micro: int) -> Utilization:
        """Return it with what is known of pods: `busy` IPU-seconds of the partitions."""
        return replace(self, held_idle=max(0, self.by_jobs - busy), pod_micro=pod_micro)


NAMES: Final = tuple(field.name for field in fields(Utilization))


@dataclass(frozen=True, slots=True)
class _Gap:
    """A gap that begins (1) or ends (-1)."""

    step: int


@dataclass(slots=True)
class _Now:
    """The state at the moment that a sweep has come to."""

    total: int = 0
    down: int = 0
    others: int = 0
    held: int = 0
    answers: bool = True
    gaps: int = 0

    def take(self, event: int | State | _Gap) -> None:
        """Change by what happens."""
        if isinstance(event, State):
            self._hear(event, self.held)
        elif isinstance(event, _Gap):
            self.gaps += event.step
        else:
            self.held += event

    def _hear(self, state: State, held: int) -> None:
        self.total, self.answers = state.total, state.known
        # A faulty IPU in a partition is reported as faulty and not as used, but the job holds it.
        used = state.total - state.free - state.down
        self.others = max(0, used - held)
        self.down = max(0, min(state.down, used + state.down - held))

    def begin_with(self, state: State, held: int) -> None:
        """Begin with a state from when jobs held `held`."""
        self._hear(state, held)

    def shares(self) -> tuple[int, int, int, int, int, int]:
        """Return capacity, reserved, by_others, idle, down and unknown IPUs."""
        capacity = max(self.total, self.held)
        rest = capacity - self.held
        if self.gaps or not self.answers:
            return capacity, self.held, 0, 0, 0, rest
        down = min(self.down, rest)
        others = min(self.others, rest - down)
        return capacity, self.held + others, others, rest - down - others, down, 0


def sweep(timeline: ControllerTimeline, bounds: Sequence[int]) -> list[Utilization]:
    """Return the utilization of each [bounds[i], bounds[i + 1]), in whole seconds of the epoch.

    Pods are added by `Utilization.with_pods`.
    """
    sums = [[0] * 6 for _ in bounds[1:]]
    now, at, step = _Now(), bounds[0], 0
    begin = bounds[0] * _MICRO
    earlier = [state for state in timeline.states if state.at < begin]
    if earlier:
        now.begin_with(earlier[-1], timeline.held_then)
    for instant, event in _events(timeline, begin):
        second = min(max(instant // _MICRO, at), bounds[-1])
        while at < second:
            until = min(second, bounds[step + 1])
            for n, share in enumerate(now.shares()):
                sums[step][n] += share * (until - at)
            at = until
            step += at == bounds[step + 1]
        now.take(event)
    last = now.shares()
    for n in range(step, len(sums)):
        seconds = bounds[n + 1] - max(bounds[n], at)
        sums[n] = [amount + share * seconds for amount, share in zip(sums[n], last, strict=True)]
    return [_utilization(*each) for each in sums]


def total_by_step(rows: Mapping[str, Sequence[Utilization]], count: int) -> list[Utilization]:
    """Return all controllers together, step by step."""
    return [sum((steps[n] for steps in rows.values()), Utilization()) for n in range(count)]


def _utilization(
    capacity: int, reserved: int, by_others: int, idle: int, down: int, unknown: int
) -> Utilization:
    return Utilization(
        capacity=capacity,
        reserved=reserved,
        by_others=by_others,
        held_idle=reserved - by_others,  # until pods are known
        idle=idle,
        down=down,
        unknown=unknown,
    )


def _events(timeline: ControllerTimeline, begin: int) -> Iterator[_Event]:
    """Yield all changes in order; at the same instant, changes of what jobs hold come first."""
    held = sorted(
        [(holding.start, holding.size) for holding in timeline.holdings]
        + [(holding.stop, -holding.size) for holding in timeline.holdings]
    )
    silent = sorted(
        [(start, 1) for start, stop in timeline.gaps if stop > start]
        + [(stop, -1) for start, stop in timeline.gaps if stop > start]
    )
    changes = [(state.at, state) for state in timeline.states if state.at >= begin]
    streams: list[list[_Event]] = [
        list(held),
        [(at, _Gap(step)) for at, step in silent],
        list(changes),
    ]
    yield from merge(*streams, key=lambda event: event[0])
