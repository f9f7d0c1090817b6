"""Low-priority requests wait for a lull or for their timeout."""

from __future__ import annotations

import asyncio

from ipuhub.kube.prioritygate import LowPriorityGate


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lull_comes_with_the_end_of_the_last_urgent_work() -> None:
    gate = LowPriorityGate(60.0)
    await gate.wait(gate.due())  # nothing is urgent
    first, second = gate.begin(), gate.begin()
    waiting = asyncio.create_task(gate.wait(gate.due()))
    first()
    first()  # it has ended before: the other has not
    await turns()
    assert not waiting.done()
    second()
    await waiting
    third = gate.begin()
    waiting = asyncio.create_task(gate.wait(gate.due()))
    await turns()
    assert not waiting.done()
    third()
    await waiting


async def test_nobody_waits_longer_than_the_patience() -> None:
    gate = LowPriorityGate(0.01)
    gate.begin()
    due = gate.due()
    await gate.wait(due)
    assert asyncio.get_running_loop().time() >= due
    await gate.wait(due)  # another wait of the same age
