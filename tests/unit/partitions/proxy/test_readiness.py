"""The time of a partition's first check, by the creation times of earlier partitions."""

from __future__ import annotations

import random

from partitions.proxy.queue import Readiness


def look_until_active(learned: Readiness, seconds: float, *, is_reset: bool = False) -> int:
    """A partition that is ACTIVE after `seconds`, looked at as the proxy does; the looks."""
    at, pause, looks = learned.first_look_seconds("v1", is_reset=is_reset), 0.05, 1
    while at < seconds:
        at, pause, looks = at + pause, pause * 2, looks + 1
    learned.learn("v1", at, looks, is_reset=is_reset)
    return looks


def test_nothing_is_known_at_first_so_it_is_looked_at_once() -> None:
    assert Readiness().first_look_seconds("v1", is_reset=False) == 0.0


def test_soon_one_look_is_enough_for_most_and_none_comes_much_too_late() -> None:
    learned, chance = Readiness(), random.Random(1)
    for _ in range(10):
        look_until_active(learned, 0.2)
    looks = [look_until_active(learned, chance.uniform(0.18, 0.22)) for _ in range(200)]
    assert sum(looks) / len(looks) < 1.6
    assert 0.1 < learned.first_look_seconds("v1", is_reset=False) < 0.35


def test_one_partition_that_takes_very_long_does_not_make_all_wait_as_long() -> None:
    learned = Readiness()
    for _ in range(10):
        look_until_active(learned, 0.2)
    look_until_active(learned, 60)
    assert learned.first_look_seconds("v1", is_reset=False) < 0.7


def test_a_controller_that_has_become_quick_is_looked_at_soon_again() -> None:
    learned = Readiness()
    for _ in range(20):
        look_until_active(learned, 5)
    for _ in range(60):
        look_until_active(learned, 0.001)
    assert learned.first_look_seconds("v1", is_reset=False) < 0.05


def test_resets_and_other_controllers_are_learned_apart() -> None:
    learned = Readiness()
    for _ in range(20):
        look_until_active(learned, 5)
    assert learned.first_look_seconds("v1", is_reset=True) == 0.0
    assert learned.first_look_seconds("v2", is_reset=False) == 0.0
