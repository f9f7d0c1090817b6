"""Low-priority requests wait for a lull or for their timeout."""

from __future__ import annotations

import asyncio

from ipuhub.kube.lull import LowPriorityGate


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lull_comes_with_the_end_of_the_last_urgent_work() -> None:
    lull = LowPriorityGate(60.0)
    await lull.wait(lull.due())  # nothing is urgent
    first, second = lull.begin(), lull.begin()
    waiting = asyncio.create_task(lull.wait(lull.due()))
    first()
    first()  # it has ended before: the other has not
    await turns()
    assert not waiting.done()
    second()
    await waiting
    third = lull.begin()
    waiting = asyncio.create_task(lull.wait(lull.due()))
    await turns()
    assert not waiting.done()
    third()
    await waiting


async def test_nobody_waits_longer_than_the_patience() -> None:
    lull = LowPriorityGate(0.01)
    lull.begin()
    due = lull.due()
    await lull.wait(due)
    assert asyncio.get_running_loop().time() >= due
    await lull.wait(due)  # another wait of the same age
