"""Values that many pages share for a short time."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from ipuhub.web import readings
from ipuhub.web.readings import Latest, Shared, rest_after
from ipuhub.web.whilesame import WhileSame
from tests.fakes.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

NOON = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)


def test_a_value_is_built_once_a_key_and_moment() -> None:
    shared, built = Shared[str, int](), []

    def build() -> int:
        built.append(1)
        return len(built)

    assert [shared.get("a", NOON, build) for _ in range(3)] == [1, 1, 1]
    assert shared.get("b", NOON, build) == 2
    assert shared.get("a", NOON + dt.timedelta(seconds=0.5), build) == 3
    assert shared.get("a", NOON - dt.timedelta(hours=1), build) == 4  # a clock was set back


def test_threads_that_come_meanwhile_wait_for_the_first() -> None:
    shared, built = Shared[str, int](), []
    begun, go_on = threading.Event(), threading.Event()

    def build() -> int:
        begun.set()
        assert go_on.wait(10)
        built.append(1)
        return len(built)

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(shared.get, "a", NOON, build)
        assert begun.wait(10)
        others = [pool.submit(shared.get, "a", NOON, build) for _ in range(3)]
        assert shared.get("b", NOON, lambda: 7) == 7  # another key waits for nobody
        go_on.set()
        assert [each.result(10) for each in (first, *others)] == [1, 1, 1, 1]


def test_what_is_current_is_begun_after_it_was_asked_for_and_all_who_wait_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared, built = Shared[str, int](), []
    ticks = count()
    instants: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: instants.append(next(ticks)) or instants[-1])
    monkeypatch.setattr(readings, "time", clock)
    begun, go_on = threading.Event(), threading.Event()

    def build() -> int:
        built.append(1)
        number = len(built)
        begun.set()
        assert go_on.wait(10)
        return number

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(shared.get_current, "a", NOON, build)
        assert begun.wait(10)
        others = [pool.submit(shared.get_current, "a", NOON, build) for _ in range(4)]
        wait_until(lambda: len(instants) == 2 + len(others), "all to have asked")
        go_on.set()
        assert first.result(10) == 1
        assert [each.result(10) for each in others] == [2, 2, 2, 2]
    assert shared.get("a", NOON, build) == 2
    assert shared.get_current("a", NOON, build) == 3


def _latest(read: Callable[[int], int]) -> Callable[[dt.datetime], int]:
    return Latest(0, lambda last, _: read(last), lambda _: True).at


def _shared(build: Callable[[int], int]) -> Callable[[dt.datetime], int]:
    shared, built = Shared[str, int](), [0]

    def one() -> int:
        built.append(build(built[-1]))
        return built[-1]

    return lambda now: shared.get("a", now, one)


@pytest.mark.parametrize("kind", [_latest, _shared])
def test_nobody_waits_for_the_next_value_while_the_last_is_young(
    kind: Callable[[Callable[[int], int]], Callable[[dt.datetime], int]],
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def build(last: int) -> int:
        if last:
            begun.set()
            assert go_on.wait(10)
        return last + 1

    at = kind(build)
    assert at(NOON) == 1
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(at, NOON + dt.timedelta(seconds=1))
        assert begun.wait(10)
        assert at(NOON + dt.timedelta(seconds=3.4)) == 1
        late = pool.submit(at, NOON + dt.timedelta(seconds=4))
        assert not late.done()
        go_on.set()
        assert (slow.result(10), late.result(10)) == (2, 3)


def test_nobody_waits_for_a_server_that_did_not_answer_before() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def read(last: int, _: dt.datetime) -> int:
        if last:
            begun.set()
            assert go_on.wait(10)
        return last + 1

    latest = Latest(0, read, lambda _: False)
    assert latest.at(NOON) == 1
    assert latest.at(NOON + dt.timedelta(seconds=2.9)) == 1
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(latest.at, NOON + dt.timedelta(seconds=3))
        assert begun.wait(10)
        assert latest.at(NOON + dt.timedelta(seconds=5.9)) == 1
        go_on.set()
        assert slow.result(10) == 2


@pytest.mark.parametrize("kind", [_latest, _shared])
def test_a_clock_that_was_set_back_makes_nothing_fresh(
    kind: Callable[[Callable[[int], int]], Callable[[dt.datetime], int]],
) -> None:
    at = kind(lambda last: last + 1)
    assert (at(NOON), at(NOON - dt.timedelta(hours=1))) == (1, 2)


def test_a_failure_is_not_shared() -> None:
    shared = Shared[str, int]()

    def fail() -> int:
        raise ValueError

    for _ in range(2):
        try:
            shared.get("a", NOON, fail)
        except ValueError:
            continue
        raise AssertionError
    assert shared.get("a", NOON, lambda: 1) == 1


@pytest.mark.parametrize("ask", [Shared.get, Shared.get_current])
def test_who_waited_for_a_build_fails_with_it_and_builds_none_of_their_own(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[..., int]
) -> None:
    shared, built = Shared[str, int](), []
    ticks = count()
    instants: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: instants.append(next(ticks)) or instants[-1])
    monkeypatch.setattr(readings, "time", clock)
    begun, go_on = threading.Event(), threading.Event()

    def fail() -> int:
        built.append(1)
        begun.set()
        assert go_on.wait(10)
        raise ValueError(str(len(built)))

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(ask, shared, "a", NOON, fail)
        assert begun.wait(10)
        others = [pool.submit(ask, shared, "a", NOON, fail) for _ in range(4)]
        wait_until(lambda: len(instants) == 2 + len(others), "all to have asked")
        go_on.set()
        # The build under way began before they asked: they share the next build.
        assert [str(each.exception(10)) for each in (first, *others)] == ["1", *["2"] * 4]
    assert ask(shared, "a", NOON, lambda: 7) == 7


def test_the_keys_are_bounded() -> None:
    shared = Shared[int, int]()
    built = [shared.get(key, NOON, lambda: 1) for key in range(1000)]
    assert len(built) == 1000
    assert len(shared._slots) <= 256


def test_a_keeper_rests_longer_after_a_longer_reading_and_is_never_late() -> None:
    assert [rest_after(took) for took in (0.0, 0.01, 0.05, 0.1, 9.0)] == [0.25, 0.25, 1.0, 2.0, 2.0]
    assert rest_after(9.0) < readings._KEPT_SECONDS


def test_a_value_is_kept_while_it_comes_of_the_same_objects_and_time_does_not_change_it() -> None:
    kept, built, source = WhileSame[str, list[str]](most=2), count(), ["a"]
    minute = dt.timedelta(minutes=1)

    def get(key: str, source: object, now: dt.datetime, *, sets: bool = False) -> str:
        until = now + minute if sets else None
        return kept.get(key, (source,), now, lambda: ([f"{next(built)}"], until))[0]

    assert [get("x", source, NOON + n * minute) for n in range(3)] == ["0"] * 3
    assert get("x", ["a"], NOON, sets=True) == "1"  # equal, but another object
    again = ["a"]
    assert [get("x", again, NOON, sets=True), get("x", again, NOON + minute)] == ["2", "3"]
    assert get("x", again, NOON - minute) == "4"  # a clock was set back
    assert [get("y", again, NOON), get("z", again, NOON)] == ["5", "6"]
    assert [get("y", again, NOON), get("x", again, NOON)] == ["5", "7"]  # the oldest was dropped


def test_an_equal_value_of_other_objects_stays_the_same_object() -> None:
    kept = WhileSame[str, list[int]]()
    first = kept.get("x", ([1],), NOON, lambda: ([7], None))
    assert kept.get("x", ([2],), NOON, lambda: ([7], None)) is first
    assert kept.get("x", ([3],), NOON, lambda: ([8], None)) == [8]
