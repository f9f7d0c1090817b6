"""2,000 pods while Postgres, the API server or the prober itself goes down and comes back."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fakes.ownpostgres import OwnPostgres, ddl_of
from tests.fakes.podstream import STEPS, truth_of, uid_of
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.podstream import PodStream
    from tests.integration.prober.conftest import Lab

PODS = 2_000


async def feed(server: PodStream, pods: int, *, pause: float, alive: int = 100) -> None:
    """Let pods live and go, each a step at a time, `alive` of them at once."""
    for first in range(0, pods, alive):
        for step in STEPS:
            for number in range(first, min(first + alive, pods)):
                server.step(number, step)
            await server.tell()
            await asyncio.sleep(pause)


def assert_truth(lab: Lab, pods: int) -> None:
    """Every pod once, with the very times of the generator."""
    rows = lab.rows()
    assert len(rows) == pods
    wrong = [
        number
        for number in range(pods)
        if (truth := truth_of(number))
        and (row := rows[uid_of(number)])
        and (row["scheduled_at"], row["finished_at"], row["estimated"])
        != (truth.scheduled_at, truth.finished_at, False)
    ]
    assert wrong == []
    assert not lab.gaps()


async def test_the_api_server_restarts_in_the_middle(lab: Lab) -> None:
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    feeding = asyncio.create_task(feed(lab.server, PODS, pause=0.02))
    for _ in range(3):
        at = lab.server.revision
        await eventually(lambda at=at: lab.server.revision > at + 1_500)
        await lab.server.stop()
        await lab.server.start()
    await feeding
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
            feeding = asyncio.create_task(feed(lab.server, PODS, pause=0.02))
            for number in (signal.SIGINT, signal.SIGQUIT):  # fast, and as by a crash
                at = lab.server.revision
                await eventually(lambda at=at: lab.server.revision > at + 1_500)
                await own.stop(number)
                await eventually(lambda: "Postgres" in " ".join(lab.health[0].not_ready()))
                await own.start()
            await feeding
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
    feeding = asyncio.create_task(feed(lab.server, PODS, pause=0.14))
    command = [sys.executable, "-m", "tests.integration.prober.record_until_killed"]
    command += [lab.server.url, psycopg.conninfo.make_conninfo(**_plain(lab.database))]
    for kill in range(20):
        process = await asyncio.create_subprocess_exec(*command)
        epoch = kill + 2
        await eventually(lambda epoch=epoch: lab.checkpoint().get("epoch") == epoch)
        before = lab.checkpoint()["resource_version"]
        if not feeding.done():
            await eventually(
                lambda before=before: (
                    lab.checkpoint()["resource_version"] != before or feeding.done()
                )
            )
        process.kill()
        await process.wait()
    await feeding
    lab.start()
    await eventually(lambda: lab.is_at(lab.server.revision))
    await eventually(lambda: lab.checkpoint()["epoch"] == 22)
    assert_truth(lab, PODS)


def _plain(database: dict[str, Any]) -> dict[str, Any]:
    return {key: database[key] for key in ("dbname", "user", "password", "host", "port")}
