"""Values that the polls of many pages share for a moment."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor

from ipuhub.web.readings import Shared

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


def test_the_keys_are_bounded() -> None:
    shared = Shared[int, int]()
    built = [shared.get(key, NOON, lambda: 1) for key in range(1000)]
    assert len(built) == 1000
    assert len(shared._slots) <= 256
