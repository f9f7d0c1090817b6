"""If tracker and controller disagree for a moment, no share is negative and no time is lost."""

from __future__ import annotations

from usage.utilization.amounts import ControllerTimeline, Holding, State, Utilization, sweep

SECOND = 10**6


def test_what_a_job_takes_leaves_less_to_others_and_nothing_negative() -> None:
    state = State(0, total=8, free=2, down=2)  # four in use, and nobody holds them
    timeline = ControllerTimeline((state,), holdings=(Holding(10 * SECOND, 20 * SECOND, 7),))
    before, then = sweep(timeline, [0, 10, 20])
    assert (before.reserved, before.by_others, before.idle, before.down) == (40, 40, 20, 20)
    assert (then.reserved, then.by_others, then.idle, then.down) == (70, 0, 0, 10)
    assert then.capacity == then.reserved + then.idle + then.down + then.unknown == 80


def test_jobs_that_hold_more_than_a_controller_tells_are_its_capacity() -> None:
    timeline = ControllerTimeline(
        (State(0, total=4, free=4, down=0),), holdings=(Holding(0, 10 * SECOND, 6),)
    )
    (each,) = sweep(timeline, [0, 10])
    assert (each.capacity, each.reserved, each.idle) == (60, 60, 0)


def test_pods_seen_a_second_longer_than_their_partition_make_no_negative_hours() -> None:
    held = Utilization(capacity=80, reserved=60, by_others=20, held_idle=40, idle=20)
    assert held.with_pods(41, 0).held_idle == 0
    assert held.with_pods(30, 0).busy == 30
