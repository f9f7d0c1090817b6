"""Postgres stands still: what waits is bounded, the watch is held back, and then all is there."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fakes.podstream import STEPS, truth_of, uid_of
from tests.fakes.waiting import eventually
from tests.integration.prober.conftest import QUICK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.prober.conftest import Lab

PODS = 600
LINES = PODS * len(STEPS)
BUFFER = 100
# 30 kB a line: all of them are more than sockets on the way take.
PADDING = 30_000


@contextlib.asynccontextmanager
async def standing_still(lab: Lab) -> AsyncIterator[None]:
    """Nobody can write a row meanwhile."""
    async with await psycopg.AsyncConnection.connect(**lab.database) as connection:
        await connection.execute("LOCK TABLE usage_podlifetime IN ACCESS EXCLUSIVE MODE")
        yield
        await connection.rollback()


async def until_held_back(lab: Lab) -> int:
    """Wait until the server gets rid of no more lines; return how many it sent."""
    sent, same = -1, 0
    while same < 20:
        same = same + 1 if lab.server.sent == sent else 0
        sent = lab.server.sent
        await asyncio.sleep(0.05)
    return sent


@pytest.fixture
async def held(lab: Lab) -> Lab:
    lab.server.padding = PADDING
    lab.options = replace(QUICK, batch_events=50, buffer_events=BUFFER)
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    return lab


async def feed(lab: Lab) -> None:
    for number in range(PODS):
        for step in STEPS:
            lab.server.step(number, step)
    await lab.server.tell()


async def test_the_watch_is_held_back_and_then_goes_on_where_it_was(held: Lab) -> None:
    before = held.checkpoint()
    async with standing_still(held):
        await feed(held)
        sent = await until_held_back(held)
        assert BUFFER <= sent < LINES
    await eventually(lambda: held.is_at(held.server.revision))
    assert held.server.sent == LINES
    assert held.checkpoint()["position_at"] > before["position_at"]
    rows = held.rows()
    assert {uid: row["finished_at"] for uid, row in rows.items()} == {
        uid_of(number): truth_of(number).finished_at for number in range(PODS)
    }
    assert not any(row["estimated"] for row in rows.values())
    assert held.gaps() == []
    assert held.server.lists == 1
