"""One lock per key, and none left behind."""

from __future__ import annotations

import asyncio

import pytest

from ipuhub.concurrency import KeyedLocks


async def test_one_key_is_held_once_and_others_are_free() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    order: list[str] = []

    async def work(key: str, name: str) -> None:
        async with locks.hold(key):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(work("a", "1"), work("a", "2"), work("b", "3"))
    assert order.index("1 out") < order.index("2 in")
    assert order.index("3 in") < order.index("1 out")
    assert len(locks) == 0


async def test_a_lock_whose_work_fails_or_is_cancelled_is_given_back() -> None:
    locks: KeyedLocks[str] = KeyedLocks()
    with pytest.raises(ZeroDivisionError):
        async with locks.hold("a"):
            raise ZeroDivisionError
    async with locks.hold("a"):
        waiting = asyncio.create_task(locks.hold("a").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert len(locks) == 0
