"""The request that a controller is reserved for, and the requests that wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.proxy.queue import Room, Waiter, keep_room
from partitions.vipu.topology import IpuId, place
from tests.builders.fleets import fleet_of_machines

if TYPE_CHECKING:
    from partitions.proxy.queue import Kept

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
AFTER = 3.0


def room(address: str = "a", machines: int = 16, ours: int = 0, others: int = 0) -> Room:
    """The first IPUs are ours, the last are others'."""
    fleet = fleet_of_machines(machines)
    ids = [ipu.id for ipu in fleet.ipus]
    return Room(address, fleet, frozenset(ids[:ours]), frozenset(ids[len(ids) - others :]))


def waiter(name: str, size: int, waited: float) -> Waiter:
    return Waiter((name, 0), size, START - timedelta(seconds=waited), START)


def test_room_is_kept_for_the_oldest_who_has_waited_long_enough() -> None:
    rooms = [room(ours=8)]
    young, old, older = waiter("y", 64, 2), waiter("b", 32, 5), waiter("c", 64, 6)
    assert keep_room([young], rooms, START, AFTER) is None
    kept = keep_room([young, old, older], rooms, START, AFTER)
    assert kept is not None
    assert kept.waiter == older


def test_who_can_never_fit_holds_back_nobody_and_gives_way_to_the_next() -> None:
    too_large, next_one = waiter("a", 64, 9), waiter("b", 32, 5)
    for small in ([room(machines=8)], [room(others=1)], []):
        assert keep_room([too_large], small, START, AFTER) is None
    kept = keep_room([too_large, next_one], [room(others=1, ours=40)], START, AFTER)
    assert kept is not None
    assert kept.waiter == next_one


def test_one_controller_is_kept_the_one_with_the_least_in_the_way() -> None:
    rooms = [room("a", ours=12), room("b", ours=4), room("c", ours=4)]
    kept = keep_room([waiter("x", 64, 5)], rooms, START, AFTER)
    assert kept is not None
    assert kept.room.address == "b"


def test_what_delays_nothing_may_go_there_all_the_same() -> None:
    two_racks = room(machines=32)
    first, second = [IpuId(0, n) for n in range(8)], [IpuId(1, n) for n in range(4)]
    held = replace(two_racks, ours=frozenset([*first, *second]))
    kept = keep_room([waiter("x", 64, 5)], [held], START, AFTER)
    assert kept is not None
    assert kept.is_open_to(8)  # into the rack where more is in the way anyway
    assert not kept.is_open_to(4)  # the smallest block that fits is in the other controller
    assert not kept.is_open_to(64)


@dataclass
class Job:
    """A caller that asks each second until it is served, or for `patience` seconds."""

    name: str
    size: int
    length: int
    came: int
    patience: int = 10**9
    ends: int = 0
    ipus: tuple[IpuId, ...] = ()


@dataclass
class Site:
    """Controllers over time, where everybody gets what the rule leaves him."""

    rooms: list[Room]
    after: float
    now: int = 0
    waiting: list[Job] = field(default_factory=list)
    running: list[tuple[int, Job]] = field(default_factory=list)

    def tick(self, coming: list[Job], *, newest_first: bool) -> None:
        self.now += 1
        for number, job in [one for one in self.running if one[1].ends <= self.now]:
            self.running.remove((number, job))
            at = self.rooms[number]
            self.rooms[number] = replace(at, ours=at.ours - set(job.ipus))
        self.waiting += coming
        self.waiting = [j for j in self.waiting if self.now - j.came <= j.patience]
        for job in sorted(self.waiting, key=lambda one: one.came, reverse=newest_first):
            self._ask(job)

    def _ask(self, job: Job) -> None:
        now = START + timedelta(seconds=self.now)
        waiters = [
            Waiter((one.name, 0), one.size, START + timedelta(seconds=one.came), now)
            for one in self.waiting
        ]
        kept = keep_room(waiters, self.rooms, now, self.after)
        for number, at in enumerate(self.rooms):
            if kept is not None and _is_closed(kept, at, job):
                continue
            ipus = place(at.topology, at.ours | at.others, job.size)
            if ipus is not None:
                self.rooms[number] = replace(at, ours=at.ours | set(ipus))
                job.ipus, job.ends = ipus, self.now + job.length
                self.running.append((number, job))
                self.waiting.remove(job)
                return


def _is_closed(kept: Kept, at: Room, job: Job) -> bool:
    is_other = kept.waiter.holder != (job.name, 0)
    return is_other and kept.room.address == at.address and not kept.is_open_to(job.size)


SMALL = st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 4))


@settings(max_examples=40, deadline=None)
@given(
    machines=st.lists(st.sampled_from([4, 8, 16]), min_size=1, max_size=2),
    others=st.sampled_from([0, 1, 4]),
    large=st.lists(st.sampled_from([16, 32, 64]), min_size=1, max_size=3),
    stream=st.lists(st.lists(SMALL, min_size=2, max_size=8), min_size=1, max_size=6),
    newest_first=st.booleans(),
)
def test_whoever_fits_is_served_in_the_end_whatever_else_comes(
    machines: list[int],
    others: int,
    large: list[int],
    stream: list[list[tuple[int, int]]],
    newest_first: bool,
) -> None:
    rooms = [room(f"c{n}", count, others=others) for n, count in enumerate(machines)]
    site = Site(rooms, AFTER)
    wanted = [Job(f"large-{n}", size, 3, 5) for n, size in enumerate(large)]
    fitting = {job.name for job in wanted if any(r.in_the_way(job.size) is not None for r in rooms)}
    # Everything of ours that is in the way of a job ends within 4 s; it falls by 1 each time.
    for _ in range(5 + len(wanted) * (int(AFTER) + 4 * 64)):
        small = [
            Job(f"small-{site.now}-{n}", size, length, site.now + 1, patience=2)
            for n, (size, length) in enumerate(stream[site.now % len(stream)])
        ]
        coming = [job for job in wanted if job.came == site.now + 1]
        site.tick([*small, *coming], newest_first=newest_first)
        left = {job.name for job in site.waiting} & fitting
        if site.now > 5 and not left:
            return
    raise AssertionError(f"still waiting: {left}")
