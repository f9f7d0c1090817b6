"""2,000 pods while Postgres, the API server or the prober itself goes down and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fakes.forked import forked
from tests.fakes.ownpostgres import OwnPostgres, ddl_of
from tests.fakes.podstream import STEPS, expected_row, uid_of
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.fakes.podstream import PodStream
    from tests.integration.prober.conftest import Lab

PODS = 2_000


ALIVE = 100


class Feed:
    """Lets pods live and go, `ALIVE` at once, each a step at a time: as many steps as it may."""

    def __init__(self, server: PodStream, pods: int, pause: float) -> None:
        self._server, self._pods, self._pause = server, pods, pause
        self._allowed = asyncio.Semaphore(0)
        self._feeding = asyncio.create_task(self._feed())

    def allow(self, steps: int) -> None:
        for _ in range(steps):
            self._allowed.release()

    async def go_on(self) -> None:
        """Let 2,000 changes more happen; return in the middle of them."""
        at = self._server.revision
        self.allow(2_000 // ALIVE)
        await eventually(lambda: self._server.revision > at + 1_500)

    async def end(self) -> None:
        self.allow(self._pods * len(STEPS))
        await self._feeding

    async def _feed(self) -> None:
        for first in range(0, self._pods, ALIVE):
            for step in STEPS:
                await self._allowed.acquire()
                for number in range(first, min(first + ALIVE, self._pods)):
                    self._server.step(number, step)
                await self._server.tell()
                await asyncio.sleep(self._pause)


def assert_truth(lab: Lab, pods: int) -> None:
    """Every pod once, with the very times of the generator."""
    rows = lab.rows()
    assert len(rows) == pods
    wrong = [
        number
        for number in range(pods)
        if (truth := expected_row(number))
        and (row := rows[uid_of(number)])
        and (row["scheduled_at"], row["finished_at"], row["estimated"])
        != (truth.scheduled_at, truth.finished_at, False)
    ]
    assert wrong == []
    assert not lab.gaps()


async def test_the_api_server_restarts_in_the_middle(lab: Lab) -> None:
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    feed = Feed(lab.server, PODS, pause=0.02)
    for _ in range(3):
        await feed.go_on()
        await lab.server.stop()
        await lab.server.start()
    await feed.end()
    await eventually(lambda: lab.is_at(lab.server.revision))
    assert lab.server.watches >= 4
    assert_truth(lab, PODS)


@pytest.fixture
def ddl(transactional_db: None) -> str:
    """The recordings' tables as the migrations make them."""
    tables = ("usage_podlifetime", "ipuhub_watchcheckpoint", "ipuhub_watchgap")
    return "; ".join(ddl_of(table) for table in (*tables, "ipuhub_recordfault"))


async def test_postgres_restarts_in_the_middle(lab: Lab, ddl: str, tmp_path: Path) -> None:
    async with OwnPostgres(tmp_path / "postgres") as own:
        with psycopg.connect(own.server.url) as connection:
            connection.execute(ddl)
        lab.database = {**psycopg.conninfo.conninfo_to_dict(own.server.url), **_timeouts()}
        lab.start()
        try:
            await eventually(lambda: lab.is_at(lab.server.revision))
            feed = Feed(lab.server, PODS, pause=0.02)
            for number in (signal.SIGINT, signal.SIGQUIT):  # fast, and as by a crash
                await feed.go_on()
                await own.stop(number)
                await eventually(lambda: "Postgres" in " ".join(lab.health[0].not_ready()))
                await own.start()
            await feed.end()
            await eventually(lambda: lab.is_at(lab.server.revision))
            await eventually(lambda: not lab.health[0].not_ready())
            assert lab.checkpoint()["epoch"] == 1
            assert_truth(lab, PODS)
        finally:
            await lab.stop()


def _timeouts() -> dict[str, Any]:
    return {"connect_timeout": 5, "options": "-c timezone=UTC"}


async def test_kill_9_of_the_prober_twenty_times(lab: Lab) -> None:
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    await lab.stop()
    feed = Feed(lab.server, PODS, pause=0.14)
    command = ["-m", "tests.integration.prober.record_until_killed"]
    command += [lab.server.url, psycopg.conninfo.make_conninfo(**_plain(lab.database))]
    for kill in range(20):
        process = forked(command, Path.cwd(), os.environ)
        epoch = kill + 2
        await eventually(lambda epoch=epoch: lab.checkpoint().get("epoch") == epoch)
        before = lab.checkpoint()["resource_version"]
        feed.allow(4)  # the last three of them, or less, for its successor
        await eventually(lambda before=before: lab.checkpoint()["resource_version"] != before)
        process.kill()
        await asyncio.to_thread(process.join)
    await feed.end()
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    await eventually(lambda: lab.checkpoint()["epoch"] == 22)
    assert_truth(lab, PODS)


def _plain(database: dict[str, Any]) -> dict[str, Any]:
    return {key: database[key] for key in ("dbname", "user", "password", "host", "port")}
