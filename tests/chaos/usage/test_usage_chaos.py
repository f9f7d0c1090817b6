"""kill -9 of prober and monitor again and again in a stream of pods, and of all they depend on.

Postgres and the API server restart in between. Afterwards every pod of the generator is there
once, with its very seconds. Where the server's watch history was kept, nothing is estimated; where
it was cut, what is estimated is off by no more than its stored uncertainty. 200 deaths among
20,000 pods in the long form (`make chaos`), fewer without.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.chaos.usage.mortals import STALE_SECONDS
from tests.fakes.livestream import LiveStream, compare
from tests.fakes.longform import IS_LONG
from tests.fakes.ownpostgres import OwnPostgres, ddl_of
from tests.fakes.podstream import PodStream
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

TABLES = (
    "usage_podlifetime",
    "usage_monitorround",
    "ipuhub_watchcheckpoint",
    "ipuhub_watchgap",
    "ipuhub_recordfault",
)
SEED = int(os.environ.get("CHAOS_SEED", "1"))


@dataclass(frozen=True)
class Size:
    """The size of a run: pods that live while history is kept, while it is cut, and that end
    unseen; and the deaths.

    After `postgres`, `api` and `alone` deaths each: a restart of the one, of the other, and a
    prober that stays dead until the monitor judges alone.
    """

    kept: int
    cut: int
    unseen: int
    deaths_kept: int
    deaths_cut: int
    postgres: int
    api: int
    alone: int


LONG = Size(15_000, 4_800, 200, 150, 48, 25, 20, 40)
QUICK = Size(800, 300, 40, 18, 8, 9, 6, 9)
SIZE = LONG if IS_LONG else QUICK
pytestmark = pytest.mark.timeout(3_600 if IS_LONG else 600)


@dataclass
class Mortals:
    """One prober and one monitor, each replaced as soon as it is dead."""

    maker: asyncio.subprocess.Process
    log: Path
    pids: dict[str, int] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)

    async def make(self, name: str) -> None:
        assert self.maker.stdin is not None
        assert self.maker.stdout is not None
        self.maker.stdin.write(name.encode() + b"\n")
        self.pids[name] = int(await self.maker.stdout.readline())

    def kill(self, name: str) -> None:
        try:
            os.kill(self.pids.pop(name), signal.SIGKILL)
        except ProcessLookupError:
            pytest.fail(f"a {name} ended by itself; {self.log} has its last words")
        self.deaths[name] += 1

    async def end(self) -> None:
        """Kill all that is left, whatever ended by itself."""
        for pid in self.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.maker.kill()
        await self.maker.wait()


@dataclass
class World:
    """All that runs, and all that is there afterwards."""

    server: PodStream
    postgres: OwnPostgres
    mortals: Mortals
    stream: LiveStream

    def query(self, sql: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.postgres.server.url, row_factory=dict_row) as connection:
            return connection.execute(sql).fetchall()

    def compare(self, pods: range) -> Counter[str]:
        """Check every row against the generator; count the sources of their ends."""
        rows = self.query("SELECT * FROM usage_podlifetime")
        gaps = self.query("SELECT * FROM ipuhub_watchgap")
        return compare(self.stream, pods, rows, gaps)

    def is_recorded(self) -> bool:
        found = self.query("SELECT resource_version FROM ipuhub_watchcheckpoint")
        return bool(found) and found[0]["resource_version"] == str(self.server.revision)

    async def wait_for_progress(self) -> None:
        """Wait until the prober has recorded something new, or all that there is."""
        sql = "SELECT resource_version FROM ipuhub_watchcheckpoint"
        before = self.query(sql)
        await eventually(lambda: self.is_recorded() or self.query(sql) != before)

    async def wait_for_monitor_alone(self) -> None:
        """Wait for a round of the monitor to which a prober that died before now is stale."""
        sql = "SELECT began_at FROM usage_monitorround"
        stale = datetime.now(UTC) + timedelta(seconds=STALE_SECONDS)
        await eventually(lambda: any(each["began_at"] > stale for each in self.query(sql)))

    async def restart_postgres(self, choose: random.Random) -> None:
        await self.postgres.stop(choose.choice((signal.SIGINT, signal.SIGQUIT)))
        await self.postgres.start()

    async def restart_api(self, *, cuts_history: bool) -> None:
        await self.server.stop()
        if cuts_history:
            await asyncio.sleep(0.3)
            self.server.forget()
        await self.server.start()


async def kill_many(world: World, pods: range, deaths: int, *, cuts_history: bool) -> None:
    """Kill `deaths` times at random while `pods` live and go, then wait until all is recorded."""
    size = SIZE
    choose = random.Random(SEED)
    gate = asyncio.Semaphore(0)
    feeding = asyncio.create_task(world.stream.run(pods, deaths, gate))
    for death in range(deaths):
        gate.release()
        victim = choose.choice(("prober", "prober", "monitor"))
        # From death in the first statement to death in the middle of a stream.
        if cuts_history or choose.random() < 0.4:
            await world.wait_for_progress()
        await asyncio.sleep(choose.random() ** 2 * 0.3)
        world.mortals.kill(victim)
        if death % size.postgres == size.postgres - 1:
            await world.restart_postgres(choose)
        if death % size.api == size.api - 1:
            await world.restart_api(cuts_history=cuts_history)
        if death % size.alone == size.alone // 2 and victim == "prober":
            # Until the monitor has judged alone; shorter than the history.
            gate.release()
            await world.wait_for_monitor_alone()
        await world.mortals.make(victim)
    for _ in range(deaths):
        gate.release()
    await feeding
    await eventually(world.is_recorded, seconds=120)


async def end_unseen(world: World, pods: range, *, with_monitor: bool) -> None:
    """Let half of `pods` end and go while the prober is dead, and cut the history behind them."""
    for step in ("ADDED", "RUNNING"):
        for number in pods:
            world.stream.step(number, step)
        await world.server.tell()
    await eventually(world.is_recorded)
    names = ("prober",) if with_monitor else ("prober", "monitor")
    for name in names:
        world.mortals.kill(name)
    for step in ("ENDED", "DELETED"):
        for number in pods[::2]:
            world.stream.step(number, step)
    world.server.forget()
    sql = "SELECT count(*) AS rows FROM usage_podlifetime WHERE end_source = 'monitor'"
    if with_monitor:  # it finds them all, since nobody else writes
        want = world.query(sql)[0]["rows"] + len(pods[::2])
        await eventually(lambda: world.query(sql)[0]["rows"] == want)
    for name in names:
        await world.mortals.make(name)
        # Of two that begin together either may be the first to end them.
        await eventually(world.is_recorded)
    for step in ("ENDED", "DELETED"):
        for number in pods[1::2]:
            world.stream.step(number, step)
        await world.server.tell()
    await eventually(world.is_recorded)


async def go_through(world: World) -> None:
    """All that happens, and what has to be there afterwards."""
    size = SIZE
    kept, cut = range(size.kept), range(size.kept, size.kept + size.cut)
    by_list = range(cut.stop, cut.stop + size.unseen)
    by_monitor = range(by_list.stop, by_list.stop + size.unseen)
    everything = range(by_monitor.stop)
    await kill_many(world, kept, size.deaths_kept, cuts_history=False)
    assert world.compare(kept) == Counter({"event": len(kept)})
    assert world.query("SELECT * FROM ipuhub_watchgap") == []
    await kill_many(world, cut, size.deaths_cut, cuts_history=True)
    await end_unseen(world, by_list, with_monitor=False)
    await end_unseen(world, by_monitor, with_monitor=True)
    half = size.unseen // 2
    assert world.compare(by_list) == Counter({"event": half, "relist estimated": half})
    assert world.compare(by_monitor) == Counter({"event": half, "monitor estimated": half})
    sources = world.compare(everything)
    (count,) = world.query("SELECT count(*) AS rows FROM usage_podlifetime")
    assert count["rows"] == len(everything) - sources["inside a gap"]
    deaths = world.mortals.deaths
    print(f"{len(everything)} pods, deaths {dict(deaths)}, ends {dict(sources)}")
    assert sum(deaths.values()) == size.deaths_kept + size.deaths_cut + 3


@pytest.fixture
def ddl(transactional_db: None) -> str:
    """The tables as the migrations make them."""
    return "; ".join(ddl_of(table) for table in TABLES)


async def test_deaths_of_prober_and_monitor_lose_double_and_bend_nothing(
    ddl: str, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "tests.chaos.usage.mortals")
    async with OwnPostgres(tmp_path / "postgres") as postgres, PodStream() as server:
        with psycopg.connect(postgres.server.url) as connection:
            connection.execute(ddl)
        pipe = asyncio.subprocess.PIPE
        with (tmp_path / "log").open("wb") as log:
            maker = await asyncio.create_subprocess_exec(
                *command, server.url, postgres.server.url, stdin=pipe, stdout=pipe, stderr=log
            )
        world = World(server, postgres, Mortals(maker, tmp_path / "log"), LiveStream(server))
        print(f"CHAOS_SEED={SEED}; the log of prober and monitor: {tmp_path / 'log'}")
        try:
            for name in ("prober", "monitor"):
                await world.mortals.make(name)
            await eventually(world.is_recorded)
            await go_through(world)
        finally:
            await world.mortals.end()
