"""PostgreSQL hangs: the backlog is bounded, the watch is slowed down, and in the end no row is
missing.

Also when the API server or its history disappears meanwhile, which the prober notices only later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fakes.livestream import LiveStream, compare
from tests.fakes.podstream import STEPS, expected_row, uid_of
from tests.fakes.waiting import eventually
from tests.integration.prober.conftest import QUICK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from tests.integration.prober.conftest import Lab

    Fate = Callable[[Lab], Awaitable[None]]

PODS = 600
LINES = PODS * len(STEPS)
BUFFER = 100
# 30 kB a line: all of them are more than sockets on the way take.
PADDING = 30_000


@contextlib.asynccontextmanager
async def standing_still(lab: Lab) -> AsyncIterator[None]:
    """No client can write a row meanwhile."""
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
def silence_seconds() -> float:
    """Return a silence of a watch that is longer than any of this takes."""
    return 70.0


@pytest.fixture
async def held(lab: Lab, silence_seconds: float) -> Lab:
    lab.server.padding = PADDING
    pace = replace(QUICK.pace, silence_seconds=silence_seconds)
    lab.options = replace(QUICK, batch_events=50, buffer_events=BUFFER, pace=pace)
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
        uid_of(number): expected_row(number).finished_at for number in range(PODS)
    }
    assert not any(row["estimated"] for row in rows.values())
    assert held.gaps() == []
    assert held.server.lists == 1


LASTING = range(PODS, PODS + 10)


@pytest.fixture
async def torrent(held: Lab) -> LiveStream:
    """Ten pods run, and are recorded."""
    stream = LiveStream(held.server)
    live(stream, LASTING, *STEPS[:2])
    await held.server.tell()
    await eventually(lambda: held.is_at(held.server.revision))
    return stream


def live(stream: LiveStream, pods: Iterable[int], *steps: str) -> None:
    for number in pods:
        for step in steps:
            stream.step(number, step)


async def burst(lab: Lab, stream: LiveStream) -> None:
    """Let more pods live and go than fit on the way; return when the watch is held back."""
    for first in range(0, PODS, 5):
        live(stream, range(first, first + 5), *STEPS)
        await lab.server.tell()
        await asyncio.sleep(0.002)  # the server is in this loop, too, and is to be prompt
    await until_held_back(lab)
    assert not lab.is_at(lab.server.revision)


async def settle(lab: Lab, stream: LiveStream) -> Counter[str]:
    """Let the ten end, too, and compare the recorded rows with the pods."""
    live(stream, LASTING, *STEPS[2:])
    await lab.server.tell()
    await eventually(lambda: lab.is_at(lab.server.revision))
    rows, gaps = lab.rows(), lab.gaps()
    last = compare(stream, LASTING, rows.values(), gaps)
    assert last == Counter({"event": len(LASTING)}), "who lived on is known exactly"
    found = compare(stream, range(PODS), rows.values(), gaps)
    assert len(rows) == len(LASTING) + PODS - found["inside a gap"]
    return found


async def restart(lab: Lab) -> None:
    await lab.server.stop()
    await lab.server.start()


async def hang(lab: Lab) -> None:
    """Hang like a host that vanishes: neither side closes the connection."""
    lab.server.hang()


@pytest.mark.parametrize(
    ("happens", "silence_seconds"), [(restart, 70.0), (hang, 1.0)], ids=["restart", "hang"]
)
async def test_a_server_that_is_lost_meanwhile_is_watched_again_where_it_was(
    held: Lab, torrent: LiveStream, happens: Fate
) -> None:
    async with standing_still(held):
        await burst(held, torrent)
        await happens(held)
    assert await settle(held, torrent) == Counter({"event": PODS})
    assert held.gaps() == []
    assert held.server.lists == 1


async def restart_without_history(lab: Lab) -> None:
    await lab.server.stop()
    lab.server.forget()
    await lab.server.start()


async def be_too_slow(lab: Lab) -> None:
    """Do as a server to a client that reads too slowly: it forgets the watch, and its place."""
    lab.server.forget()
    lab.server.break_off()


@pytest.mark.parametrize("happens", [restart_without_history, be_too_slow])
async def test_a_history_that_ends_meanwhile_is_listed_anew_and_its_loss_is_stored(
    held: Lab, torrent: LiveStream, happens: Fate
) -> None:
    async with standing_still(held):
        await burst(held, torrent)
        await happens(held)
    await eventually(held.gaps)
    found = await settle(held, torrent)
    assert held.server.lists == 2
    assert "history" in held.gaps()[0]["cause"]
    assert found["event"] > 0, "what had come before it is recorded"
    assert found["inside a gap"] > PODS // 4
    assert set(found) <= {"event", "inside a gap", "relist estimated"}
