"""The times of watch positions: a reading sets one only if no older event can be in transit."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ipuhub.kube.errors import Unreachable
from ipuhub.recording.positions import PositionClock

if TYPE_CHECKING:
    import pytest

T0 = datetime(2026, 10, 1, 12, tzinfo=UTC)
PROMPT = timedelta(seconds=1)


@dataclass
class Server:
    """A clock, the server's version, and a watch that came to version 100 at T0."""

    now: datetime = T0
    version: str = "100"
    questions: int = 0
    is_away: bool = False
    times: PositionClock = field(init=False)

    def __post_init__(self) -> None:
        self.times = PositionClock(lambda: self.now, self.revision, "100", T0)

    async def revision(self) -> str:
        self.questions += 1
        if self.is_away:
            raise Unreachable("away")
        return self.version

    def later(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    def hear(self, version: str, *, after: float = 0.0) -> datetime:
        """Wait for so many seconds, hear `version`; return the time of the position."""
        self.times.asking()
        self.later(after)
        heard_at, known_at = self.times.heard(version)
        assert heard_at == self.now
        return known_at


async def answers() -> None:
    """Let a question that is under way be answered."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_prompt_watch_dates_by_its_reading() -> None:
    server = Server()
    await server.times.opening()
    assert server.hear("101", after=40) == server.now - PROMPT
    assert server.hear("102", after=0.2) == server.now - PROMPT
    assert server.questions == 1


async def test_the_first_of_what_was_sent_as_one_says_nothing_of_the_rest() -> None:
    server = Server()
    await server.times.opening()
    sent_at = server.later(30)
    server.version = "199"
    first = server.hear("101", after=0.4)  # 102 to 199 are on the wire, as old as it
    assert first < sent_at
    assert server.hear("199") == first, "read later is not happened later"


async def test_what_is_read_of_the_past_keeps_the_old_time_until_the_present_is_reached() -> None:
    server = Server()
    opened = server.later(3_600)
    server.version = "110"
    await server.times.opening()
    assert server.hear("105", after=0.1) == T0
    assert server.hear("109", after=0.1) == T0
    assert server.hear("110", after=0.1) == opened, "asked then, the server was there"
    assert server.hear("111", after=2) == server.now - PROMPT


async def test_a_long_way_through_the_past_is_dated_by_the_last_question() -> None:
    server = Server()
    opened = server.later(3_600)
    server.version = "110"
    await server.times.opening()
    assert server.hear("105", after=0.1) == T0
    server.version = "130"
    assert server.hear("112", after=0.9) == opened
    server.times.asking()
    server.later(30)  # held up
    server.times.asking()
    held = server.now
    await answers()
    assert server.hear("129") == opened
    assert server.hear("130", after=0.5) == held


async def test_a_reader_that_was_held_up_dates_by_the_server_again() -> None:
    server = Server()
    await server.times.opening()
    before = server.hear("101", after=20)
    server.later(120)  # Postgres was away: what follows waited in buffers
    instant = server.now + timedelta(seconds=0.02)
    server.version = "200"
    assert server.hear("150", after=0.02) == before
    await answers()
    assert server.questions == 2
    assert server.hear("199", after=0.02) == before
    assert server.hear("200", after=0.02) == instant


async def test_a_stream_without_a_pause_is_dated_by_questions() -> None:
    server = Server()
    await server.times.opening()
    server.hear("101", after=20)
    for number in range(102, 1_102):
        server.version = str(number + 5)
        known_at = server.hear(str(number), after=0.005)
        await answers()
        assert server.now - known_at <= timedelta(seconds=2.1)
    assert server.questions <= 7


async def test_a_server_that_does_not_answer_leaves_the_time_as_it_was() -> None:
    server = Server()
    await server.times.opening()
    before = server.hear("101", after=20)
    server.later(120)
    server.is_away = True
    for number in range(150, 160):
        assert server.hear(str(number), after=0.3) == before
        await answers()
    assert server.questions <= 5
    server.is_away = False
    server.version = "170"
    server.hear("160", after=5)
    await answers()
    assert server.hear("170", after=3) == server.now - PROMPT


async def test_a_quiet_watch_behind_other_objects_versions_is_dated_by_its_next_bookmark() -> None:
    server = Server()
    server.later(300)
    server.version = "5000"  # other objects moved the server on
    await server.times.opening()
    assert server.hear("5900", after=60) == server.now - PROMPT


async def test_what_came_while_the_process_was_stopped_is_not_dated_by_its_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server()
    await server.times.opening()
    before = server.hear("101", after=20)
    server.times.asking()
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    reading = asyncio.create_task(reader.readexactly(1))
    await answers()
    loop = asyncio.get_running_loop()
    stood_still, time = server.later(5), loop.time
    server.version = "199"
    monkeypatch.setattr(loop, "time", lambda: time() + 5)
    far.send(b"x")  # the first of 102 to 199, which came while nothing ran
    await reading
    assert server.times.heard("102")[1] == before
    await answers()
    assert server.hear("199", after=0.02) == stood_still
    server.times.close()
    writer.close()
    far.close()
