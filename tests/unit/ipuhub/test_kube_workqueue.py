"""The key queue: each key once, never twice at a time, in order, with backoff."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipuhub.kube.workqueue import WorkQueue


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock=clock)


async def drain(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        key = await queue.get()
        taken.append(key)
        queue.done(key)
    return taken


async def test_a_key_added_many_times_is_worked_on_once(queue: WorkQueue[str]) -> None:
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    assert await drain(queue) == ["a", "b"]


async def test_the_lower_priority_number_goes_first_and_equals_keep_their_order(
    queue: WorkQueue[str],
) -> None:
    for key, priority in (("c", 5.0), ("a", 1.0), ("d", 5.0), ("b", 1.0)):
        queue.add(key, priority=priority)
    assert await drain(queue) == ["a", "b", "c", "d"]


async def test_a_queued_key_moves_forward_when_it_becomes_urgent_and_never_back(
    queue: WorkQueue[str],
) -> None:
    queue.add("a", priority=9)
    queue.add("b", priority=5)
    queue.add("a", priority=1)
    queue.add("b", priority=50)
    assert await drain(queue) == ["a", "b"]


async def test_a_key_added_while_worked_on_waits_and_comes_again(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a", priority=-1)
    assert (len(queue), queue.active) == (0, 1)
    queue.done("a")
    assert await drain(queue) == ["a"]
    assert queue.active == 0


async def test_a_key_keeps_its_place_while_it_is_worked_on_or_delayed(
    queue: WorkQueue[str], clock: Clock
) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a", priority=-1)
    queue.add("a", priority=9)
    queue.add("b")
    queue.add_after("c", 5, priority=7)
    queue.add("d", priority=3)
    queue.done("a")
    clock.now += 5
    assert await drain(queue) == ["a", "b", "d", "c"]


async def test_what_has_waited_longest_is_told_also_once_it_is_urgent(
    queue: WorkQueue[str], clock: Clock
) -> None:
    queue.add("a", priority=9)
    clock.now += 5
    queue.add("a", priority=1)
    queue.add("b")
    assert queue.oldest_seconds() == 5


async def test_a_delayed_key_comes_when_its_time_has_come(
    queue: WorkQueue[str], clock: Clock
) -> None:
    queue.add_after("later", 10)
    queue.add_after("soon", 5)
    assert (len(queue), queue.delayed) == (0, 2)
    clock.now += 5
    assert await drain(queue) == ["soon"]
    clock.now += 5
    assert await drain(queue) == ["later"]
    assert queue.delayed == 0


async def test_of_several_delays_the_earliest_counts(queue: WorkQueue[str], clock: Clock) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 20)
    clock.now += 3
    assert await drain(queue) == ["a"]
    clock.now += 100
    assert len(queue) == 0


async def test_a_delay_that_ends_while_the_key_is_worked_on_is_not_lost(
    queue: WorkQueue[str], clock: Clock
) -> None:
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1, priority=3)
    clock.now += 1
    assert len(queue) == 0
    queue.done("a")
    assert await drain(queue) == ["a"]


async def test_failures_wait_longer_each_time_up_to_sixteen_minutes(
    queue: WorkQueue[str],
) -> None:
    waits = [queue.add_rate_limited("a") for _ in range(30)]
    assert waits[:4] == [0.005, 0.01, 0.02, 0.04]
    assert waits[-1] == 960.0
    assert queue.failures("a") == 30
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.add_rate_limited("a") == 0.005


async def test_one_key_that_fails_does_not_slow_the_others(
    queue: WorkQueue[str], clock: Clock
) -> None:
    for _ in range(20):
        queue.add_rate_limited("poison")
    queue.add("good")
    assert await queue.get() == "good"
    assert queue.add_rate_limited("good") == 0.005


async def test_a_waiting_worker_wakes_for_a_new_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await asyncio.wait_for(worker, 60) == "a"


async def test_a_waiting_worker_wakes_when_a_delay_ends() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("later", 60)
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add_after("soon", 0.001)
    assert await asyncio.wait_for(worker, 60) == "soon"


async def test_many_workers_share_the_keys_and_none_has_the_same() -> None:
    queue: WorkQueue[int] = WorkQueue()
    active: set[int] = set()
    worked: list[int] = []

    async def work() -> None:
        while True:
            key = await queue.get()
            assert key not in active
            active.add(key)
            await asyncio.sleep(0)
            active.discard(key)
            worked.append(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _ in range(8)]
    for _ in range(3):
        for key in range(50):
            queue.add(key)
        await asyncio.sleep(0)
    while len(queue) or queue.active:
        await asyncio.sleep(0)
    for worker in workers:
        worker.cancel()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert set(worked) == set(range(50))


async def test_a_cancelled_wait_takes_no_key_with_it(queue: WorkQueue[str]) -> None:
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    worker.cancel()
    queue.add("a")
    with pytest.raises(asyncio.CancelledError):
        await worker
    assert await drain(queue) == ["a"]


_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "later", "take", "done", "tick"]),
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(_OPERATIONS)
def test_whatever_happens_every_added_key_is_taken_after_its_last_add(
    operations: list[tuple[str, str, int]],
) -> None:
    clock = Clock()

    async def play() -> None:
        queue: WorkQueue[str] = WorkQueue(clock=clock)
        owed: set[str] = set()
        active: list[str] = []
        for operation, key, number in operations:
            if operation == "add":
                queue.add(key, priority=number)
                owed.add(key)
            elif operation == "later":
                queue.add_after(key, number, priority=number)
                owed.add(key)
            elif operation == "take" and len(queue):
                taken = await queue.get()
                assert taken not in active
                active.append(taken)
                owed.discard(taken)
            elif operation == "done" and active:
                queue.done(active.pop(0))
            elif operation == "tick":
                clock.now += number
        for key in active:
            queue.done(key)
        clock.now += 10
        assert owed <= set(await drain(queue))

    asyncio.run(play())
