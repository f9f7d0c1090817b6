"""Pod events over HTTP to committed rows, beside a bare loop that decodes and inserts.

Generator, recorder and PostgreSQL (fsync on) are processes of their own; their CPU is quoted
apart. Both sides read the same stream, in turns; figures are medians.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import psycopg
import structlog

from devcluster.demo.postgres import EmbeddedPostgres
from ipuhub.kube.client import KubeClient
from ipuhub.kube.credentials import ClusterConfig
from ipuhub.kube.watch import split_batches
from ipuhub.process.health import Health
from ipuhub.recording.recording import Recording
from jobs.history.recorder import JobRecorder
from tests.bench.ingest_generator import job_of
from tests.fakes.freeport import free_port
from tests.fakes.podstream import EPOCH
from tests.fakes.postgresbinaries import chosen_binaries
from usage.pods.recorder import PodRecorder
from usage.prober import recorded_jobs

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Awaitable, Callable

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Round:
    """One run of one side, in seconds."""

    wall: float
    own_cpu: float
    postgres_cpu: float
    generator_cpu: float


class Generator:
    """The process that sends."""

    def __init__(self, pods: int, size: int, kind: str) -> None:
        command = [sys.executable, "-m", "tests.bench.ingest_generator", str(pods), str(size), kind]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        port, self.line_bytes = map(int, self._answer().split())
        self.url = f"http://127.0.0.1:{port}"

    def go(self) -> int:
        """Let everything happen; return the version of the last event."""
        self._say()
        return int(self._answer())

    def cpu(self) -> float:
        """CPU seconds used since `go`."""
        self._say()
        return float(self._answer())

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()

    def _say(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def run(options: Namespace) -> None:
    """Measure and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="ipuhub-bench-") as folder:
        port = free_port()
        server = EmbeddedPostgres(Path(folder), port, binaries=chosen_binaries())
        server.prepare()
        process = subprocess.Popen(server.command(), stderr=subprocess.DEVNULL)
        kind = "plain" if options.stamps == "none" else "stamped"
        generator = Generator(options.pods, options.bytes, kind)
        try:
            while not server.is_ready():
                time.sleep(0.1)
            _migrate(server.url)
            if options.stamps == "recorded":
                _record_jobs(server.url, options.pods)
            sides = {"recorder": record, "bare loop": bare_loop}
            rounds: dict[str, list[Round]] = {name: [] for name in sides}
            for _ in range(options.rounds):
                for name, side in sides.items():
                    measured = asyncio.run(_measure(side, generator, server.url, process.pid))
                    rounds[name].append(measured)
        finally:
            generator.close()
            process.send_signal(2)
            process.wait(20)
    _print(rounds, options.pods * 4, generator.line_bytes)


def _migrate(url: str) -> None:
    environment = os.environ | {"DATABASE_URL": url, "IPUHUB_SECRET_KEY": "for the bench " * 4}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, env=environment, check=True)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE bare (uid text, version text, phase text, body jsonb)")


def _record_jobs(url: str, pods: int) -> None:
    """The jobs of all stamped pods."""
    namespaces = {job_of(f"pod-{n}"): f"team-{n % 3}" for n in range(pods)}
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        recorder = JobRecorder(lambda _: "g")
        for uid, namespace in namespaces.items():
            job = {"metadata": {"uid": uid, "name": uid, "namespace": namespace}, "spec": {}}
            recorder.write(cursor, [recorder.read("ADDED", job, [], EPOCH)], "cluster-1", EPOCH)


async def _measure(
    side: Callable[[Generator, str], Awaitable[tuple[float, float]]],
    generator: Generator,
    url: str,
    postmaster: int,
) -> Round:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE usage_podlifetime, ipuhub_watchcheckpoint, bare")
        connection.execute("TRUNCATE usage_rollupdirt")
        connection.execute("CHECKPOINT")
    before = postgres_cpu(postmaster)
    wall, cpu = await side(generator, url)
    after = postgres_cpu(postmaster)
    return Round(wall, cpu, after - before, generator.cpu())


async def record(generator: Generator, url: str) -> tuple[float, float]:
    """The product's recording, from its first list on."""
    arguments = {**psycopg.conninfo.conninfo_to_dict(url), "options": "-c timezone=UTC"}
    async with KubeClient(ClusterConfig(generator.url)) as client:
        pods = PodRecorder(recorded=recorded_jobs)
        recording = Recording(client, pods, arguments, Health(), lambda: datetime.now(UTC))
        task = asyncio.create_task(recording.run())
        while recording.problem:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # the watch is open
        began, cpu = time.perf_counter(), time.process_time()
        last = str(generator.go())
        while recording.position != last:
            await asyncio.sleep(0.005)
        spent = time.perf_counter() - began, time.process_time() - cpu
        task.cancel()
        await asyncio.wait([task])
    _check(url, "SELECT count(*) FROM usage_podlifetime WHERE finished_at IS NOT NULL")
    return spent


class _Meta(msgspec.Struct):
    uid: str
    resourceVersion: str  # noqa: N815  # the API's own name


class _Status(msgspec.Struct):
    phase: str


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _Status


class _Event(msgspec.Struct):
    type: str
    object: _Pod


async def bare_loop(generator: Generator, url: str) -> tuple[float, float]:
    """Decode three fields of each event and insert them, a thousand to a transaction."""
    decoder = msgspec.json.Decoder(_Event)
    connection = await psycopg.AsyncConnection.connect(url)
    path = f"{generator.url}/api/v1/pods"
    async with connection, aiohttp.ClientSession() as session:
        async with session.get(path, params={"limit": "1"}) as answer:
            since = (await answer.json())["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": since}
        async with session.get(path, params=query) as answer:
            began, cpu = time.perf_counter(), time.process_time()
            last = str(generator.go())
            rows: list[Any] = []
            async for lines in split_batches(answer.content.iter_any()):
                for line in lines:
                    pod = decoder.decode(line).object
                    rows.append((pod.metadata.uid, pod.metadata.resourceVersion, pod.status.phase))
                done = rows[-1][1] == last
                if len(rows) >= 1000 or done:
                    await connection.execute(
                        "INSERT INTO bare SELECT unnest(%s::text[]), unnest(%s::text[]), "
                        "unnest(%s::text[])",
                        [[*column] for column in zip(*rows, strict=True)],
                    )
                    await connection.commit()
                    rows.clear()
                if done:
                    break
            return time.perf_counter() - began, time.process_time() - cpu


def _check(url: str, sql: str) -> None:
    with psycopg.connect(url) as connection:
        found = connection.execute(sql).fetchone()
        assert found is not None
        print(f"  {found[0]} pods committed with their exact end", flush=True)


def postgres_cpu(postmaster: int) -> float:
    """CPU seconds of a server and all its processes, ended processes included."""
    total = 0
    family = {postmaster}
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            stats[int(entry.name)] = text.rpartition(")")[2].split()
    for _ in range(3):
        family |= {pid for pid, fields in stats.items() if int(fields[1]) in family}
    for pid in family & set(stats):
        total += sum(map(int, stats[pid][11:15]))
    return total / _TICKS


def _print(rounds: dict[str, list[Round]], events: int, line_bytes: int) -> None:
    print(f"{events} events of {line_bytes} bytes, fsync on, medians of {len(rounds['recorder'])}")
    print("                events/s   CPU ms/event: own  PostgreSQL  generator   [rates]")
    for name, found in rounds.items():

        def median(field: str, found: list[Round] = found) -> float:
            return statistics.median(getattr(one, field) for one in found)

        each = [
            f"{median(field) / events * 1000:10.4f}"
            for field in ("own_cpu", "postgres_cpu", "generator_cpu")
        ]
        rates = " ".join(f"{events / one.wall:.0f}" for one in found)
        print(f"{name:<14}{events / median('wall'):10.0f}      {' '.join(each)}   [{rates}]")
